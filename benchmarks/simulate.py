"""How long `advisor policy simulate` takes on a store of many decisions.

Fills a store with decisions as the daemon makes and stores them, of many users and applications,
and tries a policy on them: once where most requests come again and again, as on a site, and once
where each is different, which is the worst case. Prints processor seconds, not wall time, and how
many bytes a decision takes.

    python benchmarks/simulate.py [--decisions 100000] [--distinct 2000]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sqlite3
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from decide import fill, request

from advisor.schedulers.slurm.translator import parse_request
from advisor.service.decide import decide
from advisor.service.snapshot import StoreSource
from advisor.store import rows
from advisor.store.reader import Reader
from advisor.views import simulated_words as words
from advisor.views.simulation import simulate

NEW = {"base": {"mode": "apply", "goal": "edp", "max_slowdown": 0.02, "holdout": 0.02}, "rules": []}


def store(path: Path, decisions: int, distinct: int, applications: int = 100) -> None:
    """Fill a store with so many decisions of so many distinct requests in the last 30 days."""
    fill(path, applications)
    source = StoreSource(path)
    source.refresh()
    source.close()
    draw = random.Random(1)
    made = []
    for i in range(distinct):
        payload = json.loads(request(draw.randrange(2 * applications)))  # half have no model
        payload["options"]["time"] = f"{i // 60 % 24:02d}:{i % 60:02d}:30"
        payload["options"]["account"] = f"account{i % 20}"
        job = parse_request(payload, user=f"user{i % 500}", uid=1000, choices={})
        made.append(rows.decision_row(decide(job, source.snapshot), ""))
    start = datetime.now(UTC) - timedelta(days=29)
    with sqlite3.connect(path) as db:
        for i in range(decisions):
            row = made[i % distinct]
            seconds = i * 29 * 86400 / decisions
            at = (start + timedelta(seconds=seconds)).isoformat(timespec="seconds")
            new = {**row, "id": f"{draw.randrange(16**16):016x}", "created_at": at}
            record = row["record"]
            for own in ("id", "created_at"):
                record = record.replace(f'"{row[own]}"', f'"{new[own]}"', 1)
            if distinct >= decisions // 2:  # every request is different
                old = json.loads(record)
                old["request"]["time_limit_s"] = 3600 + i
                record = json.dumps(old, separators=(",", ":"))
            db.execute(rows.SAVE_DECISION, {**new, "record": record, "job_id": str(i)})


def measure(path: Path) -> dict[str, float]:
    """Simulate once; return processor seconds, wall seconds and counts."""
    before, wall = time.process_time(), time.perf_counter()
    with Reader(path) as reader:
        found = simulate(reader, NEW, datetime.now(UTC) - timedelta(days=30))
    took = {"cpu_s": time.process_time() - before, "wall_s": time.perf_counter() - wall}
    print("\n".join(words.sentences(found, "edp.yaml")))
    return took | {"decisions": found.decisions, "different": found.different}


def main() -> None:
    """Run both cases and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--distinct", type=int, default=2_000)
    args = parser.parse_args()
    for name, distinct in (("as on a site", args.distinct), ("all different", args.decisions)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "advisor.db"
            store(path, args.decisions, min(distinct, args.decisions))
            took = measure(path)
            print(
                f"{name}: {took['decisions']:.0f} decisions, {took['different']:.0f} different, "
                f"{took['cpu_s']:.1f} s CPU, {took['wall_s']:.1f} s wall, "
                f"{path.stat().st_size / args.decisions:.0f} bytes a decision, peak "
                f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
            )


if __name__ == "__main__":
    main()
