"""Predict both responses with a model of any kind, by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from advisor.core.configuration import Configuration
from advisor.models.base import JointModel, Matrix, matrix
from advisor.models.intervals import Forecast, cross_validated
from advisor.models.registry import create
from advisor.models.runs import Runs


def forecast(
    name: str,
    runs: Runs,
    wanted: Sequence[Configuration],
    options: Mapping[str, object] | None = None,
) -> Forecast:
    """Fit a model to runs and predict the wanted configurations, with intervals.

    Raises InputError for an unknown name or option, or when the model cannot be fitted.
    """
    make = partial(create, name, bounds=_bounds([*wanted, *runs.time.log_mean]), **(options or {}))
    model = make()
    if hasattr(model, "forecast"):
        joint: JointModel = model
        return joint.forecast(runs, wanted)
    time = cross_validated(make, runs.time, wanted)
    energy = None if runs.energy is None else cross_validated(make, runs.energy, wanted)
    return Forecast(time, energy)


def _bounds(configurations: Sequence[Configuration]) -> Matrix:
    x = matrix(configurations)
    return np.array([x.min(axis=0), x.max(axis=0)])
