"""``advisor demo``: a measured program advised, and the advice judged, without any cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, save_plot
from advisor.core.codec import JsonForm

if TYPE_CHECKING:
    from advisor.views.measured_example import JudgedProgram, ProgramAnswer

_SITE = """\
version: 1
node_types:
  {name}: {{cores: {cores}, memory_mb: 64 GB, nodes: n1, partitions: [batch], freq_khz: [{freq}]}}
default_partition: batch
applications:
  - {{name: {program}, match: {{executable: {program}}}, threads_unset: all-cores}}
"""
_POLICY = """\
version: 1
mode: apply
goal: min_energy
max_slowdown: {max_slowdown:.0%}
min_saving: 3%
resources: {resources}
holdout: 0%
"""
_JOB = """\
#!/bin/bash
#SBATCH --nodes=1 --exclusive
srun SP
"""

_KEPT = ("PATH", "HOME", "LANG", "TERM", "COLUMNS", "NO_COLOR", "TMPDIR", "VIRTUAL_ENV")
"""Variables that the demo's own surroundings have, with the locale's; no others decide a job."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor demo`` takes."""
    parser.description = (
        "Show the advisor at work on programs that others have measured: fitted from 12 runs, "
        "advised, and judged by all measurements. It needs no scheduler and no compiler, and "
        "leaves your store and settings alone."
    )
    add_plot_argument(parser)


@dataclass(frozen=True, slots=True)
class DemoAnswer(JsonForm):
    """What advice from a dozen runs is worth for programs that others measured whole."""

    origin: str
    programs: list[ProgramAnswer]


def run(args: argparse.Namespace) -> int:
    """Judge every program; show the first one in full."""
    from advisor.views.measured_example import CORES, ORIGIN, judge, measured_programs, picture

    check_plot(args.plot)
    programs = measured_programs()
    if not args.json:
        _say(
            f"{len(programs)} programs were measured with 1 to {CORES} threads on a server with "
            f"{CORES} cores",
            f"({ORIGIN}).",
        )
    judged = []
    for name, runs in programs.items():
        judged.append(judge(name, runs))
        if not args.json and len(judged) == 1:
            _one_program(judged[0])
    save_plot(picture(judged[0]), args.plot)
    if args.json:
        print_json("demo", DemoAnswer(ORIGIN, [p.answer() for p in judged]))
        return 0
    _say("", "5. The same for all programs, judged by every measurement:", "")
    print_table(
        ["program", "threads", "energy", "time", "best possible energy", "runs used"],
        [_row(p) for p in judged],
    )
    ways = "For your own jobs: advisor train job.sh. To look around: advisor tui --demo"
    _say("", _summary(judged), ways)
    return 0


def _one_program(program: JudgedProgram) -> None:
    from advisor.cli import run_verb
    from advisor.core.units import format_change, format_duration, format_energy
    from advisor.views.measured_example import (
        COLUMNS,
        CORES,
        FREQ_KHZ,
        MAX_SLOWDOWN,
        NODE_TYPE,
        RESOURCES,
    )

    decision = program.evaluation.decision
    with _own_place() as place:
        (place / "site.yaml").write_text(
            _SITE.format(
                name=NODE_TYPE, cores=CORES, freq=f"{FREQ_KHZ / 1e6:g} GHz", program=program.name
            )
        )
        policy = _POLICY.format(max_slowdown=MAX_SLOWDOWN, resources=RESOURCES)
        (place / "policy.yaml").write_text(policy)
        (place / "job.sh").write_text(_JOB)
        rows = [
            f"{r.configuration.nodes},{r.configuration.ranks_per_node},"
            f"{r.configuration.threads_per_node},{r.configuration.freq_khz},{r.time_s},{r.energy_j}"
            for r in program.seen
        ]
        (place / "runs.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")

        def shown(*words: str, quiet: bool = False) -> None:
            _say(f"$ advisor {' '.join(words)}")
            with _silence(quiet):
                if run_verb(words) not in (0, 3):
                    raise SystemExit(1)

        with _silence(True):
            for verb in ("site", "policy"):
                if run_verb([verb, "apply"]):
                    raise SystemExit(1)
        confirmed = len(decision.attempts)
        _say(
            "",
            f"1. The advisor sees {len(program.evaluation.trained)} of {len(program.runs)} runs of "
            f"{program.name}, and {confirmed} more to confirm what it chose.",
        )
        shown("import", "runs.csv", "--application", program.name, "--node-type", NODE_TYPE)
        _say("", "2. A model of these runs shows the trade-off.")
        shown("fit", program.name, quiet=True)
        shown("options", program.name)
        _say(
            "",
            "3. A job script is decided as it would be at submission. The runs are others': the "
            "site",
            f"file vouches that {program.name} uses all cores by itself "
            "(threads_unset: all-cores).",
        )
        shown("explain", "job.sh")
    _say(
        "",
        f"4. What was measured there: {format_energy(program.advised.energy_j or 0.0)} in "
        f"{format_duration(program.advised.time_s)}, as written "
        f"{format_energy(program.written.energy_j or 0.0)} in "
        f"{format_duration(program.written.time_s)}: energy "
        f"{format_change(program.energy_change)}, time {format_change(program.time_change)}.",
    )


def _row(program: JudgedProgram) -> list[str]:
    from advisor.core.units import format_change

    written_threads = program.written.configuration.threads_per_node
    advised_threads = program.advised.configuration.threads_per_node
    best = program.best_energy_change
    return [
        program.name,
        f"{written_threads} -> {advised_threads}"
        if program.changed
        else f"{written_threads}, unchanged",
        format_change(program.energy_change) if program.changed else "-",
        format_change(program.time_change) if program.changed else "-",
        format_change(best) if best < -0.005 else "-",
        f"{program.evaluation.decision.runs} of {len(program.runs)}",
    ]


def _summary(judged: list[JudgedProgram]) -> str:
    from advisor.core.words import change_words

    changed = [p for p in judged if p.changed]
    best = min(changed, key=lambda p: p.energy_change)
    runs = best.evaluation.decision.runs
    return (
        f"{len(changed)} of {len(judged)} programs save energy, most of all {best.name}: "
        f"{change_words(best.energy_change, best.time_change)}, known from {runs} runs. "
        "The others use all cores well and stay as they are."
    )


@contextmanager
def _own_place() -> Iterator[Path]:
    """Work in a folder that goes away, with settings and store of its own."""
    saved_environment, working_folder = dict(os.environ), Path.cwd()
    with TemporaryDirectory(prefix="advisor-demo-") as folder:
        place = Path(folder)
        for name in saved_environment:
            if name not in _KEPT and not name.startswith("LC_"):
                del os.environ[name]
        os.environ.update(
            ADVISOR_DB=str(place / "advisor.db"),
            ADVISOR_CONFIG_DIR=folder,
            ADVISOR_SOCKET=str(place / "socket"),
            XDG_CONFIG_HOME=folder,
            XDG_STATE_HOME=folder,
        )
        os.chdir(place)
        try:
            yield place
        finally:
            os.chdir(working_folder)
            os.environ.clear()
            os.environ.update(saved_environment)


@contextmanager
def _silence(quiet: bool) -> Iterator[None]:
    if not quiet:
        yield
        return
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()):
        yield


def _say(*lines: str) -> None:
    print("\n".join(lines), flush=True)
