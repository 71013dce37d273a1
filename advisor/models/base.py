"""What every response model offers, so that commands and plug-ins need know no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.core.configuration import Configuration
from advisor.errors import InputError
from advisor.models.runs import Runs

Matrix = NDArray[np.float64]
"""Configurations as rows of [nodes, threads_per_node, freq_khz], then any further axes."""
Vector = NDArray[np.float64]

AXES = ("nodes", "threads", "frequency")
"""The columns of a matrix of configurations, as notes name them."""


LEFT_OUT, DISTURBED = "left out of the fit", "probably disturbed, ignored"
"""How a model's notes about single runs end."""


def of_one_run(note: str) -> bool:
    """Tell whether a model's note is about a single run."""
    return note.endswith((LEFT_OUT, DISTURBED))


@dataclass(frozen=True, slots=True)
class ModelOption:
    """One setting of a model; a tuple of these drives the command line and its checks."""

    name: str
    type: type[int] | type[float] | type[str]
    default: int | float | str
    help: str
    minimum: float = 0.0
    maximum: float = 0.0
    choices: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """What values it may have, in words; "" for any text."""
        if self.type is str:
            return ", ".join(self.choices)
        return f"{self.minimum:g} to {self.maximum:g}"

    def parse(self, value: object) -> int | float | str:
        """Return a value of the option's type within its range, else raise InputError."""
        if self.type is str:
            if self.choices and value not in self.choices:
                raise InputError(
                    f"{self.name}: {value!r} is not known", hint=f"choose from: {self.range}"
                )
            return str(value)
        try:
            number: int | float = int(str(value)) if self.type is int else float(str(value))
        except ValueError:
            kind = "a whole number" if self.type is int else "a number"
            raise InputError(f"{self.name}: {value!r} is not {kind}") from None
        if not self.minimum <= number <= self.maximum:
            raise InputError(f"{self.name}: {number} is out of range", hint=f"from {self.range}")
        return number


class Model(Protocol):
    """A response over configurations, fitted to runs; its error is found by cross-validation.

    Made as ``cls(bounds=..., **options)``: ``bounds`` (2, 3) are the least and greatest value of
    each axis that will be asked for, ``options`` are values of ``OPTIONS`` by name. ``fit`` takes
    x (n, 3) and positive y (n,); ``predict`` returns positive finite values for any x. Further axes
    (GPU clocks, say) are further columns of all three.
    """

    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]
    OPTIONS: ClassVar[tuple[ModelOption, ...]]

    notes: list[str]
    """What a person should know about the fit: axes that dropped out, terms that were cut."""
    # A model may also have ``facts``: plain JSON about the fit, which is stored with it.

    def __init__(self, *, bounds: Matrix | None = None, **options: Any) -> None: ...

    def fit(self, x: Matrix, y: Vector) -> None:
        """Fit to n runs."""

    def predict(self, x: Matrix) -> Vector:
        """Predict the response."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A response over m configurations, in log space, with 90 % half widths for a new run.

    ``held_out`` gives each training configuration's log mean and half width as the others predict
    them. ``r2`` is equation 4.16 on the response itself, ``cv_rmse`` the root mean square of the
    held-out relative errors; ``facts`` is plain JSON that the model wants to be kept.
    """

    log_mean: Vector
    half: Vector
    held_out: Mapping[Configuration, tuple[float, float]]
    r2: float
    cv_rmse: float
    trained: int
    """The number of configurations trained on; the held-out ones may be more."""
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    upper: Vector | None = None
    """Half widths upwards, where disturbed runs reach farther up than down; None: as ``half``."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model says of both responses; ``energy`` is None when too few runs know theirs."""

    time: Prediction
    energy: Prediction | None


class JointModel(Protocol):
    """Time and energy together, by a model that knows its own error.

    Made as a :class:`Model` is. ``forecast`` takes :class:`advisor.models.runs.Runs` and returns,
    for m wanted configurations, both responses with 90 % half widths for a new run, and each
    run as the others predict it (:class:`Forecast`).
    """

    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]
    OPTIONS: ClassVar[tuple[ModelOption, ...]]

    def __init__(self, *, bounds: Matrix | None = None, **options: Any) -> None: ...

    def forecast(self, runs: Runs, wanted: Sequence[Configuration]) -> Forecast:
        """Predict both responses."""


def matrix(configurations: Sequence[Configuration]) -> Matrix:
    """Return configurations as a matrix (n, 3 and one for each further axis, which all have)."""
    rows = [
        (c.nodes, c.threads_per_node, c.freq_khz, *(v for _, v in c.extra)) for c in configurations
    ]
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 3)


def axis_names(x: Matrix) -> tuple[str, ...]:
    """Return a name for each column of a matrix of configurations."""
    return *AXES, *(f"axis {i + 1}" for i in range(len(AXES), x.shape[1]))


_LEAVE_ONE_OUT, _FOLDS = 20, 10
"""Up to so many runs are left out one by one; more in so many folds."""


def folds(n: int) -> list[NDArray[np.intp]]:
    """Return the rows of n runs in the folds of every cross-validation, so that models compare.

    Up to twenty runs are left out one by one; more are in ten folds, drawn once for all.
    """
    order = np.random.default_rng(0).permutation(n)
    return np.array_split(order, n if n <= _LEAVE_ONE_OUT else _FOLDS)


def parse_options(
    name: str, model_options: Sequence[ModelOption], values: Mapping[str, object]
) -> dict[str, int | float | str]:
    """Return every option of a model with its value; InputError names an unknown or bad one."""
    by_name = {o.name: o for o in model_options}
    for key in values:
        if key not in by_name:
            allowed = ", ".join(by_name) or "none"
            raise InputError(f"model {name} has no option {key!r}", hint=f"it has: {allowed}")
    return {o.name: o.parse(values.get(o.name, o.default)) for o in model_options}
