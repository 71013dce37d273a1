"""Where the threads of classes are: how many a process has, and which classes share processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor_lab.profile.models import ClassRuns, scale_columns
from advisor_lab.profile.runs import ProfiledRun, ThreadId
from advisor_lab.profile.trends import ExactTrend, exact_trend


@dataclass(frozen=True, slots=True)
class ClassPlaces:
    """Where the threads of one class are.

    ``each`` is how many a process has, by the scale; ``beside`` the classes that have the first
    threads of the same processes, "" for a class that has them itself.
    """

    each: ExactTrend
    first: int
    beside: tuple[str, ...] = ()

    def threads_each(self, place: Mapping[str, float]) -> int:
        """Return how many threads one process has at a scale; 1 at least."""
        return max(1, self.each.whole_at(place) or 1)


def class_places(classes: Sequence[ClassRuns]) -> tuple[dict[str, ClassPlaces], list[str]]:
    """Return where the threads of each class are in all training runs, and what to say of it."""
    values = scale_columns([run for run, _ in classes[0].train])
    first = {c.name: min(t for _, members in c.train for _, t in members) for c in classes}
    homes = {c.name: [{p for p, _ in members} for _, members in c.train] for c in classes}
    places, notes = {}, []
    for class_runs in classes:
        numbers = [_threads_per_process(run, members) for run, members in class_runs.train]
        trend = None
        if len(set(numbers)) == 1 and numbers[0]:
            trend = ExactTrend((), (float(numbers[0]),))
        elif all(numbers):
            trend = exact_trend(values, np.array(numbers, dtype=np.float64))
        if trend is None:
            notes.append(
                f"class {class_runs.name}: how many of its threads a process has follows no trend: "
                "each is written as a process of its own"
            )
        hosts = tuple(
            host.name
            for host in classes
            if trend is not None
            and first[host.name] < first[class_runs.name]
            and first[host.name] == min(first.values())
            and all(a <= b for a, b in zip(homes[host.name], homes[class_runs.name], strict=True))
        )
        places[class_runs.name] = ClassPlaces(
            trend or ExactTrend((), (1.0,)), first[class_runs.name], hosts
        )
    return places, notes


def _threads_per_process(run: ProfiledRun, members: Sequence[ThreadId]) -> int:
    """Return how many threads of a class each of its processes has; 0 where they differ.

    A thread that stands for others of its class is in all of the run's processes, if it can be.
    """
    counts: dict[int, float] = {}
    for thread in members:
        counts[thread[0]] = counts.get(thread[0], 0.0) + run.threads[thread].count
    if all(run.threads[thread].count == 1 for thread in members):
        return int(next(iter(counts.values()))) if len(set(counts.values())) == 1 else 0
    thread_count = sum(counts.values())
    return int(thread_count / run.processes) if thread_count % run.processes == 0 else 1
