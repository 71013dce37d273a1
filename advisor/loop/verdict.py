"""Hold what came out against what was promised.

A promise is an interval in absolute terms: the decision's predicted value times the ends of its
predicted change. A measured value may exceed the upper end by the measurement error and by what
the accounting cannot resolve before it counts as worse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.core.units import format_change
from advisor.loop.execution import Execution

Verdict = Literal["as-promised", "better", "worse", "unknown", "left-alone"]
Quantity = Literal["time", "energy"]
QUANTITIES: tuple[Quantity, ...] = ("time", "energy")

MEASUREMENT_ERROR = 0.02
"""Fraction by which two measurements of the same run may differ; as in advisor.models.fit."""


@dataclass(frozen=True, slots=True)
class PromiseInterval:
    """A promised value with its 90 % interval: seconds or joules."""

    value: float
    lo: float
    hi: float

    def to_list(self) -> list[float]:
        """Return value, lower and upper end, for JSON."""
        return [self.value, self.lo, self.hi]

    @classmethod
    def from_list(cls, data: object) -> PromiseInterval | None:
        """Read the JSON form back, None when it is none."""
        if not isinstance(data, list | tuple) or len(data) != 3:
            return None
        numbers = [_number(v) for v in data]
        if any(n is None for n in numbers):
            return None
        return cls(*(float(n) for n in numbers if n is not None))


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, why in words, and whether the job was slower by far than promised."""

    verdict: Verdict
    notes: tuple[str, ...] = ()
    far: bool = False


def promised(record: Mapping[str, object], quantity: Quantity) -> PromiseInterval | None:
    """Return the promised time (s) or energy (J) of a decision's record, None if there is none."""
    predicted = record.get("predicted")
    if not isinstance(predicted, Mapping):
        return None
    value = _number(predicted.get("time_s" if quantity == "time" else "energy_j"))
    ends = predicted.get(f"{quantity}_pct_interval")
    if value is None or value <= 0 or not isinstance(ends, list | tuple) or len(ends) != 2:
        return None
    mean, lo, hi = (_number(v) for v in (predicted.get(f"{quantity}_pct"), *ends))
    if mean is None or lo is None or hi is None or mean <= -100:
        return None
    scale = value / (1 + mean / 100)
    low, high = scale * (1 + lo / 100), scale * (1 + hi / 100)
    return PromiseInterval(value, min(low, value), max(high, value))


def tolerance(seen: Execution) -> float:
    """Return by which fraction a measured value may miss without being wrong."""
    if not seen.time_s:
        return MEASUREMENT_ERROR
    return MEASUREMENT_ERROR + seen.resolution_s / seen.time_s


def judge(
    state: str,
    seen: Execution,
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
    slack = tolerance(seen)
    if word == "TIMEOUT":
        far = time is not None and (seen.time_s or 0) > time.hi * (1 + slack) * (1 + max_slowdown)
        return Judgement("worse", ("its time limit ended it",), far)
    if word != "COMPLETED":
        return Judgement("unknown", (f"it ended as {word}",))
    if seen.step_failed:
        return Judgement("unknown", ("a step of it failed",))
    if seen.whole_nodes is False:
        return Judgement("unknown", ("it did not have its nodes for itself",))
    if time is None or seen.time_s is None:
        return Judgement("unknown", ("no time was promised or measured",))
    notes: list[str] = []
    used = None if estimated_energy else seen.energy_j
    worse, better = False, False
    for measured, interval in ((seen.time_s, time), (used, energy)):
        if measured is None or interval is None:
            continue
        worse |= measured > interval.hi * (1 + slack)
        better |= measured < interval.lo * (1 - slack)
    far = seen.time_s > time.hi * (1 + slack) * (1 + max_slowdown)
    if used is None or energy is None:
        notes.append(
            "the promised energy was an estimate"
            if estimated_energy
            else f"energy: {seen.energy_note or 'none was promised'}"
        )
        if not worse:
            return Judgement("unknown", tuple(notes), far)
    if worse:
        return Judgement("worse", tuple(notes), far)
    return Judgement("better" if better else "as-promised", tuple(notes))


def in_words(
    measured: float, interval: PromiseInterval, slack: float, *, more: str, less: str
) -> str:
    """Return how a value came out: ``3.0 % slower than promised, within its interval``."""
    ratio = measured / interval.value - 1
    if abs(ratio) < 0.0005:
        return "as promised"
    amount = format_change(abs(ratio)).lstrip("+")
    what = f"{amount} {more if ratio > 0 else less} than promised"
    if interval.lo <= measured <= interval.hi:
        return f"{what}, within its interval"
    if interval.lo * (1 - slack) <= measured <= interval.hi * (1 + slack):
        return f"{what}, within its interval and measurement error"
    return f"{what}, outside its interval"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
