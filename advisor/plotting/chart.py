"""A frame of characters with points in it, and the characters that pictures are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from advisor.plotting import PlotPoint
from advisor.plotting.raster import Frame


@dataclass(frozen=True, slots=True)
class Marks:
    """One character per kind of point, from what is drawn first to what covers the rest."""

    other: str = "·"
    zone: str = "○"
    front: str = "●"
    baseline: str = "◆"
    chosen: str = "★"
    further: str = "□"
    bound: str = "┊"
    line: str = "─"
    corner: str = "└"
    side: str = "│"
    top: str = "┤"


ASCII = Marks(".", "o", "#", "B", "A", "x", ":", "-", "+", "|", "|")
"""For terminals that cannot show more."""

_LEAST_WIDTH, _MOST_WIDTH = 30, 100
"""Columns of a picture, however wide the terminal is."""


def short(value: float) -> str:
    """Return a number in four digits, or whole where it has more before the point."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


class TextCanvas(NamedTuple):
    """The room of a picture in columns and lines, and the characters it is made of."""

    width: int
    height: int
    marks: Marks


def chart(
    groups: Sequence[tuple[str, str, Sequence[PlotPoint]]],
    window: tuple[PlotPoint, PlotPoint],
    labels: tuple[str, str],
    legend: Sequence[str],
    canvas: TextCanvas,
    number: Callable[[float], str] = short,
) -> str:
    """Return points in a frame: groups of (mark, name, points), later ones on top.

    ``window`` is (low, high) of x and of y; points outside are counted in the legend. ``number``
    writes the ends of both axes.
    """
    (x_low, x_high), (y_low, y_high) = window
    width, height, marks = canvas
    width = max(_LEAST_WIDTH, min(width, _MOST_WIDTH))
    ends = [number(y_high), number(y_low)]
    gutter = max(map(len, ends))
    columns = width - gutter - 2
    frame = Frame((x_low, x_high), (y_low, y_high), columns, height)
    cells = [[" "] * columns for _ in range(height)]
    outside: set[PlotPoint] = set()
    for mark, _, points in groups:
        for point in points:
            place = frame.cell(point)
            if place is None:
                outside.add(point)
            else:
                cells[place[1]][place[0]] = mark
    more = [f"{len(outside)} more outside the picture"] if outside else []
    lines = [labels[1]]
    for i, row_cells in enumerate(cells):
        label = {0: ends[0], height - 1: ends[1]}.get(i, "")
        edge = marks.top if label else marks.side
        lines.append(f"{label:>{gutter}} {edge}{''.join(row_cells)}".rstrip())
    lines.append(" " * (gutter + 1) + marks.corner + marks.line * (columns - 1))
    left, right = number(x_low), number(x_high)
    room = columns - len(left) - len(right)
    name = labels[0] if len(labels[0]) < room else ""
    lines.append(" " * (gutter + 2) + left + name.center(room) + right)
    if not name:
        lines.append(labels[0])
    return "\n".join([*(line[:width] for line in lines), *_wrap([*legend, *more], width)])


def _wrap(parts: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for part in (part[:width] for part in parts):
        joined = f"{lines[-1]}   {part}" if lines[-1] else part
        if len(joined) > width and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    return lines
