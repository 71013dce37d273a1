"""Pictures of a trade-off: in the terminal with plain characters, in a file with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PlotPoint = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scene:
    """Points of two responses and their place: what both kinds of picture show.

    ``front``, ``zone`` and ``baseline`` are indices into ``points``; ``front`` in the order of
    the line, ``polygon`` the zone's outline (empty: not drawn). ``spreads`` are (low, high) of both
    axes, per point (empty: not known). ``chosen`` is the point that the baseline's arrow leads to;
    ``labels`` is what stands beside points, by their index. ``others`` says what points are
    that are nothing else.
    """

    title: str
    x_label: str
    y_label: str
    points: Sequence[PlotPoint]
    front: Sequence[int] = ()
    zone: Sequence[int] = ()
    baseline: int | None = None
    polygon: Sequence[PlotPoint] = ()
    spreads: Sequence[tuple[PlotPoint, PlotPoint]] = ()
    chosen: int | None = None
    labels: Mapping[int, str] = field(default_factory=dict)
    others: str = "other"

    def window(self) -> tuple[PlotPoint, PlotPoint]:
        """Return (low, high) of each axis around what matters: front, zone and baseline.

        Points far away from these would press the zone into a corner.
        """
        alone = (i for i in (self.baseline, self.chosen) if i is not None)
        chosen = [self.points[i] for i in sorted({*self.front, *self.zone, *alone})]
        chosen = chosen or list(self.points)
        edges = []
        for axis in (0, 1):
            everything = [p[axis] for p in self.points]
            focus = [p[axis] for p in chosen]
            span = max(focus) - min(focus)
            margin = 0.8 * span or 0.05 * max(map(abs, focus)) or 1.0
            low = max(min(everything), min(focus) - margin)
            high = min(max(everything), max(focus) + margin)
            edges.append((low, high) if high > low else (low - margin, high + margin))
        return edges[0], edges[1]
