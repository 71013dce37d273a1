"""What a whole job takes under a frequency cap, as the sum of the parts it ran before.

A part whose program has a model answers as that model says. Of everything else, steps of unknown
programs and time outside of steps, only the worst is known: its time goes with the inverse of the
clock, and its energy does not fall. So no tolerance is assumed: a part of 2 % costs at most its
share of what the clock costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import NamedTuple

from advisor.core.configuration import Configuration
from advisor.core.job_history import JobPart, PastJob
from advisor.core.option import Z90, Option, Row
from advisor.core.student import quantile

_ONE_SIDED = 0.95
"""Probability that a value is not above the upper end of a two-sided 90 % interval."""


class CapResponse(NamedTuple):
    """Time and energy under a cap against those without one, each with its 90 % upper end."""

    time: float
    time_hi: float
    energy: float
    energy_hi: float


_NOTHING: Mapping[int, CapResponse] = {}


def at_worst(free_khz: int, cap_khz: int) -> CapResponse:
    """Return the worst that a cap does: all work waits for the clock, and no energy is saved.

    Power never rises where the clock falls, so that energy grows as time does at most.
    """
    slower = free_khz / cap_khz
    return CapResponse(slower, slower, 1.0, slower)


def response_of(row: Row, baseline: Row) -> CapResponse:
    """Return how a model's option answers to its cap, against its own baseline."""
    ratios = []
    for log_ratio, sigmas in (
        (row.log_time - baseline.log_time, (row.time_sigma, baseline.time_sigma)),
        (row.log_energy - baseline.log_energy, (row.energy_sigma, baseline.energy_sigma)),
    ):
        ratios += [math.exp(log_ratio), math.exp(log_ratio + Z90 * math.hypot(*sigmas))]
    return CapResponse(*ratios)


def worst_of(responses: Sequence[CapResponse]) -> CapResponse:
    """Return the worst value of each kind among responses."""
    return CapResponse(*map(max, zip(*responses, strict=True)))


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of a job with what is known of it: ``power_w`` is its nodes' mean power together.

    ``responses`` are its model's by cap in kHz; a cap that is missing counts at the worst.
    ``named`` is the application and the workload whose model it is, "" for none.
    """

    part: JobPart
    power_w: float | None
    responses: Mapping[int, CapResponse]
    named: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class PartShare:
    """A part's share of a job's time and energy; that of an unknown one counts at the worst."""

    response: Mapping[int, CapResponse]
    time: float
    energy: float


def shares_of(job: PastJob, parts: Sequence[KnownPart]) -> list[PartShare]:
    """Return the parts of a job by their shares, the last one for all that is not in them.

    What is not metered is taken to need the most power of any part: its share of the energy, of
    which nothing is saved, is rather too large. No power known at all: all shares of energy are 0.
    """
    most_w = max((p.power_w for p in parts if p.power_w), default=0.0)
    all_s = max(job.time_s, job.parts_s)
    energies_j = [(p.power_w or most_w) * p.part.time_s for p in parts]
    rest_s = all_s - sum(p.part.time_s for p in parts)
    total_j = sum(energies_j) + most_w * rest_s or math.inf
    shares = [
        PartShare(p.responses, p.part.time_s / all_s, energy_j / total_j)
        for p, energy_j in zip(parts, energies_j, strict=True)
    ]
    return [*shares, PartShare({}, rest_s / all_s, most_w * rest_s / total_j)]


def response_under(cap_khz: int, free_khz: int, shares: Sequence[PartShare]) -> CapResponse:
    """Return how a whole job answers to a cap: the sum of its parts, each by its share.

    Upper ends add up, as if all parts came out worse together.
    """
    worst = at_worst(free_khz, cap_khz)
    responses = [(share.response.get(cap_khz, worst), share) for share in shares]
    return CapResponse(
        sum(r.time * s.time for r, s in responses),
        sum(r.time_hi * s.time for r, s in responses),
        sum(r.energy * s.energy for r, s in responses),
        sum(r.energy_hi * s.energy for r, s in responses),
    )


@dataclass(frozen=True, slots=True)
class WholeJob:
    """A whole job's options: as written, and under each cap; none where no energy is known.

    ``trial`` is what a cap may do that no job ran under yet, where one is worth trying.
    ``spread`` is the 90 % half width of the logarithm by which single jobs differ from each other
    in time, and in energy: of a promise, not of a choice, since all options share it.
    """

    written: Option
    capped: tuple[Option, ...]
    spread: tuple[float, float]
    trial: Option | None = None


def whole_job(
    place: Configuration,
    past: Sequence[tuple[PastJob, Sequence[KnownPart]]],
    tried: Mapping[int, CapResponse] = _NOTHING,
    trial: tuple[int, CapResponse] | None = None,
) -> WholeJob | None:
    """Return the options of a job like ``past`` ones; ``place`` is what it runs on without a cap.

    ``tried`` is how jobs of its own answered to caps, which counts before what the models of its
    parts say; ``trial`` is a cap to try, and what it may do.

    Of the past jobs each says how the next one will answer to a cap, and the worst counts. Times
    are those of the steps alone, which is what the accounting of later jobs is held against; only
    the upper ends, which have to fit the time limit, are those of the whole job. None where no cap
    is known and none is to be tried, or no energy is known.
    """
    caps = sorted({cap for _, parts in past for p in parts for cap in p.responses} | set(tried))
    energies_j = [_energy_j(parts) for _, parts in past]
    if not (caps or trial) or not all(energies_j) or not all(job.parts_s > 0 for job, _ in past):
        return None
    time_s, energy_j = median(job.parts_s for job, _ in past), median(energies_j)
    resolution_s = max(job.resolution_s for job, _ in past)
    # The promise is held against the steps, the limit against the whole job: the wider serves both.
    spread_t = max(
        _spread([job.time_s for job, _ in past], resolution_s),
        _spread([job.parts_s for job, _ in past], resolution_s),
    )
    spread_e = _spread(energies_j, 0.0)
    most_s = max(job.time_s for job, _ in past) * math.exp(spread_t)

    def option(khz: int, response: CapResponse, *, confirmed: bool) -> Option:
        low_t = time_s * response.time**2 / response.time_hi  # as far below as the end is above
        low_e = energy_j * response.energy**2 / response.energy_hi
        return Option(
            Configuration(
                place.node_type, place.nodes, place.ranks_per_node, place.threads_per_node, khz
            ),
            time_s * response.time,
            low_t,
            most_s * response.time_hi,
            energy_j * response.energy,
            low_e,
            energy_j * response.energy_hi,
            measured=confirmed and khz == place.freq_khz,
            confirmed=confirmed,
        )

    shares = [shares_of(job, parts) for job, parts in past]
    capped = []
    for cap in caps:
        if cap in tried:
            capped.append(option(cap, tried[cap], confirmed=True))
            continue
        worst = worst_of([response_under(cap, place.freq_khz, job) for job in shares])
        every = all(any(cap in s.response for s in job) for job in shares)
        capped.append(option(cap, worst, confirmed=every))
    uncapped = option(place.freq_khz, CapResponse(1.0, 1.0, 1.0, 1.0), confirmed=True)
    untried = None if trial is None else option(*trial, confirmed=False)
    return WholeJob(uncapped, tuple(capped), (spread_t, spread_e), untried)


def longest_s(jobs: Sequence[PastJob]) -> float:
    """Return the upper end (90 %) of what the next job like these takes."""
    times_s = [job.time_s for job in jobs]
    return max(times_s) * math.exp(_spread(times_s, max(job.resolution_s for job in jobs)))


def _energy_j(parts: Sequence[KnownPart]) -> float:
    """Return what a job's parts used, as the accounting will tell it; 0 where it is not known."""
    most_w = max((p.power_w for p in parts if p.power_w), default=0.0)
    return sum((p.power_w or most_w) * p.part.time_s for p in parts)


def _spread(values: Sequence[float], resolution: float) -> float:
    """Return the 90 % half width of the logarithm of one more value of the same kind."""
    freedom = len(values) - 1
    # The interval is one of a further value, which scatters itself, not of the mean.
    one_more = math.sqrt(1 + 1 / len(values))
    width = quantile(freedom, _ONE_SIDED) * stdev(map(math.log, values)) * one_more
    return math.hypot(width, resolution / min(values))


def share_words(past: Sequence[tuple[PastJob, Sequence[KnownPart]]]) -> str:
    """Return what a promise is made of: ``91 % of its time is lbm, 9 % counted at the worst``."""
    times: dict[str, float] = {}
    for job, parts in past:
        for p in parts:
            if p.responses:
                share = p.part.time_s / max(job.time_s, job.parts_s) / len(past)
                times[p.named[0]] = times.get(p.named[0], 0.0) + share
    percents = {name: round(100 * share) for name, share in times.items()}
    words = [f"{percent} % of its time is {name}" for name, percent in percents.items()]
    rest = max(0, 100 - sum(percents.values()))
    return ", ".join([*words, f"{rest} % counted at the worst"])
