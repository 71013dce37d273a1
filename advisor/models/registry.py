"""Response models by name: find them, make them, predict both responses with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from advisor import laboratory, plugins
from advisor.core.configuration import Configuration
from advisor.models.base import Forecast, JointModel, Matrix, Model, matrix, parse_options
from advisor.models.intervals import cross_validated
from advisor.models.runs import Runs
from advisor.one_thread import on_one_thread

DEFAULT = "auto"
"""The model that is fitted where none is named."""


def names() -> tuple[str, ...]:
    """Return the names of all models, the advisor's own first."""
    return plugins.names("models")


def find(name: str) -> type[Model] | type[JointModel]:
    """Return a model's class; InputError names the known ones for an unknown name.

    Raises LaboratoryError for one of the laboratory where that is not installed.
    """
    return cast(
        type[Model] | type[JointModel], laboratory.load("models", name, f"fit --model {name}")
    )


def create(name: str, *, bounds: Matrix | None = None, **options: Any) -> Any:
    """Make a Model or JointModel; InputError for an unknown name or option, or a bad value."""
    model = find(name)
    return model(bounds=bounds, **parse_options(name, model.OPTIONS, options))


@on_one_thread
def forecast(
    name: str,
    runs: Runs,
    points: Sequence[Configuration],
    options: Mapping[str, object] | None = None,
) -> Forecast:
    """Fit a model to runs and predict the wanted configurations, with intervals.

    Raises InputError for an unknown name or option, or when the model cannot be fitted.
    """
    make = partial(create, name, bounds=_bounds([*points, *runs.time.log_mean]), **(options or {}))
    model = make()
    if hasattr(model, "forecast"):
        joint: JointModel = model
        return joint.forecast(runs, points)
    time = cross_validated(make, runs.time, points)
    energy = None if runs.energy is None else cross_validated(make, runs.energy, points)
    return Forecast(time, energy)


def _bounds(configurations: Sequence[Configuration]) -> Matrix:
    x = matrix(configurations)
    return np.array([x.min(axis=0), x.max(axis=0)])
