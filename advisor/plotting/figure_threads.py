"""Panels of threads drawn with matplotlib."""

from __future__ import annotations

import math
from typing import Any

from advisor.plotting.threads import GraphPanel, RadarPanel, ThreadPanel


def draw_threads(axes: Any, panel: ThreadPanel) -> None:
    """Draw one panel into its axes."""
    if isinstance(panel, RadarPanel):
        _radar(axes, panel)
    else:
        _graph(axes, panel)
    axes.set_title(panel.label, fontsize=9)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _radar(axes: Any, panel: RadarPanel) -> None:
    turns = [2 * math.pi * i / len(panel.axes) for i in range(len(panel.axes))]

    def ring(values: Any) -> tuple[list[float], list[float]]:
        closed = [*zip(turns, values, strict=True)]
        closed.append(closed[0])
        return [v * math.sin(t) for t, v in closed], [v * math.cos(t) for t, v in closed]

    for level in (0.5, 1.0):
        axes.plot(*ring([level] * len(turns)), color="#d1d5db", lw=0.6)
    for values in panel.threads:
        axes.plot(*ring(values), color="#009e73", lw=0.5, alpha=0.6)
    axes.plot(*ring(panel.mean), color="#0072b2", lw=2)
    for turn, name in zip(turns, panel.axes, strict=True):
        across, up = math.sin(turn), math.cos(turn)
        side = "center" if abs(across) < 0.1 else "left" if across > 0 else "right"
        axes.text(1.08 * across, 1.1 * up, name, fontsize=7, ha=side, va="center")
    axes.set_xlim(-2.2, 2.2)  # names have room beside it, and the title above them
    axes.set_ylim(-1.25, 1.25)


def _graph(axes: Any, panel: GraphPanel) -> None:
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    lines = [(panel.places[a], panel.places[b]) for a, b in panel.edges]
    axes.add_collection(LineCollection(lines, colors="#9aa5b1", linewidths=0.6, zorder=1))
    names = sorted(set(panel.classes))
    for i, name in enumerate(names):
        class_places = [p for p, c in zip(panel.places, panel.classes, strict=True) if c == name]
        colour = colormaps["tab20"](i % 20)
        axes.scatter(*zip(*class_places, strict=True), s=60, color=colour, label=name, zorder=2)
    axes.legend(
        fontsize=7, frameon=False, title="class", loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
