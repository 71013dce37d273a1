"""A run on this machine that is watched: its environment, and the process beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.early import beside_words, role_of


class WatchedHere:
    """Holds a run's folder of rings and the process beside it; nothing where it is not watched."""

    def __init__(
        self, job: SweepJob, run: PlannedRun, attempt: int, *, metered: bool, root: Path
    ) -> None:
        self._words: list[str] = []
        self._rings: Path | None = None
        self._beside: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        if job.watch is None or not role_of(job, run):
            return
        try:
            self._rings = Path(tempfile.mkdtemp(prefix="advisor-watch-"))
        except OSError:
            return  # no room: the run is as it would be without
        before = os.environ.get("LD_PRELOAD", "")
        library = str(job.watch.library)
        self.environment = {
            "ADVISOR_WATCH": str(self._rings),
            "LD_PRELOAD": f"{library} {before}".strip(),
        }
        words = beside_words(job, run, attempt, metered=metered)
        self._words = [*words, "--sys", str(root), "--rings", str(self._rings)]

    def __enter__(self) -> Self:
        return self

    def start(self, pid: int) -> None:
        """Stand beside the run, whose processes are a group of that id."""
        if not self._words:
            return
        try:
            self._beside = subprocess.Popen(
                [*self._words, "--group", str(pid)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:
            self._words = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let it keep the run, or end what is left of it; then clean up."""
        if self._beside is not None:
            self._beside.terminate()
            self._beside.wait()
        if self._rings is not None:
            shutil.rmtree(self._rings, ignore_errors=True)
