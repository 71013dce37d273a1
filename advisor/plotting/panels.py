"""Pictures of a response over its axes: lines, surfaces, and observed against predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.configuration import thin
from advisor.core.disturbed import disturbed
from advisor.core.option import Option
from advisor.core.rate import Work
from advisor.core.units import format_count, format_freq
from advisor.plotting.statistics import StatisticsPanel
from advisor.plotting.threads import ThreadPanel

MOST_LINES = 16
"""Frequencies beyond these are thinned out: there is a letter for each of so many in a terminal."""

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


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over one axis; ``logarithmic`` in both directions.

    ``whole_bands``: the axis shows the intervals whole and need not begin at 0.
    """

    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    logarithmic: bool = False
    whole_bands: bool = False

    @property
    def band(self) -> tuple[float, float]:
        """The least and the largest end of an interval."""
        ends = [v for line in self.lines for v in (*line.low, *line.high)]
        return min(ends, default=0.0), max(ends, default=1.0)


@dataclass(frozen=True, slots=True)
class Surface:
    """A response over two axes: ``z[i][j]`` at ``y[i]`` and ``x[j]``, NaN where there is none.

    ``marked`` are (i, j) on the Pareto front, or what ``marks`` says; ``baseline`` the baseline's.
    ``region`` is (low, high) of x and of y where runs are.
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


@dataclass(frozen=True, slots=True)
class Observed:
    """Predictions against what was observed, by group of points (observed, predicted)."""

    label: str
    groups: Mapping[str, Sequence[tuple[float, float]]]


Panel = Lines | Surface | Observed | StatisticsPanel | ThreadPanel


@dataclass(frozen=True, slots=True)
class Panels:
    """Panels side by side under one title: one for each response."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class _Drawable:
    """What is drawn of options: its label, and its value with low and high."""

    label: str
    values: Callable[[Option], tuple[float, float, float]]


def lines(
    title: str, options: Sequence[Option], baseline: Option, work: Work | None = None
) -> Panels:
    """Return each response over the cores of a node, one line per frequency cap.

    Options with other nodes or ranks than the baseline's are left out, and the title names these.
    With ``work`` the responses are rate and rate per joule.
    """
    like = _comparable(options, baseline)
    caps = sorted({o.configuration.freq_khz for o in like})
    shown = thin(caps, MOST_LINES)
    panels = []
    for response in _responses(like, work):
        drawn = []
        for cap in shown:
            row = sorted(
                (o for o in like if o.configuration.freq_khz == cap),
                key=lambda o: o.configuration.threads_per_node,
            )
            x = [float(o.configuration.threads_per_node) for o in row]
            values = [response.values(o) for o in row]
            runs = [v for v, o in zip(x, row, strict=True) if o.measured]
            y, low, high = ([v[k] for v in values] for k in range(3))
            drawn.append(Line(format_freq(cap), x, y, low, high, runs))
        panels.append(Lines("cores per node", response.label, tuple(drawn)))
    return Panels(_titled(title, options, baseline), tuple(panels))


def surface(
    title: str, options: Sequence[Option], baseline: Option, work: Work | None = None
) -> Panels:
    """Return each response over cores per node and frequency, with the front's options marked."""
    like = _comparable(options, baseline)
    threads = sorted({o.configuration.threads_per_node for o in like})
    caps = sorted({o.configuration.freq_khz for o in like})
    place = {
        (caps.index(o.configuration.freq_khz), threads.index(o.configuration.threads_per_node)): o
        for o in like
    }
    panels = []
    for response in _responses(like, work):
        z = [
            [
                response.values(place[i, j])[0] if (i, j) in place else float("nan")
                for j in range(len(threads))
            ]
            for i in range(len(caps))
        ]
        panels.append(
            Surface(
                "cores per node",
                "frequency (GHz)",
                response.label,
                [float(t) for t in threads],
                [f / 1e6 for f in caps],
                z,
                frozenset(cell for cell, o in place.items() if o.on_front),
                next((cell for cell, o in place.items() if o is baseline), None),
            )
        )
    return Panels(_titled(title, options, baseline), tuple(panels))


def observed(
    title: str,
    predicted: Sequence[Option],
    measured: Mapping[str, Mapping[object, float]],
    trained: frozenset[object],
) -> Panels:
    """Return predictions against observations: ``measured`` maps response and configuration."""
    panels = []
    for name, truth in measured.items():
        groups: dict[str, list[tuple[float, float]]] = {"predicted": [], "trained on": []}
        for o in predicted:
            if o.configuration in truth:
                kind = "trained on" if o.configuration in trained else "predicted"
                groups[kind].append((truth[o.configuration], _VALUES[name](o)[0]))
        panels.append(Observed(_LABELS[name], groups))
    return Panels(title, tuple(panels))


def _titled(title: str, options: Sequence[Option], baseline: Option) -> str:
    """Return the title, with the nodes and ranks that are drawn where options have others, too."""
    places = {(o.configuration.nodes, o.configuration.ranks_per_node) for o in options}
    if len(places) == 1:
        return title
    b = baseline.configuration
    ranks = {ranks for _, ranks in places}
    ranks_text = f" of {format_count(b.ranks_per_node, 'rank')}" if len(ranks) > 1 else ""
    return f"{title}, on {format_count(b.nodes, 'node')}{ranks_text}"


def _comparable(options: Sequence[Option], baseline: Option) -> list[Option]:
    """Return the options with the baseline's nodes and ranks, without disturbed runs."""
    b, spikes = baseline.configuration, disturbed(options)
    return [
        o
        for i, o in enumerate(options)
        if (o.configuration.nodes, o.configuration.ranks_per_node) == (b.nodes, b.ranks_per_node)
        and (i not in spikes or o is baseline)
    ]


def _responses(options: Sequence[Option], work: Work | None) -> list[_Drawable]:
    """Return what is drawn: time and energy, or rate and rate per joule; energy if it is known."""
    names = ["time", *(["energy"] if any(o.energy_j == o.energy_j for o in options) else [])]
    if work is not None:
        return [
            _of_work(work, label, name) for label, name in zip(work.labels, names, strict=False)
        ]
    return [_in_units(name, options) for name in names]


def _of_work(work: Work, label: str, name: str) -> _Drawable:
    return _Drawable(label, lambda o: work.done(*_VALUES[name](o)))


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

    return _Drawable(label, values)


_VALUES: Mapping[str, Callable[[Option], tuple[float, float, float]]] = {
    "time": lambda o: (o.time_s, o.time_lo_s, o.time_hi_s),
    "energy": lambda o: (o.energy_j, o.energy_lo_j, o.energy_hi_j),
}
