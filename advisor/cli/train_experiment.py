"""The sweeps that ``advisor train`` makes one after the other: of sizes, or of an experiment."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor import laboratory
from advisor.drafts import write_whole
from advisor.errors import AdvisorError
from advisor.training.experiment import FORMAT, Experiment, is_experiment
from advisor.training.state import SeriesSize, SweepState


@dataclass(frozen=True, slots=True)
class AdoptedSweep:
    """One sweep to make: the command line that it stands for, and its experiment, if it is of one.

    ``earlier`` is the last sweep of the same experiment with the same parameters; ``size``: which
    of several sizes it is.
    """

    args: argparse.Namespace
    experiment: Experiment | None = None
    earlier: SweepState | None = None
    size: SeriesSize | None = None


def adopted(args: argparse.Namespace, root: Path) -> list[AdoptedSweep]:
    """Return the sweeps of an experiment file, or the one of a subject that is no such file.

    Raises InputError, and LaboratoryError where nothing that reads such files is installed.
    """
    path = Path(args.subject or "")
    if not (is_experiment(path) and path.is_file()):
        return [AdoptedSweep(args)]
    sweeps: list[AdoptedSweep] = _reader().read_sweeps(args, root)
    return sweeps


def read_again(sweep: AdoptedSweep) -> dict[str, Any]:
    """Read the outputs of an earlier sweep's runs again, by today's files: HPCProbe's ``reget``.

    Returns what became of it, for JSON. Raises RefusedError where there is no earlier sweep.
    """
    reading_record: dict[str, Any] = _reader().read_again(sweep)
    return reading_record


def _reader() -> Any:
    return laboratory.load("importers", FORMAT, "train of experiment files")


def keep_script(text: str, path: Path) -> Path:
    """Write a job script that was made of a file. Raises AdvisorError."""
    data = text.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data, 0o755)
    except OSError as error:
        raise AdvisorError(
            f"{path} cannot be written: {error.strerror}", hint="choose another --work-dir"
        ) from None
    return path
