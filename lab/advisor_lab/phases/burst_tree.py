"""Bursts of several nodes: each node condenses a subset of its own, and a binary tree joins these.

What goes up has a bounded size whatever a node has done: how many bursts lie in each cell of a
fine grid, and a sample to find the parameters from. The root clusters the cells; that goes back
down, and every node classifies its own bursts by it (Llort et al., IPDPS 2010).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from advisor.phases.arrays import Floats, Ints
from advisor_lab.phases.bursts import (
    GROWS,
    BurstTable,
    Clustering,
    classify,
    dbscan,
    numbered,
    parameters,
    subset_of,
)

T = TypeVar("T")

_CELLS = 256
"""Cells along an axis: an eighth of the least reach, so that one is as good as its points."""

_MOST_SAMPLED = 4096
"""Bursts that the parameters are found from, at most; of fewer all."""


@dataclass(frozen=True, slots=True)
class CondensedBursts:
    """Bursts of one node or of several, condensed.

    ``cells`` (cells, axes) are their places on the grid, ``sums`` (cells, axes) the bursts' axes
    added up, ``counts`` how many there are in each. ``sample`` (bursts, axes) was drawn from all.
    """

    cells: Ints
    sums: Floats
    counts: Ints
    sample: Floats

    @classmethod
    def of(cls, points: Floats, rng: np.random.Generator) -> CondensedBursts:
        """Condense points whose axes run from 0 to 1."""
        places = np.minimum((points * _CELLS).astype(np.int64), _CELLS - 1)
        drawn = rng.permutation(len(points))[:_MOST_SAMPLED]
        return _added(places, points, np.ones(len(points), np.int64), points[drawn])

    @property
    def points(self) -> Floats:
        """The mean burst of each cell, shape (cells, axes)."""
        return np.asarray(self.sums / self.counts[:, None])

    def with_other(self, other: CondensedBursts, rng: np.random.Generator) -> CondensedBursts:
        """Return both as one; the sample has of each as much as it stands for."""
        total = int(self.counts.sum()), int(other.counts.sum())
        most = min(sum(total), _MOST_SAMPLED)
        # As many of each as one sample of all bursts would have drawn, as far as the samples go.
        self_count = int(rng.hypergeometric(*total, most))
        self_count = min(max(self_count, most - len(other.sample)), len(self.sample))
        sample = np.concatenate([self.sample[:self_count], other.sample[: most - self_count]])
        return _added(
            np.concatenate([self.cells, other.cells]),
            np.concatenate([self.sums, other.sums]),
            np.concatenate([self.counts, other.counts]),
            rng.permutation(sample),
        )


def _added(cells: Ints, sums: Floats, counts: Ints, sample: Floats) -> CondensedBursts:
    """Return condensed bursts with each cell once."""
    unique, cell_index = np.unique(cells, axis=0, return_inverse=True)
    cell_index = cell_index.reshape(-1)
    added = np.zeros((len(unique), sums.shape[1]))
    np.add.at(added, cell_index, sums)
    number = np.bincount(cell_index, counts, len(unique)).astype(np.int64)
    return CondensedBursts(unique, added, number, sample)


def up_the_tree(leaves: Sequence[T], join: Callable[[T, T], T]) -> T:
    """Join leaves by two until one is left; one without a neighbour goes up as it is.

    Raises ValueError where there is no leaf.
    """
    if not leaves:
        raise ValueError("a tree needs a leaf")
    level = list(leaves)
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


def cluster_nodes(
    nodes: Sequence[BurstTable], *, subset: float = 1.0, seed: int = 0
) -> list[Clustering]:
    """Return each node's bursts clustered, with the same numbers everywhere.

    Of each node the same subset is taken as :func:`advisor_lab.phases.bursts.cluster` takes.
    """
    rng = np.random.default_rng(seed)
    bounds = [(n.axes.min(axis=0), n.axes.max(axis=0)) for n in nodes]
    low, high = up_the_tree(bounds, lambda a, b: (np.minimum(a[0], b[0]), np.maximum(a[1], b[1])))
    span = np.where(high > low, high - low, 1.0)
    points = [np.asarray((n.axes - low) / span) for n in nodes]
    leaves = [
        CondensedBursts.of(p[subset_of(n, subset, seed + i)], rng)
        for i, (n, p) in enumerate(zip(nodes, points, strict=True))
    ]
    root = up_the_tree(leaves, lambda a, b: a.with_other(b, rng))
    eps, least = parameters(root.sample)
    cell_points = root.points
    groups = dbscan(cell_points, eps, least, root.counts) + 1
    reach = eps if subset >= 1.0 else GROWS * eps
    labels = [classify(cell_points, groups, p, reach) for p in points]
    took = up_the_tree(
        [
            np.bincount(node_labels, n.duration_s, int(groups.max()) + 1)
            for n, node_labels in zip(nodes, labels, strict=True)
        ],
        lambda a, b: a + b,
    )
    number = numbered(np.arange(len(took)) - 1, took.astype(float))
    return [Clustering(number[node_labels], eps, least) for node_labels in labels]


def joined(
    nodes: Sequence[BurstTable], groups: Sequence[Clustering]
) -> tuple[BurstTable, Clustering]:
    """Return the bursts of all nodes and their clusters as one table, node after node.

    Counters that not all nodes have are left out. Raises ValueError where there is no node.
    """
    if not nodes:
        raise ValueError("there is no node")
    first = np.cumsum([0, *(int(n.process.max()) + 1 for n in nodes[:-1])])
    names = [n for n in nodes[0].counters if all(n in node.counters for node in nodes)]
    table = BurstTable(
        np.concatenate([n.process + offset for n, offset in zip(nodes, first, strict=True)]),
        np.concatenate([n.duration_s for n in nodes]),
        np.concatenate([n.axes for n in nodes]),
        {name: np.concatenate([n.counters[name] for n in nodes]) for name in names},
    )
    labels = np.concatenate([g.labels for g in groups])
    return table, Clustering(labels, groups[0].eps, groups[0].min_points)
