"""Ways to tell a workload's surface from those of others.

Every way but EAR's own projection is a weighted sum of the known surfaces; what differs is where
the weights come from. The same way, with an application's own rows left out, makes the errors by
which ways are compared (:mod:`advisor.prior.fit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from advisor.prior import projection
from advisor.prior.surface import Array

SignaturePartition = tuple[list[int], npt.NDArray[np.int_]]
Method = Literal["global", "class", "medoid", "projection", "regression", "gp"]
METHODS: tuple[Method, ...] = ("global", "class", "medoid", "projection", "regression", "gp")

_KRIGED = ("global", "regression", "gp")
"""The methods that are one Gaussian process with different kernels."""
TRAFFIC = ("tpi", "gbs", "dram_active")
"""What stands for memory transactions where EAR's projection lacks a value, the first there is."""
_VAGUE = 1000.0
"""Variance of what all applications have in common: nothing is known of it."""
_REPEAT = 0.05
"""Variance between two workloads of one application, against that between applications."""
_CLUSTERS = 3
"""Clusters of signatures, at most."""
_LEFT: dict[object, tuple[Array, Array]] = {}
_KEPT = 256
"""Of how many sets of signatures and ways the weights are kept."""


@dataclass(frozen=True)
class Rows:
    """The known workloads: their surfaces (m, 2n) and signatures (m, p), standardised and raw.

    ``ln_frequency`` (n,) is each point's, against the job's own one. ``inverses`` and
    ``partitions`` hold what ways worked out.
    """

    surfaces: Array
    ln_frequency: Array
    signatures: Array
    raw: Array
    names: Sequence[str]
    applications: Sequence[str]
    labels: Sequence[str]
    inverses: dict[object, Array] = field(default_factory=dict, compare=False)
    partitions: dict[bytes, SignaturePartition] = field(default_factory=dict, compare=False)

    @property
    def varying(self) -> int:
        """How many of the signatures' values differ, 1 at least."""
        return max(1, int(np.ptp(self.signatures, axis=0).astype(bool).sum()))

    @cached_property
    def owner(self) -> npt.NDArray[np.str_]:
        """The application of every row."""
        return np.array(self.applications)

    @cached_property
    def apart(self) -> Array:
        """The distance of every two signatures (m, m)."""
        apart: Array = np.linalg.norm(self.signatures[:, None] - self.signatures[None], axis=2)
        return apart

    def partitioned(self, row_indices: npt.NDArray[np.intp]) -> SignaturePartition:
        """Return the partition of some rows, worked out once for all ways."""
        key = row_indices.tobytes()
        if key not in self.partitions:
            self.partitions[key] = partition(self.apart[np.ix_(row_indices, row_indices)])
        return self.partitions[key]


@dataclass(frozen=True)
class New:
    """The workload in question: its signature (p,), standardised and raw, and its class."""

    signature: Array
    raw: Array
    label: str = ""


@dataclass(frozen=True)
class SurfaceEstimate:
    """What a way says of a workload: its surface (2n,).

    ``factor`` is the variance of its error in units of the spread between applications: 1, and
    what was estimated adds. ``weights`` (m,) say whom it is like.
    """

    surface: Array
    factor: float
    weights: Array


@dataclass(frozen=True)
class Way:
    """A method and what it is set to."""

    method: Method
    length: float = 0.0
    strength: float = 0.0

    def estimate(self, rows: Rows, new: New) -> SurfaceEstimate:
        """Return what this way says of a new workload."""
        everybody = np.ones(len(rows.applications), dtype=bool)
        if self._projects(rows, new):
            return self._projected(rows, new, everybody)
        w, factor = self._weights(rows, new, everybody)
        return SurfaceEstimate(w @ rows.surfaces, factor, w)

    def left_out(self, rows: Rows) -> tuple[Array, Array]:
        """Return what it says of each known workload (m, 2n) without its application; factors."""
        weights, factors = self._left_out_weights(rows)
        surfaces = weights @ rows.surfaces
        if self.method != "projection":
            return surfaces, factors
        factors, owner = factors.copy(), rows.owner
        for i, (z, raw, application) in enumerate(
            zip(rows.signatures, rows.raw, owner, strict=True)
        ):
            if self._projects(rows, new := New(z, raw)):
                other_type = self._projected(rows, new, owner != application)
                surfaces[i], factors[i] = other_type.surface, other_type.factor
        return surfaces, factors

    def _left_out_weights(self, rows: Rows) -> tuple[Array, Array]:
        """Return the weights (m, m) by which the others say each known workload, and factors.

        They follow from the signatures alone, so they are the same for every own point.
        """
        z = rows.signatures
        key = (self, z.shape, z.tobytes(), tuple(rows.applications), tuple(rows.labels))
        if key not in _LEFT:
            if len(_LEFT) >= _KEPT:
                _LEFT.clear()
            _LEFT[key] = (
                self._kriged(rows) if self.method in _KRIGED else self._weights_left_out(rows)
            )
        return _LEFT[key]

    def _weights_left_out(self, rows: Rows) -> tuple[Array, Array]:
        owner = rows.owner
        row_tuples = zip(rows.signatures, rows.raw, rows.labels, owner, strict=True)
        weighted = [
            self._weights(rows, New(z, raw, label), owner != application)
            for z, raw, label, application in row_tuples
        ]
        return np.array([w for w, _ in weighted]), np.array([factor for _, factor in weighted])

    def _kriged(self, rows: Rows) -> tuple[Array, Array]:
        owner = rows.owner
        inverse = self._inverse(rows)
        factors = 1.0 / np.diag(inverse)  # of applications with one row; the others follow
        # Leaving one out takes no new inverse: what is missed is (K^-1 y)_i / (K^-1)_ii.
        weights = np.eye(len(owner)) - factors[:, None] * inverse
        for application, count in Counter(rows.applications).items():
            if count == 1:
                continue
            i = np.flatnonzero(owner == application)
            weights[i] = np.eye(len(owner))[i]
            block = np.linalg.inv(inverse[np.ix_(i, i)])
            weights[i] -= block @ inverse[i]
            factors[i] = np.diag(block)
        return weights, factors

    def _projects(self, rows: Rows, new: New) -> bool:
        """Tell whether a signature holds all that EAR's own projection needs."""
        if self.method != "projection" or not set(projection.NEEDED) <= set(rows.names):
            return False
        return bool(np.isfinite(new.raw[_projection_columns(rows)]).all())

    def _projected(self, rows: Rows, new: New, among: npt.NDArray[np.bool_]) -> SurfaceEstimate:
        columns = _projection_columns(rows)
        complete = np.flatnonzero(among & np.isfinite(rows.raw[:, columns]).all(axis=1))
        w = np.zeros(len(among))
        w[complete] = 1.0 / max(1, len(complete))
        mean, factor = projection.project_surfaces(
            rows.surfaces[complete],
            rows.raw[complete][:, columns],
            new.raw[columns],
            rows.ln_frequency,
        )
        return SurfaceEstimate(mean, factor, w)

    def _weights(self, rows: Rows, new: New, among: npt.NDArray[np.bool_]) -> tuple[Array, float]:
        """Return the weight of each known workload for a new one, and the factor."""
        if self.method in _KRIGED:
            return self._kriging(rows, new.signature)
        w = np.zeros(len(among))
        candidates = np.flatnonzero(among)
        if self.method == "projection":
            columns = projected(rows.names)
            x = np.column_stack((np.ones(len(candidates)), rows.signatures[candidates][:, columns]))
            w[candidates] = np.concatenate(([1.0], new.signature[columns])) @ np.linalg.pinv(x)
            return w, 1.0 + float(w @ w)
        labels = [rows.labels[int(i)] for i in candidates]
        if new.label and all(labels):
            group = candidates[np.array(labels) == new.label]
        else:
            medoids, where = rows.partitioned(candidates)
            distance = np.linalg.norm(rows.signatures[candidates[medoids]] - new.signature, axis=1)
            group = candidates[where == int(np.argmin(distance))]
        if not len(group):
            group = candidates
        if self.method == "medoid":
            group = group[[int(np.argmin(rows.apart[np.ix_(group, group)].sum(axis=0)))]]
        w[group] = 1.0 / len(group)
        return w, 1.0 + 1.0 / len(group)

    def _inverse(self, rows: Rows) -> Array:
        """Return the inverse of the known workloads' covariance (m, m), worked out once."""
        if self not in rows.inverses:
            rows.inverses[self] = np.asarray(
                np.linalg.inv(self._covariance(rows)), dtype=np.float64
            )
        return rows.inverses[self]

    def _covariance(self, rows: Rows) -> Array:
        z, owner = rows.signatures, rows.owner
        own_variance = (owner[:, None] == owner) + _REPEAT * np.eye(len(z))
        cov: Array = _VAGUE + self._kernel(z, z, rows.varying) + own_variance
        return cov

    def _kriging(self, rows: Rows, new: Array) -> tuple[Array, float]:
        across = _VAGUE + self._kernel(rows.signatures, new[None], rows.varying)[:, 0]
        w = self._inverse(rows) @ across
        alone = float(self._kernel(new[None], new[None], rows.varying)[0, 0])
        variance = _VAGUE + alone + 1.0 + _REPEAT
        return w, max(1.0, variance - float(across @ w))

    def _kernel(self, a: Array, b: Array, varying: int) -> Array:
        if self.method == "global":
            return np.zeros((len(a), len(b)))
        if self.method == "regression":
            linear: Array = self.strength * (a @ b.T) / varying
            return linear
        apart = ((a[:, None] - b[None]) ** 2).sum(axis=2) / varying
        smooth: Array = self.strength * np.exp(-0.5 * apart / self.length**2)
        return smooth


WAYS: tuple[Way, ...] = (
    Way("global"),
    Way("class"),
    Way("medoid"),
    Way("projection"),
    *(Way("regression", 0.0, s) for s in (0.5, 2.0, 8.0, 32.0)),
    *(Way("gp", length, s) for length in (0.5, 1.0, 2.0, 4.0) for s in (1.0, 4.0, 16.0, 64.0)),
)


def _projection_columns(rows: Rows) -> list[int]:
    return [rows.names.index(name) for name in projection.NEEDED]


def projected(names: Sequence[str]) -> list[int]:
    """Return the columns that stand for EAR's where it lacks one: CPI, traffic and power."""
    traffic = next((n for n in TRAFFIC if n in names), "")
    return [i for i, n in enumerate(names) if n in ("cpi", "power_w", traffic)]


def partition(apart: Array) -> SignaturePartition:
    """Return medoids (rows) and which of them every row is nearest to, by distances (m, m).

    Starts from the most central row and the farthest ones, so repeated rows do not swallow it.
    """
    medoids = [int(np.argmin(apart.sum(axis=0)))]
    while len(medoids) < min(_CLUSTERS, len(apart)):
        far = apart[:, medoids].min(axis=1)
        if far.max() <= 0.0:
            break
        medoids.append(int(np.argmax(far)))
    for _ in range(20):
        where = np.argmin(apart[:, medoids], axis=1)
        new = []
        for k in range(len(medoids)):
            members = np.flatnonzero(where == k)
            new.append(int(members[np.argmin(apart[np.ix_(members, members)].sum(axis=0))]))
        if new == medoids:
            break
        medoids = new
    return medoids, np.argmin(apart[:, medoids], axis=1)
