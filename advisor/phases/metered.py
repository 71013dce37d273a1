"""Energy between the boundaries of a run, from the readings of a counter of joules.

A counter that falls (it wrapped around, or was restarted) is bridged with the power before. One
that stopped gives no energy beyond its last reading.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_STUCK = 20
"""Times the usual distance of two steps of the counter after which it counts as stopped."""

_BEFORE = 50
"""Steps whose mean power bridges a fall."""


class Metered:
    """Takes readings one after the other; answers what was spent until a time."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._joules: list[float] = []
        self._last = 0.0
        self._total = 0.0
        self._steps: list[tuple[float, float]] = []
        self._moved = 0.0
        self.stopped = False

    def feed(self, time_s: float, energy_j: float) -> None:
        """Take the next reading of the counter: its time and what it shows."""
        if not self._times:
            self._append_reading(time_s, 0.0, energy_j)
            return
        last_time_s = self._times[-1]
        if time_s <= last_time_s:
            return
        spent = energy_j - self._last
        if spent < 0:  # a fall: the power before, for the time since then
            seconds = sum(s for s, _ in self._steps)
            spent = (time_s - last_time_s) * (
                sum(j for _, j in self._steps) / seconds if seconds else 0
            )
        if spent > 0:
            self._steps.append((time_s - self._moved, spent))
            del self._steps[:-_BEFORE]
            self._moved = time_s
            self.stopped = False
        elif len(self._steps) > 2:
            usual = float(np.median([s for s, _ in self._steps]))
            self.stopped = time_s - self._moved > _STUCK * usual
        self._append_reading(time_s, spent, energy_j)

    def _append_reading(self, time_s: float, spent: float, energy_j: float) -> None:
        if not self._times:
            self._moved = time_s
        self._total += spent
        self._last = energy_j
        self._times.append(time_s)
        self._joules.append(self._total)

    @property
    def begin(self) -> float:
        """The time of the first reading; infinite without one."""
        return self._times[0] if self._times else np.inf

    @property
    def until(self) -> float:
        """The time up to which energy is known; minus infinity without readings."""
        if not self._times:
            return -np.inf
        return self._moved if self.stopped else self._times[-1]

    @property
    def period_s(self) -> float:
        """The usual distance of two steps of the counter; infinite below two."""
        seconds = [s for s, _ in self._steps]
        return float(np.median(seconds)) if seconds else np.inf

    @property
    def readings(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The times of the readings, and the joules spent until each since the first."""
        return np.array(self._times), np.array(self._joules)

    def between(self, begin_s: float, end_s: float) -> int:
        """Return how many readings lie between two times."""
        begin_index, end_index = np.searchsorted(self._times, [begin_s, end_s])
        return int(end_index - begin_index)

    def at(self, times: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the joules spent at each of these times since the first reading.

        Between two readings power is even; a time up to one reading before the first takes the
        power behind it.
        """
        if len(self._times) < 2:
            return np.full(len(times), np.nan)
        t, j = np.array(self._times), np.array(self._joules)
        query_times = np.asarray(times, float)
        joules = np.interp(query_times, t, j)
        power = (j[-1] - j[0]) / (t[-1] - t[0])
        return np.asarray(np.where(query_times < t[0], j[0] - (t[0] - query_times) * power, joules))
