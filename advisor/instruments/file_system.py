"""Measure a file system: what one thread's reads and writes take, in order and at random.

A small fio: blocks of 4, 64 and 1024 KB, past the page cache where the file system allows it,
and from or into the page cache.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, InputError
from advisor.instruments.bench import spread_of
from advisor.instruments.characterise_io import file_system_kind, mount_point
from advisor.instruments.machine import circumstances, fingerprint
from advisor.instruments.native import SOURCES, built
from advisor.ranking.similarity import SURE
from advisor.schedulers.this_machine import local_node_type

BLOCKS_B = (4096, 65536, 1 << 20)
"""Bytes of one read or write: a page, a usual buffer, and large blocks."""
FILE_B, LEAST_B = 256 << 20, 32 << 20
"""Bytes of the file, and of the smallest that says anything; a tenth of what is free at most."""
RUN_S, CACHED_S, VISITS = 0.3, 0.05, 5
"""Seconds of a visit, and of one to the page cache; how many visits each operation gets before its
spread is looked at."""


@dataclass(slots=True)
class _Operation:
    operation: str
    random: bool
    block_b: int
    direct: bool = True
    each_s: list[float] = field(default_factory=list)
    cached_s: list[float] = field(default_factory=list)

    @property
    def spread(self) -> float:
        return spread_of(self.each_s)


def measure_io(
    folder: Path, budget_s: float, show: Callable[[int, int, float], None]
) -> dict[str, Any]:
    """Measure the file system of a folder; return machine and profiles in the form of JSON.

    Each operation gets some visits in turn, so that others' use of the disks meets all; those that
    are not sure get more until the time is over. Raises InputError for a folder that cannot be
    used.
    """
    import time

    size_b = _size(folder)
    program = built("io", [SOURCES / "microbench" / "io.c"], ("-O2",))
    operations = [
        _Operation(operation, random, block)
        for operation in ("read", "write")
        for random in (False, True)
        for block in BLOCKS_B
    ]
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(program), str(folder), str(size_b)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        process_group=0,
    )
    try:
        _answer(process, folder)
        visits = 0
        with suppress(KeyboardInterrupt):
            while visits < 2 or time.monotonic() - begin < budget_s:
                due = [o for o in operations if visits < VISITS or o.spread > SURE]
                for due_operation in due:
                    _visit(process, folder, due_operation)
                visits += 1
                sure = sum(o.spread <= SURE for o in operations)
                show(sure, len(operations), time.monotonic() - begin)
                if not due:
                    break
    finally:
        process.kill()
        process.communicate()
    measured = [o for o in operations if o.each_s]
    if not measured:
        raise KeyboardInterrupt
    mount = mount_point(folder.resolve())
    return {
        "machine": fingerprint(local_node_type()),
        **circumstances(),
        "file_system": mount,
        "kind": file_system_kind(mount),
        "file_mb": size_b >> 20,
        "seconds": time.monotonic() - begin,
        "io": [_profile(o) for o in measured],
    }


def _size(folder: Path) -> int:
    """Return bytes of the file to make. Raises InputError where there is no room, or no right."""
    try:
        space = os.statvfs(folder)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder} is not a folder you may write in")
    size_b = min(FILE_B, space.f_bavail * space.f_frsize // 10 >> 22 << 22)
    if size_b < LEAST_B:
        raise InputError(
            f"{folder} has too little free space: it would take a file of {LEAST_B >> 20} MB, and "
            "a tenth of what is free at most"
        )
    return size_b


def _visit(process: subprocess.Popen[str], folder: Path, operation: _Operation) -> None:
    assert process.stdin is not None
    pattern = "random" if operation.random else "sequential"
    for how, lasts_s in (("run", RUN_S), ("cached", CACHED_S)):
        try:
            process.stdin.write(
                f"{how} {operation.operation} {pattern} {operation.block_b} {lasts_s}\n"
            )
            process.stdin.flush()
        except OSError:
            pass
        seconds, operations, direct = _answer(process, folder)
        if how == "cached":
            operation.cached_s.append(seconds / operations)
        else:
            operation.each_s.append(seconds / operations)
            operation.direct = operation.direct and direct


def _answer(process: subprocess.Popen[str], folder: Path) -> tuple[float, int, bool]:
    assert process.stdout is not None
    match process.stdout.readline().split():
        case ["ok", seconds, operations, direct]:
            return float(seconds), int(operations), direct == "1"
        case ["error", *why]:
            raise InputError(f"{folder} cannot be measured: {' '.join(why)}")
    raise AdvisorError(f"{folder} cannot be measured: the program ended with {process.wait()}")


def _profile(o: _Operation) -> dict[str, Any]:
    """Return a result in the form of ``advisor.store.file_systems.StoredIo``, less its place."""
    return {
        "operation": o.operation,
        "random": o.random,
        "block_b": o.block_b,
        "time_per_op_us": 1e6 * math.fsum(o.each_s) / len(o.each_s),
        "direct": o.direct,
        "spread": min(o.spread, 10.0),
        "repeats": len(o.each_s),
        "cached_us": 1e6 * statistics.median(o.cached_s) if o.cached_s else None,
    }
