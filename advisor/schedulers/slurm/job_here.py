"""The job of Slurm that this process runs in, and its steps."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

from advisor.errors import SchedulerError
from advisor.schedulers.slurm.control import ask

_TIMEOUT_S = 30.0
"""Seconds that the controller may take to answer."""


@dataclass(frozen=True, slots=True)
class SlurmJobHere:
    """A job of Slurm by its id, seen from one of its nodes."""

    id: str

    @classmethod
    def find(cls) -> SlurmJobHere | None:
        """Return the job that the environment names, None outside of jobs."""
        name = os.environ.get("SLURM_JOB_ID", "")
        return cls(name) if name else None

    def nodes(self) -> int:
        """Return how many nodes it has; 1 where nothing says so."""
        stated = os.environ.get("SLURM_JOB_NUM_NODES", "")
        return int(stated) if stated.isdecimal() else 1

    def steps(self) -> list[str]:
        """Return the steps that srun runs now, as JOB.STEP; none where Slurm does not answer."""
        command = ["squeue", "--noheader", "--steps", f"--jobs={self.id}", "--format=%i"]
        try:
            listed = ask(*command, timeout_s=_TIMEOUT_S)
        except SchedulerError:
            return []
        return [step for step in listed.split() if step.rpartition(".")[2].isdecimal()]

    def signal(self, step: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a step; a step that is gone is no error."""
        command = ["scancel", f"--signal={number.name.removeprefix('SIG')}", step]
        with contextlib.suppress(SchedulerError):
            ask(*command, timeout_s=_TIMEOUT_S)
