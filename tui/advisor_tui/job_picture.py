"""A job as a picture: as it was written, what was promised and weighed, and what came out."""

from __future__ import annotations

from advisor.core.decision import Decision
from advisor.plotting import PlotPoint
from advisor.store.records import Outcome
from advisor_tui import signs
from advisor_tui.points import padded
from advisor_tui.signs import ChartMarks, Mark

_MARGIN = 0.25
"""Share of what is shown that is left free around it, for the words beside its points."""


def job_picture(decision: Decision, outcome: Outcome | None) -> tuple[ChartMarks, int] | None:
    """Return the picture, and the number of the point whose interval is shown.

    None where less than two of the job's points are known in time (s) and energy (J).
    """
    chosen = decision.chosen
    base = _point(decision.baseline_time_s, decision.baseline_energy_j)
    promised = _point(chosen.time_s, chosen.energy_j) if chosen else None
    measured = _point(outcome.time_s, outcome.energy_j) if outcome else None
    named = [
        (point, mark, label)
        for point, mark, label in (
            (base, Mark(signs.BASELINE, "baseline"), "as written"),
            (promised, Mark(signs.POLICY, "policy"), "promised"),
            (measured, Mark(signs.MEASURED, "yours"), "measured"),
        )
        if point is not None
    ]
    if len(named) < 2:
        return None
    points = [point for point, _, _ in named]
    spread = None
    if chosen and promised and base:
        (left, right), (low, high) = (
            (value * (1 + effect.lo), value * (1 + effect.hi))
            for value, effect in zip(base, (chosen.time, chosen.energy), strict=True)
        )
        spread = (left, right), (low, high)
    shown = points.index(promised) if promised else len(points) - 1
    ends = [(spread[0][i], spread[1][i]) for i in (0, 1)] if spread else []
    edges = [
        padded(min(values), max(values), _MARGIN) for values in zip(*points, *ends, strict=True)
    ]
    window = edges[0], edges[1]
    weighed = [_point(a.time_s, a.energy_j) for a in decision.alternatives if a != chosen]
    points += [point for point in weighed if point]
    marks = [mark for _, mark, _ in named]
    marks += [Mark(signs.PREDICTED, "predicted")] * (len(points) - len(named))
    picture = ChartMarks(
        points,
        marks,
        dict(enumerate(marks[: len(named)])),
        front=(),
        polygon=(),
        window=window,
        limits=window,
        x_axis="time",
        y_axis="energy",
        usual=base,
        whole=base,
        labels={number: label for number, (_, _, label) in enumerate(named)},
        spreads=[spread if number == shown else None for number in range(len(points))],
    )
    return picture, shown


def _point(time_s: float | None, energy_j: float | None) -> PlotPoint | None:
    """Return a point of the picture; None where one of its values is not known (or NaN)."""
    if time_s and energy_j and time_s > 0 and energy_j > 0:
        return time_s, energy_j
    return None
