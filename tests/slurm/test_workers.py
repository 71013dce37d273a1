"""Fits on jobs of a real Slurm, by dask-jobqueue."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed import Testbed

from advisor.core.workers_setup import WorkersSetup
from advisor.schedulers.slurm.scheduler import Slurm
from advisor.workers.base import Task, engine


def test_tasks_run_on_jobs_of_the_scheduler(
    testbed: Testbed, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask_jobqueue")
    assert slurm
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o700)
    setup = WorkersSetup(
        engine="dask",
        scheduler="slurm",
        jobs=2,
        partition="broadwell",
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
    testbed.rest()  # until then the accounting may not have heard of them
    # Without a beginning sacct shows today's alone, at midnight none.
    today = ["-S", "now-1days", "--name=advisor-workers", "-o", "jobid,state"]
    jobs = testbed.run(["sacct", "-nX", *today])
    assert len(jobs.stdout.splitlines()) == 2, jobs
