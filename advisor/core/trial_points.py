"""Which point of a class model is worth a trial, looked up in what was worked out with the model.

A trial is the point of greatest expected improvement in energy, weighted by the chance that it
keeps ``max_slowdown``, among those that keep it at ``cold_start.confidence`` and reach
``min_saving`` more likely than not (:mod:`advisor.prior.trials`). Only the bounds depend on the
job; all else stands with the model. Standard library only.
"""

from __future__ import annotations

import base64
import math
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.core.option import Row
from advisor.core.policy import Policy
from advisor.core.select import WEIGHTS

PERCENT = (*map(float, range(50, 100)), 99.5, 99.9, 99.99)
"""The chances at which quantiles are kept."""
WORTH = 0.004
"""An improvement of ln energy below this is less than any meter tells: nothing to try."""
_VALUES = struct.Struct("<4f")
_LOG_TIME, _LOG_ENERGY = (Row._fields.index(name) for name in ("log_time", "log_energy"))


def needed_unseen(confidence: float) -> int:
    """Return how many applications must be known where a point is used that nothing ran at.

    Of n + 1 applications in no order, the new one comes out worst with a chance of 1 in n + 1:
    whatever intervals say, n of them show nothing at a confidence above n / (n + 1).
    """
    confidence = min(confidence, 0.999)
    return math.ceil(confidence / (1 - confidence) - 1e-9)


@dataclass(frozen=True, slots=True)
class TrialPoints:
    """What trials are chosen by.

    ``quantiles``: Student's t at each of :data:`PERCENT`. ``values``, for each option of the model
    in its order: scale of ln time, expected improvement of ln energy over the best confirmed, and
    the most ln time and ln energy against the own point that any method of the prior expects
    (NaN: not to be tried).
    """

    quantiles: tuple[float, ...]
    values: tuple[tuple[float, float, float, float], ...]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: quantiles rounded, values as packed floats."""
        packed = b"".join(_VALUES.pack(*v) for v in self.values)
        quantiles = [round(q, 4) for q in self.quantiles]
        return {"quantiles": quantiles, "by_option": base64.b64encode(packed).decode()}

    @classmethod
    def from_dict(cls, data: object) -> TrialPoints | None:
        """Read the JSON form back; None for anything else."""
        if not isinstance(data, Mapping):
            return None
        try:
            values = tuple(_VALUES.iter_unpack(base64.b64decode(str(data["by_option"]))))
            quantiles = tuple(map(float, data["quantiles"]))
        except (KeyError, TypeError, ValueError, struct.error):
            return None
        if len(quantiles) != len(PERCENT) or quantiles != tuple(sorted(set(quantiles))):
            return None
        return cls(quantiles, values)

    def keeps(self, standardised: float) -> float:
        """Return the chance that Student's t stays below a value, linear between quantiles.

        0 below 0.5, and the greatest of :data:`PERCENT` at most.
        """
        position = bisect_right(self.quantiles, standardised)
        if not position:
            return 0.0
        if position == len(self.quantiles):
            return PERCENT[-1] / 100
        low, high = self.quantiles[position - 1], self.quantiles[position]
        low_percent, high_percent = PERCENT[position - 1], PERCENT[position]
        return (
            low_percent + (high_percent - low_percent) * (standardised - low) / (high - low)
        ) / 100

    def best(
        self, rows: Sequence[Row], feasible: Sequence[Row], baseline: Row, policy: Policy
    ) -> Row | None:
        """Return the option to try of those a job may take, None when none is worth it.

        ``rows`` are all of the model's options, ``baseline`` the one that is the job as written.
        """
        slowdown, saving = math.log1p(policy.max_slowdown), math.log1p(-policy.min_saving)
        weight, confidence = WEIGHTS[policy.goal], policy.cold_start.confidence - 1e-9
        slowest, dearest = baseline.log_time + slowdown, baseline.log_energy + saving
        candidates: list[tuple[float, Row]] = []
        for row, (scale, gain, *_) in zip(rows, self.values, strict=False):
            # slower by its mean than the bound: kept less often than not, whatever the scale
            if not (row[_LOG_TIME] < slowest and row[_LOG_ENERGY] < dearest and gain > WORTH):
                continue
            t, e = row.log_time - baseline.log_time, row.log_energy - baseline.log_energy
            if scale > 0 and weight * e + (1 - weight) * t < 0:
                keeps = self.keeps((slowdown - t) / scale)
                if keeps >= confidence and gain * keeps > WORTH:
                    candidates.append((gain * keeps, row))
        allowed = {r[:4] for r in feasible} if candidates else set()
        best = max((f for f in candidates if f[1][:4] in allowed), key=_gain, default=None)
        return None if best is None else best[1]

    def doubted(self, rows: Sequence[Row], policy: Policy) -> set[tuple[int, ...]]:
        """Return the options that some method expects beyond ``max_slowdown`` or ``min_saving``."""
        slowdown, saving = math.log1p(policy.max_slowdown), math.log1p(-policy.min_saving)
        expectations = zip(rows, self.values, strict=False)
        return {
            r[:4] for r, (*_, time, energy) in expectations if time > slowdown or energy > saving
        }


def _gain(candidate: tuple[float, Row]) -> float:
    return candidate[0]
