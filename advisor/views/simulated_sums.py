"""Sums over the jobs that another policy would treat otherwise, with their 90 % intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from advisor.core.codec import Count, JsonForm
from advisor.core.worth import J_PER_KWH


class Interval(NamedTuple):
    """A value with its 90 % interval."""

    value: float = 0.0
    lo: float = 0.0
    hi: float = 0.0

    def times(self, factor: float) -> Interval:
        """Return it in another unit."""
        return Interval(*(part * factor for part in self))

    def minus(self, other: Interval) -> Interval:
        """Return the difference; the errors of both are independent."""
        value = self.value - other.value
        lower_half = math.hypot(self.value - self.lo, other.hi - other.value)
        upper_half = math.hypot(self.hi - self.value, other.value - other.lo)
        return Interval(value, value - lower_half, value + upper_half)


NO_CHANGE = Interval()


@dataclass(frozen=True, slots=True)
class PolicyEffect:
    """What a job gets under a policy: nothing where it is left as it is.

    ``time`` and ``energy`` are changes against the job as written, fractions with their 90 %
    intervals; ``holdout`` is the share of such jobs that is left alone at random.
    """

    given: tuple[tuple[str, str], ...] = ()
    nodes: int = 0
    time: Interval = NO_CHANGE
    energy: Interval = NO_CHANGE
    holdout: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BothWays:
    """One request under both policies; ``time_s`` and ``energy_j`` are those of the job as written.

    NaN where no model knows the job.
    """

    application: str
    model: int | None
    nodes: int
    time_s: float
    energy_j: float
    now: PolicyEffect
    then: PolicyEffect


@dataclass(slots=True)
class Pace(JsonForm):
    """How many jobs change their time one way, and by how much: sum and largest, fractions."""

    JSON = ("jobs", "mean_pct", "most_pct")

    jobs: Count = 0
    total: float = 0.0
    most: float = 0.0

    def add(self, share: float) -> None:
        """Count a job."""
        self.jobs += 1
        self.total += share
        self.most = max(self.most, share)

    @property
    def mean(self) -> float:
        """The mean of them, 0 without any."""
        return self.total / self.jobs if self.jobs else 0.0

    @property
    def mean_pct(self) -> float:
        """The mean in percent."""
        return 100 * self.mean

    @property
    def most_pct(self) -> float:
        """The largest in percent."""
        return 100 * self.most


@dataclass(slots=True)
class Sums:
    """What would differ for a group of jobs. Changes are of the other policy against today's.

    The errors of one model's jobs are the same error, so their half widths add up; those of
    different models are independent, so their squares do.
    """

    decisions: int = 0
    different: int = 0
    gained: int = 0
    """Left alone today, changed then."""
    lost: int = 0
    """Changed today, left alone then."""
    unknown: int = 0
    """Different, but no model says by how much."""
    slower: Pace = field(default_factory=Pace)
    faster: Pace = field(default_factory=Pace)
    energy_now_j: float = 0.0
    """What all jobs take today, where a model says so."""
    _by_model: defaultdict[int | None, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add(
        self,
        job: BothWays,
        present_effect: PolicyEffect,
        tried_effect: PolicyEffect,
        rate: tuple[float | None, float | None],
    ) -> None:
        """Count a job; ``rate`` is the price and the grams of CO2 of a kWh while it ran."""
        self.decisions += 1
        if math.isfinite(job.energy_j):
            self.energy_now_j += job.energy_j * (1 + present_effect.energy.value)
        if present_effect.given == tried_effect.given:
            return
        self.different += 1
        self.gained += not present_effect.given
        self.lost += not tried_effect.given
        if not (math.isfinite(job.energy_j) and math.isfinite(job.time_s)):
            self.unknown += 1
            return
        pace = (1 + tried_effect.time.value) / (1 + present_effect.time.value) - 1
        if abs(pace) > 1e-9:
            (self.slower if pace > 0 else self.faster).add(abs(pace))
        sums = self._by_model[job.model]
        energy = tried_effect.energy.minus(present_effect.energy).times(job.energy_j / J_PER_KWH)
        _add_interval(sums, "energy_kwh", energy)
        hours = job.time_s / 3600
        _add_interval(sums, "job_hours", tried_effect.time.minus(present_effect.time).times(hours))
        _add_interval(sums, "node_hours", _node_hours(job, present_effect, tried_effect))
        price, co2_g = rate
        if price is not None:
            _add_interval(sums, "money", energy.times(price))
        if co2_g is not None:
            _add_interval(sums, "co2_kg", energy.times(co2_g / 1000))

    def change(self, quantity: str) -> Interval:
        """Return the sum of one of :class:`Quantities` with its interval."""
        value = lower_variance = upper_variance = 0.0
        for sums in self._by_model.values():
            part, lower, upper = sums.get(quantity, (0.0, 0.0, 0.0))
            value += part
            lower_variance += lower**2
            upper_variance += upper**2
        return Interval(value, value - math.sqrt(lower_variance), value + math.sqrt(upper_variance))


def _node_hours(
    job: BothWays, present_effect: PolicyEffect, tried_effect: PolicyEffect
) -> Interval:
    hours = job.time_s / 3600
    parts = [
        Interval(*((1 + share) * (e.nodes or job.nodes) * hours for share in e.time))
        for e in (tried_effect, present_effect)
    ]
    return parts[0].minus(parts[1])


def _add_interval(sums: dict[str, list[float]], quantity: str, change: Interval) -> None:
    totals = sums.setdefault(quantity, [0.0, 0.0, 0.0])
    totals[0] += change.value
    totals[1] += change.value - change.lo
    totals[2] += change.hi - change.value
