"""Counters of a command while it is watched, read beside its events by the same clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Self

from advisor.meters.counters import Counters
from advisor.meters.events import named_event
from advisor.phases.complete import thinned

Readings = list[tuple[float, float]]


@dataclass(slots=True)
class CountedBeside:
    """Counts the next process that this thread starts, and all that it starts in turn.

    ``readings`` are (s, total) by name: ``instructions`` and ``cycles`` of the processor, ``bytes``
    of the node's memory controllers, ``cpu_s`` of the kernel; of counters that were multiplexed
    with what they would have shown. ``why_not`` says what the processor does not count, and what
    would allow it.
    """

    readings: dict[str, Readings] = field(default_factory=dict)
    why_not: str = ""
    _hardware: Counters = field(default_factory=Counters)
    _kernel: Counters = field(default_factory=Counters)

    def __enter__(self) -> Self:
        """Open what can be opened."""
        clock = named_event("task-clock")
        self._kernel.wanted = (clock,) if clock else ()
        self._hardware.__enter__()
        self._kernel.__enter__()
        if self._hardware.notes:
            self.why_not = self._hardware.notes[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._hardware.close()
        self._kernel.close()

    def read(self) -> None:
        """Take a reading of each."""
        for counters in (self._hardware, self._kernel):
            if not counters.opened:
                continue
            time_s = time.monotonic()
            reading = counters.read()
            totals = {name: (v, running) for name, (v, running) in reading.events.items()}
            if reading.traffic_b is not None:
                totals["bytes"] = reading.traffic_b, reading.traffic_running
            for name, (total, running) in totals.items():
                if name == "task-clock":
                    self._keep_reading("cpu_s", time_s, total / 1e9)
                elif name in ("instructions", "cycles", "bytes") and running > 0:
                    self._keep_reading(name, time_s, total * 100 / running)

    def _keep_reading(self, name: str, time_s: float, total: float) -> None:
        readings = self.readings.setdefault(name, [])
        readings.append((time_s, total))
        thinned(readings)
