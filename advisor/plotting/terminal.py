"""Pictures made of characters, as wide as the terminal allows; panels one below the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.plotting import PlotPoint, Scene
from advisor.plotting.chart import ASCII, Marks, TextCanvas, chart, short
from advisor.plotting.named import FASTEST, RECOMMENDED, THRIFTIEST, WRITTEN
from advisor.plotting.panels import Lines, Observed, Panel, Panels, Surface
from advisor.plotting.statistics import StatisticsPanel
from advisor.plotting.terminal_statistics import draw_statistics
from advisor.plotting.threads import GraphPanel, RadarPanel, text_of

_LETTERS = "abcdefghijklmnop"
_NAMED = {WRITTEN: "B", RECOMMENDED: "R", FASTEST: "F", THRIFTIEST: "E"}
"""Letters of points and cells that have a name: the first of a label's names counts."""
_LINE_POINTS = 60
"""Points at which a line is drawn."""
_Group = tuple[str, str, Sequence[PlotPoint]]  # mark, name, points
_Chart = tuple[tuple[str, str], list[_Group], tuple[PlotPoint, PlotPoint]]  # labels, groups, window
_SHADES, _ASCII_SHADES = " ░▒▓█", " .+x#"


def draw(scene: Scene, *, width: int = 80, height: int = 16, marks: Marks | None = None) -> str:
    """Return the picture as lines of at most ``width`` characters, legend included."""
    marks = marks or Marks()
    window = scene.window()
    front = (marks.front, scene.front_label, [scene.points[i] for i in scene.front])
    zone = (marks.zone, "trade-off zone", [scene.points[i] for i in scene.zone])
    others = (marks.other, scene.others, scene.points)
    further = [(marks.further, label, line) for label, line in scene.further_fronts.items()]
    bound = (
        []
        if scene.bound is None
        else [(marks.bound, scene.bound_label, _line((scene.bound,) * 2, window[1]))]
    )
    named: list[_Group] = []
    for i in dict.fromkeys([scene.baseline, scene.chosen, *scene.labels]):
        if i is None:
            continue
        mark = {scene.chosen: marks.chosen, scene.baseline: marks.baseline}.get(i)
        label = scene.labels.get(i, "job as written" if i == scene.baseline else "as advised")
        named.append((mark or _letter(label), label.partition("\n")[0], [scene.points[i]]))
    bars = [(marks.line, "90 % interval", _intervals(scene, window))] if scene.spreads else []
    groups = [*bound, others, *bars, zone, *further, front, *named]
    legend = [
        f"{m} {name}" for m, name, _ in (front, *further, zone, others, *bound, *bars, *named)
    ]
    return chart(
        groups,
        scene.window(),
        (scene.x_label, scene.y_label),
        legend,
        TextCanvas(width, height, marks),
    )


def _letter(label: str) -> str:
    return _NAMED.get(label.partition(":")[0].partition(",")[0], "?")


def _line(x: PlotPoint, y: PlotPoint) -> list[PlotPoint]:
    """Return points from the low to the high ends."""
    shares = [i / _LINE_POINTS for i in range(_LINE_POINTS + 1)]
    return [(x[0] + s * (x[1] - x[0]), y[0] + s * (y[1] - y[0])) for s in shares]


def _intervals(scene: Scene, window: tuple[PlotPoint, PlotPoint]) -> list[PlotPoint]:
    """Return the intervals of points with a label, as far as the window shows them.

    Not the baseline's, on which all changes are based.
    """
    (left, right), (low, high) = window
    bars: list[PlotPoint] = []
    for i in set(scene.labels) - {scene.baseline}:
        (x, y), (across, along) = scene.points[i], scene.spreads[i]
        bars += [*_line(across, (y, y)), *_line((x, x), along)]
    return [(x, y) for x, y in bars if left <= x <= right and low <= y <= high]


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
        labels, groups, window = _lines(panel, marks)
        if panel.logarithmic:
            number = _power
    else:
        labels, groups, window = _observed(panel, marks)
        number = _power
    legend = [f"{mark} {name}" for mark, name, _ in groups]
    return chart(groups, window, labels, legend, TextCanvas(width, 16, marks), number)


def _power(value: float) -> str:
    return short(10**value)


def _lines(panel: Lines, marks: Marks) -> _Chart:
    """Return labels, groups and window; of logarithms where the panel says so."""
    groups: list[_Group] = []
    labels = panel.x_label, panel.y_label
    for letter, line in zip(_LETTERS, panel.lines, strict=False):
        points = list(zip(line.x, line.y, strict=True))
        if panel.logarithmic:
            points = [(math.log10(x), math.log10(y)) for x, y in points]
        groups.append((letter, line.label, points))
    (x, (low, high)) = _window(groups)
    groups += [(_letter(label), label, [point]) for label, point in panel.named.items()]
    if panel.bound is not None:
        bound = (marks.bound, panel.bound_label, _line(x, (panel.bound,) * 2))
        groups.insert(0, bound)
    if panel.whole_bands:
        low, high = panel.band
        return labels, groups, (x, (low, max(high, low + 1e-9)))
    if not panel.logarithmic:
        return labels, groups, (x, (0.0, panel.top))
    return (labels[0], f"{labels[1]}, logarithmic"), groups, (x, (low, max(high, low + 1e-9)))


def _observed(panel: Observed, marks: Marks) -> _Chart:
    """Return labels, groups and window of logarithms, with the diagonal."""
    points = [
        (mark, name, [(math.log10(x), math.log10(y)) for x, y in group])
        for mark, (name, group) in zip((marks.zone, marks.front), panel.groups.items(), strict=True)
    ]
    low, high = map(math.log10, panel.ends)
    diagonal = _line((low, high), (low, high))
    labels = f"observed {panel.label}, logarithmic", f"predicted {panel.label}, logarithmic"
    return labels, [(marks.other, "equal", diagonal), *points], ((low, high), (low, high))


def _window(groups: Sequence[_Group]) -> tuple[PlotPoint, PlotPoint]:
    points = [p for _, _, group in groups for p in group]
    x, y = [p[0] for p in points], [p[1] for p in points]
    return (min(x), max(max(x), min(x) + 1e-9)), (min(y), max(y))


def _surface(panel: Surface, width: int, shades: str) -> str:
    """Return a table of the response, shaded from least to most; * marks the front, B the baseline.

    Where there are too many columns some are left out, evenly; the baseline's stays.
    """
    rows = range(len(panel.y))
    values = [v for row in panel.z for v in row if v == v]
    low, high = panel.scale
    letters = {cell: _letter(label) for label, cell in panel.named.items()}
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
        slow = "-" if panel.slow and panel.slow[i][j] > 1 else " "
        mark = "*" if (i, j) in panel.marked else slow
        mark = letters.get((i, j), "B" if (i, j) == panel.baseline else mark)
        if low > 0 and value > 0:
            share = math.log(value / low) / math.log(high / low) if high > low else 0.0
        else:
            share = (value - low) / (high - low) if high > low else 0.0
        shade = shades[min(len(shades) - 1, max(0, int(share * len(shades))))]
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
    slower = f", - more than {panel.bound_label}" if panel.slow else ""
    lines.append(f"* {panel.marks}{baseline}{slower}, darker is more{more}")
    lines += [f"{letters[cell]} {label}"[:width] for label, cell in panel.named.items()]
    return "\n".join(line.rstrip() for line in lines)
