"""A chart in pixels: what its cells of characters show, at the places themselves."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from advisor.plotting import PlotPoint
from advisor.plotting.pixels import Canvas, Colour
from advisor.plotting.raster import CharacterCell, Frame
from advisor_tui import signs
from advisor_tui.signs import ChartMarks, weight

MOST_PIXELS = 2_000_000
"""Beyond them a picture is drawn smaller, and the terminal stretches it."""
_TINT = 0.12
"""How much of its colour the zone's area has, as in cells."""


@dataclass(frozen=True, slots=True)
class ChartPixels:
    """An image over whole cells: from the cell at ``column``, ``row`` of the chart's frame on."""

    rgba: bytes
    width: int
    height: int
    column: int
    row: int
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the frame's points lie in pixels; a cell is ``width`` by ``height`` of them."""

    frame: Frame
    width: int
    height: int

    @classmethod
    def of(cls, frame: Frame, cell: tuple[int, int]) -> Scale:
        """Return the scale for a terminal's cells, smaller where they make too large a picture."""
        width, height = cell
        pixels = frame.columns * width * frame.rows * height
        shrink = min(1.0, math.sqrt(MOST_PIXELS / pixels))
        return cls(frame, max(4, int(width * shrink)), max(8, int(height * shrink)))

    def at(self, point: PlotPoint) -> PlotPoint:
        """Return a point's place."""
        column, row = self.frame.place(point)
        return column * self.width, row * self.height


def draw(
    picture: ChartMarks,
    scale: Scale,
    colours: Mapping[str, Colour],
    words: Collection[CharacterCell],
) -> ChartPixels:
    """Return zone, front, bound and points as an image of the whole frame, clear at ``words``."""
    frame, thick = scale.frame, scale.height / 10
    canvas = Canvas(frame.columns * scale.width, frame.rows * scale.height)
    zone = [scale.at(p) for p in picture.polygon]
    if zone:
        canvas.fill(zone, colours["front"], _TINT)
        canvas.stroke([*zone, zone[0]], 1.0, colours["zone"], 0.8)
    if picture.bound is not None:
        x = scale.at((picture.bound, frame.y[0]))[0]
        for row in range(frame.rows + 1):  # between the lines of text, which stays legible
            ends = [(x, (row + part) * scale.height) for part in (-0.2, 0.15)]
            canvas.stroke(ends, 0.7 * thick, colours["bound"])
    if picture.front:
        canvas.stroke([scale.at(picture.points[i]) for i in picture.front], thick, colours["front"])
    _clear(canvas, words, scale)
    drawn = [
        number
        for number, point in enumerate(picture.points)
        if number not in picture.hidden
        and number not in picture.special
        and frame.cell(point) is not None
    ]
    for number in sorted(drawn, key=lambda n: weight(picture.marks[n])):
        mark = picture.marks[number]
        radius = scale.height * (0.16 if mark.role == "outside" else 0.22)
        _draw_sign(canvas, mark.char, scale.at(picture.points[number]), radius, colours[mark.role])
    for number, mark in picture.special.items():
        if frame.cell(picture.points[number]) is not None:
            place = scale.at(picture.points[number])
            canvas.stroke([place], 0.95 * scale.height, None)  # room around it
            _draw_sign(canvas, mark.char, place, 0.42 * scale.height, colours[mark.role])
    return ChartPixels(canvas.rgba(), canvas.width, canvas.height, 0, 0, frame.columns, frame.rows)


def draw_cursor(
    point: PlotPoint,
    spread: tuple[PlotPoint, PlotPoint] | None,
    scale: Scale,
    colour: Colour,
    words: Collection[CharacterCell],
) -> ChartPixels:
    """Return a ring around the cursor's point and the interval through it, over the cells it takes.

    ``spread`` is (low, high) across and upwards. Cells of ``words`` stay clear but for the ring.
    """
    frame = scale.frame
    x, y = scale.at(point)
    left, right, top, bottom = x, x, y, y
    if spread is not None:
        (low_x, high_x), (low_y, high_y) = spread
        (left, bottom), (right, top) = scale.at((low_x, low_y)), scale.at((high_x, high_y))
    reach, line = 0.6 * scale.height, 0.08 * scale.height
    room = 1.2 * reach
    cell, most = (scale.width, scale.height), (frame.columns, frame.rows)
    starts, ends = (left - room, top - room), (right + room, bottom + room)
    first = [max(0, int(v / size)) for v, size in zip(starts, cell, strict=True)]
    last = [min(n, math.ceil(v / s)) for v, s, n in zip(ends, cell, most, strict=True)]
    columns, rows = last[0] - first[0], last[1] - first[1]
    canvas = Canvas(columns * scale.width, rows * scale.height)
    dx, dy = first[0] * scale.width, first[1] * scale.height

    def stroke(*path: PlotPoint) -> None:
        canvas.stroke([(a - dx, b - dy) for a, b in path], line, colour)

    if spread is not None:
        cap = 0.2 * scale.height
        stroke((left, y), (right, y))
        stroke((x, top), (x, bottom))
        for end in (left, right):
            stroke((end, y - cap), (end, y + cap))
        for end in (top, bottom):
            stroke((x - cap, end), (x + cap, end))
    _clear(canvas, [(column - first[0], row - first[1]) for column, row in words], scale)
    canvas.stroke([(x - dx, y - dy)], 2 * reach, None)
    canvas.ring((x - dx, y - dy), reach, 1.6 * line, colour)
    return ChartPixels(
        canvas.rgba(), canvas.width, canvas.height, first[0], first[1], columns, rows
    )


def _clear(canvas: Canvas, cells: Collection[CharacterCell], scale: Scale) -> None:
    """Clear cells, so that what is written there can be read."""
    for column, row in cells:
        x, y = column * scale.width, row * scale.height
        right, below = x + scale.width, y + scale.height
        canvas.fill([(x, y), (right, y), (right, below), (x, below)], None)


def _draw_sign(canvas: Canvas, char: str, centre: PlotPoint, radius: float, colour: Colour) -> None:
    """Draw what a sign looks like in a terminal's font, around a place."""
    x, y = centre
    line = max(1.2, 0.35 * radius)

    def around(corners: int, turn: float = 0.0, size: float = 1.0) -> list[PlotPoint]:
        """Return corners on a circle, the first above its middle or turned by a part of it."""
        angles = (2 * math.pi * (i / corners + turn) for i in range(corners))
        return [(x + size * radius * math.sin(a), y - size * radius * math.cos(a)) for a in angles]

    if char in (signs.PREDICTED, signs.MEASURED_ESTIMATE):
        canvas.stroke([centre], 2 * radius, None)
        canvas.ring(centre, radius, line, colour)
        if char == signs.MEASURED_ESTIMATE:
            canvas.stroke([centre], radius, colour)
    elif char == signs.PREDICTED_ESTIMATE:
        for place in around(6):
            canvas.stroke([place], line, colour)
    elif char in (signs.ESTIMATED, signs.EXTRAPOLATED):
        corners = around(3, 0.0 if char == signs.ESTIMATED else 0.5, 1.2)
        canvas.stroke([*corners, corners[0]], line, colour)
    elif char == signs.BASELINE:
        canvas.fill(around(4), colour)
    elif char == signs.POLICY:
        star = zip(around(5, 0.0, 1.1), around(5, 0.1, 0.45), strict=True)
        canvas.fill([corner for pair in star for corner in pair], colour)
    elif char == signs.YOURS:
        pole = x - 0.5 * radius
        canvas.stroke([(pole, y + radius), (pole, y - radius)], line, colour)
        canvas.fill(
            [(pole, y - radius), (x + radius, y - 0.4 * radius), (pole, y + 0.2 * radius)], colour
        )
    else:
        canvas.stroke([centre], 2 * radius, colour)
