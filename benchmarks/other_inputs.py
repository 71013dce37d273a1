"""What a model of one input of a program does for jobs with another input.

    python benchmarks/other_inputs.py FOLDER ... [--sources 1,3] [--max-slowdown 0.05] [--json]

Every ``*.csv`` below the folders has measured runs (columns as for ``advisor import``). The inputs
of a program are the values of a further column, else the files whose names differ behind their
last ``_`` or ``-`` alone. Each input is fitted from all of its runs; what its model predicts is
taken for the truth. Of each input the advice is chosen from other inputs of the program: least
energy within the bound, where the policy's least saving is reached, by the mean of their effects
against the job as written (most threads and highest clock). ``as measured`` believes that mean, as
sharing a model does; ``interval`` asks for the upper end of what a further input may show
(Student's t at the policy's confidence, from how far the sources are apart), so it needs two.

changed     cases with a change
harm        cases whose true slowdown breaks the bound by more than 2 points, or whose energy is
            more than that of the job as written
captured    saving realised of the best within the bound, where there is more than the least saving
            to be had; 0 where the bound is broken by more than 2 points
error       median of how far the effects are off, time and energy alike (log)
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process per core is enough

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.policy import Policy
from advisor.core.student import quantile
from advisor.errors import AdvisorError
from advisor.models.fit import fit_options

POLICY = Policy()
SLACK = 0.02
"""So far a bound may be broken before it counts, as in benchmarks/advice.py."""
MOST_CHOICES = 10
"""Sets of sources that are tried for each input, evenly among all there are."""
AXES = ("nodes", "ranks_per_node", "threads_per_node", "freq_khz")
Place = tuple[int, ...]
Effects = Mapping[Place, tuple[float, float]]
"""Log of time and of energy against the job as written, by place."""


@dataclass(frozen=True)
class Input:
    """One input of a program: its effects, and the place of the job as written."""

    name: str
    written: Place
    effects: Effects


@dataclass
class Row:
    """What came of one way with so many sources, over all inputs of a folder's programs."""

    folder: str
    way: str
    sources: int
    cases: int = 0
    changed: int = 0
    harm: int = 0
    captured: float = math.nan
    error: float = math.nan
    shares: list[float] = field(default_factory=list, repr=False)
    errors: list[float] = field(default_factory=list, repr=False)


def runs_of(file: Path) -> Iterator[tuple[str, list[Observation]]]:
    """Yield the inputs of a file with their runs."""
    by_input: defaultdict[str, list[Observation]] = defaultdict(list)
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            nodes, ranks, threads, khz = (int(row.pop(axis)) for axis in AXES)
            time_s, energy_j = float(row.pop("time_s")), float(row.pop("energy_j"))
            place = Configuration("n", nodes, ranks, threads, khz)
            run = Observation(place, time_s, energy_j)
            by_input[" ".join(f"{name}={value}" for name, value in row.items())].append(run)
    yield from by_input.items()


def programs_below(folder: Path) -> dict[str, dict[str, list[Observation]]]:
    """Return the runs of each input of each program."""
    programs: defaultdict[str, dict[str, list[Observation]]] = defaultdict(dict)
    for file in sorted(folder.rglob("*.csv")):
        try:
            inputs = dict(runs_of(file))
        except (KeyError, ValueError):  # no file of runs
            continue
        name = re.sub(r"[_-][^_-]*$", "", file.stem)
        for text, runs in inputs.items():
            key = (file.stem, text) if text else (str(file.with_name(name)), file.stem)
            programs[key[0]][key[1]] = runs
    return {name: inputs for name, inputs in programs.items() if len(inputs) > 1}


def fitted(name_and_runs: tuple[str, Sequence[Observation]]) -> Input | None:
    """Return an input by its model, None where its runs make none."""
    warnings.simplefilter("ignore")
    name, runs = name_and_runs
    try:
        options = fit_options(runs).predicted
    except AdvisorError:
        return None
    places: dict[Place, tuple[float, float]] = {
        (c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz): (o.time_s, o.energy_j)
        for o in options
        for c in [o.configuration]
    }
    written = max(places)
    base_s, base_j = places[written]
    effects = {p: (math.log(s / base_s), math.log(j / base_j)) for p, (s, j) in places.items()}
    return Input(name, written, effects)


def upper(values: Sequence[float], way: str) -> float:
    """Return what is reckoned with at most, from the effects on other inputs."""
    if way == "as measured":
        return fmean(values)
    spread = stdev(values) * math.sqrt(1 + 1 / len(values))
    return fmean(values) + quantile(len(values) - 1, POLICY.confidence) * spread


def advised(sources: Sequence[Input], way: str, bound: float) -> Place | None:
    """Return what other inputs advise, None for nothing."""
    places = set.intersection(*(set(s.effects) for s in sources)) - {sources[0].written}
    likely = []
    for place in places:
        times, energies = zip(*(s.effects[place] for s in sources), strict=True)
        if upper(times, way) > math.log1p(bound):
            continue
        if upper(energies, way) <= math.log1p(-POLICY.min_saving):
            likely.append((fmean(energies), place))
    return min(likely)[1] if likely else None


def judge(target: Input, sources: Sequence[Input], row: Row, bound: float) -> None:
    """Add one case to a row."""
    row.cases += 1
    least = min(e for t, e in target.effects.values() if t <= math.log1p(bound))
    best = -math.expm1(min(least, 0.0))
    for known in set.intersection(*(set(s.effects) for s in (target, *sources))):
        for axis, truth in enumerate(target.effects[known]):
            row.errors.append(abs(truth - fmean(s.effects[known][axis] for s in sources)))
    place = advised(sources, row.way, bound)
    share = 0.0
    if place is not None and place in target.effects:
        slower, more = map(math.expm1, target.effects[place])
        broken = slower > bound + SLACK
        row.changed += 1
        row.harm += broken or more > 0
        share = 0.0 if broken else max(0.0, -more / best if best else 0.0)
    if best > POLICY.min_saving:
        row.shares.append(share)


def rows_of(
    folder: Path, programs: Sequence[Sequence[Input]], args: argparse.Namespace
) -> list[Row]:
    """Return the rows of one folder."""
    rows = []
    for way, count in itertools.product(("as measured", "interval"), args.sources):
        if way == "interval" and count < 2:
            continue
        row = Row(str(folder), way, count)
        for inputs in programs:
            for target in inputs:
                others = [i for i in inputs if i is not target and i.written == target.written]
                choices = list(itertools.combinations(others, count))
                for sources in choices[:: max(1, len(choices) // MOST_CHOICES)]:
                    judge(target, sources, row, args.max_slowdown)
        row.captured = fmean(row.shares) if row.shares else math.nan
        row.error = median(row.errors) if row.errors else math.nan
        rows.append(row)
    return rows


def main() -> None:
    """Print what other inputs' models do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    counts = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--sources", type=counts, default=[1, 3], metavar="N,...")
    parser.add_argument("--max-slowdown", type=float, default=POLICY.max_slowdown)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows: list[Row] = []
    with ProcessPoolExecutor() as pool:
        for folder in args.folders:
            programs = [
                [i for i in pool.map(fitted, inputs.items()) if i is not None]
                for inputs in programs_below(folder).values()
            ]
            rows += rows_of(folder, programs, args)
    shown = [{k: v for k, v in asdict(r).items() if k not in ("shares", "errors")} for r in rows]
    if args.json:
        print(json.dumps({"schema": "advisor/other-inputs/1", "rows": shown}))
        return
    for row in shown:
        print(
            "  ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
            )
        )


if __name__ == "__main__":
    main()
