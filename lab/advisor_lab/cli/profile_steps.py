"""What the actions of ``advisor lab profile`` share: the stored study, and the steps they add."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.cli.streams import complain
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.core.count_laws import CountLaws
    from advisor.store.reader import Reader
    from advisor_lab.profile.study import ProfileStudy

_NOT_KEPT = {"verb", "module", "action", "db", "config_dir", "json", "tail", "application", "plot"}
_CHANGE = ("import", "classify", "fit", "adjust")
"""Actions after which the profiles say something else."""


def open_study(args: argparse.Namespace) -> ProfileStudy:
    """Return the application's study. Raises RefusedError where nothing is stored.

    Raises StoreError where there is no store.
    """
    from advisor.store.reader import Reader
    from advisor_lab.profile.study import load_study

    path = paths.whole_store(args.db)
    with Reader(path) as reader:
        study = load_study(reader, args.application)
    for note in study.runs.notes:
        complain(note)
    return study


def keep_step(args: argparse.Namespace, result: Mapping[str, Any], **more: object) -> int:
    """Store what was done with the arguments it was done with; return the step's number.

    What the profiles say from now on of the application's sizes is kept with it.
    """
    from advisor.derive.worker import deriving
    from advisor.store.count_laws import save_count_laws
    from advisor_lab.profile.store import add_profile_step

    arguments = {k: v for k, v in vars(args).items() if k not in _NOT_KEPT}
    plain = {k: str(v) if hasattr(v, "parts") else v for k, v in {**arguments, **more}.items()}
    with deriving(paths.whole_store(args.db), first=args.application) as writer:
        number = add_profile_step(
            writer, args.application, args.action, plain, result, by=getpass.getuser()
        )
        if args.action in _CHANGE:
            save_count_laws(writer, args.application, _laws(writer, args.application))
        return number


def _laws(reader: Reader, application: str) -> CountLaws | None:
    from advisor_lab.profile.count_laws import count_laws
    from advisor_lab.profile.study import load_study

    try:
        return count_laws(load_study(reader, application))
    except AdvisorError:  # only runs to test with, or runs since the threads were classified
        return None


def say_notes(notes: list[str]) -> None:
    """Print what to know, each once, on standard error."""
    for note in dict.fromkeys(notes):
        complain(note)
