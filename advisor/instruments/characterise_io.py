"""What a run reads and writes of files, by region and file system."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor.instruments.characterise_files import FileAccess, TimedProcess
from advisor.ranking.streams import IoStream

LEAST = 0.01
"""I/O of a smaller share of the run is none."""

Region = tuple[Path, Path, int] | None
"""Program, file and offset of a parallel region; None: outside of all."""


def mount_point(path: Path) -> str:
    """Return where the file system of a file is mounted, whether or not the file is still there."""
    folder = path if path.is_dir() else path.parent
    while not os.path.ismount(folder) and folder != folder.parent:
        folder = folder.parent
    return str(folder)


def file_system_kind(mount: str) -> str:
    """Return a mounted file system's type, like ext4, "" where it is not known."""
    kind = ""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return kind
    for line in lines:
        _, mount_field, name, *_ = line.split()
        if mount_field.replace("\\040", " ") == mount:
            kind = name  # the last one mounted there is the one that is seen
    return kind


def io_streams(
    processes: Sequence[TimedProcess], together: Mapping[Path, float], time_s: float
) -> dict[Region, tuple[IoStream, ...]]:
    """Return the reads and writes of each region, and outside of them, longest first.

    ``together`` says how many processes of each program ran at once: their mean counts. The time
    of a region's threads is their mean as well.
    """
    gathered: defaultdict[tuple[Region, str, bool], list[tuple[FileAccess, float]]]
    gathered = defaultdict(list)
    for process in processes:
        for access in process.accesses:
            where: Region = None
            share = 1.0 / together.get(process.exe, 1.0)
            if access.region is not None:
                phase = process.phases[access.region]
                where = (process.exe, phase.file, phase.offset)
                share /= max(1, phase.threads)
            gathered[where, mount_point(access.file), access.write].append((access, share))
    by_region: defaultdict[Region, list[IoStream]] = defaultdict(list)
    for (where, mount, write), parts in gathered.items():
        seconds = sum(a.time_s * share for a, share in parts)
        if seconds >= LEAST * time_s:
            by_region[where].append(_stream(mount, write, parts, seconds))
    return {w: tuple(sorted(s, key=lambda s: -s.time_s)) for w, s in by_region.items()}


def _stream(
    mount: str, write: bool, parts: Sequence[tuple[FileAccess, float]], seconds: float
) -> IoStream:
    calls = sum(a.calls for a, _ in parts)
    moved, jumps = sum(a.bytes for a, _ in parts), sum(a.jumps for a, _ in parts)
    mean_calls = round(sum(a.calls * share for a, share in parts))
    return IoStream(
        mount,
        "write" if write else "read",
        2 * jumps > calls,
        float(f"{moved / max(1, calls):.6g}"),
        max(1, mean_calls),
        round(seconds, 6),
    )
