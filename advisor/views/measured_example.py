"""The measured grid that ships with the advisor, and what its advice is worth there.

Seven programs at 1 to 48 cores of one server, by Loghin and Teo (``examples/grids/README.md``).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from advisor import paths
from advisor.core.codec import JsonForm
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.policy import Resources
from advisor.core.units import format_change
from advisor.models.evaluation import Evaluation, EvaluationTerms, evaluate
from advisor.plotting import Scene

FILE = "examples/grids/opteron48.csv"
NODE_TYPE, CORES, FREQ_KHZ = "opteron48", 48, 2_100_000
ORIGIN = "D. Loghin and Y. M. Teo, Data in Brief 2019, doi:10.1016/j.dib.2019.104670, CC BY 4.0"
MAX_SLOWDOWN = 0.05
RESOURCES: Resources = "greedy"
"""Of options that are alike the example takes the one that saves most, not the smallest."""
COLUMNS = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j"


def measured_programs() -> dict[str, list[Observation]]:
    """Return every program's runs, one a number of cores, in the file's order."""
    programs: dict[str, list[Observation]] = {}
    with paths.share(FILE).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            place = Configuration(
                NODE_TYPE,
                int(row["nodes"]),
                int(row["ranks_per_node"]),
                int(row["threads_per_node"]),
                int(row["freq_khz"]),
            )
            run = Observation(place, float(row["time_s"]), float(row["energy_j"]))
            programs.setdefault(row["application"], []).append(run)
    return programs


@dataclass(frozen=True, slots=True)
class JudgedProgram:
    """A program, the advice that a dozen of its runs led to, and what all its runs say of it.

    ``seen`` are the runs that the advisor used: those it was trained on and those that confirm.
    Energies in J, times in s; changes are measured, as fractions of the job as written.
    """

    name: str
    evaluation: Evaluation
    runs: tuple[Observation, ...]
    seen: tuple[Observation, ...]
    written: Observation
    advised: Observation

    @property
    def changed(self) -> bool:
        """Whether the job is changed at all."""
        return self.advised is not self.written

    @property
    def energy_change(self) -> float:
        """Measured change of energy."""
        return (self.advised.energy_j or 0.0) / (self.written.energy_j or 1.0) - 1

    @property
    def time_change(self) -> float:
        """Measured change of time."""
        return self.advised.time_s / self.written.time_s - 1

    @property
    def best_energy_change(self) -> float:
        """The most that any measured run within the bound saves."""
        longest_s = self.written.time_s * (1 + MAX_SLOWDOWN)
        least_j = min(r.energy_j or math.inf for r in self.runs if r.time_s <= longest_s)
        return least_j / (self.written.energy_j or 1.0) - 1

    def answer(self) -> ProgramAnswer:
        """Return what programs are told."""
        decision = self.evaluation.decision
        return ProgramAnswer(
            application=self.name,
            written=self.written.configuration,
            advised=self.advised.configuration,
            changed=self.changed,
            energy_pct=100 * self.energy_change,
            time_pct=100 * self.time_change,
            best_energy_pct=100 * self.best_energy_change,
            runs=decision.runs,
            measured=len(self.runs),
            errors_pct={
                kind: score.total_rmse_pct for kind, score in self.evaluation.responses.items()
            },
        )


@dataclass(frozen=True, slots=True)
class ProgramAnswer(JsonForm):
    """What the advice for one program is worth."""

    application: str
    written: Configuration
    advised: Configuration
    changed: bool
    energy_pct: Annotated[float, "Measured, against the job as written."]
    time_pct: float
    best_energy_pct: Annotated[float, "The best within 5 % slowdown."]
    runs: Annotated[int, "Runs that the advisor saw."]
    measured: Annotated[int, "All runs there are."]
    errors_pct: Annotated[Mapping[str, float], "Errors of the model over all runs."]


def judge(name: str, runs: list[Observation]) -> JudgedProgram:
    """Fit a model to 12 of a program's runs, take its advice, compare with all its runs.

    The bounds are those of :func:`advisor.models.evaluation.evaluate`: 5 % slowdown, 3 % saving.
    """
    result = evaluate(runs, EvaluationTerms(max_slowdown=MAX_SLOWDOWN, resources=RESOURCES))
    decision = result.decision
    run_by_configuration = {run.configuration: run for run in runs}
    used = dict.fromkeys([*result.trained, *(a.configuration for a in decision.attempts)])
    return JudgedProgram(
        name,
        result,
        tuple(runs),
        tuple(run_by_configuration[c] for c in used),
        run_by_configuration[decision.baseline],
        run_by_configuration[decision.chosen],
    )


def picture(program: JudgedProgram) -> Scene:
    """Return the choice: all measured runs against the job as written, and the way to the advised.

    Below half of the cores nothing is drawn: these runs take many times as long. The cross is what
    a dozen runs predicted, with its 90 % interval.
    """
    runs = sorted(
        (r for r in program.runs if r.configuration.threads_per_node >= CORES // 2),
        key=lambda r: r.configuration.threads_per_node,
    )
    written_index, advised_index = runs.index(program.written), runs.index(program.advised)
    time_s, energy_j = program.written.time_s, program.written.energy_j or 1.0

    def percent(value: float, base: float) -> float:
        return 100 * (value / base - 1)

    options = {o.configuration: o for o in program.evaluation.predicted}
    spreads = [
        (
            (percent(o.time_lo_s, time_s), percent(o.time_hi_s, time_s)),
            (percent(o.energy_lo_j, energy_j), percent(o.energy_hi_j, energy_j)),
        )
        for o in (options[r.configuration] for r in runs)
    ]
    (faster, slower), (less, more) = spreads[advised_index]
    written_threads, advised_threads = (
        runs[i].configuration.threads_per_node for i in (written_index, advised_index)
    )
    return Scene(
        f"{program.name} on {CORES} cores: {advised_threads} threads in place of {written_threads}",
        "time against the job as written (%)",
        "energy against the job as written (%)",
        [(percent(r.time_s, time_s), percent(r.energy_j or 0.0, energy_j)) for r in runs],
        baseline=written_index,
        chosen=advised_index,
        spreads=spreads,
        labels={
            written_index: f"as written: {written_threads} threads",
            advised_index: f"as advised: {advised_threads} threads\n"
            f"energy {format_change(program.energy_change)}, "
            f"time {format_change(program.time_change)} (measured)\n"
            f"predicted from {len(program.evaluation.trained)} runs, 90 % interval:\n"
            f"energy {format_change(less / 100)} to {format_change(more / 100)},\n"
            f"time {format_change(faster / 100)} to {format_change(slower / 100)}",
        },
        others=f"measured, {runs[0].configuration.threads_per_node} to {written_threads} threads",
    )
