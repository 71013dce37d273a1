"""How verbs print: one JSON object for programs, tables for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from advisor.cli.colour import say
from advisor.cli.streams import encodes_all
from advisor.core.codec import AtLeast, JsonForm
from advisor.views.tables import COMMENTS, FORMS, table

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class ErrorAnswer(JsonForm):
    """Any verb that fails prints this in place of its answer."""

    error: str
    hint: Annotated[str, "What to do; may be empty."]
    exit_code: Annotated[int, AtLeast(1)]


def print_json(verb: str, data: Mapping[str, object] | JsonForm) -> None:
    """Print one JSON object with its schema name; NaN and infinities become null.

    What the locale cannot print is escaped, so that programs read the same everywhere.
    """
    answer = {
        "schema": f"advisor/{verb}/1",
        **(data.to_dict() if isinstance(data, JsonForm) else data),
    }
    plain = not encodes_all()
    try:
        text = json.dumps(answer, ensure_ascii=plain, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(_clean_dict(answer), ensure_ascii=plain)
    print(text)


def _clean_dict(data: Mapping[str, object]) -> dict[str, object]:
    return {str(k): _clean(v) for k, v in data.items()}


def _clean(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return _clean_dict(value)
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    return value


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print an aligned table; columns whose cells all look like numbers are right-aligned."""
    say(*table(headers, rows))


def add_format_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--format``, the form of tables."""
    parser.add_argument(
        "--format",
        choices=tuple(FORMS),
        default="text",
        help="how tables are printed, for papers and spreadsheets (default: text)",
    )


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Prints tables in one of the forms of :mod:`advisor.views.tables`, and lines between them.

    Forms that take no prose get such lines as comments.
    """

    form: str = "text"

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table."""
        if self.form != "text":
            say("")
        say(*FORMS[self.form](headers, rows))
        if self.form != "text":
            say("")

    def say(self, text: str = "") -> None:
        """Print lines between tables."""
        mark = COMMENTS.get(self.form, "")
        say(*(f"{mark}{line}" if line else "" for line in text.split("\n")))
