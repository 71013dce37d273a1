"""What the list promised the last time, shown until all that decides is loaded and has decided.

It holds only where nothing was written since that a decision depends on, for the same person with
the same choices; the list is decided anew at once, whatever was remembered.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from advisor import __version__
from advisor.drafts import write_whole
from advisor.store.connection import StoreConnection
from advisor.store.marks import marks
from advisor_tui.session import Session
from advisor_tui.table import Cell

_OF_SUBMITTING = ("SBATCH_", "SLURM_", "PBS_", "QSUB_", "ADVISOR_")
"""How variables begin that say with what a job is submitted."""
_LARGEST = 1_000_000
"""Bytes of a file that is read."""

CellsByKey = Mapping[tuple[str, str], tuple[Cell, ...]]
"""The first cells of rows, by application and workload."""


def _place(session: Session) -> Path | None:
    """Return where a person's rows are kept; None where nothing is."""
    if session.foreign or session.demo is not None or not session.store.is_file():
        return None
    return session.sweeps.parent / "list.json"


def stamp(session: Session, store: StoreConnection) -> str:
    """Return what is another text once the rows may be others."""
    environment = sorted(i for i in os.environ.items() if i[0].startswith(_OF_SUBMITTING))
    circumstances = (
        __version__,
        session.user,
        str(session.store),
        session.chosen_version(),
        environment,
    )
    return hashlib.sha256(repr((circumstances, marks(store))).encode()).hexdigest()


def remembered(session: Session, store: StoreConnection) -> CellsByKey:
    """Return the rows of the last time, none where they may not hold or cannot be read."""
    path = _place(session)
    if path is None:
        return {}
    try:
        if path.stat().st_size > _LARGEST:
            return {}
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["stamp"] != stamp(session, store):
            return {}
        return {
            (str(row[0]), str(row[1])): tuple(_cell(cell) for cell in row[2])
            for row in content["rows"]
        }
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def remember(session: Session, was: str, rows: Iterable[tuple[str, str, Iterable[Cell]]]) -> None:
    """Keep rows that were decided when the stamp was ``was``; a full disk is no trouble."""
    path = _place(session)
    if path is None:
        return
    listed = [[application, workload, list(cells)] for application, workload, cells in rows]
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps({"stamp": was, "rows": listed}), mode=0o600)


def _cell(read: object) -> Cell:
    if isinstance(read, str):
        return read
    if isinstance(read, list) and len(read) == 2 and all(isinstance(part, str) for part in read):
        return read[0], read[1]
    raise ValueError(read)
