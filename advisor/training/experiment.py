"""What an experiment file, HPCProbe's, asks of a sweep. The laboratory reads such files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from advisor import laboratory
from advisor.core.inventory import NodeType
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob

FORMAT = "hpcprobe"
"""The name under which packages register what experiment files need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One sweep of an experiment: the job script that runs it once, and the grid.

    ``threads`` are cores per node, ``freqs_khz`` caps in kHz (empty: as the node type has them),
    ``attempts`` is how often a run is tried, 0 for as usual. ``go_on`` and ``reget`` ask for an
    earlier sweep to be continued or read again. ``events`` are counters to read where that is
    possible, ``notes`` name what is done otherwise than HPCProbe does it. ``after`` is what follows
    each run, for whichever package is registered for it (``advisor.after_run``), as JSON has it.
    """

    name: str
    script: str
    nodes: int
    threads: tuple[int, ...]
    freqs_khz: tuple[int, ...]
    repeats: int
    attempts: int
    go_on: bool
    reget: bool
    node_sockets: int
    events: tuple[str, ...]
    after: Mapping[str, Any]
    notes: tuple[str, ...]

    def frequencies(self, node_type: NodeType) -> tuple[tuple[int, ...], list[str]]:
        """Return the frequency caps that a node type has, and a warning where it lacks some."""
        steps = tuple(f for f in self.freqs_khz if f in node_type.freq_khz)
        lacking_count = len(self.freqs_khz) - len(steps)
        if not lacking_count or not node_type.freq_khz:
            return steps, []
        return steps, [
            f"{lacking_count} of the experiment's {len(self.freqs_khz)} frequency caps are not "
            f"steps of {node_type.name} and are left out"
        ]


class AfterRun(Protocol):
    """What follows the runs of an experiment's sweep; it is no part of what is measured.

    ``kept`` is what it has of each good run, by number.
    """

    kept: dict[str, dict[str, float | str]]

    def take(self, job: SweepJob, run: PlannedRun, result: RunResult) -> str:
        """Take what a good run has printed, once; return what went wrong, or ""."""

    def summarise(self, runs: Sequence[tuple[PlannedRun, RunResult]]) -> list[Path]:
        """Write the summary of all good runs; return where it is. Raises OSError."""


def is_experiment(path: Path) -> bool:
    """Tell whether a file's name says that it is an experiment file."""
    return path.suffix.lower() == ".ini"


def after_run(settings: Mapping[str, Any], folder: Path, working_folder: Path) -> AfterRun:
    """Return what follows each run, by an experiment's ``processor``. Raises LaboratoryError."""
    make = laboratory.load("after_run", FORMAT, "train of experiment files")
    processor: AfterRun = make(settings, folder, working_folder)
    return processor
