"""Classes by what threads do: principal components, k-means, silhouette (section 5.1).

Metrics are standardised within their run, so that a class is the same at every scale; components
follow from all training runs, by Kaiser's criterion. Each run is clustered by itself, and clusters
become classes by the least distance to the classes of earlier runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from advisor.errors import InputError
from advisor_lab.profile.metrics import MetricValue
from advisor_lab.profile.runs import ProfiledRun, ThreadId

Matrix2 = NDArray[np.float64]
_STARTS, _STEPS, _MOST_CLASSES = 12, 100, 10
_STRUCTURE = 0.25
"""Mean silhouettes below this show no substantial structure (Kaufman and Rousseeuw 1990)."""
_SEED = 20180129
"""Any fixed seed, so that the same profiles give the same clusters."""


@dataclass(frozen=True, slots=True)
class ThreadComponents:
    """Principal components of standardised metrics: what turns a run's threads into points."""

    features: tuple[str, ...]
    axes: Matrix2
    """(features, components)."""
    eigenvalues: tuple[float, ...]
    """Of the correlations, all of them, the largest first."""

    def points(self, run: ProfiledRun) -> Matrix2:
        """Return the threads of a run in components, (threads, components)."""
        projected: Matrix2 = standardised(feature_table(run, self.features)) @ self.axes
        return projected


def feature_names(runs: Sequence[ProfiledRun]) -> tuple[str, ...]:
    """Return the numbers a thread's metrics consist of, those that any thread has."""
    names: dict[str, None] = {}
    for run in runs:
        for thread in run.threads.values():
            for name, value in thread.values.items():
                names.update(dict.fromkeys(_numbers(name, value)))
    return tuple(sorted(names))


def _numbers(name: str, value: MetricValue) -> dict[str, float]:
    """Return a metric as numbers by name; a communication vector as its sums."""
    if isinstance(value, dict):
        return {f"{name}[{v},{d}]": share for (v, d), share in value.items() if share}
    if isinstance(value, tuple):
        if value and len(value[0]) == 3:
            return {f"{name}.sources": float(len(value))}
        return {f"{name}({row[0]:g})": float(row[1]) for row in value}
    return {name: value}


def feature_table(run: ProfiledRun, features: Sequence[str]) -> Matrix2:
    """Return (threads, features); 0 for what a thread does not have."""
    rows = []
    for thread in run.threads.values():
        numbers: dict[str, float] = {}
        for name, value in thread.values.items():
            numbers |= _numbers(name, value)
        rows.append([numbers.get(f, 0.0) for f in features])
    return np.array(rows, dtype=np.float64)


def standardised(table: Matrix2) -> Matrix2:
    """Return columns with mean 0 and spread 1; those that do not vary become 0."""
    spread = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(table.shape[1])
    varies = spread > 1e-9 * np.abs(table).max(axis=0, initial=1e-300)
    scaled: Matrix2 = (table - table.mean(axis=0)) / np.where(varies, spread, np.inf)
    return scaled


def components_of(runs: Sequence[ProfiledRun]) -> ThreadComponents:
    """Return the components whose eigenvalue is above 1 (Kaiser), of all runs together."""
    features = feature_names(runs)
    table = np.vstack([standardised(feature_table(run, features)) for run in runs])
    varies = np.abs(table).max(axis=0, initial=0.0) > 0
    names = tuple(f for f, v in zip(features, varies, strict=True) if v)
    table = table[:, varies]
    if not names:
        return ThreadComponents((), np.zeros((0, 0)), ())
    # Of each run its own mean was taken off.
    freedom = max(1, len(table) - len(runs))
    values, vectors = np.linalg.eigh(table.T @ table / freedom)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    count = max(1, int((values > 1.0).sum()))
    axes = vectors[:, :count]
    # An eigenvector has no sign of its own: the largest entry is made positive, the same each time.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), range(count)] < 0, -1.0, 1.0)
    return ThreadComponents(names, axes, tuple(float(max(v, 0.0)) for v in values))


def kmeans(points: Matrix2, count: int) -> NDArray[np.intp]:
    """Return the cluster of each point, of the best of several starts; the same each time.

    Clusters are numbered by their first point.
    """
    # Not scikit-learn's: its partitions are as often tighter as looser than these and take four
    # times as long, and stored classes would change.
    draw = np.random.default_rng(_SEED)
    best: tuple[float, NDArray[np.intp]] | None = None
    for start in range(_STARTS):
        centres = _spread_out(points, count, draw, far=start == 0)
        labels = np.full(len(points), -1)
        for _ in range(_STEPS):
            away = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
            new = away.argmin(axis=1)
            for k in range(count):  # an empty cluster takes the farthest point
                if not (new == k).any():
                    new[away[np.arange(len(points)), new].argmax()] = k
            if (new == labels).all():
                break
            labels = new
            centres = np.array(
                [
                    points[labels == k].mean(axis=0) if (labels == k).any() else centres[k]
                    for k in range(count)
                ]
            )
        spread = float(((points - centres[labels]) ** 2).sum())
        if best is None or spread < best[0] - 1e-12:
            best = spread, labels
    assert best is not None
    first = {label: i for i, label in reversed(list(enumerate(best[1].tolist())))}
    order = {label: k for k, label in enumerate(sorted(first, key=lambda v: first[v]))}
    return np.array([order[label] for label in best[1].tolist()])


def _spread_out(points: Matrix2, count: int, draw: np.random.Generator, *, far: bool) -> Matrix2:
    """Return points to begin with, each far from the others (k-means++; ``far``: farthest)."""
    chosen = [0 if far else int(draw.integers(len(points)))]
    while len(chosen) < count:
        away = ((points[:, None, :] - points[chosen][None]) ** 2).sum(axis=2).min(axis=1)
        if far or not away.sum():
            chosen.append(int(away.argmax()))
        else:
            chosen.append(int(draw.choice(len(points), p=away / away.sum())))
    return points[chosen].copy()


def silhouette(points: Matrix2, labels: NDArray[np.intp]) -> float:
    """Return the mean silhouette (Rousseeuw 1987); that of a cluster of one is 0."""
    if labels.max() < 1:
        return 0.0
    # Here: loading it takes longer than all else where the number of classes is given.
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(points, labels))


@dataclass(frozen=True, slots=True)
class ThreadClusters:
    """The classes of every run: thread ids by class, in the classes' order."""

    members: tuple[tuple[tuple[ThreadId, ...], ...], ...]
    """By run, then class."""
    silhouettes: Mapping[int, float]
    """Mean over the runs, by number of classes tried."""
    notes: tuple[str, ...] = ()


def cluster_runs(
    runs: Sequence[ProfiledRun], components: ThreadComponents, count: int = 0
) -> ThreadClusters:
    """Cluster every run and match the clusters; ``count`` 0 takes the best silhouette's.

    Raises InputError where a run has fewer threads than classes.
    """
    points = [components.points(run) for run in runs]
    notes: list[str] = []
    silhouettes: dict[int, float] = {}
    if count:
        _enough(runs, count)
    else:
        count, silhouettes = _best_count(points)
        if count == 1:
            notes.append("the threads show no distinct classes: all are in one")
    labels = [_labels(p, count) for p in points]
    order = _matched(points, labels, count)
    members = tuple(
        _members(run, run_labels, place)
        for run, run_labels, place in zip(runs, labels, order, strict=True)
    )
    return ThreadClusters(members, silhouettes, tuple(notes))


def apply_classes(
    runs: Sequence[ProfiledRun],
    trained: Sequence[ProfiledRun],
    clusters: ThreadClusters,
    components: ThreadComponents,
) -> tuple[tuple[tuple[ThreadId, ...], ...], ...]:
    """Return the classes of other runs, as learnt: clusters by least distance to the classes."""
    count = len(clusters.members[0])
    _enough(runs, count)
    trained_means = []
    for run, run_members in zip(trained, clusters.members, strict=True):
        row_of_thread = {thread: i for i, thread in enumerate(run.threads)}
        points = components.points(run)
        trained_means.append(
            [points[[row_of_thread[t] for t in members]].mean(axis=0) for members in run_members]
        )
    means = np.array(trained_means).mean(axis=0)
    classes = []
    for run in runs:
        points = components.points(run)
        labels = _labels(points, count)
        own_means = _means(points, labels, count)
        classes.append(_members(run, labels, _assigned(own_means, means)))
    return tuple(classes)


def _enough(runs: Sequence[ProfiledRun], count: int) -> None:
    for run in runs:
        if len(run.threads) < count:
            raise InputError(
                f"{run.file}: threads: {len(run.threads)} are fewer than the {count} classes",
                hint="leave that run out, or ask for fewer classes",
            )


def _labels(points: Matrix2, count: int) -> NDArray[np.intp]:
    if count == 1 or not points.shape[1]:
        return np.zeros(len(points), dtype=np.intp)
    return kmeans(points, count)


def _best_count(points: Sequence[Matrix2]) -> tuple[int, dict[int, float]]:
    """Return the number of classes with the best mean silhouette, and those tried."""
    least = min(len(np.unique(p.round(9), axis=0)) for p in points)
    most = min(_MOST_CLASSES, least, min(len(p) for p in points) - 1)
    silhouettes = {
        k: float(np.mean([silhouette(p, kmeans(p, k)) for p in points])) for k in range(2, most + 1)
    }
    best = max(silhouettes, key=lambda k: silhouettes[k], default=1)
    if not silhouettes or silhouettes[best] < _STRUCTURE:
        return 1, silhouettes
    return best, silhouettes


def _means(points: Matrix2, labels: NDArray[np.intp], count: int) -> Matrix2:
    return np.array([points[labels == k].mean(axis=0) for k in range(count)])


def _assigned(cluster_means: Matrix2, classes: Matrix2) -> dict[int, int]:
    """Return the class of each cluster: the assignment of least total distance."""
    away = np.sqrt(((cluster_means[:, None, :] - classes[None]) ** 2).sum(axis=2))
    rows, columns = linear_sum_assignment(away)
    return {int(r): int(c) for r, c in zip(rows, columns, strict=True)}


def _matched(
    points: Sequence[Matrix2], labels: Sequence[NDArray[np.intp]], count: int
) -> list[dict[int, int]]:
    """Return for each run the class of each cluster; the first run's clusters are the classes."""
    places: list[dict[int, int]] = []
    run_means: list[Matrix2] = []
    for run_points, run_labels in zip(points, labels, strict=True):
        means = _means(run_points, run_labels, count)
        classes = np.mean(run_means, axis=0) if run_means else means
        place = _assigned(means, classes)
        places.append(place)
        ordered = np.empty_like(means)
        for cluster, class_index in place.items():
            ordered[class_index] = means[cluster]
        run_means.append(ordered)
    return places


def _members(
    run: ProfiledRun, labels: NDArray[np.intp], place: Mapping[int, int]
) -> tuple[tuple[ThreadId, ...], ...]:
    members: list[list[ThreadId]] = [[] for _ in place]
    for thread, label in zip(run.threads, labels.tolist(), strict=True):
        members[place[label]].append(thread)
    return tuple(tuple(sorted(threads)) for threads in members)
