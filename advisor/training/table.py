"""Options straight from what was measured, where a machine has too few for a model.

A laptop with two cores and no frequency control has two configurations: no curve can be fitted
through them, and none is needed, since every one was run several times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.mark_front import place
from advisor.core.observation import Observation, Quality
from advisor.core.option import Z90, Option
from advisor.core.thread_use import unset_stats
from advisor.errors import InputError
from advisor.models.ended_runs import without_refuted
from advisor.models.failed_fast import without_failed_fast
from advisor.models.fit import FitResult
from advisor.models.runs import MIN_CONFIGURATIONS, of_equal_work, of_one_method, rate_stats

NAME = "measured"
LEAST_SIGMA = 0.02
"""Standard deviation of one run's log response that is assumed at least."""


def too_few_for_a_model(
    configurations: Iterable[Configuration], least: int = MIN_CONFIGURATIONS
) -> bool:
    """Tell whether there are fewer distinct configurations than a model needs."""
    return len(set(configurations)) < least


def tabulate(observations: Sequence[Observation], *, error: float = 0.05) -> FitResult:
    """Return one option per measured configuration: mean and 90 % interval of its runs.

    The result's ``predicted`` has the wider intervals of one more run instead.

    A configuration is confirmed when the mean of its confirming runs (source ``confirm``) lies
    within the 90 % interval that its other runs predict for them. The spread is pooled over all
    repeats, at least 2 %. Energies of one quality only are used, measured before estimated.
    Raises InputError without runs.
    """
    notes: list[str] = []
    observations, method = of_one_method(observations, notes)
    observations = without_refuted(observations, notes)
    if not observations:
        raise InputError("no run succeeded")
    observations, work = of_equal_work(without_failed_fast(observations, notes), notes)
    quality = _quality(observations)
    times = _logs(observations, lambda o: o.time_s)
    energies = _logs(
        observations,
        lambda o: o.energy_j if quality != "missing" and o.energy_quality == quality else None,
    )
    if set(energies) != set(times):
        quality, energies = "missing", {}
    time_sigma, energy_sigma = _sigma(times), _sigma(energies)
    options, predicted = [], []
    for c in times:
        t = _interval(times[c], time_sigma)
        e = _interval(energies[c], energy_sigma) if energies else (math.nan,) * 3
        option = Option(c, *t, *e, measured=True)
        holds = _confirms(observations, c, "time_s", time_sigma) and (
            not energies or _confirms(observations, c, "energy_j", energy_sigma)
        )
        options.append(replace(option, confirmed=holds))
        next_t = _interval(times[c], time_sigma, next_run=True)
        next_e = _interval(energies[c], energy_sigma, next_run=True) if energies else e
        predicted.append(Option(c, *next_t, *next_e, measured=True))
    placed = place(options, error)
    notes += [
        f"only {len(placed)} configurations here: the options are the runs themselves, no model"
    ]
    stats: dict[str, Any] = {
        "time": {"sigma_pct": 100 * time_sigma},
        "energy": {"sigma_pct": 100 * energy_sigma} if energies else None,
        "error": error,
        "options": len(placed),
        "measured": len(placed),
        "confirmed": sum(o.confirmed for o in placed),
        "zone": sum(o.in_zone for o in placed),
        "front": sum(o.on_front for o in placed),
        "runs": len(observations),
        "method": method,
        **rate_stats(work, observations),
        **unset_stats(observations),
        "notes": notes,
    }
    return FitResult(placed, stats, len(placed), quality, NAME, notes, place(predicted, error))


def _quality(observations: Sequence[Observation]) -> Quality:
    """Return the best quality that every configuration has an energy of."""
    configurations = {o.configuration for o in observations}
    for quality in ("measured", "estimated"):
        metered = {o.configuration for o in observations if o.energy_quality == quality}
        if metered == configurations:
            return "measured" if quality == "measured" else "estimated"
    return "missing"


def _logs(observations: Sequence[Observation], value: Any) -> dict[Configuration, list[float]]:
    groups: dict[Configuration, list[float]] = {}
    for o in observations:
        response = value(o)
        if response is not None:
            groups.setdefault(o.configuration, []).append(math.log(response))
    return dict(sorted(groups.items()))


def _sigma(groups: dict[Configuration, list[float]]) -> float:
    squares = sum((v - fmean(group)) ** 2 for group in groups.values() for v in group)
    free = sum(len(group) - 1 for group in groups.values())
    return max(LEAST_SIGMA, math.sqrt(squares / free) if free else 0.0)


def _interval(
    logs: Sequence[float], sigma: float, *, next_run: bool = False
) -> tuple[float, float, float]:
    """Return mean, low and high of the mean itself, or of one more run."""
    mean, half = fmean(logs), Z90 * sigma * math.sqrt(next_run + 1 / len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _confirms(
    observations: Sequence[Observation], c: Configuration, name: str, sigma: float
) -> bool:
    runs = [o for o in observations if o.configuration == c and getattr(o, name) is not None]
    later = [math.log(getattr(o, name)) for o in runs if o.source == "confirm"]
    first = [math.log(getattr(o, name)) for o in runs if o.source != "confirm"]
    if not later or not first:
        return False
    half = Z90 * sigma * math.sqrt(1 / len(later) + 1 / len(first))
    return abs(fmean(later) - fmean(first)) <= half
