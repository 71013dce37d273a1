"""Ask before something is destroyed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from advisor.errors import RefusedError, UsageError


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``."""
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def ask(args: argparse.Namespace, what: Iterable[str]) -> None:
    """Show at a terminal what will be forgotten, and ask; not with ``--yes``.

    Raises UsageError where nobody can answer, RefusedError for a no.
    """
    if args.yes:
        return
    if args.json or not sys.stdin.isatty():
        raise UsageError("no terminal to ask at", hint="give --yes to forget without a question")
    print("this will be forgotten:")
    for line in what:
        print(f"  {line}")
    try:
        answer = input("go on? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was forgotten")
