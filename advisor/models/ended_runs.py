"""Training runs that were ended early, beside complete ones: what they weigh.

What such a run would have taken is known within an interval. It counts as the part of a run that
this leaves: the variance of one run over that variance and the extrapolation's together. It
confirms nothing, and no spread of repeats is taken from it. Where a complete run shows that one was
extrapolated wrongly, none of its sweep counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Z90
from advisor.core.units import format_count
from advisor.models.response import Response, response
from advisor.models.scatter import USUAL, Scatter

_LEAST = 0.01
"""Relative 90 % half width of an extrapolation, at least: nothing is known better by halves."""

_TRUSTED = 2.0
"""Half widths that a complete run may be off one that was ended early."""


def half_width(run: Observation, name: str) -> float:
    """Return the relative 90 % half width of a run's time or energy; 0 of a complete run."""
    errors = run.extra.get("extrapolated")
    if not isinstance(errors, Mapping):
        return 0.0
    half = errors.get(name, errors.get("time"))  # an estimated energy is as good as its time
    is_number = isinstance(half, int | float) and math.isfinite(half)
    return max(_LEAST, float(half)) if is_number else 1.0


def ended_early(run: Observation) -> bool:
    """Tell whether a run was ended before its end."""
    return half_width(run, "time") > 0


def launch_spread(observations: Sequence[Observation]) -> float:
    """Return the standard deviation of one run's log time from launch to launch.

    That of the complete runs that were repeated; where none was, what is assumed of any run (a
    95 % half width of 2 %, as in a fit).
    """
    complete_times = [(o.configuration, o.time_s) for o in observations if not ended_early(o)]
    return response(complete_times, USUAL).run_sigma


def refuted(run: Observation, complete_run: Observation, launches: float = USUAL.sigma) -> float:
    """Return how far a complete run is off one that was ended early, where that is too far; else 0.

    Time or energy, whichever is further off; a fraction of what was extrapolated. Beyond the
    extrapolation's interval two launches differ by their spread (``launches``).
    """
    pairs = [("time", complete_run.time_s, run.time_s)]
    if complete_run.energy_j and run.energy_j and complete_run.energy_quality == run.energy_quality:
        pairs.append(("energy", complete_run.energy_j, run.energy_j))
    # The difference of two launches scatters by the square root of two times what one does.
    apart = Z90 * math.sqrt(2) * launches
    off = [(a / b - 1, math.hypot(half_width(run, name), apart)) for name, a, b in pairs]
    return max((e for e, half in off if abs(e) > _TRUSTED * half), key=abs, default=0.0)


def without_refuted(observations: Sequence[Observation], notes: list[str]) -> list[Observation]:
    """Return the runs without those ended early in a sweep that a complete run of it refutes.

    The complete run is one of the same sweep and configuration. What was wrong there may be wrong
    in all, so none of that sweep's counts; ``notes`` say how many.
    """
    complete_runs: dict[tuple[str, Configuration], list[Observation]] = {}
    for run in observations:
        if not ended_early(run) and (sweep := _sweep(run)):
            complete_runs.setdefault((sweep, run.configuration), []).append(run)
    launches = launch_spread(observations) if complete_runs else 0.0
    wrong = {
        _sweep(run)
        for run in observations
        if ended_early(run)
        for complete_run in complete_runs.get((_sweep(run), run.configuration), ())
        if refuted(run, complete_run, launches)
    }
    trusted = [o for o in observations if not (ended_early(o) and _sweep(o) in wrong)]
    if len(trusted) < len(observations):
        notes.append(
            f"left out: {format_count(len(observations) - len(trusted), 'run')} ended early: "
            "complete "
            "runs of the same sweep differ"
        )
    return trusted


def _sweep(run: Observation) -> str:
    return str(run.extra.get("sweep") or "")


def response_of(
    runs: Sequence[Observation],
    name: str,
    value: Callable[[Observation], float],
    usual: Scatter,
) -> Response:
    """Return the response of complete runs with those in it that were ended early.

    ``name`` is time or energy; ``usual`` what is known of one run's scatter before.
    """
    complete_response = response(
        [(r.configuration, value(r)) for r in runs if not ended_early(r)], usual
    )
    ended_runs = [r for r in runs if ended_early(r)]
    if not ended_runs:
        return complete_response
    means, counts = dict(complete_response.log_mean), dict(complete_response.counts)
    for run in ended_runs:
        c = run.configuration
        sigma = math.log1p(half_width(run, name)) / Z90
        weight = complete_response.run_sigma**2 / (complete_response.run_sigma**2 + sigma**2)
        means[c], counts[c] = _joined_mean(c, means, counts, math.log(value(run)), weight)
    return replace(
        complete_response,
        log_mean=means,
        counts=counts,
        first_hand=dict(complete_response.log_mean),
    )


def _joined_mean(
    c: Configuration,
    means: Mapping[Configuration, float],
    counts: Mapping[Configuration, float],
    log: float,
    weight: float,
) -> tuple[float, float]:
    former_count = counts.get(c, 0.0)
    new_count = former_count + weight
    return (former_count * means.get(c, 0.0) + weight * log) / new_count, new_count
