"""Bring a store up to date: the daemon has a process of its own do so, for it may take long."""

from __future__ import annotations

import sys
from pathlib import Path

from advisor.database import store_at
from advisor.errors import AdvisorError
from advisor.store.writer import Writer


def main(store: Path) -> None:
    """Upgrade a store; exit with a line for the log where that fails."""
    try:
        Writer(store).close()
    except AdvisorError as error:
        sys.exit(f"event=store-not-upgraded error={str(error)!r}")


if __name__ == "__main__":
    main(store_at(sys.argv[1]))
