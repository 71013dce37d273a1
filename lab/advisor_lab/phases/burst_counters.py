"""What is counted of each burst of a watched program: chosen here, counted by the library in it."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from advisor.core.signature import LINE_B
from advisor.meters.counters import open_group, why_not
from advisor.phases.ring import EventRings
from advisor_lab.phases.bursts import BurstTable, axes_of

VARIABLE = "ADVISOR_BURSTS"
MOST_BURSTS = 100_000
"""Bursts that are kept; of more, as many drawn at random."""

_HARDWARE, _CACHE, _RAW = 0, 3, 4  # the PERF_TYPE_ of perf_event_open
_CPUINFO = Path("/proc/cpuinfo")
INSTRUCTIONS, CYCLES = "instructions", "cycles"

_CountedEvent = tuple[str, int, int, float]
"""Name, the kernel's type and configuration, and what a count of it is worth."""


def wanted_of(cpuinfo: str) -> tuple[_CountedEvent, ...]:
    """Return what is worth counting of bursts, the most important first."""
    flops = (("flops", _RAW, 0xFF03, 1.0),) if "AuthenticAMD" in cpuinfo else ()
    return (
        (INSTRUCTIONS, _HARDWARE, 1, 1.0),
        (CYCLES, _HARDWARE, 0, 1.0),
        ("bytes", _HARDWARE, 3, LINE_B),
        *flops,
        ("loads", _CACHE, 0, 1.0),
        ("branches", _HARDWARE, 4, 1.0),
        ("stalled", _HARDWARE, 8, 1.0),
    )


@dataclass(slots=True)
class BurstsBeside:
    """Chooses what can be counted of bursts, and collects what was.

    ``dropped`` says what cannot be counted together with what comes before it, and why.
    """

    wanted: tuple[_CountedEvent, ...] = ()
    dropped: list[str] = field(default_factory=list)
    _counted: list[_CountedEvent] = field(default_factory=list)
    _rows: list[tuple[float, ...]] = field(default_factory=list)
    _seen: int = 0

    def choose(self) -> str:
        """Try all counters in one group and return the library's variable, "" for nothing."""
        if not self.wanted:
            try:
                cpuinfo = _CPUINFO.read_text(errors="replace")
            except OSError:
                cpuinfo = ""
            self.wanted = wanted_of(cpuinfo)
            if not any(w[0] == "flops" for w in self.wanted):
                self.dropped.append("flops: no single event of this processor counts them")
        opened = open_group([(kind, config) for _, kind, config, _ in self.wanted])
        for counter, result in zip(self.wanted, opened, strict=True):
            if isinstance(result, OSError):
                self.dropped.append(f"{counter[0]}: {why_not(result)}")
            else:
                self._counted.append(counter)
                os.close(result)
        if {INSTRUCTIONS, CYCLES} - {w[0] for w in self._counted}:
            self._counted = []
        return ",".join(f"{kind:x}:{config:x}" for _, kind, config, _ in self._counted)

    def take(self, rings: EventRings) -> None:
        """Take the bursts that were counted since the last time."""
        if not self._counted:
            return
        for process in rings.processes:
            for took_s, *counts in process.bursts():
                if len(counts) == len(self._counted) and all(c > 0 for c in (took_s, *counts[:2])):
                    self._keep_burst((float(process.pid), took_s, *counts))

    def _keep_burst(self, row: tuple[float, ...]) -> None:
        # Reservoir sampling: whatever number comes, each burst is among the rows equally likely.
        self._seen += 1
        if len(self._rows) < MOST_BURSTS:
            self._rows.append(row)
        elif (slot := random.randrange(self._seen)) < MOST_BURSTS:
            self._rows[slot] = row

    def table(self) -> BurstTable | None:
        """Return the bursts, None where none was counted."""
        if not self._rows:
            return None
        rows = np.array(self._rows)
        counters = {
            name: worth * rows[:, 2 + i] for i, (name, _, _, worth) in enumerate(self._counted)
        }
        axes = axes_of(counters[INSTRUCTIONS], counters[CYCLES])
        return BurstTable(rows[:, 0].astype(np.int64), rows[:, 1], axes, counters)

    @property
    def notes(self) -> list[str]:
        """What is not counted of bursts."""
        if not self._counted:
            reasons = [d for d in self.dropped if d.startswith((INSTRUCTIONS, CYCLES))]
            return [f"bursts have no counters: {reasons[0]}"] if reasons else []
        return [f"not counted of bursts: {'; '.join(self.dropped)}"] if self.dropped else []
