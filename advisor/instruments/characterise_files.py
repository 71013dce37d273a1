"""Read what the C parts of ``advisor/instruments/trace`` leave behind: one binary file per process.

The layouts are those of ``phases.c`` and ``sites.h``; keep them equal.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import AdvisorError

# Sizes and layouts of phases.c and sites.h.
_PATH = 488
_PHASES = struct.Struct(f"<8Q{_PATH}s")
_PARTS = 16
_PHASE = struct.Struct(f"<9Q{_PATH}sQ{3 * _PARTS}Q")
_ACCESS = struct.Struct(f"<7Q{_PATH}s")
_PHASES_MOST = 1024
_SITES = struct.Struct(f"<12Q{_PATH}s")
_REGION = struct.Struct("<3Q")
_MODULE = struct.Struct(f"<3Q{_PATH}s")
_SITE = struct.Struct("<Q6I4Q6q6Q4Q8Q8Q")
_REGIONS, _MODULES = 512, 64
LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True, slots=True)
class TimedPart:
    """What a region does before one of its barriers, as the thread that forked it saw that.

    ``offset`` is where the barrier returns to, in the region's file.
    """

    offset: int
    calls: int
    time_s: float


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Reads or writes of one file system in one region of a process, or outside of all.

    ``region`` is the place among the process's phases, None outside; ``file`` is one of the files;
    ``time_s`` sums the threads'.
    """

    file: Path
    write: bool
    region: int | None
    calls: int
    bytes: int
    jumps: int
    time_s: float


@dataclass(frozen=True, slots=True)
class TimedPhase:
    """One parallel region of one process: where its code is, and its times.

    ``busy_s`` sums the threads' own parts, ``slowest_s`` the slowest thread's part of each call.
    ``parts`` are what its barriers divide it into; what follows the last is not among them.
    """

    file: Path
    offset: int
    calls: int
    time_s: float
    busy_s: float
    slowest_s: float
    threads: int
    dynamic: bool
    parts: tuple[TimedPart, ...] = ()


@dataclass(frozen=True, slots=True)
class TimedProcess:
    """One process that ran under the timing library; phases in the order of their first fork.

    ``accesses`` are its reads and writes of files.
    """

    pid: int
    exe: Path
    begin_s: float
    time_s: float
    complete: bool
    phases: tuple[TimedPhase, ...]
    accesses: tuple[FileAccess, ...] = ()


@dataclass(frozen=True, slots=True)
class BarrierInterval:
    """A site's zone between two barriers, and a sample of the cache lines touched in it.

    ``threshold`` is the hash (of 2**64) below which a line is in the sample.
    """

    number: int
    lo: int
    hi: int
    count: int
    threshold: int
    lines: frozenset[int]

    @property
    def size(self) -> int:
        """Bytes from the lowest to the highest address, in whole cache lines."""
        return _lines(self.lo, self.hi)

    @property
    def footprint(self) -> float:
        """Estimate of the bytes in the cache lines touched."""
        return len(self.lines) * LINE * (2**64 / max(1, self.threshold))


@dataclass(frozen=True, slots=True)
class AccessSite:
    """One load or store instruction, seen by one thread in one region.

    ``strides`` maps differences between one address and the next to how often they occurred;
    ``span`` is the mean size of the zone per interval in bytes, weighted by accesses;
    ``interval`` is the one that was sampled.
    """

    pc: int
    region: int
    thread: int
    size: int
    element: int
    write: bool
    count: int
    moves: int
    strides: dict[int, int]
    span: float
    interval: BarrierInterval | None


@dataclass(frozen=True, slots=True)
class TracedRegion:
    """A parallel region of a traced process; the first one is all that lies outside of them."""

    pc: int
    calls: int
    flops: int


@dataclass(frozen=True, slots=True)
class Module:
    """An executable file mapped into a process: addresses less ``base`` are the file's own."""

    base: int
    lo: int
    hi: int
    path: Path


@dataclass(frozen=True, slots=True)
class TracedProcess:
    """One process that ran traced; ``lost`` are first accesses of sites without a place."""

    pid: int
    exe: Path
    complete: bool
    lost: int
    counts_flops: bool
    regions: tuple[TracedRegion, ...]
    modules: tuple[Module, ...]
    sites: tuple[AccessSite, ...]

    def locate(self, pc: int) -> tuple[Path, int] | None:
        """Return the file an address belongs to and the address in it."""
        module = next((m for m in self.modules if m.lo <= pc < m.hi), None)
        return None if module is None else (module.path, pc - module.base)


def read_phases(folder: Path) -> list[TimedProcess]:
    """Return the processes that left their times in ``folder``, earliest first."""
    processes = []
    for file in folder.iterdir():
        data = file.read_bytes()
        if len(data) < _PHASES.size or data[:8] != b"APHASES1":
            continue
        _, size, pid, begin, end, complete, regions, _, exe = _PHASES.unpack_from(data)
        if size != len(data):
            raise AdvisorError(f"{file}: written by another version of the timing library")
        phases: list[TimedPhase] = []
        places: dict[int, int] = {}
        for n in range(regions):
            values = _PHASE.unpack_from(data, _PHASES.size + n * _PHASE.size)
            (_, calls, time, _, busy, slowest, threads, dynamic, offset, path, count) = values[:11]
            if calls:
                times = (time / 1e9, busy / 1e9, slowest / 1e9)
                parts = tuple(
                    TimedPart(values[11 + 3 * k], values[12 + 3 * k], values[13 + 3 * k] / 1e9)
                    for k in range(count)
                )
                places[n] = len(phases)
                phases.append(
                    TimedPhase(_path(path), offset, calls, *times, threads, bool(dynamic), parts)
                )
        seconds = (begin / 1e9, (end - begin) / 1e9)
        processes.append(
            TimedProcess(
                pid, _path(exe), *seconds, bool(complete), tuple(phases), _accesses(data, places)
            )
        )
    return sorted(processes, key=lambda process: process.begin_s)


def _accesses(data: bytes, places: dict[int, int]) -> tuple[FileAccess, ...]:
    """Return what a process read and wrote; ``places``: of regions among its phases."""
    offset = _PHASES.size + _PHASES_MOST * _PHASE.size
    (count,) = struct.unpack_from("<Q", data, offset)
    accesses = []
    for n in range(count):
        (_, write, region, calls, moved, jumps, time, file) = _ACCESS.unpack_from(
            data, offset + 8 + n * _ACCESS.size
        )
        place = places.get(region - 1) if region else None
        accesses.append(
            FileAccess(_path(file), bool(write), place, calls, moved, jumps, time / 1e9)
        )
    return tuple(accesses)


def read_sites(folder: Path) -> list[TracedProcess]:
    """Return the processes that left their access sites in ``folder``, by process id."""
    processes = []
    for file in folder.iterdir():
        with file.open("rb") as stream:
            if file.stat().st_size < _SITES.size:
                continue
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if data[:8] == b"AVSITES1":
                    processes.append(_process(data))
    return sorted(processes, key=lambda process: process.pid)


def _process(data: mmap.mmap) -> TracedProcess:
    (_, _, _, _, pid, _, regions, modules, lost_count, complete, flops, last, exe) = (
        _SITES.unpack_from(data)
    )
    offset = _SITES.size
    region = tuple(
        TracedRegion(*_REGION.unpack_from(data, offset + n * _REGION.size)) for n in range(regions)
    )
    offset += _REGIONS * _REGION.size
    module = []
    for n in range(modules):
        base, lo, hi, path = _MODULE.unpack_from(data, offset + n * _MODULE.size)
        module.append(Module(base, lo, hi, _path(path)))
    sites = tuple(_sites(data, last))
    real = Path(os.path.realpath(_path(exe)))  # under valgrind it is what was called
    return TracedProcess(
        pid, real, bool(complete), lost_count, bool(flops), region, tuple(module), sites
    )


def _sites(data: mmap.mmap, site_offset: int) -> Iterator[AccessSite]:
    while site_offset:  # each site tells where the next one stands, the last one 0
        values = _SITE.unpack_from(data, site_offset)
        pc, region, thread, size, element, write, sampling, count, moves = values[:9]
        strides = {s: n for s, n in zip(values[11:17], values[17:23], strict=True) if n}
        site_offset, folded, spanned = values[23:26]
        lo, hi, count_before = values[27:30]
        current = count - count_before
        weighted = spanned * 1024 + current * _lines(lo, hi)
        yield AccessSite(
            pc,
            region,
            thread,
            size,
            element,
            bool(write),
            count,
            moves,
            strides,
            weighted / max(1, folded + current),
            _interval(data, values[27:35], values[35:43], current, bool(sampling)),
        )


def _interval(
    data: mmap.mmap,
    open_interval: tuple[int, ...],
    best_interval: tuple[int, ...],
    current: int,
    sampling: bool,
) -> BarrierInterval | None:
    """Return the interval whose sample counts: the one that was going on, unless it is small."""
    if sampling and 2 * current >= best_interval[2]:
        lo, hi, _, number, threshold, _, slots, table = open_interval
        count = current
    elif best_interval[3]:
        lo, hi, count, number, threshold, _, slots, table = best_interval
    else:
        return None
    sample = struct.unpack_from(f"<{slots}Q", data, table) if slots else ()
    return BarrierInterval(
        number, lo, hi, count, threshold, frozenset(line for line in sample if line)
    )


def _lines(lo: int, hi: int) -> int:
    return ((hi - 1) // LINE - lo // LINE + 1) * LINE


def _path(raw: bytes) -> Path:
    return Path(raw.partition(b"\0")[0].decode("utf-8", "surrogateescape"))
