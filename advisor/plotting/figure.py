"""A picture file of a trade-off: SVG, PNG or PDF, with matplotlib (the extra ``plot``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from advisor.drafts import draft
from advisor.errors import AdvisorError, InputError, MissingExtraError, UnknownNameError
from advisor.plotting import Scene
from advisor.plotting.figure_statistics import COLOURS, draw_statistics
from advisor.plotting.named import FASTEST, RECOMMENDED, THRIFTIEST, WRITTEN
from advisor.plotting.panels import Lines, Observed, Panel, Panels, Surface
from advisor.plotting.threads import GraphPanel, RadarPanel, ThreadPanel

SUFFIXES = (".svg", ".png", ".pdf")
_MARKERS, _DASHES = "osD^vP", ("-", "--", "-.", ":", "-", "--")
_MOST_INSIDE = 8
"""Entries of a legend that lies on a panel; of more, it lies below."""
_MOST_BESIDE = 3
"""Panels of one row; with more in it none can be read on a page."""
_BASELINE, _ADVISED, _FURTHER = "#c2410c", "#15803d", "#6b7280"
_NAMED = {
    WRITTEN: ("D", 46, _BASELINE),
    RECOMMENDED: ("*", 110, _ADVISED),
    FASTEST: ("^", 50, _ADVISED),
    THRIFTIEST: ("v", 50, _ADVISED),
}
"""Marker, size and colour of a named point; the first name counts."""
_LABEL_HEIGHT = 0.05
"""Of the picture's height, what a line of a label takes."""
_DARK: dict[Any, Any] = {
    "figure.facecolor": "#111418",
    "axes.facecolor": "#111418",
    "savefig.facecolor": "#111418",
    **{
        name: "#e5e7eb"
        for name in (
            "text.color",
            "axes.labelcolor",
            "axes.edgecolor",
            "axes.titlecolor",
            "xtick.color",
            "ytick.color",
        )
    },
}


def check(path: Path) -> None:
    """Raise InputError or AdvisorError when a picture of that name cannot be made here."""
    if path.suffix.lower() not in SUFFIXES:
        raise UnknownNameError(
            f"{path}: unknown kind of picture", hint=f"end it in {', '.join(SUFFIXES)}"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingExtraError("pictures need", "matplotlib") from None


def save(scene: Scene | Panels, path: Path, *, dark: bool = False) -> None:
    """Write the picture in one step; the kind follows the file's ending. ``dark``: on black."""
    check(path)
    import matplotlib as mpl

    looks: dict[Any, Any] = {"svg.hashsalt": "advisor", "svg.fonttype": "none"}
    with mpl.rc_context(looks | _DARK if dark else looks):
        _save(scene, path)


def _save(scene: Scene | Panels, path: Path) -> None:
    from matplotlib.figure import Figure

    if isinstance(scene, Scene):
        figure = Figure(figsize=(7.0, 4.6), layout="constrained")
        _draw(figure.add_subplot(), scene)
    else:
        count = len(scene.panels)
        rows = 1 if count <= _MOST_BESIDE else 2
        columns = -(-count // rows)
        figure = Figure(figsize=(5.4 * columns, 4.6 * rows), layout="constrained")
        figure.suptitle(scene.title, fontsize=10)
        for i, panel in enumerate(scene.panels, 1):
            _draw_panel(figure, figure.add_subplot(rows, columns, i), panel)
    kind = path.suffix.lower()[1:]
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    try:
        with draft(path.parent, path.name, 0o666) as partial:
            figure.savefig(partial, format=kind, dpi=160, metadata=dated)
            partial.replace(path)
    except OSError as error:
        raise AdvisorError(f"{path} cannot be written: {error.strerror or error}") from None


def _draw(axes: Any, scene: Scene) -> None:
    def coordinates(rows: Any) -> tuple[list[float], list[float]]:
        return [scene.points[i][0] for i in rows], [scene.points[i][1] for i in rows]

    crossed = list(dict.fromkeys([*scene.front, *([] if scene.chosen is None else [scene.chosen])]))
    edges = []
    for axis, (low, high) in enumerate(scene.window()):
        ends = [end for i in crossed if scene.spreads for end in scene.spreads[i][axis]]
        edges.append(_with_margin(min([low, *ends]), max([high, *ends])))
    (left, right), (low, high) = edges
    special = {*scene.front, *scene.zone, scene.baseline, scene.chosen}
    plain_points = [
        i
        for i, (x, y) in enumerate(scene.points)
        if i not in special and left <= x <= right and low <= y <= high
    ]
    if scene.polygon:
        axes.fill(*zip(*scene.polygon, strict=True), color="#1f6fb2", alpha=0.14, zorder=0, lw=0)
    axes.scatter(*coordinates(plain_points), s=12, color="#9aa5b1", label=scene.others, zorder=1)
    zone = [i for i in scene.zone if i not in set(scene.front)]
    if zone or scene.polygon:
        axes.scatter(
            *coordinates(zone),
            s=26,
            facecolor="none",
            edgecolor="#1f6fb2",
            label="trade-off zone",
            zorder=2,
        )
    axes.plot(*coordinates(scene.front), color="#1f6fb2", lw=1, zorder=2)
    for (label, line), dashes in zip(scene.further_fronts.items(), _DASHES[1:], strict=False):
        axes.plot(
            *zip(*line, strict=True),
            color=_FURTHER,
            lw=1,
            ls=dashes,
            marker="s",
            ms=4,
            mfc="none",
            label=label,
            zorder=2,
        )
    if scene.bound is not None:
        axes.axvline(scene.bound, color=_BASELINE, lw=1, ls=":", label=scene.bound_label, zorder=1)
    if scene.spreads:
        for k, i in enumerate(crossed):
            (x, y), (across, along) = scene.points[i], scene.spreads[i]
            name = None if k else "90 % interval"
            axes.plot(across, [y, y], color="#1f6fb2", lw=0.8, alpha=0.5, zorder=1, label=name)
            axes.plot([x, x], along, color="#1f6fb2", lw=0.8, alpha=0.5, zorder=1)
    if scene.front:
        axes.scatter(
            *coordinates(scene.front), s=30, color="#1f6fb2", label=scene.front_label, zorder=3
        )
    if scene.baseline is not None:
        axes.scatter(
            *coordinates([scene.baseline]),
            s=60,
            marker="D",
            color=_BASELINE,
            label="job as written",
            zorder=4,
        )
    if scene.chosen not in (None, scene.baseline):
        _choice(axes, scene, scene.chosen)
    free = high
    for i in sorted(scene.labels, key=lambda i: -scene.points[i][1]):
        x, y = scene.points[i]
        middle = (left + right) / 2
        right_half = x > middle
        end = x
        if scene.spreads and i in crossed:
            end = scene.spreads[i][0][0 if right_half else 1]
        if (end > middle) is not right_half:  # beside so wide an interval is no room
            end = x
        beside = min(y, free)  # labels of points that are near each other stand below each other
        free = beside - _LABEL_HEIGHT * (high - low) * (1 + scene.labels[i].count("\n"))
        axes.annotate(
            scene.labels[i],
            (end, beside),
            xytext=(-10 if right_half else 10, 2),
            textcoords="offset points",
            ha="right" if right_half else "left",
            va="bottom" if y > (low + high) / 2 or end == x else "center",
            fontsize=8,
            in_layout=False,
            zorder=6,
        )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_xlabel(scene.x_label)
    axes.set_ylabel(scene.y_label)
    axes.set_title(scene.title, fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
    axes.spines[["top", "right"]].set_visible(False)


def _choice(axes: Any, scene: Scene, chosen: int) -> None:
    """Draw what is advised, and the way there from the job as written."""
    axes.scatter(
        *([value] for value in scene.points[chosen]),
        s=150,
        marker="*",
        color=_ADVISED,
        label=scene.name(chosen, "as advised"),
        zorder=5,
    )
    if scene.baseline is not None:
        axes.annotate(
            "",
            scene.points[chosen],
            xytext=scene.points[scene.baseline],
            arrowprops={
                "arrowstyle": "-|>",
                "color": _ADVISED,
                "lw": 1.6,
                "shrinkA": 7,
                "shrinkB": 9,
            },
            zorder=4,
        )


def _with_margin(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis on which no mark between ``low`` and ``high`` is cut."""
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _draw_panel(figure: Any, axes: Any, panel: Panel) -> None:
    """Draw one panel into its axes."""
    if isinstance(panel, Lines):
        _lines(axes, panel)
    elif isinstance(panel, Surface):
        _surface(figure, axes, panel)
    elif isinstance(panel, Observed):
        _observed(axes, panel)
    elif isinstance(panel, RadarPanel | GraphPanel):
        draw_threads(axes, panel)
    else:
        draw_statistics(figure, axes, panel)
    axes.spines[["top", "right"]].set_visible(isinstance(panel, Surface))


def _lines(axes: Any, panel: Lines) -> None:
    from matplotlib import colormaps

    many = len(panel.lines) > len(COLOURS)  # then neighbours differ a little, ends a lot
    for i, line in enumerate(panel.lines):
        k = i % len(COLOURS)
        colour = colormaps["plasma"](0.85 * i / (len(panel.lines) - 1)) if many else COLOURS[k]
        if many:  # a dozen bands cover one another
            if line in panel.with_names:
                below, above = zip(*line.errors, strict=True)
                axes.errorbar(
                    line.x,
                    line.y,
                    (below, above),
                    fmt="none",
                    ecolor=colour,
                    elinewidth=0.9,
                    capsize=2.5,
                    alpha=0.8,
                    zorder=2,
                )
        else:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.13, lw=0)
        axes.plot(line.x, line.y, color=colour, ls=_DASHES[k], lw=1.2, label=line.label)
        runs = set(line.runs)
        for measured in (True, False):
            indices = [j for j, x in enumerate(line.x) if (x in runs) is measured]
            axes.scatter(
                [line.x[j] for j in indices],
                [line.y[j] for j in indices],
                s=20,
                marker=_MARKERS[k],
                facecolor=colour if measured else "none",
                edgecolor=colour,
                zorder=3,
            )
    _name_points(axes, panel.named)
    if panel.bound is not None:
        axes.axhline(panel.bound, color=_BASELINE, lw=1, ls=":", label=panel.bound_label)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    values = [v for line in panel.lines for v in line.y] or [1.0]
    if panel.logarithmic:
        sizes = [x for line in panel.lines for x in line.x] or [1.0]
        _logarithmic(axes, max(sizes) / min(sizes), max(values) / min(values))
    elif panel.whole_bands:
        axes.set_ylim(*_with_margin(*panel.band))
    else:
        axes.set_ylim(0, 1.1 * panel.top)
    if many and panel.with_names:
        axes.plot([], [], ls="", marker="|", color=_FURTHER, label="90 % intervals of named lines")
    ran = [set(line.x) <= set(line.runs) for line in panel.lines]
    entries = len(axes.get_legend_handles_labels()[0])
    # a long one would lie over the lines, and beyond the picture's edges
    placement = (
        {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17)} if entries > _MOST_INSIDE else {}
    )
    axes.legend(
        fontsize=8,
        frameon=False,
        title_fontsize=8,
        title="filled: run" if any(line.runs for line in panel.lines) and not all(ran) else None,
        ncols=2 if placement else 1,
        **placement,
    )


def _name_points(axes: Any, named: Mapping[str, tuple[float, float]]) -> None:
    """Draw points that have a name over all else."""
    for label, (x, y) in named.items():
        marker, size, colour = next(
            (look for name, look in _NAMED.items() if label.startswith(name)),
            ("o", 40, _ADVISED),
        )
        axes.scatter(
            [x], [y], s=size, marker=marker, color=colour, edgecolor="white", label=label, zorder=6
        )


def _surface(figure: Any, axes: Any, panel: Surface) -> None:
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    z = np.ma.masked_invalid(np.array(panel.z))
    low, high = panel.scale
    logarithmic = 0 < low < high and z.min() > 0
    mesh = axes.pcolormesh(
        _borders(panel.x),
        _borders(panel.y),
        z,
        cmap="cividis",
        norm=LogNorm(low, high) if logarithmic else Normalize(low, high),
    )
    beyond = {(True, True): "both", (True, False): "min", (False, True): "max"}
    extend = beyond.get((bool(z.min() < low), bool(z.max() > high)), "neither")
    bar = figure.colorbar(mesh, ax=axes, label=panel.z_label, extend=extend)
    if logarithmic:
        _few_ticks(bar.ax.yaxis, high / low)
    if min(z.shape) > 1 and panel.slow:
        slow = np.ma.masked_invalid(np.array(panel.slow))
        if slow.min() < 1 < slow.max():
            axes.contour(panel.x, panel.y, slow, levels=[1], colors=_BASELINE, linestyles="--")
            axes.plot([], [], color=_BASELINE, ls="--", label=panel.bound_label)
    if min(z.shape) > 1 and not z.mask.any() and z.max() > z.min():
        contours = axes.contour(panel.x, panel.y, z, levels=6, colors="white", linewidths=0.7)
        axes.clabel(contours, fontsize=7, fmt="%.4g")
    marked = [] if panel.region else sorted(panel.marked)
    for kind, cells, style in (
        (
            panel.marks,
            marked,
            {"marker": "o", "s": 34, "facecolor": "none", "edgecolor": "white", "linewidth": 1.6},
        ),
        (
            "job as written",
            [panel.baseline] if panel.baseline and not panel.named else [],
            {"marker": "D", "s": 46, "color": _BASELINE, "edgecolor": "white"},
        ),
    ):
        if cells:
            axes.scatter(
                [panel.x[j] for _, j in cells],
                [panel.y[i] for i, _ in cells],
                label=kind,
                zorder=4,
                **style,
            )
    _name_points(axes, {n: (panel.x[j], panel.y[i]) for n, (i, j) in panel.named.items()})
    if panel.region is not None:
        (left, right), (low, high) = panel.region
        border = [left, right, right, left, left], [low, low, high, high, low]
        axes.plot(*border, color="white", lw=3.2, zorder=3)
        axes.plot(*border, color="black", lw=1.6, label="trained region", zorder=4)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            fontsize=8,
            facecolor="#374151",
            labelcolor="white",
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=1 if panel.named else 2,
        )


def _borders(centres: Sequence[float]) -> list[float]:
    """Return the borders of cells around these places: halfway, also where there is only one."""
    if len(centres) == 1:
        half = abs(centres[0]) / 20 or 0.5
        return [centres[0] - half, centres[0] + half]
    inner = [(a + b) / 2 for a, b in pairwise(centres)]
    return [2 * centres[0] - inner[0], *inner, 2 * centres[-1] - inner[-1]]


def _observed(axes: Any, panel: Observed) -> None:
    low, high = panel.ends
    span = [low * 0.9, high * 1.1]
    axes.fill_between(
        span,
        [0.9 * v for v in span],
        [1.1 * v for v in span],
        color="#e5e7eb",
        lw=0,
        label="within 10 %",
    )
    axes.plot(span, span, color="#6b7280", lw=1)
    for i, (label, group) in enumerate(panel.groups.items()):
        if panel.intervals.get(label):
            axes.vlines(
                [p[0] for p in group],
                *zip(*panel.intervals[label], strict=True),
                color=COLOURS[i],
                lw=0.6,
                alpha=0.45,
                zorder=1,
                label="90 % interval" if i == 0 else None,
            )
        axes.scatter(
            [p[0] for p in group],
            [p[1] for p in group],
            s=18 + 14 * i,
            marker=_MARKERS[2 * i],
            facecolor="none" if i == 0 else COLOURS[1],
            edgecolor=COLOURS[i],
            label=label,
            zorder=2 + i,
        )
    if panel.beyond:
        axes.plot([], [], ls="", label=f"{panel.beyond} more beyond the picture")
    _logarithmic(axes, span[1] / span[0], span[1] / span[0])
    axes.set_xlim(*span)
    axes.set_ylim(*span)
    axes.set_xlabel(f"observed {panel.label}")
    axes.set_ylabel(f"predicted {panel.label}")
    axes.legend(fontsize=8, frameon=False)


def _logarithmic(axes: Any, x_ratio: float, y_ratio: float) -> None:
    """Make both axes logarithmic, with more ticks where the ends' ratio is small."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    _few_ticks(axes.xaxis, x_ratio)
    _few_ticks(axes.yaxis, y_ratio)


def _few_ticks(axis: Any, ratio: float) -> None:
    """Write plain numbers on a logarithmic axis, more of them where its ends are near."""
    from matplotlib.ticker import LogLocator, NullFormatter

    few = (1.0,) if ratio >= 100 else (1.0, 2.0, 5.0) if ratio >= 8 else tuple(range(1, 10))
    axis.set_major_locator(LogLocator(subs=few))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


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
