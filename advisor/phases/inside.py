"""Power inside an iteration of a run that was watched, from the readings made beside it."""

from __future__ import annotations

import numpy as np

from advisor.phases.complete import CompleteRun
from advisor.phases.fold import FoldedSignal, fold
from advisor.phases.metered import Metered
from advisor.phases.sequence import find_iterations


def power_inside(run: CompleteRun) -> FoldedSignal | None:
    """Return the power (W) inside an iteration of the longest phase; None where it is not known.

    The readings are a node's; of a run on several nodes they are the first one's.
    """
    phases = find_iterations(run.times, run.sites)
    if not phases or len(run.readings) < 3:
        return None
    longest = max(phases, key=lambda p: p.end_s - p.begin_s)
    times = np.array(run.times)
    marks = np.unique(times[longest.bounds[longest.bounds < len(times)]])
    meter = Metered()
    for reading in run.readings:
        meter.feed(*reading)
    at, _ = meter.readings
    return fold(at, meter.at(at), marks)
