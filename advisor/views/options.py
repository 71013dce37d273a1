"""An application's options beside the job as written: changes, words, and the picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.core.configuration import Configuration
from advisor.core.disturbed import disturbed
from advisor.core.node_type_estimate import similarity_text
from advisor.core.option import Option
from advisor.core.parameters import format_number
from advisor.core.pareto import ErrorLimits, trade_off
from advisor.core.rate import Work
from advisor.core.reasons import like_text
from advisor.core.units import format_change, format_duration
from advisor.core.words import describe, interval_words
from advisor.errors import RefusedError
from advisor.plotting import PlotPoint, Scene
from advisor.plotting.named import NO_NAMES, RECOMMENDED, NamedOptions

if TYPE_CHECKING:
    from advisor.store.reader import Reader
    from advisor.store.records import StoredModel


@dataclass(frozen=True, slots=True)
class View:
    """A model's options beside their baseline."""

    model: StoredModel
    options: tuple[Option, ...]
    baseline: Option
    shared_error: float = 0.0
    """Of a size that was not swept: by what share all its times may be off together (90 %)."""
    left_out: tuple[str, ...] = ()
    """Of a size that was not swept: which options lack memory there."""

    @property
    def energy_known(self) -> bool:
        """Whether there is a trade-off at all."""
        return not any(math.isnan(o.energy_j) for o in self.options)

    @property
    def work(self) -> Work | None:
        """What a run does, where the model knows the program's own rate."""
        return Work.of_stats(self.model.stats)

    @property
    def title(self) -> str:
        """Name the model in one line."""
        m = self.model
        whose = "everybody's jobs" if m.scope == "all" else f"jobs of {m.owner}"
        return f"{m.application} (workload {m.workload}) on {m.node_type}, for {whose}"

    @property
    def source(self) -> str:
        """Say from what a model that nobody fitted is estimated; "" for one that was fitted."""
        if self.model.by_class:
            return _by_class(self.model)
        if self.model.of_sizes:
            return _of_sizes(self)
        estimate = self.model.transfer
        if not estimate:
            return ""
        return (
            f"estimated from microbenchmarks, {similarity_text(estimate)}: nothing ran on "
            f"{self.model.node_type}; on one full node {estimate['time_ratio']:.2f} x the time of "
            f"{estimate['base']}"
        )

    def intervals(self, option: Option) -> tuple[str, str]:
        """Return the 90 % intervals of the changes of time and energy where they are wide.

        Those of a class model's estimates; "" for all others.
        """
        if not (self.model.by_class and option.estimated):
            return "", ""
        base, o = self.baseline, option
        ends = (
            (o.time_lo_s / base.time_s - 1, o.time_hi_s / base.time_s - 1),
            (o.energy_lo_j / base.energy_j - 1, o.energy_hi_j / base.energy_j - 1),
        )
        time, energy = (f" ({interval_words(*pair, format_change)})" for pair in ends)
        return time, energy

    def beside(self, requested_baseline: Configuration | None) -> View:
        """Return the view with another baseline, if it is one of its options."""
        named = [
            o
            for o in self.options
            if requested_baseline is not None and _is_at(o, requested_baseline)
        ]
        return replace(self, baseline=max(named or [self.baseline], key=_size))

    def change(self, option: Option) -> tuple[float, float]:
        """Return changes of energy and time against the baseline, as fractions."""
        return (
            option.energy_j / self.baseline.energy_j - 1.0,
            option.time_s / self.baseline.time_s - 1.0,
        )


def _by_class(model: StoredModel) -> str:
    """Say of a class model's application what it is like, by what, and what was tried."""
    cold = model.cold_start
    similar_applications, similarity_words = like_text(cold)
    name = cold.get("class") or "unknown"
    line = (
        f"never swept there; class {name}: estimated from {similar_applications}, "
        f"by {similarity_words}"
    )
    for trial in model.trials:
        where = describe(Configuration.from_dict(trial["point"]))
        changes = [
            f"{word} {format_change(trial[key] / 100)}"
            for word, key in (("time", "time_pct"), ("energy", "energy_pct"))
            if key in trial
        ]
        line += "\n" + ", ".join([f"trial {trial['state']}: {where}", *changes])
    return line


def _of_sizes(view: View) -> str:
    """Say of a size that was not swept how far it is from those that were."""
    about, base = view.model.about_sizes, view.baseline
    measured = about.get("measured") or {}
    measured_ranges = ", ".join(
        f"{n} {format_number(v[0])} to {format_number(v[-1])}" for n, v in measured.items()
    )
    ends = interval_words(base.time_lo_s, base.time_hi_s, format_duration)
    model = view.model
    is_extrapolated = model.size_table().beyond(dict(model.size))
    how = "extrapolated from" if is_extrapolated else "predicted within"
    return (
        f"{how} {measured_ranges} by {about.get('model')}: as written "
        f"{format_duration(base.time_s)}, {ends}; all options may be off together by "
        f"{100 * view.shared_error:.0f} % (90 %)\nestimates were confirmed at "
        f"{about.get('largest')}" + "".join(f"\n{why}: left out" for why in view.left_out)
    )


def view_of(
    model: StoredModel, requested_baseline: Configuration | None = None, *, further: bool = True
) -> View:
    """Return a model's view; its baseline is ``requested_baseline``, else the largest option.

    ``further``: with the options that jobs cannot get, since no hook writes an axis of theirs.
    Raises RefusedError for a model without options.
    """
    options = model.options() if further else model.written_options()
    if not options:
        raise RefusedError(f"model {model.id} of {model.application} has no options")
    own_point = model.cold_start.get("own")
    if own_point:
        requested_baseline = Configuration.from_dict(own_point)
    named = [o for o in options if requested_baseline is not None and _is_at(o, requested_baseline)]
    return View(model, options, max(named or options, key=_size))


def _is_at(option: Option, configuration: Configuration) -> bool:
    """Tell whether an option is a configuration, which need not name the further axes."""
    c = option.configuration
    return c == configuration or (not configuration.extra and replace(c, extra=()) == configuration)


def with_options(view: View, options: tuple[Option, ...]) -> View:
    """Return a view with some of its options; the largest stands for a baseline that is gone."""
    base = view.baseline if view.baseline in options else max(options, key=_size)
    return replace(view, options=options, baseline=base)


def views(
    reader: Reader,
    application: str,
    *,
    user: str,
    workload: str | None = None,
    node_type: str | None = None,
) -> list[View]:
    """Return a view of every model that may advise the user's jobs.

    The baseline is the job as a sweep measured it, where one did; else most nodes, most cores,
    highest frequency.
    """
    models = reader.find_models(application, workload, node_type)
    return [
        view_of(m, reader.swept_baseline(application, m.workload, m.node_type))
        for m in models
        if m.scope != "own" or m.owner == user
    ]


def size(point: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return what a point (nodes, ranks, threads, frequency) is ordered by: the largest last."""
    nodes, ranks, threads, freq_khz = point
    return nodes, threads, freq_khz, ranks


def _size(option: Option) -> tuple[int, ...]:
    """Return what options are ordered by: at the largest, a job gets the most of further axes."""
    c = option.configuration
    written_size = size((c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz))
    return *written_size, *(value for _, value in c.extra)


def known_by(option: Option) -> str:
    """Say whether an option was run, is predicted, or estimated from another node type."""
    if option.estimated:
        return "estimate"
    if not option.measured:
        return "extrapolation" if option.extrapolated else "prediction"
    return "run, confirmed" if option.confirmed else "run"


def least_energy(view: View) -> Option | None:
    """Return the option of the zone that takes least energy; None where none saves 0.5 %."""
    if not view.energy_known:
        return None
    best = min((o for o in view.options if o.in_zone), key=lambda o: o.energy_j)
    return None if best is view.baseline or view.change(best)[0] > -0.005 else best


def confirmed_in_words(view: View) -> str:
    """Say how far confirmed options may still be off; "" where none is confirmed."""
    halves = [
        (o.time_hi_s / o.time_s - 1, o.energy_hi_j / o.energy_j - 1)
        for o in view.options
        if o.confirmed
    ]
    if not halves:
        return ""
    time, energy = (f"{100 * max(half):.1f} %" for half in zip(*halves, strict=True))
    return f"confirmed options may still be off: time by {time}, energy by {energy} (90 %)"


def best_in_words(view: View) -> str:
    """Say in one sentence what is to be had."""
    if not view.energy_known:
        return "without energy there is no trade-off"
    best = least_energy(view)
    if best is None:
        return "no option saves energy against the job as written"
    energy, time = view.change(best)
    slower = "slower" if time >= 0 else "faster"
    return (
        f"the option with the least energy takes {-100 * energy:.1f} % less energy and is "
        f"{100 * abs(time):.1f} % {slower} than the job as written"
    )


def scene(view: View, work: Work | None = None, named: NamedOptions = NO_NAMES) -> Scene:
    """Return the picture of energy and time against the baseline, in percent.

    With ``work`` that of rate per joule and rate. Raises RefusedError when no energy is known.
    """
    if not view.energy_known:
        raise RefusedError(f"{view.title}: energy is not known, so there is nothing to draw")
    # A disturbed run is no trade-off: drawn, it would press all others together.
    spikes = disturbed(view.options)
    options = [o for i, o in enumerate(view.options) if i not in spikes or o is view.baseline]
    better = -1 if work else 1  # a rate is the reciprocal

    def percent(ratio: float) -> float:
        return 100.0 * (ratio**better - 1)

    points = [
        (percent(1 + time), percent(1 + energy)) for energy, time in map(view.change, options)
    ]
    limits = ErrorLimits(float(view.model.stats.get("error", 0.05)))
    shape = trade_off(
        [o.time_s for o in options],
        [o.energy_j for o in options],
        max_x=False,
        max_y=False,
        x_limits=limits,
        y_limits=limits,
    )
    base = view.baseline

    def against(time_s: float, energy_j: float) -> PlotPoint:
        return percent(time_s / base.time_s), percent(energy_j / base.energy_j)

    numbers = {o.configuration: i for i, o in enumerate(options)}
    recommended = named.options.get(RECOMMENDED)
    slowest_s = named.slowest_s(base)
    return Scene(
        view.title,
        f"{'rate' if work else 'time'} against the job as written (%)",
        f"{'rate per joule' if work else 'energy'} against the job as written (%)",
        points,
        shape.front,
        shape.zone,
        next(i for i, o in enumerate(options) if o is base),
        [against(x, y) for x, y in shape.polygon],
        [
            (
                _ordered(percent(o.time_lo_s / base.time_s), percent(o.time_hi_s / base.time_s)),
                _ordered(
                    percent(o.energy_lo_j / base.energy_j), percent(o.energy_hi_j / base.energy_j)
                ),
            )
            for o in options
        ],
        chosen=None if recommended is None else numbers.get(recommended.configuration),
        labels=named.labels(options),
        bound=None if slowest_s is None else percent(slowest_s / base.time_s),
        bound_label=named.bound_words,
    )


def _ordered(one: float, other: float) -> PlotPoint:
    return min(one, other), max(one, other)
