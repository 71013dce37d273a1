"""Start the program: at the caller's desk, or at one with example data."""

from __future__ import annotations

from advisor_tui.app import AdvisorApp
from advisor_tui.session import Session


def start(
    *, db: str | None = None, socket: str | None = None, user: str | None = None,
    demo: bool = False,
) -> int:  # fmt: skip
    """Run until it is left; return the exit code. Raises AdvisorError for an unknown user."""
    if demo:
        from advisor_tui.demo import demonstration

        with demonstration() as desk:
            return _run(desk)
    return _run(Session.here(db=db, socket=socket, user=user))


def _run(desk: Session) -> int:
    app = AdvisorApp(desk)
    app.run()
    return app.return_code or 0
