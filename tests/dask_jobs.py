"""Three tasks on workers that dask-jobqueue starts as a scheduler's jobs, for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.core.workers_setup import WorkersSetup
from advisor.workers.base import Task, engine


def run_three_tasks(folder: Path, scheduler: str, partition: str, account: str = "") -> None:
    """Run them on two jobs; assert that they came back and that nothing is left in ``folder``."""
    pytest.importorskip("dask_jobqueue")
    folder.mkdir(mode=0o700)
    setup = WorkersSetup(
        engine="dask",
        scheduler=scheduler,
        jobs=2,
        partition=partition,
        account=account,
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
