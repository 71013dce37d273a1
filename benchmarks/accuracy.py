"""How well models predict measured grids, and what their advice is worth.

``python benchmarks/accuracy.py [FOLDER] [--models A,B] [--samples N] [--design D]`` evaluates every
``*.csv`` of a folder of measured grids (columns as for ``advisor import``) and prints one line per
grid and the mean. Without a folder it draws eight grids from a response law with 2 % noise: these
tell whether something broke, not how good the advisor is.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.models.design import DESIGNS
from advisor.models.evaluate import Evaluation, evaluate
from advisor.models.registry import names
from advisor.store.csvfile import Terms, read_csv

COLUMNS = (
    "E total", "T total", "E pareto", "T pareto", "E cover", "T cover",
    "zone", "forecast", "hit", "saving", "best", "slower", "runs",
)  # fmt: skip


def measured(folder: Path) -> Iterator[tuple[str, list[Observation]]]:
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise SystemExit(f"{folder}: there are no *.csv files in it")
    for path in files:
        yield path.stem, list(read_csv(path, Terms("grid", "benchmark")).observations)


def drawn(count: int = 8) -> Iterator[tuple[str, list[Observation]]]:
    rng = np.random.default_rng(1)
    freqs = tuple(range(1_200_000, 2_400_001, 100_000))
    for k in range(count):
        cores = int(rng.choice([16, 32, 44, 64]))
        serial, memory = rng.uniform(0, 0.1), rng.uniform(0, 0.7)
        saturated, idle, active = rng.uniform(8, 40), rng.uniform(60, 200), rng.uniform(1, 4)
        space = SearchSpace("grid", (1,), tuple((1, t) for t in range(2, cores + 1, 2)), freqs)
        grid = []
        for c in space:
            clock, t = c.freq_khz / 2.4e6, c.threads_per_node
            compute = (1 - memory) / (t * clock) + memory / min(t, saturated)
            time = 100 * (serial / clock + (1 - serial) * compute)
            watts = idle + t * active * (0.3 + clock**2.5)
            noise = np.exp(0.02 * rng.normal(size=2))
            grid.append(Observation(c, time * noise[0], time * watts * noise[1]))
        yield f"drawn-{k}", grid


def line(found: Evaluation) -> list[float]:
    energy, time = found.responses["energy"], found.responses["time"]
    front, decision = found.front, found.decision
    return [
        energy.total_rmse_pct, time.total_rmse_pct, energy.pareto_rmse_pct, time.pareto_rmse_pct,
        100 * energy.interval_coverage, 100 * time.interval_coverage,
        front.observed_points, front.forecast_points, front.by_distance[0],
        100 * decision.true_saving, 100 * decision.best_saving, 100 * decision.true_slowdown,
        decision.runs,
    ]  # fmt: skip


def name_of(c: Configuration) -> str:
    return f"{c.nodes} x {c.threads_per_node} @ {c.freq_khz / 1e6:g} GHz"


def main() -> None:
    parser = argparse.ArgumentParser(description="accuracy of models on measured grids")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--models", default=",".join(names()))
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--design", choices=tuple(DESIGNS), default="uniform")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    grids = list(drawn() if args.folder is None else measured(args.folder))
    print("errors, coverage, savings and slowdown in %; zones in points; pareto: forecast zone")
    for model in args.models.split(","):
        print(f"\n{model}, {args.design} design of {args.samples}")
        print(f"{'grid':<18}" + "".join(f"{c:>9}" for c in COLUMNS) + "  chosen")
        rows = []
        for grid, runs in grids:
            found = evaluate(
                runs, model=model, design=args.design, samples=args.samples, seed=args.seed
            )
            rows.append(line(found))
            print(f"{grid:<18}{cells(rows[-1])}  {name_of(found.decision.chosen)}")
        print(f"{'mean':<18}{cells([math.fsum(c) / len(rows) for c in zip(*rows, strict=True)])}")


def cells(values: list[float]) -> str:
    return "".join(f"{v:>9.1f}" for v in values)


if __name__ == "__main__":
    main()
