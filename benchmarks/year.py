"""What a year of a busy site costs: the store, publishing, reports, collecting, the daemon.

Fills a store as so many jobs a day for so many days would, decisions and outcomes as the daemon and
`advisor collect` write them, and prints its size, the processor time of `publish`, `report` and
`collect` and the daemon's memory, each as measured and, where it grows with the jobs, for the whole
year. What is extrapolated says so: it is the measured number times the ratio of jobs.

    python benchmarks/year.py [--jobs 100000] [--days 365] [--part 0.001] [--collect 26000]
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import simulate
from decide import NODE

from advisor.core.protocol import call
from advisor.core.stamp import make_stamp
from advisor.errors import AdvisorError
from advisor.loop.collect import collect
from advisor.loop.day_sums import sum_days
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer


class Accounting:
    """A scheduler of which only the accounting is asked."""

    NAME = "slurm"

    def __init__(self, jobs: list[JobRecord]) -> None:
        self._jobs = jobs

    def finished_jobs(self, since: str) -> list[JobRecord]:
        """Return all jobs."""
        return self._jobs

    def unfinished_jobs(self) -> list[JobRecord]:
        """Return none."""
        return []


def records(store: Path, count: int) -> list[JobRecord]:
    """Return the accounting of the latest decisions' jobs."""
    with Reader(store) as reader:
        made = reader.decisions(limit=count)
    found = []
    for d in made:
        seconds = round(d.chosen.time_s if d.changed and d.chosen else d.baseline_time_s or 600)
        at = datetime.fromisoformat(d.created_at)
        where = d.configuration
        cap = where.freq_khz if where and d.changed else None
        cpus = NODE.cores * NODE.threads_per_core
        joules = (d.chosen.energy_j if d.changed and d.chosen else d.baseline_energy_j) or 2e5
        step = StepRecord("0", "app", "COMPLETED", seconds, 1, 1, joules, cap, cap, cpus)
        found.append(
            JobRecord(
                d.job_id,
                "run",
                d.user,
                d.account,
                "COMPLETED",
                at.isoformat(),
                seconds,
                1,
                "bdw1",
                joules,
                cap,
                cap,
                admin_comment=make_stamp(d),
                cpus=cpus,
                steps=(step,),
                ended_at=(at + timedelta(seconds=seconds)).isoformat(),
            )
        )
    return found


def cpu(work: Callable[[], object]) -> float:
    """Return the processor seconds of this process and its children for some work."""

    def spent() -> float:
        both = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(r.ru_utime + r.ru_stime for r in both)

    before = spent()
    work()
    return spent() - before


def collected(store: Path, count: int) -> float:
    """Return the processor seconds of collecting so many jobs of which nothing is known yet."""
    jobs = records(store, count)
    with Writer(store) as writer:
        since = datetime.now(UTC) - timedelta(days=400)
        return cpu(lambda: collect(writer, Accounting(jobs), since))  # type: ignore[arg-type]


def daemon_mb(store: Path, folder: Path) -> float:
    """Return the resident memory of a daemon over the store, once it answers."""
    command = [
        sys.executable,
        "-m",
        "advisor",
        "serve",
        "--socket",
        str(folder / "s"),
        "--db",
        str(store),
        "--watch",
        "0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                call(folder / "s", {"op": "ping"})
                break
            except AdvisorError:
                time.sleep(0.1)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6
    finally:
        process.terminate()
        process.wait(30)


def outcomes_for_all(store: Path) -> None:
    """Give every decision an outcome like one that was collected."""
    with sqlite3.connect(store) as db:
        columns = [r[1] for r in db.execute("PRAGMA table_info(outcomes)")]
        rest = [c for c in columns if c not in ("job_id", "submitted_at", "decision_id", "user")]
        names = ", ".join(rest)
        db.execute(
            f"INSERT OR IGNORE INTO outcomes (job_id, submitted_at, decision_id, user, {names})"
            f" SELECT d.job_id, d.created_at, d.id, d.user, {', '.join('o.' + c for c in rest)}"
            " FROM decisions AS d, (SELECT * FROM outcomes LIMIT 1) AS o WHERE d.job_id NOT IN"
            " (SELECT job_id FROM outcomes)"
        )
    with Writer(store) as writer:  # as the collections of those days did
        while sum_days(writer):
            pass


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000, help="a day")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--part", type=float, default=0.001, help="of the year that is filled in")
    parser.add_argument("--collect", type=int, default=26_000, help="jobs of one collection")
    args = parser.parse_args()
    year = args.jobs * args.days
    count = max(args.collect, round(year * args.part))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "advisor.db"
        simulate.store(store, count, 2000)
        took = collected(store, args.collect)
        print(f"collect  {args.collect} jobs, all of them new: {took:.1f} s CPU")
        took = collected(store, args.collect)
        print(f"collect  the same jobs, as most are in a collection: {took:.1f} s CPU")
        outcomes_for_all(store)
        with sqlite3.connect(store) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = store.stat().st_size
        print(
            f"store    {count} jobs: {size / 1e6:.0f} MB, {size / count:.0f} bytes a job; "
            f"the year, extrapolated: {size / count * year / 1e9:.0f} GB"
        )
        took = cpu(lambda: publish(store, folder / "copy.db", history=False))
        print(
            f"publish  {took:.2f} s CPU, {(folder / 'copy.db').stat().st_size / 1e6:.1f} MB "
            "(models and site; it does not grow with the jobs)"
        )
        report = [sys.executable, "-m", "advisor", "report", "--since", "30d", "--db", str(store)]
        took = cpu(lambda: subprocess.run(report, capture_output=True, check=True))
        print(f"report   {count} jobs: {took:.1f} s CPU (days that are summed up; see growth.py)")
        print(f"daemon   {daemon_mb(store, folder):.0f} MB resident, 100 models")


if __name__ == "__main__":
    main()
