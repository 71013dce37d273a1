"""Which runs to make over several sizes: most at the largest, which advice rests on.

A dozen runs at the largest size show how cores and frequency act. Three of the same configurations
at each other size show how they change with size: the baseline, the fewest cores, one between.
Where every size gets a dozen, the further ones go to cores and caps that no other size has shown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from advisor.core.configuration import Configuration, SearchSpace, largest_of
from advisor.models.design import uniform, within

AT_LARGEST, AT_OTHERS = 12, 3
"""Runs at the largest size and at each other one."""
_LOWEST = 2 / 11
"""Lowest thread count run, as a share of the highest (see :mod:`advisor.models.design`)."""


def sized_design(
    cells: Mapping[float, Sequence[Configuration]],
    runs_per_size: int = AT_OTHERS,
    *,
    most: int = AT_LARGEST,
    baseline: Configuration | None = None,
) -> dict[float, list[Configuration]]:
    """Return the configurations to run by size, out of those there are at each.

    The largest size has ``most``, every other one ``runs_per_size``. ``baseline`` is what jobs are
    compared with, None: the largest configuration.
    """
    largest = max(cells)
    base = baseline or largest_of(cells[largest])
    space = SearchSpace.of(base.node_type, cells[largest])
    chosen = {largest: within(uniform(space, most, base), space, sorted(set(cells[largest])))}
    used_cells = set(chosen[largest])
    for size in sorted(cells, reverse=True):
        if size != largest:
            chosen[size] = _smaller(
                chosen[largest], sorted(set(cells[size])), used_cells, base, runs_per_size
            )
            used_cells |= set(chosen[size])
    return chosen


def _smaller(
    largest: Sequence[Configuration],
    cells: Sequence[Configuration],
    used_cells: Collection[Configuration],
    base: Configuration,
    runs_per_size: int,
) -> list[Configuration]:
    rest = sorted((c for c in largest if c != base), key=lambda c: (c.threads_per_node, c.freq_khz))
    paired = [base, *(rest[i] for i in {0, len(rest) // 2} if i < len(rest))]
    chosen = [c for c in paired if c in set(cells)][:runs_per_size]
    low = _LOWEST * max(c.threads_per_node for c in cells)
    free = [c for c in cells if c not in chosen]
    away = _Away(cells)
    occupied_cells = [*used_cells, *chosen]
    while len(chosen) < runs_per_size and free:
        fresh = [c for c in free if c not in used_cells and c.threads_per_node >= low]
        best = max(fresh or free, key=lambda c: (min(away(c, k) for k in occupied_cells), c))
        free.remove(best)
        chosen.append(best)
        occupied_cells.append(best)
    return chosen


class _Away:
    """Distance of two configurations in steps of each axis, as a share of all its steps."""

    def __init__(self, cells: Sequence[Configuration]) -> None:
        threads = sorted({c.threads_per_node for c in cells})
        freqs = sorted({c.freq_khz for c in cells})
        self._threads = {v: i / max(1, len(threads) - 1) for i, v in enumerate(threads)}
        self._freqs = {v: i / max(1, len(freqs) - 1) for i, v in enumerate(freqs)}

    def __call__(self, a: Configuration, b: Configuration) -> float:
        threads, freqs = self._threads, self._freqs
        if b.threads_per_node not in threads or b.freq_khz not in freqs:
            return math.inf
        return math.hypot(
            threads[a.threads_per_node] - threads[b.threads_per_node],
            freqs[a.freq_khz] - freqs[b.freq_khz],
        )
