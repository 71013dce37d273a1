"""Options in their place: which are on the Pareto front, which in the trade-off zone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from advisor.core.option import Option
from advisor.core.pareto import ErrorLimits, trade_off


def place(options: Sequence[Option], error: float) -> tuple[Option, ...]:
    """Mark the front and the trade-off zone of least energy (x) and least time (y)."""
    limits = ErrorLimits(error)
    times = [o.time_s for o in options]
    energies = [o.energy_j for o in options]
    if any(math.isnan(e) for e in energies):
        energies = [1.0] * len(options)
    split = trade_off(energies, times, max_x=False, max_y=False, x_limits=limits, y_limits=limits)
    front, zone = set(split.front), set(split.zone)

    def marked(i: int, o: Option) -> Option:
        marks = i in zone, i in front
        if marks == (o.in_zone, o.on_front):  # most of many
            return o
        return replace(o, in_zone=marks[0], on_front=marks[1])

    return tuple(marked(i, o) for i, o in enumerate(options))
