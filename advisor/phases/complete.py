"""A complete run as it is kept for others to be paired with: its events and meter readings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.drafts import write_whole

if TYPE_CHECKING:
    from advisor.phases.sequence import IteratedPhase

MOST_EVENTS = 1_000_000
"""Events of a run that are kept; of a longer one nothing is."""

ROOM = 64 * 1024
"""Characters that the events of a run may take where they are kept."""

_SHORT = 1000
"""Events that are kept in any case."""

_SEARCH_S = 20.0
"""Processor time that iterations are looked for: the job waits for it, once in a sweep."""

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

    ``why`` says why nothing can be paired with it, "" where it can. ``phases`` are what repeats in
    it where that was kept, None where it is to be found.
    """

    times: list[float] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    readings: list[tuple[float, float]] = field(default_factory=list)
    why: str = ""
    phases: list[IteratedPhase] | None = field(default=None, compare=False)

    @property
    def span_s(self) -> float:
        """Seconds from its begin to its end."""
        return self.times[-1] - self.times[0] if self.times else 0.0

    def iterations(self) -> list[IteratedPhase]:
        """Return its phases: those kept with it, else what is found in its events."""
        if self.phases is None:
            from advisor.phases.sequence import find_iterations

            self.phases = find_iterations(self.times, self.sites)
        return self.phases

    def save(self, path: Path) -> None:
        """Write it, whole or not at all. Raises OSError.

        Events that take more than 64 KB are condensed (:mod:`advisor.phases.record`); where that
        takes more as well, none is kept, and ``why`` says so.
        """
        begin = self.times[0] if self.times else 0.0
        data = {
            **self._events(begin),
            "readings": [[round(t - begin, 5), round(j, 4)] for t, j in self.readings],
            "why": self.why,
        }
        write_whole(path, json.dumps(data, separators=(",", ":")))

    def _events(self, begin: float) -> dict[str, Any]:
        names = list(dict.fromkeys(self.sites))
        number = {name: i for i, name in enumerate(names)}
        tokens = [number[s] for s in self.sites]
        times = [round(t - begin, 7) for t in self.times]
        if len(times) <= _SHORT or len(str(tokens)) + len(str(times)) <= ROOM:
            return {"names": names, "sites": tokens, "times": times}
        import numpy as np

        from advisor.phases.record import condensed
        from advisor.phases.sequence import find_iterations_within

        phases = find_iterations_within(_SEARCH_S, times, self.sites)
        room = ROOM - len(json.dumps(names))
        events = None
        if phases is not None:
            events = condensed(np.array(times), np.array(tokens), phases, room)
        if events is None:
            why = f"its {len(times)} events follow no order that can be kept in {ROOM // 1024} KB"
            self.why = self.why or why
            return {"names": [], "sites": [], "times": []}
        return {"names": names, "condensed": events}


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
        readings = [(float(t), float(j)) for t, j in data["readings"]]
        phases = None
        if "condensed" in data:
            from advisor.phases.record import expanded

            event_times, tokens, phases = expanded(data["condensed"])
            times, sites = event_times.tolist(), tokens.tolist()
        else:
            times, sites = data["times"], data["sites"]
        return CompleteRun(
            _ascending(times), [names[i] for i in sites], readings, str(data["why"]), phases
        )
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
        write_whole(target / name, (source / name).read_bytes())


def _ascending(values: Sequence[Any]) -> list[float]:
    times = [float(v) for v in values]
    if any(not math.isfinite(t) for t in times) or times != sorted(times):
        raise ValueError("times do not ascend")
    return times
