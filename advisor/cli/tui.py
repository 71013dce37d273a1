"""``advisor tui``: browse the options in the terminal, pick a point, override."""

from __future__ import annotations

import argparse
import sys

from advisor.errors import AdvisorError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor tui`` takes."""
    parser.description = (
        "Browse what the advisor knows of your applications and choose: a configuration, a goal, "
        "or no changes at all. The last line lists the keys; ? explains the page."
    )
    parser.add_argument("--demo", action="store_true", help="show example data; needs no store")
    parser.add_argument("--socket", metavar="FILE", help="the daemon's socket (or ADVISOR_SOCKET)")
    parser.add_argument(
        "--user", metavar="USER", help="show what this user would see; choices cannot be changed"
    )


def run(args: argparse.Namespace) -> int:
    """Start the TUI and return when it is left."""
    try:
        import textual  # noqa: F401
    except ImportError:
        raise AdvisorError(
            "the TUI needs textual, and it is not installed",
            hint="install hpc-advisor again: its requirement textual is missing",
        ) from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and not _is_served():
        raise AdvisorError("the TUI needs a terminal", hint="advisor options prints what it shows")
    from advisor_tui.app import start

    return start(db=args.db, socket=args.socket, user=args.user, demo=args.demo)


def _is_served() -> bool:
    """Tell whether textual-serve started this."""
    import os

    return bool(os.environ.get("TEXTUAL_DRIVER"))
