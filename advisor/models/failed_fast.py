"""Runs that ended long before they could have done their work failed, whatever their exit code.

A program that finds no licence, no memory or no input may end at once and with exit code 0. Taken
for a run, that would be the best option there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.core.units import format_duration
from advisor.core.words import describe

_NEIGHBOURS = 5
"""Configurations nearest to a run's own that it is compared with, or as many as there are."""
_SHORT = 0.2
"""Of the time that perfect scaling leaves: caches and contention never spare so much."""
_MOST = 3000
"""Configurations; of more, one run decides nothing."""


def failed_fast(runs: Sequence[Observation]) -> list[int]:
    """Return which runs of one workload took less than a fifth of what is possible.

    The time possible is the median of what the nearest configurations allow: theirs, or less by the
    cores, frequency and further axes that a run has more than they (perfect scaling). Runs with a
    rate of their own may differ in length and are not judged.
    """
    cells: dict[Configuration, list[float]] = {}
    for run in runs:
        cells.setdefault(run.configuration, []).append(run.time_s)
    if not 1 < len(cells) <= _MOST or any(r.fom is not None for r in runs):
        return []
    possible = dict(zip(cells, _possible_times(cells), strict=True))
    return [i for i, r in enumerate(runs) if r.time_s < _SHORT * possible[r.configuration]]


def without_failed_fast(runs: Sequence[Observation], notes: list[str]) -> Sequence[Observation]:
    """Return the runs that did not fail fast; ``notes`` take a sentence for each other one."""
    failed = failed_fast(runs)
    notes += [_too_short(runs[i]) for i in failed]
    return [r for i, r in enumerate(runs) if i not in set(failed)] if failed else runs


def _too_short(run: Observation) -> str:
    """Return the sentence that says why a run is left out."""
    return (
        f"a run of {format_duration(run.time_s)} at {describe(run.configuration)} is far shorter "
        "than its neighbours allow: it failed, probably, and is left out"
    )


def _possible_times(cells: dict[Configuration, list[float]]) -> list[float]:
    """Return each configuration's possible time by its neighbours' median ones."""
    time = np.array([np.median(times) for times in cells.values()])
    clocked = all(c.freq_khz for c in cells)
    same_axes = len({tuple(name for name, _ in c.extra) for c in cells}) == 1
    axes = np.log(
        [
            (
                c.ranks_per_node,
                c.cores,
                c.freq_khz if clocked else 1,
                *(value for _, value in c.extra if same_axes),
            )
            for c in cells
        ]
    ).astype(float)
    medians = []
    for i, point in enumerate(axes):
        apart = np.abs(axes - point).sum(axis=1)
        apart[i] = np.inf
        near = np.argsort(apart, kind="stable")[:_NEIGHBOURS]
        # a neighbour's time may shrink by the ideal speed-up to here, but never counts as longer
        less = np.minimum(0.0, (axes[near] - point)[:, 1:].sum(axis=1))
        medians.append(float(np.median(time[near] * np.exp(less))))
    return medians
