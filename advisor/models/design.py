"""Which runs to make: training designs out of a search space (Endrei 2019, section 4.3.2).

Uniform is the one to use: in the thesis it fits best with the fewest runs. It gives more points to
threads than to frequency, leaves the lowest thread counts out (they are never near the front),
and looks more closely at high frequencies. The other two are for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.core.configuration import Configuration, SearchSpace, size_of
from advisor.errors import InputError

_T = TypeVar("_T")
_LOWEST = 2 / 11
"""Lowest thread count run, as a share of the highest: 8 of 44 in the thesis."""
_BEND = math.log(0.3) / math.log(0.5)
"""Bends frequency steps towards the top: the middle of three lies at 70 % of the range."""
_RUNS_PER_NODE_COUNT, _THREADS_PER_FREQUENCY = 12, 4 / 3
"""The thesis's 12 runs at each node count: 4 thread counts by 3 frequencies."""


def uniform(
    space: SearchSpace, samples: int = 12, must_include: Configuration | None = None
) -> list[Configuration]:
    """Return ``samples`` configurations (all of a smaller space) spread by rule.

    ``samples`` counts all runs: 48 over four node counts are 12 at each. On 4..44 threads by 4
    and 1.2..2.2 GHz by 0.1 the twelve are 8, 20, 32, 44 threads x 1.2, 1.9, 2.2 GHz. What the
    rule leaves over goes where the design is emptiest. ``must_include`` takes the place of the
    point nearest to it. With further axes the rule has no say: each run goes where the design is
    emptiest, beginning at ``must_include``.
    """
    _check_samples(space, samples)
    grid = list(space)
    if samples >= len(grid):
        return sorted(_with_point(grid, must_include), key=size_of)
    measure = _Measure.of(space)
    chosen = [must_include or grid[-1]] if space.extra else _by_rule(space, samples)
    low = _LOWEST * space.threads[-1][1]
    away = {c: min(measure(c, d) for d in chosen) for c in grid}
    while len(chosen) < samples:
        free = set(grid) - set(chosen)
        high = [c for c in grid if c in free and c.threads_per_node >= low]
        emptiest = max(high or [c for c in grid if c in free], key=away.__getitem__)
        chosen.append(emptiest)
        # Only the new point can be nearer: distances to the others are known.
        away = {c: min(d, measure(c, emptiest)) for c, d in away.items()}
    return sorted(_swap_nearest(chosen, must_include, measure), key=size_of)


def random_(
    space: SearchSpace, samples: int = 12, must_include: Configuration | None = None, seed: int = 0
) -> list[Configuration]:
    """Return ``samples`` configurations drawn without replacement; the same for the same seed."""
    _check_samples(space, samples)
    grid = list(space)
    drawn = np.random.default_rng(seed).permutation(len(grid))[:samples]
    return sorted(
        _swap_nearest([grid[i] for i in drawn], must_include, _Measure.of(space)), key=size_of
    )


def latin_hypercube(
    space: SearchSpace, samples: int = 12, must_include: Configuration | None = None, seed: int = 0
) -> list[Configuration]:
    """Return ``samples`` configurations of a Latin hypercube, moved to the nearest free ones.

    ``must_include`` is its first point, and the others are drawn around it: a point put in place
    of another afterwards would leave a row or a column without a run.
    """
    _check_samples(space, samples)
    grid = list(space)
    measure = _Measure.of(space)
    chosen: list[Configuration] = [] if must_include is None else [must_include]
    through = () if must_include is None else _place(must_include, space)
    points = hypercube(min(samples, len(grid)), seed, through, axes=3 + len(space.extra))
    for point in points[len(chosen) :]:
        n = _cell(point[0], space.nodes)
        ranks, threads = _cell(point[1], space.threads)
        further = zip(space.extra, point[3:].tolist(), strict=True)
        extra = tuple((name, _cell(share, values)) for (name, values), share in further)
        freq = _cell(point[2], space.freqs_khz)
        drawn = Configuration(space.node_type, n, ranks, threads, freq, extra)
        free = set(grid) - set(chosen)
        chosen.append(min(free, key=lambda c: (measure(c, drawn), c)))
    return sorted(chosen, key=size_of)


def hypercube(
    count: int, seed: int, through: Sequence[float] = (), *, axes: int = 3
) -> NDArray[np.float64]:
    """Return points (count, axes) in 0..1: along each axis one in each of ``count`` equal parts.

    (McKay, Beckman and Conover 1979.) Drawn in the order of scipy.stats.qmc.LatinHypercube, so that
    a seed gives the design that it gave before. The first point lies in the same parts as
    ``through``, where that is given.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    inside = rng.uniform(size=(count, axes))
    parts = np.tile(np.arange(1, count + 1), (axes, 1))
    for axis in parts:
        rng.shuffle(axis)
    for axis, share in zip(parts, through, strict=False):
        holding = int(np.flatnonzero(axis == min(int(share * count) + 1, count))[0])
        # A swap keeps one point in each part.
        axis[[0, holding]] = axis[[holding, 0]]
    points: NDArray[np.float64] = (parts.T - inside) / count
    return points


def _place(configuration: Configuration, space: SearchSpace) -> tuple[float, ...]:
    """Return where on each axis, in 0..1, the cell nearest to a configuration has its middle."""
    nearest = min(space, key=lambda c: (_Measure.of(space)(c, configuration), c))
    pair = (nearest.ranks_per_node, nearest.threads_per_node)
    return (
        (space.nodes.index(nearest.nodes) + 0.5) / len(space.nodes),
        (space.threads.index(pair) + 0.5) / len(space.threads),
        (space.freqs_khz.index(nearest.freq_khz) + 0.5) / len(space.freqs_khz),
        *(
            (values.index(value) + 0.5) / len(values)
            for (_, values), (_, value) in zip(space.extra, nearest.extra, strict=True)
        ),
    )


def _cell(share: float, axis: Sequence[_T]) -> _T:
    return axis[min(int(share * len(axis)), len(axis) - 1)]


Design = Callable[..., list[Configuration]]
DESIGNS: dict[str, Design] = {"uniform": uniform, "random": random_, "lhs": latin_hypercube}
"""Designs by the name the command line gives them."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """Distance of two configurations, every axis measured in units of its own range."""

    spans: tuple[float, ...]

    @classmethod
    def of(cls, space: SearchSpace) -> _Measure:
        ranks, threads = zip(*space.threads, strict=True)
        further = (values for _, values in space.extra)
        axes: tuple[Sequence[int], ...] = (space.nodes, threads, space.freqs_khz, ranks, *further)
        nodes, cores, freqs, per_node, *more = (float(max(a) - min(a)) or 1.0 for a in axes)
        # Ranks hardly count: the models see threads and treat other ranks at the same threads as
        # one.
        return cls((nodes, cores, freqs, 100.0 * per_node, *more))

    def __call__(self, a: Configuration, b: Configuration) -> float:
        steps = (
            a.nodes - b.nodes,
            a.threads_per_node - b.threads_per_node,
            a.freq_khz - b.freq_khz,
            a.ranks_per_node - b.ranks_per_node,
            *(
                value - other_value
                for (_, value), (_, other_value) in zip(a.extra, b.extra, strict=True)
            ),
        )
        return math.hypot(*(s / span for s, span in zip(steps, self.spans, strict=True)))


def _check_samples(space: SearchSpace, samples: int) -> None:
    if samples < 1:
        raise InputError(f"a design needs at least 1 run, not {samples}", hint="ask for 4 or more")
    if not len(space):
        raise InputError("the search space is empty", hint="give it nodes, threads and frequencies")


def _with_point(grid: list[Configuration], point: Configuration | None) -> list[Configuration]:
    return grid if point is None or point in grid else [*grid, point]


def _swap_nearest(
    chosen: list[Configuration], point: Configuration | None, measure: _Measure
) -> list[Configuration]:
    if point is None or point in chosen:
        return chosen
    nearest = min(chosen, key=lambda c: (measure(c, point), c))
    return [point if c == nearest else c for c in chosen]


def _by_rule(space: SearchSpace, samples: int) -> list[Configuration]:
    """Return the full factorial part of the uniform design, at most ``samples`` points."""
    n = 1
    if len(space.nodes) > 1:
        n = min(len(space.nodes), samples, max(2, samples // _RUNS_PER_NODE_COUNT))
    threads, freqs = _split_runs(samples // n, len(space.threads), len(space.freqs_khz))
    nodes = _nearest_indices(space.nodes, [_interpolated(space.nodes, s) for s in _shares(n)])
    highest = space.threads[-1][1]
    counts = [p[1] for p in space.threads]
    shares = [_LOWEST + s * (1 - _LOWEST) for s in _shares(threads)]
    pairs = _nearest_indices(counts, [highest * s for s in shares])
    caps = _nearest_indices(
        space.freqs_khz,
        [_interpolated(space.freqs_khz, 1 - (1 - s) ** _BEND) for s in _shares(freqs)],
    )
    return [
        Configuration(space.node_type, space.nodes[i], *space.threads[j], space.freqs_khz[k])
        for i in nodes
        for j in pairs
        for k in caps
    ]


def _split_runs(runs: int, threads: int, freqs: int) -> tuple[int, int]:
    """Share the runs of one node count between threads and frequency, about four to three."""
    k_freq = min(freqs, max(1, round(math.sqrt(runs / _THREADS_PER_FREQUENCY))))
    k_threads = min(threads, max(1, runs // k_freq))
    return k_threads, min(freqs, max(1, runs // k_threads))


def _shares(count: int) -> list[float]:
    """Return ``count`` numbers from 0 to 1, only the greatest when there is one."""
    return [1.0] if count == 1 else [i / (count - 1) for i in range(count)]


def _interpolated(values: Sequence[int], share: float) -> float:
    return values[0] + share * (values[-1] - values[0])


def _nearest_indices(values: Sequence[int], targets: Sequence[float]) -> list[int]:
    """Return for each wanted value, highest first, the index of the nearest one still free."""
    indices: list[int] = []
    for target in reversed(targets):
        free = [i for i in range(len(values)) if i not in indices]
        # The higher of two that are as near: fast configurations matter more.
        indices.append(min(free, key=lambda i: (abs(values[i] - target), -values[i], i)))
    return sorted(indices)


def within(
    design: Sequence[Configuration], space: SearchSpace, grid: Sequence[Configuration]
) -> list[Configuration]:
    """Return the design with every point that ``grid`` lacks moved to the nearest free one."""
    measure = _Measure.of(space)
    free = set(grid) - set(design)
    chosen = [c for c in design if c in set(grid)]
    for point in design:
        if point not in chosen and free:
            nearest = min(free, key=lambda c: (measure(c, point), c))
            free.remove(nearest)
            chosen.append(nearest)
    return sorted(chosen, key=size_of)


def moved(
    design: Sequence[Configuration],
    space: SearchSpace,
    targets: Sequence[Configuration],
    staying: Configuration,
) -> list[Configuration]:
    """Return the design with the point nearest to each of ``targets`` moved there, in their order.

    ``staying`` and what was moved before stay where they are.
    """
    measure = _Measure.of(space)
    points = list(design)
    stays = {staying}
    for place in targets:
        if place not in points:
            free = [c for c in points if c not in stays]
            if not free:
                break
            points[points.index(min(free, key=lambda c: (measure(c, place), c)))] = place
        stays.add(place)
    return sorted(points, key=size_of)
