"""The neural network of the thesis (Endrei 2019, section 4.3.4), for comparison; needs [ml]."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from advisor.errors import InputError, MissingExtraError
from advisor.models.base import Matrix, ModelOption, Vector

_HIDDEN = "10-20-10"
"""Units of the hidden layers (Endrei 2019, section 4.3.4)."""
_MOST_UNITS = 1000
"""Units that a hidden layer may have."""
_REACH = 3.0
"""Predictions keep within this factor of what was run: beyond, a network only guesses."""


class Neural:
    """Hidden layers of rectified units, 10, 20 and 10, of scaled axes and the log response.

    The thesis's steps are those of a stochastic optimiser; with a dozen runs the whole gradient is
    known, so L-BFGS takes them. The same seed gives the same network.
    """

    NAME: ClassVar[str] = "neural"
    DESCRIPTION: ClassVar[str] = "neural network 10-20-10 of the log response (Endrei 2019)"
    IN_AUTO: ClassVar[bool] = False
    """A dozen fits of it take seconds."""
    OPTIONS: ClassVar[tuple[ModelOption, ...]] = (
        ModelOption("steps", int, 2000, "most training steps", 10, 100_000),
        ModelOption("seed", int, 0, "of the weights to begin with", 0, 2**31 - 1),
        ModelOption("hidden", str, _HIDDEN, "units of the hidden layers, as 10-20-10"),
        ModelOption(
            "scaling",
            str,
            "standard",
            "of the axes: to mean 0 and deviation 1, to 0..1, or none (figure 5.3)",
            choices=("standard", "minmax", "none"),
        ),
    )

    def __init__(
        self,
        *,
        bounds: Matrix | None = None,
        steps: int = 2000,
        seed: int = 0,
        hidden: str = _HIDDEN,
        scaling: str = "standard",
        **_: Any,
    ) -> None:
        layers = _layers(hidden)
        try:
            from sklearn.neural_network import MLPRegressor
        except ImportError as error:
            raise MissingExtraError("model neural needs", "scikit-learn") from error
        self.notes: list[str] = []
        self._steps, self._scaling = steps, scaling
        self._network: Any = MLPRegressor(
            hidden_layer_sizes=layers,
            activation="relu",
            solver="lbfgs",
            max_iter=steps,
            random_state=seed,
        )
        self._centre, self._scale = np.zeros(1), np.ones(1)
        self._mean, self._spread = 0.0, 1.0
        self._low, self._high = -np.inf, np.inf

    def fit(self, x: Matrix, y: Vector) -> None:
        """Fit to x (n, 3) and positive y (n,)."""
        log_y = np.log(y)
        if self._scaling == "standard":
            self._centre, self._scale = x.mean(axis=0), _positive(x.std(axis=0))
        elif self._scaling == "minmax":
            self._centre, self._scale = x.min(axis=0), _positive(np.ptp(x, axis=0))
        self._mean, self._spread = float(log_y.mean()), float(_positive(log_y.std()))
        self._low = float(log_y.min()) - np.log(_REACH)
        self._high = float(log_y.max()) + np.log(_REACH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns when ``steps`` end the training
            self._network.fit(self._scaled(x), (log_y - self._mean) / self._spread)

    def predict(self, x: Matrix) -> Vector:
        """Predict the response in its own unit."""
        log_y = self._mean + self._spread * self._network.predict(self._scaled(x))
        predicted: Vector = np.exp(np.clip(log_y, self._low, self._high))
        return predicted

    def losses(self, x: Matrix, y: Vector) -> list[tuple[int, float]]:
        """Return the training loss after 1, 2, 4 and so on steps: half the mean squared error of
        the standardised log response, and what large weights cost.

        Every training begins alike and takes the same steps, so one cut short is the beginning of
        the whole. The model is trained to its end afterwards.
        """
        steps = [2**k for k in range(self._steps.bit_length()) if 2**k < self._steps]
        curve = []
        for most in [*steps, self._steps]:
            self._network.set_params(max_iter=most)
            self.fit(x, y)
            curve.append((int(self._network.n_iter_), float(self._network.loss_)))
        return list(dict(curve).items())

    def _scaled(self, x: Matrix) -> Matrix:
        scaled: Matrix = (x - self._centre) / self._scale
        return scaled


def _layers(text: str) -> tuple[int, ...]:
    """Return the units of each hidden layer. Raises InputError."""
    units = text.split("-")
    if not all(u.isascii() and u.isdecimal() and 1 <= int(u) <= _MOST_UNITS for u in units):
        raise InputError(
            f"hidden: {text!r} is not a list of layers",
            hint=f"units of each layer, 1 to {_MOST_UNITS}, as {_HIDDEN}",
        )
    return tuple(map(int, units))


def _positive(spread: Any) -> Any:
    return np.where(spread > 0, spread, 1.0)
