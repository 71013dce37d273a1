"""Options of a workload that was never swept, as its prior predicts them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core import student
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.mark_front import place
from advisor.core.option import Z90, Option
from advisor.core.trial_points import PERCENT, TrialPoints
from advisor.prior.fit import Prior
from advisor.prior.surface import Array
from advisor.prior.trials import expected_improvement

_Z_USE = 1.2816
"""Where other ways doubt an option, the policy's usual confidence of 90 % must doubt it too."""
_DOUBT = 0.75
"""The chance at which ways about as good must trust an option."""
_RUN_ERROR = 0.02 / 1.96
"""Relative standard error of the job's own run: 2 % at 95 %."""


@dataclass(frozen=True, slots=True)
class TriedPoint:
    """A point where a trial ran. ``measured``: logarithms of time and energy against the own
    point, and their error; None where it says nothing. ``confirmed``: it kept both bounds.
    """

    where: Configuration
    measured: tuple[float, float, float] | None
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class PredictedOptions:
    """Options, and which of them a trial may run. ``unlike``: a trial came out unlike its
    intervals, so the workload is like none of the others.
    """

    options: tuple[Option, ...]
    trial_points: TrialPoints
    unlike: bool


def options(
    prior: Prior,
    baseline: Configuration,
    node_type: NodeType,
    time_s: float,
    power_w: float,
    tried: Sequence[TriedPoint] = (),
) -> PredictedOptions:
    """Return the options of a job that took ``time_s`` at ``power_w`` per node at ``baseline``.

    Intervals are those of Student's t, wider where another way that foretells applications about
    as well puts less trust in the option. All but the job's own point are ``estimated`` until a
    trial ran; from then on only what a trial confirmed can be used. Placed in a zone of their own.
    """
    energy_j = time_s * power_w * baseline.nodes
    baseline = replace(baseline, node_type=node_type.name)
    places = _places(prior.points, baseline, node_type)
    unlike = False
    for trial in tried:
        if trial.measured is not None and trial.where in places:
            point_index = places.index(trial.where)
            unlike |= not prior.expects(point_index, *trial.measured[:2])
            prior = prior.observe(point_index, *trial.measured)
    spread = np.maximum(prior.half_width(0.90) / Z90, _doubted(prior)).T.tolist()
    change = np.exp(prior.mean).T.tolist()
    by_configuration = {baseline: _option(baseline, time_s, energy_j, _RUN_ERROR, _RUN_ERROR)}
    for trial in tried:
        if trial.measured is not None:
            t, e, error = trial.measured
            measured = time_s * math.exp(t), energy_j * math.exp(e)
            option = _option(trial.where, *measured, error, error)
            by_configuration[trial.where] = replace(option, confirmed=trial.confirmed)
    for i, where in enumerate(places):
        t, e = change[i]
        if where not in by_configuration:
            dt, de = spread[i]
            by_configuration[where] = _option(
                where, time_s * t, energy_j * e, dt, de, measured=False, estimated=not tried
            )
    placed = place([by_configuration[where] for where in sorted(by_configuration)], 0.05)
    return PredictedOptions(placed, _trial_points(prior, placed, places, baseline, tried), unlike)


def _places(points: Array, baseline: Configuration, node_type: NodeType) -> list[Configuration]:
    """Return the configurations of points: logarithms of shares of cores and frequency."""
    nominal = node_type.default_freq_khz or max(node_type.freq_khz, default=0)
    nominal = nominal or baseline.freq_khz or 1
    places = []
    for share, frequency in points.tolist():
        threads = round(math.exp(share) * node_type.cores)
        step = round(math.exp(frequency) * nominal) if baseline.freq_khz or frequency else 0
        places.append(
            Configuration(
                baseline.node_type, baseline.nodes, baseline.ranks_per_node, threads, step
            )
        )
    return places


def _trial_points(
    prior: Prior,
    placed: Sequence[Option],
    places: Sequence[Configuration],
    baseline: Configuration,
    tried: Sequence[TriedPoint],
) -> TrialPoints:
    """Return what trials are chosen by, for each of the options."""
    confirmed = [t.measured[1] for t in tried if t.confirmed and t.measured is not None]
    gain = expected_improvement(
        prior.mean[1], prior.scale[1], prior.dof, min(confirmed, default=0.0)
    )
    doubted = _high(prior)[0] / student.quantile(prior.dof, _DOUBT)
    scale = np.maximum(prior.scale[0], doubted).tolist()
    ends = np.max([prior.mean, *prior.others], axis=0).tolist()
    point_values = dict(zip(places, zip(scale, gain.tolist(), *ends, strict=True), strict=True))
    for where in (baseline, *(t.where for t in tried)):
        point_values.pop(where, None)
    quantiles = tuple(student.quantile(prior.dof, percent / 100) for percent in PERCENT)
    nothing = (math.nan,) * 4
    values = tuple(point_values.get(option.configuration, nothing) for option in placed)
    return TrialPoints(quantiles, values)


def _option(
    where: Configuration,
    time: float,
    energy: float,
    dt: float,
    de: float,
    measured: bool = True,
    estimated: bool = False,
) -> Option:
    t, e = math.exp(Z90 * dt), math.exp(Z90 * de)
    ends = time, time / t, time * t, energy, energy / e, energy * e
    return Option(where, *ends, measured=measured, estimated=estimated)


def _doubted(prior: Prior) -> Array:
    """Return the least standard errors (2, n) with which no other way doubts an option."""
    return _high(prior) / _Z_USE


def _high(prior: Prior) -> Array:
    """Return how far above the mean (2, n) the ways about as good put the end of their trust."""
    high = np.zeros_like(prior.mean)
    for way in prior.doubts:
        end = way.mean + way.scale * student.quantile(way.dof, _DOUBT)
        high = np.maximum(high, end - prior.mean)
    return high
