"""Profiled runs of one application, and the means over the threads of a class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.errors import InputError
from advisor_lab.profile.metrics import (
    MetricShape,
    MetricValue,
    mean_cells,
    mean_curve,
    shape_of,
    total,
)

ThreadId = tuple[int, int]
"""Process id and thread id."""


@dataclass(frozen=True, slots=True)
class ProfiledThread:
    """The metrics of one thread; of ``count`` equal ones where a file has a thread per class.

    ``defaulted`` are metrics whose field is missing in the file: their values are only defaults.
    """

    values: Mapping[str, MetricValue]
    defaulted: frozenset[str] = frozenset()
    count: float = 1


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One run: its scaling parameters and its threads."""

    application: str
    scale: Mapping[str, float]
    threads: Mapping[ThreadId, ProfiledThread]
    file: str = ""
    digest: str = ""
    processes: int = 0

    @property
    def key(self) -> tuple[tuple[str, float], ...]:
        """Return the scaling configuration, parameters sorted."""
        return tuple(sorted(self.scale.items()))


def scale_text(scale: Mapping[str, float]) -> str:
    """Return ``NPC=9, PROBLEMSIZE=24``."""
    return ", ".join(f"{name}={value:.12g}" for name, value in sorted(scale.items()))


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """The runs of one application: those to learn from and those to test with."""

    application: str
    train: tuple[ProfiledRun, ...]
    test: tuple[ProfiledRun, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the scaling parameters, sorted."""
        return tuple(sorted(self.train[0].scale)) if self.train else ()


def profile_set(
    application: str, train: Iterable[ProfiledRun], test: Iterable[ProfiledRun] = ()
) -> ProfileSet:
    """Return runs that belong together; of runs at the same scale the first one, which is noted.

    Raises InputError where parameters differ.
    """
    notes: list[str] = []
    sets = []
    for runs in (train, test):
        first_runs: dict[object, ProfiledRun] = {}
        for run in runs:
            first_run = first_runs.setdefault(run.key, run)
            if first_run is not run:
                place_text = scale_text(run.scale)
                notes.append(
                    f"{run.file} repeats {first_run.file} at {place_text}; {first_run.file} is used"
                )
        sets.append(tuple(first_runs.values()))
    together = [run for runs in sets for run in runs]
    for run in together:
        first = together[0]
        if set(run.scale) != set(first.scale):
            raise InputError(
                f"{run.file}: appScale: its parameters are {', '.join(sorted(run.scale))}, those "
                f"of {first.file} are {', '.join(sorted(first.scale))}",
                hint="all runs of an application have the same",
            )
    return ProfileSet(application, sets[0], sets[1], tuple(notes))


def mean_of(run: ProfiledRun, members: Sequence[ThreadId], metric: str) -> MetricValue:
    """Return the mean of a metric over threads; NThreads is how many there are.

    Raises InputError where a thread does not store it.
    """
    threads = [run.threads[i] for i in members]
    weights = [float(t.count) for t in threads]
    if metric == "NThreads":
        return sum(weights)
    values = [t.values.get(metric) for t in threads]
    for i, value in zip(members, values, strict=True):
        if value is None:
            raise InputError(
                f"{run.file}: metric {metric} is not stored for process {i[0]}, thread {i[1]}"
            )
    stored_values = [v for v in values if v is not None]
    shape = shape_of(stored_values[0])
    if shape == "mix":
        return mean_cells((v for v in stored_values if isinstance(v, dict)), weights)
    if shape == "curve":
        curves = [tuple((r[0], r[1]) for r in v) for v in stored_values if isinstance(v, tuple)]
        return mean_curve(curves, weights)
    total_weight = sum(weights)
    return sum(w * total(v) for v, w in zip(stored_values, weights, strict=True)) / total_weight


def counted_mean(run: ProfiledRun, members: Sequence[ThreadId], metric: str) -> MetricValue:
    """Return the mean over threads of a metric times LSys: the count behind a fraction."""
    threads = [run.threads[i] for i in members]
    weights = [t.count * total(t.values.get("LSys", 0.0)) for t in threads]
    thread_count = sum(t.count for t in threads)
    if not sum(weights):
        return 0.0
    mean = mean_of_weighted([t.values[metric] for t in threads], weights)
    factor = sum(weights) / thread_count
    if isinstance(mean, dict):
        return {key: value * factor for key, value in mean.items()}
    return total(mean) * factor


def mean_of_weighted(values: Sequence[MetricValue], weights: Sequence[float]) -> MetricValue:
    """Return the weighted mean of scalars or of mixes."""
    if isinstance(values[0], dict):
        return mean_cells((v for v in values if isinstance(v, dict)), weights)
    return sum(w * total(v) for v, w in zip(values, weights, strict=True)) / sum(weights)


def stored_shape(runs: Sequence[ProfiledRun], metric: str) -> MetricShape | None:
    """Return a metric's type; None where no thread stores more than a default."""
    if metric == "NThreads":
        return "scalar"
    for run in runs:
        for thread in run.threads.values():
            value = thread.values.get(metric)
            if value is not None and metric not in thread.defaulted and value != ():
                return shape_of(value)
    return None
