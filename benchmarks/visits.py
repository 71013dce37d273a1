"""What one run that goes through seven clocks tells of them, beside a run for each.

    python benchmarks/visits.py [--seeds N] [--first-seed N]

Programs are drawn: half of their time follows the clock or less, their iterations scatter, each
launch of one differs from the next, and in some the iterations grow or the node drifts as it goes
on. Each has a complete run at the highest clock. Then one more run goes through all seven
(``advisor.phases.visits``), or each of the other six has a complete run of its own. Printed are, of
each kind of program: how many sweeps had all seven; what they cost in runs at the highest clock,
the complete one among them; the median and worst error of time and energy against the highest
clock's; and how many of the 90 % intervals hold. A run of its own has no interval.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from advisor.phases.visits import Visits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.values_in_turn import VALUES, Program, Running, complete, truth

LAUNCH = 0.01
"""Relative standard deviation of a run's time from launch to launch."""
KINDS = {
    "60 s of 1200 iterations, scatter 2 %": Program(iterations=1200),
    "300 s of 600 iterations, scatter 5 %": Program(iterations=600, iteration_s=0.5, scatter=0.05),
    "300 s of 10000 iterations, scatter 20 %": Program(
        iterations=10_000, iteration_s=0.03, scatter=0.2
    ),
    "600 s of 120 iterations, scatter 2 %": Program(iterations=120, iteration_s=5),
    "120 s, iterations grow to twice": Program(iterations=2400, grows=1.0),
    "120 s, 5 % slower at its end": Program(iterations=2400, drift=0.05),
    "20 s of 400 iterations, scatter 2 %": Program(iterations=400),
}


@dataclass
class Reached:
    """What sweeps of one kind of program reached."""

    complete: int = 0
    cost: list[float] = field(default_factory=list)
    cost_each: list[float] = field(default_factory=list)
    errors: dict[str, list[float]] = field(default_factory=lambda: {"time": [], "energy": []})
    errors_each: dict[str, list[float]] = field(default_factory=lambda: {"time": [], "energy": []})
    held: int = 0


def drawn(program: Program, random: Random) -> Program:
    """Return a program of that kind with a law of its own."""
    bound, power, idle = (
        random.uniform(0.05, 0.5),
        random.uniform(1.5, 3.0),
        random.uniform(60, 160),
    )
    return replace(
        program,
        time=lambda f: bound / f + 1 - bound,
        power=lambda f: idle + 250 * f**power,
    )


def took(program: Program, seed: int, value: float) -> tuple[float, float]:
    """Return s and J of a complete run of its own at a value."""
    run = Running(program, seed, (value,), LAUNCH)
    run.go()
    return run.now, run.joules


def sweep(program: Program, seed: int, reached: Reached) -> None:
    """Make both sweeps of one program and note what they reached."""
    base = complete(program, seed, LAUNCH)
    base_s = base.events.times[-1]
    run, visits = Running(program, seed + 1, VALUES, LAUNCH), Visits(base, len(VALUES))
    run.go(visits)
    reached.cost.append(1 + run.now / base_s)
    points = visits.points() if visits.done else []
    reached.complete += len(points) == len(VALUES) - 1
    own_s, own_j = truth(program, 1.0)
    for point in points:
        true = [
            a / b for a, b in zip(truth(program, VALUES[point.value]), (own_s, own_j), strict=True)
        ]
        for name, whole, ratio in zip(
            ("time", "energy"), (point.time, point.energy), true, strict=True
        ):
            assert whole is not None
            error = whole.total / whole.base / ratio - 1
            reached.errors[name].append(abs(error))
            reached.held += abs(error) <= whole.half / whole.total
    first_s, first_j = took(program, seed + 2, 1.0)
    cost = first_s
    for number, value in enumerate(VALUES[1:]):
        time_s, energy_j = took(program, seed + 3 + number, value)
        cost += time_s
        true_s, true_j = truth(program, value)
        reached.errors_each["time"].append(abs(time_s / first_s / (true_s / own_s) - 1))
        reached.errors_each["energy"].append(abs(energy_j / first_j / (true_j / own_j) - 1))
    reached.cost_each.append(cost / first_s)


def shown(errors: dict[str, list[float]]) -> str:
    """Return median and worst errors of time and energy in %."""
    parts = [
        f"{100 * statistics.median(e):.1f}, {100 * max(e):.1f} %" if e else "-"
        for e in errors.values()
    ]
    return " | ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1000)
    args = parser.parse_args()
    print(
        "| program | all seven | cost, one for all | cost, one each | time: median, worst |"
        " energy | intervals that hold | one each: time | energy |\n" + "|---" * 9 + "|"
    )
    for name, program in KINDS.items():
        reached = Reached()
        for number in range(args.seeds):
            seed = args.first_seed + 100 * number
            sweep(drawn(program, Random(seed)), seed, reached)
        total = sum(map(len, reached.errors.values()))
        held = f"{100 * reached.held / total:.0f} % of {total}" if total else "-"
        cost, each = statistics.mean(reached.cost), statistics.mean(reached.cost_each)
        print(
            f"| {name} | {reached.complete} of {args.seeds} | {cost:.2f} | {each:.2f} |"
            f" {shown(reached.errors)} | {held} | {shown(reached.errors_each)} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
