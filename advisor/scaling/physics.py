"""The default scaling model: physics as mean, a Gaussian process for what it misses."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from advisor.core.count_laws import INSTRUCTIONS
from advisor.models.base import Matrix, Vector
from advisor.models.laws import LawAxes, Placements, power_laws
from advisor.scaling.base import ScaledResponse, ScalingForecast, SizedPlaces, SizedRuns
from advisor.scaling.laws import GROWTH_NAMES, TimeLaws, time_laws
from advisor.scaling.process import ScalingProcess

_MOST_RUNS = 150
"""More runs are thinned out, each size alike: the cost grows with their cube."""
_POWER_SHARE = 0.5
"""What disturbs a run makes it longer and costs energy alike: power repeats better than either."""
_WAITING = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Shares of a node's power that its cores save while they wait for other nodes."""


class Physics:
    """Time by laws over sizes, nodes, cores and frequency, power by those of one node."""

    NAME: ClassVar[str] = "physics"
    DESCRIPTION: ClassVar[str] = "laws of time and power over sizes, and what they miss"

    def forecast(self, runs: SizedRuns, places: SizedPlaces) -> ScalingForecast:
        """Predict time and energy at places of any size."""
        runs = thinned(runs)
        laws = time_laws(runs.places, runs.log_time)
        process = ScalingProcess(
            "time",
            runs.places,
            runs.log_time,
            runs.log_time,
            runs.counts,
            runs.sigma,
            laws.evaluate,
            laws.log_prior,
        )
        time = process.predict(places)
        terms = _terms(laws, process, runs.places.parameters)
        if runs.log_energy is None:
            return ScalingForecast(time, None, terms)
        power = _power(runs, places, time, process)
        return ScalingForecast(time, _product(time, power), terms)


def thinned(runs: SizedRuns) -> SizedRuns:
    """Return at most 150 of the runs, as many of each size as there is room for."""
    if len(runs) <= _MOST_RUNS:
        return runs
    jobs = runs.places.jobs()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(runs))
    rank = np.empty(len(runs), dtype=int)
    for job in np.unique(jobs):
        job_runs = order[jobs[order] == job]
        rank[job_runs] = np.arange(len(job_runs))
    keep = np.argsort(rank, kind="stable")[:_MOST_RUNS]
    return runs.some(np.sort(keep))


def _power(
    runs: SizedRuns, places: SizedPlaces, time: ScaledResponse, process: ScalingProcess
) -> ScaledResponse:
    """Return the power of all nodes: one node's laws, less what cores save while they wait."""
    axes = LawAxes.of(np.vstack([_rows(runs.places), _rows(places)]))
    family = power_laws(axes)
    savings = _WAITING if len(set(runs.places.nodes)) > 1 else (0.0,)
    laws = np.tile(np.arange(len(family.log_prior)), len(savings))
    saved = np.repeat(savings, len(family.log_prior))

    def evaluate(law_places: SizedPlaces, numbers: NDArray[np.intp]) -> Matrix:
        node = family.evaluate(Placements.of(_rows(law_places), axes), laws[numbers])
        if len(savings) == 1:
            return node
        waiting = _waiting(law_places, process, float(runs.places.nodes.min()))
        return node + np.log1p(-np.outer(waiting, saved[numbers]))

    power = ScalingProcess(
        "power",
        runs.places,
        runs.log_power,
        runs.log_time,
        runs.counts,
        _POWER_SHARE * runs.sigma,
        evaluate,
        family.log_prior[laws],
    )
    return power.predict(places, time.mean)


def _waiting(places: SizedPlaces, process: ScalingProcess, fewest: float) -> Vector:
    """Return the share of the node time that goes beyond what the fewest nodes need."""
    alone = replace(places, nodes=np.full(len(places), fewest))
    useful = (
        process.predict(alone).mean - process.predict(places).mean - np.log(places.nodes / fewest)
    )
    share: Vector = np.clip(-np.expm1(useful), 0.0, 1.0)
    return share


def _rows(places: SizedPlaces) -> Matrix:
    return np.column_stack([places.nodes, places.cores, places.freq_khz])


def _product(time: ScaledResponse, power: ScaledResponse) -> ScaledResponse:
    return ScaledResponse(
        time.mean + power.mean,
        np.hypot(time.shared, power.shared),
        np.hypot(time.own, power.own),
        np.hypot(time.noise, power.noise),
    )


def _terms(laws: TimeLaws, process: ScalingProcess, parameters: tuple[str, ...]) -> tuple[str, ...]:
    """Return what time consists of by the most probable law: the work first, then what adds."""
    row = laws.table[process.best_law()]
    fixed, steeper, undivided, overhead, growth = row[3], row[4], row[5], row[6], int(row[7])
    powers = [f"{p}^{a:.3g}" for p, a in zip(parameters, row[10:], strict=True) if a]
    powers += [INSTRUCTIONS] * bool(row[9])
    work = "*".join(powers) or "1"
    terms = [work]
    if steeper:
        terms.append("*".join([work, *parameters]).removeprefix("1*"))
    if fixed and work != "1":
        terms.append("1")
    if len(set(process.node_counts())) > 1:
        terms[0] += "/nodes"
        terms += [work] * bool(undivided) + [GROWTH_NAMES[growth]] * bool(overhead)
    return tuple(dict.fromkeys(terms))
