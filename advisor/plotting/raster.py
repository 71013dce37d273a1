"""From values to character cells: where a point lies, what a polygon covers, how a line runs.

Knows nothing of terminals; both the printed picture and the one in the TUI are made with it. Row 0
is the top one. A cell of braille has two columns and four rows of dots.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.plotting import PlotPoint

CharacterCell = tuple[int, int]
"""Column and row."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot of a braille cell, by row and column (Unicode, block U+2800)."""
_ENOUGH = 2
"""Of a cell's eight sample points, how many in a polygon make it covered."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A window onto the values, ``columns`` by ``rows`` cells; (low, high) of each axis."""

    x: PlotPoint
    y: PlotPoint
    columns: int
    rows: int

    def cell(self, point: PlotPoint) -> CharacterCell | None:
        """Return the cell a point lies in, None outside of the window."""
        across, up = self._share(point)
        if not (-1e-9 <= across <= 1 + 1e-9 and -1e-9 <= up <= 1 + 1e-9):
            return None
        column = min(self.columns - 1, max(0, round(across * (self.columns - 1))))
        return column, self.rows - 1 - min(self.rows - 1, max(0, round(up * (self.rows - 1))))

    def edge(self, point: PlotPoint) -> tuple[CharacterCell, tuple[int, int]]:
        """Return the cell at the window's edge that is next to a point outside of it, and the way.

        The way from there is one column or one row, the one that is the farther.
        """
        across, up = self._share(point)
        inside = min(1.0, max(0.0, across)), min(1.0, max(0.0, up))
        cell = self.cell(
            (
                self.x[0] + inside[0] * (self.x[1] - self.x[0]),
                self.y[0] + inside[1] * (self.y[1] - self.y[0]),
            )
        )
        assert cell is not None  # it was put inside
        beyond = across - inside[0], up - inside[1]
        if abs(beyond[0]) >= abs(beyond[1]):
            return cell, (1 if beyond[0] > 0 else -1, 0)
        return cell, (0, -1 if beyond[1] > 0 else 1)

    def point(self, cell: CharacterCell) -> PlotPoint:
        """Return the values in the middle of a cell."""
        column, row = cell
        across = column / max(1, self.columns - 1)
        up = (self.rows - 1 - row) / max(1, self.rows - 1)
        return (
            self.x[0] + across * (self.x[1] - self.x[0]),
            self.y[0] + up * (self.y[1] - self.y[0]),
        )

    def shares(self, start: PlotPoint, end: PlotPoint) -> tuple[PlotPoint, PlotPoint]:
        """Return from where to where two corners reach across and downwards, the window being 1.

        ``start`` is the top left one.
        """
        (left, top), (right, bottom) = self._share(start), self._share(end)
        return (left, right), (1 - top, 1 - bottom)

    def _share(self, point: PlotPoint) -> PlotPoint:
        return (
            (point[0] - self.x[0]) / (self.x[1] - self.x[0]),
            (point[1] - self.y[0]) / (self.y[1] - self.y[0]),
        )

    def place(self, point: PlotPoint) -> tuple[float, float]:
        """Return a point's place in cells, fractions of them included, from the top left."""
        across, up = self._share(point)
        return across * (self.columns - 1) + 0.5, (1 - up) * (self.rows - 1) + 0.5

    def _dot(self, point: PlotPoint) -> tuple[float, float]:
        """Return a point in dots, fractions of them included, from the top left."""
        column, row = self.place(point)
        return column * 2, row * 4

    def covered(self, polygon: Sequence[PlotPoint]) -> set[CharacterCell]:
        """Return the cells a polygon (even-odd rule) covers to a quarter at least."""
        dots = [self._dot(p) for p in polygon]
        edges = list(zip(dots, dots[1:] + dots[:1], strict=True))
        count: dict[CharacterCell, int] = {}
        for line in range(self.rows * 4):
            y = line + 0.5
            crossings = sorted(
                ax + (y - ay) * (bx - ax) / (by - ay)
                for (ax, ay), (bx, by) in edges
                if (ay > y) != (by > y)
            )
            # From every odd crossing to the next even one the line is inside.
            for start, end in zip(crossings[::2], crossings[1::2], strict=False):
                first = max(0, math.ceil(start - 0.5))
                last = min(self.columns * 2 - 1, math.floor(end - 0.5))
                for dot in range(first, last + 1):
                    cell = dot // 2, line // 4
                    count[cell] = count.get(cell, 0) + 1
        return {cell for cell, hits in count.items() if hits >= _ENOUGH}

    def traced(self, path: Sequence[PlotPoint]) -> dict[CharacterCell, str]:
        """Return the braille characters of a line through points, cell by cell."""
        bits: dict[CharacterCell, int] = {}
        dots = [self._dot(p) for p in path]
        for (ax, ay), (bx, by) in itertools.pairwise(dots):
            clipped = self._clip(ax, ay, bx, by)
            if clipped is None:
                continue
            ax, ay, bx, by = clipped
            steps = max(1, math.ceil(max(abs(bx - ax), abs(by - ay))))
            for step in range(steps + 1):
                column = math.floor(ax + (bx - ax) * step / steps)
                row = math.floor(ay + (by - ay) * step / steps)
                if 0 <= column < self.columns * 2 and 0 <= row < self.rows * 4:
                    cell = column // 2, row // 4
                    bits[cell] = bits.get(cell, 0) | _DOTS[row % 4][column % 2]
        return {cell: chr(0x2800 + mask) for cell, mask in bits.items()}

    def _clip(
        self, ax: float, ay: float, bx: float, by: float
    ) -> tuple[float, float, float, float] | None:
        """Return the part of a line within the window (Liang and Barsky 1984), in dots."""
        low, high = 0.0, 1.0
        dx, dy = bx - ax, by - ay
        for p, q in (
            (-dx, ax),
            (dx, self.columns * 2 - ax),
            (-dy, ay),
            (dy, self.rows * 4 - ay),
        ):
            if p == 0:
                if q < 0:
                    return None
            elif p < 0:
                low = max(low, q / p)
            else:
                high = min(high, q / p)
        if low > high:
            return None
        return ax + low * dx, ay + low * dy, ax + high * dx, ay + high * dy

    def zoomed(
        self, factor: float, around: PlotPoint, limits: tuple[PlotPoint, PlotPoint]
    ) -> Frame:
        """Return the frame ``factor`` times as wide, ``around`` in place, within ``limits``."""
        edges = []
        for (low, high), centre, (least, most) in zip(
            (self.x, self.y), around, limits, strict=True
        ):
            start = centre - (centre - low) * factor
            end = centre + (high - centre) * factor
            if end - start >= most - least:
                start, end = least, most
            elif start < least:
                start, end = least, least + end - start
            elif end > most:
                start, end = most - (end - start), most
            edges.append((start, end))
        return Frame(edges[0], edges[1], self.columns, self.rows)

    def holding(self, point: PlotPoint) -> Frame:
        """Return the frame moved, as little as need be, so that a point is well inside."""
        edges = []
        for (low, high), coordinate in zip((self.x, self.y), point, strict=True):
            margin = 0.05 * (high - low)
            move = min(0.0, coordinate - margin - low) + max(0.0, coordinate + margin - high)
            edges.append((low + move, high + move))
        return Frame(edges[0], edges[1], self.columns, self.rows)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers within a range, at most ``most`` and two at least where there are."""
    span = high - low
    if not (span > 0 and math.isfinite(span)) or most < 1:
        return []
    magnitude = 10.0 ** math.floor(math.log10(span))
    steps = [magnitude * s for s in (0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0)]
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [n * step for n in range(first, last + 1)]
    return []
