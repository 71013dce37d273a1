"""The versions of the schema: which this program knows. Standard library only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, StoreError
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


def load_steps() -> Any:
    """Return the module db/migrations.py, whose functions are the steps. Raises AdvisorError."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = share("db/migrations.py")
    spec = spec_from_file_location("advisor_db_migrations", path)
    if spec is None or spec.loader is None:
        raise AdvisorError(f"{path} cannot be loaded", hint="reinstall hpc-advisor")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
