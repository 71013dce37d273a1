"""Progress of a long import, on a terminal only: what is being done, and how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONG_BYTES = 1_000_000
"""From this size of a file on, some 20,000 runs, people wait for its import."""
ImportStep = Callable[[str, int, int], None]
"""Called with what is being done, how many rows of it are done, and of how many (0: not known)."""


@contextmanager
def shown(path: Path) -> Iterator[ImportStep]:
    """Yield what shows a step of a file's import on standard error, and clears it at the end."""
    if not sys.stderr.isatty() or not path.exists() or path.stat().st_size < LONG_BYTES:
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)

        def step(what: str, completed: int, total: int) -> None:
            bar.update(task, description=what, completed=completed, total=total or None)

        yield step
