"""What disturbed runs do to the intervals of new ones.

A run that shares its disk, network or memory with others now and then takes longer, by a tenth or
by many times, whatever its configuration: single cells stand out of a measured grid, not steps. Its
power is as ever, so its energy is larger by the same factor. New runs are therefore a mixture: most
follow the model, a share of them takes longer by an exponentially distributed log time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from advisor.core.option import Z90
from advisor.models.base import Vector

_USUAL_SHARE, _USUAL_RUNS = 0.08, 6.0
"""Share of runs that are disturbed, before any is seen, and as how many runs that counts."""
_USUAL_SIZE, _USUAL_DISTURBED = 0.3, 2.0
"""How much longer (log) a disturbed run takes, and as how many disturbed runs that counts. Both
are what measured grids of four programs show, none of which error or coverage is reported on."""
_MOST_SHARE = 0.09
"""Most of the runs (fraction) that a 90 % interval gives up as disturbed: fewer than the 10 %."""
_HALVINGS = 40
"""Steps of the search for a quantile."""


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What share of all runs is disturbed, and by how much longer (log) they take on average."""

    share: float
    size: float

    @classmethod
    def of(cls, disturbed: NDArray[np.bool_], off: Vector) -> Disturbances:
        """Return what n runs say; ``off`` (n,) is how far (log) each is above its expectation."""
        later = np.maximum(off[disturbed], 0.0)
        return cls(
            (len(later) + _USUAL_SHARE * _USUAL_RUNS) / (len(disturbed) + _USUAL_RUNS),
            (float(later.sum()) + _USUAL_SIZE * _USUAL_DISTURBED) / (len(later) + _USUAL_DISTURBED),
        )

    @property
    def wider(self) -> float:
        """How much wider 90 % intervals must be for undisturbed runs alone to fill them."""
        share = min(self.share, _MOST_SHARE)
        return NormalDist().inv_cdf(0.5 + 0.45 / (1 - share)) / Z90

    def upper(self, sigma: Vector) -> Vector:
        """Return what 95 % of new runs stay below (log, over the mean), given their errors (m,).

        The quantile of the mixture, by bisection; a disturbed run's own error is neglected.
        """
        low, high = np.zeros(len(sigma)), 8 * sigma + 5 * self.size
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            beyond = (1 - self.share) * _normal_beyond(middle / sigma)
            beyond += self.share * np.exp(-middle / self.size)
            low = np.where(beyond > 0.05, middle, low)
            high = np.where(beyond > 0.05, high, middle)
        return high


def _normal_beyond(z: Vector) -> Vector:
    """Return the probabilities of a standard normal variable above z (m,)."""
    return np.array([0.5 * math.erfc(value) for value in (z * math.sqrt(0.5)).tolist()])
