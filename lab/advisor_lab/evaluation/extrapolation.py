"""Judge scaling models on a measured grid: train on sizes up to one, predict all larger ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from advisor.core.codec import JsonForm, wire
from advisor.core.configuration import Configuration, SearchSpace, largest_of
from advisor.core.observation import Observation
from advisor.core.option import Z90, Option, row_of
from advisor.core.policy import Policy
from advisor.core.recommend import recommend
from advisor.core.select import select
from advisor.errors import InputError
from advisor.models.fit import fit_options
from advisor.scaling.base import NODES, ScaledResponse, ScalingForecast, SizedPlaces, SizedRuns
from advisor.scaling.design import AT_LARGEST, AT_OTHERS, sized_design
from advisor.scaling.family import at_highest_axes
from advisor.scaling.registry import AUTO, TriedForecast, create, tried_forecast

FamilyFit = Literal["ok", "family-unfit"]
OK: FamilyFit = "ok"
UNFIT: FamilyFit = "family-unfit"
SAMPLES = {AT_LARGEST + 2 * AT_OTHERS: AT_OTHERS, 3 * AT_LARGEST: AT_LARGEST}
"""Runs in all, over the three largest sizes: how many each but the largest has."""
_TRAINED_SIZES = 3
"""How many of the largest sizes up to ``--train-to`` the models are fitted to."""
_CONFIRMATIONS = 2
"""Confirmation runs that may be made."""

SizedRun = tuple[float, Observation]
"""A run with its value of the parameter."""
TimeEnergy = tuple[float, float]
"""A configuration's measured time (s) and energy (J)."""
Measure = Literal["time", "energy"]
MEASURES: tuple[Measure, ...] = ("time", "energy")
ByMeasure = Mapping[Measure, float | None]


@dataclass(frozen=True, slots=True)
class SizedDecision(JsonForm):
    """What the advice at a size is worth, as measured fractions against the baseline there.

    None where there is no advice because no law fits; ``chosen`` is the baseline for no change.
    """

    chosen: Configuration
    true_slowdown: float | None
    true_saving: float | None
    best_saving: float | None


@dataclass(frozen=True, slots=True)
class SizedScore(JsonForm):
    """How well one size beyond the trained ones is predicted.

    ``factor`` is the size over the largest trained; errors and half widths are medians over the
    ``cells``, in percent; coverage is the share of cells within their 90 % interval. Each by
    response, None without a prediction.
    """

    at: float
    factor: float
    cells: int
    answer: FamilyFit
    median_error_pct: ByMeasure
    interval_coverage: ByMeasure
    half_width_pct: ByMeasure
    decision: SizedDecision


@dataclass(frozen=True, slots=True)
class Extrapolation(JsonForm):
    """The scores of all sizes beyond ``train_to``, the model chosen, and what it says."""

    model: str
    parameter: str
    train_to: float
    trained: int = field(metadata=wire("trained_runs"))
    answer: FamilyFit
    scores: tuple[SizedScore, ...] = field(metadata=wire("extrapolation"))
    terms: tuple[str, ...]
    notes: tuple[str, ...]


def extrapolate(
    grid: Sequence[Observation],
    parameter: str,
    train_to: float,
    *,
    samples: int = 3 * AT_LARGEST,
    model: str = AUTO,
    min_time: float = 0.0,
    max_slowdown: float = 0.05,
    min_saving: float = 0.03,
) -> Extrapolation:
    """Train on a grid's sizes up to ``train_to`` and judge the predictions of the larger ones.

    Of a parameter, twelve runs at the largest of the last three sizes and, by ``samples``, three
    or twelve at each other are trained on; of ``nodes``, all runs. Cells shorter than ``min_time``
    (s) count in decisions only. Raises InputError for a column that is not there or not a number,
    for too few sizes, or when nothing is larger.
    """
    if samples not in SAMPLES:
        choices = " or ".join(map(str, SAMPLES))
        raise InputError(
            f"--samples {samples} cannot be shared among sizes", hint=f"give {choices}"
        )
    runs, _, notes = at_highest_axes([(_value(o, parameter), o) for o in grid])
    trained = _trained(runs, parameter, train_to, SAMPLES[samples])
    beyond = [(v, o) for v, o in runs if v > train_to]
    if not beyond:
        raise InputError(
            f"no run has more than {train_to:g} {parameter}", hint="a smaller --train-to"
        )
    sized = _sized(trained, parameter)
    truth = _truth(beyond)
    order = [(v, c) for v, cells in truth.items() for c in cells]
    parameters = sized.places.parameters
    forecast_places = SizedPlaces.of(
        parameters, [({p: v for p in parameters}, c) for v, c in order]
    )
    tried = tried_forecast(sized, forecast_places, model)
    top = max(v for v, _ in trained)
    scores = []
    advice = (
        None
        if tried.unfit
        else _Advice.of(
            runs,
            trained,
            parameter,
            tried,
            replace(Policy(), goal="min_energy", max_slowdown=max_slowdown, min_saving=min_saving),
        )
    )
    for value, cells in sorted(truth.items()):
        rows = np.array([i for i, (v, _) in enumerate(order) if v == value])
        score = _score(value, value / top, cells, tried, rows, min_time)
        if advice is not None:
            score = replace(score, decision=advice.at(value, cells))
        scores.append(score)
    return Extrapolation(
        tried.model,
        parameter,
        train_to,
        len(trained),
        UNFIT if tried.unfit else OK,
        tuple(scores),
        tried.forecast.terms,
        (*notes, *tried.notes),
    )


def _value(run: Observation, parameter: str) -> float:
    if parameter == NODES:
        return float(run.configuration.nodes)
    if parameter not in run.extra:
        columns = ", ".join([*run.extra, NODES])
        raise InputError(f"the grid has no column {parameter!r}", hint=f"choose from: {columns}")
    value = run.extra[parameter]
    if not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{parameter} is {value!r}", hint="a parameter is a number above 0")
    return float(value)


def _trained(
    runs: Sequence[SizedRun], parameter: str, train_to: float, runs_per_size: int
) -> list[SizedRun]:
    values = sorted({v for v, _ in runs if v <= train_to})
    if not values:
        raise InputError(f"no run has {train_to:g} {parameter} or fewer", hint="raise --train-to")
    if parameter == NODES:
        return [(v, o) for v, o in runs if v <= train_to]
    sizes = values[-_TRAINED_SIZES:]
    cells = {s: [o.configuration for v, o in runs if v == s] for s in sizes}
    design = sized_design(cells, runs_per_size)
    return [(v, o) for v, o in runs if v in design and o.configuration in set(design[v])]


def _sized(runs: Sequence[SizedRun], parameter: str) -> SizedRuns:
    names = () if parameter == NODES else (parameter,)
    rows = [({n: v for n in names}, o.configuration, o.time_s, o.energy_j) for v, o in runs]
    if any(energy is None for *_, energy in rows):
        raise InputError("the grid has no energy to judge by", hint="fill the column energy_j in")
    return SizedRuns.of(names, rows)


def _truth(
    runs: Sequence[SizedRun],
) -> dict[float, dict[Configuration, TimeEnergy]]:
    """Return by size and configuration the geometric mean time (s) and energy (J)."""
    logs: dict[float, dict[Configuration, list[tuple[float, float]]]] = {}
    for value, o in runs:
        if o.energy_j is None:
            raise InputError(
                "the grid has no energy to judge by", hint="fill the column energy_j in"
            )
        pair = math.log(o.time_s), math.log(o.energy_j)
        logs.setdefault(value, {}).setdefault(o.configuration, []).append(pair)
    return {
        value: {c: tuple(np.exp(np.mean(pairs, axis=0)).tolist()) for c, pairs in cells.items()}
        for value, cells in logs.items()
    }


@dataclass(frozen=True, slots=True)
class _Advice:
    """What the advisor would do at a size: only what runs at the largest size confirmed."""

    parameter: str
    runs: SizedRuns
    confirmed: frozenset[Configuration]
    model: str
    policy: Policy

    @classmethod
    def of(
        cls,
        grid: Sequence[SizedRun],
        trained: Sequence[SizedRun],
        parameter: str,
        tried: TriedForecast,
        policy: Policy,
    ) -> _Advice:
        """Make up to two confirmation runs at the largest size; they also join the training."""
        top = max(v for v, _ in trained)
        if parameter == NODES:
            return cls(parameter, _sized(trained, parameter), frozenset(), tried.model, policy)
        largest_runs = [o for v, o in grid if v == top]
        runs, confirmed = _confirm([o for v, o in trained if v == top], largest_runs, policy)
        smaller_runs = [(v, o) for v, o in trained if v != top]
        sized = _sized([*smaller_runs, *((top, o) for o in runs)], parameter)
        return cls(parameter, sized, confirmed, tried.model, policy)

    def at(self, value: float, truth: Mapping[Configuration, TimeEnergy]) -> SizedDecision:
        """Decide at a size whose measured cells are ``truth``."""
        base = largest_of(truth)
        cells = [base, *sorted(self.confirmed - {base} & set(truth))]
        cells = [c for c in cells if c.nodes == base.nodes and c in truth]
        chosen = base
        if len(cells) > 1:
            size = {p: value for p in self.runs.places.parameters}
            places = SizedPlaces.of(self.runs.places.parameters, [(size, c) for c in cells])
            start, *options = _options(cells, create(self.model).forecast(self.runs, places))
            rows = [(o.configuration.node_type, row_of(o)) for o in options]
            choice = select(rows, row_of(start), self.policy).chosen
            chosen = base if choice is None else choice.configuration
        time, energy = truth[base]
        limit = self.policy.max_slowdown
        return SizedDecision(
            chosen,
            truth[chosen][0] / time - 1.0,
            1.0 - truth[chosen][1] / energy,
            max(1.0 - e / energy for t, e in truth.values() if t / time - 1.0 <= limit),
        )


def _confirm(
    trained: Sequence[Observation], measured_runs: Sequence[Observation], policy: Policy
) -> tuple[list[Observation], frozenset[Configuration]]:
    """Return the largest size's runs with the confirmation runs, and what they confirm."""
    runs, repeated_cells = list(trained), set()
    sure = replace(policy, confidence=0.5, resources="balanced")
    cells = {o.configuration for o in measured_runs}
    space = SearchSpace.of(next(iter(cells)).node_type, cells)
    for attempt in range(_CONFIRMATIONS + 1):
        options = [
            replace(o, confirmed=o.confirmed or o.configuration in repeated_cells)
            for o in fit_options(runs, space=space).options
            if o.configuration in cells
        ]
        start = next(o for o in options if o.configuration == largest_of(cells))
        proposed = recommend(options, start, sure) if attempt < _CONFIRMATIONS else None
        if proposed is None:
            break
        c = proposed.configuration
        if any(o.configuration == c for o in runs):
            repeated_cells.add(c)
        runs += [replace(o, source="confirm") for o in measured_runs if o.configuration == c]
    return runs, frozenset(o.configuration for o in options if o.confirmed)


def _options(cells: Sequence[Configuration], forecast: ScalingForecast) -> list[Option]:
    """Return options of one size; their intervals are what each has of its own."""
    assert forecast.energy is not None
    time, energy = (_interval(r) for r in (forecast.time, forecast.energy))
    return [Option(c, *t, *e, confirmed=True) for c, t, e in zip(cells, time, energy, strict=True)]


def _interval(response: ScaledResponse) -> list[tuple[float, float, float]]:
    pairs = zip(response.mean.tolist(), (Z90 * response.own).tolist(), strict=True)
    return [(math.exp(m), math.exp(m - half), math.exp(m + half)) for m, half in pairs]


def _score(
    size: float,
    factor: float,
    truth: Mapping[Configuration, TimeEnergy],
    tried: TriedForecast,
    rows: NDArray[np.intp],
    min_time: float,
) -> SizedScore:
    values = np.log(np.array(list(truth.values())))
    keep = np.exp(values[:, 0]) >= min_time
    none = SizedDecision(largest_of(truth), None, None, None)
    errors: dict[Measure, float | None] = {}
    coverage: dict[Measure, float | None] = {}
    widths: dict[Measure, float | None] = {}
    responses: dict[Measure, ScaledResponse | None] = {
        "time": tried.forecast.time,
        "energy": tried.forecast.energy,
    }
    for column, (name, response) in enumerate(responses.items()):
        if response is None or tried.unfit or not keep.any():
            errors[name] = coverage[name] = widths[name] = None
            continue
        at_size = rows[keep]
        off = response.mean[at_size] - values[keep, column]
        half = Z90 * response.sigma[at_size]
        errors[name] = 100 * float(np.median(np.abs(np.expm1(off))))
        coverage[name] = float(np.mean(np.abs(off) <= half))
        widths[name] = 100 * float(np.median(np.expm1(half)))
    return SizedScore(
        size, factor, int(keep.sum()), UNFIT if tried.unfit else OK, errors, coverage, widths, none
    )
