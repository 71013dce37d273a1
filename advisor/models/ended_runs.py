"""Training runs that were ended early, beside complete ones: what they weigh.

What such a run would have taken is known within an interval. It counts as the part of a run that
this leaves: the variance of one run over that variance and the extrapolation's together. It
confirms nothing, and no spread of repeats is taken from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Z90
from advisor.models.response import Response, response

_LEAST = 0.01
"""Relative 90 % half width of an extrapolation, at least: nothing is known better by halves."""


def half_width(run: Observation, name: str) -> float:
    """Return the relative 90 % half width of a run's time or energy; 0 of a complete run."""
    errors = run.extra.get("extrapolated")
    if not isinstance(errors, Mapping):
        return 0.0
    half = errors.get(name, errors.get("time"))  # an estimated energy is as good as its time
    known = isinstance(half, int | float) and math.isfinite(half)
    return max(_LEAST, float(half)) if known else 1.0


def ended_early(run: Observation) -> bool:
    """Tell whether a run was ended before its end."""
    return half_width(run, "time") > 0


def response_of(
    runs: Sequence[Observation],
    name: str,
    value: Callable[[Observation], float],
    assumed: float,
) -> Response:
    """Return the response of complete runs with those in it that were ended early.

    ``name`` is time or energy; ``assumed`` the standard deviation of one run's log.
    """
    of = response([(r.configuration, value(r)) for r in runs if not ended_early(r)], assumed)
    ended = [r for r in runs if ended_early(r)]
    if not ended:
        return of
    means, counts = dict(of.log_mean), dict(of.counts)
    for run in ended:
        c = run.configuration
        sigma = math.log1p(half_width(run, name)) / Z90
        weight = of.run_sigma**2 / (of.run_sigma**2 + sigma**2)
        means[c], counts[c] = _joined(c, means, counts, math.log(value(run)), weight)
    return replace(of, log_mean=means, counts=counts, first_hand=dict(of.log_mean))


def _joined(
    c: Configuration,
    means: Mapping[Configuration, float],
    counts: Mapping[Configuration, float],
    log: float,
    weight: float,
) -> tuple[float, float]:
    before = counts.get(c, 0.0)
    whole = before + weight
    return (before * means.get(c, 0.0) + weight * log) / whole, whole
