"""A copy of what the daemon shows its caller, for whoever cannot read the store itself."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.database import is_readable
from advisor.errors import AdvisorError
from advisor.store.port import Database

MOST_PAGES = 400
"""A copy is made of no more: 4000 models, or 20,000 jobs."""

_DEBT_S = 10.0
"""A user who takes too much of a daemon is answered again within so long (service/limits.py)."""

Ask = Callable[[dict[str, object]], Mapping[str, Any]]


def copy(
    path: Path,
    ask: Ask,
    operations: Sequence[str],
    *,
    application: str | None = None,
    job: str | None = None,
) -> None:
    """Make a store at ``path``, of mode 0600, from the pages that ``ask`` returns for requests.

    ``application`` bounds the options, ``job`` the history. Raises AdvisorError when a page is
    not answered.
    """
    from advisor.store.writer import Writer

    bounds = {"options": {"application": application}, "history": {"job": job}}
    with Writer(path) as writer, writer.transaction() as db:
        for operation in operations:
            _copy_pages(db, ask, {"op": operation, **bounds.get(operation, {})})


def _copy_pages(db: Database, ask: Ask, request: dict[str, object]) -> None:
    page_start: object = 0
    for _ in range(MOST_PAGES):
        answer = ask({k: v for k, v in {**request, "after": page_start}.items() if v is not None})
        for table in _TABLES:
            for row in answer.get(table, ()):
                if table == "models":
                    blobs = {n: base64.b64decode(row.get(n) or "") for n in ("options", "sizes")}
                    row = {**row, **blobs}
                columns = [c for c in _columns(db, table) if c in row]
                marks = ", ".join("?" * len(columns))
                db.execute(
                    f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({marks})",
                    [row[c] for c in columns],
                )
        page_start = answer.get("next")
        if page_start is None:
            return


_TABLES = (
    "config_versions",
    "node_types",
    "workloads",
    "models",
    "observations",
    "training_requests",
    "training_runs",
    "decisions",
    "outcomes",
)


def _columns(db: Database, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def store_seen(
    db: str | None,
    *operations: str,
    socket: str | None = None,
    application: str | None = None,
    job: str | None = None,
    of_daemon: bool = False,
) -> Path:
    """Return a store to read: the caller's or the site's, else a copy of what the daemon shows.

    ``of_daemon``: the copy, even where the caller has a store.

    The copy holds the site and what the ``operations`` add, for one ``application`` or ``job``, and
    goes when this process ends. Where there is neither, the path that is missing.
    """
    from advisor import paths

    store = paths.store_path(db, socket=socket)
    daemon = paths.socket_path(socket)
    named = db or os.environ.get("ADVISOR_DB")
    seen = named or os.access(store, os.R_OK) or not os.path.exists(daemon)  # noqa: PTH110
    if seen and not of_daemon:
        return store
    import atexit
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="advisor-seen-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        requests = ("applications", *operations)
        copy(folder / "advisor.db", _asker(daemon), requests, application=application, job=job)
    except AdvisorError:
        if of_daemon:
            raise
        return store
    return folder / "advisor.db"


def old_copy(db: str | None) -> str:
    """Return how old the copy of the store is that is read here, "" for one that is kept fresh."""
    from advisor import paths
    from advisor.core.protocol import call
    from advisor.core.units import format_duration
    from advisor.store.connection import OLD_S, age_of_copy

    store = paths.store_path(db)
    try:
        if is_readable(store):
            age_s = age_of_copy(store)
        else:
            age = call(paths.socket_path(), {"op": "status"}).get("store_age_s")
            age_s = age if isinstance(age, float) else None
    except AdvisorError:
        return ""
    if age_s is None or age_s < OLD_S:
        return ""
    return f"what is known here is {format_duration(age_s)} old: the store's host publishes no more"


def _asker(daemon: Path) -> Ask:
    """Return what asks a daemon, and waits where it is asked too much."""
    from advisor.core.protocol import TOO_MANY, call

    def ask(request: dict[str, object]) -> Mapping[str, Any]:
        until = time.monotonic() + _DEBT_S
        while True:
            try:
                return call(daemon, request, 10.0)
            except AdvisorError as error:
                if TOO_MANY not in error.message or time.monotonic() > until:
                    raise
                time.sleep(0.5)

    return ask
