"""Representatives of a site's own jobs: Park and Jun's k-medoids (2009) on standardised signatures.

One row per workload. Rows that repeat one another would draw the paper's start onto one point, so
it only looks at distinct rows, and a second start (each medoid where it helps most) is tried too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist, sqrt
from statistics import fmean

from advisor.classes.base import CPU, MEMORY, MIXED
from advisor.classes.files import METRICS, Extremes, Medoids, Metrics
from advisor.errors import RefusedError

FEWEST_ROWS, FEWEST_APPLICATIONS = 30, 8
K = 3
"""Clusters, one a class: CPU, memory and mixed."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One workload's signature: CPI, TPI, GFLOP/s, GB/s."""

    application: str
    workload: str
    vector: Metrics


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one class, and which of them stands for it (an index into the rows)."""

    name: str
    medoid: int
    rows: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Trained:
    """What was learned; ``silhouette`` is the mean over all rows, from -1 to 1."""

    extremes: Extremes
    medoids: Medoids
    groups: tuple[Group, ...]
    silhouette: float


def park_jun(
    points: Sequence[Sequence[float]], start: Sequence[int] | None = None
) -> tuple[list[int], float]:
    """Return the medoids of points and the sum of distances to the nearest of them.

    Starts from the three points with the smallest sum of shares of distances, and renews each
    group's medoid until nothing changes; ties go to the lower index.
    """
    medoids = list(start) if start is not None else paper_start(points)
    labels, cost = _assign(points, medoids)
    while True:
        renewed = []
        for number, medoid in enumerate(medoids):
            members = [i for i, label in enumerate(labels) if label == number] or [medoid]
            sums = [sum(dist(points[i], points[j]) for j in members) for i in members]
            renewed.append(members[sums.index(min(sums))])
        labels, new_cost = _assign(points, renewed)
        if new_cost >= cost:
            return medoids, cost
        medoids, cost = renewed, new_cost


def paper_start(points: Sequence[Sequence[float]]) -> list[int]:
    """Return Park and Jun's start: the points nearest to all others, among distinct ones."""
    first: dict[tuple[float, ...], int] = {}
    for i, point in enumerate(points):
        first.setdefault(tuple(point), i)
    distinct = list(first.values())
    rows = {i: [dist(points[i], points[j]) for j in distinct] for i in distinct}
    totals = [sum(rows[i]) for i in distinct]
    share = {
        j: sum(rows[i][n] / total for i, total in zip(distinct, totals, strict=True) if total)
        for n, j in enumerate(distinct)
    }
    return sorted(distinct, key=lambda j: share[j])[:K]


def greedy_start(points: Sequence[Sequence[float]]) -> list[int]:
    """Return the start that lowers the cost most with each medoid."""
    chosen: list[int] = []
    nearest = [float("inf")] * len(points)
    for _ in range(K):
        costs = [
            sum(min(n, dist(p, candidate)) for n, p in zip(nearest, points, strict=True))
            for candidate in points
        ]
        best = costs.index(min(costs))
        chosen.append(best)
        nearest = [min(n, dist(p, points[best])) for n, p in zip(nearest, points, strict=True)]
    return chosen


def _assign(points: Sequence[Sequence[float]], medoids: Sequence[int]) -> tuple[list[int], float]:
    """Return the number of each point's nearest medoid, and the sum of the distances."""
    labels, cost = [], 0.0
    for point in points:
        distances = [dist(point, points[m]) for m in medoids]
        least = min(distances)
        labels.append(distances.index(least))
        cost += least
    return labels, cost


def silhouette(points: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """Return the mean silhouette: how much nearer each point is to its own group than the next."""
    groups = {
        label: [i for i, member in enumerate(labels) if member == label] for label in set(labels)
    }
    widths = []
    for i, point in enumerate(points):
        group = groups[labels[i]]
        if len(group) == 1 or len(groups) == 1:
            widths.append(0.0)
            continue
        inner = sum(dist(point, points[j]) for j in group) / (len(group) - 1)
        outer = min(
            fmean(dist(point, points[j]) for j in members)
            for label, members in groups.items()
            if label != labels[i]
        )
        most = max(inner, outer)
        widths.append((outer - inner) / most if most else 0.0)
    return fmean(widths)


def train(rows: Sequence[TrainingRow]) -> Trained:
    """Learn from rows, one per workload.

    Raises RefusedError for fewer than 30 rows or 8 applications, and for a measure that is the
    same in all of them.
    """
    applications = {row.application for row in rows}
    if len(rows) < FEWEST_ROWS or len(applications) < FEWEST_APPLICATIONS:
        raise RefusedError(
            f"{len(rows)} workloads of {len(applications)} applications are too few: "
            f"{FEWEST_ROWS} of {FEWEST_APPLICATIONS} are needed",
            hint="each counts once, however often it ran; import more with advisor import",
        )
    columns = list(zip(*(row.vector for row in rows), strict=True))
    mean = [fmean(column) for column in columns]
    std = [
        sqrt(fmean((x - m) ** 2 for x in column)) for column, m in zip(columns, mean, strict=True)
    ]
    for name, s, m in zip(METRICS, std, mean, strict=True):
        if s <= 1e-12 * abs(m):
            raise RefusedError(
                f"{name} is the same in all {len(rows)} rows: it separates no classes"
            )
    if len({row.vector for row in rows}) < K:
        raise RefusedError(f"the {len(rows)} rows have fewer than {K} different signatures")
    extremes = Extremes(tuple(std), tuple(mean))  # type: ignore[arg-type]
    points = [extremes.standardised(row.vector) for row in rows]
    medoids, _ = min(
        (park_jun(points, start) for start in (paper_start(points), greedy_start(points))),
        key=lambda pair: pair[1],
    )
    labels, _ = _assign(points, medoids)
    names = _named([points[m] for m in medoids])
    groups = [
        Group(
            name,
            medoids[number],
            tuple(i for i, label in enumerate(labels) if label == number),
            why,
        )
        for number, (name, why) in enumerate(names)
    ]
    groups.sort(key=lambda g: (CPU, MEMORY, MIXED).index(g.name))
    vectors = Medoids(*(points[g.medoid] for g in groups))
    return Trained(extremes, vectors, tuple(groups), silhouette(points, labels))


def _named(medoids: Sequence[Metrics]) -> list[tuple[str, str]]:
    """Return which class each medoid stands for, and why.

    Traffic, transactions and cycles per instruction speak for memory, arithmetic against it.
    """
    scores = [cpi + tpi - gflops + gbs for cpi, tpi, gflops, gbs in medoids]
    order = sorted(range(len(scores)), key=lambda i: scores[i])
    names = {order[0]: CPU, order[-1]: MEMORY}
    words = {CPU: "least", MEMORY: "most", MIXED: "between them"}
    return [
        (
            name,
            f"{words[name]}: cycles and transactions per instruction and GB/s, less GFLOP/s, "
            f"come to {score:+.2f} standard deviations",
        )
        for i, score in enumerate(scores)
        for name in [names.get(i, MIXED)]
    ]
