"""What is known of one workload: time and energy over its configurations, against its own point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from advisor.core.option import Row

Array = npt.NDArray[np.float64]

NEAR = 0.12
"""How far (logarithm) a surface may be carried on beyond its outermost points."""


@dataclass(frozen=True)
class WorkloadSurface:
    """Time and energy of a workload over shares of the cores and of the nominal frequency.

    ``points`` (k, 2) are logarithms of both shares; ``ln_time`` and ``ln_energy`` (k,) the
    logarithms of what was measured or modelled there, in any unit. ``signature`` is what a run at
    the job's own point tells, by field name; what is missing is not in it. ``label`` is the class,
    "" when unknown. ``kernel``: a microbenchmark, not an application.
    """

    application: str
    signature: Mapping[str, float]
    points: Array
    ln_time: Array
    ln_energy: Array
    label: str = ""
    kernel: bool = False

    def known_by(self, signature: Mapping[str, float], label: str | None = None) -> WorkloadSurface:
        """Return the same surface of a workload with another signature, and class if given."""
        surface = replace(self, signature=signature, label=self.label if label is None else label)
        # replace() forgets what is worked out once; the points are the same
        surface.__dict__["_lines"] = self._lines
        return surface

    def at(self, points: Array) -> Array:
        """Return ln time and ln energy (2, n) at ``points`` (n, 2), NaN where nothing is near.

        Linear between cores at each frequency, then between frequencies.
        """
        frequencies, lines = self._lines
        table = np.empty((len(frequencies), 2, len(points)))
        for which, cores, values in lines:
            lower, upper, share, outside = _neighbours(points[:, 0], cores)
            line = values[:, :, lower] * (1 - share) + values[:, :, upper] * share
            line[:, :, outside] = np.nan
            table[which] = line
        finite = np.isfinite(table[:, 0])
        if finite.all():
            return _across(points[:, 1], frequencies, table)
        interpolated = np.full((2, len(points)), np.nan)
        for some in np.unique(finite, axis=1).T:  # points near which the same frequencies are known
            if some.any():
                columns = np.flatnonzero((finite == some[:, None]).all(axis=0))
                interpolated[:, columns] = _across(
                    points[columns, 1], frequencies[some], table[some][:, :, columns]
                )
        return interpolated

    @cached_property
    def _lines(self) -> tuple[Array, list[tuple[list[int], Array, Array]]]:
        """Return frequencies; of those with the same cores: which, cores (c,), values (f, 2, c)."""
        frequencies = np.unique(self.points[:, 1])
        where: dict[tuple[float, ...], list[tuple[int, npt.NDArray[np.intp]]]] = {}
        for k, frequency in enumerate(frequencies):
            rows = np.flatnonzero(self.points[:, 1] == frequency)
            rows = rows[np.argsort(self.points[rows, 0])]
            where.setdefault(tuple(self.points[rows, 0].tolist()), []).append((k, rows))
        both = np.stack((self.ln_time, self.ln_energy))
        lines = []
        for cores, some in where.items():
            values = np.stack([both[:, rows] for _, rows in some])
            lines.append(([k for k, _ in some], np.array(cores), values))
        return frequencies, lines


def surface_of(
    application: str, rows: Sequence[Row], place: Callable[[int, int], tuple[float, float]]
) -> tuple[WorkloadSurface, int] | None:
    """Return a model's surface on its fewest nodes, and how many those are; None: no energy.

    ``place`` gives a point's logarithms from its threads and frequency. Signature and class are
    left open (:meth:`WorkloadSurface.known_by`).
    """
    least = min((r.nodes for r in rows), default=1)
    best: dict[tuple[int, int], Row] = {}
    for r in rows:
        key = r.threads_per_node, r.freq_khz
        if r.nodes == least and not math.isnan(r.energy_j):
            best[key] = min(best.get(key, r), r, key=lambda x: x.time_s)
    if not best:
        return None
    points = np.array([place(*key) for key in best])
    time = np.array([r.log_time for r in best.values()])
    energy = np.array([r.log_energy for r in best.values()])
    return WorkloadSurface(application, {}, points, time, energy), least


def _neighbours(
    positions: Array, grid: Array
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Array, npt.NDArray[np.bool_]]:
    """Return the indexes of the known values below and above, how far between, who is too far off.

    Flat up to :data:`NEAR` beyond the ends.
    """
    upper = np.searchsorted(grid, positions).clip(min(1, len(grid) - 1), len(grid) - 1)
    lower = np.maximum(upper - 1, 0)
    low, high = grid[lower], grid[upper]
    share = np.clip((positions - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    return lower, upper, share, (positions < grid[0] - NEAR) | (positions > grid[-1] + NEAR)


def _across(positions: Array, grid: Array, table: Array) -> Array:
    """Interpolate columns of ``table`` (k, 2, n), each at its own value, between ``grid`` (k,)."""
    lower, upper, share, outside = _neighbours(positions, grid)
    columns = np.arange(len(positions))
    values: Array = table[lower, :, columns].T * (1 - share) + table[upper, :, columns].T * share
    values[:, outside] = np.nan
    return values
