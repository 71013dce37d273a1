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
        rows = []
        frequencies = np.unique(self.points[:, 1])
        for frequency in frequencies:
            here = np.flatnonzero(self.points[:, 1] == frequency)
            here = here[np.argsort(self.points[here, 0])]
            cores = self.points[here, 0]
            rows.append(
                [_line(points[:, 0], cores, v[here]) for v in (self.ln_time, self.ln_energy)]
            )
        table = np.array(rows)
        found = np.full((2, len(points)), np.nan)
        for i, wanted in enumerate(points[:, 1]):
            for axis in (0, 1):
                known = np.isfinite(table[:, axis, i])
                if known.any():
                    at = _line(np.array([wanted]), frequencies[known], table[known, axis, i])
                    found[axis, i] = at[0]
        return found


def _line(wanted: Array, known: Array, values: Array) -> Array:
    """Interpolate linearly, flat up to :data:`NEAR` beyond the ends, NaN farther off."""
    line: Array = np.interp(wanted, known, values)
    line[(wanted < known[0] - NEAR) | (wanted > known[-1] + NEAR)] = np.nan
    return line
