"""Shapes as pixels with smooth edges, on a ground that is clear.

Places are (x, y) in pixels from the top left, fractions included; colours are (red, green, blue),
0 to 255. numpy is loaded here, so whoever has to be quick imports this in a thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.plotting import PlotPoint

Colour = tuple[int, int, int]
_FINE = 4
"""Lines of samples in a row of pixels."""


class Canvas:
    """A picture of ``width`` by ``height`` pixels. What is drawn later covers what is there."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._pixels: npt.NDArray[np.float32] = np.zeros((height, width, 4), np.float32)
        """Colour times opacity, and opacity, 0 to 1."""

    def rgba(self) -> bytes:
        """Return the pixels, row by row: red, green, blue and opacity of each, a byte each."""
        opacity = self._pixels[..., 3:]
        colour = self._pixels[..., :3] / np.maximum(opacity, 1e-6)
        pixels = np.empty(self._pixels.shape, np.uint8)
        pixels[..., :3], pixels[..., 3:] = colour * 255 + 0.5, opacity * 255 + 0.5
        return pixels.tobytes()

    def fill(
        self, corners: Sequence[PlotPoint], colour: Colour | None, opacity: float = 1.0
    ) -> None:
        """Fill a polygon that does not cross itself; without a colour, clear what is there."""
        if len(corners) < 3:
            return
        left, top, width, height = self._box(corners, 1.0)
        if width <= 0 or height <= 0:
            return
        steps = np.zeros((height, width + 2), np.float32)
        for (ax, ay), (bx, by) in zip(corners, [*corners[1:], corners[0]], strict=True):
            if ay == by:
                continue
            (x_low, y_low), (x_high, y_high) = sorted(((ax, ay), (bx, by)), key=lambda p: p[1])
            lines = (np.arange(height * _FINE) + 0.5) / _FINE + top
            lines = lines[(lines >= y_low) & (lines < y_high)]
            x = x_low + (lines - y_low) * (x_high - x_low) / (y_high - y_low) - left
            x = np.clip(x, 0, width)
            column, rows = np.floor(x).astype(int), np.floor(lines).astype(int) - top
            part, way = x - column, 1.0 if by > ay else -1.0
            # From its crossing on a line lies inside; of the first pixel only what is right of it.
            np.add.at(steps, (rows, column), way * (1 - part) / _FINE)
            np.add.at(steps, (rows, column + 1), way * part / _FINE)
        covered = np.abs(np.cumsum(steps, axis=1)[:, :width])
        self._blend(left, top, np.minimum(1.0, covered) * opacity, colour)

    def stroke(
        self, path: Sequence[PlotPoint], width: float, colour: Colour | None, opacity: float = 1.0
    ) -> None:
        """Draw a line with round ends through points (of one: a disc); without a colour, clear."""
        reach = width / 2
        left, top, columns, rows = self._box(path, reach + 1)
        if columns <= 0 or rows <= 0:
            return
        covered = np.zeros((rows, columns), np.float32)
        for start, end in itertools.pairwise([*path, path[-1]] if len(path) == 1 else path):
            first, above, across, down = self._box((start, end), reach + 1)
            if across <= 0 or down <= 0:
                continue
            x = np.arange(first, first + across, dtype=np.float32) + 0.5 - start[0]
            y = np.arange(above, above + down, dtype=np.float32)[:, None] + 0.5 - start[1]
            dx, dy = end[0] - start[0], end[1] - start[1]
            along = np.clip((x * dx + y * dy) / ((dx * dx + dy * dy) or 1.0), 0, 1)
            distance = np.hypot(x - along * dx, y - along * dy)
            part = covered[above - top : above - top + down, first - left : first - left + across]
            np.maximum(part, np.clip(reach + 0.5 - distance, 0, 1), out=part)
        self._blend(left, top, covered * opacity, colour)

    def ring(self, centre: PlotPoint, radius: float, width: float, colour: Colour) -> None:
        """Draw a circle."""
        left, top, columns, rows = self._box([centre], radius + width / 2 + 1)
        if columns > 0 and rows > 0:
            x = np.arange(left, left + columns, dtype=np.float32) + 0.5 - centre[0]
            y = np.arange(top, top + rows, dtype=np.float32)[:, None] + 0.5 - centre[1]
            distance = np.abs(np.hypot(x, y) - radius)
            self._blend(left, top, np.clip(width / 2 + 0.5 - distance, 0, 1), colour)

    def _box(self, points: Sequence[PlotPoint], margin: float) -> tuple[int, int, int, int]:
        """Return left, top, width and height of the pixels around points, within the picture."""
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        left = max(0, int(min(xs) - margin))
        top = max(0, int(min(ys) - margin))
        right = min(self.width, int(max(xs) + margin) + 1)
        bottom = min(self.height, int(max(ys) + margin) + 1)
        return left, top, right - left, bottom - top

    def _blend(
        self, left: int, top: int, covered: npt.NDArray[np.floating[Any]], colour: Colour | None
    ) -> None:
        rows, columns = covered.shape
        part = self._pixels[top : top + rows, left : left + columns]
        part *= (1 - covered)[..., None]
        if colour is not None:
            paint = np.array([*(channel / 255 for channel in colour), 1.0], np.float32)
            part += covered[..., None] * paint
