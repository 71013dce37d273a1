"""Lines of accounting files of any size: read in bounded memory, damaged ones counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError, UnknownNameError

LONGEST_LINE = 1 << 20
"""Characters of a line, beyond which the rest of it is a damaged line of its own."""


@dataclass(slots=True)
class DamagedLines:
    """How many lines of some files were no record, and where the first stands and why."""

    count: int = 0
    first: str = ""

    def add(self, path: Path, number: int, why: str) -> None:
        """Count a line."""
        self.count += 1
        self.first = self.first or f"{path}:{number}: {why}"


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file's lines with their numbers. Raises InputError where it cannot be read."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                yield number, line.rstrip("\r\n")
    except FileNotFoundError:
        raise UnknownNameError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
