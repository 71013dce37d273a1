"""A Gaussian process around a family of laws, averaged over laws and its own settings.

No single law is chosen and nothing is optimised: every pair of a law and a setting of the process
counts by its prior weight times the probability it gave the runs (the marginal likelihood). With a
dozen runs many pairs stay possible, and that they disagree is part of the error. As prior and
grid are fixed, leaving runs out is exact and needs no second fit: a pair's weight without some runs
is its weight divided by the probability it gave them (Gelfand, Dey and Chang 1992; Rasmussen and
Williams 2006, equations 5.10 to 5.12).

What the laws miss is a sum of independent parts, all of the logarithm:

- rough in cores (an Ornstein-Uhlenbeck process of log cores for time, since sockets, caches and
  partitions make steps; once differentiable for power), and of nodes, alone and together;
- smooth in frequency: a tilt and a bend, partly shared by all core counts;
- the highest frequency apart from the others, nearly alike for all core counts: turbo;
- something of each configuration's own, which its next run will show again;
- the measurement's error, which it will not.

Runs that the others make very improbable count as disturbed and hardly weigh; see ``_disturbed``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.models.base import Matrix, Vector, folds
from advisor.models.disturbances import Disturbances
from advisor.models.laws import LawAxes, LawFamily, Placements, power_laws, time_laws

What = Literal["time", "power"]

_LEVEL = 3.0
"""Prior standard deviation of the level (log), beyond what the mean of the runs says: flat."""
_NODES_LENGTH = 1.5
"""Length in log nodes over which responses stay alike: a factor of 4.5. Ours, as all below."""
_BEND_LENGTH = 0.5
"""Length of the bend in frequency, as a share of the range of caps in logarithms."""
_FURTHER_TILT, _FURTHER_BEND = 0.6, 0.15
"""Standard deviations (log) of a response's tilt over a further axis' whole range, of its bends."""
_FREQ_SHARED = 0.4
"""Share of tilt and bend (variance) that all core counts have in common."""
_TOP_SHARED, _TOP_LENGTH = 0.3, 5.0
"""Share of turbo's variance that all core counts have in common; length (log cores) of the rest: so
long that its trend goes on to few cores, where turbo is highest."""
_DISTURBED_SIGMA, _DISTURBED_SHARE = 0.5, 0.02
"""How far (log) a disturbed run is off, and how many of all runs are: one in fifty."""
_LONGER, _SHORTER = 2.0, 0.2
"""A disturbance makes a run longer ten times as often as shorter: factors of the odds."""
_MOST_DISTURBED = 6
"""At most one run in so many counts as disturbed."""
_TRUST = 12.0
"""The process' own error counts as much as a dozen held-out runs."""
_MOST_SURPRISE = 9.0
"""Most that one run's squared standardised error counts: three standard deviations."""
_SCREEN, _PAIRS_OF_MANY = 40, 24
"""Of more runs than 40, 40 choose the 24 pairs of law and setting that all runs then weigh."""
_LEAST_WEIGHT = 1e-6
"""Pairs of less weight than this share of the best one's are left out."""
_LEAST_VARIANCE = 1e-10
"""Least variance (log squared) of a prediction: rounding must not make it negative."""
_CHUNK = 4096
"""Places predicted at once: bounds memory, not the result."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Standard deviations (log) of the process' parts."""

    rough: float
    bend: float
    top: float
    own: float


@dataclass(frozen=True, slots=True)
class ResidualKind:
    """How the processes of time and power differ: length in log cores, smoothness, settings."""

    length: float
    smooth: bool
    rough: tuple[float, ...]
    bend: tuple[float, ...]
    top: tuple[float, ...]
    own: tuple[float, ...]
    """In units of one run's error."""

    def settings(self, axes: LawAxes, sigma: float) -> list[Setting]:
        """Return the settings that such axes can distinguish."""
        bends, tops = (self.bend, self.top) if axes.freq_varies else ((0.0,), (0.0,))
        return [
            Setting(rough, bend, top, own_share * sigma)
            for rough, bend, top, own_share in itertools.product(self.rough, bends, tops, self.own)
        ]


KINDS: dict[What, ResidualKind] = {
    "time": ResidualKind(
        1.0, False, (0.01, 0.03, 0.08, 0.2), (0.005, 0.02, 0.06), (0.0, 0.1, 0.3), (0.5, 2.0, 6.0)
    ),
    "power": ResidualKind(
        1.5, True, (0.003, 0.01, 0.03, 0.08), (0.003, 0.01, 0.04), (0.0, 0.05, 0.2), (0.3, 1.0, 4.0)
    ),
}
"""Power has fewer causes than time and is smoother: what its laws miss is smaller."""
UNDER_A_LIMIT: dict[What, ResidualKind] = {
    what: replace(kind, rough=(0.01, 0.03, 0.08, 0.2), bend=(0.01, 0.04, 0.12))
    for what, kind in KINDS.items()
}
"""Where a power limit varies, either follows from the clock that a device finds below it, and the
laws say less of both."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What the runs of one response lead to expect of a new run: log means, standard deviations.

    ``mean`` and ``sigma`` (m,) are those at the places asked for, ``held_out`` and
    ``held_out_sigma`` (n,) the runs' own, each from the others only. ``disturbed`` (n,) marks
    the runs that hardly count, ``disturbances`` what they make of the interval upwards,
    ``parameters`` the laws' average parameters, ``turbo`` how probable it is that the highest
    frequency stands apart from the others.
    """

    mean: Vector
    sigma: Vector
    held_out: Vector
    held_out_sigma: Vector
    disturbed: NDArray[np.bool_]
    disturbances: Disturbances
    parameters: dict[str, float]
    turbo: float
    pieces: int = 0
    """In how many equal pieces the work probably comes; 0 where it probably does not."""


def believe(
    what: What,
    trained: Matrix,
    log_y: Vector,
    noise: Vector,
    sigma: float,
    points: Matrix,
    run_of_point: NDArray[np.intp],
    *,
    limited: bool = False,
) -> Belief:
    """Return what n runs say of m places.

    ``trained`` (n, 3) and ``points`` (m, 3) are rows of [nodes, threads, frequency], and may have
    further axes as further columns (see :func:`_with_clock`); ``noise``
    (n,) is the standard deviation of each ``log_y``, ``sigma`` that of a single run;
    ``run_of_point`` (m,) is the number of the training run made at that very configuration, -1
    where there is none.
    ``limited``: the axis in the frequency's place is a power limit.
    """
    trained, points = _with_clock(trained, points)
    axes = LawAxes.of(np.vstack([trained, points]), limited=limited)
    kind = UNDER_A_LIMIT[what] if limited else KINDS[what]
    family = time_laws(axes) if what == "time" else power_laws(axes)
    process = _Process(axes, kind, family, kind.settings(axes, sigma), trained, log_y)
    disturbed = np.zeros(len(log_y), dtype=bool)
    # The worst run makes its neighbours look bad, so after each one that counts as disturbed all
    # are judged again.
    while True:
        weighed = process.weigh(np.where(disturbed, np.hypot(noise, _DISTURBED_SIGMA), noise))
        left_out = process.leave_out(weighed)
        more = _disturbed(left_out, disturbed, what)
        if not more.any():
            break
        disturbed = disturbed | more
    mean, variance = process.predict(weighed, Placements.of(points, axes), run_of_point, sigma)
    everywhere, own_scales = _scales(left_out, disturbed)
    undisturbed = left_out.variance - np.where(disturbed, _DISTURBED_SIGMA**2, 0.0)
    disturbances = Disturbances.of(disturbed, left_out.error)
    wider = disturbances.wider
    parameters = weighed.weight @ family.parameters[weighed.law][:, : len(family.shown)]
    return Belief(
        mean,
        np.sqrt(variance) * everywhere * wider,
        log_y - left_out.error,
        np.sqrt(np.maximum(undisturbed, sigma**2)) * own_scales * wider,
        disturbed,
        disturbances,
        dict(zip(family.shown, parameters.tolist(), strict=True)),
        float(
            sum(
                w
                for h, w in zip(weighed.setting, weighed.weight, strict=True)
                if process.settings[h].top
            )
        ),
        _pieces(family, weighed),
    )


def _pieces(family: LawFamily, weighed: _Weighed) -> int:
    """Return the most probable number of pieces if there being pieces is more probable than not."""
    if family.pieces is None:
        return 0
    pieces = family.pieces[weighed.law]
    likely = {w: float(weighed.weight[pieces == w].sum()) for w in np.unique(pieces)}
    if likely.pop(math.inf, 0.0) > 0.5:
        return 0
    return int(max(likely, key=likely.__getitem__))


def _with_clock(trained: Matrix, points: Matrix) -> tuple[Matrix, Matrix]:
    """Return the same rows with only those further axes that vary.

    Where the processors' frequency does not vary, the first of them takes its place: a GPU's clock
    obeys the same laws, and its power limit those of the clock that it leads to.
    """
    spread = np.ptp(np.vstack([trained, points]), axis=0)
    further = [i for i in range(3, len(spread)) if spread[i] > 0]
    clock = further.pop(0) if further and not spread[2] else 2
    columns = [0, 1, clock, *further]
    return trained[:, columns], points[:, columns]


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Pairs (k,) of a setting and a law with their weights, for n runs of such ``noise``."""

    noise: Vector
    setting: NDArray[np.intp]
    law: NDArray[np.intp]
    weight: Vector

    def by_setting(self) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.intp]]]:
        """Give each setting with its pairs' places among all, and their laws."""
        for number in np.unique(self.setting):
            pairs = np.flatnonzero(self.setting == number)
            yield int(number), pairs, self.law[pairs]


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """The runs (n,) as the others predict them, over all pairs: error, variance, probabilities.

    ``likely`` is the probability density of each run's error, ``likely_disturbed`` what it would
    be were the run disturbed.
    """

    error: Vector
    variance: Vector
    likely: Vector
    likely_disturbed: Vector


class _Process:
    """The runs' covariances, and what follows from them."""

    def __init__(
        self,
        axes: LawAxes,
        kind: ResidualKind,
        family: LawFamily,
        settings: Sequence[Setting],
        trained: Matrix,
        log_y: Vector,
    ) -> None:
        self.kind, self.family, self.settings = kind, family, settings
        self.places = Placements.of(trained, axes)
        self._nodes_vary = axes.nodes_vary
        self._log_y = log_y
        self._folds = folds(len(log_y))
        self._laws = family.evaluate(self.places)
        every_law = np.arange(self._laws.shape[1])
        # Of the copy that choosing laws makes: how an array lies in memory decides in which order
        # its rows are added, and with that the last digit.
        off_laws = log_y[:, None] - self._laws[:, every_law]
        self._level_of_law: Vector = off_laws.mean(axis=0)
        self._residual_of_law: Matrix = off_laws - self._level_of_law
        self._parts = self._covariances(self.places, self.places)

    def weigh(self, noise: Vector) -> _Weighed:
        """Weigh every pair; of many runs a few decide first which pairs are worth weighing."""
        n = len(self._log_y)
        laws = np.arange(self._laws.shape[1])
        pairs = [(h, laws) for h in range(len(self.settings))]
        if n > _SCREEN:
            # Drawn, as runs come in an order; with one seed, so that the same runs give the same
            # model.
            some = np.random.default_rng(0).permutation(n)[:_SCREEN]
            first = self._weigh(pairs, noise, some)
            best = np.argsort(-first.weight)[:_PAIRS_OF_MANY]
            promising = _Weighed(noise, first.setting[best], first.law[best], first.weight[best])
            pairs = [(h, law) for h, _, law in promising.by_setting()]
        return self._weigh(pairs, noise, np.arange(n))

    def _weigh(
        self,
        pairs: Sequence[tuple[int, NDArray[np.intp]]],
        noise: Vector,
        rows: NDArray[np.intp],
    ) -> _Weighed:
        settings, laws, logs = [], [], []
        for h, law in pairs:
            factor = np.linalg.cholesky(self._covariance(h, noise)[rows][:, rows])
            white = np.linalg.solve(factor, self._residuals(law)[rows])
            # The logarithm of the marginal likelihood, up to a constant that all pairs share.
            log_weight = -0.5 * (white**2).sum(axis=0) - np.log(np.diag(factor)).sum()
            settings.append(np.full(len(law), h))
            laws.append(law)
            logs.append(log_weight + self.family.log_prior[law])
        log_weights = np.concatenate(logs)
        # Hundreds of runs make likelihoods that no double holds: only their ratios matter.
        weights = np.exp(log_weights - log_weights.max())
        keep = weights > _LEAST_WEIGHT
        weights = weights[keep] / weights[keep].sum()
        return _Weighed(noise, np.concatenate(settings)[keep], np.concatenate(laws)[keep], weights)

    def leave_out(self, weighed: _Weighed) -> _LeftOut:
        """Predict each run from those of other folds; up to twenty runs are a fold each."""
        k, n = len(weighed.weight), len(self._log_y)
        error, variance = np.empty((k, n)), np.empty((k, n))
        log_likely = np.empty((k, n))
        for h, pairs, law in weighed.by_setting():
            inverse = np.linalg.inv(self._covariance(h, weighed.noise))
            pulled = inverse @ self._residuals(law)
            if len(self._folds) == n:
                # each run is a fold: the same as below, at once. A run left out is off by its
                # pulled residual over its precision, its diagonal entry of the inverse covariance
                precision = np.diagonal(inverse)[:, None]
                error[pairs], variance[pairs] = (
                    (pulled / precision).T,
                    1 / precision.T,
                )
                log_likely[pairs] = 0.5 * (np.log(precision) - pulled**2 / precision).T
                continue
            for rows in self._folds:
                block = np.linalg.inv(inverse[np.ix_(rows, rows)])
                off = block @ pulled[rows]
                error[np.ix_(pairs, rows)] = off.T
                variance[np.ix_(pairs, rows)] = np.diag(block)
                surprise = (off * pulled[rows]).sum(axis=0) + np.linalg.slogdet(block)[1]
                log_likely[np.ix_(pairs, rows)] = -0.5 * surprise[:, None]
        # A pair's weight without a fold: its weight over the probability that it gave this fold.
        weight_left_out = np.log(weighed.weight)[:, None] - log_likely
        weight_left_out = np.exp(weight_left_out - weight_left_out.max(axis=0))
        weight_left_out /= weight_left_out.sum(axis=0)
        mean = (weight_left_out * error).sum(axis=0)
        spread = (weight_left_out * (variance + error**2)).sum(axis=0) - mean**2
        likely = (weight_left_out * _density(error, variance)).sum(axis=0)
        off = _density(error, variance + _DISTURBED_SIGMA**2)
        return _LeftOut(mean, spread, likely, (weight_left_out * off).sum(axis=0))

    def predict(
        self, weighed: _Weighed, places: Placements, run_of_point: NDArray[np.intp], sigma: float
    ) -> tuple[Vector, Vector]:
        """Return mean and variance (m,) of a new run's logarithm."""
        m = len(places.cores)
        mean, square = np.zeros(m), np.zeros(m)
        for begin in range(0, m, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            some = places.some(part)
            cross = self._covariances(some, self.places)
            laws = self.family.evaluate(some, np.unique(weighed.law))
            column = {law: i for i, law in enumerate(np.unique(weighed.law))}
            is_own_run = run_of_point[part][:, None] == np.arange(len(self._log_y))[None]
            for h, pairs, law in weighed.by_setting():
                own_variance = self.settings[h].own ** 2
                reach = self._sum(h, cross) + own_variance * is_own_run
                inverse = np.linalg.inv(self._covariance(h, weighed.noise))
                pull = reach @ inverse
                residuals = self._residuals(law)
                expected = laws[:, [column[i] for i in law]] + self._levels(law) + pull @ residuals
                weight = weighed.weight[pairs]
                variance = self._variance(h, some) + own_variance - (pull * reach).sum(axis=1)
                variance += self.settings[h].rough ** 2 * self._beyond(some)
                mean[part] += expected @ weight
                square[part] += expected**2 @ weight
                square[part] += np.maximum(variance, 0.0) * weight.sum()
        # What is predicted is a new run, which has a run's own error on top.
        return mean, np.maximum(square - mean**2, _LEAST_VARIANCE) + sigma**2

    def _beyond(self, places: Placements) -> Vector:
        """Return by how much (m,) the variance of what is rough grows outside of the runs' cores.

        Inside a run on either side holds it. Beyond, what laws miss may go on growing, as a random
        walk of the same steps does.
        """
        low, high = self.places.log_cores.min(), self.places.log_cores.max()
        apart = np.maximum(low - places.log_cores, places.log_cores - high)
        growth: Vector = 2 * np.maximum(apart, 0.0) / self.kind.length
        return growth

    def _levels(self, law: NDArray[np.intp]) -> Vector:
        """Return what the laws' mean is off the runs' mean."""
        return self._level_of_law[law]

    def _residuals(self, law: NDArray[np.intp]) -> Matrix:
        return self._residual_of_law[:, law]

    def _covariance(self, h: int, noise: Vector) -> Matrix:
        return self._sum(h, self._parts) + np.diag(self.settings[h].own ** 2 + noise**2)

    def _sum(self, h: int, parts: tuple[Matrix, ...]) -> Matrix:
        setting = self.settings[h]
        rough, bend, top, *further = parts
        total: Matrix = setting.rough**2 * rough + setting.bend**2 * bend + setting.top**2 * top
        for part in further:
            total = total + part
        # The level is common to all places, so that it adds the same to each pair of them.
        return total + _LEVEL**2

    def _variance(self, h: int, places: Placements) -> Vector:
        setting = self.settings[h]
        bend = setting.bend**2 * (places.along**2 + 0.5)
        total: Vector = setting.rough**2 + bend + setting.top**2 * places.top + _LEVEL**2
        for along in places.further:
            total = total + _FURTHER_TILT**2 * along**2 + _FURTHER_BEND**2
        return total

    def _covariances(self, a: Placements, b: Placements) -> tuple[Matrix, ...]:
        """Return the parts' correlations (len(a), len(b)): in cores and nodes, frequency, top.

        Then the covariances along further axes, of which no law says anything.
        """
        cores = _matern(a.log_cores, b.log_cores, self.kind.length, smooth=self.kind.smooth)
        rough = cores
        if self._nodes_vary:
            nodes = _matern(a.log_nodes, b.log_nodes, _NODES_LENGTH, smooth=True)
            rough = 0.5 * cores + 0.5 * nodes * (0.5 + 0.5 * cores)
        tilt = np.outer(a.along, b.along)
        apart = (a.along[:, None] - b.along[None]) / _BEND_LENGTH
        bend = (tilt + 0.5 * np.exp(-0.5 * apart**2)) * (_FREQ_SHARED + (1 - _FREQ_SHARED) * cores)
        near = _matern(a.log_cores, b.log_cores, _TOP_LENGTH, smooth=True)
        top = np.outer(a.top, b.top) * (_TOP_SHARED + (1 - _TOP_SHARED) * near)
        return rough, bend, top, *map(_further, a.further, b.further)


def _further(a: Vector, b: Vector) -> Matrix:
    """Return the covariances along a further axis: a tilt, and smooth bends."""
    apart = (a[:, None] - b[None]) / _BEND_LENGTH
    covariance: Matrix = _FURTHER_TILT**2 * np.outer(a, b)
    return covariance + _FURTHER_BEND**2 * np.exp(-0.5 * apart**2)


def _matern(a: Vector, b: Vector, length: float, *, smooth: bool) -> Matrix:
    """Return Matern correlations, of order 3/2 if smooth, else 1/2 (Ornstein-Uhlenbeck)."""
    apart = np.abs(a[:, None] - b[None]) / length
    if not smooth:
        rough: Matrix = np.exp(-apart)
        return rough
    apart = math.sqrt(3.0) * apart
    correlation: Matrix = (1.0 + apart) * np.exp(-apart)
    return correlation


def _density(error: Matrix, variance: Matrix) -> Matrix:
    density: Matrix = np.exp(-0.5 * error**2 / variance) / np.sqrt(2 * np.pi * variance)
    return density


def _disturbed(left_out: _LeftOut, disturbed: NDArray[np.bool_], what: What) -> NDArray[np.bool_]:
    """Return which further runs are more probably disturbed than not.

    Of a few runs the worst one only, since it makes others look bad; at most a sixth of all.
    """
    share = _DISTURBED_SHARE / (1 - _DISTURBED_SHARE)
    # The bound keeps a probability that has become 0 from dividing.
    odds = share * left_out.likely_disturbed / np.maximum(left_out.likely, 1e-300)
    if what == "time":
        odds = odds * np.where(left_out.error > 0, _LONGER, _SHORTER)
    odds = np.where(disturbed, 0.0, odds)
    room = len(odds) // _MOST_DISTURBED - int(disturbed.sum())
    allowed = min(room, 1 if len(odds) <= _SCREEN else room)
    worst = np.argsort(-odds)[: max(0, allowed)]
    more = np.zeros(len(odds), dtype=bool)
    more[worst] = odds[worst] > 1.0
    return more


def _scales(left_out: _LeftOut, disturbed: NDArray[np.bool_]) -> tuple[float, Vector]:
    """Return by what the errors of held-out runs make all intervals wider, and each run's own.

    The mean square of the standardised errors, with the process' own expectation of one counting
    as :data:`_TRUST` runs. A run's own interval does not know the run.
    """
    squares = np.minimum(left_out.error**2 / left_out.variance, _MOST_SURPRISE)
    squares = np.where(disturbed, 0.0, squares)
    total, count = float(squares.sum()), int((~disturbed).sum())
    everywhere = math.sqrt((_TRUST + total) / (_TRUST + count))
    own_scales = np.sqrt((_TRUST + total - squares) / (_TRUST + count - ~disturbed))
    return everywhere, own_scales
