"""What jobs of one script tell of frequency caps that some of them tried, and which to try next.

A script that runs again and again measures its own caps, a step at a time: each trial is one job
under a cap that no job of its had before, one step of the clock below the lowest that is known. It
takes place only where even the worst, all of the job's work waiting for the clock, keeps the bound
on the slowdown: a job never takes longer at a lower clock than the inverse of the clock says.

What came out is compared with the jobs that ran as written: logarithms of time and energy, one
variance for all caps (pooled), Student's t. A slower clock does not shorten a job, so means of the
time that fall along the caps are averaged until none does (isotonic regression by pooling adjacent
violators; Ayer et al. 1955).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from advisor.core.job_history import PastJob
from advisor.core.policy import Policy
from advisor.core.student import quantile
from advisor.core.whole_job import CapResponse

HARM = 0.02
"""A slowdown so far beyond the bound, or so much more energy, is harm."""
MOST_RUNS = 4
"""Jobs that one cap takes until it is known whether it keeps the bounds; then it is left."""
_RUN_ERROR = 0.01
"""Least relative standard error of one run's time and energy."""
_ONE_SIDED = 0.95
"""Probability that a value is not above the upper end of a two-sided 90 % interval."""


@dataclass(frozen=True, slots=True)
class TriedCaps:
    """How jobs of one script answer to the caps that were tried, and what to try next.

    ``next_khz`` is 0 where nothing is worth a trial; ``worst`` is what it may do at the worst.
    ``surprise`` says which trial came out worse than its bound: then nothing more is tried.
    """

    responses: Mapping[int, CapResponse]
    next_khz: int = 0
    worst: CapResponse | None = None
    surprise: str = ""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Logarithms of time and energy of the jobs that ran under one cap, or under none."""

    times: Sequence[float]
    energies: Sequence[float]


def tried_caps(
    written: Sequence[PastJob],
    capped: Sequence[PastJob],
    free_khz: int,
    steps_khz: Sequence[int],
    policy: Policy,
) -> TriedCaps | None:
    """Return what ``capped`` jobs tell against those that ran as ``written``; all are alike.

    ``steps_khz`` are the clocks that the node type has; of the ``policy`` its bounds count, and the
    confidence at which they hold. None where a job as written was not
    metered: then no trial could be judged.
    """
    free = _runs(written)
    # A single run as written says nothing of how much runs scatter.
    if len(written) < 2 or free is None:
        return None
    by_cap = {0: free}
    for khz in sorted({job.freq_khz for job in capped}, reverse=True):
        runs = _runs([job for job in capped if job.freq_khz == khz])
        if runs is not None and khz < free_khz:
            by_cap[khz] = runs
    resolution = max(job.resolution_s / job.parts_s for job in (*written, *capped))
    freedom = sum(len(runs.times) - 1 for runs in by_cap.values())
    # The accounting's clock ticks: a time may be off by half a tick.
    sigma_time = max(_pooled([r.times for r in by_cap.values()], freedom), resolution / 2)
    sigma_energy = _pooled([r.energies for r in by_cap.values()], freedom)
    estimates = _estimates(by_cap, sigma_time, sigma_energy)
    t90 = quantile(freedom, _ONE_SIDED)
    responses = {khz: e.response(t90) for khz, e in estimates.items()}
    surprise = _surprise(capped, free, policy)
    if surprise:
        return TriedCaps(responses, surprise=surprise)
    next_khz, worst = _next(
        estimates, free_khz, steps_khz, policy, quantile(freedom, policy.confidence)
    )
    return TriedCaps(responses, next_khz, worst)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """Logarithms of time and energy against the job as written, with standard errors."""

    time: float
    time_error: float
    energy: float
    energy_error: float
    runs: int

    def response(self, t: float) -> CapResponse:
        return CapResponse(
            math.exp(self.time),
            math.exp(self.time + t * self.time_error),
            math.exp(self.energy),
            math.exp(self.energy + t * self.energy_error),
        )


def _runs(jobs: Sequence[PastJob]) -> _Runs | None:
    """Return the logarithms of jobs that were metered whole, None where there is none."""
    times, energies = [], []
    for job in jobs:
        metered = [part.energy_j for part in job.parts if part.energy_j]
        if len(metered) == len(job.parts) and job.parts_s > 0:
            times.append(math.log(job.parts_s))
            energies.append(math.log(sum(metered)))
    return _Runs(times, energies) if times else None


def _pooled(groups: Sequence[Sequence[float]], freedom: int) -> float:
    """Return the standard deviation of one run within groups that share it."""
    squares = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    return max(math.sqrt(squares / freedom), _RUN_ERROR)


def _estimates(
    by_cap: Mapping[int, _Runs], sigma_time: float, sigma_energy: float
) -> dict[int, _Estimate]:
    """Return what each cap does, the highest first; ``by_cap`` has those without a cap first."""
    means = [(fmean(runs.times), len(runs.times)) for runs in by_cap.values()]
    (free_time, free_weight), *times = _not_falling(means)
    free_energy, free_count = fmean(by_cap[0].energies), len(by_cap[0].energies)
    estimates = {}
    for (khz, runs), (time, weight) in zip(list(by_cap.items())[1:], times, strict=True):
        count = len(runs.times)
        apart = time > free_time  # else one mean of both: the error is that of their difference
        error = math.sqrt(1 / free_weight + 1 / weight if apart else 1 / free_count + 1 / count)
        energy_error = sigma_energy * math.sqrt(1 / free_count + 1 / count)
        energy = fmean(runs.energies) - free_energy
        estimates[khz] = _Estimate(
            time - free_time, sigma_time * error, energy, energy_error, count
        )
    return estimates


def _not_falling(means: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return (mean, weight) of each place after pooling adjacent ones that fall."""
    blocks: list[tuple[float, int, int]] = []
    for mean, weight in means:
        block = mean, weight, 1
        while blocks and blocks[-1][0] > block[0]:
            higher, more, places = blocks.pop()
            total = more + block[1]
            block = (higher * more + block[0] * block[1]) / total, total, places + block[2]
        blocks.append(block)
    return [(mean, weight) for mean, weight, places in blocks for _ in range(places)]


def _surprise(capped: Sequence[PastJob], free: _Runs, policy: Policy) -> str:
    """Return which job under a cap was harmed, "" for none."""
    slowest = fmean(free.times) + math.log1p(policy.max_slowdown + HARM)
    dearest = fmean(free.energies) + math.log1p(HARM)
    for job in capped:
        runs = _runs([job])
        if runs is None:
            continue
        if runs.times[0] > slowest:
            slower = math.expm1(runs.times[0] - fmean(free.times))
            return f"at {job.freq_khz / 1e6:g} GHz a job took {100 * slower:.0f} % longer"
        if runs.energies[0] > dearest:
            dearer = math.expm1(runs.energies[0] - fmean(free.energies))
            return f"at {job.freq_khz / 1e6:g} GHz a job took {100 * dearer:.0f} % more energy"
    return ""


def _next(
    estimates: Mapping[int, _Estimate],
    free_khz: int,
    steps_khz: Sequence[int],
    policy: Policy,
    t: float,
) -> tuple[int, CapResponse | None]:
    """Return the cap to try next, 0 for none, and what it may do at the worst.

    One step below the lowest that was tried while the worst keeps the bound on the slowdown; else
    a cap once more that would save more than any known to keep the bounds, and may well keep them.
    """
    longest = math.log1p(policy.max_slowdown)
    deepest_khz = min(estimates, default=free_khz)
    deepest = estimates.get(deepest_khz, _Estimate(0.0, 0.0, 0.0, 0.0, 0))
    below = max((khz for khz in steps_khz if khz < deepest_khz), default=0)
    if below:
        step = math.log(deepest_khz / below)
        # A step that just meets the bound is taken: the logarithms are rounded.
        if deepest.time + step <= longest + 1e-9:
            return below, _worst(deepest, step)
    enough = math.log1p(-policy.min_saving)
    surely_saved = [
        e.energy
        for e in estimates.values()
        if e.time + t * e.time_error <= longest and e.energy + t * e.energy_error <= enough
    ]
    best = min(surely_saved, default=0.0)
    open_caps = [
        (khz, e)
        for khz, e in estimates.items()
        if e.runs < MOST_RUNS and e.time <= longest and e.energy < min(enough, best)
    ]
    if not open_caps:
        return 0, None
    khz, estimate = min(open_caps, key=lambda cap: cap[1].energy)
    return khz, _worst(estimate, 0.0)


def _worst(estimate: _Estimate, step: float) -> CapResponse:
    """Return what a job may do whose clock is lower by a step (a logarithm) than in an estimate.

    In the mean half of its work waits for the clock, and power falls with the square of it; the
    ends are those of all work and none, and of power that falls with the cube, and not at all.
    """
    time_error, energy_error = 3 * estimate.time_error, 3 * estimate.energy_error
    return CapResponse(
        math.exp(estimate.time + step / 2),
        math.exp(estimate.time + step + time_error),
        math.exp(estimate.energy - step),
        math.exp(estimate.energy + step + energy_error),
    )
