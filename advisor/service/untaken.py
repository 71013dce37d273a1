"""How much of each user waits in the spool: a file's name says whose it is and what it holds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import get_args

from advisor.core.delivery import DeliveryKind
from advisor.errors import AdvisorError

MAX_UNTAKEN = 10_000
MAX_UNTAKEN_BYTES = 8_000_000
"""Measured runs of one user that wait to be taken into the store, and their bytes."""

_KINDS = "|".join(get_args(DeliveryKind))
_NAME = re.compile(rf"(?:{_KINDS})-\d+-[0-9a-f]+-u(\d+)-n(\d+)\.json")


class Untaken:
    """Keeps count of what waits in ``folder``. What was taken is noticed when it matters."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, tuple[int, int, int]] = {}
        self._runs: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        for name in self._names():
            try:
                self.add(name, (folder / name).stat().st_size)
            except OSError:  # taken meanwhile
                continue

    def add(self, name: str, size: int) -> None:
        """Note a file by its name."""
        if match := _NAME.fullmatch(name):
            uid, runs = int(match[1]), int(match[2])
            self._files[name] = uid, runs, size
            self._runs[uid] += runs
            self._bytes[uid] += size

    def check(self, uid: int, runs: int, size: int) -> None:
        """Raise AdvisorError where a user may leave no more."""
        if self._fits(uid, runs, size):
            return
        present_names = self._names()
        for name in [n for n in self._files if n not in present_names]:
            whose, count, length = self._files.pop(name)
            self._runs[whose] -= count
            self._bytes[whose] -= length
        if not self._fits(uid, runs, size):
            raise AdvisorError(
                f"{self._runs[uid]} runs of yours, {self._bytes[uid]} bytes, wait to be stored; "
                f"the limit is {MAX_UNTAKEN} runs and {MAX_UNTAKEN_BYTES // 1_000_000} MB",
                hint="send them again when the next `advisor collect` has taken these",
            )

    def waiting(self) -> int:
        """Return how many files wait."""
        return len(self._names())

    def _fits(self, uid: int, runs: int, size: int) -> bool:
        return (
            self._runs[uid] + runs <= MAX_UNTAKEN and self._bytes[uid] + size <= MAX_UNTAKEN_BYTES
        )

    def _names(self) -> set[str]:
        try:
            return {path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name)}
        except OSError:
            return set()
