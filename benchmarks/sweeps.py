"""What sweeps run beyond their design on measured grids: how slow that is, and what it finds.

``python benchmarks/sweeps.py FOLDER [--models A,B] [--designs D,E] [--samples N]`` replays whole
sweeps (``advisor train``'s own code and a store of their own) on every ``*.csv`` of a folder of
measured grids (columns as for ``advisor import``): a run comes out as its cell says. One line per
sweep, one more for each run that is made to confirm or that a sequential design chooses: the time
that was predicted, and time and energy as they are, against the job as written. Without a folder it
draws eight grids from a response law with 2 % noise.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from accuracy import drawn, measured, name_of

from advisor.core.configuration import Configuration, SearchSpace, largest_of
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.policy import Policy, Training
from advisor.core.request import JobRequest
from advisor.models.design import DESIGNS
from advisor.models.sequential import SEQUENTIAL, first_runs
from advisor.schedulers.base import Role, RunResult, SweepJob, SweepStatus
from advisor.schedulers.local.scheduler import Local
from advisor.store.writer import Writer
from advisor.training import state as states
from advisor.training.outcome import SweepOutcome
from advisor.training.plan import planned
from advisor.training.result_store import LocalResults
from advisor.training.sweep import Sweep
from advisor.training.training_job import TrainingJob, TrainingSite


class Replay(Local):
    """A scheduler whose runs come out as the cells of a grid."""

    NAME: ClassVar[str] = "replay"

    def __init__(self, grid: Sequence[Observation]) -> None:
        super().__init__()
        self._cells = {o.configuration: o for o in grid}

    def submit_sweep(self, job: SweepJob) -> str:
        """Do nothing: the runs were made long ago."""
        return ""

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        """Return what the grid says of every run."""
        cells = [(run.seq, self._cells[run.configuration]) for run in job.runs]
        results = (
            RunResult(seq, 1, True, o.time_s, o.energy_j, "measured", "grid") for seq, o in cells
        )
        return SweepStatus("ended", tuple(results))


@dataclass(slots=True)
class Watched(Sweep):
    """A sweep that keeps what it predicted of the runs it chose: (role, where, time ratio)."""

    chosen: list[tuple[Role, Configuration, float]] = field(default_factory=list)

    def plan(self, name: str, role: Role, configurations: Sequence[Configuration]) -> None:
        """Note the runs, then plan them."""
        fit = self._fit()
        at = {o.configuration: o.time_s for o in fit.predicted or fit.options}
        base = at[self.state.subject.baseline]
        self.chosen += [(role, c, at[c] / base) for c in configurations]
        Sweep.plan(self, name, role, configurations)


def replay(
    grid: Sequence[Observation],
    model: str,
    design: str,
    samples: int,
    policy: Policy,
    scheduler: Replay | None = None,
    runs: Sequence[Configuration] = (),
) -> tuple[SweepOutcome, list[tuple[Role, Configuration, float]]]:
    """Run a whole sweep on a grid; return its outcome and the runs it chose.

    ``runs``: its first runs, else those of the design.
    """
    cells = sorted({o.configuration for o in grid})
    space = SearchSpace.of(cells[0].node_type, cells)
    base = largest_of(cells)
    node_type = NodeType(
        base.node_type,
        cores=base.threads_per_node,
        freq_khz=space.freqs_khz,
        default_freq_khz=space.freqs_khz[-1],
        nodes=("n1",),
        partitions=("p",),
    )
    request = JobRequest("replay", "train", "someone", 1, exclusive=True, partition="p")
    subject = TrainingJob(
        "grid", "w", node_type, base, request, partition="p", method="variables", fills_cores=True
    )
    choose = first_runs if design == SEQUENTIAL else DESIGNS[design]
    settings = states.SweepSettings(
        "local",
        "someone",
        model=model,
        design=design,
        most_runs=samples if design == SEQUENTIAL else 0,
    )
    first = planned(runs or choose(space, samples, must_include=base), base)
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        state = states.new(Path(folder), subject, space, settings, first)
        states.begin(state)
        sink = LocalResults(Writer(Path(folder) / "db"), user="someone", trust="all")
        sweep = Watched(
            state, scheduler or Replay(grid), sink, policy, TrainingSite(), lambda event: None
        )
        outcome = sweep.run()
        sink.close()
        return outcome, sweep.chosen


def main() -> None:
    parser = argparse.ArgumentParser(description="what sweeps run on measured grids")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--models", default="auto,bspline")
    parser.add_argument("--designs", default="uniform,sequential")
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--max-slowdown", type=float, default=0.05, help="a fraction")
    parser.add_argument("--goal", default="balanced")
    args = parser.parse_args()
    grids = list(drawn() if args.folder is None else measured(args.folder))
    policy = Policy(
        goal=args.goal,
        max_slowdown=args.max_slowdown,
        training=Training(trust="all", budget_node_hours=1e9),
    )
    for design in args.designs.split(","):
        for model in args.models.split(","):
            worst = more = 0.0
            print(
                f"\n{model}, {design} design of {args.samples}: times and energies against the job"
            )
            for name, grid in grids:
                outcome, chosen = replay(grid, model, design, args.samples, policy)
                truth = {o.configuration: o for o in grid}
                base = truth[outcome.baseline.configuration]
                best = outcome.recommended
                kept = base if best is None else truth[best.configuration]
                runs = len(outcome.results)
                cost = math.fsum(r.time_s or 0.0 for r in outcome.results.values())
                print(
                    f"{name:<18} {runs} runs of {cost / base.time_s:.1f} jobs; takes "
                    f"{name_of(kept.configuration)}: time {kept.time_s / base.time_s:.2f}, "
                    f"energy {(kept.energy_j or 0) / (base.energy_j or 1):.2f}"
                )
                for role, c, expected in chosen:
                    o = truth[c]
                    ratio = o.time_s / base.time_s
                    worst, more = max(worst, ratio), more + ratio
                    energy = (o.energy_j or 0) / (base.energy_j or 1)
                    print(
                        f"    {role:<8} {name_of(c):<20} predicted {expected:6.2f}, "
                        f"took {ratio:6.2f}, energy {energy:6.2f}"
                    )
            print(f"{model}, {design}: slowest {worst:.2f}, all chosen runs {more:.1f} jobs")


if __name__ == "__main__":
    main()
