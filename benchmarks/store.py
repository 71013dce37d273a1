"""How the store grows: load time, memory and look-ups, small against large, in one run.

``python benchmarks/store.py [--models N] [--observations N] [--folder DIR]`` builds a small
store (10 models) and a large one and prints every figure with the ratio large : small.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Option, pack_options
from advisor.store import rows
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer

OPTIONS = 121
SMALL = 10

LOAD = """
import json, os, sys, time
from pathlib import Path
from advisor.store.reader import Reader
def rss_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
start = rss_mb()
begin = time.perf_counter()
with Reader(sys.argv[1]) as store:
    models = {m.id: m for m in store.models()}
    packed = time.perf_counter() - begin
    held = rss_mb()
    begin = time.perf_counter()
    count = sum(len(m.options()) for m in models.values())
    unpacked = time.perf_counter() - begin
print(json.dumps({"models": len(models), "options": count, "load_s": packed,
                  "unpack_s": unpacked, "before_mb": start, "loaded_mb": held}))
"""


def options(seed: int) -> list[Option]:
    draw = random.Random(seed)
    made = []
    for n in range(OPTIONS):
        t, e = draw.uniform(10, 1000), draw.uniform(1e3, 1e6)
        c = Configuration("hsw", 1 + n % 11, 2, 4, 1_200_000 + 100_000 * (n // 11))
        made.append(Option(c, t, t * 0.9, t * 1.1, e, e * 0.9, e * 1.1, in_zone=n % 5 == 0))
    return made


def build(path: Path, models: int, observations: int) -> None:
    """Fill a store in a few transactions, as years of work would have."""
    blobs = [pack_options(options(seed)) for seed in range(20)]
    per = max(1, observations // models)
    with Writer(path) as store, store.transaction() as db:
        at = rows.now()
        columns = list(rows.observation_row(1, observation(0), at))
        marks = ", ".join("?" * len(columns))
        for n in range(models):
            workload = store.workload_id(db, f"app{n // 2:05}", f"w{n % 2}")
            db.execute(
                "INSERT INTO models (workload_id, node_type, scope, owner, version, name, state,"
                " energy_quality, n_train, stats, created_at, updated_at, options)"
                " VALUES (?, 'hsw', 'all', '', 1, 'bspline', 'fitted', 'measured', 12,"
                " '{}', ?, ?, ?)",
                (workload, at, at, blobs[n % len(blobs)]),
            )
            db.executemany(
                f"INSERT INTO observations ({', '.join(columns)}) VALUES ({marks})",
                [
                    list(rows.observation_row(workload, observation(k), at).values())
                    for k in range(per)
                ],
            )


def observation(n: int) -> Observation:
    c = Configuration("hsw", 1 + n % 8, 2, 4 + n % 20, 1_200_000)
    return Observation(c, 10.0 + n, 500.0 + n, contributor="ann", scope="all")


def timed(task: Callable[[], object], repeats: int = 200) -> float:
    """Return the median seconds of one call."""
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        task()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def measure(path: Path, copy: Path) -> dict[str, float]:
    begin = time.perf_counter()
    publish(path, copy)
    publish_s = time.perf_counter() - begin
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    with Reader(path) as store:
        names = [w.application for w in store.workloads()]
        pick = random.Random(1)
        figures |= {
            "stamps_s": timed(store.model_stamps, 20),
            "changed_s": timed(store.changed),
            "find_model_s": timed(lambda: store.find_models(pick.choice(names), "w0", "hsw")),
            "observations_s": timed(lambda: store.observations(pick.choice(names), "w0")),
        }
        extra = [observation(n) for n in range(13)]
    with Writer(path) as store:
        figures["add_13_runs_s"] = timed(lambda: store.add_observations("new", "w", extra), 20)
        name, begin = names[len(names) // 2], time.perf_counter()
        store.save_model(
            name,
            "w0",
            "hsw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats={},
            options=options(7),
        )
        figures["save_model_s"] = time.perf_counter() - begin
    figures["publish_s"] = publish_s
    figures["file_mb"] = path.stat().st_size / 1e6
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--observations", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where to build (a temporary folder)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        figures = []
        for label, models, runs in (
            ("small", SMALL, SMALL * 10),
            ("large", args.models, args.observations),
        ):
            build(folder / f"{label}.db", models, runs)
            figures.append(measure(folder / f"{label}.db", folder / f"{label}.copy.db"))
    small, large = figures
    print(f"{args.observations} observations, {OPTIONS} options per model")
    print(f"{'':16}{'small':>12}{'large':>12}{'ratio':>10}")
    for key in small:
        ratio = large[key] / small[key] if small[key] else float("nan")
        print(f"{key:16}{small[key]:12.5g}{large[key]:12.5g}{ratio:10.2f}")


if __name__ == "__main__":
    main()
