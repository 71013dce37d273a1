"""A table's further column as an axis of an evaluation, in the place of one that does not vary.

Models know nodes, threads and frequency, and a GPU's clock and power limit. Where another number
varies (a batch size, a memory's clock) it takes the place of threads, else of frequency, else of
nodes: work that is divided among threads gets shorter as that in larger batches does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from advisor.core.observation import Observation
from advisor.errors import InputError

_PLACES = ("threads_per_node", "freq_khz", "nodes")
_WORDS = {"threads_per_node": "threads", "freq_khz": "frequency (in kHz)", "nodes": "nodes"}


def with_axis(runs: Sequence[Observation], column: str) -> tuple[tuple[Observation, ...], str]:
    """Return the runs with the column's numbers in a free axis' place, and a note that says so.

    Raises InputError where a run has no whole number of 1 or more in it, or no place is free.
    """
    values = []
    for number, run in enumerate(runs, 1):
        value = run.extra.get(column)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != round(value):
            value = 0
        if value < 1:
            raise InputError(
                f"run {number}: {column} is {run.extra.get(column)!r}, an axis needs whole numbers "
                "of 1 or more"
            )
        values.append(round(value))
    free = next(
        (p for p in _PLACES if len({getattr(run.configuration, p) for run in runs}) == 1), None
    )
    if free is None:
        raise InputError(
            f"--axis {column}: nodes, threads and frequency all vary, there is no place for it",
            hint="make a file of one of their values",
        )
    placed = []
    for run, value in zip(runs, values, strict=True):
        changes: dict[str, Any] = {free: value}
        if free == "threads_per_node":
            changes["ranks_per_node"] = 1
        placed.append(replace(run, configuration=replace(run.configuration, **changes)))
    return tuple(placed), f"{column} stands where {_WORDS[free]} are"
