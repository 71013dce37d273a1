"""The measured grid that ships with the advisor, and what its advice is worth there.

Seven programs at 1 to 48 cores of one server, by Loghin and Teo (``examples/grids/README.md``).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from advisor import paths
from advisor.core.codec import JsonForm
from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.models.evaluation import Evaluation, evaluate
from advisor.plotting.panels import Line, Lines, Panels

FILE = "examples/grids/opteron48.csv"
NODE_TYPE, CORES, FREQ_KHZ = "opteron48", 48, 2_100_000
ORIGIN = "D. Loghin and Y. M. Teo, Data in Brief 2019, doi:10.1016/j.dib.2019.104670, CC BY 4.0"
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
            best_energy_pct=-100 * decision.best_saving,
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
    result = evaluate(runs)
    decision = result.decision
    at = {run.configuration: run for run in runs}
    used = dict.fromkeys([*result.trained, *(a.configuration for a in decision.attempts)])
    return JudgedProgram(
        name,
        result,
        tuple(runs),
        tuple(at[c] for c in used),
        at[decision.baseline],
        at[decision.chosen],
    )


def picture(program: JudgedProgram) -> Panels:
    """Return energy and time over threads: what was predicted from a few runs, and all runs.

    Below a fifth of the cores nothing is drawn: these runs take many times as long.
    """
    least = CORES // 5
    runs = [r for r in program.runs if r.configuration.threads_per_node >= least]
    seen = {float(r.configuration.threads_per_node) for r in program.seen}
    options = sorted(
        (o for o in program.evaluation.predicted if o.configuration.threads_per_node >= least),
        key=lambda o: o.configuration.threads_per_node,
    )
    threads = [float(o.configuration.threads_per_node) for o in options]
    panels = []
    for label, unit, predicted, measured in (
        (
            "energy (kJ)",
            1e3,
            [(o.energy_j, o.energy_lo_j, o.energy_hi_j) for o in options],
            [r.energy_j or 0.0 for r in runs],
        ),
        (
            "time (s)",
            1.0,
            [(o.time_s, o.time_lo_s, o.time_hi_s) for o in options],
            [r.time_s for r in runs],
        ),
    ):
        y, low, high = ([p[k] / unit for p in predicted] for k in range(3))
        x = [float(r.configuration.threads_per_node) for r in runs]
        real = [value / unit for value in measured]
        seen_runs = len(program.evaluation.trained)
        panels.append(
            Lines(
                "threads",
                label,
                (
                    Line(f"predicted from {seen_runs} runs", threads, y, low, high),
                    Line("measured (filled: used)", x, real, real, real, sorted(seen)),
                ),
            )
        )
    written = program.written.configuration.threads_per_node
    advised = program.advised.configuration.threads_per_node
    saved, pace = -100 * program.energy_change, 100 * program.time_change
    title = (
        f"{program.name}: {advised} threads, not {written}: {saved:.1f} % less energy, "
        f"time {pace:+.1f} %"
    )
    return Panels(title, tuple(panels))
