"""Choose an option: the policy's goal, within its slowdown bound, above its saving floor.

Everything is weighed in log space against the baseline: ``t = ln(time / baseline time)`` and
``e = ln(energy / baseline energy)``, each with a standard error. A goal is one weight ``w`` in
``w e + (1 - w) t``: 1 is least energy, 0 least time, 1/2 the energy-delay product, 1/3 its
square (E T^2). ``power``, ``balanced`` and ``performance`` are 3/4, 1/2 and 1/4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

from advisor.core.decision import Alternative, Effect
from advisor.core.option import Z90, Option
from advisor.core.policy import Goal, Policy
from advisor.core.reasons import Reason, reason
from advisor.core.units import format_change

WEIGHTS: dict[Goal, float] = {
    "min_energy": 1.0,
    "power": 0.75,
    "balanced": 0.5,
    "edp": 0.5,
    "ed2p": 1 / 3,
    "performance": 0.25,
    "min_time": 0.0,
}
TIE = 0.01
"""Options whose score differs by less than this (1 %) are equal; ``resources`` decides."""

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Weighed:
    """An option against the baseline: log ratios with standard errors, and its score."""

    option: Option
    t: float
    t_sigma: float
    e: float
    e_sigma: float
    score: float

    def alternative(self) -> Alternative:
        """Return the form that decisions record."""
        o = self.option
        return Alternative(
            o.configuration,
            o.time_s,
            o.energy_j,
            _effect(self.t, self.t_sigma),
            _effect(self.e, self.e_sigma),
            o.confirmed,
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """The choice (None: change nothing), what else was weighed, and why."""

    chosen: Weighed | None
    alternatives: tuple[Weighed, ...]
    reasons: tuple[Reason, ...]


def _effect(mean: float, sigma: float) -> Effect:
    return Effect(math.expm1(mean), math.expm1(mean - Z90 * sigma), math.expm1(mean + Z90 * sigma))


@lru_cache(maxsize=64)
def _one_sided(confidence: float) -> float:
    return NormalDist().inv_cdf(min(max(confidence, 0.5), 0.9999))


def weigh(option: Option, baseline: Option, goal: Goal) -> Weighed:
    """Weigh one option against the baseline."""
    t = math.log(option.time_s / baseline.time_s)
    e = math.log(option.energy_j / baseline.energy_j)
    if option.configuration == baseline.configuration:
        return Weighed(option, 0.0, 0.0, 0.0, 0.0, 0.0)
    w = WEIGHTS[goal]
    return Weighed(
        option,
        t,
        math.hypot(option.time_sigma, baseline.time_sigma),
        e,
        math.hypot(option.energy_sigma, baseline.energy_sigma),
        w * e + (1 - w) * t,
    )


def select(candidates: Sequence[Option], baseline: Option, policy: Policy) -> Selection:
    """Return the best confirmed option, or none with the reason.

    An option passes when its slowdown stays within ``max_slowdown`` and its saving above
    ``min_saving``, both at the policy's one-sided ``confidence``, when a run confirmed it, and
    when it is better than the baseline for the goal. Ties go to the policy's ``resources``.
    """
    if not candidates:
        return Selection(None, (), (reason("no-candidates"),))
    if math.isnan(baseline.energy_j):
        return Selection(None, (), (reason("energy-unknown"),))
    weighed = sorted(
        (
            weigh(o, baseline, policy.goal)
            for o in candidates
            if not math.isnan(o.energy_j) and o.configuration != baseline.configuration
        ),
        key=lambda x: x.score,
    )
    z = _one_sided(policy.confidence)
    slow_bound, saving_bound = math.log1p(policy.max_slowdown), math.log1p(-policy.min_saving)
    within = [x for x in weighed if x.t + z * x.t_sigma <= slow_bound]
    saving = [x for x in within if x.e + z * x.e_sigma <= saving_bound]
    passed = [x for x in saving if x.option.confirmed and x.score < 0]
    shown = tuple(sorted({*passed[:_SHOWN], *within[:_SHOWN]}, key=lambda x: x.score)[:_SHOWN])
    reasons: list[Reason] = []
    if len(within) < len(weighed):
        reasons.append(
            reason(
                "slowdown",
                len(weighed) - len(within),
                f"{policy.max_slowdown:.1%}",
                f"{policy.confidence:.0%}",
            )
        )
    if passed:
        best, tie = _break_tie(passed, policy)
        energy, time = format_change(math.expm1(best.e)), format_change(math.expm1(best.t))
        effect = f"energy {energy}, time {time}"
        reasons += [reason("chosen", effect), reason("confirmed"), *tie]
        return Selection(best, shown, tuple(reasons))
    if not within:
        reasons.append(reason("no-candidates"))
        return Selection(None, tuple(weighed[:_SHOWN]), tuple(reasons))
    unconfirmed = [
        x
        for x in weighed
        if not x.option.confirmed and x.t <= slow_bound and x.e <= saving_bound and x.score < 0
    ]
    if unconfirmed:
        reasons.append(reason("unconfirmed", len(unconfirmed)))
    best_saving = max(0.0, max(-math.expm1(x.e) for x in within))
    if saving and not unconfirmed:
        reasons.append(reason("baseline-is-best", policy.goal))
    elif not saving:
        reasons.append(reason("saving-too-small", f"{best_saving:.1%}", f"{policy.min_saving:.1%}"))
    return Selection(None, shown, tuple(reasons))


def _break_tie(passed: list[Weighed], policy: Policy) -> tuple[Weighed, list[Reason]]:
    best = passed[0]
    if policy.resources == "balanced":
        return best, []
    sign = 1 if policy.resources == "thrifty" else -1
    equal = [x for x in passed if x.score <= best.score + TIE]

    def cores(x: Weighed) -> int:
        return sign * x.option.configuration.cores

    taken = min(equal, key=lambda x: (cores(x), x.score))
    if taken is best:
        return best, []
    return taken, [reason("tie-resources", policy.resources, taken.option.configuration.cores)]


def recommend(options: Sequence[Option], baseline: Option, policy: Policy) -> Option | None:
    """Return the option a sweep should confirm: best by predicted means, None if no gain.

    Same bounds as :func:`select` without their margins: the confirming run supplies those.
    """
    if math.isnan(baseline.energy_j):
        return None
    slow_bound, saving_bound = math.log1p(policy.max_slowdown), math.log1p(-policy.min_saving)
    good = [
        x
        for x in (weigh(o, baseline, policy.goal) for o in options if not math.isnan(o.energy_j))
        if x.t <= slow_bound and x.e <= saving_bound and x.score < 0
    ]
    return min(good, key=lambda x: x.score).option if good else None


def find_option(
    options: Sequence[Option], nodes: int, ranks: int, threads: int, freq_khz: int
) -> tuple[Option | None, bool]:
    """Return the option at (or nearest to) a point and whether it is exactly there.

    Nearest means: same nodes and ranks, threads within one step of the grid, frequency likewise;
    anything farther returns None, since a baseline must not be guessed. ``freq_khz`` 0 means no
    cap: the grid's highest frequency.
    """
    same = [
        o
        for o in options
        if o.configuration.nodes == nodes and o.configuration.ranks_per_node == ranks
    ]
    chosen_threads = _nearest(sorted({o.configuration.threads_per_node for o in same}), threads)
    freqs = sorted({o.configuration.freq_khz for o in same})
    chosen_freq = _nearest(freqs, freq_khz or max(freqs, default=0))
    for o in same:
        c = o.configuration
        if c.threads_per_node == chosen_threads and c.freq_khz == chosen_freq:
            return o, chosen_threads == threads and freq_khz in (0, chosen_freq)
    return None, False


def _nearest(values: Sequence[int], wanted: int) -> int | None:
    if not values:
        return None
    nearest = min(values, key=lambda v: abs(v - wanted))
    if nearest == wanted:
        return nearest
    if len(values) == 1:
        return None
    step = max(b - a for a, b in pairwise(values))
    return nearest if abs(nearest - wanted) <= step else None
