"""Commands after ``--``: argparse alone loses them when options stand in between."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any


def take_tail(parser: argparse.ArgumentParser, dest: str = "command") -> None:
    """Make ``parser`` put everything after the first ``--`` into the list ``dest``, untouched."""
    original = parser.parse_known_args

    def parse(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        tail: list[str] = []
        if "--" in words:
            at = words.index("--")
            words, tail = words[:at], words[at + 1 :]
        parsed, rest = original(words, namespace)
        setattr(parsed, dest, tail)
        return parsed, rest

    parser.parse_known_args = parse  # type: ignore[assignment,method-assign]
