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

from advisor.core import student
from advisor.one_thread import on_one_thread
from advisor.prior import FEWEST_APPLICATIONS
from advisor.prior.surface import Array, WorkloadSurface
from advisor.prior.ways import WAYS, New, Rows, SurfaceEstimate, Way

PSEUDO = 4.0
"""How many applications the smooth covariance counts for."""
FLOOR = 0.004
"""Least standard error of a logarithm: no meter and no clock is better."""
REGION = math.log(1.35)
"""Ways are compared where times are within this of the job's own: nothing else is chosen."""
MOST = 128
"""Known workloads that are learned from: what leaving each out takes grows with their cube, and is
1 s of processor time here."""
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
    that are within a standard error of the best. ``others``: what the best of every
    other method expects, ``mean`` alone.
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
    others: tuple[Array, ...] = ()

    @property
    def scale(self) -> Array:
        """Scale of each point's t distribution (2, n): time, energy."""
        scale: Array = np.sqrt(np.diag(self.cov)).reshape(2, -1)
        return scale

    def half_width(self, level: float = 0.90) -> Array:
        """Half of the two-sided interval of the logarithms (2, n)."""
        half: Array = self.scale * student.quantile(self.dof, 0.5 + level / 2)
        return half

    def expects(self, index: int, ln_time: float, ln_energy: float) -> bool:
        """Tell whether a run at a point lies inside both of its 90 % intervals."""
        off = np.abs(np.array([ln_time, ln_energy]) - self.mean[:, index])
        return bool((off <= self.half_width()[:, index]).all())

    def observe(self, index: int, ln_time: float, ln_energy: float, error: float) -> Prior:
        """Return the prior given a run at a point; ``error`` is the run's, of the logarithms.

        Other ways are not asked any more: the run itself tells more than they do.
        """
        n = len(self.points)
        i = [index, n + index]
        innovation = self.cov[np.ix_(i, i)] + error**2 * np.eye(2)
        off = np.array([ln_time, ln_energy]) - self.mean[:, index]
        gain = np.linalg.solve(innovation, self.cov[i]).T
        # A multivariate t given two values: its spread grows with how surprising they are.
        surprise = float(off @ np.linalg.solve(innovation, off))
        cov = (self.cov - gain @ self.cov[i]) * (self.dof + surprise) / (self.dof + 2.0)
        cov[np.diag_indices_from(cov)] = np.maximum(np.diag(cov), FLOOR**2)
        mean = self.mean + (gain @ off).reshape(2, -1)
        return replace(self, mean=mean, cov=cov, dof=self.dof + 2.0, doubts=(), others=())


@dataclass(frozen=True)
class Learned:
    """What the swept applications teach of workloads whose own point is the same.

    ``points`` (n, 2): those where the prior can say something. ``near``: the way that is taken, and
    those within a standard error of the best; ``far``: the best of every other method.
    """

    points: Array
    near: tuple[_Judged, ...]
    far: tuple[_Judged, ...]
    stretch: Array
    scores: Mapping[str, float]

    @cached_property
    def _covariances(self) -> list[Array]:
        """The covariance over points by each way's errors, stretched: the same for everybody."""
        stretch = np.outer(self.stretch, self.stretch)
        return [way.errors.covariance * stretch for way in self.near]

    def prior(self, signature: Mapping[str, float], label: str = "") -> Prior:
        """Return the prior of the workload with a signature, and with a class if it is known."""
        priors = [
            way.prior(self.points, cov, signature, label)
            for way, cov in zip(self.near, self._covariances, strict=True)
        ]
        far_estimates = tuple(
            way.estimate(signature, label).surface.reshape(2, -1) for way in self.far
        )
        return replace(
            priors[0], doubts=tuple(priors[1:]), others=far_estimates, scores=self.scores
        )


def like_and_others(
    known: Sequence[WorkloadSurface], names: Collection[str], signature: Mapping[str, float]
) -> list[WorkloadSurface]:
    """Return at most :data:`MOST` of the known workloads: those to learn from for a signature.

    Half of them are the most like it, the others are spread evenly over all that are less so: they
    keep how much applications differ from looking smaller than it is.
    """
    if len(known) <= MOST:
        return list(known)
    scaled = _Scaled.of(known, names)
    values = np.array([[s.signature.get(c, np.nan) for c in scaled.columns] for s in known])
    z = np.nan_to_num((values - scaled.mean) / scaled.spread)
    new = scaled.new(signature, "").signature
    order = np.argsort(np.linalg.norm(z - new, axis=1), kind="stable")
    near, far = order[: MOST // 2], order[MOST // 2 :]
    spread = far[np.linspace(0, len(far) - 1, MOST - len(near)).astype(int)]
    return [known[i] for i in sorted([*near.tolist(), *spread.tolist()])]


@on_one_thread
def learn(
    surfaces: Sequence[WorkloadSurface],
    names: Collection[str],
    points: Array,
    own_point: Array,
    *,
    ways: Sequence[Way] = WAYS,
) -> Learned:
    """Learn of ``points`` (n, 2) against a workload's own point ``own_point`` (2,).

    ``names`` are the values its signature holds. Raises PriorError when fewer than three
    applications reach there.
    """
    rows, y, points = _table(surfaces, points, own_point)
    kernel = np.array([s.kernel for s in rows])
    applications = {s.application for s in rows if not s.kernel}
    tried: list[_Judged] = []
    for with_kernels in (False, True) if kernel.any() else (False,):
        among = np.ones(len(rows), dtype=bool) if with_kernels else ~kernel
        some = [s for s, a in zip(rows, among, strict=True) if a]
        if len({s.application for s in some}) < FEWEST_APPLICATIONS:
            continue
        judged = ~kernel[among] if len(applications) >= _APART else np.ones(len(some), dtype=bool)
        scaled = _Scaled.of(some, names)
        table = scaled.rows(some, y[among], points[:, 1] - own_point[1])
        frame = _ErrorFrame(table, points, judged)
        for way in ways:
            predictions, factors = way.left_out(table)
            errors = _Errors(frame, table.surfaces - predictions, factors)
            tried.append(_Judged(way, with_kernels, table, scaled, errors))
    if not tried:
        raise PriorError(f"only {len(applications)} applications are swept there, three are needed")
    every = [t.errors for t in tried]
    by_way = np.array([list(t.scores.values()) for t in every])
    order = _about_best(by_way)
    order[1:] = sorted(order[1:], key=lambda i: -every[i].score)
    # Reversed, and below by ascending scores: of one name or method the best comes last and stays.
    near = {tried[i].name: tried[i] for i in reversed(order)}
    first = tried[order[0]]
    scores: dict[str, float] = {}
    for t in sorted(tried, key=lambda t: t.errors.score):
        scores[t.name] = t.errors.score
    alternatives = (t for t in near.values() if t.name != first.name)
    best: dict[str, _Judged] = {}
    for t in sorted(tried, key=lambda t: t.errors.score):
        best[t.way.method] = t
    for t in near.values():
        best.pop(t.way.method, None)
    stretch = np.repeat(_stretch(every, by_way), len(points))
    return Learned(points, (first, *alternatives), tuple(best.values()), stretch, scores)


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

    def estimate(self, signature: Mapping[str, float], label: str) -> SurfaceEstimate:
        """Return the surface that this way says of a workload."""
        return self.way.estimate(self.rows, self.scaled.new(signature, label))

    def prior(self, points: Array, cov: Array, signature: Mapping[str, float], label: str) -> Prior:
        """Return what this way says at ``points``, with errors of covariance ``cov`` (2n, 2n)."""
        estimate = self.estimate(signature, label)
        cov = cov * estimate.factor
        w = estimate.weights
        alike = w > 1.001 * w.mean()  # the mean of all is like nobody more than others
        weighted = sorted(zip((-w.round(9)).tolist(), self.rows.applications, alike, strict=True))
        like = [name for _, name, near in weighted if near]
        return Prior(
            points,
            estimate.surface.reshape(2, -1),
            cov,
            self.errors.dof,
            self.way,
            self.with_kernels,
            self.errors.applications,
            tuple(dict.fromkeys(like))[:5],
        )


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
            column = [s.signature[name] for s in some if name in s.signature]
            if len(column) >= max(3, 0.6 * len(some)):
                columns.append(name)
                mean.append(float(np.mean(column)))
                least = max(_LEAST * float(np.max(np.abs(column))), 1e-6)
                spread.append(max(float(np.std(column)), least))
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
    surfaces: Sequence[WorkloadSurface], points: Array, own_point: Array
) -> tuple[list[WorkloadSurface], Array, Array]:
    """Return the workloads that reach, their logarithms (m, 2n) and the points that are known."""
    rows, values = [], []
    for s in surfaces:
        responses = s.at(np.vstack((own_point, points)))
        table = responses[:, 1:] - responses[:, :1]
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


class _ErrorFrame:
    """What the errors of all ways have in common: whose they are, and the points that count."""

    def __init__(self, rows: Rows, points: Array, judged: npt.NDArray[np.bool_]) -> None:
        owner = rows.owner
        names, index = np.unique(owner, return_inverse=True)
        membership = (index[:, None] == np.arange(len(names))).astype(np.float64)
        size = membership.sum(axis=0)
        self.points = points
        self.applications = len(names)
        self.dof = self.applications - 1.0 + PSEUDO
        self.share = (1.0 / size)[index]
        same_application = membership @ membership.T
        self.others: Array = (1.0 - same_application) * self.share / (self.applications - 1)
        counted = membership[judged].any(axis=0)
        self.names = [str(name) for name in names[counted]]
        self.mean = (membership / size).T[counted]
        self.mine = {str(name): owner == name for name in names[counted]}
        judged_surfaces = rows.surfaces[judged] if judged.any() else rows.surfaces
        n = judged_surfaces.shape[1] // 2
        near = np.abs(np.median(judged_surfaces[:, :n], axis=0)) < REGION
        self.elsewhere = np.abs(judged_surfaces).max(axis=0).reshape(2, n).max(axis=0) > 1e-12
        near &= self.elsewhere
        if not near.any():
            raise PriorError("no configuration takes about as long as the job's own")
        self.near = np.flatnonzero(np.concatenate((near, near)))
        self.constant = student.log_peak(self.dof - 1.0)


class _Errors:
    """The errors a way makes for applications left out, in units of the spread between."""

    def __init__(self, frame: _ErrorFrame, off: Array, factors: Array) -> None:
        self._frame = frame
        self._off = off
        self._factors = factors[:, None]
        self.dof = frame.dof
        self.applications = frame.applications
        self.scores = self._score()
        self.score = sum(self.scores.values()) / len(self.scores)

    def _left_out_scale(self, off: Array) -> Array:
        """Scale of every row's errors by those of the other applications (m, 2n)."""
        variance = self._frame.others @ (off**2 / self._factors)
        scale: Array = np.sqrt(np.maximum(variance, FLOOR**2) * self._factors)
        return scale

    def _score(self) -> dict[str, float]:
        """Mean log density of each judged application left out, at points that could be chosen."""
        frame = self._frame
        off, dof = self._off[:, frame.near], frame.dof - 1.0
        scale = self._left_out_scale(off)
        density = np.log1p((off / scale) ** 2 / dof) * (-0.5 * (dof + 1)) - np.log(scale)
        densities = frame.mean @ (density.mean(axis=1) + frame.constant)
        return dict(zip(frame.names, densities.tolist(), strict=True))

    @cached_property
    def ratios(self) -> dict[str, Array]:
        """Each judged application's errors in units of half a 90 % interval (rows, 2, n)."""
        half = self._left_out_scale(self._off) * student.quantile(self.dof - 1.0, 0.95)
        ratio = (np.abs(self._off) / half).reshape(len(half), 2, -1)
        ratio = ratio[:, :, self._frame.elsewhere]
        return {name: ratio[rows] for name, rows in self._frame.mine.items()}

    @cached_property
    def covariance(self) -> Array:
        """Covariance over points (2n, 2n) by the errors, drawn towards a smooth one."""
        points = self._frame.points
        m, n = self.applications, len(points)
        standard = self._off / np.sqrt(self._factors)
        empirical = (standard * self._frame.share[:, None]).T @ standard / m
        sd = np.sqrt(np.maximum(np.diag(empirical), FLOOR**2))
        both = float(np.diag(empirical[:n, n:] / np.outer(sd[:n], sd[n:])).mean())
        joint = np.array([[1.0, both], [both, 1.0]])
        smooth = np.kron(joint, _smooth(points)) * np.outer(sd, sd)
        cov: Array = (m * empirical + PSEUDO * smooth) / (m + PSEUDO)
        cov[np.diag_indices_from(cov)] = np.maximum(np.diag(cov), FLOOR**2)
        return cov


def _about_best(scores: Array) -> list[int]:
    """Return the ways (rows) whose mean score is within one standard error of the best."""
    less = scores[np.argmax(scores.mean(axis=1))] - scores
    count = scores.shape[1]
    error = less.std(axis=1, ddof=1) / math.sqrt(count) if count > 1 else 0.0
    return [int(i) for i in np.flatnonzero(less.mean(axis=1) <= error)]


def _stretch(tried: Sequence[_Errors], scores: Array) -> Array:
    """By how much intervals of time and of energy are wider or narrower, for 90 % to hold.

    Choosing the way is part of it: each application's errors are those of the way
    that the other applications would have chosen. ``scores`` (ways, applications).
    """
    names = list(tried[0].scores)
    ratios = [
        tried[_about_best(np.delete(scores, k, axis=1))[0]].ratios[name]
        for k, name in enumerate(names)
    ]
    factors = []
    for axis in (0, 1):
        values, shares = [], []
        for ratio in ratios:
            some = ratio[:, axis].ravel()
            values.append(some)
            shares.append(np.full(len(some), 1.0 / max(1, len(some))))
        every, share = np.concatenate(values), np.concatenate(shares)
        order = np.argsort(every)
        upto = np.cumsum(share[order]) / share.sum()
        # Of n errors, the quantile that one more stays below with 90 % (conformal prediction).
        level = min(0.98, 0.9 * (len(names) + 1) / len(names))
        quantile = float(every[order][min(len(order) - 1, int(np.searchsorted(upto, level)))])
        factors.append((len(names) * quantile + PSEUDO) / (len(names) + PSEUDO))
    stretch: Array = np.clip(np.array(factors), 0.7, 2.0)
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
