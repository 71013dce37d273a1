"""Panels that show statistics: distributions, correlations, clusters, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.plotting import PlotPoint


@dataclass(frozen=True, slots=True)
class ScatterPanel:
    """Points by group, with a straight line from end to end."""

    x_label: str
    y_label: str
    groups: Mapping[str, Sequence[PlotPoint]]
    line: tuple[PlotPoint, PlotPoint]
    line_label: str


@dataclass(frozen=True, slots=True)
class HistogramPanel:
    """A density (its area is 1) over k bins between k + 1 ``edges``, and curves over it."""

    x_label: str
    edges: Sequence[float]
    density: Sequence[float]
    curves: Mapping[str, Sequence[PlotPoint]]


@dataclass(frozen=True, slots=True)
class MatrixPanel:
    """Values from -1 to 1, by row and column; NaN where there is none."""

    label: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class TreePanel:
    """A dendrogram of n leaves: merge i joins two nodes at a height and becomes node n + i.

    Nodes 0 to n - 1 are the leaves, which stand in the order of ``order``; ``groups`` names each
    leaf's cluster.
    """

    label: str
    leaves: Sequence[str]
    merges: Sequence[tuple[int, int, float]]
    order: Sequence[int]
    groups: Sequence[str]


@dataclass(frozen=True, slots=True)
class IntervalPanel:
    """Values with intervals (value, low, high), a line each, by kind; None where there is none.

    ``bars``: values are sizes above 0, drawn as bars from there.
    """

    label: str
    rows: Sequence[str]
    kinds: Mapping[str, Sequence[tuple[float, float, float] | None]]
    bars: bool = False


StatisticsPanel = ScatterPanel | HistogramPanel | MatrixPanel | TreePanel | IntervalPanel
