"""From how many stale models on fitting on Dask is quicker than fitting here.

    python benchmarks/workers.py [--models 16] [--jobs 2] [--scheduler NAME --folder DIR
        --partition NAME --interface NAME] [--json]

Fits ``--models`` tasks of 12 runs and 121 options here and on Dask, whose workers are processes of
this host or jobs of a scheduler. A line through two numbers of tasks gives what the start costs and
what one more costs; the break-even is where both ways take as long. Where the workers share this
host's busy cores that may be never: beside it stands what follows, from the start's cost and a
fit's here, for workers that have a core each, as jobs on other nodes have.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fit import SPACE, measured

from advisor.core.workers_setup import WorkersSetup
from advisor.models.design import uniform
from advisor.models.fit_task import fit_task
from advisor.workers.base import Task, engine


def spent_s(setup: WorkersSetup, tasks: list[Task]) -> float:
    """Return how long the tasks take, all of which must come through."""
    began = time.monotonic()
    problems = [done.problem for done in engine(setup).run(tasks) if done.problem]
    if problems:
        raise SystemExit(f"workers: {len(problems)} of {len(tasks)} failed: {problems[0]}")
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=2)
    for name in ("scheduler", "folder", "partition", "interface"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    runs = [replace(measured(c), space=SPACE) for c in uniform(SPACE)]
    few, many = max(1, args.models // 4), args.models
    there = WorkersSetup(
        engine="dask",
        scheduler=args.scheduler,
        jobs=args.jobs,
        partition=args.partition,
        folder=args.folder,
        interface=args.interface,
    )
    spent_s(WorkersSetup(), [fit_task(runs, None, {})])  # imports
    lines = {}
    for name, setup in (("here", WorkersSetup()), ("dask", there)):
        at = {n: spent_s(setup, [fit_task(runs, None, {})] * n) for n in (few, many)}
        one_s = max(0.0, (at[many] - at[few]) / (many - few))
        lines[name] = {"start_s": max(0.0, at[few] - few * one_s), "one_s": one_s}
    here, dask = lines["here"], lines["dask"]
    gain_s = here["one_s"] - dask["one_s"]
    even = math.inf if gain_s <= 0 else (dask["start_s"] - here["start_s"]) / gain_s
    result = {**lines, "jobs": args.jobs, "break_even": None if math.isinf(even) else max(1, even)}
    apart_s = here["one_s"] * (1 - 1 / args.jobs)
    result["break_even_apart"] = dask["start_s"] / apart_s if apart_s else None
    if args.json:
        print(json.dumps({"schema": "advisor/workers/1", **result}))
        return
    for name, line in lines.items():
        print(f"{name}: {line['start_s']:.1f} s to start, {line['one_s']:.2f} s a model")
    never = "it never pays on this machine"
    print(f"break-even: {never if math.isinf(even) else f'{max(1.0, even):.0f} models'}")
    if apart := result["break_even_apart"]:
        print(f"with a core for each of the {args.jobs} workers: {apart:.0f} models")


if __name__ == "__main__":
    main()
