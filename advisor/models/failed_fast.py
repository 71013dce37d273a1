"""Runs that ended long before they could have done their work: they failed, whatever they said.

A program that finds no licence, no memory or no input may end at once and with exit code 0. Taken
for a run, that would be the best option there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.units import format_duration
from advisor.core.words import describe

_NEIGHBOURS = 3
"""Runs nearest to a run that it is compared with."""
_SHORT = 0.2
"""Of the time that perfect scaling leaves: caches and contention never spare so much."""


def failed_fast(runs: Sequence[Observation]) -> list[int]:
    """Return which runs of one workload took less than a fifth of what is possible.

    The time possible is the median of what the three nearest runs allow: theirs, or less by the
    cores and frequency that a run has more than they (perfect scaling). Runs with a rate of their
    own may differ in length and are not judged, nor is one of fewer than four runs.
    """
    if len(runs) <= _NEIGHBOURS or any(r.fom is not None for r in runs):
        return []
    return [i for i, run in enumerate(runs) if run.time_s < _SHORT * _possible(i, runs)]


def without_failed_fast(runs: Sequence[Observation], notes: list[str]) -> Sequence[Observation]:
    """Return the runs that did not fail fast; ``notes`` take a sentence for each other one."""
    failed = failed_fast(runs)
    notes += [too_short(runs[i]) for i in failed]
    return [r for i, r in enumerate(runs) if i not in set(failed)] if failed else runs


def too_short(run: Observation) -> str:
    """Return the sentence that says why a run is left out."""
    return (
        f"a run of {format_duration(run.time_s)} at {describe(run.configuration)} is far shorter "
        "than its neighbours allow: it failed, probably, and is left out"
    )


def _possible(i: int, runs: Sequence[Observation]) -> float:
    own = runs[i].configuration
    others = (r for j, r in enumerate(runs) if j != i)
    nearest = sorted(others, key=lambda r: _apart(own, r.configuration))[:_NEIGHBOURS]
    return median(r.time_s * min(1.0, _power(r.configuration, own)) for r in nearest)


def _power(one: Configuration, other: Configuration) -> float:
    """Return how many times the other's cores and frequency one has."""
    share = one.cores / other.cores
    return share * one.freq_khz / other.freq_khz if one.freq_khz and other.freq_khz else share


def _apart(one: Configuration, other: Configuration) -> float:
    clocks = (one.freq_khz, other.freq_khz) if one.freq_khz and other.freq_khz else (1, 1)
    pairs = ((one.cores, other.cores), (one.ranks_per_node, other.ranks_per_node), clocks)
    return sum(abs(math.log(a / b)) for a, b in pairs)
