"""The command line's parser: mistakes are one line that says what was probably meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any, NoReturn

from advisor.core.nearest import nearest
from advisor.errors import UsageError


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of printing its usage, and suggests options and values."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse what is known; the value of an ``OPTIONS`` option may begin with a dash.

        Such a value is other programs' options (``--options '-N 1 -t 5'``), which argparse would
        read as options of its own.
        """
        words = iter(sys.argv[1:] if args is None else args)
        joined: list[str] = []
        for word in words:
            action = self._option_string_actions.get(word)
            if action is not None and action.metavar == "OPTIONS":
                word = "=".join((word, *islice(words, 1)))
            joined.append(word)
        parsed, unknown = super().parse_known_args(joined, namespace)
        vars(parsed).setdefault("parser", self)  # the deepest one answers first
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Raise UsageError; the hint says where help is."""
        raise UsageError(message, hint=f"{self.prog} --help says more")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or version; argparse's own hides that it cannot be written."""
        (file or sys.stderr).write(message)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse all arguments. Raises UsageError, which names the nearest option there is."""
        parsed, unknown = self.parse_known_args(args, namespace)
        parser: Parser = vars(parsed).pop("parser")
        if unknown:
            option = next((word for word in unknown if word.startswith("-")), "")
            if not option:
                parser.error(f"too many arguments: {' '.join(unknown)}")
            close = nearest(option.split("=")[0], parser._option_string_actions)
            hint = f"; did you mean {close[0]}?" if close else ""
            parser.error(f"no option {option}{hint}")
        return parsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        close = nearest(str(value), choices)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(None, f"there is no {action.dest} {value!r}; {hint}")
        raise argparse.ArgumentError(action, f"there is no {value!r}; {hint}")
