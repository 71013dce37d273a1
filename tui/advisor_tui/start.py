"""Start the program: at the caller's desk, or at one with example data."""

from __future__ import annotations

import os

from advisor.errors import AdvisorError
from advisor_tui.app import AdvisorApp
from advisor_tui.desk import Desk


def start(
    *, db: str | None = None, socket: str | None = None, user: str | None = None,
    demo: bool = False,
) -> int:  # fmt: skip
    """Run until it is left; return the exit code. Raises AdvisorError for an unknown user."""
    if demo:
        from advisor_tui.demo import demonstration

        with demonstration() as desk:
            return _run(desk)
    desk = Desk.here(db=db, socket=socket, user=user)
    if db is None and not os.environ.get("ADVISOR_DB") and not desk.store.exists():
        _ask_daemon_for_store(desk)
    return _run(desk)


def _ask_daemon_for_store(desk: Desk) -> None:
    """Read the daemon's store where the caller has none and may read that one."""
    from pathlib import Path

    from advisor.service.protocol import call

    try:
        store = Path(str(call(desk.socket, {"op": "status"}, timeout_s=0.3)["store"]))
    except (AdvisorError, KeyError):
        return
    if os.access(store, os.R_OK):
        desk.store = store


def _run(desk: Desk) -> int:
    app = AdvisorApp(desk)
    app.run()
    return app.return_code or 0
