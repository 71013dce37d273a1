"""Clusters of computing bursts: DBSCAN with parameters found from the data, and classification.

Density-based clusters (Ester et al., "A density-based algorithm for discovering clusters in large
spatial databases with noise", KDD 1996) of log instructions and IPC, each scaled to 0..1
(Gonzalez, Gimenez, Labarta, "Automatic detection of parallel applications computation phases",
IPDPS 2009). A subset is clustered, the rest goes to its nearest burst (Llort et al., IPDPS 2010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from advisor.phases.arrays import Floats, Ints

IPC = "ipc"
WHOLE_PROCESSES = 8
"""Processes whose bursts are all in the subset; of the others a share drawn at random."""

_LEAST_POINTS, _MOST_POINTS = 4, 12
_LEAST_SUBSET = 60
"""Bursts of a subset, at least."""

_LEAST_EPS, _MOST_EPS = 0.03, 0.1
"""Bounds of a reach, on axes from 0 to 1."""

_QUANTILE = 0.9
"""The share of distances that count as those inside of clusters."""

GROWS = 1.25
"""A burst that was not clustered may be so many times the reach away from one that was."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """``labels``: 1 for the cluster that takes longest and so on, 0 for none; the parameters."""

    labels: Ints
    eps: float
    min_points: int


@dataclass(frozen=True, slots=True)
class BurstTable:
    """Bursts, one a row: process, seconds, and the axes that they are clustered by.

    ``counters`` are what was counted in each, by name.
    """

    process: Ints
    duration_s: Floats
    axes: Floats
    counters: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many bursts there are."""
        return len(self.duration_s)


def axes_of(instructions: Floats, cycles: Floats) -> Floats:
    """Return log10 instructions and IPC of every burst, shape (bursts, 2)."""
    return np.column_stack([np.log10(instructions), instructions / cycles])


def axes_by(counters: Mapping[str, Floats], names: Sequence[str]) -> Floats:
    """Return the log10 of each counter named, and of ``ipc`` its value, shape (bursts, names).

    A counter below 1 counts as 1.
    """
    columns = [
        counters["instructions"] / counters["cycles"]
        if name == IPC
        else np.log10(np.maximum(counters[name], 1.0))
        for name in names
    ]
    return np.column_stack(columns)


def scaled(axes: Floats) -> Floats:
    """Return every axis scaled to 0..1 over all bursts; an axis without spread is 0."""
    low, span = axes.min(axis=0), np.ptp(axes, axis=0)
    return np.asarray((axes - low) / np.where(span > 0, span, 1.0))


def dbscan(points: Floats, eps: float, min_points: int, counts: Ints | None = None) -> Ints:
    """Return a cluster from 0 for each point, -1 for none.

    A point's neighbours are those at distance ``eps`` at most, itself included; a core point has
    ``min_points`` of them. ``counts`` says how many each point stands for (nothing: itself). Core
    points in reach of each other are one cluster; others join the nearest core point within reach.
    """
    # Not scikit-learn's: that keeps every point's neighbours at once, and bursts lie so close that
    # these grow with the square of their number.
    count = len(points)
    labels = np.full(count, -1, np.int64)
    tree = cKDTree(points)
    # Rounding must not part points that lie exactly eps from each other.
    reach = eps * (1 + 1e-9)
    if counts is None:
        around = np.asarray(tree.query_ball_point(points, reach, return_length=True))
    else:
        around = np.array([counts[tree.query_ball_point(p, reach)].sum() for p in points])
    core = around >= min_points
    where = np.flatnonzero(core)
    if not len(where):
        return labels
    inner = cKDTree(points[where])
    pairs = _links(inner, points[where], reach)
    links = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (len(where),) * 2)
    labels[where] = connected_components(links, directed=False)[1]
    non_core = np.flatnonzero(~core)
    if len(non_core):
        distance, nearest = inner.query(points[non_core])
        joins = distance <= reach
        labels[non_core[joins]] = labels[where[nearest[joins]]]
    return labels


def _links(tree: cKDTree, points: Floats, reach: float) -> Ints:
    """Return pairs of points within reach that connect the same sets as all pairs would.

    Points of one small cell are all within reach of each other: each is linked to the cell's
    first, and only pairs of different cells are looked for, by their nearest points.
    """
    width = reach / np.sqrt(points.shape[1]) * (1 - 1e-9)
    cells = np.floor((points - points.min(axis=0)) / width).astype(np.int64)
    _, first, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    cell = cell.reshape(-1)
    inside = np.column_stack([np.arange(len(points)), first[cell]])
    members = np.split(np.argsort(cell, kind="stable"), np.cumsum(np.bincount(cell))[:-1])
    corners = np.unique(cells, axis=0)
    around = cKDTree(corners)
    # In widths of cells reach is sqrt(d), and offsets within two cells differ by less than sqrt(d).
    near = around.query_pairs(2 * np.sqrt(points.shape[1]) + 1e-9, output_type="ndarray")
    links = [inside]
    trees: dict[int, cKDTree] = {}
    for a, b in near:
        small, large = (a, b) if len(members[a]) <= len(members[b]) else (b, a)
        if large not in trees:
            trees[large] = cKDTree(points[members[large]])
        distance, nearest = trees[large].query(points[members[small]], distance_upper_bound=reach)
        k = int(np.argmin(distance))
        if distance[k] <= reach:
            links.append(np.array([[members[small][k], members[large][nearest[k]]]]))
    return np.concatenate(links)


def parameters(points: Floats) -> tuple[float, int]:
    """Return (eps, min_points) that suit points scaled to 0..1.

    ``min_points`` grows slowly with their number. ``eps`` is where the sorted distances to the
    min_points-th neighbour bend (Ester et al., section 4.2): three times what most have, and a
    quarter more for points on the edge; outliers stand far above.
    """
    count = len(points)
    least = int(np.clip(round(2 * np.log10(max(count, 10))), _LEAST_POINTS, _MOST_POINTS))
    least = min(least, max(2, count))
    distance = np.sort(cKDTree(points).query(points, k=least)[0][:, -1])
    eps = max(3.0 * float(np.quantile(distance, _QUANTILE)), _LEAST_EPS)
    most = min(GROWS * eps, _MOST_EPS)
    for d in distance[np.searchsorted(distance, eps) :]:
        if d > most:
            break
        eps = float(d)
    return min(eps, _MOST_EPS), least


def numbered(labels: Ints, duration_s: Floats) -> Ints:
    """Return labels from 1 by the time that clusters take, the longest first; 0 for none."""
    names = np.unique(labels[labels >= 0])
    took = [float(duration_s[labels == n].sum()) for n in names]
    result = np.zeros(len(labels), np.int64)
    for number, name_index in enumerate(sorted(range(len(names)), key=lambda i: -took[i]), 1):
        result[labels == names[name_index]] = number
    return result


def classify(clustered: Floats, labels: Ints, rest: Floats, eps: float) -> Ints:
    """Return the cluster of the nearest clustered point for each of the rest, 0 beyond ``eps``."""
    members = labels > 0
    if not members.any() or not len(rest):
        return np.zeros(len(rest), np.int64)
    distance, nearest = cKDTree(clustered[members]).query(rest)
    return np.where(distance <= eps * (1 + 1e-9), labels[members][nearest], 0)


def cluster(
    bursts: BurstTable,
    *,
    subset: float = 1.0,
    seed: int = 0,
    eps: float | None = None,
    min_points: int | None = None,
) -> Clustering:
    """Cluster bursts, by a subset of them where ``subset`` is below 1, and number the clusters.

    The subset holds every burst of up to eight processes (where there are more than eight) and a
    share of the others, drawn with ``seed``.
    """
    points = scaled(bursts.axes)
    chosen = subset_of(bursts, subset, seed)
    part = points[chosen]
    found_eps, found_points = parameters(part)
    eps, min_points = eps or found_eps, min_points or found_points
    labels = np.zeros(bursts.size, np.int64)
    labels[chosen] = dbscan(part, eps, min_points) + 1
    if not chosen.all():
        labels[~chosen] = classify(part, labels[chosen], points[~chosen], GROWS * eps)
    return Clustering(numbered(labels - 1, bursts.duration_s), eps, min_points)


def subset_of(bursts: BurstTable, share: float, seed: int) -> NDArray[np.bool_]:
    """Tell of each burst whether it is clustered: eight whole processes, a share of the others."""
    if share >= 1.0:
        return np.ones(bursts.size, bool)
    rng = np.random.default_rng(seed)
    chosen = rng.random(bursts.size) < share
    processes = np.unique(bursts.process)
    if len(processes) > WHOLE_PROCESSES:
        whole_processes = rng.choice(processes, WHOLE_PROCESSES, replace=False)
        chosen |= np.isin(bursts.process, whole_processes)
    if chosen.sum() < min(bursts.size, _LEAST_SUBSET):
        chosen[rng.permutation(bursts.size)[:_LEAST_SUBSET]] = True
    return np.asarray(chosen)
