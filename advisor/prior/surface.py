"""What is known of one workload: time and energy over its configurations, against its own point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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

    def at(self, points: Array) -> Array:
        """Return ln time and ln energy (2, n) at ``points`` (n, 2), NaN where nothing is near.

        Linear between cores at each frequency, then between frequencies.
        """
        frequencies = np.unique(self.points[:, 1])
        rows = []
        for frequency in frequencies:
            here = np.flatnonzero(self.points[:, 1] == frequency)
            here = here[np.argsort(self.points[here, 0])]
            cores = self.points[here, 0]
            rows.append(
                [_line(points[:, 0], cores, v[here]) for v in (self.ln_time, self.ln_energy)]
            )
        table = np.array(rows)
        found = np.full((2, len(points)), np.nan)
        known = np.isfinite(table[:, 0]) & np.isfinite(table[:, 1])
        if known.all():
            return _between(points[:, 1], frequencies, table)
        for some in np.unique(known, axis=1).T:  # points near which the same frequencies are known
            if some.any():
                here = np.flatnonzero((known == some[:, None]).all(axis=0))
                found[:, here] = _between(
                    points[here, 1], frequencies[some], table[some][:, :, here]
                )
        return found


def _between(wanted: Array, known: Array, table: Array) -> Array:
    """Interpolate columns of ``table`` (k, 2, n) linearly between ``known`` (k,), as _line does."""
    upper = np.clip(np.searchsorted(known, wanted), 1, max(1, len(known) - 1))
    if len(known) == 1:
        found: Array = table[0].copy()
    else:
        low, high = known[upper - 1], known[upper]
        share = np.clip((wanted - low) / (high - low), 0.0, 1.0)
        each = np.arange(len(wanted))
        found = table[upper - 1, :, each].T * (1 - share) + table[upper, :, each].T * share
    found[:, (wanted < known[0] - NEAR) | (wanted > known[-1] + NEAR)] = np.nan
    return found


def _line(wanted: Array, known: Array, values: Array) -> Array:
    """Interpolate linearly, flat up to :data:`NEAR` beyond the ends, NaN farther off."""
    line: Array = np.interp(wanted, known, values)
    line[(wanted < known[0] - NEAR) | (wanted > known[-1] + NEAR)] = np.nan
    return line
