"""Print how well applications never swept are advised, by each way of telling them from others.

Leave-one-application-out over a folder of measured grids: what is left out is known by one run at
its own point (most cores, highest frequency), all else of it is hidden. Without a trial a point is
used only at 90 % confidence. A trial is a run at the chosen point, shown from the grid; afterwards
the best of what the trials confirmed is used, else the job stays as it was.

    python benchmarks/cold_start.py [FOLDER ...] [--kernels FOLDER] [--programs]
    python benchmarks/cold_start.py [FOLDER ...] --drawn 8 10 14
    python benchmarks/cold_start.py [FOLDER ...] --only dram_active power_w

Folders of one node type are read together. Each holds one grid per workload, NAME.csv or
NAME_INPUT.csv, with the columns of ``advisor import``, and may hold signatures.csv (application,
freq_khz, time_s and any counters) or runs.csv (application, ranks, time_s, energy_j or package_j
and dram_j, counters). FOLDER_kernels, beside FOLDER, is read as ``--kernels``.

Printed: the share of the best possible saving, as a mean over grids where that is 3 % at least and
of the total; harm, a slowdown beyond the bound and 2 points or energy above +2 %; the trials that
harm; and how many 90 % intervals hold. With ``--drawn``, the same over eight draws of so many
applications: what is used where many are known says little of a site that knows few.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from advisor.prior.fit import Prior, PriorError, learn
from advisor.prior.surface import WorkloadSurface
from advisor.prior.trials import TrialBounds, trial, usable
from advisor.prior.ways import METHODS, WAYS

BOUNDS = (0.05, 0.10)
TRIALS = 2
DRAWS = 8
WORTH = 0.03
"""Grids whose best saving is less do not count for the mean share."""
RUN_ERROR = 0.01
NO_SIGNATURE = {"application", "freq_khz", "time_s", "ranks", "instructions", "cycles", "mem_gbyte"}
IDLE_SOCKET_W = 104.0
"""Of runs.csv with package energies: up to half of the ranks the second socket is not in them."""


@dataclass
class Grid:
    """A workload's measured grid, and its point of reference."""

    name: str
    surface: WorkloadSurface
    own: int
    labels: list[str]


def read(folder: Path, kernel: bool = False) -> list[Grid]:
    """Return the grids of a folder."""
    if (folder / "runs.csv").exists():
        return _runs(folder / "runs.csv")
    signatures = {}
    if (folder / "signatures.csv").exists():
        for row in _rows(folder / "signatures.csv"):
            signatures[row["application"]] = _numbers(row)
    grids = []
    for path in sorted(folder.glob("*.csv")):
        if path.name == "signatures.csv":
            continue
        cells: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for row in _rows(path):
            key = int(row["threads_per_node"]) * int(row["ranks_per_node"]), int(row["freq_khz"])
            cells[key].append((float(row["time_s"]), float(row["energy_j"])))
        known = path.stem in signatures
        name = path.stem if known else re.sub(r"_[^_]*$", "", path.stem)
        grids.append(_grid(path.stem, name, cells, signatures.get(path.stem, {}), kernel))
    return grids


def only(grids: list[Grid], values: list[str] | None) -> list[Grid]:
    """Return grids whose signatures hold some values alone; None for all."""
    if values is None:
        return grids
    for grid in grids:
        known = grid.surface.signature
        signature = {name: known[name] for name in values if name in known}
        grid.surface = replace(grid.surface, signature=signature)
    return grids


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _numbers(row: dict[str, str]) -> dict[str, float]:
    found = {}
    for name, text in row.items():
        if name not in NO_SIGNATURE and text:
            found[name] = float(text)
    return found


def _runs(path: Path) -> list[Grid]:
    """Return the grids over ranks of one node at one frequency."""
    runs: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _rows(path):
        runs[row["application"]].append(row)
    most = max(int(row["ranks"]) for rows in runs.values() for row in rows)
    grids = []
    for name, rows in sorted(runs.items()):
        cells: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        counters: dict[str, list[float]] = defaultdict(list)
        top = max(int(row["ranks"]) for row in rows)
        for row in rows:
            ranks, time = int(row["ranks"]), float(row["time_s"])
            if "energy_j" in row:
                energy = float(row["energy_j"])
            else:
                energy = float(row["package_j"]) + float(row["dram_j"])
                energy += IDLE_SOCKET_W * time if 2 * ranks <= most else 0.0
            cells[ranks, 1].append((time, energy))
            if ranks == top:
                for key, value in _numbers(row).items():
                    if not key.endswith("_j"):
                        counters[key].append(value)
        signature = {key: sum(values) / len(values) for key, values in counters.items()}
        grids.append(_grid(name, name, cells, signature, False))
    return grids


def _grid(
    label: str,
    application: str,
    cells: dict[tuple[int, int], list[tuple[float, float]]],
    signature: dict[str, float],
    kernel: bool,
) -> Grid:
    keys = sorted(cells)
    means = np.array([np.mean(cells[k], axis=0) for k in keys])
    cores, frequency = max(k[0] for k in keys), max(k[1] for k in keys)
    own = keys.index((cores, frequency))
    signature.setdefault("power_w", float(means[own, 1] / means[own, 0]))
    points = np.log(np.array(keys, dtype=float) / (cores, frequency))
    surface = WorkloadSurface(
        application, signature, points, np.log(means[:, 0]), np.log(means[:, 1]), kernel=kernel
    )
    return Grid(label, surface, own, [f"{c} cores {f / 1e6:.2f} GHz" for c, f in keys])


@dataclass
class Tally:
    """What became of the left-out grids by one way, for one bound."""

    savings: dict[int, list[tuple[float, float, bool]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    trials: list[bool] = field(default_factory=list)

    def text(self, count: int) -> str:
        """Return mean share, share of the total saving and harmed grids after some trials."""
        found = self.savings[count]
        shares = [saving / best for saving, best, _ in found if best >= WORTH]
        mean = f"{100 * sum(shares) / len(shares):4.0f}" if shares else "   -"
        best = sum(b for _, b, _ in found if b >= WORTH)
        total = f"{100 * sum(s for s, _, _ in found) / best:4.0f}" if best else "   -"
        return f"{mean} {total} {sum(h for *_, h in found):4d}"


def follow(
    grid: Grid, prior: Prior, at: Sequence[int], bound: float, tally: Tally, programs: bool
) -> None:
    """Advise a left-out grid with 0 to :data:`TRIALS` trials, and note what became of it.

    ``at`` are the grid's indexes of the prior's points.
    """
    s, own = grid.surface, grid.own
    time, energy = s.ln_time - s.ln_time[own], s.ln_energy - s.ln_energy[own]
    best = 1 - math.exp(min(energy[time <= math.log1p(bound) + 1e-12]))
    bounds = TrialBounds(bound)
    confirmed: dict[int, float] = {}
    done: list[int] = []
    understood = True
    told = []

    def harms(i: int) -> bool:
        return bool(time[i] > math.log1p(bound + 0.02) or energy[i] > math.log(1.02))

    def tell(word: str, i: int) -> None:
        by = [f"{100 * math.expm1(x[i]):+.1f} %" for x in (time, energy)]
        harm = " HARM" if harms(i) else ""
        told.append(f"{word} {grid.labels[i]} time {by[0]} energy {by[1]}{harm}")

    for count in range(TRIALS + 1):
        if count:
            best_yet = min(confirmed.values(), default=0.0)
            tried = trial(prior, bounds, best_yet, done) if understood else None
            if tried is not None:
                i = at[tried]
                tally.trials.append(harms(i))
                tell("try", i)
                done.append(tried)
                if time[i] <= bounds.ln[0] and energy[i] <= bounds.ln[1]:
                    confirmed[i] = energy[i]
                understood = prior.expects(tried, time[i], energy[i])
                prior = prior.observe(tried, time[i], energy[i], RUN_ERROR)
        chosen = None
        if confirmed:
            chosen = min(confirmed, key=lambda i: confirmed[i])
        elif not done and (found := usable(prior, bounds)) is not None:
            chosen = at[found]
        if chosen is None:
            tally.savings[count].append((0.0, best, False))
        else:
            tally.savings[count].append((1 - math.exp(energy[chosen]), best, harms(chosen)))
            if not count:
                tell("use", chosen)
    if programs:
        text = "; ".join(told) or "left alone"
        print(f"  {grid.name}, {100 * bound:.0f} %: best {100 * best:.1f} %: {text}")


@dataclass
class Outcome:
    """What became of all left-out grids by one way."""

    tallies: dict[float, Tally] = field(default_factory=lambda: {b: Tally() for b in BOUNDS})
    hold: list[tuple[float, float]] = field(default_factory=list)
    picked: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def show(self, name: str) -> None:
        """Print a line for each bound."""
        held = 100 * np.mean(self.hold, axis=0) if self.hold else (math.nan, math.nan)
        for bound, tally in self.tallies.items():
            parts = "  ".join(tally.text(count) for count in range(TRIALS + 1))
            bad = f"{sum(tally.trials):3d} of {len(tally.trials):<3d}"
            print(f"{name:11} {100 * bound:3.0f} %  {parts}  {bad}  {held[0]:3.0f} {held[1]:3.0f}")


def evaluate(
    grids: Sequence[Grid],
    kernels: Sequence[Grid],
    way: str,
    programs: bool,
    outcome: Outcome,
) -> None:
    """Leave every application out in turn and add what one way makes of it."""
    tallies = outcome.tallies
    some = [c for c in WAYS if way in ("chosen", c.method)]
    for grid in grids:
        others = [g.surface for g in grids if g.surface.application != grid.surface.application]
        others += [k.surface for k in kernels if k.surface.application != grid.surface.application]
        s = grid.surface
        try:
            learned = learn(others, s.signature, s.points, s.points[grid.own], ways=some)
            prior = learned.prior(s.signature)
        except PriorError as error:
            print(f"  {grid.name}: {error}")
            for tally in tallies.values():
                for count in range(TRIALS + 1):
                    tally.savings[count].append((0.0, 0.0, False))
            continue
        index = {tuple(p): i for i, p in enumerate(s.points.tolist())}
        at = [index[tuple(p)] for p in prior.points.tolist()]
        outcome.picked[prior.way.method + ("+kernels" if prior.kernels else "")] += 1
        truth = np.array([s.ln_time[at], s.ln_energy[at]])
        truth -= np.array([[s.ln_time[grid.own]], [s.ln_energy[grid.own]]])
        inside = np.abs(truth - prior.mean) <= prior.half_width(0.90)
        other = np.array([i != grid.own for i in at])
        if other.any():
            outcome.hold.append(tuple(inside[:, other].mean(axis=1)))
        for bound, tally in tallies.items():
            follow(grid, prior, at, bound, tally, programs)


def draw(grids: Sequence[Grid], count: int, programs: bool) -> Outcome:
    """Return what became of the grids of so many applications, over all draws."""
    outcome = Outcome()
    names = sorted({g.surface.application for g in grids})
    for seed in range(DRAWS):
        some = set(random.Random(f"{count} {seed}").sample(names, min(count, len(names))))
        drawn = [g for g in grids if g.surface.application in some]
        evaluate(drawn, (), "chosen", programs, outcome)
    return outcome


def main() -> int:
    """Read the folders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="*", type=Path, help="measured grids of one node type")
    parser.add_argument("--kernels", type=Path, help="grids of microbenchmark kernels on it")
    parser.add_argument(
        "--drawn", nargs="+", type=int, metavar="N", help="draw so many applications instead"
    )
    parser.add_argument("--programs", action="store_true", help="show every program too")
    parser.add_argument(
        "--only", nargs="+", metavar="VALUE", help="values of signatures to look at (default: all)"
    )
    args = parser.parse_args()
    if not args.folder:
        print("nothing to measure: name a folder of measured grids")
        return 0
    grids = only([g for folder in args.folder for g in read(folder)], args.only)
    beside = args.folder[0].with_name(args.folder[0].resolve().name + "_kernels")
    folder = args.kernels or (beside if beside.is_dir() else None)
    kernels = only(read(folder, kernel=True) if folder else [], args.only)
    names = {g.surface.application for g in grids}
    if args.drawn:
        kernels = []
    print(f"{len(grids)} grids of {len(names)} applications, {len(kernels)} kernels")
    print("share of the best saving: mean, total %; harmed; after 0, 1, 2 trials")
    print("way        bound    no trial        one trial       two trials    bad trials  hold t e")
    for count in args.drawn or ():
        draw(grids, count, args.programs).show(f"{count} drawn")
    if args.drawn:
        return 0
    for bound in BOUNDS:
        print(f"{'no prior':11} {100 * bound:3.0f} %  " + "  ".join(["   0    0    0"] * 3))
    for way in (*METHODS, "chosen"):
        outcome = Outcome()
        evaluate(grids, kernels, way, args.programs and way == "chosen", outcome)
        outcome.show(way)
    print("chosen:", ", ".join(f"{name} {n}" for name, n in sorted(outcome.picked.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
