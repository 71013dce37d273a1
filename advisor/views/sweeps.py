"""Sweeps to look after: one's own from their folders, others' from the store; start and stop."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.interpreter import own_python
from advisor.store.reader import Reader
from advisor.training import progress
from advisor.training.progress import Progress

MOST = 200
"""Sweeps listed."""
_PLAN_LASTS_S = 120.0
"""Seconds that planning a sweep may take."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One sweep as the list shows it; ``own`` is all about it where its folder is the caller's."""

    id: str
    application: str
    workload: str
    node_type: str
    user: str
    state: str
    created_at: str
    done: int
    planned: int
    detail: str = ""
    own: Progress | None = None

    @property
    def words(self) -> str:
        """Its state in words."""
        folder_progress = self.own
        if folder_progress is None or folder_progress.state not in ("requested", "running"):
            return self.state
        return "running" if folder_progress.alive else "interrupted"


def listed(root: Path, store: Path | None, user: str) -> list[SweepRow]:
    """Return a folder's sweeps for a store and, of others, those the store knows; newest first.

    Raises StoreError when the store cannot be read; without one only the folder is looked at.
    """
    own_sweeps = progress.every(root, store)
    sweeps = {p.id: _own_row(p, user) for p in own_sweeps}
    if store is not None and store.exists():
        with Reader(store) as reader:
            for sweep in _stored_rows(reader):
                sweeps.setdefault(sweep.id, sweep)
    return sorted(sweeps.values(), key=lambda s: (s.created_at, s.id), reverse=True)[:MOST]


def _own_row(p: Progress, user: str) -> SweepRow:
    return SweepRow(
        p.id,
        p.application,
        p.workload,
        p.node_type,
        user,
        p.state,
        p.created_at,
        p.done,
        p.planned,
        p.detail,
        p,
    )


def _stored_rows(reader: Reader) -> list[SweepRow]:
    rows = reader.rows(
        "SELECT r.id, w.application, w.name, r.node_type, r.user, r.state, r.created_at,"
        " (SELECT count(*) FROM training_runs AS t WHERE t.request_id = r.id"
        " AND t.state IN ('done', 'failed')),"
        " coalesce(json_array_length(r.plan, '$.runs.design'), 0)"
        " + coalesce(json_array_length(r.plan, '$.runs.confirm'), 0), r.detail"
        " FROM training_requests AS r JOIN workloads AS w ON w.id = r.workload_id"
        " ORDER BY r.created_at DESC LIMIT ?",
        (MOST,),
    )
    return [SweepRow(*row) for row in rows]


def plan(arguments: Sequence[str], folder: Path) -> str:
    """Return what a sweep would do and cost, as ``advisor train --dry-run`` prints it.

    ``arguments`` are those of the command line, the script first. Raises AdvisorError.
    """
    return _advisor([*arguments, "--dry-run"], folder)


def start(arguments: Sequence[str], folder: Path) -> str:
    """Start a sweep in the background and return its id. Raises AdvisorError."""
    return str(_json([*arguments, "--yes", "--detach", "--json"], folder)["id"])


def resume(sweep: Progress, arguments: Sequence[str] = ()) -> None:
    """Go on with a sweep in the background. Raises AdvisorError."""
    progress.in_background(sweep.id, sweep.folder.parent, arguments)


def _json(arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    try:
        data = json.loads(_advisor(arguments, folder))
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise AdvisorError("advisor train printed something unexpected")
    return data


def _advisor(arguments: Sequence[str], folder: Path) -> str:
    """Run ``advisor train`` as a command of its own: planning loads what is not needed here."""
    try:
        completed = subprocess.run(
            own_python("advisor", "train", *arguments),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PLAN_LASTS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdvisorError(f"advisor train cannot be run: {error}") from None
    if completed.returncode:
        lines = completed.stderr.strip().splitlines() or ["it failed without a message"]
        raise AdvisorError(lines[-1].removeprefix("advisor: "))
    return completed.stdout
