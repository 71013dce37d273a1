"""Which code a command runs, sampled by the kernel: addresses by time, of all its threads.

The kernel notes where a thread is each time it has used a processor for a while (perf_event_open,
``cpu-clock``; no counter of the processor is needed). No signal is sent, nothing is loaded into the
program, and what is noted lies in this process: bounded, and read while the program runs.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import struct
from array import array
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from advisor.meters.counters import ATTRIBUTE_BYTES, open_event, why_not
from advisor.phases.arrays import Floats, Ints

# As linux/perf_event.h has them: an event, what a sample holds, flags, kinds of records, the place
# of the clock in a perf_event_attr, those of head and data in the page before the ring.
_SOFTWARE, _CPU_CLOCK = 1, 0
_ADDRESS, _THREAD, _TIME = 1, 2, 4
_DISABLED, _INHERIT, _NO_KERNEL, _NO_HYPERVISOR, _MAPS, _ON_EXEC, _FORKS, _TIMES, _CLOCK = (
    1 << n for n in (0, 1, 5, 6, 8, 12, 13, 18, 25)
)
_MAP, _LOST, _FORK, _SAMPLE = 1, 2, 7, 9
_CLOCK_AT, _MONOTONIC = 92, 1
_HEAD_AT, _DATA_AT = 1024, 1040
_RING = 1 << 16
"""Bytes that the kernel may write ahead, for each processor."""

_EVERY_S, _NODE_EVERY_S = 9.7e-3, 1e-4
"""Processor time between two samples of a thread, and of all processors together, at least. A
sample costs up to 40 us in a virtual machine; no program is in step with an odd number."""

MOST_SAMPLES, _MOST_MAPS = 400_000, 20_000
"""Samples that are kept: of more, every second one; mapped files that are known."""

_ONLINE = Path("/sys/devices/system/cpu/online")


@dataclass(frozen=True, slots=True)
class CodePlaces:
    """Where threads were: times (s), and the place of each as an index of ``places``.

    A place is a file and the offset in it, ("", 0) where no file is mapped. Each stands for
    ``every_s`` of a thread's processor time.
    """

    times: Floats
    at: Ints
    places: tuple[tuple[str, int], ...]
    every_s: float


@dataclass(slots=True)
class SampledBeside:
    """Samples the next process that this thread starts, and all that it starts in turn.

    ``why_not`` says why there is nothing, "" otherwise; ``lost`` counts what was not kept up with.
    """

    why_not: str = ""
    lost: int = 0
    every_s: float = _EVERY_S
    _open: list[tuple[int, mmap.mmap]] = field(default_factory=list)
    _samples: array[int] = field(default_factory=lambda: array("Q"))
    _maps: list[tuple[int, int, int, int, int, str]] = field(default_factory=list)
    _forks: list[tuple[int, int, int]] = field(default_factory=list)
    _keep_every: int = 1
    _seen: int = 0

    def __enter__(self) -> Self:
        """Open what can be opened; nothing is raised for what cannot."""
        try:
            cpus = _numbers(_ONLINE.read_text())
            self.every_s = max(_EVERY_S, _NODE_EVERY_S * len(cpus))
            for cpu in cpus:
                descriptor = open_event(_attributes(self.every_s), cpu=cpu)
                try:
                    ring = mmap.mmap(descriptor, mmap.PAGESIZE + _RING)
                except OSError:
                    os.close(descriptor)
                    raise
                self._open.append((descriptor, ring))
        except (OSError, ValueError) as error:
            self.__exit__()
            reason = why_not(error) if isinstance(error, OSError) else str(error)
            self.why_not = f"the routine running is not sampled: {reason}"
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor, ring in self._open:
            ring.close()
            os.close(descriptor)
        self._open = []

    def read(self) -> None:
        """Take what came since the last time."""
        for _, ring in self._open:
            (head, tail) = struct.unpack_from("<QQ", ring, _HEAD_AT)
            (data, size) = struct.unpack_from("<QQ", ring, _DATA_AT)
            begin, end = tail % size, head % size
            if head == tail:
                continue
            records = (
                ring[data + begin : data + end]
                if begin < end
                else ring[data + begin : data + size] + ring[data : data + end]
            )
            # The tail moved up to the head gives the room back to the kernel.
            struct.pack_into("<Q", ring, _HEAD_AT + 8, head)
            self._read_records(records)

    def _read_records(self, records: bytes) -> None:
        position = 0
        while position + 8 <= len(records):
            kind, _, size = struct.unpack_from("<IHH", records, position)
            if kind == _SAMPLE:
                self._sample(*struct.unpack_from("<QIIQ", records, position + 8))
            elif kind == _MAP and len(self._maps) < _MOST_MAPS:
                pid, _, address, length, offset = struct.unpack_from(
                    "<IIQQQ", records, position + 8
                )
                name = (
                    records[position + 40 : position + size - 16]
                    .split(b"\0", 1)[0]
                    .decode(errors="replace")
                )
                (time_ns,) = struct.unpack_from("<Q", records, position + size - 8)
                self._maps.append((time_ns, pid, address, length, offset, name))
            elif kind == _FORK and len(self._forks) < _MOST_MAPS:
                pid, parent, _, _, time_ns = struct.unpack_from("<IIIIQ", records, position + 8)
                # A new thread is announced so, too, and shares its process's maps.
                if pid != parent:
                    self._forks.append((time_ns, pid, parent))
            elif kind == _LOST:
                self.lost += int(struct.unpack_from("<Q", records, position + 16)[0])
            # A damaged size of 0 would never be passed.
            position += max(size, 8)

    def _sample(self, address: int, pid: int, _thread: int, time_ns: int) -> None:
        self._seen += 1
        if self._seen % self._keep_every:
            return
        self._samples.extend((time_ns, pid, address))
        if len(self._samples) >= 3 * MOST_SAMPLES:
            # Full: every other sample goes, and of those to come only as many are kept.
            self._samples = array("Q", self._samples_by_time()[::2].tobytes())
            self._keep_every *= 2

    def _samples_by_time(self) -> NDArray[np.uint64]:
        """Return ns, process id and address of every sample, in the order of their times."""
        samples = np.array(self._samples, np.uint64).reshape(-1, 3)
        return np.asarray(samples[np.argsort(samples[:, 0], kind="stable")])

    def places(self) -> CodePlaces:
        """Return where threads were, by the files that were mapped there."""
        samples = self._samples_by_time()
        maps = self._of_processes()
        place_index = np.zeros(len(samples), np.int64)
        places: dict[tuple[str, int], int] = {("", 0): 0}
        for pid in np.unique(samples[:, 1]).tolist():
            rows = np.flatnonzero(samples[:, 1] == pid)
            when, address = samples[rows, 0], samples[rows, 2]
            base, name = np.zeros(len(rows), np.int64), np.full(len(rows), -1)
            process_maps = maps[pid]
            # In the order of their times: what is mapped later lies over what was there.
            for number, (time_ns, start, length, offset, _) in enumerate(process_maps):
                hit = (address >= start) & (address - np.uint64(start) < length) & (when >= time_ns)
                base[hit], name[hit] = offset - start, number
            for i in np.flatnonzero(name >= 0).tolist():
                place = process_maps[name[i]][4], int(address[i]) + int(base[i])
                place_index[rows[i]] = places.setdefault(place, len(places))
        every_s = self.every_s * self._keep_every
        return CodePlaces(samples[:, 0] / 1e9, place_index, tuple(places), every_s)

    def _of_processes(self) -> dict[int, list[tuple[int, int, int, int, str]]]:
        """Return each process's maps (ns, address, bytes, offset, file), forks' too."""
        maps_of: dict[int, list[tuple[int, int, int, int, str]]] = defaultdict(list)
        forks = deque(sorted(self._forks, key=lambda fork: fork[0]))

        def fork_until(time_ns: float) -> None:
            while forks and forks[0][0] <= time_ns:
                _, pid, parent = forks.popleft()
                maps_of[pid] = list(maps_of[parent])

        maps = sorted(self._maps, key=lambda mapped: mapped[0])
        for time_ns, pid, address, length, offset, name in maps:
            fork_until(time_ns)
            maps_of[pid].append((time_ns, address, length, offset, name))
        fork_until(math.inf)
        return maps_of


def _attributes(every_s: float) -> bytes:
    flags = (
        _DISABLED
        | _INHERIT
        | _NO_KERNEL
        | _NO_HYPERVISOR
        | _MAPS
        | _ON_EXEC
        | _FORKS
        | _TIMES
        | _CLOCK
    )
    packed = bytearray(ATTRIBUTE_BYTES)
    struct.pack_into(
        "<IIQQQQQ",
        packed,
        0,
        _SOFTWARE,
        ATTRIBUTE_BYTES,
        _CPU_CLOCK,
        round(1e9 * every_s),
        _ADDRESS | _THREAD | _TIME,
        0,
        flags,
    )
    struct.pack_into("<i", packed, _CLOCK_AT, _MONOTONIC)
    return bytes(packed)


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list like ``0-3,8``. Raises ValueError."""
    numbers: list[int] = []
    with contextlib.suppress(IndexError):
        for part in text.strip().split(","):
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    return numbers
