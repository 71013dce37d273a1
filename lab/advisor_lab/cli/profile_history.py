"""``advisor lab profile history`` and ``redo``: what was done, and one step of it again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from advisor import paths
from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm
from advisor.errors import RefusedError, UsageError
from advisor.store.reader import Reader
from advisor_lab.profile.store import ProfileStep, profile_files, profile_steps

_MODULES = {
    "import": "profile_import",
    "classify": "profile_classify",
    "fit": "profile_fit",
    "adjust": "profile_adjust",
    "extrapolate": "profile_extrapolate",
}
_PATHS = ("folder", "output")


@dataclass(frozen=True, slots=True)
class ProfileHistoryAnswer(JsonForm):
    """What was done with an application's profiles."""

    application: str
    steps: Sequence[ProfileStep]


def run(args: argparse.Namespace) -> int:
    """List the steps, or do one again."""
    path = paths.whole_store(args.db)
    if not path.exists():
        raise RefusedError("nothing is stored yet", hint="advisor lab profile import DIR")
    with Reader(path) as reader:
        profile_files(reader, args.application)  # refuses an application that nobody knows
        steps = profile_steps(reader, args.application)
    return _redo(args, steps) if args.action == "redo" else _history(args, steps)


def _history(args: argparse.Namespace, steps: list[ProfileStep]) -> int:
    if args.json:
        print_json("profile-history", ProfileHistoryAnswer(args.application, steps))
        return 0
    print_table(
        ("step", "action", "with", "by", "at"),
        [(s.number, s.action, _text(s), s.made_by, s.created_at[:19]) for s in steps],
    )
    return 0


def _text(step: ProfileStep) -> str:
    shown = [
        f"{name} {value}" if value is not True else name
        for name, value in step.arguments.items()
        if value not in (None, [], "", False, 0) and name != "setup_text"
    ]
    return ", ".join(shown)


def _redo(args: argparse.Namespace, steps: list[ProfileStep]) -> int:
    step = next((s for s in steps if s.number == args.step), None)
    if step is None:
        raise UsageError(
            f"there is no step {args.step}", hint=f"advisor lab profile history {args.application}"
        )
    arguments = {k: Path(v) if k in _PATHS else v for k, v in step.arguments.items()}
    if step.action == "import":  # kept with one folder before files could be named
        arguments["places"] = [
            Path(p) for p in arguments.get("places", [arguments.pop("folder", "")])
        ]
    if arguments.get("setup"):
        arguments["setup"] = Path(str(arguments["setup"]))
    step_args = argparse.Namespace(
        **arguments,
        action=step.action,
        application=args.application,
        db=args.db,
        config_dir=args.config_dir,
        json=args.json,
        plot=None,
    )
    code: int = import_module(f"advisor_lab.cli.{_MODULES[step.action]}").run(step_args)
    return code
