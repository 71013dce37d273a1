"""Further columns of measured runs that act like an axis: runs that differ in them are no repeats.

A table of runs may have a batch size or a memory's clock in a column of its own. Runs at one
configuration that differ in it would count as repeats, and their mean as the configuration's. A
column that only tells runs apart (a number, a date) says nothing of their times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation

_TIMES = 6.0
"""What a column's values explain of the times must be so many times what is left (F test)."""
_FEWEST = 5
"""Degrees of freedom of what is left, at least."""
_MATTERS = 1.10
"""Times at two values of the column must differ by this factor at least."""


def acting_columns(runs: Sequence[Observation], columns: Sequence[str]) -> Mapping[str, float]:
    """Return the columns of numbers by whose values runs of one configuration differ.

    And the factor between the values with the longest and the shortest times. Analysis of variance
    of log times, with configurations as blocks (Fisher 1925): values that no two runs share say
    nothing.
    """
    groups: dict[Configuration, list[Observation]] = {}
    for run in runs:
        groups.setdefault(run.configuration, []).append(run)
    off: list[tuple[Observation, float]] = []
    for group in groups.values():
        usual = fmean(math.log(run.time_s) for run in group)
        off += [(run, math.log(run.time_s) - usual) for run in group]
    factors = {}
    for name in columns:
        by_value: dict[float, list[float]] = {}
        for run, log in off:
            value = run.extra.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                by_value.setdefault(float(value), []).append(log)
        values, counted = len(by_value), sum(map(len, by_value.values()))
        freedom = counted - values - len(groups) + 1
        if values < 2 or counted < len(off) or freedom < _FEWEST:
            continue
        means = {v: fmean(logs) for v, logs in by_value.items()}
        explained = sum(len(logs) * means[v] ** 2 for v, logs in by_value.items()) / (values - 1)
        left = sum((x - means[v]) ** 2 for v, logs in by_value.items() for x in logs) / freedom
        factor = math.exp(max(means.values()) - min(means.values()))
        if explained > _TIMES * left and factor >= _MATTERS:
            factors[name] = factor
    return factors


def acting_in_words(column: str, factor: float) -> str:
    """Say that runs which differ in a column are no repeats."""
    return (
        f"{column} acts like an axis: by its values runs of one configuration differ by up to "
        f"{100 * (factor - 1):.0f} %, and count as repeats"
    )
