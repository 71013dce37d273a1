"""Jobs of the past beside measured runs: what they add, and why they are often left out.

A job is no experiment. Its clock and meter are the accounting's, and under one name people run
other inputs. So jobs count only where measured runs at the same configuration bear them out, all
jobs of a configuration together as one run at most, and none ever confirms anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Z90
from advisor.models.response import Response

_MOST_SPREAD = 0.05
"""Jobs of one configuration that differ by more (robust standard deviation of logs) are not of one
input."""
_USUAL_SPREAD = 0.02
"""Jobs are never believed to repeat better than this: nodes, neighbours and weather differ."""
_FEWEST = 3
"""Jobs of one configuration that show whether they are alike."""


@dataclass(frozen=True, slots=True)
class JobValue:
    """One job's response; ``error`` is the standard deviation that the accounting gives its log."""

    configuration: Configuration
    value: float
    error: float


def is_job(run: Observation) -> bool:
    """Tell whether a run is a job of the past, known from the accounting."""
    return run.source == "job"


def error_of(run: Observation) -> float:
    """Return the standard deviation of a job's log time and energy by the accounting's resolution.

    A resolution of r seconds leaves the time anywhere within r: a uniform error of r / sqrt(12) at
    each end.
    """
    resolution_s = run.extra.get("resolution_s", 1.0)
    stated_s = resolution_s if isinstance(resolution_s, int | float) else 1.0
    return float(stated_s) / math.sqrt(6) / run.time_s


def with_jobs(response: Response, jobs: Iterable[JobValue]) -> tuple[Response, str]:
    """Return a response of measured runs with jobs in it, and why not where none are.

    Jobs of every configuration must be alike, and where there are measured runs as well they must
    agree with these at 90 %; at least one configuration must have both.
    """
    groups: dict[Configuration, list[JobValue]] = {}
    for job in jobs:
        groups.setdefault(job.configuration, []).append(job)
    groups = {c: runs_there for c, runs_there in groups.items() if len(runs_there) >= _FEWEST}
    if not groups:
        return _first_hand(response), ""
    summary = {c: _summary(runs_there, response.run_sigma) for c, runs_there in groups.items()}
    if any(spread > _MOST_SPREAD for _, spread, _ in summary.values()):
        return _first_hand(response), "jobs of one configuration differ: they are not of one input"
    anchored = [c for c in summary if c in response.log_mean]
    if not anchored:
        return _first_hand(response), "no job ran at a measured configuration"
    for c in anchored:
        mean, spread, _ = summary[c]
        if abs(mean - response.log_mean[c]) > Z90 * math.hypot(
            response.noise(c), max(spread, _USUAL_SPREAD)
        ):
            return _first_hand(
                response
            ), "jobs differ from the measured runs: another input or meter"
    means, counts = dict(response.log_mean), dict(response.counts)
    for c, (mean, _, weight) in summary.items():
        own_count = counts.get(c, 0.0) if c in means else 0.0
        means[c] = (own_count * means.get(c, 0.0) + weight * mean) / (own_count + weight)
        counts[c] = own_count + weight
    return replace(_first_hand(response), log_mean=means, counts=counts), ""


def of_jobs_alone(response: Response) -> Response:
    """Return a response that rests on jobs: nothing in it confirms, a configuration is one run."""
    counts = {c: min(1.0, n) for c, n in response.counts.items()}
    return replace(response, counts=counts, first_hand={}, agreed=frozenset())


def _first_hand(response: Response) -> Response:
    return (
        response
        if response.first_hand is not None
        else replace(response, first_hand=dict(response.log_mean))
    )


def _summary(jobs: Sequence[JobValue], run_sigma: float) -> tuple[float, float, float]:
    """Return median log, robust spread, and how many runs the jobs are worth: one at most."""
    logs = np.log([job.value for job in jobs])
    mean = float(np.median(logs))
    spread = 1.4826 * float(np.median(np.abs(logs - mean)))
    error = float(np.mean([job.error for job in jobs]))
    sigma = math.hypot(max(spread, _USUAL_SPREAD), error)
    return mean, spread, min(1.0, len(jobs) * (run_sigma / sigma) ** 2)
