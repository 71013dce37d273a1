"""How many threads a run really used, and whether that is what an unset variable stands for.

A program whose thread variable is unset need not use all of its cores: pools of processes give
each worker few threads only while the variable is unset. So nobody sets one for a job unless a
measured run with it unset used as many threads as the job is taken to use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.core.codec import JsonForm, wire
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation

KEY = "thread_use"
"""Under which an observation's ``extra`` holds it."""
MOST_PROCESSES = 4096
"""More processes than this on one node are not kept."""

ThreadShape = tuple[int, int, int]
"""Nodes, ranks per node, threads per node."""


@dataclass(frozen=True, slots=True)
class ThreadUse(JsonForm):
    """What a run's processes on its first node did.

    ``unset``: no process that worked had one of the application's thread variables in its
    environment. ``threads`` has, of each process that worked, how many of its threads did.
    ``knows_cores``: one of them had in its environment how many cores the job's request states for
    a task. Programs that read it may start as many workers.
    """

    unset: bool
    threads: tuple[int, ...]
    knows_cores: bool = field(default=False, metadata=wire(omit=True))

    def fills(self, c: Configuration) -> bool:
        """Tell whether, with the variables unset, each rank ran its share of the threads."""
        return self.unset and self.threads == (c.threads_per_rank,) * c.ranks_per_node

    @classmethod
    def from_dict(cls, data: object) -> ThreadUse | None:
        """Read the JSON form back; None where it makes no sense."""
        if not isinstance(data, Mapping):
            return None
        unset, threads = data.get("unset"), data.get("threads")
        knows = data.get("knows_cores", False)
        if not (isinstance(unset, bool) and isinstance(knows, bool) and isinstance(threads, list)):
            return None
        if not 0 < len(threads) <= MOST_PROCESSES:
            return None
        # Not isinstance: true is an int, too.
        if not all(type(n) is int and n > 0 for n in threads):
            return None
        return cls(unset, tuple(threads), knows)


def unset_stats(runs: Sequence[Observation]) -> dict[str, list[list[int]]]:
    """Return what a model's stats say of its runs with the variables unset.

    ``threads_unset`` has where these stand for all the threads of a configuration, and
    ``threads_of_cores`` where they did in runs that knew their cores a task.
    """
    return {
        "threads_unset": [list(shape) for shape in filled(runs)],
        "threads_of_cores": [list(shape) for shape in filled(runs, knows_cores=True)],
    }


def filled(runs: Iterable[Observation], *, knows_cores: bool = False) -> list[ThreadShape]:
    """Return where unset variables stand for all the threads of a configuration.

    Of several runs there, the last counts (``runs`` are oldest first); with ``knows_cores`` of
    those alone that did.
    """
    last: dict[ThreadShape, bool] = {}
    for run in runs:
        use = ThreadUse.from_dict(run.extra.get(KEY))
        if use is not None and use.unset and (use.knows_cores or not knows_cores):
            last[_shape(run.configuration)] = use.fills(run.configuration)
    return sorted(shape for shape, as_assumed in last.items() if as_assumed)


def filled_by_all(runs: Iterable[tuple[str, Observation]]) -> list[ThreadShape]:
    """Return the same of a family's (workload, run): where several sizes did, and none otherwise.

    A number in the command line may be the number of workers, so one size says nothing of others.
    """
    by_workload: dict[str, list[Observation]] = {}
    for workload, run in runs:
        by_workload.setdefault(workload, []).append(run)
    answers: dict[ThreadShape, list[bool]] = {}
    for workload_runs in by_workload.values():
        shapes = set(filled(workload_runs))
        unset = {_shape(o.configuration) for o in workload_runs if _is_unset(o)}
        for shape in unset:
            answers.setdefault(shape, []).append(shape in shapes)
    return sorted(shape for shape, fills in answers.items() if len(fills) > 1 and all(fills))


def is_filled(shapes: object, c: Configuration) -> bool:
    """Tell whether a model's list of such shapes, as it is stored, has a configuration's."""
    return isinstance(shapes, list) and list(_shape(c)) in shapes


def _is_unset(run: Observation) -> bool:
    use: Any = ThreadUse.from_dict(run.extra.get(KEY))
    return use is not None and use.unset


def _shape(c: Configuration) -> ThreadShape:
    return c.nodes, c.ranks_per_node, c.threads_per_node
