"""What the actions of ``advisor profile`` share: the stored study, and the steps they add."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.cli.streams import complain
from advisor.errors import RefusedError

if TYPE_CHECKING:
    from advisor.lab.profile.study import ProfileStudy

_NOT_KEPT = {"verb", "module", "action", "db", "config_dir", "json", "tail", "application", "plot"}


def open_study(args: argparse.Namespace) -> ProfileStudy:
    """Return the application's study. Raises RefusedError where nothing is stored."""
    from advisor.lab.profile.study import load_study
    from advisor.store.reader import Reader

    path = paths.store_path(args.db)
    if not path.exists():
        raise RefusedError(
            f"no application profiles are stored of {args.application!r}",
            hint="advisor profile import DIR",
        )
    with Reader(path) as reader:
        study = load_study(reader, args.application)
    for note in study.runs.notes:
        complain(note)
    return study


def keep_step(args: argparse.Namespace, result: Mapping[str, Any], **more: object) -> int:
    """Store what was done with the arguments it was done with; return the step's number."""
    from advisor.store.profiled_runs import add_profile_step
    from advisor.store.writer import Writer

    given = {k: v for k, v in vars(args).items() if k not in _NOT_KEPT}
    plain = {k: str(v) if hasattr(v, "parts") else v for k, v in {**given, **more}.items()}
    with Writer(paths.store_path(args.db)) as writer:
        return add_profile_step(
            writer, args.application, args.action, plain, result, by=getpass.getuser()
        )


def say_notes(notes: list[str]) -> None:
    """Print what to know, each once, on standard error."""
    for note in dict.fromkeys(notes):
        complain(note)
