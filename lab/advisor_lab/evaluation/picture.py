"""What an evaluation looks like: the model that was judged, drawn against its grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.core.configuration import SearchSpace
from advisor.core.observation import Observation
from advisor.core.pareto import ErrorLimits, trade_off
from advisor.models.evaluation import Evaluation
from advisor.models.fit import fit_options
from advisor.models.runs import gather
from advisor.plotting import Scene, panels


def picture_of(
    view: str,
    title: str,
    grid: Sequence[Observation],
    evaluation: Evaluation,
    error: float,
    model_options: Mapping[str, object] | None = None,
) -> Scene | panels.Panels:
    """Fit the evaluation's model again to the runs it was trained on and draw one view of it.

    ``view`` is pareto (forecast options in percent of the forecast baseline), observed, lines or
    surface; ``error`` is the trade-off zone's.
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
    if view in ("lines", "surface"):
        return (panels.lines if view == "lines" else panels.surface)(title, options, base)
    limits = ErrorLimits(error)
    energies, times = [o.energy_j for o in options], [o.time_s for o in options]
    zone = trade_off(energies, times, max_x=False, max_y=False, x_limits=limits, y_limits=limits)
    x, y = base.energy_j, base.time_s
    return Scene(
        title,
        "forecast energy against the baseline (%)",
        "forecast time against the baseline (%)",
        [(100 * (e / x - 1), 100 * (t / y - 1)) for e, t in zip(energies, times, strict=True)],
        zone.front,
        zone.zone,
        next(i for i, o in enumerate(options) if o is base),
        [(100 * (e / x - 1), 100 * (t / y - 1)) for e, t in zone.polygon],
    )
