"""Work here, one task after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from advisor.core.workers_setup import WorkersSetup
from advisor.workers.base import Done, Task, done, perform


class Here:
    """The default: this process does it."""

    DESCRIPTION: ClassVar[str] = "in this process, one after the other"

    def __init__(self, setup: WorkersSetup) -> None:
        pass

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Yield what came of every task."""
        for number, task in enumerate(tasks):
            yield done(number, perform(*task))
