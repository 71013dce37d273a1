"""The microbenchmarks: families by their streams and operation, and which of them make a profile.

Corredor 2011, section 3.4 and table 3.9. A name says what an iteration does: ``mbw``, the number
of streams, the operation (nothing: add, ``h``: multiply and add, ``l``: load alone, ``w``: write,
``r``: the last stream at random, ``U``: a whole record of the stride's length), shared (``c``) or
private (``p``) zone of the last stream, and ``X`` for strides beyond a page. ``mbwXA2`` walks as
a matrix product: columns of the first stream, a row of the second again for each. ``mbw2pc`` adds
elements of 4 bytes. ``triad`` and ``fma`` give the roofline; ``chain``, ``root`` and ``fma`` are
arithmetic without memory. Behind ``c`` and ``p`` a letter may name the type of elements: ``f`` of
4 bytes, ``i``, ``s``, ``b`` integers of 4, 2 and 1 (no letter: 8 bytes, floating point).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from advisor.ranking.streams import AccessPattern, Stream, effective

Size = Literal["quick", "full"]

KB = 1024
"""Bytes."""
PAGE = 4096
"""Bytes of a page of memory (x86; the smallest on Arm)."""
FLOPS = {"fma": 2, "chain": 2, "root": 3, "triad": 2}
"""Floating-point operations of an iteration."""

_FULL_KB = tuple(16 * 2**k for k in range(15))
_SOME_KB = _FULL_KB[::2]
_QUICK_KB = (16, 256, 1024, 4096, 16384, 65536, 262144)
_FEW_KB = (1024, 65536)
"""Zones (KB) of the full suite and its larger families, the quick one and its larger families."""
_PAGES, _FAR = 65 * 64, 501 * 64
"""Strides of an odd number of lines: those of powers of two would all fall into one cache set."""
_LARGEST_KB = 4 * 1024 * 1024
"""Largest zone that is measured on demand (KB)."""


@dataclass(frozen=True, slots=True)
class Family:
    """What an iteration does: ``operation`` of the C program, and how its zones are reached.

    ``access`` are those of its streams, ``dtype_b`` the bytes of an element, an ``integer`` or not.
    """

    operation: str
    access: tuple[AccessPattern, ...]
    dtype_b: int = 8
    integer: bool = False
    random: bool = False
    writes: bool = False


ENDS: tuple[tuple[str, AccessPattern], ...] = (("c", "C"), ("p", "P"))
"""How names end in where the last stream lies."""
FAMILIES: dict[str, Family] = {
    "mbw1c": Family("add", ("C",)),
    "mbw1p": Family("add", ("P",)),
    **{
        f"mbw1{end}{letter}": Family("add", (access,), size_b, integer=True)
        for letter, size_b in (("i", 4), ("s", 2), ("b", 1))
        for end, access in ENDS
    },
    "mbw1hc": Family("muladd", ("C",)),
    "mbw1hp": Family("muladd", ("P",)),
    "mbw1lc": Family("load", ("C",)),
    "mbw1lp": Family("load", ("P",)),
    "mbw1lcf": Family("load", ("C",), 4),
    "mbw1lpf": Family("load", ("P",), 4),
    "mbw1Uc": Family("record", ("C",)),
    "mbw1Up": Family("record", ("P",)),
    "mbw1rc": Family("random", ("C",), random=True),
    "mbw1rp": Family("random", ("P",), random=True),
    "mbw1wp": Family("write", ("P",), writes=True),
    "mbw2c": Family("add2", ("C", "C")),
    "mbw2p": Family("add2", ("C", "P")),
    "mbw2hc": Family("muladd2", ("C", "C")),
    "mbw2hp": Family("muladd2", ("C", "P")),
    "mbw2pc": Family("add2", ("C", "P"), 4),
    "mbw2r": Family("random2", ("C", "P"), random=True),
    "mbw2wp": Family("copy2", ("P", "P"), writes=True),
    "mbwXA2hc": Family("product2", ("C", "C")),
    "mbwXA2hp": Family("product2", ("C", "P")),
    "triad": Family("triad", ("P", "P", "P"), writes=True),
    "fma": Family("fma", ()),
    "chain": Family("chain", ()),
    "root": Family("root", ()),
}


@dataclass(frozen=True, slots=True)
class Microbenchmark:
    """One member of a family, or a user's own kernel: its streams (KB, bytes) and threads."""

    name: str
    threads: int
    streams: tuple[Stream, ...] = ()
    own: bool = False

    @property
    def family(self) -> Family:
        """Return its family; a name may end in X."""
        return FAMILIES[self.name] if self.name in FAMILIES else FAMILIES[self.name.rstrip("X")]

    @property
    def memory_b(self) -> float:
        """Bytes of memory it takes."""
        return sum(s.size_kb * KB * (self.threads if s.access == "P" else 1) for s in self.streams)

    def request(self) -> str:
        """Return its zones as the C program takes them: ``OPERATION DTYPE`` and the zones."""
        if self.own:
            operation, dtype_b, kind = "own", self.streams[0].dtype_b, ""
        else:
            operation, dtype_b = self.family.operation, self.family.dtype_b
            kind = "i" if self.family.integer else ""
        zones = (
            f"{s.access.lower()}:{round(s.size_kb * KB / dtype_b) * dtype_b}:{s.stride_b}"
            for s in self.streams
        )
        return " ".join((f"{operation} {kind}{dtype_b}", *zones))


def member(name: str, threads: int, *zones: tuple[float, int]) -> Microbenchmark:
    """Return a member of a family with these zones (KB, stride in bytes)."""
    family = FAMILIES[name]
    streams = tuple(
        Stream(size, stride, family.dtype_b, access, family.writes and n == 0)
        for n, ((size, stride), access) in enumerate(zip(zones, family.access, strict=True))
    )
    far = len(zones) == 1 and zones[0][1] > PAGE and name != "mbw1Uc" and name != "mbw1Up"
    return Microbenchmark(f"{name}X" if far else name, threads, streams)


def plan(size: Size, threads: int, memory_b: float) -> list[Microbenchmark]:
    """Return the microbenchmarks of a quick or a full profile with ``threads`` threads.

    Those that would take more than a quarter of ``memory_b`` are left out. Those
    of one thread stand for what a program does outside of its parallel regions.
    """
    chosen = _full(threads) if size == "full" else _quick(threads)
    alone = (
        member(name, 1, *zones)
        for name, zones in _single_streams(_SOME_KB if size == "full" else _QUICK_KB[::2])
    )
    everything = [*chosen, *(alone if threads > 1 else ())]
    return [m for m in dict.fromkeys(everything) if m.memory_b <= memory_b / 4]


def _single_streams(sizes: tuple[int, ...]) -> Iterator[tuple[str, tuple[tuple[float, int], ...]]]:
    yield from ((name, ()) for name in ("fma", "chain", "root"))
    for kb in sizes:
        yield "mbw1lc", ((kb, 8),)
        yield "mbw1rc", ((kb, 0),)


def _quick(threads: int) -> Iterator[Microbenchmark]:
    yield from (member(name, threads) for name in ("fma", "chain", "root"))
    for kb in _QUICK_KB:
        for name in ("mbw1lc", "mbw1lp"):
            for stride in (8, 64, _PAGES):
                if stride * 8 <= kb * KB:
                    yield member(name, threads, (kb, stride))
        for name in ("mbw1c", "mbw1p", "mbw1wp"):
            yield member(name, threads, (kb, 8))
        for name in ("mbw1rc", "mbw1rp"):
            yield member(name, threads, (kb, 0))
    for kb in _FEW_KB:
        for name in ("mbw1hc", "mbw1hp", "mbw2c", "mbw2p", "mbw2hc", "mbw2hp", "mbw2wp"):
            yield member(name, threads, *((kb, 8) for _ in FAMILIES[name].access))
        yield member("mbw1c", threads, (kb, _FAR))
        yield member("mbw1Up", threads, (kb, 600))
        yield member("mbw2r", threads, (kb, 8), (kb, 0))
        yield member("mbwXA2hc", threads, (kb, 8000), (kb / 4, 8))
        yield member("triad", threads, (kb, 8), (kb, 8), (kb, 8))


def _full(threads: int) -> Iterator[Microbenchmark]:
    yield from _quick(threads)
    for kb in _FULL_KB:
        for name in ("mbw1lc", "mbw1lp"):
            for stride in (8, 16, 64, 192, 1088, _PAGES, _FAR):
                if stride * 8 <= kb * KB:
                    yield member(name, threads, (kb, stride))
        for name in ("mbw1c", "mbw1p"):
            for stride in (8, 64, 1088, _FAR):
                if stride * 8 <= kb * KB:
                    yield member(name, threads, (kb, stride))
        for name in ("mbw1lcf", "mbw1lpf"):
            yield member(name, threads, (kb, 4))
        for name in ("mbw1hc", "mbw1hp", "mbw1wp"):
            for stride in (8, 64):
                yield member(name, threads, (kb, stride))
        for name in ("mbw1rc", "mbw1rp"):
            yield member(name, threads, (kb, 0))
    for kb in _SOME_KB:
        for name in ("mbw2c", "mbw2p", "mbw2hc", "mbw2hp", "mbw2wp"):
            yield member(name, threads, *((kb, 8) for _ in FAMILIES[name].access))
        yield member("mbw2pc", threads, (kb, 4), (kb, 4))
        for name, family in FAMILIES.items():
            if family.integer:
                yield member(name, threads, (kb, family.dtype_b))
        yield member("mbw2r", threads, (kb, 8), (kb, 0))
        yield member("triad", threads, (kb, 8), (kb, 8), (kb, 8))
        if kb >= 256:
            for name in ("mbw1Uc", "mbw1Up"):
                yield member(name, threads, (kb, 600))
            for name in ("mbwXA2hc", "mbwXA2hp"):
                for stride in (8000, 32000):
                    yield member(name, threads, (kb, stride), (kb / 4, 8))


def like(streams: tuple[Stream, ...], threads: int) -> list[Microbenchmark]:
    """Return the microbenchmarks that a phase with these streams (busiest first) wants.

    Of its busiest stream alone, of its two busiest together, sizes and strides the phase's own,
    and what each stream takes beside the others (:func:`advisor.ranking.streams.effective`).
    """
    if not streams:
        return []
    benchmarks = [_single(streams[0], threads)]
    if len(streams) > 1:
        benchmarks += _double(streams[0], streams[1], threads)
    benchmarks += [_alone_like(s, threads) for s in effective(streams, threads)]
    return [m for m in dict.fromkeys(benchmarks) if m.memory_b <= _LARGEST_KB * KB]


def _alone_like(stream: Stream, threads: int) -> Microbenchmark:
    end = stream.access.lower()
    if stream.random:
        return member(f"mbw1r{end}", threads, (_fitted_zone(stream, 8)[0], 0))
    if stream.writes:
        return member("mbw1wp", threads, _fitted_zone(stream, 8))
    if stream.stride_b == 4:
        return member(f"mbw1l{end}f", threads, _fitted_zone(stream, 4))
    return member(f"mbw1l{end}", threads, _fitted_zone(stream, 8))


def _fitted_zone(stream: Stream, dtype_b: int) -> tuple[float, int]:
    """Return its zone in whole elements of a type, a stride at most a quarter of it."""
    size_b = max(4 * dtype_b, min(stream.size_kb, _LARGEST_KB) * KB)
    stride = max(dtype_b, round(stream.stride_b / dtype_b) * dtype_b)
    most = math.floor(size_b / 4 / dtype_b) * dtype_b
    return round(size_b / dtype_b) * dtype_b / KB, min(stride, max(dtype_b, most))


def _single(stream: Stream, threads: int) -> Microbenchmark:
    end = stream.access.lower()
    size, stride = _fitted_zone(stream, 8)
    if stream.random:
        return member(f"mbw1r{end}", threads, (size, 0))
    if stream.writes and stream.access == "P":
        return member("mbw1wp", threads, (size, stride))
    return member(f"mbw1{end}", threads, (size, stride))


def _double(first: Stream, second: Stream, threads: int) -> Iterator[Microbenchmark]:
    (size, stride), (second_size, step) = _fitted_zone(first, 8), _fitted_zone(second, 8)
    if first.random or second.random:
        if first.random != second.random:
            sequential, drawn = (second, first) if first.random else (first, second)
            yield member(
                "mbw2r", threads, _fitted_zone(sequential, 8), (_fitted_zone(drawn, 8)[0], 0)
            )
        return
    if stride > PAGE / 4 and step == 8:
        end = second.access.lower()
        yield member(f"mbwXA2h{end}", threads, (size, stride), (second_size, step))
        return
    if first.access == "P":
        (size, stride), (second_size, step), second = (second_size, step), (size, stride), first
    yield member(f"mbw2h{second.access.lower()}", threads, (size, stride), (second_size, step))
