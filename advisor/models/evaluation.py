"""Judge a model on a fully measured grid: train on a few of its runs, compare with all of them.

The measures are those of Endrei 2019, sections 4.3.5 and 4.4.1 and tables 6.3 to 6.12, and what
counts in the end: what the advice taken from the model would have saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from advisor.core.codec import JsonForm
from advisor.core.configuration import Configuration, SearchSpace, largest_of
from advisor.core.mark_front import place
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.pareto import ErrorLimits, TradeOff, overlap, trade_off
from advisor.core.policy import Policy, Resources
from advisor.core.rate import Work
from advisor.errors import InputError, UnknownNameError
from advisor.models.decision_score import DecisionScore, GridCell, decide
from advisor.models.design import DESIGNS, within
from advisor.models.fit import MOST_CONFIRMATIONS, FitResult, fit_options
from advisor.models.registry import DEFAULT
from advisor.models.response import Response
from advisor.models.runs import between_neighbours, gather
from advisor.models.sequential import SEQUENTIAL, explore

_DISTANCES = 5
"""Distances in search steps that are counted apart."""
RESPONSES = ("energy", "time")
RATES = {"rate_per_joule": "energy", "rate": "time"}
"""What is judged beside them where every run has a rate: a fixed work over the one or the other."""


@dataclass(frozen=True, slots=True)
class ResponseScore:
    """How well one response is predicted.

    ``total_rmse_pct`` is over every cell of the grid, ``pareto_rmse_pct`` over the forecast
    trade-off zone: root mean squares of the error relative to the measured value. In the grids
    this is for, times span two orders of magnitude, and an error in percent of the mean would only
    reflect the slowest cells. ``interval_coverage`` is the share of cells not trained on that lie
    within their 90 % interval.
    """

    n_train: int
    r2: float | None
    total_rmse_pct: float
    pareto_rmse_pct: float
    interval_coverage: float


@dataclass(frozen=True, slots=True)
class FrontScore:
    """The forecast trade-off zone against the observed one.

    ``by_distance`` counts forecast points 0 to 4 search steps (one value of one axis) from the
    nearest observed one, ``farther`` the rest; ``overlap_pct`` is the area that both zones share,
    of the area of both together. ``responses`` holds per response the baseline and the ends of the
    extended front, observed and forecast: ``p_min`` where the response is at its worst, ``p_max``
    at its best (Endrei 2019, table 6.8).
    """

    error_pct: float
    forecast_error_pct: float
    observed_points: int
    forecast_points: int
    by_distance: tuple[int, ...]
    farther: int
    overlap_pct: float
    responses: Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Evaluation(JsonForm):
    """The result of :func:`evaluate`; ``predicted`` has an option for every cell of the grid."""

    JSON = ("model", "design", "trained", "responses", "front", "decision", "notes")

    model: str
    design: str
    trained: tuple[Configuration, ...]
    responses: Mapping[str, ResponseScore]
    front: FrontScore
    decision: DecisionScore
    notes: tuple[str, ...]
    predicted: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluationTerms:
    """What is trained on a grid, on which of its configurations, and how the outcome is judged.

    All limits are fractions.
    """

    model: str = DEFAULT
    model_options: Mapping[str, object] | None = None
    design: str = "uniform"
    samples: int = 12
    seed: int = 0
    train_on: Collection[Configuration] | None = None
    """The configurations to train on, instead of a design's."""
    error: float = 0.05
    """Of the observed points' trade-off zone."""
    forecast_error: float | None = None
    """Of the forecast points' zone, by default the same."""
    max_slowdown: float = 0.05
    min_saving: float = 0.03
    resources: Resources = "thrifty"
    """The policy's word on ties."""
    confirmations: int | None = None
    """How many confirmation runs there may be, by default as many as a sweep makes."""


DEFAULT_TERMS = EvaluationTerms()


def evaluate(grid: Sequence[Observation], terms: EvaluationTerms = DEFAULT_TERMS) -> Evaluation:
    """Train on configurations out of a measured grid and judge what comes out.

    The baseline (:func:`~advisor.core.configuration.largest_of`) is always among the trained.
    Raises InputError when the grid has too few cells with time and energy, nothing beside what is
    trained on, or for a bad model or design name.
    """
    truth = _truth(grid)
    design, error, confirmations = terms.design, terms.error, terms.confirmations
    limit = error if terms.forecast_error is None else terms.forecast_error
    cells = sorted(truth)
    space = SearchSpace.of(cells[0].node_type, cells)
    baseline = largest_of(cells)

    def fit(
        trained: Collection[Configuration], confirming: Collection[Configuration] = ()
    ) -> FitResult:
        result = fit_options(
            [
                replace(o, source="confirm") if o.configuration in confirming else o
                for o in grid
                if o.configuration in trained
            ],
            model=terms.model,
            space=space,
            error=limit,
            model_options=terms.model_options,
        )
        if result.energy_quality == "missing":
            raise InputError(
                "the trained runs have no energy", hint="a grid needs energy_j throughout"
            )
        return result

    # the policy's own confidence, ties and confirmations
    policy = replace(
        Policy(),
        goal="min_energy",
        max_slowdown=terms.max_slowdown,
        min_saving=terms.min_saving,
        resources=terms.resources,
    )
    if terms.train_on is not None:
        trained, design = {*terms.train_on, baseline}, "given"
    elif design == SEQUENTIAL:
        trained = set(explore(fit, space, cells, baseline, policy, terms.samples))
    else:
        trained = set(_design(design, space, terms.samples, cells, baseline, terms.seed))
    if len(trained) >= len(cells):
        raise InputError(
            f"all {len(cells)} configurations of the grid would be trained on",
            hint="fewer --samples leave some to judge by",
        )
    fitted = fit(trained)
    predicted = place([o for o in fitted.predicted if o.configuration in truth], limit)
    work = Work.of_stats(fitted.stats)
    responses = {
        name: _score(name, fitted.stats, predicted, truth, trained)
        for name in (*RESPONSES, *(RATES if work else ()))
    }
    if confirmations is None:
        confirmations = MOST_CONFIRMATIONS if policy.training.confirm else 0
    return Evaluation(
        terms.model,
        design,
        tuple(sorted(trained)),
        responses,
        _front(predicted, truth, space, baseline, (error, limit), work),
        decide(
            fit,
            trained,
            truth,
            _smoothed(truth),
            baseline,
            policy,
            confirmations=confirmations,
        ),
        tuple(fitted.notes),
        tuple(predicted),
    )


def _truth(grid: Sequence[Observation]) -> dict[Configuration, GridCell]:
    runs = gather(grid)
    if runs.energy is None:
        raise InputError("the grid has no energy to judge by", hint="fill the column energy_j in")
    energies = runs.energy.log_mean

    def value(response: Response, c: Configuration) -> float:
        return math.exp(response.log_mean[c])

    return {c: GridCell(value(runs.time, c), value(runs.energy, c)) for c in energies}


def _smoothed(truth: Mapping[Configuration, GridCell]) -> dict[Configuration, GridCell]:
    """Return what cells take without what their own runs came out by luck.

    The run that confirms a cell must not be what says whether that was right: of each cell this is
    the median of its own mean and of the lines between its neighbours along each axis.
    """

    def smooth(logs: Mapping[Configuration, float]) -> dict[Configuration, float]:
        lines = between_neighbours(logs)
        return {c: math.exp(median([v, *lines.get(c, ())])) for c, v in logs.items()}

    times = smooth({c: math.log(cell.time) for c, cell in truth.items()})
    energies = smooth({c: math.log(cell.energy) for c, cell in truth.items()})
    return {c: GridCell(times[c], energies[c]) for c in truth}


def _design(
    name: str,
    space: SearchSpace,
    samples: int,
    cells: Sequence[Configuration],
    baseline: Configuration,
    seed: int,
) -> list[Configuration]:
    if name not in DESIGNS:
        designs = ", ".join([*DESIGNS, SEQUENTIAL])
        raise UnknownNameError(f"no design is called {name!r}", hint=f"choose from: {designs}")
    more = {} if name == "uniform" else {"seed": seed}
    return within(DESIGNS[name](space, samples, baseline, **more), space, cells)


def _score(
    name: str,
    stats: Mapping[str, Any],
    predicted: Sequence[Option],
    truth: Mapping[Configuration, GridCell],
    trained: set[Configuration],
) -> ResponseScore:
    off, zone, covered = [], [], []
    response = RATES.get(name, name)
    for o in predicted:
        value = getattr(truth[o.configuration], response)
        if response == "energy":
            guess, low, high = o.energy_j, o.energy_lo_j, o.energy_hi_j
        else:
            guess, low, high = o.time_s, o.time_lo_s, o.time_hi_s
        # A rate is work by what it took: what is guessed too high makes it too low.
        ratio = value / guess if name in RATES else guess / value
        off.append(ratio - 1.0)
        if o.in_zone:
            zone.append(ratio - 1.0)
        if o.configuration not in trained:
            covered.append(low <= value <= high)
    return ResponseScore(
        stats[response]["n_train"],
        stats[response]["r2"],
        _rms_pct(off),
        _rms_pct(zone),
        sum(covered) / len(covered),
    )


def _rms_pct(errors: Sequence[float]) -> float:
    return 100.0 * math.sqrt(sum(e * e for e in errors) / len(errors))


def _front(
    predicted: Sequence[Option],
    truth: Mapping[Configuration, GridCell],
    space: SearchSpace,
    baseline: Configuration,
    errors: tuple[float, float],
    work: Work | None,
) -> FrontScore:
    error, forecast_error = errors
    order = [o.configuration for o in predicted]
    observed, forecast = [truth[c] for c in order], [GridCell.of(o) for o in predicted]
    observed_zone, predicted_zone = _zone(observed, error), _zone(forecast, forecast_error)
    zone, line = observed_zone.zone, observed_zone.extended_front
    forecast_zone, forecast_line = predicted_zone.zone, predicted_zone.extended_front
    step = _steps(space)
    counts = [0] * (_DISTANCES + 1)  # the last one: all that are farther
    for i in forecast_zone:
        counts[min(_DISTANCES, min(step(order[i], order[j]) for j in zone))] += 1
    baseline_index = order.index(baseline)
    responses = {}
    for name in (*RESPONSES, *(RATES if work else ())):
        response = RATES.get(name, name)
        axis = RESPONSES.index(response)
        ends = [p[axis] for p in line], [p[axis] for p in forecast_line]
        if work and name in RATES:
            both = (
                getattr(observed[baseline_index], response),
                getattr(forecast[baseline_index], response),
            )
            responses[name] = {
                "baseline": _observed_and_forecast(work.amount / both[0], work.amount / both[1]),
                "p_min": _observed_and_forecast(
                    work.amount / max(ends[0]), work.amount / max(ends[1])
                ),
                "p_max": _observed_and_forecast(
                    work.amount / min(ends[0]), work.amount / min(ends[1])
                ),
            }
            continue
        responses[name] = {
            "baseline": _observed_and_forecast(
                getattr(observed[baseline_index], name), getattr(forecast[baseline_index], name)
            ),
            "p_min": _observed_and_forecast(max(ends[0]), max(ends[1])),
            "p_max": _observed_and_forecast(min(ends[0]), min(ends[1])),
        }
    return FrontScore(
        100.0 * error,
        100.0 * forecast_error,
        len(zone),
        len(forecast_zone),
        tuple(counts[:_DISTANCES]),
        counts[_DISTANCES],
        100.0 * overlap(observed_zone.polygon, predicted_zone.polygon),
        responses,
    )


def _observed_and_forecast(observed: float, forecast: float) -> dict[str, float]:
    return {"observed": observed, "forecast": forecast}


def _zone(cells: Sequence[GridCell], error: float) -> TradeOff:
    return trade_off(
        [c.energy for c in cells],
        [c.time for c in cells],
        max_x=False,
        max_y=False,
        x_limits=ErrorLimits(error),
        y_limits=ErrorLimits(error),
    )


def _steps(space: SearchSpace) -> Callable[[Configuration, Configuration], int]:
    """Return the distance of two configurations in search steps, added over the axes."""
    nodes = {v: i for i, v in enumerate(space.nodes)}
    threads = {v: i for i, v in enumerate(space.threads)}
    freqs = {v: i for i, v in enumerate(space.freqs_khz)}

    def place_of(c: Configuration) -> tuple[int, int, int]:
        return nodes[c.nodes], threads[c.ranks_per_node, c.threads_per_node], freqs[c.freq_khz]

    def distance(a: Configuration, b: Configuration) -> int:
        return sum(abs(i - j) for i, j in zip(place_of(a), place_of(b), strict=True))

    return distance
