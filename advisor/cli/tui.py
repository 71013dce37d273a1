"""``advisor tui``: browse the options in the terminal, pick a point, override."""

from __future__ import annotations

import argparse
import gc
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
    parser.add_argument(
        "--pictures",
        choices=("auto", "kitty", "off"),
        help="draw in pixels: auto (the default) where TERM says that the terminal is kitty or "
        "Ghostty, kitty where it has kitty's graphics protocol under another name, off never",
    )
    parser.add_argument(
        "--browser",
        metavar="[HOST:]PORT",
        help="serve it to a browser, at the address with a key that is printed; "
        "HOST is localhost unless a portal on another machine asks (needs the extra tui)",
    )


def run(args: argparse.Namespace) -> int:
    """Start the TUI and return when it is left."""
    gc.disable()  # nothing of what is loaded is garbage, and the first screen is waited for
    try:
        return _start(args)
    finally:
        gc.enable()


def _start(args: argparse.Namespace) -> int:
    try:
        import textual  # noqa: F401
    except ImportError:
        raise AdvisorError(
            "the TUI needs textual, and it is not installed",
            hint="install hpc-advisor again: its requirement textual is missing",
        ) from None
    if args.browser is not None:
        return _serve(args)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and not _is_served():
        raise AdvisorError("the TUI needs a terminal", hint="advisor options prints what it shows")
    from advisor_tui.app import start

    return start(
        db=args.db,
        socket=args.socket,
        user=args.user,
        demo=args.demo,
        pictures=args.pictures or "",
    )


def _serve(args: argparse.Namespace) -> int:
    try:
        import textual_serve  # noqa: F401
    except ImportError:
        raise AdvisorError(
            "--browser needs textual-serve, and it is not installed",
            hint="pip install 'hpc-advisor[tui]'",
        ) from None
    from advisor_tui.browser import serve

    given = {
        "--db": args.db,
        "--config-dir": args.config_dir,
        "--socket": args.socket,
        "--user": args.user,
    }
    words = [word for name, value in given.items() if value for word in (name, value)]
    return serve(args.browser, [*words, *(["--demo"] if args.demo else [])])


def _is_served() -> bool:
    """Tell whether textual-serve started this."""
    import os

    return bool(os.environ.get("TEXTUAL_DRIVER"))
