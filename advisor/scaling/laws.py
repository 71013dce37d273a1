"""Laws of time over sizes, nodes, cores and frequency, with prior weights; no constant is fitted.

    t = w ((1 - z) / N + z) h(p, f) + u ((1 - m) / f + m) + o w^q g(N)

``w`` is the work relative to the runs' middle: each parameter to a power, simple powers being more
probable than odd ones; a share ``b`` of it may grow by one power more (assembling and solving).
``h`` is Amdahl's law of one node's cores with a part ``m`` that does not follow the clock and whose
parallel speed ends at a bandwidth ceiling. ``u`` is work that no parameter changes (starting,
reading), so the serial share depends on size. Across nodes a share ``z`` is not divided, and an
overhead grows with their number: with the depth of a tree (collective operations; Thakur,
Rabenseifner and Gropp 2005), its root, or linearly. Where the application's profiles say how many
instructions a size executes, work may grow as these do; such laws are the more probable ones.

As in :mod:`advisor.models.laws`, the runs say how much each combination counts.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.core.count_laws import INSTRUCTIONS
from advisor.models.base import Matrix, Vector
from advisor.scaling.base import SizedPlaces

_SERIAL = (0.0, 0.003, 0.01, 0.03, 0.08, 0.2, 0.5, 1.0)
"""Shares of the work that one core does alone."""
_CLOCKLESS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the time that do not change with the clock."""
_CEILING = ((math.inf, 2 / 3), (0.5, 1 / 9), (0.25, 1 / 9), (0.125, 1 / 9))
"""Cores that use up the bandwidth, as shares of the most, with prior weights."""
_FIXED = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
"""Work no parameter changes, as shares of the middle size's on one core."""
_UNDIVIDED = (0.0, 0.003, 0.01, 0.03, 0.08, 0.2, 0.5, 1.0)
"""Shares of the work that more nodes do not divide."""
_STEEPER = (0.0, 0.03, 0.1, 0.3, 0.6)
"""Shares of the middle size's work that grow by one power more."""
_OVERHEAD = (0.0, 0.001, 0.002, 0.0035, 0.006, 0.01, 0.016, 0.025, 0.04, 0.07, 0.12, 0.25)
"""Overheads per step of ``g``, as shares of a full node's time for the middle size."""
_GROWTH = ((0, 0.5), (1, 0.25), (2, 0.25))
"""How the overhead grows with nodes: log2 N, sqrt N - 1, N - 1; with prior weights."""
GROWTH_NAMES = ("log2(nodes)", "nodes^0.5", "nodes")
"""What the overhead grows with, by its number in a law."""
_POWERS = (
    (0.0, 0.15),
    (1 / 3, 0.04),
    (0.5, 0.06),
    (2 / 3, 0.05),
    (0.75, 0.03),
    (1.0, 0.25),
    (1.1, 0.05),
    (1.25, 0.04),
    (4 / 3, 0.04),
    (1.5, 0.06),
    (2.0, 0.1),
    (2.5, 0.03),
    (3.0, 0.07),
    (-1.0, 0.03),
)
"""Powers of a parameter, with prior weights; 1.1 stands for n log n."""
_COUNTS = 9
"""The column that says whether work grows as the counts; after it come the parameters' powers."""
_BY_COUNTS = 0.75
"""Prior weight of all laws whose work grows as the instructions that profiles counted."""
_NEAR, _NEAREST = 0.8, 4
"""A power further than this from the runs' own slope is left out; at least the nearest remain."""
_MOST_LAWS = 60_000
"""Of more combinations so many are drawn by their prior weights."""


@dataclass(frozen=True, slots=True)
class TimeLaws:
    """Laws by row of ``table`` (k, 10 + parameters), with log prior weights (k,).

    ``middle`` is the size, ``instructions`` what profiles count at it (0: nothing), and ``most``
    the cores and frequency (kHz) laws are relative to.
    """

    table: Matrix
    log_prior: Vector
    middle: Vector
    instructions: float
    most_cores: float
    most_freq: float

    def evaluate(self, places: SizedPlaces, rows: NDArray[np.intp] | None = None) -> Matrix:
        """Return log times (m, number of rows), up to a constant each."""
        table = self.table if rows is None else self.table[rows]
        s, m, ceiling, u, b, z, o, g, q, counts = (column[None] for column in table[:, :10].T)
        log_size = np.log(places.sizes / self.middle)
        log_work = log_size @ table[:, 10:].T
        if self.instructions:
            log_work += counts * np.log(places.counted[INSTRUCTIONS] / self.instructions)[:, None]
        steeper = np.exp(np.clip(log_size.sum(axis=1), -30, 30))[:, None]
        work = np.exp(np.clip(log_work, -60, 60)) * (1 - b + b * steeper)
        cores = np.maximum(places.cores, 1.0)[:, None]
        freq = relative_frequency(places, self.most_freq)[:, None]
        nodes = places.nodes[:, None]
        clock = (1 - m) / freq
        bound = np.minimum(cores, ceiling * self.most_cores)
        inside = clock * (s + (1 - s) / cores) + m * (s + (1 - s) / bound)
        full = s + (1 - s) / self.most_cores
        depth = np.where(g == 0, np.log2(nodes), np.where(g == 1, np.sqrt(nodes) - 1, nodes - 1))
        spent = work * inside * ((1 - z) / nodes + z)
        spent = spent + u * (clock + m) + o * full * depth * np.exp(np.clip(q * log_work, -60, 60))
        logs: Matrix = np.log(np.maximum(spent, 1e-30))
        return logs


def relative_frequency(places: SizedPlaces, most_freq: float) -> Vector:
    """Return caps as shares of the highest; without a cap the highest."""
    if most_freq <= 0:
        return np.ones(len(places))
    share: Vector = np.where(places.freq_khz > 0, places.freq_khz, most_freq) / most_freq
    return share


def time_laws(trained: SizedPlaces, log_time: Vector) -> TimeLaws:
    """Return the laws that such runs can distinguish."""
    middle = np.exp(np.log(trained.sizes).mean(axis=0))
    cores_vary, nodes_vary = len(set(trained.cores)) > 1, len(set(trained.nodes)) > 1
    freq_varies = len(set(trained.freq_khz)) > 1
    slopes = _slopes(trained, log_time)
    sizes_vary = [len(set(column)) > 1 for column in trained.sizes.T]
    powers = [
        _powers(slope) if vary else [(0.0, 1.0)]
        for slope, vary in zip(slopes, sizes_vary, strict=True)
    ]
    axes: list[list[tuple[float, float]]] = [
        _even(_SERIAL) if cores_vary else [(1.0, 1.0)],
        _even(_CLOCKLESS) if freq_varies else [(0.0, 1.0)],
        list(_CEILING) if cores_vary else [(math.inf, 1.0)],
        _mostly(_FIXED, 0.5) if any(sizes_vary) else [(0.0, 1.0)],
        _mostly(_STEEPER, 0.5) if any(sizes_vary) else [(0.0, 1.0)],
        _mostly(_UNDIVIDED, 0.5) if nodes_vary else [(0.0, 1.0)],
        _mostly(_OVERHEAD, 0.1) if nodes_vary else [(0.0, 1.0)],
        [(float(g), w) for g, w in _GROWTH] if nodes_vary else [(0.0, 1.0)],
        [(0.0, 0.25), (0.5, 0.25), (1.0, 0.5)] if nodes_vary and any(sizes_vary) else [(1.0, 1.0)],
        *powers,
    ]
    counted = trained.counted.get(INSTRUCTIONS)
    if counted is None or np.ptp(counted) == 0:
        table, prior = _combined(axes)
        table = np.insert(table, _COUNTS, 0.0, axis=1)
        instructions = 0.0
    else:
        table, prior = _with_counts(axes, len(powers))
        instructions = math.exp(float(np.log(counted).mean()))
    most = float(trained.cores.max()), float(trained.freq_khz.max())
    return TimeLaws(table, prior, middle, instructions, *most)


def _with_counts(axes: list[list[tuple[float, float]]], parameters: int) -> tuple[Matrix, Vector]:
    """Return laws whose work grows as the counted instructions, and those by powers beside them."""
    tables, priors = [], []
    by_counts = [*axes[: len(axes) - parameters], *[[(0.0, 1.0)]] * parameters]
    for law_axes, value, share in ((axes, 0.0, 1 - _BY_COUNTS), (by_counts, 1.0, _BY_COUNTS)):
        table, prior = _combined(law_axes)
        tables.append(np.insert(table, _COUNTS, value, axis=1))
        priors.append(prior - math.log(float(np.exp(prior).sum())) + math.log(share))
    return np.vstack(tables), np.concatenate(priors)


def _combined(axes: list[list[tuple[float, float]]]) -> tuple[Matrix, Vector]:
    """Return every combination of values (k, axes) with its log prior; of too many, some drawn."""
    values = [np.array([v for v, _ in axis]) for axis in axes]
    weights = [np.log([w for _, w in axis]) for axis in axes]
    shape = tuple(len(v) for v in values)
    count = math.prod(shape)
    if count > _MOST_LAWS:
        rng = np.random.default_rng(0)
        picked = [rng.choice(len(w), _MOST_LAWS, p=np.exp(w) / np.exp(w).sum()) for w in weights]
        index = np.unique(np.column_stack(picked), axis=0)
        prior = np.zeros(len(index))
    else:
        index = np.array(list(itertools.product(*(range(n) for n in shape))))
        prior = sum((w[index[:, j]] for j, w in enumerate(weights)), np.zeros(len(index)))
    table = np.column_stack([v[index[:, j]] for j, v in enumerate(values)])
    return table, prior


def _even(values: tuple[float, ...]) -> list[tuple[float, float]]:
    return [(v, 1 / len(values)) for v in values]


def _mostly(values: tuple[float, ...], first: float) -> list[tuple[float, float]]:
    """Return values with prior weights: the first's, and what is left for all others alike."""
    return [(values[0], first), *((v, (1 - first) / (len(values) - 1)) for v in values[1:])]


def _powers(slope: float) -> list[tuple[float, float]]:
    """Return the powers near what the runs' slope says; a fixed part makes the slope too small."""
    near = [(v, w) for v, w in _POWERS if slope - _NEAR <= v <= slope + _NEAR]
    nearest = sorted(_POWERS, key=lambda p: abs(p[0] - slope))[:_NEAREST]
    return sorted({*near, *nearest})


def _slopes(trained: SizedPlaces, log_time: Vector) -> Vector:
    """Return the least squares power of each parameter, cores, frequency and nodes apart."""
    columns = [
        np.log(trained.sizes),
        np.log(trained.cores)[:, None],
        np.log(trained.cores)[:, None] ** 2,
        np.log(np.maximum(trained.freq_khz, 1.0))[:, None],
        np.log(trained.nodes)[:, None],
    ]
    x = np.column_stack(columns)
    x = x - x.mean(axis=0)
    # A little ridge: columns that do not vary, or vary together, have no slope of their own.
    square = x.T @ x + 1e-6 * np.eye(x.shape[1])
    slope: Vector = np.linalg.solve(square, x.T @ (log_time - log_time.mean()))
    return slope[: trained.sizes.shape[1]]
