"""What jobs of the past do to decisions, for the better and for the worse.

Draws applications (time and power over cores and frequency), measures a sweep of a dozen points,
and lets jobs run as they were written and as they were decided, as a site's accounting sees them:
whole seconds, 2 % between jobs. Decides with and without the jobs by the policy's own bounds and
judges by the truth. Three kinds of jobs: of the sweep's input, of another input (a quarter longer),
and a mix of inputs.

    python benchmarks/jobs.py [--applications 60] [--jobs 12]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.option import Option, row_of
from advisor.core.policy import Policy
from advisor.core.select import select
from advisor.models.fit import fit_options

CORES = (4, 8, 12, 16, 20, 24, 28)
FREQS = (1_200_000, 1_500_000, 1_800_000, 2_100_000, 2_400_000)
BASE = Configuration("bdw", 1, 1, 28, 2_400_000)
POLICY = Policy(mode="apply", goal="min_energy", max_slowdown=0.05, min_saving=0.03)


class Application:
    """A law of its own: serial share, memory's share, and what its power follows."""

    def __init__(self, draw: np.random.Generator) -> None:
        self.time = draw.uniform(60, 600)
        self.serial = draw.uniform(0.0, 0.1)
        self.memory = draw.uniform(0.0, 0.9)
        self.limit = draw.uniform(8, 28)
        self.idle, self.active = draw.uniform(60, 120), draw.uniform(1.5, 5.0)

    def truth(self, c: Configuration) -> tuple[float, float]:
        """Return time (s) and energy (J) of a run at a configuration."""
        n, f = c.threads_per_node, c.freq_khz / 2.4e6
        core = (self.serial + (1 - self.serial) / n) / f
        bus = (self.serial + (1 - self.serial) / min(n, self.limit)) * 1.0
        t = self.time * 28 * ((1 - self.memory) * core + self.memory * bus)
        return t, t * (self.idle + self.active * n * (0.3 + 0.7 * f**2.5))


def run(
    app: Application, c: Configuration, draw: np.random.Generator, source: str, scale: float = 1.0
) -> Observation:
    """Return one run; of a job with whole seconds and 2 % of noise, else 0.7 %."""
    sigma = 0.02 if source == "job" else 0.007
    t, e = app.truth(c)
    own = math.exp(draw.normal(0, sigma))
    t, e = t * scale * own, e * scale * own * math.exp(draw.normal(0, sigma / 2))
    t = max(1.0, round(t)) if source == "job" else t
    extra = {"resolution_s": 1.0}
    return Observation(c, t, e, source=source, extra=extra)  # type: ignore[arg-type]


def sweep(app: Application, draw: np.random.Generator) -> list[Observation]:
    """Return a dozen runs, the job as written among them, and one at the promised best."""
    grid = [Configuration("bdw", 1, 1, n, f) for n in CORES for f in FREQS]
    corners = [grid[0], grid[4], grid[-5], BASE]
    rest = draw.choice(len(grid), 8, replace=False)
    runs = [run(app, c, draw, "sweep") for c in dict.fromkeys([*corners, *(grid[i] for i in rest)])]
    chosen = decide(fit_options(runs).options, confirmed=False)
    return [*runs, run(app, chosen, draw, "confirm")] if chosen != BASE else runs


def decide(options: Sequence[Option], *, confirmed: bool = True) -> Configuration:
    """Return what the policy chooses for the job as written; only confirmed ones, as it does."""
    base = next(o for o in options if o.configuration == BASE)
    others = [
        ("bdw", row_of(replace(o, confirmed=True)))
        for o in options
        if o is not base and (o.confirmed or not confirmed)
    ]
    found = select(others, row_of(base), POLICY).chosen
    return found.alternative().configuration if found else BASE


def judged(app: Application, c: Configuration) -> tuple[float, bool]:
    """Return the energy change by the truth, and whether the slowdown bound is broken by 1 %."""
    (t0, e0), (t, e) = app.truth(BASE), app.truth(c)
    return e / e0 - 1, t / t0 - 1 > POLICY.max_slowdown + 0.01


def width(options: Sequence[Option]) -> float:
    """Return the mean width (log) of the options' energy intervals."""
    return float(np.mean([math.log(o.energy_hi_j / o.energy_lo_j) for o in options]))


def main() -> None:
    """Print a line for each kind of jobs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--applications", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=12)
    args = parser.parse_args()
    kinds = {"same input": (1.0,), "another input": (1.25,), "a mix of inputs": (1.0, 1.25, 0.7)}
    for kind, scales in kinds.items():
        rows = []
        for number in range(args.applications):
            draw = np.random.default_rng(number)
            app = Application(draw)
            runs = sweep(app, draw)
            before = fit_options(runs)
            choice = decide(before.options)
            places = [BASE] if choice == BASE else [BASE, choice]
            jobs = [
                run(app, c, draw, "job", scales[i % len(scales)])
                for c in places
                for i in range(args.jobs)
            ]
            after = fit_options([*runs, *jobs])
            used = any("beside the measured" in note for note in after.notes)
            then = decide(after.options)
            rows.append(
                (
                    *judged(app, choice),
                    *judged(app, then),
                    used,
                    width(after.options) / width(before.options),
                )
            )
        table = np.array(rows, dtype=float)
        worse = int(np.sum(table[:, 2] > table[:, 0] + 0.005))
        better = int(np.sum(table[:, 2] < table[:, 0] - 0.005))
        print(
            f"{kind}: jobs used in {table[:, 4].mean():.0%} of {len(rows)}, energy "
            f"{table[:, 0].mean():+.2%} before, {table[:, 2].mean():+.2%} after, {better} better, "
            f"{worse} worse, bound broken {int(table[:, 1].sum())} before, "
            f"{int(table[:, 3].sum())} after, interval width x {table[:, 5].mean():.3f}"
        )


if __name__ == "__main__":
    main()
