"""How well sizes and node counts never run are predicted, and what advice there is worth.

``python benchmarks/extrapolate.py [FOLDER ...] [--models A,B] [--train-to NAME=V,...] [--seeds N]``
evaluates every ``*.csv`` of folders of measured grids (columns as for ``advisor import``; the last
extra column is the size, without one the nodes), 36 and 18 runs, and prints the medians over grids
of their mean errors, interval coverage, half widths and harm. Without a folder it draws grids
from laws (``scaling_grids.py``), some of which no smooth law holds for. By default a grid is
trained on its smaller half of sizes, or to 4 nodes. Six grids of sizes take about two minutes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scaling_grids

from advisor.core.observation import Observation
from advisor.errors import AdvisorError
from advisor.scaling.base import NODES
from advisor.scaling.registry import AUTO, names
from advisor.store.csvfile import Terms, read_csv
from advisor_lab.evaluation.extrapolation import (
    MEASURES,
    UNFIT,
    Extrapolation,
    Measure,
    SizedScore,
    extrapolate,
)

LIMITS = {
    "36": {1.6: (6, 6), 2.6: (10, 11), 4.5: (15, 15), 8.0: (20, 20)},
    "18": {1.6: (9, 9), 2.6: (16, 18), 4.5: (30, 30)},
    "nodes": {1.6: (5, 6), 2.0: (8, 10), 3.5: (14, 18)},
}
HARM_SLOWDOWN, HARM_ENERGY = 0.07, 0.02
MOST_WIDTH = {2.0: 40, 4.0: 60}


@dataclass(frozen=True)
class ScaledGrid:
    """A measured grid, along which column it grows, and what to train on."""

    name: str
    runs: Sequence[Observation]
    parameter: str
    train_to: float


def measured(folder: Path, train_to: dict[str, float]) -> Iterator[ScaledGrid]:
    for path in sorted(folder.glob("*.csv")):
        runs = read_csv(path, Terms("grid", "benchmark")).observations
        extra = list(runs[0].extra)
        parameter = extra[-1] if extra else NODES
        if parameter == NODES:
            values = sorted({float(o.configuration.nodes) for o in runs})
            default = max(v for v in values if v <= 4)
        else:
            values = sorted({float(str(o.extra[parameter])) for o in runs})
            default = values[max(2, (len(values) - 1) // 2)]
        yield ScaledGrid(path.stem, runs, parameter, train_to.get(path.stem, default))


def drawn(seeds: int) -> Iterator[ScaledGrid]:
    for seed in range(seeds):
        for law in scaling_grids.WORK:
            runs = scaling_grids.sized(law, seed)
            yield ScaledGrid(f"{law}-{seed}", runs, "n", scaling_grids.TRAIN_TO)
        for kind in scaling_grids.COMMUNICATION:
            yield ScaledGrid(f"nodes-{kind}-{seed}", scaling_grids.scaled(kind, seed), NODES, 4)


def within(study: Extrapolation, low: float, high: float) -> list[SizedScore]:
    return [s for s in study.scores if low < s.factor <= high and s.cells]


def mean_error(scores: Sequence[SizedScore], what: Measure) -> float:
    errors = [e for s in scores if (e := s.median_error_pct[what]) is not None]
    return float(np.mean(errors)) if errors else math.nan


def harmed(score: SizedScore) -> bool:
    d = score.decision
    if d.true_slowdown is None or d.true_saving is None:
        return False
    return d.true_slowdown > HARM_SLOWDOWN or d.true_saving < -HARM_ENERGY


def report(kind: str, model: str, studies: dict[str, Extrapolation]) -> None:
    fit = {n: s for n, s in studies.items() if s.answer != UNFIT}
    print(
        f"\n{model}, {kind}: {len(studies)} grids, family-unfit: "
        f"{', '.join(n for n in studies if n not in fit) or 'none'}"
    )
    low = 1.0
    for high, limit in LIMITS[kind].items():
        cells = []
        for what, allowed in zip(MEASURES, limit, strict=True):
            errors = {n: mean_error(within(s, low, high), what) for n, s in fit.items()}
            known = {n: e for n, e in errors.items() if not math.isnan(e)}
            if known:
                worst = max(known, key=lambda n: known[n])
                cells.append(
                    f"{what} {np.median(list(known.values())):5.1f} % (limit {allowed}, "
                    f"worst {worst} {known[worst]:.1f})"
                )
        print(f"  up to {high:3}: " + "; ".join(cells or ["-"]))
        low = high
    # Beyond the last limit nothing is promised.
    scores = {n: within(s, 1.0, max(LIMITS[kind])) for n, s in fit.items()}
    by_grid = {
        n: float(np.mean([c for s in rows for c in s.interval_coverage.values() if c is not None]))
        for n, rows in scores.items()
        if rows
    }
    if by_grid:
        least = min(by_grid, key=lambda n: by_grid[n])
        print(
            f"  90 % intervals hold {np.mean(list(by_grid.values())):.0%}; "
            f"least {least} {by_grid[least]:.0%}"
        )
    for factor, width in MOST_WIDTH.items():
        widths = [
            w
            for rows in scores.values()
            for s in rows
            if abs(s.factor / factor - 1) < 0.13
            if (w := s.half_width_pct["time"]) is not None
        ]
        if widths:
            print(f"  half width at {factor:g}: {np.median(widths):.0f} % (limit {width})")
    decided = [s for rows in scores.values() for s in rows if s.decision.true_saving is not None]
    near = [s for s in decided if s.factor <= 1.6]
    best = sum(max(0.0, s.decision.best_saving or 0.0) for s in near)
    got = sum(s.decision.true_saving or 0.0 for s in near)
    share = f"{got / best:.0%}" if best else "-"
    harm = [n for n, rows in scores.items() if any(map(harmed, rows))]
    print(f"  decisions: harm {', '.join(harm) or 'none'}; of the best saving up to 1.6: {share}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--models", default=",".join([AUTO, *names()]))
    parser.add_argument("--train-to", default="", metavar="NAME=V,...")
    parser.add_argument("--only", default="", metavar="NAME,...")
    parser.add_argument("--min-time", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    train_to = {
        k: float(v) for k, _, v in (p.partition("=") for p in args.train_to.split(",")) if k
    }
    grids = [g for f in args.folders for g in measured(f, train_to)] or list(drawn(args.seeds))
    only = set(filter(None, args.only.split(",")))
    for model in args.models.split(","):
        studies: dict[str, dict[str, Extrapolation]] = {kind: {} for kind in LIMITS}
        for grid in grids:
            if only and grid.name not in only:
                continue
            for kind in ("nodes",) if grid.parameter == NODES else ("36", "18"):
                samples = 18 if kind == "18" else 36
                try:
                    studies[kind][grid.name] = extrapolate(
                        grid.runs,
                        grid.parameter,
                        grid.train_to,
                        samples=samples,
                        model=model,
                        min_time=args.min_time,
                    )
                except AdvisorError as error:
                    print(f"{grid.name}: {error}")
        for kind, found in studies.items():
            if found:
                report(kind, model, found)


if __name__ == "__main__":
    main()
