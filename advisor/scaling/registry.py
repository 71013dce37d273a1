"""Scaling models by name, each tried on the largest measured sizes before it is believed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from advisor import plugins
from advisor.errors import AdvisorError, InputError
from advisor.one_thread import on_one_thread
from advisor.scaling.base import (
    FEWEST_SIZES,
    ScalingForecast,
    ScalingModel,
    SizedPlaces,
    SizedRuns,
    growing,
)

AUTO, FIRST = "auto", "physics"
"""The choice among all models, and the one the others have to beat."""
_BETTER, _SURPRISED = 0.25, 3.0
"""Another model's error must be less than this share of the first's, and the first's error more
than so many of its own standard deviations: one size says little."""
_UNFIT_SIGMAS, _UNFIT_ERROR = 3.0, 0.2
"""The largest size off by more than both of these: no law of ours is this family's."""
_WORST = 0.6
"""A median error (log) of the largest size beyond this is unfit whatever the model expected."""
_TRUST = 3.0
"""The model's own expectation of its error counts as so many sizes left out."""


@dataclass(frozen=True, slots=True)
class LargestTrial:
    """A model on the largest size, from the smaller ones: errors in log space.

    ``bias`` is the median error of the size's times, ``sigmas`` that over what the model expected,
    ``off`` the median of the errors' magnitudes, of time or energy, whichever is larger;
    ``energy_bias`` is 0 where no energy is known.
    """

    model: str
    bias: float
    sigmas: float
    off: float
    energy_bias: float = 0.0

    @property
    def words(self) -> str:
        """How far off it was: ``+3%``, with energy where that is farther off than time."""
        time = f"{math.expm1(self.bias):+.0%}"
        if abs(self.energy_bias) <= max(_UNFIT_ERROR, abs(self.bias)):
            return time
        return f"{time} (energy {math.expm1(self.energy_bias):+.0%})"

    @property
    def unfit(self) -> bool:
        """Whether the model does not hold for this family."""
        surprised = self.sigmas > _UNFIT_SIGMAS and abs(self.bias) > _UNFIT_ERROR
        return surprised or self.off > _WORST


@dataclass(frozen=True, slots=True)
class TriedForecast:
    """A forecast with the model that made it, and every model's trial on the largest size.

    ``unfit``: the chosen model did not predict the largest measured size; nothing may rest on it.
    """

    model: str
    forecast: ScalingForecast
    trials: tuple[LargestTrial, ...]
    unfit: bool
    notes: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Return the names of all scaling models, the advisor's own first."""
    return plugins.names("scaling")


def create(name: str) -> ScalingModel:
    """Make a model; InputError names the known ones for an unknown name."""
    return cast(ScalingModel, plugins.load("scaling", name)())


@on_one_thread
def tried_forecast(runs: SizedRuns, places: SizedPlaces, model: str = AUTO) -> TriedForecast:
    """Predict places of any size; ``auto`` chooses by the largest sizes, never by folds within.

    The largest measured value of what grows is predicted from the smaller ones. Its error widens
    the shared error, or makes the family unfit. Raises InputError below three sizes.
    """
    check_sizes(runs)
    candidates = names() if model == AUTO else (model,)
    largest = _largest(runs)
    trials, problems = [], []
    for name in candidates:
        try:
            trials.append(_trial_of_largest(name, runs, largest))
        except (AdvisorError, np.linalg.LinAlgError) as error:
            if model != AUTO:
                raise
            problems.append(f"scaling model {name} is left out: {error}")
    if not trials:
        raise InputError("; ".join(problems), hint="measure more runs at each size")
    chosen = _choose(trials)
    forecast = create(chosen.model).forecast(runs, places)
    factor = math.sqrt((_TRUST + min(chosen.sigmas, 6.0) ** 2) / (_TRUST + 1))
    factor = max(1.0, factor)
    forecast = replace(
        forecast,
        time=forecast.time.widened(factor),
        energy=None if forecast.energy is None else forecast.energy.widened(factor),
    )
    other_trials = ", ".join(f"{t.model} {t.words}" for t in trials if t.model != chosen.model)
    why = f"{chosen.model}: the largest measured size is {chosen.words} off"
    notes = (why + (f" ({other_trials})" if other_trials else ""), *problems, *forecast.notes)
    return TriedForecast(chosen.model, forecast, tuple(trials), chosen.unfit, notes)


def too_few(axis: str, count: int) -> str:
    """Return the sentence that says so many values of an axis are too few for a law."""
    were = "value of {} was" if count == 1 else "values of {} were"
    return f"{count} {were.format(axis)} measured, a law needs {FEWEST_SIZES}"


def check_sizes(runs: SizedRuns) -> None:
    """Raise InputError where no parameter, nor the number of nodes, has three values."""
    table = runs.places.growing()
    axes = (*runs.places.parameters, "nodes")
    counts = {a: len(set(column.tolist())) for a, column in zip(axes, table.T, strict=True)}
    if max(counts.values()) >= FEWEST_SIZES:
        return
    name = max(counts, key=lambda a: (counts[a], a != "nodes"))
    raise InputError(
        too_few(name, counts[name]),
        hint="measure smaller or larger ones, best each twice the one before",
    )


def _largest(runs: SizedRuns) -> NDArray[np.bool_]:
    """Return the runs of the largest value of what has three values or more."""
    table = runs.places.growing()
    rows = np.zeros(len(runs), dtype=bool)
    for j in growing(runs):
        if len(set(table[:, j].tolist())) >= FEWEST_SIZES:
            rows |= table[:, j] == table[:, j].max()
    return rows


def _trial_of_largest(name: str, runs: SizedRuns, largest: NDArray[np.bool_]) -> LargestTrial:
    held_out, rest = runs.some(largest), runs.some(~largest)
    forecast = create(name).forecast(rest, held_out.places)
    time, error = forecast.time, forecast.time.mean - held_out.log_time
    bias, off = float(np.median(error)), float(np.median(np.abs(error)))
    energy_bias = 0.0
    if forecast.energy is not None and held_out.log_energy is not None:
        energy_error = forecast.energy.mean - held_out.log_energy
        energy_bias = float(np.median(energy_error))
        off = max(off, float(np.median(np.abs(energy_error))))
    option_error = np.hypot(time.own, time.noise) / math.sqrt(len(held_out))
    expected = math.hypot(float(np.mean(time.shared)), float(np.mean(option_error)))
    return LargestTrial(name, bias, abs(bias) / max(expected, 1e-6), off, energy_bias)


def _choose(trials: Sequence[LargestTrial]) -> LargestTrial:
    first = next((t for t in trials if t.model == FIRST), trials[0])
    better = [t for t in trials if t.off < _BETTER * first.off]
    if first.sigmas <= _SURPRISED or not better:
        return first
    return min(better, key=lambda t: t.off)
