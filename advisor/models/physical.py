"""Our own model: laws of time and power, and a Gaussian process for what they miss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from advisor.core.axes import AXES, Axis
from advisor.core.configuration import Configuration
from advisor.core.option import Z90
from advisor.core.units import format_change
from advisor.core.words import describe
from advisor.models.base import DISTURBED, Forecast, Matrix, ModelOption, Prediction, Vector, matrix
from advisor.models.disturbances import Disturbances
from advisor.models.intervals import r_squared, relative_rmse
from advisor.models.meter_step import read_error
from advisor.models.process import Belief, What, believe
from advisor.models.response import Response
from advisor.models.runs import Runs

_MOST_RUNS = 1000
"""More configurations are thinned out at random: the cost grows with their cube."""
_STEPS_SHOWN = 4
"""Steps over cores that are named, those of the most cores."""
_PROBABLY = 0.5
"""Turbo is mentioned when it is more probable than not."""


class Physical:
    """Time and power, each from what it obeys; energy is their product.

    Time and power are not disturbed by the same things: power is smooth and nearly exact where
    time has steps and slow runs, and energy has both. Energy's error is therefore that of time
    and of power together. :mod:`advisor.models.laws` has the laws, :mod:`advisor.models.process`
    the rest; there are no settings.
    """

    NAME: ClassVar[str] = "physical"
    DESCRIPTION: ClassVar[str] = "laws of time and power, a Gaussian process for what they miss"
    OPTIONS: ClassVar[tuple[ModelOption, ...]] = ()

    def __init__(self, *, bounds: Matrix | None = None, **_: Any) -> None:
        self._bounds = bounds

    def forecast(self, runs: Runs, wanted: Sequence[Configuration]) -> Forecast:
        """Predict time and energy of the wanted configurations from runs."""
        time = _Response.of("time", runs.time, wanted)
        if runs.energy is None or runs.power is None:
            return Forecast(time.prediction(), None)
        power = _Response.of("power", runs.power, wanted)
        return Forecast(time.prediction(), power.times(time, runs.energy))


@dataclass(frozen=True, slots=True)
class _Response:
    """Time or power at the wanted configurations (m,) and at those trained on, in log space."""

    what: What
    response: Response
    points: Sequence[Configuration]
    mean: Vector
    sigma: Vector
    held_out: dict[Configuration, tuple[float, float]]
    """Log mean and standard deviation of each training run, as the others predict it."""
    fitted: dict[Configuration, float]
    disturbances: Disturbances
    notes: tuple[str, ...]
    facts: dict[str, Any]

    @classmethod
    def of(cls, what: What, response: Response, points: Sequence[Configuration]) -> _Response:
        trained = used = list(response.log_mean)
        notes = []
        if len(trained) > _MOST_RUNS:
            # The same ones each time: a model that is fitted again to its runs stays as it is.
            some = np.random.default_rng(0).permutation(len(trained))[:_MOST_RUNS]
            used = [trained[i] for i in sorted(some)]
            notes.append(f"{what} is fitted to {_MOST_RUNS} of {len(trained)} configurations")
        number = {c: i for i, c in enumerate(used)}
        places = [*points, *trained]
        log_y = np.array([response.log_mean[c] for c in used])
        belief = believe(
            what,
            matrix(used),
            log_y,
            np.array([response.noise(c) for c in used]),
            response.run_sigma,
            matrix(places),
            np.array([number.get(c, -1) for c in places]),  # -1: no run was made there
            limited=(clock := clock_axis(places)) is not None and clock.limits_power,
        )
        m = len(points)
        mean, sigma = belief.mean[:m], belief.sigma[:m]
        at_runs = zip(belief.mean[m:].tolist(), belief.sigma[m:].tolist(), strict=True)
        held_out = dict(zip(trained, at_runs, strict=True))
        held_out_pairs = zip(belief.held_out.tolist(), belief.held_out_sigma.tolist(), strict=True)
        # Of runs that were thinned out the model knows nothing: their own prediction stands.
        held_out |= dict(zip(used, held_out_pairs, strict=True))
        for i in np.flatnonzero(belief.disturbed):
            off = format_change(math.expm1(float(log_y[i] - belief.held_out[i])))
            notes.append(
                f"{what} at {describe(used[i])} is {off} off what the other runs predict: "
                + DISTURBED
            )
        law = _law(what, belief, used)
        return cls(
            what,
            response,
            points,
            mean,
            sigma,
            held_out,
            dict(zip(trained, belief.mean[m:].tolist(), strict=True)),
            belief.disturbances,
            (*notes, *([law] if law else [])),
            {
                "law": {
                    **belief.parameters,
                    "top_step_apart": belief.turbo,
                    **({"pieces": belief.pieces} if what == "time" else {}),
                }
            },
        )

    def prediction(self) -> Prediction:
        """Return the response by itself."""
        upper = self.disturbances.upper(self.sigma)
        return self._predicting(
            self.response, self.mean, self.sigma, upper, self.held_out, self.fitted
        )

    def times(self, time: _Response, energy: Response) -> Prediction:
        """Return energy, from this power and a time."""
        held_out = {}
        for c in (c for c in energy.log_mean if c in time.held_out and c in self.held_out):
            (t, t_sigma), (p, p_sigma) = time.held_out[c], self.held_out[c]
            held_out[c] = t + p, math.hypot(t_sigma, p_sigma)
        mean, sigma = time.mean + self.mean, np.hypot(time.sigma, self.sigma)
        if energy.step_j:  # a new run is read by the same meter
            at = zip(self.points, mean.tolist(), strict=True)
            sigma = np.hypot(sigma, [read_error(energy.step_j, c, v) for c, v in at])
        fitted = {c: time.fitted[c] + self.fitted[c] for c in held_out}
        # A disturbed run is a longer one; power hardly notices.
        upper = time.disturbances.upper(sigma)
        return self._predicting(energy, mean, sigma, upper, held_out, fitted)

    def _predicting(
        self,
        response: Response,
        mean: Vector,
        sigma: Vector,
        upper: Vector,
        held_out: Mapping[Configuration, tuple[float, float]],
        fitted: Mapping[Configuration, float],
    ) -> Prediction:
        """Return a prediction with this response's notes, judged by the runs held out."""
        runs = [c for c in response.log_mean if c in held_out]
        y = np.array([response.log_mean[c] for c in runs])
        return Prediction(
            mean,
            Z90 * sigma,
            {c: (v, Z90 * s) for c, (v, s) in held_out.items()},
            r_squared(y, np.array([fitted[c] for c in runs])),
            relative_rmse(np.array([held_out[c][0] for c in runs]) - y),
            len(runs),
            self.notes,
            self.facts,
            np.maximum(upper, Z90 * sigma),
        )


def clock_axis(configurations: Sequence[Configuration]) -> Axis | None:
    """Return the further axis that stands in the frequency's place, None where it stands itself."""
    if len({c.freq_khz for c in configurations}) > 1:
        return None
    names = [name for name, _ in configurations[0].extra]
    values = zip(*([v for _, v in c.extra] for c in configurations), strict=True)
    return next((AXES[n] for n, v in zip(names, values, strict=True) if len(set(v)) > 1), None)


def _steps(pieces: int, most: int) -> str:
    """Say where time steps: the fewest cores that do so many pieces in so many rounds."""
    edges = sorted({e for r in range(1, pieces + 1) if (e := math.ceil(pieces / r)) <= most})
    shown = ", ".join(map(str, edges[-_STEPS_SHOWN:]))
    return f"work in {pieces} equal pieces: it gets faster only at {shown} cores"


def _law(what: What, belief: Belief, used: Sequence[Configuration]) -> str:
    """Return in words which law the runs follow, as far as they show it."""
    cores = len({c.threads_per_node for c in used}) > 1
    axis = clock_axis(used)
    freqs = axis is not None or len({c.freq_khz for c in used}) > 1
    clock = "clock" if axis is None else axis.words
    parts = []
    if what == "time":
        if cores:
            parts.append(f"{100 * belief.parameters['serial']:.0f} % serial")
            if belief.pieces:
                parts.append(_steps(belief.pieces, max(c.threads_per_node for c in used)))
        if freqs:
            parts.append(f"{100 * belief.parameters['clockless']:.0f} % not bound to the {clock}")
    else:
        if cores:
            parts.append(
                f"{100 * belief.parameters['idle']:.0f} % of the node at full load is idle power"
            )
        if freqs:
            whose = (
                "the cores' power follows frequency"
                if clock == "clock"
                else f"power follows {clock}"
            )
            parts.append(f"{whose}^{belief.parameters['exponent']:.1f}")
    if freqs and belief.turbo > _PROBABLY:
        what_stands = "frequency" if clock == "clock" else clock
        parts.append(f"the highest {what_stands} stands apart (turbo)")
    return f"{what}: {', '.join(parts)}" if parts else ""
