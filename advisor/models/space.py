"""The options a model is asked for: the search space of the runs that it rests on.

There is one answer for whoever fits: the sweep, ``advisor fit``, a collection that takes what users
left, and a fit again with finished jobs. A sweep stores its grid with its runs. For others, imports
most often, the grid follows from the inventory: the node type's frequency steps, and the thread
counts that a sweep would try. Nodes and ranks are always those of the runs, and an axis along which
every run is alike stays as it is: of it the runs say nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from advisor.core.configuration import (
    MAX_CELLS,
    MAX_FREQS,
    Configuration,
    SearchSpace,
    size_of,
    thin,
    thread_counts,
)
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.units import format_freq
from advisor.errors import InputError
from advisor.models.job_runs import is_job

MOST_OPTIONS = 20_000
"""A grid beyond this is the sum of unrelated runs: then only what was run becomes an option."""
_LEAST_SHARE, _MOST_SHARE = 0.25, 2.0
"""Cores fewer or more than any run used are options down to, and up to, these shares of theirs."""
_NEAR = 1.15
"""So near to the range of the runs an option still lies in it, as a job's configuration does."""

SpaceOrigin = Literal["runs", "inventory", "stored"]


@dataclass(frozen=True, slots=True)
class NamedAxes:
    """Values that somebody named: threads per node, and frequency caps (kHz); () for none."""

    threads: tuple[int, ...] = ()
    freqs_khz: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.threads or self.freqs_khz)


NO_AXES = NamedAxes()


@dataclass(frozen=True, slots=True)
class WantedOptions:
    """The configurations a model is evaluated on, in order.

    ``origin`` says where most is from; ``notes`` say what is missing.
    """

    configurations: tuple[Configuration, ...]
    origin: SpaceOrigin
    notes: tuple[str, ...] = ()


def wanted(
    observations: Sequence[Observation], node_type: NodeType | None, *, enough: int
) -> WantedOptions:
    """Return what the model of one workload's runs on one node type is evaluated on.

    ``node_type`` is the inventory's, None where it is not known. Jobs of the past make no options,
    unless fewer than ``enough`` configurations were measured otherwise; then these are all.
    """
    sweep_runs = [o for o in observations if not is_job(o)]
    if len({o.configuration for o in sweep_runs}) < enough:
        every = {o.configuration for o in observations}
        return WantedOptions(tuple(sorted(_grid(every), key=size_of)), "runs")
    cells = {c for space in {o.space for o in sweep_runs} if space is not None for c in space}
    loose = {o.configuration for o in sweep_runs} - cells
    notes: list[str] = []
    origin: SpaceOrigin = "stored" if cells else "runs"
    if loose:
        unsaid = {o.configuration for o in sweep_runs if o.space is None}
        derived = search_space(unsaid, node_type, notes=notes) if unsaid else None
        if derived is not None and len(derived) > len(_grid(unsaid)) and not cells:
            origin = "inventory"
        cells |= loose | (set(derived) if derived is not None else set())
    if len(cells) > MOST_OPTIONS:
        notes.append(f"the grid would have {len(cells)} options: only what was run is kept")
        return WantedOptions(
            tuple(sorted({o.configuration for o in sweep_runs}, key=size_of)), "runs", tuple(notes)
        )
    return WantedOptions(tuple(sorted(cells, key=size_of)), origin, tuple(notes))


def search_space(
    runs: Collection[Configuration],
    node_type: NodeType | None,
    named_axes: NamedAxes = NO_AXES,
    *,
    notes: list[str] | None = None,
) -> SearchSpace:
    """Return the grid for runs that nobody stored one with; never empty.

    ``named_axes`` go before the inventory's. ``notes`` take what neither names. Raises InputError
    for named values that the node type does not have, and for an axis along which the runs are
    alike.
    """
    grid = _grid(runs)
    unnamed_axes = [] if notes is None else notes
    cores = _cores(grid, node_type)
    varied = _varied_ranks(grid)
    pairs = set(grid.threads)
    if named_axes.threads:
        pairs |= _asked_threads(named_axes.threads, grid, varied, node_type, cores)
    elif varied and cores:
        pairs |= {
            (ranks, count)
            for ranks, counts in varied.items()
            for count in _thread_counts(grid, node_type, cores, ranks)
            if _LEAST_SHARE * min(counts) <= count <= _MOST_SHARE * max(counts)
        }
    elif varied:
        unnamed_axes.append(_unknown_axis(grid, node_type, "cores", "--threads"))
    freqs = set(grid.freqs_khz)
    steps = node_type.freq_khz if node_type is not None else ()
    alike = len(freqs) < 2
    if named_axes.freqs_khz:
        if alike:
            only = format_freq(max(freqs)) if max(freqs) else "no cap"
            raise InputError(f"--frequencies cannot be predicted: every run had {only}")
        for freq in named_axes.freqs_khz:
            if steps and freq not in steps:
                raise InputError(
                    f"--frequencies {format_freq(freq)} is not a step of {grid.node_type}",
                    hint=f"steps: {' '.join(map(str, steps))} kHz",
                )
        freqs |= set(named_axes.freqs_khz)
    elif not alike and steps:
        freqs |= set(thin(steps, MAX_FREQS))
    elif not alike:
        unnamed_axes.append(_unknown_axis(grid, node_type, "frequency steps", "--frequencies"))
    space = SearchSpace(
        grid.node_type,
        grid.nodes,
        tuple(sorted(pairs, key=lambda pair: (pair[1], pair[0]))),
        tuple(sorted(freqs)),
        tuple((name, _steps_of(name, values, node_type)) for name, values in grid.extra),
    )
    if named_axes and len(space) > MAX_CELLS:
        raise InputError(f"these are {len(space)} configurations, at most {MAX_CELLS} are kept")
    return space


def far_from(runs: Iterable[Configuration], cells: Iterable[Configuration]) -> set[Configuration]:
    """Return the cells that have fewer or more cores, or a lower or higher cap, than any run."""
    trained = [_reach(c) for c in runs]
    ranges = [(min(v) / _NEAR, max(v) * _NEAR) for v in zip(*trained, strict=True)]
    return {
        c
        for c in cells
        if any(
            not low <= value <= high for value, (low, high) in zip(_reach(c), ranges, strict=True)
        )
    }


def _reach(c: Configuration) -> tuple[int, ...]:
    """Return what decides whether a configuration lies outside of what was run."""
    return c.threads_per_node, c.freq_khz, *(value for _, value in c.extra)


def highest_of(configurations: Iterable[Configuration]) -> dict[str, int]:
    """Return the highest value of each further axis that any configuration has."""
    highest: dict[str, int] = {}
    for c in configurations:
        for name, value in c.extra:
            highest[name] = max(value, highest.get(name, 0))
    return highest


def with_axes(c: Configuration, highest: Mapping[str, int]) -> Configuration:
    """Return a configuration with these further axes: what it does not state is the highest."""
    if len(c.extra) == len(highest):
        return c
    return replace(c, extra=tuple(sorted({**highest, **dict(c.extra)}.items())))


def _grid(runs: Iterable[Configuration]) -> SearchSpace:
    runs = list(runs)
    return SearchSpace.of(runs[0].node_type, runs)


def _steps_of(name: str, values: tuple[int, ...], node_type: NodeType | None) -> tuple[int, ...]:
    """Return the values of a further axis: those of the runs, and where these differ its steps."""
    if len(values) < 2 or node_type is None:
        return values
    return tuple(sorted({*values, *thin(node_type.gpus.steps(name), MAX_FREQS)}))


def _varied_ranks(grid: SearchSpace) -> dict[int, list[int]]:
    """Return the thread counts of each number of ranks that was run with several."""
    counts: dict[int, list[int]] = {}
    for ranks, threads in grid.threads:
        counts.setdefault(ranks, []).append(threads)
    return {ranks: values for ranks, values in counts.items() if len(values) > 1}


def _cores(grid: SearchSpace, node_type: NodeType | None) -> int:
    """Return the node type's cores; 0 where the inventory does not know, or knows it wrongly."""
    if node_type is None:
        return 0
    most = max(threads for _, threads in grid.threads)
    return node_type.cores if most <= node_type.cores * node_type.threads_per_core else 0


def _thread_counts(
    grid: SearchSpace, node_type: NodeType | None, cores: int, ranks: int
) -> set[int]:
    """Return counts up to the cores, and where runs used hyper-threads up to those."""
    counts = set(thread_counts(cores, ranks))
    most = max(threads for _, threads in grid.threads)
    if node_type is not None and most > cores:
        counts |= set(thread_counts(cores * node_type.threads_per_core, ranks))
    return counts


def _asked_threads(
    counts: Sequence[int],
    grid: SearchSpace,
    varied: dict[int, list[int]],
    node_type: NodeType | None,
    cores: int,
) -> set[tuple[int, int]]:
    if not varied:
        raise InputError("--threads cannot be predicted: no ranks were run with several counts")
    most = cores * node_type.threads_per_core if node_type is not None and cores else 0
    for count in counts:
        if count < 1 or (most and count > most):
            raise InputError(f"--threads {count}: {grid.node_type} has {most or 'at least 1'}")
    # Each rank has as many threads as every other one.
    pairs = {(ranks, t) for ranks in varied for t in counts if t % ranks == 0}
    if {t for _, t in pairs} != set(counts):
        ranks = ", ".join(map(str, sorted(varied)))
        raise InputError(f"--threads are threads per node; here they are multiples of {ranks}")
    return pairs


def _unknown_axis(grid: SearchSpace, node_type: NodeType | None, what: str, option: str) -> str:
    whose = "knows no" if node_type is None else "names no"
    which = f"node type {grid.node_type}" if node_type is None else f"{what} of {grid.node_type}"
    axis = "threads" if what == "cores" else "frequencies"
    return (
        f"the inventory {whose} {which}: the {axis} are those of the runs; "
        f"name others with advisor fit {option}"
    )
