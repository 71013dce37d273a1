"""Cells of other programs' files: read by column name, each mistake with file, line and column."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError

MOST_BYTES = 500_000_000
"""Largest table that is read; more is probably another file. Chosen, not measured."""


def read_text(path: Path) -> str:
    """Return a file's text. Raises InputError where it cannot be read or is not UTF-8."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than {MOST_BYTES // 1_000_000} MB")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8 text"
        ) from None
    if not text.strip():
        raise InputError(f"{path} is empty")
    return text


@dataclass(frozen=True, slots=True)
class FileLine:
    """One row: its place in the file, and its cells by column name."""

    path: Path
    number: int
    cells: dict[str, str]

    def bad(self, column: str, what: str) -> InputError:
        """Return the error for one cell."""
        return InputError(f"{self.path}, line {self.number}, {column}: {what}")

    def first(self, names: Sequence[str]) -> str | None:
        """Return the first of some columns that there is, None without any."""
        return next((name for name in names if name in self.cells), None)

    def text(self, names: Sequence[str]) -> str:
        """Return a text, "" where there is no such column."""
        name = self.first(names)
        return self.cells[name].strip() if name else ""

    def number_of(self, names: Sequence[str]) -> float | None:
        """Return a number from 0 up, None where there is no such column. Raises InputError."""
        name = self.first(names)
        return None if name is None else self.parse(name, self.cells[name])

    def parse(self, column: str, text: str) -> float:
        """Return a number from 0 up. Raises InputError."""
        text = text.strip()
        if not text:
            raise self.bad(column, "is blank")
        if re.fullmatch(r"[+-]?\d+,\d+", text):
            raise self.bad(column, f"{text!r} has a decimal comma; write a point")
        try:
            value = float(text if "_" not in text else "no number")
        except ValueError:
            raise self.bad(column, f"{text!r} is not a number") from None
        if not math.isfinite(value):
            raise self.bad(column, f"{text!r} is not a finite number")
        if value < 0:
            raise self.bad(column, f"{text!r} is negative")
        return value
