"""``advisor run --rate``: passes a program's output on, and reads its own rate out of it."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from typing import Self

from advisor.core.rate import LONGEST_LINE, RateReader, RateRule

_LATE_S = 1.0
"""How long what the program left behind may go on printing before it is no longer read."""


class RateTap:
    """Stands between a program and our own stdout and stderr while it runs.

    ``streams`` are what the program writes to. ``quiet``: all of it goes to stderr.
    """

    def __init__(self, rule: RateRule, *, quiet: bool) -> None:
        self._reader = RateReader(rule)
        self._to: dict[int, int] = {}
        self._half: dict[int, bytes] = {}
        ends = []
        for target in (2 if quiet else 1, 2):
            read, write = os.pipe2(os.O_CLOEXEC)
            self._to[read], self._half[read] = target, b""
            ends.append(write)
        self.streams = (ends[0], ends[1])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for write in self.streams:
            os.close(write)
        self._over.set()
        self._thread.join()
        for read, half in self._half.items():
            os.close(read)
            if half:
                self._reader.feed(half)

    def result(self) -> tuple[float | None, str]:
        """Return the rate, or None and why there is none; once the program has ended."""
        return self._reader.result()

    def _pass_on(self) -> None:
        with selectors.DefaultSelector() as waiting:
            for read in self._to:
                waiting.register(read, selectors.EVENT_READ)
            while waiting.get_map():
                ready = waiting.select(_LATE_S)
                if not ready and self._over.is_set():
                    return  # a process left behind still holds the other end
                for key, _ in ready:
                    if not self._forward(key.fd):
                        waiting.unregister(key.fd)

    def _forward(self, read: int) -> bool:
        """Pass on what there is; False at the stream's end."""
        data = os.read(read, 1 << 16)
        unwritten = data
        with contextlib.suppress(OSError):  # our own stdout is closed: the program goes on
            while unwritten:
                unwritten = unwritten[os.write(self._to[read], unwritten) :]
        *lines, half = (self._half[read] + data).split(b"\n")
        for line in lines:
            self._reader.feed(line)
        self._half[read] = half[:LONGEST_LINE]
        return bool(data)
