"""Pictures of a trade-off: in the terminal with plain characters, in a file with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles

PlotPoint = tuple[float, float]

_FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which a value is an outlier (Tukey 1977)."""


def robust_ends(values: Iterable[float]) -> tuple[float, float]:
    """Return (low, high) of an axis or a scale of colours, which no disturbed run may stretch.

    Outliers are left out, of values above 0 by their logarithms; (0, 1) for no values.
    """
    ordered = sorted(v for v in values if math.isfinite(v))
    if len(ordered) < 4:  # which have no quartiles
        return (ordered[0], ordered[-1]) if ordered else (0.0, 1.0)
    scaled = [math.log(v) for v in ordered] if ordered[0] > 0 else ordered
    first, _, third = quantiles(scaled, n=4, method="inclusive")
    reach = _FENCE * (third - first)
    if not reach:
        return ordered[0], ordered[-1]
    inside = [
        v for v, s in zip(ordered, scaled, strict=True) if first - reach <= s <= third + reach
    ]
    return inside[0], inside[-1]


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
    front_label: str = "front"
    further_fronts: Mapping[str, Sequence[PlotPoint]] = field(default_factory=dict)
    bound: float | None = None
    bound_label: str = ""

    def name(self, index: int, default: str) -> str:
        """Return what a point is called: its label up to the colon."""
        return self.labels.get(index, default).partition(":")[0]

    def window(self) -> tuple[PlotPoint, PlotPoint]:
        """Return (low, high) of each axis around what matters: front, zone and baseline.

        Points far away from these would press the zone into a corner.
        """
        alone = (i for i in (self.baseline, self.chosen) if i is not None)
        chosen = [self.points[i] for i in sorted({*self.front, *self.zone, *alone})]
        chosen += [p for line in self.further_fronts.values() for p in line]
        chosen = chosen or list(self.points)
        edges = []
        for axis in (0, 1):
            focus = [p[axis] for p in chosen]
            focus += [self.bound] if axis == 0 and self.bound is not None else []
            everything = [*(p[axis] for p in self.points), *focus]
            span = max(focus) - min(focus)
            margin = 0.8 * span or 0.05 * max(map(abs, focus)) or 1.0
            low = max(min(everything), min(focus) - margin)
            high = min(max(everything), max(focus) + margin)
            edges.append((low, high) if high > low else (low - margin, high + margin))
        return edges[0], edges[1]
