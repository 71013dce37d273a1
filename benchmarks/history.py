"""Report from the store and from its history in Parquet: seconds, peak memory, bytes a job.

    python benchmarks/history.py [--jobs 1000000] [--models 100] [--folder DIR] [--json]

The store is one of `benchmarks/growth.py`; `--folder` keeps it. Each verb is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from growth import build


def ran(*arguments: object) -> dict[str, float]:
    """Run a verb; return its seconds, its processor seconds and the most memory that it had."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "advisor", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return {
        "seconds": round(time.monotonic() - begin, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss / 1024, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        store = folder / f"{args.jobs}-{args.models}.db"
        if not store.exists():
            # a process begins with the memory that its parent had: this one's stays small
            builder = multiprocessing.Process(target=build, args=(store, args.jobs, args.models))
            builder.start()
            builder.join()
        history = Path(temporary) / "history"
        db, since = ("--db", store), ("--since", "60d")
        results: dict[str, object] = {"jobs": args.jobs}
        results["history, everything"] = ran("store", "history", *db, "--to", history)
        results["history, nothing changed"] = ran("store", "history", *db, "--to", history)
        results["report, store"] = ran("report", *db, *since, "--json")
        results["report, Parquet"] = ran("report", *db, *since, "--json", "--history", history)
        since_month = ("--since", "30d", "--json", "--history", history)
        results["report of 30 days, Parquet"] = ran("report", *db, *since_month)
        one = ("--user", "user3")
        results["report of a user, store"] = ran("report", *db, *since, *one)
        results["report of a user, Parquet"] = ran(
            "report", *db, *since, *one, "--history", history
        )
        size = sum(path.stat().st_size for path in history.rglob("*.parquet"))
        results["bytes_a_job"] = {
            "store": round(store.stat().st_size / args.jobs),
            "parquet": round(size / args.jobs),
        }
    for name, value in results.items():
        print(f"{name}: {value}", file=sys.stderr)
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
