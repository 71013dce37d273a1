"""Pictures of a response over its axes: lines, surfaces, and observed against predicted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from advisor.core.axes import AXES
from advisor.core.configuration import thin
from advisor.core.disturbed import disturbed
from advisor.core.option import Option
from advisor.core.rate import Work
from advisor.core.units import format_count, format_freq
from advisor.plotting import PlotPoint, robust_ends
from advisor.plotting.named import NO_NAMES, NamedOptions
from advisor.plotting.statistics import StatisticsPanel
from advisor.plotting.threads import ThreadPanel

Over = Literal["cores", "frequency"]
"""What lines are drawn over."""
MOST_LINES = 16
"""Frequencies beyond these are thinned out: there is a letter for each of so many in a terminal."""
MOST_PLACES = 4
"""Numbers of nodes (and ranks) in one picture; the baseline's are always among them."""

_LABELS = {"time": "time (s)", "energy": "energy (J)"}
_ENERGY_UNITS = ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"))


@dataclass(frozen=True, slots=True)
class Line:
    """One line: y over x with its 90 % interval from low to high; ``runs`` are measured x."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    runs: Sequence[float] = ()

    @property
    def errors(self) -> list[PlotPoint]:
        """How far the interval reaches below and above each y."""
        return [
            (max(y - low, 0.0), max(high - y, 0.0))
            for y, low, high in zip(self.y, self.low, self.high, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over one axis; ``logarithmic`` in both directions.

    ``whole_bands``: the axis shows the intervals whole and need not begin at 0. ``named`` are
    points by their label, ``bound`` is a y that may not be crossed, and ``bound_label`` says which.
    """

    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    logarithmic: bool = False
    whole_bands: bool = False
    named: Mapping[str, PlotPoint] = field(default_factory=dict)
    bound: float | None = None
    bound_label: str = ""

    @property
    def with_names(self) -> tuple[Line, ...]:
        """The lines on which a named point lies."""
        points = set(self.named.values())
        return tuple(v for v in self.lines if points & set(zip(v.x, v.y, strict=True)))

    @property
    def band(self) -> tuple[float, float]:
        """The least and the largest end of an interval."""
        ends = [v for line in self.lines for v in (*line.low, *line.high)]
        return min(ends, default=0.0), max(ends, default=1.0)

    @property
    def top(self) -> float:
        """The largest y to show: no outlier's, but what is named is seen."""
        named = [y for _, y in self.named.values()]
        _, high = robust_ends(v for line in self.lines for v in line.y)
        return max([high, *named, *([] if self.bound is None else [self.bound])])


@dataclass(frozen=True, slots=True)
class Surface:
    """A response over two axes: ``z[i][j]`` at ``y[i]`` and ``x[j]``, NaN where there is none.

    ``marked`` are (i, j) on the Pareto front, or what ``marks`` says; ``baseline`` the baseline's.
    ``region`` is (low, high) of x and of y where runs are. ``named`` are cells by their label.
    ``slow`` is like ``z``: above 1 a cell is slower than the bound ``bound_label`` (empty: none).
    ``ends`` are those of the colours, which surfaces of one response share (None: its own).
    """

    x_label: str
    y_label: str
    z_label: str
    x: Sequence[float]
    y: Sequence[float]
    z: Sequence[Sequence[float]]
    marked: frozenset[tuple[int, int]] = frozenset()
    baseline: tuple[int, int] | None = None
    marks: str = "front"
    region: tuple[tuple[float, float], tuple[float, float]] | None = None
    named: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    slow: Sequence[Sequence[float]] = ()
    bound_label: str = ""
    ends: tuple[float, float] | None = None

    @property
    def scale(self) -> tuple[float, float]:
        """(low, high) of the colours, which no outlier stretches."""
        return self.ends or robust_ends(v for row in self.z for v in row)


@dataclass(frozen=True, slots=True)
class Observed:
    """Predictions against what was observed, by group of points (observed, predicted).

    ``intervals`` are the predictions' (low, high), for each group and point of it.
    """

    label: str
    groups: Mapping[str, Sequence[PlotPoint]]
    intervals: Mapping[str, Sequence[PlotPoint]] = field(default_factory=dict)

    @property
    def ends(self) -> PlotPoint:
        """The least and the largest value to show, on both axes: no disturbed run's."""
        low, high = robust_ends(v for group in self.groups.values() for p in group for v in p)
        return low, max(high, low * (1 + 1e-9))

    @property
    def beyond(self) -> int:
        """How many points lie beyond these ends."""
        low, high = self.ends
        points = (p for group in self.groups.values() for p in group)
        return sum(not low <= v <= high for v in map(max, points))


Panel = Lines | Surface | Observed | StatisticsPanel | ThreadPanel


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels side by side under one title: one for each response."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class _Drawable:
    """What is drawn of options: its label, and its value with low and high.

    ``name`` is time or energy; ``scaled`` gives the place of such a value (s, J) on its axis.
    """

    name: str
    label: str
    values: Callable[[Option], tuple[float, float, float]]
    scaled: Callable[[float], float]

    def value(self, option: Option) -> float:
        """Return an option's value."""
        return self.values(option)[0]

    def at(self, value: float | None) -> float | None:
        """Return the place of a value, None of none."""
        return None if value is None else self.scaled(value)


def lines(
    title: str,
    options: Sequence[Option],
    baseline: Option,
    work: Work | None = None,
    named: NamedOptions = NO_NAMES,
    over: Over = "cores",
) -> Panels:
    """Return each response over the cores of a node, one line per frequency cap.

    Where only other axes vary (a GPU's clock), over the first that does; where more do, a line for
    each of their values. ``over`` frequency, or what is in its place, has a line per core count.
    Options of several numbers of nodes or ranks have lines of their own.
    With ``work`` the responses are rate and rate per joule.
    """
    by_place = _by_place(options, baseline)
    like = [o for place_options in by_place.values() for o in place_options]
    axes = _axes(like)
    if over == "frequency":
        axes.sort(key=lambda axis: axis is _CORES)
    across, *others = axes
    keys = sorted({tuple(axis.value(o) for axis in others) for o in like})
    keys = [keys[i] for i in thin(range(len(keys)), MOST_LINES // len(by_place))]
    panels = []
    for response in _responses(like, work):
        drawn = []
        for place, place_options in by_place.items():
            for key in keys:
                row = sorted(
                    (o for o in place_options if tuple(a.value(o) for a in others) == key),
                    key=across.value,
                )
                if not row:
                    continue
                x = [across.value(o) for o in row]
                values = [response.values(o) for o in row]
                runs = [v for v, o in zip(x, row, strict=True) if o.measured]
                y, low, high = ([v[k] for v in values] for k in range(3))
                label = ", ".join(filter(None, (place, *(axis.shown(row[0]) for axis in others))))
                drawn.append(Line(label, x, y, low, high, runs))
        points = {
            label: (across.value(like[i]), response.value(like[i]))
            for i, label in named.labels(like).items()
        }
        bound = None if response.name != "time" else response.at(named.slowest_s(baseline))
        panels.append(
            Lines(
                across.label,
                response.label,
                tuple(drawn),
                named=points,
                bound=bound,
                bound_label=named.bound_words,
            )
        )
    return Panels(_titled(title, options, by_place), tuple(panels))


def surface(
    title: str,
    options: Sequence[Option],
    baseline: Option,
    work: Work | None = None,
    named: NamedOptions = NO_NAMES,
) -> Panels:
    """Return each response over cores per node and frequency, with the front's options marked.

    Over the first two axes that vary, where others do (a GPU's clock); of all further ones only
    what has the baseline's values is drawn, and the title names these. A panel for each number of
    nodes and ranks, those of one response with the same colours.
    """
    by_place = _by_place(options, baseline)
    across, up, *held = _axes([o for of_place in by_place.values() for o in of_place])
    by_place = {
        place: [o for o in of_place if all(a.value(o) == a.value(baseline) for a in held)]
        for place, of_place in by_place.items()
    }
    like = [o for of_place in by_place.values() for o in of_place]
    slowest_s = named.slowest_s(baseline)
    panels = []
    for response in _responses(like, work):
        ends = robust_ends(map(response.value, like))
        for place, of_place in by_place.items():
            x, y = (sorted({axis.value(o) for o in of_place}) for axis in (across, up))
            cells = {(y.index(up.value(o)), x.index(across.value(o))): o for o in of_place}
            cell_of = {o.configuration: cell for cell, o in cells.items()}

            def rows(
                value: Callable[[Option], float],
                cells: Mapping[tuple[int, int], Option] = cells,
                shape: tuple[int, int] = (len(y), len(x)),
            ) -> list[list[float]]:
                return [
                    [value(cells[i, j]) if (i, j) in cells else math.nan for j in range(shape[1])]
                    for i in range(shape[0])
                ]

            panels.append(
                Surface(
                    across.label,
                    up.label,
                    ", ".join(filter(None, (response.label, place))),
                    x,
                    y,
                    rows(response.value),
                    frozenset(cell for cell, o in cells.items() if o.on_front),
                    next((cell for cell, o in cells.items() if o is baseline), None),
                    named={
                        label: cell_of[of_place[i].configuration]
                        for i, label in named.labels(of_place).items()
                    },
                    slow=() if slowest_s is None else rows(lambda o: o.time_s / slowest_s),
                    bound_label=named.bound_words,
                    ends=ends,
                )
            )
    at = "".join(f", at {axis.shown(baseline)}" for axis in held)
    return Panels(_titled(title, options, by_place) + at, tuple(panels))


@dataclass(frozen=True, slots=True)
class _PictureAxis:
    """An axis of configurations: its label, an option's place on it, and that place in words."""

    label: str
    value: Callable[[Option], float]
    shown: Callable[[Option], str]


_CORES = _PictureAxis(
    "cores per node",
    lambda o: float(o.configuration.threads_per_node),
    lambda o: format_count(o.configuration.threads_per_node, "core"),
)
_CAP = _PictureAxis(
    "frequency (GHz)",
    lambda o: o.configuration.freq_khz / 1e6,
    lambda o: format_freq(o.configuration.freq_khz),
)


def _axes(options: Sequence[Option]) -> list[_PictureAxis]:
    """Return the axes that vary, cores and frequency first; two at least."""
    names = sorted({name for o in options for name, _ in o.configuration.extra})
    every = [_CORES, _CAP, *map(_further_axis, names)]
    varying = [axis for axis in every if len({axis.value(o) for o in options}) > 1]
    more = [axis for axis in every if axis not in varying]
    if len(varying) == 1 and varying[0] is _CAP:
        return [_CORES, _CAP]
    return [*varying, *more[: max(0, 2 - len(varying))]]


def _further_axis(name: str) -> _PictureAxis:
    axis = AXES[name]
    scale, unit = (1e6, "GHz") if axis.unit == "kHz" else (1.0, axis.unit)

    def value(option: Option) -> int:
        return dict(option.configuration.extra).get(name, 0)

    return _PictureAxis(
        f"{axis.words} ({unit})",
        lambda o: value(o) / scale,
        lambda o: f"{axis.words} {axis.shown(value(o))}",
    )


def observed(
    title: str,
    predicted: Sequence[Option],
    measured: Mapping[str, Mapping[object, float]],
    trained: frozenset[object],
) -> Panels:
    """Return predictions against observations: ``measured`` maps response and configuration."""
    panels = []
    for name, truth in measured.items():
        response = _in_units(name, predicted)
        groups: dict[str, list[PlotPoint]] = {"predicted": [], "trained on": []}
        intervals: dict[str, list[PlotPoint]] = {kind: [] for kind in groups}
        for o in predicted:
            if o.configuration in truth:
                kind = "trained on" if o.configuration in trained else "predicted"
                value, *interval = response.values(o)
                groups[kind].append((response.scaled(truth[o.configuration]), value))
                intervals[kind].append((interval[0], interval[1]))
        panels.append(Observed(response.label, groups, intervals))
    return Panels(title, tuple(panels))


def _titled(title: str, options: Sequence[Option], by_place: Mapping[str, object]) -> str:
    """Return the title, which says of how many numbers of nodes and ranks only some are drawn."""
    places = {(o.configuration.nodes, o.configuration.ranks_per_node) for o in options}
    left_out = len(places) - len(by_place)
    return f"{title}, {left_out} more node counts not drawn" if left_out else title


def _by_place(options: Sequence[Option], baseline: Option) -> dict[str, list[Option]]:
    """Return the options without disturbed runs by their nodes and ranks, in words.

    "" where all have the same. Of more than ``MOST_PLACES`` the baseline's and others, evenly.
    """
    b, spikes = baseline.configuration, disturbed(options)
    places = sorted({(o.configuration.nodes, o.configuration.ranks_per_node) for o in options})
    own = b.nodes, b.ranks_per_node
    shown = [places[i] for i in thin(range(len(places)), MOST_PLACES)]
    if own not in shown:
        shown[min(range(len(shown)), key=lambda i: abs(shown[i][0] - b.nodes))] = own
    several_ranks = len({ranks for _, ranks in places}) > 1

    def words(nodes: int, ranks: int) -> str:
        of_ranks = f" of {format_count(ranks, 'rank')}" if several_ranks else ""
        return format_count(nodes, "node") + of_ranks if len(places) > 1 else ""

    return {
        words(*place): [
            o
            for i, o in enumerate(options)
            if (o.configuration.nodes, o.configuration.ranks_per_node) == place
            and (i not in spikes or o is baseline)
        ]
        for place in shown
    }


def _responses(options: Sequence[Option], work: Work | None) -> list[_Drawable]:
    """Return what is drawn: time and energy, or rate and rate per joule; energy if it is known."""
    names = ["time", *(["energy"] if any(o.energy_j == o.energy_j for o in options) else [])]
    if work is not None:
        return [
            _of_work(work, label, name) for label, name in zip(work.labels, names, strict=False)
        ]
    return [_in_units(name, options) for name in names]


def _of_work(work: Work, label: str, name: str) -> _Drawable:
    return _Drawable(
        name, label, lambda o: work.done(*_VALUES[name](o)), lambda value: work.amount / value
    )


def _in_units(name: str, options: Sequence[Option]) -> _Drawable:
    """Return a response in a unit that keeps its numbers short."""
    scale, label = 1.0, _LABELS[name]
    if name == "energy":
        most = max(o.energy_j for o in options if o.energy_j == o.energy_j)
        larger_unit = next(((s, u) for s, u in _ENERGY_UNITS if most >= 10 * s), None)
        if larger_unit is not None:
            scale, label = larger_unit[0], f"energy ({larger_unit[1]})"

    def values(o: Option) -> tuple[float, float, float]:
        value, low, high = _VALUES[name](o)
        return value / scale, low / scale, high / scale

    return _Drawable(name, label, values, lambda value: value / scale)


_VALUES: Mapping[str, Callable[[Option], tuple[float, float, float]]] = {
    "time": lambda o: (o.time_s, o.time_lo_s, o.time_hi_s),
    "energy": lambda o: (o.energy_j, o.energy_lo_j, o.energy_hi_j),
}
