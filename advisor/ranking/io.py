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

from advisor.core.option import Z90
from advisor.ranking.streams import Characterisation, IoStream

UNKNOWN = math.log(2)
"""Error of an I/O time for which there is no profile: it is taken to be as long, within a factor
of two."""
SHARED = math.log(1.3)
"""Error of one for which there are profiles: other jobs use the same disks."""
CACHED = 4.0
"""So many times as fast as a profile that knows no page cache, and that served it."""
APART = 2.0
"""The file system must be so many times as slow as the page cache to tell which of them served."""
_WIDE = 2.0
"""If the ends of an estimate are so many times apart, it is marked as not known."""
_MOST = 0.99
"""The largest part of a phase's time that counts as I/O: some must be left to rank."""


@dataclass(frozen=True, slots=True)
class IoProfile:
    """What one operation takes on a file system of a node type: microseconds of a block.

    ``direct``: past the page cache. ``spread`` is half of the mean's 95 % interval over it.
    ``cached_us`` is a block's microseconds where the page cache serves it, None if not measured.
    """

    node_type: str
    file_system: str
    operation: str
    random: bool
    block_b: int
    time_per_op_us: float
    direct: bool = True
    spread: float = 0.0
    cached_us: float | None = None


IoKey = tuple[str, str, bool]


class IoTimes:
    """One node type's profiles of file systems, interpolated for any size of a block."""

    def __init__(self, profiles: Iterable[IoProfile]) -> None:
        self._points: defaultdict[IoKey, list[tuple[int, float]]] = defaultdict(list)
        self._cached: defaultdict[IoKey, list[tuple[int, float]]] = defaultdict(list)
        self._spreads: defaultdict[IoKey, dict[int, float]] = defaultdict(dict)
        for p in profiles:
            key = p.file_system, p.operation, p.random
            self._points[key].append((p.block_b, p.time_per_op_us))
            self._spreads[key][p.block_b] = p.spread
            if p.cached_us is not None:
                self._cached[key].append((p.block_b, min(p.cached_us, p.time_per_op_us)))
        for points in (*self._points.values(), *self._cached.values()):
            points.sort()

    def block_us(self, stream: IoStream) -> float | None:
        """Return microseconds of an operation of this size, None without profiles.

        Between two sizes by their logarithms; beyond the largest in proportion to the size, below
        the smallest as long as that.
        """
        return _interpolated_us(self._points.get(_key(stream)), stream.block_b)

    def cached_us(self, stream: IoStream) -> float | None:
        """Return the same where the page cache serves it, None where that was not measured."""
        return _interpolated_us(self._cached.get(_key(stream)), stream.block_b)

    def spread(self, stream: IoStream) -> float:
        """Return how sure the profile nearest in size is, 0 without profiles."""
        spreads = self._spreads.get(_key(stream), {})
        nearest = min(spreads, key=lambda b: abs(math.log(b / max(1.0, stream.block_b))), default=0)
        return spreads.get(nearest, 0.0)


def _key(stream: IoStream) -> IoKey:
    return stream.file_system, stream.operation, stream.random


def _interpolated_us(points: Sequence[tuple[int, float]] | None, block_b: float) -> float | None:
    """Return the microseconds of a block, between and beyond sizes."""
    if not points:
        return None
    x = max(1.0, block_b)
    if x <= points[0][0]:
        return points[0][1]
    for (a, low_us), (b, high_us) in pairwise(points):
        if x <= b:
            part = math.log(x / a) / math.log(b / a)
            return math.exp(math.log(low_us) * (1 - part) + math.log(high_us) * part)
    return points[-1][1] * x / points[-1][0]


@dataclass(frozen=True, slots=True)
class IoEstimate:
    """I/O on one node type: seconds in phases and outside of them.

    ``low_s`` and ``high_s`` are the ends of the 90 % interval of both together; ``notes`` say what
    is not known of it.
    """

    phases_s: float
    rest_s: float
    low_s: float
    high_s: float
    notes: tuple[str, ...] = ()

    def error_of(self, time_s: float) -> float:
        """Return the relative error (log) that this makes of a run of ``time_s`` with it."""
        rest_s = time_s - self.phases_s - self.rest_s
        up, down = (
            math.log((rest_s + self.high_s) / time_s),
            math.log(time_s / (rest_s + self.low_s)),
        )
        return max(0.0, up, down) / Z90


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

    Where profiles know no page cache: what was ``CACHED`` times as fast as the file system on the
    base node came from memory, and goes with ``memory_ratio``.
    """
    notes: dict[str, None] = {}

    def seconds_of(streams: Sequence[IoStream]) -> list[float]:
        stream_seconds = [
            _stream_on(s, base, other, node_type, memory_ratio, notes) for s in streams
        ]
        return [math.fsum(column) for column in zip(*stream_seconds, strict=True)] or [0.0] * 3

    parts = [seconds_of(p.io) for p in app.phases]
    for n, phase in enumerate(app.phases):
        known_s = math.fsum(s.time_s for s in phase.io)
        if known_s:
            share = io_in(phase.time_s, phase.io) / known_s
            parts[n] = [share * value for value in parts[n]]
    rest = seconds_of(app.io)
    _, low_s, high_s = (math.fsum(column) for column in zip(rest, *parts, strict=True))
    return IoEstimate(math.fsum(p[0] for p in parts), rest[0], low_s, high_s, tuple(notes))


def _stream_on(
    s: IoStream,
    base: IoTimes,
    other: IoTimes,
    node_type: str,
    memory_ratio: float,
    notes: dict[str, None],
) -> tuple[float, float, float]:
    """Return a stream's seconds on the other node type, and the ends of their 90 % interval."""
    if other is base:
        return s.time_s, s.time_s, s.time_s
    base_us, other_us = base.block_us(s), other.block_us(s)
    cached = base.cached_us(s), other.cached_us(s)
    error = math.hypot(SHARED, base.spread(s), other.spread(s))
    each_us = s.time_s * 1e6 / max(1, s.calls)
    ends: tuple[float, float] | None = None
    if base_us is None or other_us is None:
        ends, error = (1.0, 1.0), UNKNOWN
        notes[
            f"its I/O on {s.file_system} is taken to be as fast on {node_type}: "
            "advisor lab bench --io measures it"
        ] = None
    elif cached[0] is not None and cached[1] is not None:
        ends = _ends(each_us, (cached[0], base_us), (cached[1], other_us))
    elif s.calls and each_us * CACHED < base_us:
        ends, error = (memory_ratio, memory_ratio), SHARED
    else:
        ends = other_us / base_us, other_us / base_us
    low, high = min(ends) * s.time_s, max(ends) * s.time_s
    if high > _WIDE * low:
        notes[
            f"whether {s.operation}s of {s.file_system} wait for it or for the page cache cannot "
            f"be seen from here: on {node_type} they take {low:.3g} to {high:.3g} s"
        ] = None
    wider = math.exp(Z90 * error)
    return math.sqrt(low * high), low / wider, high * wider


def _ends(
    each_us: float, base_us: tuple[float, float], other_us: tuple[float, float]
) -> tuple[float, float]:
    """Return the two ends of the ratio of a call's time there to here.

    ``base_us`` and ``other_us`` are microseconds from the page cache and past it. A call that takes
    something in between is either a mixture of both, or as far between them there (by logarithms).
    Where the two are as good as one here, it may be either there.
    """
    (cached, past), (cached_there, past_there) = base_us, other_us
    if past < APART * cached:
        return cached_there / cached, past_there / past
    if each_us <= cached:
        return (cached_there / cached,) * 2
    if each_us >= past:  # it waits for more than the profile does, like a flush after each write
        share = math.log(each_us / past) / Z90
        return past_there / past * math.exp(-share), past_there / past * math.exp(share)
    part = (each_us - cached) / (past - cached)
    depth = math.log(each_us / cached) / math.log(past / cached)
    mixed = cached_there + part * (past_there - cached_there)
    between = cached_there * (past_there / cached_there) ** depth
    return mixed / each_us, between / each_us


def by_node_type(profiles: Iterable[IoProfile]) -> Mapping[str, IoTimes]:
    """Return the profiles of each node type; one that has none knows no file system."""
    by_type: defaultdict[str, list[IoProfile]] = defaultdict(list)
    for p in profiles:
        by_type[p.node_type].append(p)
    return defaultdict(
        lambda: IoTimes(()),
        {name: IoTimes(type_profiles) for name, type_profiles in by_type.items()},
    )
