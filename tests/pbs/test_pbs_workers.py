"""Fits on jobs of PBS, by dask-jobqueue: real workers, on the stand-in for the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_pbs_site import Site, site  # noqa: F401

from tests.dask_jobs import run_three_tasks


@pytest.mark.slow
def test_tasks_run_on_jobs_of_pbs(site: Site, tmp_path: Path) -> None:  # noqa: F811
    run_three_tasks(tmp_path / "shared", "pbs", "workq", "chem")
    jobs = site.state()["jobs"].values()
    assert len(jobs) == 2
    for job in jobs:
        assert job["Job_Name"] == "advisor-workers" and job["queue"] == "workq"
        asked = job["Resource_List"]
        assert asked["select"].startswith("1:ncpus=1:mem=") and asked["walltime"] == "00:05:00"
    scripts = [path.read_text() for path in (site.root / "spool").glob("*.SC")]
    assert len(scripts) == 2 and all("\n#ADVISOR off\n" in script for script in scripts)
