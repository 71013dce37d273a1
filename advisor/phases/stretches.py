"""A complete run cut into stretches, each of which is paired with a stretch of another run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.phases.arrays import Ints
from advisor.phases.calmed import Calmed, repeats

LEAST_ITERATIONS = 8
"""Of the phase under way, before they speak for its rest."""

BLOCK = 16
"""Events that count as one iteration where there are none."""

_BOUTS_WEIGHT = 3.0
"""Times the variance by bouts that one complete run shows: both runs have it, and one run tells it
badly. Chosen on drawn programs of 20 seeds; docs/phases.md has what others reach."""


@dataclass(frozen=True, slots=True)
class PairedStretches:
    """A complete run cut into the stretches that another is paired with.

    ``time`` (s) and ``energy`` (J, or None) of each; their ``classes`` and iterations (``units``);
    ``looks`` after how many of them the estimate may be looked at; ``phases`` the bounds of the
    iterations of each phase, ``bouts`` how far these scatter in bouts
    (:func:`advisor.phases.calmed.bouts_of`); ``number_share`` how far their number is unknown.
    """

    time: Calmed
    energy: Calmed | None
    classes: Ints
    units: Ints
    looks: Ints
    phases: tuple[Ints, ...]
    bouts: tuple[float, ...]
    number_share: float

    def iterations_before(self, stretch: int) -> int:
        """Return how many iterations end at this stretch or before."""
        if not self.phases:
            return stretch // BLOCK
        return int(sum((p[1:] <= stretch).sum() for p in self.phases))

    def young(self, stretch: int) -> bool:
        """Tell whether the phase under way has too few iterations by now to speak for its rest."""
        under_way = [p for p in self.phases if p[0] < stretch < p[-1]]
        return any((p[1:] <= stretch).sum() < LEAST_ITERATIONS for p in under_way)

    def turns(self, stretch: int) -> Ints:
        """Return the bounds of the iterations of the last phase begun by then, up to there."""
        last = self._phases_begun(stretch) - 1
        bounds = self.looks if last < 0 else self.phases[last]
        return bounds[bounds <= stretch]

    def _phases_begun(self, stretch: int) -> int:
        """Return how many phases have begun by then."""
        return sum(bool(p[0] < stretch) for p in self.phases)

    def error_by_bouts(self, marks: Sequence[float]) -> float:
        """Return the relative standard error of the rest of the phase under way, for this run and
        the other scatter in bouts; 0 where they do not, or go up and down alike.

        ``marks`` (s) are the bounds of stretches that the other has passed.
        """
        stretch = len(marks) - 1
        last = self._phases_begun(stretch) - 1
        if last < 0 or not self.bouts[last]:
            return 0.0
        turns = self.turns(stretch)
        seen_count, remaining_count = len(turns) - 1, len(self.phases[last]) - len(turns)
        if seen_count < 2 or remaining_count < 1:
            return 0.0
        baseline_s = np.add.reduceat(self.time.values[: turns[-1]], turns[:-1])
        if repeats(np.diff(np.array(marks)[turns]), baseline_s):
            return 0.0
        return math.sqrt(_BOUTS_WEIGHT * self.bouts[last] * (1 / seen_count + 1 / remaining_count))
