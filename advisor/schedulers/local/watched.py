"""A run on this machine that is watched: its environment, and the process beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from advisor.schedulers.base import PlannedRun, SweepJob
from advisor.schedulers.early import beside_words, role_of, stop_name

_READY_S = 5.0
"""How long the process beside a run may take to begin."""


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
        earlier_preload = os.environ.get("LD_PRELOAD", "")
        preload = str(job.watch.preload)
        self.environment = {
            "ADVISOR_WATCH": str(self._rings),
            "LD_PRELOAD": f"{preload} {earlier_preload}".strip(),
        }
        self._words = [
            *beside_words(job, metered=metered, root=root),
            role_of(job, run),
            "--name",
            stop_name(job, run.seq, attempt),
            "--rings",
            str(self._rings),
        ]

    def __enter__(self) -> Self:
        """Stand beside the run that comes: its meter is read from before it on."""
        if self._rings is None:
            return self
        with contextlib.suppress(OSError):
            self._beside = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        until = time.monotonic() + _READY_S
        while self._beside is not None and time.monotonic() < until:
            if (self._rings / "ready").exists() or self._beside.poll() is not None:
                break
            time.sleep(0.02)
        return self

    def start(self, pid: int) -> None:
        """Tell which process group the run is."""
        if self._rings is not None:
            with contextlib.suppress(OSError):
                (self._rings / "group").write_text(f"{pid}\n")

    def __exit__(self, *_: object) -> None:
        """Let it keep the run, or end what is left of it; then clean up."""
        if self._beside is not None:
            self._beside.terminate()
            self._beside.wait()
        if self._rings is not None:
            shutil.rmtree(self._rings, ignore_errors=True)
