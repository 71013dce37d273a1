"""Fits on jobs of PBS, by dask-jobqueue: real workers, on the stand-in for the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_pbs_site import Site, site  # noqa: F401

from advisor.core.workers_setup import WorkersSetup
from advisor.workers.base import Task, engine


@pytest.mark.slow
def test_tasks_run_on_jobs_of_pbs(site: Site, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("dask_jobqueue")
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o700)
    setup = WorkersSetup(
        engine="dask",
        scheduler="pbs",
        jobs=2,
        partition="workq",
        account="chem",
        minutes=5,
        memory_mb=512,
        folder=str(folder),
        interface="lo",
        waits_s=120,
        task_s=60,
    )
    tasks = [Task("os:fspath", text) for text in ("one", "two", "three")]
    done = sorted(engine(setup).run(tasks))
    assert [(d.text, d.problem) for d in done] == [("one", ""), ("two", ""), ("three", "")]
    assert not list(folder.iterdir()), "certificates and logs are gone"
    jobs = site.state()["jobs"].values()
    assert len(jobs) == 2
    for job in jobs:
        assert job["Job_Name"] == "advisor-workers" and job["queue"] == "workq"
        asked = job["Resource_List"]
        assert asked["select"].startswith("1:ncpus=1:mem=") and asked["walltime"] == "00:05:00"
    scripts = [path.read_text() for path in (site.root / "spool").glob("*.SC")]
    assert len(scripts) == 2 and all("\n#ADVISOR off\n" in script for script in scripts)
