"""The TUI's example store, made once in a process and copied: it takes a third of a second."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from advisor_tui import demo


def example_store(path: Path, user: str) -> None:
    """Make the example store of a user, whose folder is there."""
    path.write_bytes(_content(user))
    path.chmod(0o600)  # as of every store that is made


@cache
def _content(user: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "advisor.db"
        demo.build(path, user)
        assert [*path.parent.iterdir()] == [path]  # nothing is left in a log
        return path.read_bytes()
