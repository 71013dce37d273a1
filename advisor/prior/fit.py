"""The prior: what time and energy a workload takes against its own point, by those like it.

The known surfaces are draws from one matrix-normal distribution: weights of rows come from a
way (:mod:`advisor.prior.ways`), the covariance over points from the errors each
way makes for an application it has not seen, drawn towards a smooth one (inverse Wishart).
So what is predicted is a multivariate Student's t, wide while few applications are known, and a
measured run of the workload itself conditions it in closed form.

Applications left out choose the way: the simplest within one standard error of the one that
makes them most likely. The same errors stretch the intervals until 90 % of them hold.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, stdtrit

from advisor.prior.surface import Array, WorkloadSurface
from advisor.prior.ways import WAYS, New, Rows, Way

PSEUDO = 4.0
"""How many applications the smooth covariance counts for."""
FLOOR = 0.004
"""Least standard error of a logarithm: no meter and no clock is better."""
REGION = math.log(1.35)
"""Ways are compared where times are within this of the job's own: nothing else is chosen."""
_APART = 5
"""With fewer applications than this kernels judge ways too."""
_LEAST = 0.01
"""Least spread of a signature's value, of its size: what none of the others has is far off."""


class PriorError(ValueError):
    """Nothing can be predicted of the workload; the message says why."""


@dataclass(frozen=True)
class Prior:
    """Student's t over ln(time) and ln(energy) at points, against the workload's own point.

    ``mean`` (2, n), ``cov`` (2n, 2n) scale matrix, ``dof``; ``scores``: by way, what the
    selection saw (mean log density of an application left out). ``doubts``: what other ways say
    that are within a standard error of the best.
    """

    points: Array
    mean: Array
    cov: Array
    dof: float
    way: Way
    kernels: bool
    applications: int
    like: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    doubts: tuple[Prior, ...] = ()

    @property
    def scale(self) -> Array:
        """Scale of each point's t distribution (2, n): time, energy."""
        scale: Array = np.sqrt(np.diag(self.cov)).reshape(2, -1)
        return scale

    def half_width(self, level: float = 0.90) -> Array:
        """Half of the two-sided interval of the logarithms (2, n)."""
        half: Array = self.scale * stdtrit(self.dof, 0.5 + level / 2)
        return half

    def expects(self, index: int, ln_time: float, ln_energy: float) -> bool:
        """Tell whether a run at a point lies inside both of its 90 % intervals."""
        off = np.abs(np.array([ln_time, ln_energy]) - self.mean[:, index])
        return bool((off <= self.half_width()[:, index]).all())

    def observe(self, index: int, ln_time: float, ln_energy: float, error: float) -> Prior:
        """Return the prior given a run at a point; ``error`` is the run's, of the logarithms."""
        n = len(self.points)
        i = [index, n + index]
        seen = self.cov[np.ix_(i, i)] + error**2 * np.eye(2)
        off = np.array([ln_time, ln_energy]) - self.mean[:, index]
        gain = np.linalg.solve(seen, self.cov[i]).T
        surprise = float(off @ np.linalg.solve(seen, off))
        cov = (self.cov - gain @ self.cov[i]) * (self.dof + surprise) / (self.dof + 2.0)
        cov[np.diag_indices_from(cov)] = np.maximum(np.diag(cov), FLOOR**2)
        mean = self.mean + (gain @ off).reshape(2, -1)
        return replace(self, mean=mean, cov=cov, dof=self.dof + 2.0)


@dataclass(frozen=True)
class Learned:
    """What the swept applications teach of workloads whose own point is the same.

    ``points`` (n, 2): those where the prior can say something.
    """

    points: Array
    near: tuple[_Judged, ...]
    stretch: Array
    scores: Mapping[str, float]

    def prior(self, signature: Mapping[str, float], label: str = "") -> Prior:
        """Return the prior of the workload with a signature, and with a class if it is known."""
        found = [way.prior(self.points, self.stretch, signature, label) for way in self.near]
        return replace(found[0], doubts=tuple(found[1:]), scores=self.scores)


def learn(
    known: Sequence[WorkloadSurface],
    names: Collection[str],
    points: Array,
    own: Array,
    *,
    ways: Sequence[Way] = WAYS,
) -> Learned:
    """Learn of ``points`` (n, 2) against a workload's own point ``own`` (2,).

    ``names`` are the values its signature holds. Raises PriorError when fewer than three
    applications reach there.
    """
    rows, y, points = _table(known, points, own)
    kernel = np.array([s.kernel for s in rows])
    applications = {s.application for s in rows if not s.kernel}
    tried: list[_Judged] = []
    for with_kernels in (False, True) if kernel.any() else (False,):
        among = np.ones(len(rows), dtype=bool) if with_kernels else ~kernel
        some = [s for s, a in zip(rows, among, strict=True) if a]
        if len({s.application for s in some}) < 3:
            continue
        judged = ~kernel[among] if len(applications) >= _APART else np.ones(len(some), dtype=bool)
        scaled = _Scaled.of(some, names)
        table = scaled.rows(some, y[among], points[:, 1] - own[1])
        tried += [
            _Judged(
                way,
                with_kernels,
                table,
                scaled,
                _Errors(table, points, *way.left_out(table), judged),
            )
            for way in ways
        ]
    if not tried:
        raise PriorError(f"only {len(applications)} applications are swept there, three are needed")
    errors = [t.errors for t in tried]
    order = _near(errors)
    order[1:] = sorted(order[1:], key=lambda i: -errors[i].score)
    near = {tried[i].name: tried[i] for i in reversed(order)}
    first = tried[order[0]]
    scores: dict[str, float] = {}
    for t in sorted(tried, key=lambda t: t.errors.score):
        scores[t.name] = t.errors.score
    others = (t for t in near.values() if t.name != first.name)
    return Learned(points, (first, *others), np.repeat(_stretch(errors), len(points)), scores)


@dataclass(frozen=True)
class _Judged:
    """A way, with what it made of the known workloads."""

    way: Way
    with_kernels: bool
    rows: Rows
    scaled: _Scaled
    errors: _Errors

    @property
    def name(self) -> str:
        return self.way.method + ("+kernels" if self.with_kernels else "")

    def prior(
        self, points: Array, stretch: Array, signature: Mapping[str, float], label: str
    ) -> Prior:
        """Return what this way says at ``points``, its intervals stretched (2n,)."""
        estimate = self.way.estimate(self.rows, self.scaled.new(signature, label))
        cov = self.errors.covariance * estimate.factor * np.outer(stretch, stretch)
        like = sorted(zip(estimate.weights, self.rows.applications, strict=True), reverse=True)
        return Prior(
            points, estimate.surface.reshape(2, -1), cov, self.errors.dof, self.way,
            self.with_kernels, self.errors.applications,
            tuple(dict.fromkeys(a for w, a in like if w > 0.0))[:5],
        )  # fmt: skip


@dataclass(frozen=True)
class _Scaled:
    """How signatures are standardised: which values count, their means and spreads."""

    columns: tuple[str, ...]
    mean: Array
    spread: Array

    @classmethod
    def of(cls, some: Sequence[WorkloadSurface], names: Collection[str]) -> _Scaled:
        """Return the scale of what most signatures hold."""
        columns, mean, spread = [], [], []
        for name in sorted(names):
            there = [s.signature[name] for s in some if name in s.signature]
            if len(there) >= max(3, 0.6 * len(some)):
                columns.append(name)
                mean.append(float(np.mean(there)))
                least = max(_LEAST * float(np.max(np.abs(there))), 1e-6)
                spread.append(max(float(np.std(there)), least))
        return cls(tuple(columns), np.array(mean), np.array(spread))

    def rows(self, some: Sequence[WorkloadSurface], y: Array, ln_frequency: Array) -> Rows:
        """Return the known workloads; what one's signature lacks is put at the mean."""
        raw = np.array([[s.signature.get(c, np.nan) for c in self.columns] for s in some])
        raw = raw.reshape(len(some), len(self.columns))
        z = np.nan_to_num((raw - self.mean) / self.spread)
        applications, labels = [s.application for s in some], [s.label for s in some]
        return Rows(y, ln_frequency, z, raw, self.columns, applications, labels)

    def new(self, signature: Mapping[str, float], label: str) -> New:
        """Return the workload in question, standardised."""
        raw = np.array([signature.get(c, np.nan) for c in self.columns])
        return New(np.nan_to_num((raw - self.mean) / self.spread), raw, label)


def _table(
    known: Sequence[WorkloadSurface], points: Array, own: Array
) -> tuple[list[WorkloadSurface], Array, Array]:
    """Return the workloads that reach, their logarithms (m, 2n) and the points that are known."""
    rows, values = [], []
    for s in known:
        there = s.at(np.vstack((own, points)))
        table = there[:, 1:] - there[:, :1]
        if np.isfinite(table).mean() >= 0.6:
            rows.append(s)
            values.append(table)
    if not rows:
        raise PriorError("no swept application has measured near its own point")
    y = np.array(values)
    all_know = np.isfinite(y).all(axis=(0, 1))
    if not all_know.any():
        raise PriorError("the swept applications have no point in common")
    return rows, y[:, :, all_know].reshape(len(rows), -1), points[all_know]


class _Errors:
    """The errors a way makes for applications left out, in units of the spread between."""

    def __init__(
        self,
        rows: Rows,
        points: Array,
        left_out: Array,
        factors: Array,
        judged: npt.NDArray[np.bool_],
    ) -> None:
        y = rows.surfaces
        self._points = points
        self._owner = rows.owner
        self._factors = factors
        self._off = y - left_out
        sizes = {a: rows.applications.count(a) for a in set(rows.applications)}
        self._share = np.array([1.0 / sizes[a] for a in rows.applications])
        self.applications = len(sizes)
        self._judged = judged
        own = y[judged] if judged.any() else y
        n = y.shape[1] // 2
        near = np.abs(np.median(own[:, :n], axis=0)) < REGION
        self._else = np.abs(own).max(axis=0).reshape(2, n).max(axis=0) > 1e-12
        near &= self._else
        if not near.any():
            raise PriorError("no configuration takes about as long as the job's own")
        self._near = np.concatenate((near, near))
        self._standard = self._off / np.sqrt(self._factors)[:, None]
        self.dof = self.applications - 1.0 + PSEUDO
        self.scores = self._score()
        self.ratios = self._ratio()
        self.score = sum(self.scores.values()) / len(self.scores)

    @cached_property
    def _left_out_scale(self) -> Array:
        """Scale of every row's errors by those of the other applications (m, 2n)."""
        square = self._share[:, None] * self._standard**2
        total = square.sum(axis=0)
        own = np.zeros_like(square)
        for a in np.unique(self._owner):
            i = self._owner == a
            own[i] = square[i].sum(axis=0)
        variance = (total - own) / (self.applications - 1)
        scale: Array = np.sqrt(np.maximum(variance, FLOOR**2) * self._factors[:, None])
        return scale

    def _score(self) -> dict[str, float]:
        """Mean log density of each judged application left out, at points that could be chosen."""
        scale, dof = self._left_out_scale[:, self._near], self.dof - 1.0
        t = self._off[:, self._near] / scale
        constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * math.log(dof * math.pi)
        density = constant - 0.5 * (dof + 1) * np.log1p(t**2 / dof) - np.log(scale)
        rows = density.mean(axis=1)
        return {a: float(rows[self._owner == a].mean()) for a in self._judged_names()}

    def _judged_names(self) -> list[str]:
        return [str(a) for a in np.unique(self._owner[self._judged])]

    def _ratio(self) -> dict[str, Array]:
        """Each judged application's errors in units of half a 90 % interval (rows, 2, n)."""
        ratio = np.abs(self._off) / (self._left_out_scale * stdtrit(self.dof - 1.0, 0.95))
        ratio = ratio.reshape(len(ratio), 2, -1)[:, :, self._else]
        return {a: ratio[self._owner == a] for a in self._judged_names()}

    @cached_property
    def covariance(self) -> Array:
        """Covariance over points (2n, 2n) by the errors, drawn towards a smooth one."""
        points = self._points
        m, n = self.applications, len(points)
        empirical = (self._standard * self._share[:, None]).T @ self._standard / m
        sd = np.sqrt(np.maximum(np.diag(empirical), FLOOR**2))
        both = float(np.diag(empirical[:n, n:] / np.outer(sd[:n], sd[n:])).mean())
        joint = np.array([[1.0, both], [both, 1.0]])
        smooth = np.kron(joint, _smooth(points)) * np.outer(sd, sd)
        cov: Array = (m * empirical + PSEUDO * smooth) / (m + PSEUDO)
        cov[np.diag_indices_from(cov)] = np.maximum(np.diag(cov), FLOOR**2)
        return cov


def _near(tried: Sequence[_Errors], without: str = "") -> list[int]:
    """Return those whose score is within one standard error of the best, simplest first."""
    names = [a for a in tried[0].scores if a != without]
    table = np.array([[t.scores[a] for a in names] for t in tried])
    less = table[np.argmax(table.mean(axis=1))] - table
    error = less.std(axis=1, ddof=1) / math.sqrt(len(names)) if len(names) > 1 else 0.0
    return [int(i) for i in np.flatnonzero(less.mean(axis=1) <= error)]


def _stretch(tried: Sequence[_Errors]) -> Array:
    """By how much intervals of time and of energy are wider or narrower, for 90 % to hold.

    Choosing the way is part of it: each application's errors are those of the way
    that the other applications would have chosen.
    """
    names = list(tried[0].scores)
    found = []
    for axis in (0, 1):
        values, shares = [], []
        for a in names:
            others = tried[_near(tried, a)[0]]
            some = others.ratios[a][:, axis].ravel()
            values.append(some)
            shares.append(np.full(len(some), 1.0 / max(1, len(some))))
        every, share = np.concatenate(values), np.concatenate(shares)
        order = np.argsort(every)
        upto = np.cumsum(share[order]) / share.sum()
        level = min(0.98, 0.9 * (len(names) + 1) / len(names))
        at = float(every[order][min(len(order) - 1, int(np.searchsorted(upto, level)))])
        found.append((len(names) * at + PSEUDO) / (len(names) + PSEUDO))
    stretch: Array = np.clip(np.array(found), 0.7, 2.0)
    return stretch


def _smooth(points: Array) -> Array:
    """Correlation of two points' logarithms: that of a walk that starts at the origin."""
    span = np.maximum(np.abs(points).max(axis=0), 1e-9)
    z = points / span
    far = np.linalg.norm(z, axis=1)
    apart = np.linalg.norm(z[:, None] - z[None], axis=2)
    cov = 0.5 * (far[:, None] + far[None] - apart) + 1e-3 * np.eye(len(z))
    sd = np.sqrt(np.diag(cov))
    correlation: Array = cov / np.outer(sd, sd)
    return correlation
