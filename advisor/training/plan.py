"""Plan a sweep: the axes worth varying, the runs to make, and what they may cost."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from advisor.core.axes import AXES
from advisor.core.configuration import (
    MAX_FREQS,
    Configuration,
    SearchSpace,
    thin,
    thread_counts,
)
from advisor.core.inventory import NodeType
from advisor.core.units import format_count
from advisor.errors import InputError
from advisor.models import adaptive, sequential
from advisor.models.adaptive import ADAPTIVE
from advisor.models.design import DESIGNS, uniform, within
from advisor.models.sequential import SEQUENTIAL
from advisor.schedulers.base import PlannedRun
from advisor.training.table import too_few_for_a_model
from advisor.training.training_job import TrainingJob

MIN_RUNS = 2
"""Fewer good runs than this leave nothing to choose between."""
REPEATS_OF_FEW = 3
"""Repetitions of each run where few configurations can be tried."""
USUAL_SHARE = 0.15
"""Of a run that is ended early, what it usually takes (benchmarks/phases.py: 0.1 to 0.13)."""


@dataclass(frozen=True, slots=True)
class SweepAxes:
    """The grid to be modelled, and why some axes have one value only."""

    space: SearchSpace
    notes: tuple[str, ...] = ()


def axes(
    subject: TrainingJob,
    *,
    threads: Sequence[int] = (),
    freqs_khz: Sequence[int] = (),
    freq_kept: str = "",
) -> SweepAxes:
    """Return the grid for a subject on its node type, the baseline always on it.

    ``threads`` are cores per node, no more than the job has. Nodes and ranks are its own. Where the
    baseline states a further axis, that is varied, and of the others what is asked for. Raises
    InputError for values the job or the node type does not have.
    """
    node_type, base = subject.node_type, subject.baseline
    notes: list[str] = []
    if subject.left_alone:
        notes.append(f"the advisor will not change this script's jobs: {subject.left_alone}")
    most = len(node_type.nodes)
    if most and base.nodes > most:
        raise InputError(f"{format_count(base.nodes, 'node')}: {node_type.name} has {most}")
    further = tuple((name, thin(node_type.gpus.steps(name), MAX_FREQS)) for name, _ in base.extra)
    further_words = "".join(f"the {AXES[name].words} is" for name, _ in further)
    if further_words and not threads:
        pairs: tuple[tuple[int, int], ...] = ((base.ranks_per_node, base.threads_per_node),)
        notes.append(f"threads are not varied: {further_words} (--threads varies them, too)")
    else:
        pairs = _threads_axis(subject, threads, notes)
    fixed_because = freq_kept or subject.freq_kept
    if further_words and not (fixed_because or freqs_khz):
        fixed_because = f"{further_words} (--freqs varies it, too)"
    if fixed_because:
        if freqs_khz:
            raise InputError(f"--freqs cannot be varied: {fixed_because}")
        freqs: tuple[int, ...] = (base.freq_khz,)
        notes.append(f"frequency is not varied: {fixed_because}")
    else:
        freqs = _freqs_axis(node_type, freqs_khz, base.freq_khz, notes)
    space = SearchSpace(node_type.name, (base.nodes,), pairs, freqs, further)
    return SweepAxes(space, tuple(notes))


def _threads_axis(
    subject: TrainingJob, counts: Sequence[int], notes: list[str]
) -> tuple[tuple[int, int], ...]:
    base, ranks = subject.baseline, subject.baseline.ranks_per_node
    baseline = (ranks, base.threads_per_node)
    most = base.threads_per_node
    for count in counts:
        if not 1 <= count <= most:
            whose = subject.node_type.name if most >= subject.node_type.cores else "the job"
            raise InputError(f"--threads {count}: {whose} has {most} per node")
    if subject.threads_kept:
        if set(counts) - {most}:
            raise InputError(f"--threads cannot be varied: {subject.threads_kept}")
        notes.append(f"threads are not varied: {subject.threads_kept}")
        return (baseline,)
    values = counts or thread_counts(most, ranks)
    pairs = {(ranks, t) for t in values if t % ranks == 0}
    if counts and len(pairs) < len(set(counts)):
        raise InputError(f"--threads are threads per node; here they must be multiples of {ranks}")
    if pairs == {baseline}:
        why = "no other count is asked for" if counts else "every rank has one CPU"
        notes.append(f"threads are not varied: {why}")
    return tuple(sorted({*pairs, baseline}, key=lambda pair: (pair[1], pair[0])))


def _freqs_axis(
    node_type: NodeType, freqs_khz: Sequence[int], base: int, notes: list[str]
) -> tuple[int, ...]:
    steps = node_type.freq_khz
    unknown = [f for f in freqs_khz if f not in steps]
    if unknown:
        raise InputError(
            f"--freqs {unknown[0]} kHz is not a step of {node_type.name}",
            hint=f"steps: {' '.join(map(str, steps)) or 'none in the inventory'}",
        )
    if not steps:
        notes.append(f"frequency is not varied: the inventory lists no steps for {node_type.name}")
        return (base,)
    return tuple(sorted({*(freqs_khz or thin(steps, MAX_FREQS)), base}))


def first_runs_of(
    design: str,
    space: SearchSpace,
    samples: int,
    baseline: Configuration,
    cells: Collection[Configuration] | None = None,
) -> tuple[list[Configuration], int]:
    """Return the runs that a design begins with, and what it may grow to; 0 for one that is fixed.

    ``cells``: what can be run, by default all of the space.
    """
    if design == ADAPTIVE:
        return adaptive.first_runs(space, samples, baseline, cells), samples
    choose = sequential.first_runs if design == SEQUENTIAL else DESIGNS[design]
    chosen = choose(space, samples, must_include=baseline)
    if cells is not None:
        chosen = within(chosen, space, sorted(cells))
    return chosen, min(samples, len(space)) if design == SEQUENTIAL else 0


def planned(
    design: Sequence[Configuration],
    baseline: Configuration,
    *,
    repeats: int = 1,
    repeat_baseline: int = 0,
    alone: bool = True,
) -> tuple[PlannedRun, ...]:
    """Return the runs of the design stage, the baseline first: its time tells what the rest cost.

    Every run is made ``repeats`` times; ``repeat_baseline`` adds that many further baseline runs
    at the end. Too few configurations for a model are all run three times, so that their own
    spread is known; not where other sizes tell it (``alone``).
    """
    rest = [c for c in design if c != baseline]
    roles = [("baseline", baseline), *(("design", c) for c in rest)]
    few = alone and too_few_for_a_model([baseline, *rest])
    roles *= max(repeats, REPEATS_OF_FEW if few else 1)
    roles += [("baseline", baseline)] * repeat_baseline
    return tuple(
        PlannedRun(seq, "baseline" if role == "baseline" else "design", configuration)
        for seq, (role, configuration) in enumerate(roles)
    )


def expected_runs(
    space: SearchSpace, design: Sequence[PlannedRun], *, most: int, confirm: int
) -> list[PlannedRun]:
    """Return the runs that a sweep's cost is reckoned from: those planned, and those to come.

    A design that may grow to ``most`` runs chooses them as it goes: those of a uniform design of
    as many stand for them. ``confirm`` runs are as dear as the baseline.
    """
    runs, further = list(design), []
    if most > len(runs):
        planned = {r.configuration for r in runs}
        further = [c for c in uniform(space, most) if c not in planned][: most - len(runs)]
    return [*runs, *(PlannedRun(0, "design", c) for c in further), *runs[:1] * confirm]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a sweep may cost: None where nothing is known. ``basis`` says how it was reckoned."""

    runs: int
    node_hours: float | None
    time_s: float | None
    energy_j: float | None
    basis: str
    equal_runs: float
    """The same in runs of the job as written."""


def cost(
    runs: Sequence[PlannedRun],
    baseline: Configuration,
    *,
    baseline_s: float | None,
    limit_s: float | None,
    basis: str,
    baseline_j: float | None = None,
) -> Cost:
    """Return the most a set of runs should cost.

    With a baseline time each run is bounded by perfect scaling, and by ``limit_s`` (after which
    it is stopped); without one, by ``limit_s`` alone. Energy grows at most like time.
    """
    node_s = time_s = energy_j = equal = 0.0
    for run in runs:
        share = run.configuration.nodes / baseline.nodes
        equal += share * run.configuration.slowdown_bound(baseline)
    for run in runs:
        share = run.configuration.nodes / baseline.nodes
        bound = limit_s
        if baseline_s is not None:
            bound = baseline_s * run.configuration.slowdown_bound(baseline)
            if limit_s is not None:
                bound = min(bound, max(limit_s, baseline_s))
        if bound is None:
            return Cost(len(runs), None, None, None, basis, equal)
        node_s += bound * run.configuration.nodes
        time_s += bound
        if baseline_j is not None and baseline_s:
            energy_j += baseline_j * bound / baseline_s * share
    if baseline_s is not None:
        equal = node_s / (baseline_s * baseline.nodes)
    known_j = energy_j if baseline_j is not None and baseline_s else None
    return Cost(len(runs), node_s / 3600, time_s, known_j, basis, equal)


def payback_runs(spent: float, saved_per_run: float) -> int | None:
    """Return after how many runs a sweep has paid back, None when it never does.

    Both in the same unit: joules, or node-hours where no energy is known.
    """
    if not saved_per_run > 0:
        return None
    return max(1, math.ceil(spent / saved_per_run))
