"""The versions of the schema: which this program knows. Standard library only."""

from __future__ import annotations

import re
from pathlib import Path

from advisor.errors import StoreError
from advisor.paths import share

MIGRATIONS = tuple(
    re.findall(r"(?m)^def (m\d{4}_\w+)", share("db/migrations.py").read_text(encoding="utf-8"))
)
"""The schema this program knows: the names of db/migrations.py. They are read, as its text: to
import it would import sqlite-utils."""


def check_not_newer(applied: set[str], path: Path) -> None:
    """Raise StoreError when a newer program has changed the store's schema."""
    unknown = sorted(applied - set(MIGRATIONS))
    if unknown:
        raise StoreError(
            f"{path}: the store was written by a newer advisor (it has {', '.join(unknown)})",
            hint="upgrade hpc-advisor on this host",
        )
