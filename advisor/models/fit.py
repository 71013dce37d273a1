"""From measured runs to stored options: fit, predict with intervals, confirm, place in the zone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.core.axes import AXES, extra_words
from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.inventory import NodeType
from advisor.core.mark_front import place
from advisor.core.observation import Observation, Quality
from advisor.core.option import Option
from advisor.core.program import joined
from advisor.core.thread_use import unset_stats
from advisor.core.units import format_change, format_count, format_freq
from advisor.core.words import describe
from advisor.models.adaptive import ADAPTIVE, is_quiet
from advisor.models.base import LEFT_OUT, Forecast, Prediction
from advisor.models.ended_runs import without_refuted
from advisor.models.registry import DEFAULT, forecast
from advisor.models.response import Response
from advisor.models.runs import (
    MIN_CONFIGURATIONS,
    Runs,
    broken,
    gather,
    gpu_stats,
    of_one_method,
    rate_stats,
)
from advisor.models.scatter import Elsewhere
from advisor.models.space import WantedOptions, far_from, highest_of, with_axes
from advisor.models.space import wanted as search

MOST_CONFIRMATIONS = 3
"""So many options are confirmed in turn; if no run comes out as predicted, nothing is changed."""

_ONE_RUN = 2.0
"""An error of so many times one run's is not that of a run."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """A fitted model's options and what is known about the fit.

    ``stats`` is plain JSON: per response n_train, r2 (None: undefined), loo_rmse_pct (error of
    runs predicted without themselves; above 20 configurations without their tenth), sigma_pct,
    repeats; power's scatter alone; counts of options, confirmed, zone and front; the error limit;
    ``threads_unset``, where a run with unset variables used all of its threads, and
    ``threads_of_cores``, where one did that knew its cores a task; ``method``, how the runs'
    threads were set; the ``program`` they were made with, one entry a build (none where it is not
    known). ``predicted`` holds the options as the model alone sees them, for judging it: nothing
    measured has replaced a prediction there.
    """

    options: tuple[Option, ...]
    stats: dict[str, Any]
    n_train: int
    energy_quality: Quality
    model: str
    notes: list[str]
    predicted: tuple[Option, ...] = field(default=())
    as_predicted: frozenset[Configuration] = frozenset()
    """The configurations whose runs came out as the others predict, confirmed or not."""


def fit_options(
    observations: Sequence[Observation],
    *,
    model: str = DEFAULT,
    node_type: NodeType | None = None,
    space: SearchSpace | None = None,
    error: float = 0.05,
    measurement_error: float = 0.02,
    model_options: Mapping[str, object] | None = None,
    least: int = MIN_CONFIGURATIONS,
    elsewhere: Elsewhere | None = None,
) -> FitResult:
    """Fit a model to the runs of one workload on one node type and evaluate every option.

    The options are those of ``space``, by default those of the runs' own search space, or what
    ``node_type``, the inventory's, has room for (:mod:`advisor.models.space`). Where a run was made
    its mean stands, with the measurement's error; elsewhere the prediction, with a 90 % prediction
    interval. A measured option is confirmed when its mean lies within the interval predicted for a
    new run there from the *other* runs. ``error`` is the trade-off zone's inner limit,
    ``measurement_error`` the assumed 95 % half width of one run (both fractions), ``elsewhere``
    what repeats of other workloads on the node type say of it. Runs come oldest first: of two
    methods the newest one's runs count.

    Raises InputError when fewer than ``least`` configurations were measured, or for a bad model
    name or option. Source: equations 4.9 to 4.13, algorithms 5.1 to 5.4 (Endrei 2019).
    """
    notes: list[str] = []
    observations, method = of_one_method(observations, notes)
    steps = space.freqs_khz if space else _steps(observations, node_type)
    # Before anything is compared: runs of one configuration must bear one name.
    observations = _capped(observations, steps, notes)
    observations, highest = _of_all_axes(observations, node_type, notes)
    observations = without_refuted(observations, notes)
    runs = gather(
        observations, measurement_error=measurement_error, least=least, elsewhere=elsewhere
    )
    notes += runs.notes
    cells = (
        WantedOptions(tuple(space), "stored")
        if space is not None
        else search(observations, node_type, enough=least)
    )
    notes += cells.notes
    points = tuple(dict.fromkeys(with_axes(c, highest) for c in cells.configurations))
    far = far_from(runs.time.log_mean, points)
    predictions = _forecast(model, runs, points, model_options, notes)
    time, energy = predictions.time, predictions.energy
    notes += dict.fromkeys((*time.notes, *(energy.notes if energy else ())))
    if _several_ranks(runs.time.log_mean):
        notes.append(
            "runs at the same threads differ in ranks per node: the model treats them as one"
        )
    predicted = tuple(
        replace(_predicted(c, i, time, energy), extrapolated=c in far) for i, c in enumerate(points)
    )
    if far:
        notes.append(_far_in_words(runs.time.log_mean, len(far)))
    options = [_measured(o, runs.time, runs.energy, time, energy) for o in predicted]
    as_predicted = frozenset(o.configuration for o in options if o.confirmed)
    quiet = all(
        is_quiet(r.typical_sigma) and not r.unsteady
        for r in (runs.time, runs.energy)
        if r is not None
    )
    options = _trusted(options, observations, notes, quiet=quiet)
    placed = place(options, error)
    programs = joined(o.extra.get("program") for o in observations)
    if len(programs) > 1:
        notes.append(f"runs of {len(programs)} builds of the program are fitted as one")
    stats: dict[str, Any] = {
        "time": _stats(runs.time, time),
        "energy": None if runs.energy is None or energy is None else _stats(runs.energy, energy),
        "power": None if runs.power is None else _scatter(runs.power),
        "error": error,
        "options": len(placed),
        "measured": sum(o.measured for o in placed),
        "confirmed": sum(o.confirmed for o in placed),
        "zone": sum(o.in_zone for o in placed),
        "front": sum(o.on_front for o in placed),
        "extrapolated": len(far),
        "space": cells.origin,
        "runs": len(observations),
        "method": method,
        **rate_stats(runs.work, observations),
        **gpu_stats(observations),
        "program": programs,
        **unset_stats(observations),
        "notes": notes,
    }
    return FitResult(
        placed,
        stats,
        len(runs.time.log_mean),
        runs.energy_quality,
        model,
        notes,
        place(predicted, error),
        as_predicted,
    )


def run_sigma(fitted: FitResult) -> float:
    """Return the standard deviation of one run's log time or energy, whichever is larger."""
    response_stats = [s for name in ("time", "energy") if (s := fitted.stats[name]) is not None]
    return max(float(s.get("run_sigma_pct", s["sigma_pct"])) for s in response_stats) / 100


def borne_out(fitted: FitResult, configuration: Configuration) -> bool:
    """Tell whether a configuration is known as well as one run makes it.

    It is not where its only run is far off what the others predict, or its two runs far apart.
    """
    option = next(o for o in fitted.options if o.configuration == configuration)
    errors = option.time_sigma, option.energy_sigma
    return all(math.isnan(e) or e < _ONE_RUN * run_sigma(fitted) for e in errors)


def _capped(
    observations: Sequence[Observation], steps: Sequence[int], notes: list[str]
) -> Sequence[Observation]:
    """Where caps can be set, runs without one (0) ran at the highest."""
    caps = {o.configuration.freq_khz for o in observations}
    highest = max(caps | set(steps))
    if 0 not in caps or not highest:
        return observations
    notes.append(f"runs without a frequency cap count as runs at {format_freq(highest)}")
    return [
        replace(
            o, configuration=replace(o.configuration, freq_khz=o.configuration.freq_khz or highest)
        )
        for o in observations
    ]


def _of_all_axes(
    observations: Sequence[Observation], node_type: NodeType | None, notes: list[str]
) -> tuple[Sequence[Observation], dict[str, int]]:
    """Where runs state further axes, others ran at the highest of each: what nobody lowered."""
    highest = highest_of(o.configuration for o in observations)
    if node_type is not None:
        highest = {n: max(value, *node_type.gpus.steps(n), 0) for n, value in highest.items()}
    if any(len(o.configuration.extra) < len(highest) for o in observations):
        words = extra_words(tuple(sorted(highest.items())))
        notes.append(f"runs that state no {' or '.join(sorted(highest))} count as runs at {words}")
        observations = [
            replace(o, configuration=with_axes(o.configuration, highest)) for o in observations
        ]
    return observations, highest


def _steps(observations: Sequence[Observation], node_type: NodeType | None) -> Sequence[int]:
    """Return the caps that runs could have had, where some had one."""
    stored = {f for o in observations if o.space is not None for f in o.space.freqs_khz}
    capped = any(o.configuration.freq_khz for o in observations)
    node_steps_khz = node_type.freq_khz if node_type is not None and capped else ()
    return sorted(stored) or node_steps_khz


def _far_in_words(runs: Iterable[Configuration], count: int) -> str:
    trained = list(runs)
    threads = sorted(c.threads_per_node for c in trained)
    freqs = sorted(c.freq_khz for c in trained)
    caps = f", {format_freq(freqs[0])} to {format_freq(freqs[-1])}" if freqs[-1] else ""
    return (
        f"{format_count(count, 'option')} outside of what was run "
        f"({threads[0]} to {threads[-1]} threads{caps}{_spans(trained)}): extrapolated"
    )


def _spans(trained: Sequence[Configuration]) -> str:
    """Return the reach of further axes in words."""
    by_axis: dict[str, list[int]] = {}
    for c in trained:
        for name, value in c.extra:
            by_axis.setdefault(name, []).append(value)
    return "".join(
        f", {extra_words(((name, min(v)),))} to {AXES[name].shown(max(v))}"
        for name, v in by_axis.items()
    )


def _several_ranks(trained: Mapping[Configuration, float]) -> bool:
    return len({replace(c, ranks_per_node=1) for c in trained}) < len(trained)


def _forecast(
    model: str,
    runs: Runs,
    points: Sequence[Configuration],
    options: Mapping[str, object] | None,
    notes: list[str],
) -> Forecast:
    """Predict both responses; broken runs are named and do not bend the model.

    They are compared with what the model says without them.
    """
    odd = {"time": broken(runs.time.log_mean)}
    clean = replace(runs, time=runs.time.without(odd["time"]))
    if runs.energy is not None and runs.power is not None:
        odd["energy"] = broken(runs.energy.log_mean)
        # A broken time makes the energy broken, too; a broken energy says nothing against the
        # time.
        out = {*odd["time"], *odd["energy"]}
        clean = replace(clean, energy=runs.energy.without(out), power=runs.power.without(out))
    for name, off in odd.items():
        for c, error in off.items():
            change = format_change(math.expm1(error))
            notes.append(f"{name} at {describe(c)} is {change} off its neighbours: {LEFT_OUT}")
    outside = sorted({c for off in odd.values() for c in off})
    # Broken runs are predicted, too, so that they can be held against the model without them.
    predictions = forecast(model, clean, [*points, *outside], options)
    energy = predictions.energy
    return Forecast(
        _with_outsiders(predictions.time, runs.time, outside),
        None
        if energy is None or runs.energy is None
        else _with_outsiders(energy, runs.energy, outside),
    )


def _with_outsiders(
    prediction: Prediction, response: Response, outside: Sequence[Configuration]
) -> Prediction:
    """Move the last predictions, of runs not trained on, to the held-out ones."""
    if not outside:
        return prediction
    cut = len(prediction.log_mean) - len(outside)
    held_out = dict(prediction.held_out)
    for c, mean, half in zip(
        outside, prediction.log_mean[cut:], prediction.half[cut:], strict=True
    ):
        if c in response.log_mean and c not in held_out:
            held_out[c] = float(mean), float(half)
    return replace(
        prediction,
        log_mean=prediction.log_mean[:cut],
        half=prediction.half[:cut],
        upper=None if prediction.upper is None else prediction.upper[:cut],
        held_out=held_out,
        trained=len(prediction.held_out),
    )


def _predicted(
    configuration: Configuration, i: int, time: Prediction, energy: Prediction | None
) -> Option:
    e = (math.nan,) * 3 if energy is None else _new_run(energy, i)
    return Option(configuration, *_new_run(time, i), *e)


def _new_run(prediction: Prediction, i: int) -> tuple[float, float, float]:
    upper = prediction.half if prediction.upper is None else prediction.upper
    return _interval(prediction.log_mean[i], prediction.half[i], upper[i])


def _interval(
    log_mean: float, half: float, upper: float | None = None
) -> tuple[float, float, float]:
    """Mean, low and high of a response; kept finite, so that they can be stored and compared."""
    # e^50 is beyond any ratio of times, and far from what a float holds.
    down, up = (min(width, 50.0) for width in (half, half if upper is None else upper))
    return math.exp(log_mean), math.exp(log_mean - down), math.exp(log_mean + up)


def _measured(
    option: Option,
    times: Response,
    energies: Response | None,
    time: Prediction,
    energy: Prediction | None,
) -> Option:
    """Put what was measured in the place of what was predicted."""
    c = option.configuration
    if c not in times.log_mean or times.confirming(c) is None:
        return option
    t, t_lo, t_hi = _interval(*_pooled(times, time, c))
    option = replace(option, time_s=t, time_lo_s=t_lo, time_hi_s=t_hi)
    confirmed = _confirms(times, time, c)
    if energies is not None and energy is not None:
        if c not in energies.log_mean:
            return option
        e, e_lo, e_hi = _interval(*_pooled(energies, energy, c))
        option = replace(option, energy_j=e, energy_lo_j=e_lo, energy_hi_j=e_hi)
        confirmed = confirmed and _confirms(energies, energy, c)
    return replace(option, measured=True, confirmed=confirmed)


def _pooled(response: Response, prediction: Prediction, c: Configuration) -> tuple[float, float]:
    """Return the log mean of a configuration's own runs and of what the others predict there.

    Each weighs by the inverse of its squared error, with half the 90 % interval of both. So the
    best of many by their runs is not taken for as good as it came out. Where nothing was repeated,
    nobody knows how much a run may be off, and where the two disagree, one of them is wrong: there
    the own runs stand, a single one with the disagreement as its error.
    """
    own_mean, half = response.log_mean[c], response.half_width(c)
    mean, others_half = prediction.held_out[c]
    if not _confirms(response, prediction, c):
        alone = response.counts[c] <= 1
        return own_mean, math.hypot(half, own_mean - mean) if alone else half
    if not response.error_known(c):
        return own_mean, half
    one_run = response.quantile * response.one_run(c)
    # The held-out interval is that of a new run. Without that run's own error the prediction's is
    # left, which is never less than that of a mean over all runs.
    least = one_run / math.sqrt(len(response.log_mean))
    others_half = math.sqrt(max(others_half**2 - one_run**2, least**2))
    weight = others_half**2 / (others_half**2 + half**2)
    return weight * own_mean + (1 - weight) * mean, half * math.sqrt(weight)


def _trusted(
    options: list[Option],
    observations: Sequence[Observation],
    notes: list[str],
    *,
    quiet: bool,
) -> list[Option]:
    """Take confirmations back: of what the adaptive design ran only to explore, and of all where
    three confirmation runs were made and none matched its prediction.

    What was explored stands where one pair is enough (``quiet``) and the job as written, the only
    one that is explored twice, ran again.
    """
    explored = [o.configuration for o in observations if _explored(o)]
    if not quiet or len(set(explored)) == len(explored):
        alone = {*explored} - {o.configuration for o in observations if not _explored(o)}
        options = [replace(o, confirmed=False) if o.configuration in alone else o for o in options]
    tried = {o.configuration for o in observations if o.source == "confirm"}
    any_confirmed = any(o.confirmed for o in options if o.configuration in tried)
    if len(tried) < MOST_CONFIRMATIONS or any_confirmed:
        return options
    notes.append(
        f"none of the {len(tried)} confirmation runs matched its prediction: nothing is confirmed"
    )
    return [replace(o, confirmed=False) for o in options]


def _explored(run: Observation) -> bool:
    """Tell whether a design chose where to run by the runs before, and has pairs that confirm."""
    return run.source == "sweep" and run.extra.get("design") == ADAPTIVE


def _confirms(response: Response, prediction: Prediction, c: Configuration) -> bool:
    """Tell whether the others predict a configuration's runs, or its own runs agree."""
    own_mean = response.confirming(c)
    if c in response.unsteady or own_mean is None:
        return False
    mean, half = prediction.held_out[c]
    return abs(own_mean - mean) <= half or c in response.agreed


def _stats(response: Response, prediction: Prediction) -> dict[str, Any]:
    return {
        "n_train": prediction.trained,
        "r2": None if math.isnan(prediction.r2) else prediction.r2,
        "loo_rmse_pct": 100.0 * prediction.cv_rmse,
        **_scatter(response),
        "measurement": response.measurement(),
        **prediction.facts,
    }


def _scatter(response: Response) -> dict[str, Any]:
    return {
        "sigma_pct": 100.0 * response.sigma,
        "run_sigma_pct": 100.0 * response.typical_sigma,
        "repeats": response.repeats,
    }
