"""Replay sweeps that start from a class model, and as ever, on grids of applications left out.

Each application of a folder is left out in turn; a class model of it follows from one run at its
own point and the others' whole grids. The same sweep (``advisor train``'s own code) then runs with
its design as ever and with a part of it moved where the class model expects the most.

    python benchmarks/train_start.py FOLDER ... [--samples 6,8,12] [--max-slowdown 0.1]

Folders as for ``cold_start.py``, of one node type. Printed: the energy saved, of the best possible
in all and as a mean over grids, harm, runs and their cost in runs of the job.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cold_start import WORTH, Grid, read
from sweeps import replay

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.policy import Policy, Training
from advisor.models.design import DESIGNS
from advisor.prior.fit import learn
from advisor.prior.predicted_options import options
from advisor.training.class_start import ClassStart

CORES, TOP_KHZ = 1000, 1_000_000
"""Shares become whole numbers of these: only they matter."""


@dataclass(frozen=True)
class Replayed:
    """What a sweep came to: savings (fractions), harm, runs and their cost in jobs."""

    saved: float
    best: float
    harmed: bool
    runs: int
    cost: float


def observed(grid: Grid) -> list[Observation]:
    """Return a grid as measured runs."""
    s, found = grid.surface, []
    rows = zip(s.points.tolist(), s.ln_time.tolist(), s.ln_energy.tolist(), strict=True)
    for (share, frequency), time, energy in rows:
        threads, khz = round(CORES * math.exp(share)), round(TOP_KHZ * math.exp(frequency))
        where = Configuration("t", 1, 1, threads, khz)
        found.append(Observation(where, math.exp(time), math.exp(energy), None, "measured", "grid"))
    return found


def class_start_of(grid: Grid, others: Sequence[Grid], node_type: NodeType) -> ClassStart:
    """Return what a class model of a left-out grid says."""
    s = grid.surface
    known = [o.surface for o in others if o.surface.application != s.application]
    prior = learn(known, s.signature, s.points, s.points[grid.own]).prior(s.signature)
    own = Configuration("t", 1, 1, CORES, TOP_KHZ)
    time, energy = math.exp(s.ln_time[grid.own]), math.exp(s.ln_energy[grid.own])
    made = options(prior, own, node_type, time, energy / time).options
    return ClassStart(made, next(o for o in made if o.configuration == own), "")


def run(grid: Grid, start: ClassStart | None, samples: int, policy: Policy) -> Replayed:
    """Replay one sweep."""
    cells = observed(grid)
    truth = {o.configuration: o for o in cells}
    space = SearchSpace.of("t", sorted(truth))
    own = max(truth, key=lambda c: (c.threads_per_node, c.freq_khz))
    design = DESIGNS["uniform"](space, samples, must_include=own)
    if start is not None:
        design, _ = start.moved(design, space, policy)
    outcome, _ = replay(cells, "auto", "uniform", samples, policy, runs=design)
    base = truth[own]
    chosen = outcome.recommended
    kept = base if chosen is None else truth[chosen.configuration]
    bound = base.time_s * (1 + policy.max_slowdown)
    best = min(o.energy_j or math.inf for o in cells if o.time_s <= bound)
    base_j, kept_j = base.energy_j or 1.0, kept.energy_j or 1.0
    harmed = kept.time_s > bound + 0.02 * base.time_s or kept_j > 1.02 * base_j
    cost = math.fsum(r.time_s or 0.0 for r in outcome.results.values()) / base.time_s
    return Replayed(1 - kept_j / base_j, 1 - best / base_j, harmed, len(outcome.results), cost)


def main() -> None:
    """Read the folders and print a line for each number of runs, without and with the start."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="*", type=Path)
    parser.add_argument("--samples", default="6,8,12")
    parser.add_argument("--max-slowdown", type=float, default=0.10)
    args = parser.parse_args()
    grids = [g for folder in args.folder for g in read(folder)]
    node_type = NodeType("t", cores=CORES, default_freq_khz=TOP_KHZ)
    policy = Policy(
        goal="min_energy",
        max_slowdown=args.max_slowdown,
        training=Training(trust="all", budget_node_hours=1e9),
    )
    for samples in (int(n) for n in args.samples.split(",")):
        for started in (False, True):
            found = [
                run(g, class_start_of(g, grids, node_type) if started else None, samples, policy)
                for g in grids
            ]
            if not found:
                continue
            print(f"{samples:2d} runs, {'by class' if started else 'as ever ':8}: {words(found)}")


def words(found: Sequence[Replayed]) -> str:
    """Return what the sweeps came to in all."""
    total = sum(r.saved for r in found) / max(1e-9, sum(r.best for r in found))
    shares = [r.saved / r.best for r in found if r.best >= WORTH] or [0.0]
    runs, cost = (sum(x) / len(found) for x in zip(*((r.runs, r.cost) for r in found), strict=True))
    return (
        f"total {100 * total:3.0f} %, mean {100 * sum(shares) / len(shares):3.0f} %, "
        f"harmed {sum(r.harmed for r in found)}, runs {runs:.1f}, cost {cost:.1f} jobs"
    )


if __name__ == "__main__":
    main()
