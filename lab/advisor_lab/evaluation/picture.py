"""What an evaluation looks like: the model that was judged, drawn against its grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.core.configuration import SearchSpace
from advisor.core.observation import Observation
from advisor.core.pareto import ErrorLimits, TradeOff, trade_off
from advisor.models.evaluation import Evaluation
from advisor.models.fit import fit_options
from advisor.models.runs import gather
from advisor.plotting import PlotPoint, Scene, panels
from advisor.plotting.named import NamedOptions
from advisor.plotting.statistics import IntervalPanel
from advisor_lab.evaluation.compare_models import Mean


def picture_of(
    view: str,
    title: str,
    grid: Sequence[Observation],
    evaluation: Evaluation,
    error: float,
    max_slowdown: float,
    model_options: Mapping[str, object] | None = None,
    over: panels.Over = "cores",
) -> Scene | panels.Panels:
    """Fit the evaluation's model again to the runs it was trained on and draw one view of it.

    ``view`` is pareto (forecast options, and the observed front, in percent of the forecast
    baseline), observed, lines (``over`` cores or frequency) or surface; ``error`` is the trade-off
    zone's.
    """
    trained = set(evaluation.trained)
    runs = gather(grid)
    cells = sorted(runs.time.log_mean)
    space = SearchSpace.of(cells[0].node_type, cells)
    fitted = fit_options(
        [o for o in grid if o.configuration in trained],
        model=evaluation.model,
        space=space,
        error=error,
        model_options=model_options,
    )
    options = [replace(o, measured=o.configuration in trained) for o in fitted.predicted]
    base = next(o for o in options if o.configuration == evaluation.decision.baseline)
    if view == "observed":
        responses = {"time": runs.time, "energy": runs.energy}
        measured: dict[str, dict[object, float]] = {
            name: {c: math.exp(v) for c, v in response.log_mean.items()}
            for name, response in responses.items()
            if response is not None
        }
        return panels.observed(title, options, measured, frozenset(trained))
    chosen = evaluation.decision.chosen
    recommended = next(o for o in options if o.configuration == chosen)
    named = NamedOptions.among(options, base, recommended, max_slowdown)
    if view == "lines":
        return panels.lines(title, options, base, named=named, over=over)
    if view == "surface":
        return panels.surface(title, options, base, named=named)
    limits = ErrorLimits(error)

    def against(time_s: float, energy_j: float) -> PlotPoint:
        return 100 * (time_s / base.time_s - 1), 100 * (energy_j / base.energy_j - 1)

    def zone_of(points: Sequence[PlotPoint]) -> TradeOff:
        times, energies = zip(*points, strict=True)
        return trade_off(
            times, energies, max_x=False, max_y=False, x_limits=limits, y_limits=limits
        )

    forecast = [(o.time_s, o.energy_j) for o in options]
    assert runs.energy is not None  # an evaluation needs it
    observed = [
        (math.exp(runs.time.log_mean[c]), math.exp(energy))
        for c, energy in runs.energy.log_mean.items()
    ]
    zone = zone_of(forecast)
    return Scene(
        title,
        "time against the job as written (%)",
        "energy against the job as written (%)",
        [against(*p) for p in forecast],
        zone.front,
        zone.zone,
        options.index(base),
        [against(*p) for p in zone.polygon],
        [
            (
                (against(o.time_lo_s, 1.0)[0], against(o.time_hi_s, 1.0)[0]),
                (against(1.0, o.energy_lo_j)[1], against(1.0, o.energy_hi_j)[1]),
            )
            for o in options
        ],
        chosen=options.index(recommended),
        labels=named.labels(options),
        others="other forecast",
        front_label="front as forecast",
        further_fronts={
            "front as observed": [against(*observed[i]) for i in zone_of(observed).front]
        },
        bound=100 * max_slowdown,
        bound_label=named.bound_words,
    )


def errors_picture(title: str, means: Sequence[Mean]) -> panels.Panels:
    """Draw the errors of several models, or variants of one, side by side: all cells, the front's.

    Means over grids and seeds, and their standard deviations.
    """

    def bars(key: str) -> list[tuple[float, float, float]]:
        return [
            (m.mean[key], max(m.mean[key] - m.spread[key], 0.0), m.mean[key] + m.spread[key])
            for m in means
        ]

    return panels.Panels(
        title,
        tuple(
            IntervalPanel(
                f"error of {name}, %",
                [m.model for m in means],
                {
                    "of all cells": bars(f"{name}_total_rmse_pct"),
                    "of the front": bars(f"{name}_pareto_rmse_pct"),
                },
                bars=True,
            )
            for name in ("time", "energy")
        ),
    )
