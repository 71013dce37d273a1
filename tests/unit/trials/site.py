"""A site whose daemon tries points: its jobs run as decided, by a law."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from pwd import getpwuid
from typing import Any, ClassVar

from advisor.core.decision import Decision
from advisor.derive.worker import derive
from advisor.loop.collect import Collected, collect
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.service.handlers import Handlers
from advisor.service.peer import Peer
from advisor.service.snapshot import StoreSource
from advisor.store.journal import Journal
from advisor.store.trials import trials
from advisor.store.writer import Writer
from tests.unit.never_swept import CORES, SCRIPT, law

USER = getpwuid(os.getuid()).pw_name
HERE = Peer(os.getpid(), os.getuid(), os.getgid())


class Accounting:
    """A scheduler with the records it was given."""

    NAME: ClassVar[str] = "slurm"

    def __init__(self, *ended: JobRecord, queue: Sequence[JobRecord] = ()) -> None:
        self.ended, self.queue = list(ended), list(queue)

    def finished_jobs(self, since: str) -> list[JobRecord]:
        return self.ended

    def unfinished_jobs(self) -> list[JobRecord]:
        return list(self.queue)


class Site:
    """A store, its daemon's handlers, and jobs that run as decided by a law."""

    def __init__(self, writer: Writer) -> None:
        self.store = writer
        self.jobs = 100
        self.daemons = [self._daemon()]

    def _daemon(self) -> Handlers:
        path = Path(self.store.path)
        found = Handlers(StoreSource(path), journal=Journal(path))
        found.refresh()
        return found

    def ask(self, script: str = SCRIPT, daemon: int = 0, **more: Any) -> dict[str, Any]:
        """Ask the daemon as the filter does."""
        body = {
            "v": 1,
            "op": "decide",
            "scheduler": "slurm",
            "hook": "cli_filter",
            "type": "sbatch",
            "options": {"nodes": "1", "exclusive": "exclusive", "mem": "2G", "time": "600", **more},
            "argv": ["/home/job.sh"],
            "script": script,
            "script_path": "/home/job.sh",
            "truncated": False,
            "env": {},
            "choices": "",
            "cwd": "/home",
            "het": False,
        }
        found: dict[str, Any] = json.loads(
            self.daemons[daemon].answer(json.dumps(body).encode(), HERE)
        )
        return found

    def submit(self, script: str = SCRIPT, daemon: int = 0, **more: Any) -> Decision:
        """Ask the daemon as the filter does; what it decided is in the store."""
        answer, handlers = self.ask(script, daemon, **more), self.daemons[daemon]
        handlers.settle()
        assert handlers.journal is not None
        waiting = list(handlers.journal._items)
        decision = next(i.decision for i in waiting if i.decision_id == answer["decision"])
        assert decision is not None
        self.store.save_decision(decision)
        return decision

    def job(self, decision: Decision, memory: float, **more: Any) -> JobRecord:
        """Return the accounting's record of a decision's job that ran by the law."""
        self.jobs += 1
        ran = decision.configuration
        assert ran is not None
        time_s, watts = law(memory, ran.threads_per_node, ran.freq_khz)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        values: dict[str, Any] = {
            "submitted_at": now,
            "ended_at": now,
            "elapsed_s": time_s,
            "nodes": 1,
            "node_list": "n1",
            "cpus": CORES,
            "energy_j": time_s * watts,
            "resolution_s": 0.01,
            "freq_requested_khz": ran.freq_khz,
            "partition": "batch",
        } | more
        self.store.link_job(decision.id, str(self.jobs))
        step = StepRecord("0", "new", "COMPLETED", time_s, 1, 1, time_s * watts, ran.freq_khz)
        record = JobRecord(str(self.jobs), "job", USER, "", values.pop("state", "COMPLETED"))
        return replace(record, steps=(step,) if values["node_list"] else (), **values)

    def collect(
        self, *ended: JobRecord, queue: Sequence[JobRecord] = (), then_derive: bool = True
    ) -> Collected:
        found = collect(self.store, Accounting(*ended, queue=queue), datetime.now(UTC))  # type: ignore[arg-type]
        assert not then_derive or derive(self.store)
        for daemon in self.daemons:
            daemon.refresh()
        return found

    @property
    def states(self) -> list[str]:
        return [t.state for t in trials(self.store)]
