"""Hold what came out against what was promised.

A promise is an interval in absolute terms: the decision's predicted value times the ends of its
predicted change. A measured value may exceed the upper end by the measurement error and by what
the accounting cannot resolve before it counts as worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from advisor.core.codec import wire
from advisor.core.decision import Alternative, Effect
from advisor.core.units import format_change
from advisor.loop.execution import Execution

Verdict = Literal["as-promised", "better", "worse", "unknown", "left-alone"]
Quantity = Literal["time", "energy"]
QUANTITIES: tuple[Quantity, ...] = ("time", "energy")
_COMPARED: dict[Quantity, tuple[str, str]] = {
    "time": ("slower", "faster"),
    "energy": ("more", "less"),
}

MEASUREMENT_ERROR = 0.02
"""Fraction by which two measurements of the same run may differ; as in advisor.models.fit."""


@dataclass(frozen=True, slots=True)
class PromiseInterval:
    """A promised value with its 90 % interval: seconds or joules."""

    value: float = field(metadata=wire("promised"))
    lo: float
    hi: float

    def is_below(self, measured: float, slack: float) -> bool:
        """Tell whether a measured value is less than promised, though it may be off by ``slack``.

        The slack is a share of what was measured: of a run of one second a clock of whole seconds
        leaves nothing open that is fifty times as much.
        """
        return measured * (1 + slack) < self.lo

    def is_above(self, measured: float, slack: float) -> bool:
        """Tell whether a measured value is more than promised, beyond ``slack``."""
        return measured > self.hi * (1 + slack)

    def to_list(self) -> list[float]:
        """Return value, lower and upper end, for JSON."""
        return [self.value, self.lo, self.hi]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, why in words, and whether the job was slower by far than promised."""

    verdict: Verdict
    notes: tuple[str, ...] = ()
    far: bool = False


def promised(chosen: Alternative | None, quantity: Quantity) -> PromiseInterval | None:
    """Return the promised time (s) or energy (J) of a decision's choice, None if there is none."""
    if chosen is None:
        return None
    if quantity == "time":
        return interval_of(chosen.time_s, chosen.time)
    return interval_of(chosen.energy_j, chosen.energy)


def interval_of(value: float, effect: Effect) -> PromiseInterval | None:
    """Return a promised value with its interval, None where the promise makes no sense."""
    if not (value > 0 and effect.change > -1) or any(map(math.isnan, effect)):
        return None
    scale = value / (1 + effect.change)
    low, high = scale * (1 + effect.lo), scale * (1 + effect.hi)
    return PromiseInterval(value, min(low, value), max(high, value))


def tolerance(execution: Execution) -> float:
    """Return by which fraction a measured value may miss without being wrong."""
    if not execution.time_s:
        return MEASUREMENT_ERROR
    return MEASUREMENT_ERROR + execution.resolution_s / execution.time_s


def judge(
    state: str,
    execution: Execution,
    time: PromiseInterval | None,
    energy: PromiseInterval | None,
    *,
    max_slowdown: float,
    estimated_energy: bool = False,
) -> Judgement:
    """Judge a job that was rewritten and whose decision is trusted and was really run.

    ``estimated_energy``: the promise stands on an estimate, so a measured energy says nothing
    about it. A time limit that struck counts as worse; a job that failed or was cancelled tells
    nothing.
    """
    word = (state.split() or ["UNKNOWN"])[0]
    slack = tolerance(execution)
    if word == "TIMEOUT":
        far = time is not None and (execution.time_s or 0) > time.hi * (1 + slack) * (
            1 + max_slowdown
        )
        return Judgement("worse", ("its time limit ended it",), far)
    if word != "COMPLETED":
        return Judgement("unknown", (f"it ended as {word}",))
    if execution.step_failed:
        return Judgement("unknown", ("a step of it failed",))
    if execution.whole_nodes is False:
        return Judgement("unknown", ("it did not have its nodes for itself",))
    if time is None or execution.time_s is None:
        return Judgement("unknown", ("no time was promised or measured",))
    notes: list[str] = []
    used = None if estimated_energy else execution.energy_j
    worse, better = False, False
    for measured, interval in ((execution.time_s, time), (used, energy)):
        if measured is None or interval is None:
            continue
        worse |= interval.is_above(measured, slack)
        better |= interval.is_below(measured, slack)
    far = execution.time_s > time.hi * (1 + slack) * (1 + max_slowdown)
    if used is None or energy is None:
        notes.append(
            "the promised energy was an estimate"
            if estimated_energy
            else f"energy: {execution.energy_note or 'none was promised'}"
        )
        if not worse:
            return Judgement("unknown", tuple(notes), far)
    if worse:
        return Judgement("worse", tuple(notes), far)
    return Judgement("better" if better else "as-promised", tuple(notes))


def in_words(quantity: Quantity, measured: float, interval: PromiseInterval, slack: float) -> str:
    """Return how a value came out: ``3.0 % slower than promised, within its interval``."""
    ratio = measured / interval.value - 1
    if abs(ratio) < 0.0005:
        return "as promised"
    amount = format_change(abs(ratio)).lstrip("+")
    what = f"{amount} {_COMPARED[quantity][ratio < 0]} than promised"
    if interval.lo <= measured <= interval.hi:
        return f"{what}, within its interval"
    if interval.is_below(measured, slack) or interval.is_above(measured, slack):
        return f"{what}, outside its interval"
    return f"{what}, within its interval and measurement error"
