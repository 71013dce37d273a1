"""How much one run scatters on a node type, by what the repeats of all of its workloads say.

A sweep repeats few of its runs, and two or three repeats hardly tell 1 % from 3 %. The workloads
measured before on the same node type had the same clocks, meters and neighbours. Their variances
are alike: each is taken for a draw from one scaled inverse chi-square distribution (Gelman et al.,
Bayesian Data Analysis, 2013, section 2.6). Then ``s^2 / scale^2`` of each follows an F
distribution, which says how likely a scale is, and how alike they are (Smyth 2004, Statistical
Applications in Genetics and Molecular Biology 3, article 3, sections 3 and 6). A new workload's own
repeats are weighed against the scale by their degrees of freedom. What is assumed of any machine
counts as one workload more, so that a machine seen once is half believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from advisor.core.observation import Scope
from advisor.store.reader import Reader

ASSUMED = 0.02
"""95 % half width of one run, a fraction, where nothing was repeated."""
Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""
_ASSUMED_FREEDOM = 4.0
"""As many repeats the assumed error counts as."""
_FREEDOMS = (4.0, 8.0, 16.0, 32.0, 64.0)
"""Degrees of freedom of what workloads share, from hardly alike to nearly the same."""
_SCALES = tuple(0.001 * 1.1**i for i in range(60))
"""Standard deviations of one run's log: no meter and no clock repeats better than 0.1 %."""
_MOST_WORKLOADS = 30
"""The newest workloads of a node type that count: more would say the same again."""

RESPONSES = ("time", "energy", "power")
Elsewhere = Mapping[str, Sequence[Sequence[float]]]
"""By response (time, energy, power) what other workloads' repeats say: of each the standard
deviation of one run's log, and its degrees of freedom. Plain JSON, as a sweep keeps it."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """The standard deviation of one run's log, as well known as so many repeats would make it."""

    sigma: float
    freedom: float = _ASSUMED_FREEDOM
    seen: bool = False
    """Other workloads' repeats are in it."""

    def with_own(self, sigma: float, repeats: int) -> float:
        """Return the standard deviation once a workload's own repeats are in it."""
        squares = self.freedom * self.sigma**2 + repeats * sigma**2
        return math.sqrt(squares / (self.freedom + repeats))


USUAL = Scatter(ASSUMED / Z95)
"""What is assumed of any machine."""


@lru_cache(maxsize=64)
def pooled(assumed: float, others: tuple[tuple[float, ...], ...]) -> Scatter:
    """Return what is known of a workload's scatter before any of its runs is repeated.

    ``assumed`` is the standard deviation (log) that any machine is taken to have, ``others`` one of
    :data:`Elsewhere`. A mean over scales and degrees of freedom, each weighed by how likely it
    makes the others' variances.
    """
    if not others:
        return Scatter(assumed)
    samples = [(assumed, _ASSUMED_FREEDOM), *others]
    pairs = list(product(_SCALES, _FREEDOMS))
    logs = [sum(_log_likely(s, d, scale, shared) for s, d in samples) for scale, shared in pairs]
    most = max(logs)  # taken off, so that no exponential becomes 0 for all of them
    weights = [math.exp(value - most) for value in logs]
    total = sum(weights)
    log_scale, log_freedom = (
        sum(w * math.log(pair[i]) for w, pair in zip(weights, pairs, strict=True)) / total
        for i in range(2)
    )
    return Scatter(math.exp(log_scale), math.exp(log_freedom), seen=True)


def _log_likely(sigma: float, freedom: float, scale: float, shared: float) -> float:
    """Return the log density of a variance under a scale, up to what all scales have in common."""
    ratio = freedom * max(sigma, _SCALES[0]) ** 2 / (shared * scale**2)
    together = (freedom + shared) / 2
    peak = math.lgamma(together) - math.lgamma(shared / 2)
    return peak + freedom / 2 * math.log(ratio) - together * math.log1p(ratio)


def repeats_elsewhere(
    store: Reader, application: str, workload: str, node_type: str, scope: Scope, owner: str
) -> dict[str, list[list[float]]]:
    """Return what the other workloads' models on a node type say of repeats (:data:`Elsewhere`).

    As everywhere only what this model's jobs may use: models for all, and its owner's own.
    """
    repeats_of: dict[str, list[list[float]]] = {}
    workloads = {(application, workload)}
    for app, load, fit_scope, fit_owner, stats in store.fit_stats(node_type):
        hidden = fit_scope != "all" and (fit_scope, fit_owner) != (scope, owner)
        # Of several models of a workload the newest counts, which the store lists first.
        if hidden or (app, load) in workloads:
            continue
        if len(workloads) > _MOST_WORKLOADS:
            break
        workloads.add((app, load))
        for name in RESPONSES:
            of_response = stats.get(name) or {}
            repeats, sigma = of_response.get("repeats"), of_response.get("sigma_pct")
            if repeats and sigma:
                repeats_of.setdefault(name, []).append([sigma / 100, repeats])
    return repeats_of
