"""The daemon's side of watching the scheduler: one child, what it says, and how old that is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from advisor.core.availability import Availability, JobLimits
from advisor.interpreter import own_environment, own_python
from advisor.service.handover import unpack, unpack_limits
from advisor.service.snapshot import StoreSource

log = logging.getLogger("advisor.serve")

LONGEST_S = 30.0
"""A state must be read at least this often."""
LASTS_S = 30.0
"""An older state counts as unknown, unless it is read less often: then the double of that."""
_SILENT_S = 60.0
"""A child that says nothing for so long beyond its turn hangs."""
_PROMISED_S = 6.0
"""What was read so long after a job was answered shows the nodes it got: Slurm starts a job within
the 3 s of its batch_sched_delay, if it starts it at once."""
_PAUSE_S = (1.0, 60.0)
"""Between two children: the first pause, doubled up to the second."""
_LONGEST_LINE = 64 << 20
"""Bytes of the longest line from the child."""
_SHORT_LINE = 32 << 10
"""Bytes of a line that the loop reads itself; longer ones are read in a thread."""


class Watch:
    """Keeps a source's availability in step with the scheduler.

    :meth:`run` and all others are called in the daemon's loop only.
    """

    def __init__(self, source: StoreSource, every_s: float = 15.0) -> None:
        self._source, self._every_s = source, every_s
        self._lasts_s = max(LASTS_S, 2 * every_s)
        self._known: Availability | None = None
        self._limits: JobLimits | None = None
        self._limits_error = ""
        self._read_at: float | None = None
        self._fresh = False
        self._error, self._hint = "the scheduler has not been read yet", ""
        self._promises: list[tuple[float, str, int]] = []
        self._expiry: asyncio.TimerHandle | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._started = 0
        source.take(Availability(problem=self._error))

    async def run(self) -> None:
        """Start a child, and another one whenever it ends; cancelling this ends it."""
        pause = _PAUSE_S[0]
        while True:
            began = time.monotonic()
            try:
                why = await self._listen()
            except OSError as error:
                why = f"it cannot be started: {error}"
            except Exception as error:
                log.exception("event=internal-error")
                why = repr(error)
            log.warning("event=watch-ended error=%r", why)
            self._note_failure(f"what reads the scheduler ended: {why}", "see the daemon's log")
            if time.monotonic() - began > 2 * _SILENT_S:
                pause = _PAUSE_S[0]
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_S[1])

    def follow(self) -> None:
        """Have another child look at the store that the source is at now."""
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    async def _listen(self) -> str:
        """Hear one child; return why no more. Raises OSError when it cannot be started."""
        command = own_python(
            "advisor.service.watcher",
            "--db",
            str(self._source.path.absolute()),
            "--every",
            f"{self._every_s:g}",
        )
        child = self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env=own_environment(),
        )
        self._started += 1
        log.info("event=watch-started pid=%d", child.pid)
        lines = asyncio.StreamReader(limit=_LONGEST_LINE)
        pipe: asyncio.ReadTransport | None = None
        try:
            pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(lines), child.stdout
            )
            while True:
                async with asyncio.timeout(_SILENT_S + self._every_s):
                    line = await lines.readline()
                if not line:
                    return f"exit code {await _exit_code(child)}"
                # The limits of ten thousand users take too long for the loop.
                is_long = len(line) > _SHORT_LINE
                self._take_message(
                    await asyncio.to_thread(_message_of, line) if is_long else _message_of(line)
                )
        except TimeoutError:
            return "it sent nothing for too long"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"it sent something that is not valid: {error!r}"
        finally:
            if pipe is not None:
                pipe.close()
            # Its group: a command of the scheduler that hangs was started by it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            if child.stdin is not None:
                child.stdin.close()
            await _exit_code(child)

    def _take_message(self, message: dict[str, Any]) -> None:
        """Take over what one line says. Raises ValueError, KeyError or TypeError for nonsense."""
        read_at = float(message["at"])
        if "error" in message:
            self._note_failure(str(message["error"]), str(message.get("hint") or ""))
            return
        if "limits" in message:
            self._limits_error = str(message.get("limits_error") or "")
            self._limits = message["limits"]
        self._known = message.get("state", self._known)
        if self._known is None:
            raise ValueError("no state")
        if self._error:
            log.info("event=watching scheduler=%s", self._known.scheduler)
        self._error = self._hint = ""
        if "limits" not in message:
            self._read_at = read_at
        self._publish()

    def _note_failure(self, error: str, hint: str) -> None:
        """Note why nothing can be read; what was read last holds until it is too old."""
        if error != self._error:
            log.warning("event=watch-failed error=%r", error)
        self._error, self._hint = error, hint
        if not self._fresh:
            self._source.take(Availability(problem=error))

    def _publish(self) -> None:
        """Give decisions what is known, and take it back once it is too old."""
        if self._known is None or self._read_at is None:
            return
        now = time.monotonic()
        remaining_s = self._read_at + self._lasts_s - now
        if remaining_s <= 0:
            self._expire()
            return
        if self._expiry:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(remaining_s, self._expire)
        self._promises = [p for p in self._promises if p[0] > self._read_at]
        promised: Counter[str] = Counter()
        for _, node_type, nodes in self._promises:
            promised[node_type] += nodes
        self._fresh = True
        self._source.take(replace(self._known, limits=self._limits, promised=dict(promised)))

    def _expire(self) -> None:
        self._fresh = False
        problem = self._error or f"it was last read more than {self._lasts_s:g} s ago"
        log.warning("event=watch-stale error=%r", problem)
        self._source.take(Availability(problem=problem))

    def promise(self, node_type: str, nodes: int) -> None:
        """Count nodes as no longer idle: a job that was just answered is to run there."""
        self._promises.append((time.monotonic() + _PROMISED_S, node_type, nodes))
        self._publish()

    def status(self) -> dict[str, object]:
        """Return how old the state is, and what is wrong."""
        availability, read_at = self._known, self._read_at
        return {
            "scheduler": availability.scheduler if availability else "",
            "age_s": None if read_at is None else round(time.monotonic() - read_at, 1),
            "known": self._fresh,
            "error": self._error,
            "hint": self._hint,
            "limits_error": self._limits_error,
            "limits_known": self._limits is not None,
            "pid": self._child.pid if self._child and self._child.returncode is None else None,
            "children": self._started,
        }


def _message_of(line: bytes) -> dict[str, Any]:
    """Return what a line says. Raises ValueError, KeyError or TypeError when it makes no sense."""
    message: dict[str, Any] = json.loads(line)
    if "state" in message:
        message["state"] = unpack(message["state"], None)
    if message.get("limits") is not None:
        message["limits"] = unpack_limits(message["limits"])
    return message


async def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a child that ends now; None when it does not."""
    # Not wait(): one that was killed inside of a file system that hangs ends once that answers.
    for _ in range(100):
        if child.poll() is not None:
            break
        await asyncio.sleep(0.01)
    return child.returncode
