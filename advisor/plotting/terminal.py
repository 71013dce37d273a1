"""A scatter picture made of characters, as wide as the terminal allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.plotting import Point, Scene


@dataclass(frozen=True, slots=True)
class Marks:
    """One character per kind of point, from what is drawn first to what covers the rest."""

    other: str = "·"
    zone: str = "○"
    front: str = "●"
    baseline: str = "◆"
    line: str = "─"
    corner: str = "└"
    side: str = "│"
    top: str = "┤"


ASCII = Marks(".", "o", "#", "B", "-", "+", "|", "|")
"""For terminals that cannot show more."""

_LEAST_WIDTH, _MOST_WIDTH = 30, 100


def draw(scene: Scene, *, width: int = 80, height: int = 16, marks: Marks | None = None) -> str:
    """Return the picture as lines of at most ``width`` characters, legend included."""
    marks = marks or Marks()
    width = max(_LEAST_WIDTH, min(width, _MOST_WIDTH))
    (x_low, x_high), (y_low, y_high) = scene.window()
    labels = [_short(y_high), _short(y_low)]
    gutter = max(map(len, labels))
    columns = width - gutter - 2
    cells = [[" "] * columns for _ in range(height)]
    outside = 0

    def put(points: Sequence[Point], mark: str) -> int:
        missed = 0
        for x, y in points:
            across, up = (x - x_low) / (x_high - x_low), (y - y_low) / (y_high - y_low)
            if not (-1e-9 <= across <= 1 + 1e-9 and -1e-9 <= up <= 1 + 1e-9):
                missed += 1
                continue
            row = height - 1 - min(height - 1, max(0, round(up * (height - 1))))
            cells[row][min(columns - 1, max(0, round(across * (columns - 1))))] = mark
        return missed

    outside = put(scene.points, marks.other)
    put([scene.points[i] for i in scene.zone], marks.zone)
    put([scene.points[i] for i in scene.front], marks.front)
    legend = [f"{marks.front} front", f"{marks.zone} trade-off zone", f"{marks.other} other"]
    if scene.baseline is not None:
        put([scene.points[scene.baseline]], marks.baseline)
        legend.append(f"{marks.baseline} baseline")
    if outside:
        legend.append(f"{outside} more outside the picture")
    lines = [scene.y_label]
    for i, row in enumerate(cells):
        label = {0: labels[0], height - 1: labels[1]}.get(i, "")
        edge = marks.top if label else marks.side
        lines.append(f"{label:>{gutter}} {edge}{''.join(row)}".rstrip())
    lines.append(" " * (gutter + 1) + marks.corner + marks.line * (columns - 1))
    left, right = _short(x_low), _short(x_high)
    room = columns - len(left) - len(right)
    name = scene.x_label if len(scene.x_label) < room else ""
    lines.append(" " * (gutter + 2) + left + name.center(room) + right)
    if not name:
        lines.append(scene.x_label)
    return "\n".join([*(line[:width] for line in lines), *_wrap(legend, width)])


def _short(value: float) -> str:
    return f"{value:.4g}"


def _wrap(parts: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]}   {part}" if lines[-1] else part
        if len(joined) > width and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    return lines
