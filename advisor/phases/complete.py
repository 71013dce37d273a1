"""A complete run as it is kept for others to be paired with: its events and meter readings."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_EVENTS = 1_000_000
"""Events of a run that are kept; of a longer one nothing is."""

MOST_READINGS = 100_000
"""Readings of the meter that are kept; of more every second one goes."""

BASE, WHOLE, STOPS = "complete.json", "whole.json", "stops"
"""What the folder of a sweep's watch holds: the complete run, what the scheduler measured of it,
and a file for each run that was ended."""

EARLIER = "earlier"
"""The folder in there with the first two of an earlier sweep."""

BEGIN, END = "begin", "end"
"""The sites of a run's first and last event: its first process begins, its last one ends."""


@dataclass(slots=True)
class CompleteRun:
    """A run from begin to end, as it was watched.

    ``why`` says why nothing can be paired with it, "" where it can.
    """

    times: list[float] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    readings: list[tuple[float, float]] = field(default_factory=list)
    why: str = ""

    @property
    def span_s(self) -> float:
        """Seconds from its begin to its end."""
        return self.times[-1] - self.times[0] if self.times else 0.0

    def save(self, path: Path) -> None:
        """Write it, whole or not at all. Raises OSError."""
        names = list(dict.fromkeys(self.sites))
        number = {name: i for i, name in enumerate(names)}
        begin = self.times[0] if self.times else 0.0
        data = {
            "names": names,
            "sites": [number[s] for s in self.sites],
            "times": [round(t - begin, 7) for t in self.times],
            "readings": [[round(t - begin, 5), round(j, 4)] for t, j in self.readings],
            "why": self.why,
        }
        partial = path.with_name(f".{path.name}")
        partial.write_text(json.dumps(data, separators=(",", ":")))
        partial.replace(path)


def thinned(readings: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return a counter's readings without every second one where there are too many.

    The first and the last stay.
    """
    if len(readings) > MOST_READINGS:
        del readings[1:-1:2]
    return readings


def load_complete(path: Path) -> CompleteRun | None:
    """Return a run that was saved, None where there is none or it is damaged."""
    try:
        data = json.loads(path.read_text())
        names = [str(n) for n in data["names"]]
        return CompleteRun(
            _ascending(data["times"]), [names[i] for i in data["sites"]],
            [(float(t), float(j)) for t, j in data["readings"]], str(data["why"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def borrowed(watch: Path, *, metered: bool) -> CompleteRun | None:
    """Return the earlier sweep's complete run; None where its energy was not measured alike."""
    try:
        alike = json.loads((watch / EARLIER / WHOLE).read_text())["measured"] is metered
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return load_complete(watch / EARLIER / BASE) if alike else None


def adopt(watch: Path) -> None:
    """Make the earlier sweep's complete run this one's. Raises OSError."""
    copy_complete(watch / EARLIER, watch)


def copy_complete(source: Path, target: Path) -> None:
    """Copy a complete run with what the scheduler measured of it. Raises OSError."""
    for name in (WHOLE, BASE):  # without the second nothing is paired with it
        partial = target / f".{name}"
        shutil.copyfile(source / name, partial)
        partial.replace(target / name)


def _ascending(values: Sequence[Any]) -> list[float]:
    times = [float(v) for v in values]
    if any(not math.isfinite(t) for t in times) or times != sorted(times):
        raise ValueError("times do not ascend")
    return times
