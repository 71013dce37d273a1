"""Which run to make next: the one expected to improve the decision most.

A run at an option improves the decision by what its score turns out better than that of the best
option a run has confirmed so far (at first the baseline's, 0), if it then keeps the policy's
bounds, and not at all otherwise. The expectation of that, over what the model says of the option's
time and energy, is the expected improvement under constraints (Mockus 1978; Schonlau, Welch and
Jones 1998): it weighs how good an option is against how sure that is, so that the run goes neither
to a dull certainty nor to a wild hope. What the run is expected to cost beyond what the slowdown
bound allows any job is taken off, spread over the jobs that training has to pay back in. And no run
is made where the predicted time is beyond the slowdown bound by more than its own error: what is
hardly known may look promising, and may take a hundred times longer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist
from typing import NamedTuple

from advisor.core.configuration import Configuration
from advisor.core.option import Option, Row, row_of
from advisor.core.policy import Policy
from advisor.core.select import RUN_SIGMA, WEIGHTS, Weighed, one_sided, select, weigh

LEAST_IMPROVEMENT = 0.002
"""A run that is expected to improve the score (log) by less than this is not worth making."""

_POINTS = 32
"""Quantiles of the normal distribution over which expected improvement is summed."""
_NORMAL = NormalDist()
_QUANTILES = tuple(_NORMAL.inv_cdf((i + 0.5) / _POINTS) for i in range(_POINTS))
_FAR = 4.0
"""Standard deviations beyond a limit at which an option is not weighed."""
_ROOT = math.sqrt(0.5)
_PEAK = 1 / math.sqrt(2 * math.pi)
_LEAST_SIGMA = 1e-6
"""Keeps divisions finite where runs have no scatter."""
_LEAST_KNOWN = 0.1
"""A prediction's own squared error is at least this share of one run's: laws are not exact."""


def confirmed_choice(
    options: Sequence[Option], baseline: Option, policy: Policy
) -> Configuration | None:
    """Return what the policy chooses among options that runs have confirmed, None for no change."""
    rows = [
        (o.configuration.node_type, row_of(o))
        for o in options
        if o.configuration != baseline.configuration and not math.isnan(o.energy_j)
    ]
    chosen = select(rows, row_of(baseline), policy).chosen
    return None if chosen is None else chosen.configuration


def recommend(
    options: Sequence[Option],
    baseline: Option,
    policy: Policy,
    *,
    skip: Collection[Configuration] = (),
    run_sigma: float | None = None,
    sure: float | None = None,
) -> Option | None:
    """Return the option a run should confirm next, None when no run is worth making.

    The bounds are :func:`advisor.core.select.select`'s with the margins one run at the option
    will leave, so that an option which comes out as predicted passes there too. What is confirmed
    needs no run; ``skip`` are configurations not to propose. For ``run_sigma`` and ``sure`` see
    :func:`improvements`.
    """
    worth = improvements(options, baseline, policy, run_sigma=run_sigma, sure=sure)
    best: tuple[float, Option] | None = None
    for option, gain in zip(options, worth, strict=True):
        proposed = option.configuration not in skip and gain >= LEAST_IMPROVEMENT
        if proposed and (best is None or gain > best[0]):
            best = gain, option
    return best[1] if best else None


def to_confirm(
    options: Sequence[Option],
    baseline: Option,
    policy: Policy,
    tried: Collection[Configuration],
    *,
    most: int,
) -> Configuration | None:
    """Return what to confirm next: where a run is expected to improve the choice most.

    Where none is, or only one is left of ``most``, the choice that stands on the design's runs
    gets a run of its own. None for nothing; ``tried`` had theirs.
    """
    best = recommend(options, baseline, policy, skip=tried)
    choice = confirmed_choice(options, baseline, policy)
    standing = None if choice in tried else choice
    if best is None or (standing is not None and 0 < len(tried) == most - 1):
        return standing
    return best.configuration


def affordable(option: Option, baseline: Option, policy: Policy) -> bool:
    """Tell whether a run is predicted to keep the slowdown bound, up to its standard error."""
    slowdown = math.log(option.time_s / baseline.time_s)
    error = math.hypot(option.time_sigma, baseline.time_sigma)
    return slowdown <= math.log1p(policy.max_slowdown) + error


def improvements(
    options: Sequence[Option],
    baseline: Option,
    policy: Policy,
    *,
    run_sigma: float | None = None,
    sure: float | None = None,
) -> list[float]:
    """Return each option's expected improvement (log score) by a run, its further cost taken off;
    0 where it needs none, or none is worth it.

    With ``run_sigma``, the standard deviation of one run's log, the run is one of a pair beside the
    job as written and counts with what is known before, not instead of it. ``sure`` is the log
    score to improve on, by default that of the best confirmed option.
    """
    if math.isnan(baseline.energy_j):
        return [0.0] * len(options)
    reference = row_of(baseline)
    choice = confirmed_choice(options, baseline, policy)
    weighed = [
        None
        if math.isnan(o.energy_j)
        or o.configuration == baseline.configuration
        or not affordable(o, baseline, policy)
        else weigh((o.configuration.node_type, row_of(o)), reference, policy.goal)
        for o in options
    ]
    if sure is None:
        sure = min((x.score for x in weighed if x and x.configuration == choice), default=0.0)
    weight = WEIGHTS[policy.goal]
    return [
        0.0
        if x is None or (x.row.confirmed if run_sigma is None else x.configuration == choice)
        else max(
            0.0,
            _improvement(x, weight, min(sure, 0.0), _margins(x, reference, policy, run_sigma))
            - _further_cost(x, reference.nodes, policy) / policy.training.payback_runs,
        )
        for x in weighed
    ]


def best_guess(
    options: Sequence[Option],
    baseline: Option,
    policy: Policy,
    *,
    sure: float,
    run_sigma: float = RUN_SIGMA,
) -> tuple[Option, float] | None:
    """Return the option most likely worth a run, and by how much (log score); None for none.

    What it is predicted to gain beyond ``sure`` (a log score, at most 0), times the probability
    that it keeps both bounds once it ran beside the job as written, less what the run costs: unlike
    an expected improvement it gives nothing for being uncertain, which a few runs cannot follow up.
    """
    reference = row_of(baseline)
    best: tuple[Option, float] | None = None
    for option in options:
        if option.configuration == baseline.configuration or math.isnan(option.energy_j):
            continue
        if not affordable(option, baseline, policy):
            continue
        x = weigh((option.configuration.node_type, row_of(option)), reference, policy.goal)
        m = _margins(x, reference, policy, run_sigma)
        likely = _NORMAL.cdf((m.t_limit - x.t) / max(_LEAST_SIGMA, m.t_sigma))
        likely *= _NORMAL.cdf((m.e_limit - x.e) / max(_LEAST_SIGMA, m.e_sigma))
        # The bound keeps exp from an overflow where a law runs wild far from its runs.
        cost = x.row.nodes / reference.nodes * math.exp(min(50.0, x.t))
        worth = likely * (sure - x.score) - LEAST_IMPROVEMENT * cost
        if worth > 0 and (best is None or worth > best[1]):
            best = option, worth
    return best


class _Margins(NamedTuple):
    """How far (log) time and energy may come out otherwise by a run, and what they must keep."""

    t_sigma: float
    e_sigma: float
    t_limit: float
    e_limit: float


def _margins(x: Weighed, reference: Row, policy: Policy, run_sigma: float | None) -> _Margins:
    """Return what a run at an option leaves; see :func:`improvements` for ``run_sigma``."""
    z = one_sided(policy.confidence)
    slowdown = math.log1p(policy.max_slowdown)
    saving = math.log1p(-policy.min_saving) if policy.min_saving < 1 else -math.inf
    if run_sigma is None:
        return _Margins(
            x.row.time_sigma,
            x.row.energy_sigma,
            slowdown - z * math.hypot(reference.time_sigma, RUN_SIGMA),
            saving - z * math.hypot(reference.energy_sigma, RUN_SIGMA),
        )
    t_sigma, t_left = _pair_sigmas(x.row, x.row.time_sigma, reference.time_sigma, run_sigma)
    e_sigma, e_left = _pair_sigmas(x.row, x.row.energy_sigma, reference.energy_sigma, run_sigma)
    return _Margins(t_sigma, e_sigma, slowdown - z * t_left, saving - z * e_left)


def _pair_sigmas(row: Row, sigma: float, reference: float, run_sigma: float) -> tuple[float, float]:
    """Return by how much a pair may move a difference (log) to the baseline, and its error then.

    ``sigma`` is the error of the option's row, which of what was predicted holds a new run's own;
    ``reference`` is the baseline's.
    """
    run = run_sigma**2
    prior = sigma**2 if row.measured else max(sigma**2 - run, _LEAST_KNOWN * run)
    # a normal belief of variance v that has met one run of variance ``run``
    posteriors = [v * run / (v + run) for v in (prior, reference**2)]
    variance = sum(posteriors)
    return math.sqrt(max(0.0, prior + reference**2 - variance)), math.sqrt(variance)


def _further_cost(x: Weighed, nodes: int, policy: Policy) -> float:
    """Return the node time a run is expected to take beyond what a job may, in baseline runs."""
    expected = x.row.nodes / nodes * math.exp(min(50.0, x.t + 0.5 * x.t_sigma**2))
    return max(0.0, expected - 1.0 - policy.max_slowdown)


def _improvement(x: Weighed, weight: float, sure: float, m: _Margins) -> float:
    """Return the expectation of max(0, sure - score) where both bounds are kept.

    What makes a run longer costs energy alike, so energy's error is that of time plus its own.
    The expectation over time is a mean over quantiles, the one over energy is closed.
    """
    t_sigma, e_sigma, time_limit, energy_limit = m
    if x.t - _FAR * t_sigma > time_limit or x.e - _FAR * e_sigma > energy_limit:
        return 0.0
    shared = min(t_sigma, e_sigma)
    energy_only_sigma = max(_LEAST_SIGMA, math.sqrt(max(0.0, e_sigma**2 - shared**2)))
    total = 0.0
    for q in _QUANTILES:
        t = x.t + q * t_sigma
        if t > time_limit:  # and so are all quantiles behind it
            break
        mean = x.e + q * shared
        room = sure - (1 - weight) * t
        limit = min(energy_limit, room / weight) if weight else energy_limit
        # The mean of a normal distribution's part below a limit, in closed form.
        a = (limit - mean) / energy_only_sigma
        below = 0.5 * math.erfc(-a * _ROOT)
        if not weight:
            total += max(0.0, room) * below
            continue
        peak = _PEAK * math.exp(-0.5 * a * a)
        total += room * below - weight * (mean * below - energy_only_sigma * peak)
    return max(0.0, total / _POINTS)
