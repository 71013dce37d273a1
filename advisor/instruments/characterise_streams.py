"""From access sites to streams: which zone, stride, element and sharing a phase has.

Corredor (2011), section 3.1.2: a stream is what one load or store instruction walks over; its
local stride is the difference of one address to the next, its zone lies between the lowest and
the highest address, and it is shared (C) when the zone is the same for all threads, else private
(P). Sites that walk over the same zone in the same way are one stream here. Streams whose zone
fits into the first-level cache, or that hardly leave the line they are in, are dropped.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Literal

from advisor.instruments.characterise_files import LINE, AccessSite, BarrierInterval, TracedProcess

Dropped = Literal["", "rare", "cached"]

RANDOM_BELOW = 1 / 3
"""A site whose commonest stride is rarer than this has none: it is random."""
SHARED_ABOVE = 0.5
"""A zone is shared when so much of what is touched is touched by several threads."""
SAME_ZONE = 0.8
"""Zones that overlap by more than this share of the smaller one are the same."""
RARE = 0.05
"""Sites with a smaller share of the busiest site's accesses, and of its moves, are dropped."""
LEFT_OUT = 0.1
"""Parts of a zone that are left out count from this share on, and from four standard errors of the
sample of its lines."""
STAYS = 0.01
"""Sites with a smaller share of the busiest site's moves to another line stay where they are."""


@dataclass(frozen=True, slots=True)
class FoundStream:
    """A stream found in a trace.

    ``size_kb`` is the zone of one thread if private, of all if shared; ``stride_b`` is 0 for
    random access; ``dominance`` is the share of the commonest stride among all that are not
    zero; ``share`` is the part of the phase's accesses; ``traffic_b`` are the lines its busiest
    site went to, in bytes, ``steps`` how often that site runs in an iteration; ``sites`` are
    addresses in the trace; ``dropped`` says why it does not count, "" when it does.
    """

    size_kb: float
    stride_b: int
    dtype_b: int
    access: Literal["C", "P"]
    dominance: float
    share: float
    traffic_b: int
    writes: bool
    reads: bool
    sites: tuple[int, ...]
    dropped: Dropped = ""
    steps: float = 1.0

    @property
    def random(self) -> bool:
        """Whether no stride is common."""
        return self.stride_b == 0


@dataclass(frozen=True, slots=True)
class FoundPhase:
    """What a trace says of one phase.

    ``iterations`` are those of one thread over all calls: how often the busiest site of a stream
    that counts was run, ``iterations_mean`` in the mean of the threads and ``iterations_most`` in
    the busiest one. ``accesses`` are those of all threads; ``bytes_per_iter`` counts the lines the
    streams go to, so it is the most that can come from beyond the first-level cache.
    """

    streams: tuple[FoundStream, ...]
    dropped: tuple[FoundStream, ...]
    iterations_mean: float
    iterations_most: float
    accesses: int
    threads: int
    bytes_per_iter: float
    flops_per_iter: float | None


class _Instruction:
    """One site over all threads that ran it."""

    def __init__(self, pc: int, sites: Sequence[AccessSite]) -> None:
        self.pc = pc
        self.sites = sites
        self.count = sum(s.count for s in self.sites)
        self.moves = sum(s.moves for s in self.sites)
        self.size = max(s.size for s in self.sites)
        self.element = min(max(s.element for s in self.sites), self.size)
        strides: Counter[int] = Counter()
        for site in self.sites:
            for stride, hits in site.strides.items():
                strides[abs(stride)] += hits
        # To stay where it is, is no step.
        zero = strides.pop(0, 0)
        stride, hits = max(strides.items(), key=lambda item: item[1], default=(0, 0))
        steps = self.count - len(self.sites) - zero
        self.dominance = hits / steps if steps > 0 else 0.0
        self.stride = 0 if self.dominance < RANDOM_BELOW else stride
        chosen = _common_interval(self.sites)
        self.zones = {
            s.thread: s.interval for s in self.sites if s.interval and s.interval.number == chosen
        }
        self.shared = self._is_shared()

    def _is_shared(self) -> bool:
        zones = list(self.zones.values())
        if len(zones) < 2:
            return False
        if self.stride == 0:  # few of many places need not meet: compare where they lie
            alike = [_overlap(a, b) for a, b in pairwise(zones)]
            return fmean(alike) > SAME_ZONE
        limit = min(zone.threshold for zone in zones)
        touched = Counter(line for zone in zones for line in zone.lines if zone_hash(line) < limit)
        together = sum(1 for threads in touched.values() if threads > 1)
        return together > SHARED_ABOVE * len(touched)

    def size_kb(self) -> float:
        """Return the zone in KB: of all threads together if shared, else their mean."""
        spans = [s.span for s in self.sites]
        if not self.zones:
            return max(spans) / 1024
        if self.shared:
            zones = self.zones.values()
            combined_b = max(z.hi for z in zones) - min(z.lo for z in zones)
            largest = max(z.size for z in zones)
            return max(spans) * max(1.0, combined_b / largest) * self._density() / 1024
        return fmean(spans) * self._density() / 1024

    def _density(self) -> float:
        """How much of the span is really walked over: less than 1 where parts are left out."""
        if self.stride == 0:
            return 1.0
        zones = self.zones.values()
        share = sum(z.footprint for z in zones) / sum(z.size for z in zones)
        share /= min(1.0, LINE / self.stride)
        error = max(LEFT_OUT, 4 / math.sqrt(max(1, sum(len(z.lines) for z in zones))))
        return 1.0 if share > 1 - error else share

    def joins(self, other: _Instruction) -> bool:
        """Whether two sites are one stream."""
        alike = (self.stride, self.element, self.shared) == (
            other.stride,
            other.element,
            other.shared,
        )
        both = [(self.zones[t], other.zones[t]) for t in self.zones if t in other.zones]
        return alike and bool(both) and fmean(_overlap(a, b) for a, b in both) > SAME_ZONE


def zone_hash(line: int) -> int:
    """Return the hash that ``sites.h`` samples lines with."""
    mask = 2**64 - 1
    line ^= line >> 31
    line = line * 0x7FB5D329728EA185 & mask
    line ^= line >> 27
    line = line * 0x81DADEF4BC2DD44D & mask
    return line ^ line >> 33


def _common_interval(sites: Iterable[AccessSite]) -> int:
    """Return the number of the interval in which most was accessed: threads are compared in it."""
    access_counts: Counter[int] = Counter()
    for site in sites:
        if site.interval:
            access_counts[site.interval.number] += site.interval.count
    return max(access_counts.items(), key=lambda item: item[1], default=(0, 0))[0]


def _overlap(a: BarrierInterval, b: BarrierInterval) -> float:
    common = min(a.hi, b.hi) - max(a.lo, b.lo)
    return max(0, common) / max(1, min(a.hi - a.lo, b.hi - b.lo))


def find_phase(process: TracedProcess, region: int, *, l1_bytes: int) -> FoundPhase:
    """Return the streams of one region of a traced process, the busiest first.

    ``region`` counts as in ``process.regions``: 0 is all that lies outside of them.
    """
    by_pc: defaultdict[tuple[int, bool], list[AccessSite]] = defaultdict(list)
    for site in process.sites:
        if site.region == region:
            by_pc[site.pc, site.write].append(site)
    instructions = [_Instruction(pc, sites) for (pc, _), sites in by_pc.items()]
    accesses = sum(i.count for i in instructions)
    most_count = max((i.count for i in instructions), default=0)
    most_moves = max((i.moves for i in instructions), default=0)
    groups: list[list[_Instruction]] = []
    for instruction in sorted(instructions, key=lambda i: (-i.moves, -i.count, i.pc)):
        home = next((g for g in groups if g[0].joins(instruction)), None)
        if home is None:
            groups.append([instruction])
        else:
            home.append(instruction)
    streams = []
    for group in groups:
        stream = _stream(group, accesses)
        if not any(_counts(i, most_count, most_moves) for i in group):
            stream = replace(stream, dropped="rare")
        elif stream.size_kb * 1024 <= l1_bytes:
            stream = replace(stream, dropped="cached")
        streams.append((group, stream))
    counted = [(group, stream) for group, stream in streams if not stream.dropped]
    busiest, wide = max(
        ((i, _elements(group)) for group, _ in counted or streams for i in group),
        key=lambda pair: pair[0].count * pair[1],
        default=(None, 1),
    )
    per_thread = [s.count * wide for s in busiest.sites] if busiest else [0]
    iterations = sum(per_thread)
    traced = process.regions[region]
    return FoundPhase(
        tuple(replace(stream, steps=_steps(group, iterations)) for group, stream in counted),
        tuple(stream for _, stream in streams if stream.dropped),
        iterations / len(per_thread),
        max(per_thread),
        accesses,
        len(per_thread),
        sum(s.traffic_b for _, s in counted) / iterations if iterations else 0.0,
        traced.flops / iterations if process.counts_flops and iterations else None,
    )


def _elements(group: Sequence[_Instruction]) -> int:
    """Return how many neighbouring elements one turn of a SIMD loop takes, 1 in scalar code.

    Its accesses, several when it is unrolled as well, lie one beside the other and leave no gap.
    """
    first = max(group, key=lambda i: i.count)
    if any(i.size == i.element for i in group):
        return 1
    offsets = {
        min(z.lo for z in i.zones.values()) % max(1, i.stride): i.size for i in group if i.zones
    }
    return first.stride // first.element if 0 < first.stride <= sum(offsets.values()) else 1


def _steps(group: Sequence[_Instruction], iterations: int) -> float:
    """Return how often an iteration steps along a stream: how often its busiest site ran."""
    most = max(i.count for i in group) * _elements(group)
    return most / iterations if iterations else 1.0


def _counts(instruction: _Instruction, most_count: int, most_moves: int) -> bool:
    if instruction.moves >= RARE * most_moves:
        return True
    return instruction.count >= RARE * most_count and instruction.moves >= STAYS * most_moves


def _stream(group: Sequence[_Instruction], accesses: int) -> FoundStream:
    """Merge sites that walk over the same zone; the zone is the union of theirs."""
    first = max(group, key=lambda i: i.count)
    size_kb = first.size_kb()
    for thread, zone in first.zones.items():
        zones = [i.zones[thread] for i in group if thread in i.zones]
        widest = max(z.hi for z in zones) - min(z.lo for z in zones)
        size_kb += max(0, widest - zone.size) / len(first.zones) / 1024
    count = sum(i.count for i in group)
    return FoundStream(
        size_kb=size_kb,
        stride_b=first.stride if _elements(group) == 1 else first.element,
        dtype_b=first.element,
        access="C" if first.shared else "P",
        dominance=sum(i.dominance * i.count for i in group) / max(1, count),
        share=count / max(1, accesses),
        traffic_b=max(i.moves for i in group) * LINE,
        writes=any(s.write for i in group for s in i.sites),
        reads=any(not s.write for i in group for s in i.sites),
        sites=tuple(sorted(i.pc for i in group)),
    )
