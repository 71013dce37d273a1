"""Events of running programs, as the preloaded library keeps them: one bounded file per process.

The layout is that of ``advisor/instruments/trace/watch.h``; keep the two equal. Files are read
while they are written: what was written over before it was read is counted, never passed over.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MAGIC = 0x3148435441575641
"""First word of the shared file, as watch.h writes it."""
_SITES, _FILES, _RING, _PATH = 1024, 12, 4096, 488
_HEAD = struct.Struct("<10Q")
_HEAD_AT, _END_AT = 6 * 8, 5 * 8
_FILES_AT = _HEAD.size + _PATH
_SITES_AT = _FILES_AT + _FILES * _PATH
_RING_AT = _SITES_AT + _SITES * 16
_BURSTS_AT = _RING_AT + _RING * 8
_BURSTS, _COUNTS = 128, 7
_BURST = struct.Struct(f"<{2 + _COUNTS}Q")
SIZE = _BURSTS_AT + 16 + _BURSTS * _BURST.size
_SITE_BITS = 10
"""Low bits of an event's word that number its site; the others are nanoseconds."""
_YOUNG_S = 1.0
"""So long a process waits for one of a lower rank: they are started one after the other."""
ELSEWHERE = "elsewhere"
"""The site of calls that the file had no room for."""


@dataclass(slots=True)
class WatchedProcess:
    """One process that called OpenMP or MPI: where its events stand.

    ``begin_s`` and ``end_s`` are of the machine's monotonic clock; ``rank`` is None where the
    program has no ranks; ``lost`` events were written over before they were read.
    """

    path: Path
    pid: int
    rank: int | None
    exe: Path
    begin_s: float
    end_s: float | None = None
    events: int = 0
    lost: int = 0
    homeless: int = 0
    last_s: float = 0.0
    _bursts: int = field(default=0, repr=False)
    _map: mmap.mmap = field(repr=False, kw_only=True)
    _names: list[str] = field(repr=False, default_factory=list)

    @property
    def made(self) -> int:
        """How many events it has made, read or not."""
        return self._head()

    def early(self, now_s: float) -> bool:
        """Tell whether one of a lower rank may still come, and the ring has room meanwhile.

        Rank 0 is the lowest. A second call tells that all are there: the first is MPI_Init.
        """
        event_count = self._head()
        young = event_count < 2 or now_s < self.begin_s + _YOUNG_S
        return bool(self.rank) and young and event_count < _RING // 4

    def read(self) -> Iterator[tuple[float, str]]:
        """Yield the time and site of every event since the last call."""
        head, lost_count = self._head(), 0
        first = max(self.events + self.lost, head - _RING)
        words = self._words(first, head)
        # Meanwhile the program went on, and writes the next one right now.
        current_head = self._head()
        first_intact = (
            max(0, min(current_head - _RING + 1 - first, len(words)))
            if current_head >= _RING
            else 0
        )
        lost_count = first + first_intact - self.events - self.lost
        self.lost += lost_count
        self._read_sites()
        names, begin_s, last = self._names, self.begin_s, (1 << _SITE_BITS) - 1
        for word in words[first_intact:]:
            self.events += 1
            site = word & last
            self.last_s = at_s = begin_s + (word >> _SITE_BITS) / 1e9
            yield at_s, names[site] if site < len(names) else ELSEWHERE
        (end,) = struct.unpack_from("<Q", self._map, _END_AT)
        self.end_s = end / 1e9 if end else None

    def _words(self, first: int, head: int) -> array[int]:
        """Return the ring's words of the events from ``first`` until ``head``, copied at once."""
        begin, end = first % _RING, first % _RING + head - first
        words = array("Q", self._map[_RING_AT + 8 * begin : _RING_AT + 8 * min(end, _RING)])
        words.frombytes(self._map[_RING_AT : _RING_AT + 8 * max(end - _RING, 0)])
        return words

    def bursts(self) -> list[tuple[float, ...]]:
        """Return the bursts counted since the last call: s that it took, and each counter.

        What was written over before, or may be just now, is left out.
        """
        head, counted = struct.unpack_from("<2Q", self._map, _BURSTS_AT)
        first = max(self._bursts, head - _BURSTS)
        records = [
            _BURST.unpack_from(self._map, _BURSTS_AT + 16 + i % _BURSTS * _BURST.size)
            for i in range(first, head)
        ]
        (current_head,) = struct.unpack_from("<Q", self._map, _BURSTS_AT)
        self._bursts = head
        intact = records[max(0, current_head - _BURSTS + 1 - first) :]
        return [(b[1] / 1e9, *map(float, b[2 : 2 + counted])) for b in intact]

    def _head(self) -> int:
        return int(struct.unpack_from("<Q", self._map, _HEAD_AT)[0])

    def _read_sites(self) -> None:
        """Read the names of sites that are new."""
        sites, files, self.homeless = struct.unpack_from("<3Q", self._map, 7 * 8)
        for number in range(len(self._names), min(sites, _SITES - 1)):
            offset, file_number = struct.unpack_from("<2Q", self._map, _SITES_AT + 16 * number)
            name = (
                _text(self._map, _FILES_AT + _PATH * file_number)
                if file_number < min(files, _FILES)
                else "?"
            )
            self._names.append(f"{Path(name).name}+{offset:#x}")


class EventRings:
    """The processes that left files in a folder, in the order in which they began."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, WatchedProcess] = {}

    @property
    def processes(self) -> list[WatchedProcess]:
        """All processes found so far."""
        return sorted(self._known.values(), key=lambda p: (p.begin_s, p.path.name))

    @property
    def lost(self) -> int:
        """How many events of the processes that count were lost."""
        return sum(p.lost for p in self.leading())

    def leading(self) -> list[WatchedProcess]:
        """Return the processes whose events stand for the run: those without rank, or of the least.

        All ranks do the same in turn; one of them tells of all.
        """
        ranks = {p.rank for p in self._known.values() if p.rank is not None}
        least = min(ranks) if ranks else None
        return [p for p in self.processes if p.rank in (None, least)]

    def look(self) -> None:
        """Find processes that are new."""
        try:
            paths = list(self.folder.iterdir())
        except OSError:
            paths = []
        for path in paths:
            if path not in self._known and (ring := _opened(path)) is not None:
                self._known[path] = ring

    def poll(self, *, ended: bool = False) -> list[tuple[float, str]]:
        """Return the leading processes' events since the last call, in the order of their times.

        While a lower rank may still come there are none, unless all have ``ended``.
        """
        self.look()
        now_s = time.monotonic()
        if not ended and any(p.early(now_s) for p in self.leading()):
            return []
        several = len({p.exe.name for p in self.leading()}) > 1
        events = [
            (time_s, f"{p.exe.name}:{site}" if several else site)
            for p in self.leading()
            for time_s, site in p.read()
        ]
        events.sort(key=lambda e: e[0])
        return events


def no_room(folder: Path) -> str:
    """Say that a folder has no room for one more process; "" where it has, or is not there."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    if free >= SIZE:
        return ""
    return f"{folder.parent} is full: a process that is watched takes {-(-SIZE // 1024)} KB there"


def _text(data: mmap.mmap, offset: int) -> str:
    return data[offset : offset + _PATH].split(b"\0", 1)[0].decode(errors="replace")


def _opened(path: Path) -> WatchedProcess | None:
    """Return a process by its file, None for what is no such file (yet)."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    if len(data) < SIZE:
        return None
    magic, size, pid, rank, begin, *_ = _HEAD.unpack_from(data)
    if magic != _MAGIC or size != SIZE:
        return None
    exe = Path(_text(data, _HEAD.size))
    return WatchedProcess(path, pid, rank - 1 if rank else None, exe, begin / 1e9, _map=data)
