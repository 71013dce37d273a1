"""How well reads and writes of files are estimated from one file system to another.

``python benchmarks/file_systems.py FOLDER FOLDER ...`` profiles each folder's file system as
``advisor lab bench --io`` does, runs patterns of reads and writes there, and estimates each
from each other by what its calls took. Prints what the 90 % intervals hold, and with ``--all``
each estimate.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from itertools import permutations
from pathlib import Path

from advisor.instruments.file_system import measure_io
from advisor.ranking.io import IoProfile, IoTimes, io_on
from advisor.ranking.streams import Characterisation, IoOperation, IoStream

PATTERNS = (
    "read 4k random cold",
    "read 4k random",
    "read 4k cold",
    "read 4k",
    "read 1m cold",
    "read 1m",
    "read 4k random direct",
    "write 4k random",
    "write 4k random end",
    "write 4k random sync",
    "write 4k random direct",
    "write 1m",
    "write 1m end",
    "write 4k end",
)
"""cold: not cached; end, sync: flushed at the end, after each; direct: past the page cache."""
REPEATS, BUDGET_S = 3, 20.0


def run(program: Path, folder: Path, pattern: str) -> tuple[int, float]:
    """Run one pattern; return its calls and the seconds they took."""
    argv = [str(program), str(folder), pattern]
    calls, seconds = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return int(calls), float(seconds)


def profile(folder: Path) -> tuple[IoTimes, IoTimes]:
    """Return a folder's profiles, and the same without what the page cache takes."""
    measured = measure_io(folder, BUDGET_S, lambda *_: None)["io"]
    keys = ("operation", "random", "block_b", "time_per_op_us", "direct", "spread")
    return tuple(
        IoTimes(
            IoProfile(
                "", "", **{k: one[k] for k in keys}, cached_us=one["cached_us"] if c else None
            )
            for one in measured
        )
        for c in (True, False)
    )  # type: ignore[return-value]


def stream(pattern: str, calls: int, time_s: float) -> Characterisation:
    """Return an application that does nothing but this."""
    block = (1 << 20 if "1m" in pattern else 4096) / (2 if "sync" in pattern else 1)
    operation: IoOperation = "read" if pattern.startswith("read") else "write"
    one = IoStream("", operation, "random" in pattern, block, calls, time_s)
    return Characterisation("files", (), time_s=time_s, io=(one,))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="*", type=Path, help="a folder of each file system")
    parser.add_argument("--all", action="store_true", help="show each estimate")
    args = parser.parse_args()
    if len(args.folder) < 2:
        print("nothing to measure: name folders of two file systems")
        return
    times = {folder: profile(folder) for folder in args.folder}
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "files"
        source = str(Path(__file__).with_name("files.c"))
        subprocess.run(["cc", "-O2", source, "-o", program], check=True)
        goes = [
            {(p, f): run(program, f, p) for p in PATTERNS for f in args.folder}
            for _ in range(REPEATS)
        ]
    real_s = {key: statistics.median(go[key][1] for go in goes) for key in goes[0]}
    held: list[tuple[bool, bool, bool]] = []
    for pattern in PATTERNS:
        for here, there in permutations(args.folder, 2):
            truth_s = real_s[pattern, there]
            app = stream(pattern, goes[0][pattern, here][0], real_s[pattern, here])
            now, before = (
                io_on(app, times[here][i], times[there][i], there.name, 1.0) for i in (0, 1)
            )
            holds = [e.low_s <= truth_s <= e.high_s for e in (now, before)]
            held.append((holds[0], holds[1], not now.notes))
            if args.all:
                print(
                    f"{pattern:22} {here} -> {there}: {real_s[pattern, here]:.4f} s -> "
                    f"{truth_s:.4f} s, estimated {now.rest_s:.4f} ({now.low_s:.4f} to "
                    f"{now.high_s:.4f}){'' if holds[0] else ' MISSED'}"
                    f"{', said to be unknown' if now.notes else ''}"
                )
    known = [h for h in held if h[2]]
    print(
        f"90 % intervals hold {sum(h[0] for h in held)} of {len(held)}, "
        f"{sum(h[0] for h in known)} of the {len(known)} that are not said to be unknown; "
        f"without the page cache's profile {sum(h[1] for h in held)}"
    )


if __name__ == "__main__":
    main()
