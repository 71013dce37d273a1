"""Regular communication patterns: all-to-all, chain, ring, meshes and tori, recognised whole."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Sources = Mapping[int, frozenset[int]]
"""By process the relative sources: what is added to the process, modulo all, for a source."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A pattern: its name, and its lengths (the last one varies fastest)."""

    name: str
    dimensions: tuple[int, ...]


def recognise(sources: Sources) -> Topology | None:
    """Return the pattern that explains all relative sources, None where none does."""
    total = len(sources)
    if total < 2 or set(sources) != set(range(total)):
        return None
    if all(
        len(process_sources) == total - 1 and 0 not in process_sources
        for process_sources in sources.values()
    ):
        return Topology("alltoall" if total > 2 else "chain", (total,))
    for count in (1, 2, 3):
        for lengths in _factors(total, count):
            for wraps in itertools.product((False, True), repeat=count):
                expected_sources = grid_sources(lengths, wraps)
                if all(sources[p] == expected_sources[p] for p in range(total)):
                    return Topology(_name(count, wraps), lengths)
    return None


def _name(count: int, wraps: Sequence[bool]) -> str:
    if count == 1:
        return "ring" if wraps[0] else "chain"
    kind = "torus" if all(wraps) else "mesh" if not any(wraps) else "cylinder"
    return f"{kind}{count}d"


def _factors(total: int, count: int) -> list[tuple[int, ...]]:
    """Return lengths of at least 2 with that product, the squarest first."""
    if count == 1:
        return [(total,)]
    shapes = [
        (first, *rest)
        for first in range(2, total // 2 + 1)
        if total % first == 0
        for rest in _factors(total // first, count - 1)
        if min(rest) >= 2
    ]
    return sorted(shapes, key=lambda lengths: max(lengths) / min(lengths))


def grid_sources(lengths: Sequence[int], wraps: Sequence[bool]) -> dict[int, frozenset[int]]:
    """Return the relative sources of the processes of a grid whose neighbours exchange."""
    total = 1
    for length in lengths:
        total *= length
    strides = [1] * len(lengths)
    for i in range(len(lengths) - 2, -1, -1):
        strides[i] = strides[i + 1] * lengths[i + 1]
    sources = {}
    for process in range(total):
        process_sources = set()
        for length, stride, wrap in zip(lengths, strides, wraps, strict=True):
            coordinate = process // stride % length
            for step in (-1, 1):
                neighbour = coordinate + step
                if wrap and length > 2:
                    neighbour %= length
                if 0 <= neighbour < length:
                    process_sources.add(
                        (process + (neighbour - coordinate) * stride - process) % total
                    )
        sources[process] = frozenset(process_sources)
    return sources
