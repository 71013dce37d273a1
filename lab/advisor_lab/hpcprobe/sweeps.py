"""``advisor train EXPERIMENT.ini``: the sweeps of one experiment file."""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.cli.train_experiment import AdoptedSweep, keep_script
from advisor.errors import AdvisorError, RefusedError
from advisor.schedulers.choose import default
from advisor.schedulers.results import read_results
from advisor.training import state as states
from advisor.training.experiment import Experiment
from advisor.training.state import SweepState
from advisor_lab.hpcprobe.experiment import read_experiments
from advisor_lab.hpcprobe.postprocess import after_run

_SCRIPTS = "experiments"
"""Where the job scripts made of experiments are, under the folder of sweeps."""


def read_sweeps(args: argparse.Namespace, root: Path) -> list[AdoptedSweep]:
    """Return the sweeps of the experiment file that ``args.subject`` names.

    The command line goes before the file. Where the sweep differs from the file, a line says so.
    """
    path = Path(args.subject)
    parts = read_experiments(path, args.scheduler or default().NAME)
    for note in dict.fromkeys(note for experiment in parts for note in experiment.notes):
        print(f"advisor: {path.name}: {note}", file=sys.stderr)
    if len(parts) > 1:
        print(
            f"advisor: {path.name}: {len(parts)} sweeps, one for each value of execParam and "
            "number of nodes",
            file=sys.stderr,
        )
    sweeps = []
    for experiment in parts:
        sweep_args = copy.copy(args)
        sweep_args.subject = str(_written_script(experiment, root / _SCRIPTS))
        sweep_args.nodes = args.nodes or str(experiment.nodes)
        sweep_args.threads = args.threads or ",".join(map(str, experiment.threads))
        if not experiment.reget:
            print(f"advisor: {path.name}: its job script is {sweep_args.subject}", file=sys.stderr)
        sweeps.append(AdoptedSweep(sweep_args, experiment, _earlier_sweep(root, experiment)))
    return sweeps


def _written_script(experiment: Experiment, folder: Path) -> Path:
    name = re.sub(r"[^\w.+-]", "_", experiment.name)
    digest = hashlib.sha256(experiment.script.encode()).hexdigest()[:8]
    return keep_script(experiment.script, folder / f"{name}-{digest}.sh")


def _earlier_sweep(root: Path, experiment: Experiment) -> SweepState | None:
    if not (experiment.go_on or experiment.reget):
        return None
    settings = experiment.after
    matching = [
        s
        for s in _sweeps(root)
        if s.settings.after.get("experiment") == settings["experiment"]
        and all(
            s.settings.after.get("parameters", {}).get(n) == settings["parameters"].get(n)
            for n in ("execParam", "nodes", "nodePEs", "threadPlacement")
        )
    ]
    return max(matching, key=lambda s: (s.created_at, s.id), default=None)


def _sweeps(root: Path) -> Iterator[SweepState]:
    for path in root.glob("*/sweep.json"):
        with contextlib.suppress(AdvisorError):
            yield states.load(path.parent)


def read_again(sweep: AdoptedSweep) -> dict[str, Any]:
    """Read the outputs of an earlier sweep's runs again, by today's files: HPCProbe's ``reget``.

    Returns what became of it, for JSON. Raises RefusedError where there is no earlier sweep.
    """
    state, experiment = sweep.earlier, sweep.experiment
    assert experiment is not None
    if state is None:
        raise RefusedError(
            f"reget: no sweep of experiment {experiment.name} has been made with --work-dir "
            "and parameters as they are",
            hint="set reget = False to make it",
        )
    processor = after_run(experiment.after, state.folder, Path(state.settings.working_folder))
    processor.forget()
    results, problems = [], []
    for name, stage in state.stages.items():
        job = state.job(name)
        good = {r.seq: r for r in read_results(job.folder / "results.jsonl") if r.ok}
        for run in stage.runs:
            if run.seq in good:
                problem = processor.take(job, run, good[run.seq])
                problems += [problem] if problem else []
                results.append((run, good[run.seq]))
    paths = processor.summarise(results)
    return {
        "id": state.id,
        "runs": len(results),
        "summary": str(paths[-1]),
        "problems": list(dict.fromkeys(problems)),
    }
