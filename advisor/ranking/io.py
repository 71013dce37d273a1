"""What an application's input and output takes on another node type, by file system.

A phase's reads and writes of files are streams of their own beside those of memory: their time is
taken out of the phase before it is ranked, goes with the profile of the same file system there, and
is added again. Standard library only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from advisor.ranking.streams import Characterisation, IoStream

UNKNOWN = math.log(2)
"""Error of an I/O time for which there is no profile: it is taken to be as long, within a factor
of two."""
SHARED = math.log(1.3)
"""Error of one for which there are profiles: other jobs use the same disks."""
CACHED = 4.0
"""So many times as fast as the profile, and the page cache served it, not the file system."""
_MOST = 0.99
"""The largest part of a phase's time that counts as I/O: some must be left to rank."""


@dataclass(frozen=True, slots=True)
class IoProfile:
    """What one operation takes on a file system of a node type: microseconds of a block.

    ``direct``: past the page cache. ``spread`` is half of the mean's 95 % interval over it.
    """

    node_type: str
    file_system: str
    operation: str
    random: bool
    block_b: int
    time_per_op_us: float
    direct: bool = True
    spread: float = 0.0


IoKey = tuple[str, str, bool]


class IoTimes:
    """One node type's profiles of file systems, interpolated for any size of a block."""

    def __init__(self, profiles: Iterable[IoProfile]) -> None:
        self._points: defaultdict[IoKey, list[tuple[int, float]]] = defaultdict(list)
        self._spreads: defaultdict[IoKey, dict[int, float]] = defaultdict(dict)
        for p in profiles:
            key = p.file_system, p.operation, p.random
            self._points[key].append((p.block_b, p.time_per_op_us))
            self._spreads[key][p.block_b] = p.spread
        for points in self._points.values():
            points.sort()

    def block_us(self, stream: IoStream) -> float | None:
        """Return microseconds of an operation of this size, None without profiles.

        Between two sizes by their logarithms; beyond the largest in proportion to the size, below
        the smallest as long as that.
        """
        points = self._points.get((stream.file_system, stream.operation, stream.random))
        if not points:
            return None
        x = max(1.0, stream.block_b)
        if x <= points[0][0]:
            return points[0][1]
        for (a, left), (b, right) in pairwise(points):
            if x <= b:
                part = math.log(x / a) / math.log(b / a)
                return math.exp(math.log(left) * (1 - part) + math.log(right) * part)
        return points[-1][1] * x / points[-1][0]

    def spread(self, stream: IoStream) -> float:
        """Return how sure the profile nearest in size is, 0 without profiles."""
        known = self._spreads.get((stream.file_system, stream.operation, stream.random), {})
        nearest = min(known, key=lambda b: abs(math.log(b / max(1.0, stream.block_b))), default=0)
        return known.get(nearest, 0.0)


@dataclass(frozen=True, slots=True)
class IoEstimate:
    """I/O on one node type: seconds in phases and outside of them, ``off_s`` about their sum.

    ``notes`` say what is not known of it.
    """

    phases_s: float
    rest_s: float
    off_s: float
    notes: tuple[str, ...] = ()


def without_io(app: Characterisation) -> Characterisation:
    """Return an application less its I/O: each phase's time, and the run's, so much shorter."""
    if not app.io and not any(p.io for p in app.phases):
        return app
    phases = []
    gone_s = math.fsum(s.time_s for s in app.io)
    for phase in app.phases:
        io_s = io_in(phase.time_s, phase.io)
        gone_s += io_s
        share = (phase.time_s - io_s) / phase.time_s if phase.time_s else 1.0
        phases.append(
            replace(
                phase,
                time_s=phase.time_s * share,
                time_per_iter_us=phase.time_per_iter_us * share,
                io=(),
            )
        )
    least = math.fsum(p.time_s for p in phases)
    return replace(app, phases=tuple(phases), time_s=max(least, app.time_s - gone_s), io=())


def io_in(time_s: float, streams: Sequence[IoStream]) -> float:
    """Return seconds of I/O in a phase of so many."""
    return min(_MOST * time_s, math.fsum(s.time_s for s in streams))


def io_on(
    app: Characterisation, base: IoTimes, other: IoTimes, node_type: str, memory_ratio: float
) -> IoEstimate:
    """Estimate an application's I/O on another node type.

    What was ``CACHED`` times as fast as the file system on the base node came from memory, and goes
    with ``memory_ratio``.
    """
    notes: dict[str, None] = {}
    parts = [_streams_on(p.io, base, other, node_type, memory_ratio, notes) for p in app.phases]
    for n, phase in enumerate(app.phases):
        known_s = math.fsum(s.time_s for s in phase.io)
        if known_s:
            share = io_in(phase.time_s, phase.io) / known_s
            parts[n] = parts[n][0] * share, parts[n][1] * share
    rest_s, rest_off = _streams_on(app.io, base, other, node_type, memory_ratio, notes)
    phases_s = math.fsum(s for s, _ in parts)
    off_s = math.fsum((*(off for _, off in parts), rest_off))
    return IoEstimate(phases_s, rest_s, off_s, tuple(notes))


def _streams_on(
    streams: Sequence[IoStream],
    base: IoTimes,
    other: IoTimes,
    node_type: str,
    memory_ratio: float,
    notes: dict[str, None],
) -> tuple[float, float]:
    """Return seconds of streams on the other node type, and what they may be off: one disk."""
    total = off = 0.0
    for s in streams:
        here, there = base.block_us(s), other.block_us(s)
        if here is not None and s.calls and s.time_s * 1e6 / s.calls * CACHED < here:
            ratio, error = memory_ratio, SHARED
        elif here is None or there is None:
            ratio, error = 1.0, UNKNOWN
            notes[
                f"its I/O on {s.file_system} is taken to be as fast on {node_type}: "
                "advisor bench --io measures it"
            ] = None
        else:
            ratio = there / here
            error = math.hypot(SHARED, base.spread(s), other.spread(s))
        total += s.time_s * ratio
        off += s.time_s * ratio * (0.0 if other is base else error)
    return total, off


def by_node_type(profiles: Iterable[IoProfile]) -> Mapping[str, IoTimes]:
    """Return the profiles of each node type; one that has none knows no file system."""
    each: defaultdict[str, list[IoProfile]] = defaultdict(list)
    for p in profiles:
        each[p.node_type].append(p)
    return defaultdict(lambda: IoTimes(()), {name: IoTimes(own) for name, own in each.items()})
