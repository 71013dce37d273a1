"""The signs of a picture, and what a picture shows: a mark for every point.

Every sign differs by its character; colour only helps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.plotting import PlotPoint

MEASURED, PREDICTED, MEASURED_ESTIMATE, PREDICTED_ESTIMATE = "●", "○", "◍", "◌"
ESTIMATED, EXTRAPOLATED = "△", "▽"
BASELINE, POLICY, YOURS, ZONE = "◆", "★", "⚑", "░"
BOUND = "┊"
FARTHER = {(1, 0): "→", (-1, 0): "←", (0, -1): "↑", (0, 1): "↓"}
"""At the edge, for points that lie beyond it: by column and row of the way there."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How an option is drawn: its character, and the role that gives it a colour."""

    char: str
    role: str


@dataclass(frozen=True, slots=True)
class ChartMarks:
    """What a chart shows: a mark for every point, the ones in ``special`` over all others.

    ``window`` is shown first, ``limits`` are the farthest that zooming out goes; ``usual`` is a
    point whose units the axes take (the window's far corner by default).
    """

    points: Sequence[PlotPoint]
    marks: Sequence[Mark]
    special: Mapping[int, Mark]
    front: Sequence[int]
    polygon: Sequence[PlotPoint]
    window: tuple[PlotPoint, PlotPoint]
    limits: tuple[PlotPoint, PlotPoint]
    x_axis: str
    y_axis: str
    steps: Sequence[int] = field(default=())
    """The points the cursor goes to first, for a click."""
    usual: PlotPoint | None = None
    whole: PlotPoint | None = None
    """What the second scales show as 0 %; None: there are none."""
    bound: float | None = None
    """Where the policy's slowdown bound lies across."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """What is written beside some points."""
    spreads: Sequence[tuple[PlotPoint, PlotPoint] | None] = ()
    """Per point (low, high) across and upwards, where known: the cross at the cursor."""
    hidden: Collection[int] = ()
    """Points that are not drawn."""
    name: Callable[[int], str] | None = None
    """What is written beside the point under the cursor, where nothing else is."""

    @property
    def farther(self) -> bool:
        """Whether points lie beyond the window that is shown first."""
        (left, right), (low, high) = self.window
        return any(
            not (left <= x <= right and low <= y <= high)
            for number, (x, y) in enumerate(self.points)
            if number not in self.hidden
        )


def weight(mark: Mark) -> int:
    """Return what covers what where several options share a cell."""
    return {
        "outside": 1,
        "bound": 0,
        "front": 1,
        "estimated": 2,
        "predicted": 3,
        "measured": 4,
    }.get(mark.role, 5)
