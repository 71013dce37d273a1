"""How well models predict measured grids, and what their advice is worth, side by side.

``python benchmarks/accuracy.py [FOLDER] [--models A,B] [--designs D,E] [--seeds N] [--samples N]``
evaluates every ``*.csv`` of a folder of measured grids (columns as for ``advisor import``): all
models on the same training cells of each grid, one line per grid and model, then the means and
what the default model has to reach. E and T are errors of energy and time, Ef and Pf those of
energy efficiency and performance, as the thesis has them. Before that, what single runs scatter:
the total error that is left where every cell is known. Without a folder it draws eight grids from a
response law with 2 % noise: these tell whether something broke, not how good the advisor is. Six
grids of 200 cells take about 20 seconds on two cores without the neural network, a minute with it.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from statsmodels.regression.quantile_regression import QuantReg

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.observation import Observation
from advisor.errors import AdvisorError
from advisor.models.design import DESIGNS
from advisor.models.evaluation import Evaluation, EvaluationTerms, evaluate
from advisor.models.registry import DEFAULT, names
from advisor.models.sequential import SEQUENTIAL
from advisor.store.csvfile import Terms, read_csv

REFERENCE = "bspline"
COLUMNS = (
    "E total",
    "T total",
    "E pareto",
    "T pareto",
    "Ef total",
    "Pf total",
    "Ef pareto",
    "Pf pareto",
    "E cover",
    "T cover",
    "zone",
    "forecast",
    "hit",
    "saving",
    "best",
    "slower",
    "runs",
    "harm",
)
HARM_SLOWDOWN, HARM_ENERGY = 0.07, 0.02


@dataclass(frozen=True)
class Task:
    """One grid, design and seed, for one model."""

    grid: str
    runs: Sequence[Observation]
    model: str
    design: str
    seed: int
    samples: int
    max_slowdown: float


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


def last_axis(c: Configuration) -> int:
    """Return a configuration's further axis (GPU clock or power limit), else its frequency."""
    return c.extra[-1][1] if c.extra else c.freq_khz


def scatter(runs: Sequence[Observation]) -> tuple[float, float]:
    """Return the total RMSE (%) of energy and time about a law for each number of cores.

    Quadratic in the logarithm of the frequency, or of the last further axis where there is none,
    the highest apart, by least absolute deviations from all cells: a fit with a third as many
    parameters as cells, which predicts nothing.
    """
    cores = np.array([(o.configuration.nodes, o.configuration.threads_per_node) for o in runs])
    freq = np.array([last_axis(o.configuration) for o in runs], float)
    terms = np.column_stack([np.vander(np.log(freq / freq.max()), 3), freq == freq.max()])
    errors = []
    for response in ([o.energy_j for o in runs], [o.time_s for o in runs]):
        log_y = np.log(np.array(response, float))
        law = np.empty_like(log_y)
        for row in np.unique(cores, axis=0):
            mine = (cores == row).all(axis=1)
            law[mine] = QuantReg(log_y[mine], terms[mine]).fit(p_tol=1e-3).fittedvalues
        errors.append(100 * math.sqrt(np.mean(np.expm1(law - log_y) ** 2)))
    return errors[0], errors[1]


def judge(task: Task) -> tuple[Task, Evaluation | str]:
    try:
        found = evaluate(
            [replace(o, fom=1 / o.time_s) for o in task.runs],  # each does the same work
            EvaluationTerms(
                model=task.model,
                design=task.design,
                samples=task.samples,
                seed=task.seed,
                max_slowdown=task.max_slowdown,
            ),
        )
    except AdvisorError as error:
        return task, str(error)
    return task, found


def line(found: Evaluation) -> list[float]:
    energy, time = found.responses["energy"], found.responses["time"]
    front, decision = found.front, found.decision
    harm = decision.true_slowdown > HARM_SLOWDOWN or decision.true_saving < -HARM_ENERGY
    return [
        energy.total_rmse_pct,
        time.total_rmse_pct,
        energy.pareto_rmse_pct,
        time.pareto_rmse_pct,
        *(found.responses[r].total_rmse_pct for r in ("rate_per_joule", "rate")),
        *(found.responses[r].pareto_rmse_pct for r in ("rate_per_joule", "rate")),
        100 * energy.interval_coverage,
        100 * time.interval_coverage,
        front.observed_points,
        front.forecast_points,
        front.by_distance[0],
        100 * decision.true_saving,
        100 * decision.best_saving,
        100 * decision.true_slowdown,
        decision.runs,
        harm,
    ]


def name_of(c: Configuration) -> str:
    return f"{c.nodes} x {c.threads_per_node} @ {c.freq_khz / 1e6:g} GHz"


def main() -> None:
    parser = argparse.ArgumentParser(description="accuracy of models on measured grids")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--models", help="all that can be loaded, by default")
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--designs", default="uniform", help=", ".join([*DESIGNS, SEQUENTIAL]))
    parser.add_argument("--seeds", type=int, default=1, help="of random and lhs designs")
    parser.add_argument("--max-slowdown", type=float, default=0.05, help="a fraction")
    parser.add_argument("--quiet", action="store_true", help="means only")
    args = parser.parse_args()
    models = args.models.split(",") if args.models else list(names())
    grids = list(drawn() if args.folder is None else measured(args.folder))
    print("what single runs scatter: total RMSE in % about a law for each number of cores")
    left = np.array([scatter(runs) for _, runs in grids])
    for (grid, _), errors in zip([*grids, ("mean", [])], [*left, left.mean(axis=0)], strict=True):
        print(f"{grid:<18}{'':<12}{cells(errors)}")
    for design in args.designs.split(","):
        seeds = range(args.seeds) if design in ("random", "lhs") else (0,)
        tasks = [
            Task(grid, runs, model, design, seed, args.samples, args.max_slowdown)
            for grid, runs in grids
            for seed in seeds
            for model in models
        ]
        show(design, args.samples, models, tasks, quiet=args.quiet)


def show(design: str, samples: int, models: list[str], tasks: list[Task], *, quiet: bool) -> None:
    rows: dict[str, list[list[float]]] = {m: [] for m in models}
    print(f"\n{design} design of {samples}; errors, coverage, savings, slowdown in %")
    print(f"{'grid':<18}{'model':<12}" + "".join(f"{c:>10}" for c in COLUMNS) + "  chosen")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for task, found in pool.map(judge, tasks):
            if isinstance(found, str):
                print(f"{task.grid[:17]:<18}{task.model:<12} {found}")
                continue
            rows[task.model].append(line(found))
            if not quiet:
                where = name_of(found.decision.chosen)
                print(f"{task.grid[:17]:<18}{task.model:<12}{cells(rows[task.model][-1])}  {where}")
    means = {}
    for model, found_rows in rows.items():
        if found_rows:
            means[model] = [math.fsum(c) / len(found_rows) for c in zip(*found_rows, strict=True)]
            means[model][-1] *= len(found_rows)
            print(f"{'mean':<18}{model:<12}{cells(means[model])}")
    if DEFAULT in means and REFERENCE in means:
        bars(means[DEFAULT], means[REFERENCE])


def bars(ours: list[float], theirs: list[float]) -> None:
    """Print what the default model has to reach, as ratios to the reference."""
    ratios = [a / b if b else math.nan for a, b in zip(ours, theirs, strict=True)]
    share = ours[13] / ours[14] if ours[14] else math.nan
    for what, value, bar, reached in (
        ("total RMSE, energy, of bspline's", ratios[0], "<= 0.80", ratios[0] <= 0.8),
        ("total RMSE, time, of bspline's", ratios[1], "<= 0.80", ratios[1] <= 0.8),
        ("pareto RMSE, energy, of bspline's", ratios[2], "<= 1.00", ratios[2] <= 1),
        ("pareto RMSE, time, of bspline's", ratios[3], "<= 1.00", ratios[3] <= 1),
        ("coverage of 90 % intervals, energy", ours[8] / 100, "0.85 to 0.95", 85 <= ours[8] <= 95),
        ("coverage of 90 % intervals, time", ours[9] / 100, "0.85 to 0.95", 85 <= ours[9] <= 95),
        ("decisions that harm", ours[17], "0", ours[17] == 0),
        ("saving, of the best possible", share, ">= 0.60", share >= 0.6),
    ):
        print(f"{DEFAULT}: {what:<36}{value:>8.2f}  bar {bar:<14}{'yes' if reached else 'NO'}")


def cells(values: Sequence[float]) -> str:
    return "".join(f"{v:>10.1f}" for v in values)


if __name__ == "__main__":
    main()
