"""Statistics as pictures made of characters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from advisor.core.columns import columns_of, padded
from advisor.plotting import PlotPoint
from advisor.plotting.chart import ASCII, Marks, TextCanvas, chart, short
from advisor.plotting.statistics import (
    HistogramPanel,
    IntervalPanel,
    MatrixPanel,
    ScatterPanel,
    StatisticsPanel,
    TreePanel,
)

_HEIGHT = 16
"""Lines of a picture."""
_BAR, _ASCII_BAR = "█", "#"
_LINE_POINTS = 60
"""Points at which a curve is drawn."""
_TREE_COLUMNS = 24
"""Columns that a dendrogram's branches take at least, and those of intervals."""


def draw_statistics(panel: StatisticsPanel, width: int, marks: Marks) -> str:
    """Return one panel as lines of at most ``width`` characters."""
    if isinstance(panel, ScatterPanel):
        return _scatter(panel, width, marks)
    if isinstance(panel, HistogramPanel):
        return _histogram(panel, width, marks)
    if isinstance(panel, MatrixPanel):
        return _matrix(panel, width)
    if isinstance(panel, TreePanel):
        return _tree(panel, width, marks)
    return _intervals(panel, width, marks)


def _scatter(panel: ScatterPanel, width: int, marks: Marks) -> str:
    (ax, ay), (bx, by) = panel.line
    shares = [i / _LINE_POINTS for i in range(_LINE_POINTS + 1)]
    line: list[PlotPoint] = [(ax + s * (bx - ax), ay + s * (by - ay)) for s in shares]
    groups = [(marks.other, panel.line_label, line)]
    for mark, (name, points) in zip((marks.front, marks.zone), panel.groups.items(), strict=False):
        groups.append((mark, name, list(points)))
    everything = [p for _, _, points in groups for p in points]
    window = tuple(
        (min(p[axis] for p in everything), max(p[axis] for p in everything)) for axis in (0, 1)
    )
    legend = [f"{mark} {name}" for mark, name, _ in groups]
    return chart(
        groups,
        (window[0], window[1]),
        (panel.x_label, panel.y_label),
        legend,
        TextCanvas(width, _HEIGHT, marks),
    )


def _histogram(panel: HistogramPanel, width: int, marks: Marks) -> str:
    """Return a line per bin: its range, its density as a bar, and the first curve's place."""
    ends = [f"{low:.2f} to {high:.2f}" for low, high in _pairs(panel.edges)]
    gutter = max(map(len, ends))
    room = max(10, width - gutter - 3)
    most = max([*panel.density, *(y for curve in panel.curves.values() for _, y in curve)])
    bar = _ASCII_BAR if marks is ASCII else _BAR
    lines = [f"{panel.x_label}: density, {bar} runs"]
    signs = dict(zip(panel.curves, (marks.front, marks.zone), strict=False))
    for label, height, (low, high) in zip(ends, panel.density, _pairs(panel.edges), strict=True):
        cells = list((bar * round(room * height / most)).ljust(room))
        for name, curve in panel.curves.items():
            middle = (low + high) / 2
            y = min(curve, key=lambda p: abs(p[0] - middle))[1]
            cells[min(room - 1, round((room - 1) * y / most))] = signs[name]
        lines.append(f"{label:>{gutter}} {marks.side}{''.join(cells).rstrip()}")
    lines.append("   ".join(f"{sign} {name}" for name, sign in signs.items()))
    return "\n".join(line[:width] for line in lines)


def _pairs(edges: Sequence[float]) -> list[tuple[float, float]]:
    return list(itertools.pairwise(edges))


def _matrix(panel: MatrixPanel, width: int) -> str:
    """Return a table, as many columns as there is room for at a time."""
    gutter = max(map(columns_of, panel.rows))
    wide = max(6, *(columns_of(c) for c in panel.columns)) + 2
    at_once = max(1, (width - gutter) // wide)
    lines = [panel.label]
    for start in range(0, len(panel.columns), at_once):
        shown = range(start, min(start + at_once, len(panel.columns)))
        lines.append(
            " " * gutter + "".join(padded(panel.columns[j], wide, right=True) for j in shown)
        )
        for name, row in zip(panel.rows, panel.values, strict=True):
            cells = ("-" if row[j] != row[j] else f"{row[j]:+.2f}" for j in shown)
            lines.append(padded(name, gutter) + "".join(f"{cell:>{wide}}" for cell in cells))
    return "\n".join(line.rstrip() for line in lines)


def _tree(panel: TreePanel, width: int, marks: Marks) -> str:
    """Return the dendrogram on its side: a leaf a line, branches to the right."""
    upper_end, lower_end, between = "+++" if marks is ASCII else "┬┘├"
    names = [f"{panel.leaves[i]}, {panel.groups[i]}" for i in panel.order]
    gutter = min(max(map(columns_of, names)), max(10, width - _TREE_COLUMNS - 2))
    columns = width - gutter - 2
    most = max(height for _, _, height in panel.merges) or 1.0
    rows = [[" "] * columns for _ in names]
    node_places: dict[int, tuple[int, int]] = {
        leaf: (row, 0) for row, leaf in enumerate(panel.order)
    }
    for i, (a, b, height) in enumerate(panel.merges):
        upper, lower = sorted((node_places[a], node_places[b]))
        column = max(upper[1], lower[1], round((columns - 2) * height / most))
        for (row, start), sign in ((upper, upper_end), (lower, lower_end)):
            begin = start + 1 if start else 0
            rows[row][begin:column] = marks.line * (column - begin)
            rows[row][column] = sign
        for row in range(upper[0] + 1, lower[0]):
            rows[row][column] = marks.side
        middle = (upper[0] + lower[0]) // 2
        if middle != upper[0]:
            rows[middle][column] = between
            rows[upper[0]][column] = "+" if marks is ASCII else "┐"
        node_places[len(panel.leaves) + i] = (middle, column)
    lines = [panel.label, " " * (gutter + 2) + f"0{short(most):>{columns - 2}}"]
    for name, cells in zip(names, rows, strict=True):
        lines.append(f"{padded(name[:gutter], gutter)} {''.join(cells)}".rstrip())
    return "\n".join(line[:width] for line in lines)


def _intervals(panel: IntervalPanel, width: int, marks: Marks) -> str:
    """Return a line for each row and kind, all on one scale."""
    intervals = [v for values in panel.kinds.values() for v in values if v is not None]
    low, high = min(v[1] for v in intervals), max(v[2] for v in intervals)
    low = 0.0 if panel.bars else low
    signs = dict(zip(panel.kinds, (marks.front, marks.zone, marks.baseline), strict=False))
    gutter = min(max(map(columns_of, panel.rows)), max(10, width - _TREE_COLUMNS - 2))
    columns = width - gutter - 2
    span = high - low or 1.0

    def column(value: float) -> int:
        return round((columns - 1) * (value - low) / span)

    lines = [
        panel.label,
        " " * (gutter + 1) + short(low) + f"{short(high):>{columns - len(short(low))}}",
    ]
    for i, name in enumerate(panel.rows):
        label = name[:gutter]
        for kind, values in panel.kinds.items():
            value = values[i]
            if value is None:
                continue
            cells = [" "] * columns
            start, end = column(value[1]), column(value[2])
            cells[start : end + 1] = marks.line * (end + 1 - start)
            cells[start] = cells[end] = marks.side
            cells[column(value[0])] = signs[kind]
            lines.append(f"{padded(label, gutter)} {''.join(cells)}".rstrip())
            label = ""
    lines.append("   ".join(f"{sign} {kind}" for kind, sign in signs.items()))
    return "\n".join(line[:width] for line in lines)
