"""How ``advisor train`` takes HPCProbe's experiment file: as a job script and the axes to vary."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path

from advisor.core.inventory import NodeType
from advisor.errors import AdvisorError
from advisor.training.experiment import Experiment, is_experiment, read_experiment

FOLDER = "experiments"
"""Where the job scripts made of experiments are, under the folder of sweeps."""


def adopt(args: argparse.Namespace, root: Path) -> Experiment | None:
    """Make an experiment's job script the subject, and its values the axes; None for no experiment.

    What the command line says goes before the file. Options without a counterpart are warned of.
    """
    path = Path(args.subject or "")
    if not (is_experiment(path) and path.is_file()):
        return None
    experiment = read_experiment(path)
    args.subject = str(_written(experiment, root / FOLDER))
    args.nodes = args.nodes or str(experiment.nodes)
    args.threads = args.threads or ",".join(map(str, experiment.threads))
    for note in experiment.notes:
        print(f"advisor: {path.name}: {note}", file=sys.stderr)
    print(f"advisor: {path.name}: its job script is {args.subject}", file=sys.stderr)
    return experiment


def frequencies(experiment: Experiment | None, node_type: NodeType) -> tuple[int, ...]:
    """Return the experiment's frequency caps that the node type has; warn of the others."""
    if experiment is None:
        return ()
    known = tuple(f for f in experiment.freqs_khz if f in node_type.freq_khz)
    missing = len(experiment.freqs_khz) - len(known)
    if missing and node_type.freq_khz:
        print(
            f"advisor: {missing} of the experiment's {len(experiment.freqs_khz)} frequency caps "
            f"are no steps of {node_type.name} and are left out",
            file=sys.stderr,
        )
    return known


def _written(experiment: Experiment, folder: Path) -> Path:
    data = experiment.script.encode()
    name = re.sub(r"[^\w.+-]", "_", experiment.name)
    path = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}.sh"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_bytes(data)
        draft.chmod(0o755)
        draft.replace(path)
    except OSError as error:
        raise AdvisorError(
            f"{path} cannot be written: {error.strerror}", hint="choose another --work-dir"
        ) from None
    return path
