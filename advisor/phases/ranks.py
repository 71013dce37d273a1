"""Whether the ranks of a program iterate together, so that the lowest one's events stand for all.

Ranks that wait for each other in each iteration take the same time for one. A program whose ranks
do not (a master and its workers, coupled codes) is not known by one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.phases.ring import EventRings
from advisor.phases.sequence import find_iterations

_ALIKE = 0.10
"""Relative difference of two ranks' seconds an iteration, at most."""

_MOST = 16
"""Ranks that are compared with the lowest, evenly spread over the node's."""

_Events = Sequence[tuple[float, str]]


def ranks_here(rings: EventRings) -> list[int]:
    """Return the ranks that were watched on this node, ascending."""
    return sorted({p.rank for p in rings.processes if p.rank is not None})


def ranks_apart(folder: Path) -> str:
    """Say which rank of a folder of rings does not iterate with the lowest; "" where all do.

    The last 4096 events of each are compared, so that it tells most once a run has ended. With a
    lowest rank without iterations nothing is compared.
    """
    rings = EventRings(folder)
    rings.look()
    lowest, *higher_ranks = ranks_here(rings) or [0]
    lowest_events = _last_events(rings, lowest)
    for rank in higher_ranks[:: -(-len(higher_ranks) // _MOST)] if higher_ranks else []:
        rank_events = _last_events(rings, rank)
        since = (
            max(lowest_events[0][0], rank_events[0][0]) if lowest_events and rank_events else 0.0
        )
        lowest_period, rank_period = _period(lowest_events, since), _period(rank_events, since)
        if lowest_period is None:
            return ""
        if rank_period is None:
            return f"rank {rank} does not iterate as rank {lowest} does"
        if abs(rank_period / lowest_period - 1) > _ALIKE:
            took = f"rank {rank} takes {rank_period:.3g} s for an iteration"
            return f"{took}, rank {lowest} {lowest_period:.3g} s"
    return ""


def _last_events(rings: EventRings, rank: int) -> _Events:
    """Return what is left of the events of a rank's busiest process."""
    event_lists = [list(p.read()) for p in rings.processes if p.rank == rank]
    return max(event_lists, key=len, default=[])


def _period(events: _Events, since: float) -> float | None:
    """Return the median seconds of an iteration in the longest phase from a time on."""
    both = [e for e in events if e[0] >= since]
    times = [t for t, _ in both]
    phases = find_iterations(times, [s for _, s in both])
    longest = max(phases, key=lambda p: p.end_s - p.begin_s, default=None)
    if longest is None:
        return None
    begun = longest.bounds[longest.bounds < len(times)]
    return float(np.median(np.diff(np.array(times)[begun])))
