"""Pictures made of characters, as wide as the terminal allows; panels one below the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.plotting import PlotPoint, Scene
from advisor.plotting.chart import ASCII, Marks, chart, short
from advisor.plotting.panels import Lines, Observed, Panel, Panels, Surface
from advisor.plotting.statistics import StatisticsPanel
from advisor.plotting.terminal_statistics import draw_statistics
from advisor.plotting.threads import GraphPanel, RadarPanel, text_of

_LETTERS = "abcdefghijklmnop"
_Chart = tuple[
    tuple[str, str], list[tuple[str, str, Sequence[PlotPoint]]], tuple[PlotPoint, PlotPoint]
]  # labels, groups, window
_SHADES, _ASCII_SHADES = " ░▒▓█", " .+x#"


def draw(scene: Scene, *, width: int = 80, height: int = 16, marks: Marks | None = None) -> str:
    """Return the picture as lines of at most ``width`` characters, legend included."""
    marks = marks or Marks()
    groups: list[tuple[str, str, Sequence[PlotPoint]]] = [
        (marks.other, scene.others, scene.points),
        (marks.zone, "trade-off zone", [scene.points[i] for i in scene.zone]),
        (marks.front, "front", [scene.points[i] for i in scene.front]),
    ]
    order = [2, 1, 0]
    if scene.baseline is not None:
        groups.append((marks.baseline, "job as written", [scene.points[scene.baseline]]))
        order.append(3)
    if scene.chosen is not None:
        groups.append((marks.chosen, "as advised", [scene.points[scene.chosen]]))
        order.append(len(groups) - 1)
    legend = [f"{groups[i][0]} {groups[i][1]}" for i in order]
    return chart(
        groups,
        scene.window(),
        (scene.x_label, scene.y_label),
        legend,
        width=width,
        height=height,
        marks=marks,
    )


def draw_panels(picture: Panels, *, width: int = 80, marks: Marks | None = None) -> str:
    """Return all panels, one below the other, ``width`` characters wide where that can be."""
    marks = marks or Marks()
    return "\n\n".join([picture.title, *(_draw(p, width, marks) for p in picture.panels)])


def _draw(panel: Panel, width: int, marks: Marks) -> str:
    if isinstance(panel, Surface):
        return _surface(panel, width, _ASCII_SHADES if marks is ASCII else _SHADES)
    if isinstance(panel, RadarPanel | GraphPanel):
        return text_of(panel, width)
    if isinstance(panel, StatisticsPanel):
        return draw_statistics(panel, width, marks)
    number = short
    if isinstance(panel, Lines):
        labels, groups, window = _lines(panel)
        if panel.logarithmic:
            number = _power
    else:
        labels, groups, window = _observed(panel, marks)
    legend = [f"{mark} {name}" for mark, name, _ in groups]
    return chart(groups, window, labels, legend, width=width, height=16, marks=marks, number=number)


def _power(value: float) -> str:
    return short(10**value)


def _lines(panel: Lines) -> _Chart:
    """Return labels, groups and window; of logarithms where the panel says so."""
    groups: list[tuple[str, str, Sequence[PlotPoint]]] = []
    labels = panel.x_label, panel.y_label
    for letter, line in zip(_LETTERS, panel.lines, strict=False):
        points = list(zip(line.x, line.y, strict=True))
        if panel.logarithmic:
            points = [(math.log10(x), math.log10(y)) for x, y in points]
        groups.append((letter, line.label, points))
    (x, (low, high)) = _window(groups)
    if panel.whole_bands:
        low, high = panel.band
        return labels, groups, (x, (low, max(high, low + 1e-9)))
    if not panel.logarithmic:
        return labels, groups, (x, (0.0, high))
    return (labels[0], f"{labels[1]}, logarithmic"), groups, (x, (low, max(high, low + 1e-9)))


def _observed(panel: Observed, marks: Marks) -> _Chart:
    """Return labels, groups and window in powers of ten, with the diagonal."""
    points = [
        (mark, name, [(math.log10(x), math.log10(y)) for x, y in group])
        for mark, (name, group) in zip((marks.zone, marks.front), panel.groups.items(), strict=True)
    ]
    values = [v for _, _, group in points for p in group for v in p]
    low, high = min(values), max(max(values), min(values) + 1e-9)
    diagonal = [(low + i * (high - low) / 60,) * 2 for i in range(61)]
    labels = f"log10 of observed {panel.label}", f"log10 of predicted {panel.label}"
    return labels, [(marks.other, "equal", diagonal), *points], ((low, high), (low, high))


def _window(groups: Sequence[tuple[str, str, Sequence[PlotPoint]]]) -> tuple[PlotPoint, PlotPoint]:
    points = [p for _, _, group in groups for p in group]
    x, y = [p[0] for p in points], [p[1] for p in points]
    return (min(x), max(max(x), min(x) + 1e-9)), (min(y), max(y))


def _surface(panel: Surface, width: int, shades: str) -> str:
    """Return a table of the response, shaded from least to most; * marks the front, B the baseline.

    Where there are too many columns some are left out, evenly; the baseline's stays.
    """
    rows = range(len(panel.y))
    values = [v for row in panel.z for v in row if v == v]
    low, high = min(values), max(values)
    cell = max(len(f"{v:.4g}") for v in values) + 3
    most = max(2, (width - 8) // cell)
    columns = list(range(len(panel.x)))
    if len(columns) > most:
        last = len(columns) - 1
        columns = sorted({round(i * last / (most - 1)) for i in range(most)})

    def text(i: int, j: int) -> str:
        value = panel.z[i][j]
        if value != value:
            return " " * cell
        mark = "B" if (i, j) == panel.baseline else "*" if (i, j) in panel.marked else " "
        if low > 0:
            share = math.log(value / low) / math.log(high / low) if high > low else 0.0
        else:
            share = (value - low) / (high - low) if high > low else 0.0
        shade = shades[min(len(shades) - 1, int(share * len(shades)))]
        return f"{f'{value:.4g}{mark}':>{cell - 1}}{shade}"

    head = "".join(f"{panel.x[j]:>{cell - 2}g}  " for j in columns)
    lines = [
        f"{panel.z_label}",
        f"down: {panel.y_label}, across: {panel.x_label}",
        f"{'':>6}{head}",
    ]
    for i in reversed(rows):
        lines.append(f"{panel.y[i]:>5g} " + "".join(text(i, j) for j in columns))
    left_out = len(panel.x) - len(columns)
    more = f", {left_out} columns not shown" if left_out else ""
    baseline = "" if panel.baseline is None and panel.marks != "front" else ", B as written"
    lines.append(f"* {panel.marks}{baseline}, darker is more{more}")
    return "\n".join(line.rstrip() for line in lines)
