"""What the laws miss: independent parts of the logarithm, as covariances of a Gaussian process.

- *growth*: beyond the laws a response drifts with sizes and nodes, as a tilt and as a random walk
  from the middle of what was measured. All options share it, and it grows with distance.
- *apart*: options drift apart, alike where cores and frequency are alike. It grows the same way.
- *rough*: steps in cores (sockets, caches), the same at every size.
- *bend*: what the law of frequency misses, the same at every size; *top*: turbo.
- *grain*: something of each node count's own.
- *own*: something of each configuration's own, in part the same at every size.
- the measurement: a share of the response, and a time (clocks that tick).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from advisor.models.base import Matrix, Vector
from advisor.scaling.base import SizedPlaces

LEVEL = 3.0
"""Prior standard deviation of the level (log), beyond what the runs' mean says: flat."""
_ROUGH_LENGTH, _APART_LENGTH = 1.0, 1.5
"""Lengths in log cores."""
_BEND_LENGTH = 0.5
"""Length of the bend in frequency, as a share of the range of caps in logarithms."""
_OWN_KEPT = 0.5
"""Share (variance) of a configuration's own that is the same at every size."""
_APART_CORES, _APART_FREQ = 0.7, 0.6
"""How much of the drift apart is of cores, and of the tilt in frequency."""
_NODES = 3.0
"""Nodes bring what no smaller number shows (switches, imbalance): they count as further away."""
_GRAIN = 0.03
"""What each node count has of its own: a domain divides better by some numbers than by others."""
_WALK = 0.5
"""Variance of the random walk beside the tilt's."""


@dataclass(frozen=True, slots=True)
class ResidualScale:
    """Standard deviations (log) of the parts; ``tick`` is a time in seconds."""

    growth: float
    apart: float
    rough: float
    bend: float
    top: float
    own: float
    tick: float


def scales(what: str, trained: SizedPlaces, sigma: float) -> list[ResidualScale]:
    """Return the settings that such runs can distinguish; ``sigma`` is one run's error."""
    grows = any(len(set(column)) > 1 for column in trained.growing().T)
    cores, freqs = len(set(trained.cores)) > 1, len(set(trained.freq_khz)) > 1
    time = what == "time"
    growth = ((0.025, 0.06, 0.15, 0.35) if time else (0.01, 0.03, 0.1)) if grows else (0.0,)
    apart = (0.01, 0.04, 0.12) if grows and (cores or freqs) else (0.0,)
    rough = ((0.01, 0.04, 0.12) if time else (0.004, 0.02, 0.06)) if cores else (0.0,)
    bend = (0.01, 0.04) if freqs else (0.0,)
    top = (0.0, 0.15) if freqs else (0.0,)
    own_factors = (0.5, 3.0)
    tick = (0.0, 0.1, 0.5) if time else (0.0, 0.2)
    return [
        ResidualScale(a, b, c, d, e, f * sigma, g)
        for a, b, c, d, e, f, g in itertools.product(
            growth, apart, rough, bend, top, own_factors, tick
        )
    ]


@dataclass(frozen=True, slots=True)
class ResidualAxes:
    """The runs' middle and reach, which all covariances are relative to."""

    middle: Vector
    varies: Vector
    least_freq: float
    most_freq: float

    @classmethod
    def of(cls, trained: SizedPlaces) -> ResidualAxes:
        """Return those of the trained places."""
        grown = np.log(trained.growing())
        varies = np.array([float(len(np.unique(column)) > 1) for column in grown.T])
        freqs = trained.freq_khz[trained.freq_khz > 0]
        low, high = (float(freqs.min()), float(freqs.max())) if len(freqs) else (0.0, 0.0)
        return cls(grown.mean(axis=0), varies, low, high)


@dataclass(frozen=True, slots=True)
class Covariances:
    """Correlations of the parts, to be added up for any scale: of pairs of places, or variances."""

    growth: Matrix
    apart: Matrix
    rough: Matrix
    bend: Matrix
    top: Matrix
    own: Matrix
    grain: Matrix

    @classmethod
    def between(cls, axes: ResidualAxes, a: SizedPlaces, b: SizedPlaces) -> Covariances:
        """Return those between two sets of places, (len(a), len(b)) each."""
        x, y = _size_distance(axes, a), _size_distance(axes, b)
        both = np.sign(x[:, None]) == np.sign(y[None])
        walk = np.where(both, np.minimum(np.abs(x[:, None]), np.abs(y[None])), 0.0)
        growth = (x[:, None] * y[None] + _WALK * walk).sum(axis=2)
        cores = np.abs(np.log(a.cores)[:, None] - np.log(b.cores)[None])
        far = math.sqrt(3.0) * cores / _APART_LENGTH
        near = (1.0 + far) * np.exp(-far)
        along_a, along_b = _frequency_position(axes, a), _frequency_position(axes, b)
        tilt = np.outer(along_a, along_b)
        away = (along_a[:, None] - along_b[None]) / _BEND_LENGTH
        same_configuration = a.alike(b)
        same_place = same_configuration & (a.growing()[:, None] == b.growing()[None]).all(axis=2)
        rough = np.exp(-cores / _ROUGH_LENGTH)
        return cls(
            growth,
            growth * (_APART_CORES * near + _APART_FREQ * tilt * (0.5 + 0.5 * near)),
            rough,
            (tilt + 0.5 * np.exp(-0.5 * away**2)) * (0.4 + 0.6 * rough),
            np.outer(_at_end_of_caps(axes, a), _at_end_of_caps(axes, b)) * (0.6 + 0.4 * near),
            _OWN_KEPT * same_configuration + (1 - _OWN_KEPT) * same_place,
            axes.varies[-1] * (a.nodes[:, None] == b.nodes[None]),
        )

    @classmethod
    def of_each(cls, axes: ResidualAxes, places: SizedPlaces) -> Covariances:
        """Return each place's variances, (m,) each."""
        x, along = _size_distance(axes, places), _frequency_position(axes, places)
        growth = (x**2 + _WALK * np.abs(x)).sum(axis=1)
        ones = np.ones(len(places))
        return cls(
            growth,
            growth * (_APART_CORES + _APART_FREQ * along**2),
            ones,
            along**2 + 0.5,
            _at_end_of_caps(axes, places) ** 2,
            ones,
            axes.varies[-1] * ones,
        )

    def sum(self, s: ResidualScale) -> Matrix:
        """Return the covariance without the measurement's error."""
        covariance: Matrix = (
            LEVEL**2
            + s.growth**2 * self.growth
            + s.apart**2 * self.apart
            + s.rough**2 * self.rough
            + s.bend**2 * self.bend
            + s.top**2 * self.top
            + s.own**2 * self.own
            + _GRAIN**2 * self.grain
        )
        return covariance


def noise_variance(
    scale: ResidualScale, log_time: Vector, counts: Vector | float, sigma: float
) -> Vector:
    """Return the measurement's variance of means of ``counts`` runs that take such times."""
    tick = scale.tick * np.exp(-np.clip(log_time, -50, 50))
    variance: Vector = (sigma**2 + tick**2) / counts
    return variance


def _size_distance(axes: ResidualAxes, places: SizedPlaces) -> Matrix:
    away: Matrix = (np.log(places.growing()) - axes.middle) * axes.varies
    away[:, -1] *= _NODES
    return away


def _frequency_position(axes: ResidualAxes, places: SizedPlaces) -> Vector:
    if axes.most_freq <= axes.least_freq:
        return np.zeros(len(places))
    freq = np.where(places.freq_khz > 0, places.freq_khz, axes.most_freq)
    along: Vector = np.log(freq / axes.least_freq) / math.log(axes.most_freq / axes.least_freq)
    return along - 0.5


def _at_end_of_caps(axes: ResidualAxes, places: SizedPlaces) -> Vector:
    if axes.most_freq <= axes.least_freq:
        return np.zeros(len(places))
    return np.where((places.freq_khz >= axes.most_freq) | (places.freq_khz <= 0), 1.0, 0.0)
