"""Choose the model by honest cross-validation, and say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from advisor.core import student
from advisor.core.configuration import Configuration
from advisor.errors import AdvisorError
from advisor.models.base import Forecast, Matrix, ModelOption, Prediction, Vector
from advisor.models.registry import find, forecast, names
from advisor.models.response import Response
from advisor.models.runs import Runs

_FIRST = "physical"
"""The model that others have to beat."""
_CONFIDENCE, _BETTER = 0.99, 0.8
"""Confidence of the paired test, and the most of the first model's error another may have."""
_MOST_ERROR = 1.0
"""Most (log) that one run's error counts: a factor of 2.7."""


class Auto:
    """The physical model, unless another is better on runs left out, beyond chance.

    Every model predicts each run from those of other folds, the same for all. A dozen errors are
    few: choosing the least of several would mostly choose by luck, and did worse on measured
    grids than staying with the model that says most about the matter. So another is taken only
    when its squared errors are smaller in a paired test at 99 %, and by a fifth (root mean
    square). Time and energy are chosen apart.
    """

    NAME: ClassVar[str] = "auto"
    DESCRIPTION: ClassVar[str] = "the model that is best on runs left out, and says why"
    IN_AUTO: ClassVar[bool] = False
    OPTIONS: ClassVar[tuple[ModelOption, ...]] = ()

    def __init__(self, *, bounds: Matrix | None = None, **_: Any) -> None:
        self._bounds = bounds

    def forecast(self, runs: Runs, wanted: Sequence[Configuration]) -> Forecast:
        """Predict time and energy with the model chosen for each."""
        by_model = {_FIRST: forecast(_FIRST, runs, wanted)}
        problems = []
        for name in names():
            if name in by_model or not getattr(find(name), "IN_AUTO", True):
                continue
            try:
                by_model[name] = forecast(name, runs, wanted)
            except AdvisorError as error:
                problems.append(f"model {name} is left out: {error}")
        time = _chosen_prediction(
            "time", runs.time, {n: f.time for n, f in by_model.items()}, problems
        )
        if runs.energy is None:
            return Forecast(time, None)
        energies = {n: f.energy for n, f in by_model.items() if f.energy is not None}
        return Forecast(time, _chosen_prediction("energy", runs.energy, energies, problems))


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    errors: Vector

    @property
    def rmse(self) -> float:
        return float(np.sqrt(np.mean(self.errors**2)))

    def beats(self, other: _Candidate) -> bool:
        """Tell whether the errors are smaller beyond chance (paired t-test), and by a fifth."""
        gain = other.errors**2 - self.errors**2
        if self.rmse > _BETTER * other.rmse or len(gain) < 2:
            return False
        error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
        quantile = student.quantile(len(gain) - 1, _CONFIDENCE)
        return bool(gain.mean() > quantile * error)


def _chosen_prediction(
    what: str, response: Response, predictions: dict[str, Prediction], problems: list[str]
) -> Prediction:
    common = [c for c in response.log_mean if all(c in p.held_out for p in predictions.values())]
    candidates = {n: _errors(n, response, p, common) for n, p in predictions.items()}
    first = candidates[_FIRST]
    better = [f for f in candidates.values() if f.beats(first)]
    chosen = min(better, key=lambda f: f.rmse, default=first)
    rest = sorted((f for f in candidates.values() if f is not chosen), key=lambda f: f.rmse)
    rest_text = ", ".join(f"{f.name} {100 * f.rmse:.1f} %" for f in rest)
    why = f"{what}: {chosen.name}, off by {100 * chosen.rmse:.1f} % on runs left out ({rest_text})"
    prediction = predictions[chosen.name]
    return replace(
        prediction,
        notes=(why, *problems, *prediction.notes),
        facts={
            **prediction.facts,
            "model": chosen.name,
            "held_out_rmse_pct": {n: 100 * f.rmse for n, f in candidates.items()},
        },
    )


def _errors(
    name: str, response: Response, prediction: Prediction, common: Sequence[Configuration]
) -> _Candidate:
    off = [prediction.held_out[c][0] - response.log_mean[c] for c in common]
    return _Candidate(name, np.clip(np.array(off), -_MOST_ERROR, _MOST_ERROR))
