"""Colour where a person reads: what saves is green, what costs more is yellow."""

from __future__ import annotations

import os
import re
import sys

_LESS = re.compile(r"−\d[\d.]* %")
_MORE = re.compile(r"\+\d[\d.]* %")
_GREEN, _YELLOW, _PLAIN = "\033[32m", "\033[33m", "\033[0m"


def coloured() -> bool:
    """Tell whether standard output is a terminal that nobody asked to keep plain (NO_COLOR)."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def say(*lines: str) -> None:
    """Print lines, changes in percent in colour on a terminal."""
    paint = coloured()
    for line in lines:
        print(painted(line) if paint else line)


def painted(line: str) -> str:
    """Return a line with its changes in colour; of time and energy less is better."""
    line = _LESS.sub(lambda m: f"{_GREEN}{m[0]}{_PLAIN}", line)
    return _MORE.sub(lambda m: f"{_YELLOW}{m[0]}{_PLAIN}", line)
