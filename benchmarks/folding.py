"""What ``advisor lab phases fold`` makes of drawn meters, and how often its bands hold.

    python benchmarks/folding.py [--cases N] [--first-seed N] [--json]

Each case has a power of its own inside an iteration (steps, a slope, waves, a short burst, none at
all), iterations of its own number, length and scatter, a meter of its own distance between readings
and last digit, and noise. *Impossible* is a value, or an end of its band, below 0 or above four
times the largest power that the program ever had. *Holds* is the share of an iteration in which the
truth lies inside the 90 % band; *where shown* is the same of the cases in which a curve is shown
and not the mean alone.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from advisor.phases.arrays import Floats
from advisor_lab.phases.fold import FoldedSignal, fold

IMPOSSIBLE = 4.0
"""Times the largest true power above which nothing that is shown can be meant."""

_HOLDING = 0.85
"""Share of an iteration in which 90 % bands have to hold, of each kind of case."""

_FINE = 2000
"""Parts of an iteration in which the truth is drawn."""


@dataclass(frozen=True, slots=True)
class DrawnMeter:
    """Readings (s, J), the iterations' begins (s), the true power (W) at even places of one."""

    shape: str
    times: Floats
    joules: Floats
    marks: Floats
    power: Floats


def _power(rng: np.random.Generator) -> tuple[str, Floats]:
    """Return a shape's name and its power (W) at even places of an iteration."""
    x = (np.arange(_FINE) + 0.5) / _FINE
    mean = float(np.exp(rng.uniform(np.log(2.0), np.log(3000.0))))
    swing = mean * rng.uniform(0.02, 0.6)
    shape = str(rng.choice(["steps", "square", "slope", "waves", "burst", "flat"]))
    if shape == "steps":
        edges = np.sort(rng.uniform(0, 1, rng.integers(1, 5)))
        levels = mean + swing * rng.uniform(-1, 1, len(edges) + 1)
        return shape, levels[np.searchsorted(edges, x)]
    if shape == "square":
        return shape, np.where(x < rng.uniform(0.2, 0.8), mean + swing, mean - swing)
    if shape == "slope":
        return shape, mean + swing * (2 * x - 1)
    if shape == "waves":
        waves = [
            rng.uniform(-1, 1) * np.sin(2 * np.pi * (k * x + rng.uniform())) for k in range(1, 5)
        ]
        return shape, np.asarray(mean + 0.5 * swing * np.sum(waves, axis=0)).clip(0.0)
    if shape == "burst":
        begin, width = rng.uniform(0, 0.9), rng.uniform(0.03, 0.1)
        return shape, np.where((x > begin) & (x < begin + width), 2 * mean, mean)
    return shape, np.full(_FINE, mean)


def drawn(seed: int) -> DrawnMeter:
    """Draw a program and a meter; the same seed draws the same."""
    rng = np.random.default_rng(seed)
    shape, power = _power(rng)
    iteration_s = float(np.exp(rng.uniform(np.log(0.05), np.log(60.0))))
    readings = int(np.exp(rng.uniform(np.log(6.0), np.log(400.0))))
    iterations = int(np.exp(rng.uniform(np.log(8.0), np.log(400.0))))
    scatter = rng.choice([0.0, 0.01, 0.03])
    lengths = iteration_s * rng.normal(1.0, scatter, iterations).clip(0.5)
    marks: Floats = np.concatenate([[0.0], np.cumsum(lengths)])
    each_s = marks[-1] / readings
    times = each_s * (np.arange(readings + 1) + rng.uniform(0, 1))
    times = (times + rng.normal(0.0, 0.01 * each_s, len(times)))[times < marks[-1]]
    times = np.sort(times.clip(0.0, marks[-1]))
    level = rng.normal(1.0, rng.choice([0.0, 0.005, 0.02]), iterations)
    spent = np.concatenate([[0.0], np.cumsum(power)]) / _FINE
    whole = np.concatenate([[0.0], np.cumsum(level * lengths * spent[-1])])
    place = np.interp(times, marks, np.arange(len(marks)))
    number = np.floor(place).astype(int).clip(0, iterations - 1)
    part = np.interp(place - number, np.linspace(0, 1, _FINE + 1), spent)
    joules = whole[number] + level[number] * lengths[number] * part
    digit = 10.0 ** rng.integers(-3, 1) * (1 if power.mean() * each_s > 20 else 0.01)
    return DrawnMeter(shape, times, np.round(joules / digit) * digit, marks, power)


def impossible(folded: FoldedSignal, power: Floats) -> bool:
    """Tell whether a folded curve or its band shows what no machine takes."""
    lowest = min(float(v.min()) for v in (folded.value, folded.low, folded.high))
    highest = max(float(v.max()) for v in (folded.value, folded.low, folded.high))
    most = IMPOSSIBLE * float(power.max())
    finite = np.isfinite([lowest, highest]).all()
    return bool(not finite or lowest < 0.0 or highest > most)


def holding(folded: FoldedSignal, power: Floats) -> float:
    """Return the share of an iteration in which the true power lies inside the band."""
    truth = power[(folded.x * len(power)).astype(int)]
    return float(np.mean((folded.low <= truth) & (truth <= folded.high)))


_CLASSES = (10, 20, 40, 80, 160, 10_000)
"""Readings up to which cases are reported together."""


def _mean_where(shares: list[float], shown: list[bool]) -> float:
    """Return the mean of the cases that are shown; NaN for none."""
    chosen = [share for share, is_shown in zip(shares, shown, strict=True) if is_shown]
    return float(np.mean(chosen)) if chosen else math.nan


def main(arguments: list[str]) -> int:
    """Fold drawn cases; 1 where one shows what is impossible or bands do not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, metavar="N")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    held: dict[str, list[float]] = defaultdict(list)
    curves: dict[str, list[bool]] = defaultdict(list)
    off: dict[str, list[float]] = defaultdict(list)
    wrong: list[int] = []
    for seed in range(args.first_seed, args.first_seed + args.cases):
        case = drawn(seed)
        folded = fold(case.times, case.joules, case.marks)
        if folded is None:
            continue
        if impossible(folded, case.power):
            wrong.append(seed)
        most = next(c for c in _CLASSES if len(case.times) <= c)
        truth = case.power[(folded.x * _FINE).astype(int)]
        for kind in (f"up to {most} readings", case.shape, "all"):
            held[kind].append(holding(folded, case.power))
            curves[kind].append("only the mean" not in folded.answer)
            off[kind].append(float(np.sqrt(np.mean((folded.value - truth) ** 2)) / truth.mean()))
    rows = [
        {
            "kind": kind,
            "cases": len(shares),
            "holds": float(np.mean(shares)),
            "holds_shown": _mean_where(shares, curves[kind]),
            "curves": float(np.mean(curves[kind])),
            "rms": float(np.median(off[kind])),
        }
        for kind, shares in held.items()
    ]
    if args.json:
        print(json.dumps({"impossible": len(wrong), "seeds": wrong[:20], "rows": rows}))
        return 1 if wrong else 0
    print(
        "                         cases  bands hold where shown  a curve in  median error, of mean"
    )
    for kind in sorted(held, key=lambda k: [int(w) for w in k.split() if w.isdecimal()]):
        shares, error = held[kind], float(np.median(off[kind]))
        shown = _mean_where(shares, curves[kind])
        print(
            f"{kind:22} {len(shares):7} {np.mean(shares):11.1%} {shown:11.1%}"
            f" {np.mean(curves[kind]):11.1%} {error:11.1%}"
        )
    print(f"impossible: {len(wrong)} of {len(held['all'])}", *wrong[:10])
    return 1 if wrong or min(np.mean(shares) for shares in held.values()) < _HOLDING else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
