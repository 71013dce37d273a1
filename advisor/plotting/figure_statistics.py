"""Statistics drawn with matplotlib."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from advisor.plotting.statistics import (
    HistogramPanel,
    IntervalPanel,
    MatrixPanel,
    ScatterPanel,
    StatisticsPanel,
    TreePanel,
)

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, distinct for everybody."""
_GREY = "#6b7280"
_LABEL_WIDTH = 44
"""Characters of an axis label that fit a panel beside another."""


def draw_statistics(figure: Any, axes: Any, panel: StatisticsPanel) -> None:
    """Draw one panel into its axes."""
    if isinstance(panel, ScatterPanel):
        _scatter(axes, panel)
    elif isinstance(panel, HistogramPanel):
        _histogram(axes, panel)
    elif isinstance(panel, MatrixPanel):
        _matrix(figure, axes, panel)
    elif isinstance(panel, TreePanel):
        _tree(axes, panel)
    else:
        _intervals(axes, panel)


def _scatter(axes: Any, panel: ScatterPanel) -> None:
    axes.plot(*zip(*panel.line, strict=True), color=_GREY, lw=1, label=panel.line_label)
    for colour, (name, points) in zip(COLOURS, panel.groups.items(), strict=False):
        axes.scatter(
            *zip(*points, strict=True), s=16, facecolor="none", edgecolor=colour, label=name
        )
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.legend(fontsize=8, frameon=False)


def _histogram(axes: Any, panel: HistogramPanel) -> None:
    axes.stairs(panel.density, panel.edges, fill=True, color="#9aa5b1", alpha=0.6, label="runs")
    styles = zip(COLOURS, ("-", "--", ":"), panel.curves.items(), strict=False)
    for colour, dashes, (name, curve) in styles:
        axes.plot(*zip(*curve, strict=True), color=colour, ls=dashes, lw=1.4, label=name)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel("density")
    axes.legend(fontsize=8, frameon=False)


def _matrix(figure: Any, axes: Any, panel: MatrixPanel) -> None:
    image = axes.imshow(panel.values, vmin=-1, vmax=1, cmap="RdBu_r")
    figure.colorbar(image, ax=axes, label=panel.label)
    axes.set_xticks(range(len(panel.columns)), panel.columns, rotation=40, ha="right")
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    for i, row in enumerate(panel.values):
        for j, value in enumerate(row):
            if value == value:
                axes.text(
                    j,
                    i,
                    f"{value:+.2f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if abs(value) > 0.6 else "black",
                )


def _tree(axes: Any, panel: TreePanel) -> None:
    """Draw leaves from top to bottom, branches to the right; a mark says each leaf's cluster."""
    node_places = {leaf: (0.0, float(row)) for row, leaf in enumerate(panel.order)}
    for i, (a, b, height) in enumerate(panel.merges):
        (xa, ya), (xb, yb) = node_places[a], node_places[b]
        axes.plot([xa, height, height, xb], [ya, ya, yb, yb], color=COLOURS[0], lw=1)
        node_places[len(panel.leaves) + i] = (height, (ya + yb) / 2)
    names = list(dict.fromkeys(panel.groups))
    axes.set_yticks(range(len(panel.order)), [panel.leaves[i] for i in panel.order], fontsize=7)
    for k, name in enumerate(names):
        rows = [row for row, leaf in enumerate(panel.order) if panel.groups[leaf] == name]
        axes.scatter(
            [0.0] * len(rows),
            rows,
            s=26,
            marker="osD^"[k % 4],
            color=COLOURS[k + 1],
            label=name,
            clip_on=False,
            zorder=3,
        )
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(fill(panel.label, _LABEL_WIDTH))
    _legend_above(axes, len(names))


def _intervals(axes: Any, panel: IntervalPanel) -> None:
    row_kinds = [  # of each row, the kinds that have a value: they share its height
        [k for k, values in enumerate(panel.kinds.values()) if values[i] is not None]
        for i in range(len(panel.rows))
    ]
    for k, (kind, values) in enumerate(panel.kinds.items()):
        rows = [
            (i + 0.22 * (row_kinds[i].index(k) - (len(row_kinds[i]) - 1) / 2), v)
            for i, v in enumerate(values)
            if v is not None
        ]
        if panel.bars:
            axes.barh(
                [y for y, _ in rows], [v[0] for _, v in rows], 0.2, color=COLOURS[k], alpha=0.35
            )
        axes.errorbar(
            [v[0] for _, v in rows],
            [y for y, _ in rows],
            xerr=[[v[0] - v[1] for _, v in rows], [v[2] - v[0] for _, v in rows]],
            fmt="osD^"[k % 4],
            ms=4,
            lw=1.2,
            capsize=3,
            color=COLOURS[k],
            label=kind,
        )
    axes.set_yticks(range(len(panel.rows)), panel.rows, fontsize=7)
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    if panel.bars:
        axes.set_xlim(left=0)
    axes.set_xlabel(fill(panel.label, _LABEL_WIDTH))
    _legend_above(axes, len(panel.kinds))


def _legend_above(axes: Any, columns: int) -> None:
    """Put the legend above axes that their content fills."""
    axes.legend(
        fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns
    )
