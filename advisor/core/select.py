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
from itertools import islice
from math import hypot
from operator import attrgetter
from statistics import NormalDist
from typing import NamedTuple

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Effect
from advisor.core.option import Z90, Row
from advisor.core.policy import Goal, Policy
from advisor.core.reasons import Reason, reason
from advisor.core.units import format_change, format_percent

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
"""Options whose score differs by less than this (1 %), or by less than the policy's confidence
can distinguish, are equal: ``resources`` decides."""

RUN_SIGMA = 0.02 / 1.96
"""Standard error of log time and energy of a single run where repeats do not tell: 2 % at 95 %."""

NEAR = 0.15
"""A baseline off the model's grid by no more than this (15 %) is taken from its neighbour."""

_SHOWN = 6
"""Most options that an explanation lists."""


Candidate = tuple[str, Row]
"""A node type and one of its rows."""
_SCORE = attrgetter("score")


class Weighed(NamedTuple):
    """A candidate against the baseline: log ratios with standard errors, and its score."""

    node_type: str
    row: Row
    t: float
    t_sigma: float
    e: float
    e_sigma: float
    score: float

    @property
    def configuration(self) -> Configuration:
        """The candidate's configuration."""
        return self.row.configuration(self.node_type)

    def alternative(self) -> Alternative:
        """Return the form that decisions record."""
        return Alternative(
            self.configuration,
            self.row.time_s,
            self.row.energy_j,
            _effect(self.t, self.t_sigma),
            _effect(self.e, self.e_sigma),
            self.row.confirmed,
            self.row.estimated,
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
def one_sided(confidence: float) -> float:
    """Return how many standard errors a one-sided confidence is."""
    # Below one half a margin would be a bonus for being unsure; at 1 nothing would ever pass.
    return NormalDist().inv_cdf(min(max(confidence, 0.5), 0.9999))


def weigh(candidate: Candidate, baseline: Row, goal: Goal) -> Weighed:
    """Weigh one candidate against the baseline."""
    node_type, row = candidate
    t, e = row.log_time - baseline.log_time, row.log_energy - baseline.log_energy
    w = WEIGHTS[goal]
    t_sigma = hypot(row.time_sigma, baseline.time_sigma)
    e_sigma = hypot(row.energy_sigma, baseline.energy_sigma)
    return Weighed(node_type, row, t, t_sigma, e, e_sigma, w * e + (1 - w) * t)


def score_of(chosen: Alternative, goal: Goal) -> float:
    """Return the score of a choice that was made: the less, the better; 0 as the baseline."""
    w = WEIGHTS[goal]
    return w * math.log1p(chosen.energy.change) + (1 - w) * math.log1p(chosen.time.change)


def select(candidates: Sequence[Candidate], baseline: Row, policy: Policy) -> Selection:
    """Return the best confirmed candidate, or none with the reason.

    A candidate passes when its slowdown stays within ``max_slowdown`` and its saving above
    ``min_saving``, both at the policy's one-sided ``confidence``, when a run confirmed it (or the
    option it is estimated from), and when it is better than the baseline for the goal. Ties go to
    what was measured, then to the policy's ``resources``.
    ``candidates`` must not hold the baseline itself.
    """
    if math.isnan(baseline.energy_j):
        return Selection(None, (), (reason("energy-unknown"),))
    z = one_sided(policy.confidence)
    slow_bound, saving_bound = math.log1p(policy.max_slowdown), math.log1p(-policy.min_saving)
    t, t_sigma = baseline.log_time, baseline.time_sigma
    t_limit = t + slow_bound
    # Most candidates are too slow by their mean alone: look at the others only, of which some have
    # no energy (NaN, which alone is not itself).
    fast = [c for c in candidates if c[1].log_time <= t_limit and c[1].energy_j == c[1].energy_j]
    sure = [
        c for c in fast if c[1].log_time - t + z * hypot(c[1].time_sigma, t_sigma) <= slow_bound
    ]
    weighed = [weigh(c, baseline, policy.goal) for c in sure]
    weighed.sort(key=_SCORE)
    saving = [x for x in weighed if x.e + z * x.e_sigma <= saving_bound]
    passed = [x for x in saving if x.score < 0 and x.row.usable]
    # People are shown what may be chosen first, then what comes next to it.
    shown = passed[:_SHOWN]
    if len(shown) < _SHOWN:
        runners_up = (x for x in weighed if not any(x is y for y in shown))
        shown = [*shown, *islice(runners_up, _SHOWN - len(shown))]
    reasons: list[Reason] = []
    if len(weighed) < len(candidates):
        slow = format_percent(policy.max_slowdown), format_percent(policy.confidence)
        reasons.append(reason("slowdown", len(candidates) - len(weighed), *slow))
    if passed:
        best, tie = _break_tie(passed, policy)
        energy, time = format_change(math.expm1(best.e)), format_change(math.expm1(best.t))
        reasons.append(reason("chosen", f"energy {energy}, time {time}"))
        # Of an estimate no run has confirmed the option itself, so that nothing is said of it.
        reasons += [_confirmed(best, policy)] * best.row.confirmed + tie
        return Selection(best, tuple(shown), tuple(reasons))
    # For the reasons alone: they tell whether the policy or only a confirming run stands in the
    # way.
    hopes = [weigh(c, baseline, policy.goal) for c in fast if not c[1].usable]
    unconfirmed = [x for x in hopes if x.e <= saving_bound and x.score < 0]
    if unconfirmed:
        reasons.append(reason("unconfirmed", len(unconfirmed)))
    if not weighed:
        reasons.append(reason("no-candidates"))
    elif not saving:
        # An option that takes more energy saves nothing: a negative saving is hard to read.
        best_saving = max(0.0, max(-math.expm1(x.e) for x in weighed))
        reasons.append(
            reason(
                "saving-too-small", f"{100 * best_saving:.1f} %", format_percent(policy.min_saving)
            )
        )
    elif not unconfirmed:
        reasons.append(reason("baseline-is-best", policy.goal))
    else:
        reasons.append(reason("no-candidates"))
    return Selection(None, tuple(shown), tuple(reasons))


def _confirmed(x: Weighed, policy: Policy) -> Reason:
    """Say how probable it is that what a run confirmed breaks either bound all the same."""
    chances = [
        _chance(math.log1p(policy.max_slowdown) - x.t, x.t_sigma),
        _chance(math.log1p(-policy.min_saving) - x.e, x.e_sigma),
    ]
    slowdown, saving = format_percent(policy.max_slowdown), format_percent(policy.min_saving)
    return reason("confirmed", slowdown, chances[0], saving, chances[1])


def _chance(room: float, sigma: float) -> str:
    """Return the probability, in words, that a normal error (log) exceeds what room there is."""
    chance = 0.5 * math.erfc(room / max(sigma, 1e-9) / math.sqrt(2))
    return "below 1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def _break_tie(passed: list[Weighed], policy: Policy) -> tuple[Weighed, list[Reason]]:
    """Return the option to take among those equal to the best, and why if it is another.

    Resource use is a third objective for what time and energy cannot tell apart (Endrei 2019,
    section 7.3.4). Where an estimate is best but does not surely beat what was measured, that is
    taken.
    """
    best = passed[0]
    z, w = one_sided(policy.confidence), WEIGHTS[policy.goal]

    def equal(x: Weighed, best: Weighed) -> bool:
        off, a, b = x.score - best.score, x.row, best.row
        if off <= TIE:
            return True
        # The rows' own errors: that of the baseline is in both scores, and goes out.
        return off <= z * hypot(
            w * a.energy_sigma, w * b.energy_sigma, (1 - w) * a.time_sigma, (1 - w) * b.time_sigma
        )

    measured = [x for x in passed if x.row.confirmed]
    best_measured = next((x for x in measured if equal(x, best)), None)
    if best_measured is None:
        return _break_tie_of_estimates(passed, policy)
    return _thrifty(best_measured, [x for x in measured if equal(x, best_measured)], policy)


def _break_tie_of_estimates(passed: list[Weighed], policy: Policy) -> tuple[Weighed, list[Reason]]:
    """Return the estimate whose score is surely least.

    They are off together by the ratio of the node types, so that does not make them equal; but how
    much else is uncertain differs, and an option far from what is known must be worth it.
    """
    z, w = one_sided(policy.confidence), WEIGHTS[policy.goal]

    def surely(x: Weighed) -> float:
        return x.score + z * (w * x.e_sigma + (1 - w) * x.t_sigma)

    estimates = sorted((x for x in passed if x.row.estimated), key=surely)
    best = estimates[0]
    return _thrifty(best, [x for x in estimates if surely(x) <= surely(best) + TIE], policy)


def _thrifty(
    best: Weighed, equal: Sequence[Weighed], policy: Policy
) -> tuple[Weighed, list[Reason]]:
    """Return the one of equal options that the policy's ``resources`` takes."""
    if policy.resources == "balanced":
        return best, []
    sign = 1 if policy.resources == "thrifty" else -1
    preferred = min(equal, key=lambda x: (sign * x.row.nodes * x.row.threads_per_node, x.score))
    if preferred is best:
        return best, []
    return preferred, [reason("tie-resources", policy.resources, preferred.configuration.cores)]


def find_row(
    rows: Sequence[Row], nodes: int, ranks: int, threads: int, freq_khz: int
) -> tuple[Row | None, bool]:
    """Return the row at (or nearest to) a point and whether it is exactly there.

    Nearest means: same nodes and ranks, threads and frequency within :data:`NEAR`; anything
    farther returns None, since a baseline must not be guessed. ``freq_khz`` 0 means no
    cap: the grid's highest frequency.
    """
    point = (nodes, ranks, threads, freq_khz)
    for r in rows:
        # Nearly always the job asks for a point of the grid: one comparison that mostly fails at
        # the frequency, before the sorting below.
        if r[3] == freq_khz and r[:4] == point:
            return r, True
    shape_rows = [r for r in rows if r.nodes == nodes and r.ranks_per_node == ranks]
    chosen_threads = _nearest(sorted({r.threads_per_node for r in shape_rows}), threads)
    freqs = sorted({r.freq_khz for r in shape_rows})
    chosen_freq = _nearest(freqs, freq_khz or max(freqs, default=0))
    for r in shape_rows:
        if r.threads_per_node == chosen_threads and r.freq_khz == chosen_freq:
            return r, chosen_threads == threads and freq_khz in (0, chosen_freq)
    return None, False


def _nearest(values: Sequence[int], target: int) -> int | None:
    nearest = min(values, key=lambda v: abs(v - target), default=None)
    # Relative to the larger of both, so that each is as near to the other.
    near = nearest is not None and abs(nearest - target) <= NEAR * max(nearest, target)
    return nearest if near else None
