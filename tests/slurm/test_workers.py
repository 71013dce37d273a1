"""Fits on jobs of a real Slurm, by dask-jobqueue."""

from __future__ import annotations

from pathlib import Path

import pytest
from testbed import Testbed

from advisor.schedulers.slurm.scheduler import Slurm
from tests.dask_jobs import run_three_tasks


def test_tasks_run_on_jobs_of_the_scheduler(
    testbed: Testbed, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slurm
    run_three_tasks(tmp_path / "shared", "slurm", "broadwell")
    testbed.rest()  # until then the accounting may not have heard of them
    # Without a beginning sacct shows today's alone, at midnight none.
    today = ["-S", "now-1days", "--name=advisor-workers", "-o", "jobid,state"]
    jobs = testbed.run(["sacct", "-nX", *today])
    assert len(jobs.stdout.splitlines()) == 2, jobs
