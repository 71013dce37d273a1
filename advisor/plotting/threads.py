"""Panels of an application's threads: radar plots of classes, and who receives from whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.core.columns import columns_of, padded
from advisor.plotting import PlotPoint


@dataclass(frozen=True, slots=True)
class RadarPanel:
    """Metrics around a circle: ``threads`` thin, their mean thick; values from 0 to 1."""

    label: str
    axes: Sequence[str]
    threads: Sequence[Sequence[float]]
    mean: Sequence[float]


@dataclass(frozen=True, slots=True)
class GraphPanel:
    """Processes at places, coloured by class, and arrows from sources to receivers."""

    label: str
    places: Sequence[PlotPoint]
    classes: Sequence[str]
    edges: Sequence[tuple[int, int]]


ThreadPanel = RadarPanel | GraphPanel


def text_of(panel: ThreadPanel, width: int) -> str:
    """Return a panel as characters: the means as bars, or the classes of processes in rows."""
    if isinstance(panel, RadarPanel):
        wide = max(map(columns_of, panel.axes), default=0)
        room = max(10, width - wide - 8)
        rows = zip(panel.axes, panel.mean, strict=True)
        bars = [f"{padded(a, wide)} {v:5.2f} {'#' * round(v * room)}" for a, v in rows]
        return "\n".join([panel.label, *bars])
    lines: dict[float, Mapping[float, str]] = {}
    for (x, y), name in zip(panel.places, panel.classes, strict=True):
        lines[y] = {**lines.get(y, {}), x: name}
    cell = max(map(columns_of, panel.classes), default=1) + 1
    most = max(1, width // cell)
    drawn = [
        "".join(padded(name, cell) for _, name in sorted(row.items())[:most]).rstrip()
        for _, row in sorted(lines.items(), reverse=True)
    ]
    return "\n".join([f"{panel.label}: the class of each process", *drawn])
