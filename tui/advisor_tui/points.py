"""An option as a row of the table and as a sign in the picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from advisor.core.option import Option
from advisor.core.pareto import TradeOff
from advisor.core.units import format_duration, format_energy
from advisor.plotting import PlotPoint
from advisor.views import tradeoff as view
from advisor.views.tradeoff import Across, TradeOffView, Up
from advisor.views.verdict import against
from advisor_tui import signs
from advisor_tui.signs import ChartMarks, Mark
from advisor_tui.table import Cell, Column

_WORDS = 78
"""Cells from which on a table says a change in words, not in numbers."""
_FIGURES = (
    Column(" N  R   T", 9, gap=1),
    Column("GHz", 4, right=True, gap=1),
    Column("Time", 14, right=True, gap=1),
    Column("Energy", 13, right=True, gap=1),
    Column("dE %", 5, right=True, below=_WORDS, gap=1),
    Column("dT %", 5, right=True, below=_WORDS, gap=1),
)
COLUMNS = (
    Column("", 2),
    *_FIGURES,
    Column("Against the job as written", 20, flex=4, from_width=_WORDS),
)


def sign(board: TradeOffView, option: Option) -> str:
    """Return the sign of what is measured, predicted, estimated."""
    if board.guessed(option):
        return signs.ESTIMATED
    if board.extrapolated:
        return signs.EXTRAPOLATED
    if board.estimated:
        return signs.MEASURED_ESTIMATE if option.measured else signs.PREDICTED_ESTIMATE
    return signs.MEASURED if option.measured else signs.PREDICTED


def columns(board: TradeOffView) -> tuple[Column, ...]:
    """Return the columns; where several node types are together each option says its own."""
    node_type = [Column("Node type", 9, flex=1, gap=1)] if board.node_type == view.EVERY else []
    return (COLUMNS[0], *node_type, *COLUMNS[1:])


def rows(board: TradeOffView, numbers: Sequence[int]) -> list[list[Cell]]:
    """Return options' rows, all with as many decimals."""
    fine = any(o.configuration.freq_khz % 100_000 for o in board.options)
    return [_cells(board, number, 2 if fine else 1) for number in numbers]


def _cells(board: TradeOffView, number: int, digits: int) -> list[Cell]:
    o = board.options[number]
    c = o.configuration
    special = {
        board.baseline: signs.BASELINE,
        board.policy_at: signs.POLICY,
        board.yours_at: signs.YOURS,
    }.get(number, " ")
    about = "~" if board.estimated or board.guessed(o) else ""
    base = board.view.baseline
    energy: Cell = ("not known", "dim")
    change = 0.0
    if o.energy_j == o.energy_j:
        margin = view.spread(o.energy_lo_j, o.energy_j, o.energy_hi_j)
        text = f"{about}{like(base.energy_j, format_energy)(o.energy_j)}"
        energy = _figure(text, margin, _ENERGY)
        change = o.energy_j / base.energy_j - 1
    words = board.words(number, brief=board.node_type == view.EVERY, marked=True)
    margin = view.spread(o.time_lo_s, o.time_s, o.time_hi_s)
    time = like(base.time_s, format_duration)(o.time_s)
    slower = o.time_s / base.time_s - 1
    tone = "good" if change <= -0.005 and slower < 0.005 else ""
    return [
        (f"{sign(board, o)}{special}", "strong"),
        *([(c.node_type, "dim")] if board.node_type == view.EVERY else []),
        f"{c.nodes:>2} {c.ranks_per_node:>2} {c.threads_per_node:>3}",
        f"{c.freq_khz / 1e6:.{digits}f}" if c.freq_khz else "-",
        _figure(f"~{time}" if board.guessed(o) else time, margin, _TIME),
        energy,
        (_percent(change) if o.energy_j == o.energy_j else "-", tone),
        _percent(slower),
        (words, tone),
    ]


def _percent(change: float) -> str:
    return f"{round(100 * change, 1) + 0.0:+.1f}"  # no -0.0


_ROUGH = 15.0
"""Percent of half an interval from which on a figure is a rough one."""
_SHORT = 7
"""Characters of a figure beside which its interval has a decimal."""
_TIME, _ENERGY = (next(c.width for c in _FIGURES if c.title == n) for n in ("Time", "Energy"))
"""Cells of the columns of figures."""


def _figure(text: str, margin: str, room: int) -> Cell:
    """Return a figure with its interval, one that says little in a colour and with a ``?``."""
    rough = bool(margin) and float(margin.strip("±%")) >= _ROUGH
    mark = margin
    if margin and len(text) > _SHORT:
        mark = f"±{max(1.0, float(margin.strip('±%'))):.0f}%"  # tenths have no room
    if rough and len(text) + len(mark) < room:
        mark += "?"
    gap = " " if len(text) + max(5, len(mark)) < room else ""
    return (f"{text}{gap}{mark:>5}", "warn" if rough else "")


def like(usual: float, form: Callable[[float], str]) -> Callable[[float], str]:
    """Return how to print values in the unit and with the decimals of a usual one."""
    number, unit = form(usual).split(" ")
    digits = len(number.partition(".")[2])
    return lambda value: f"{value / _SCALES[unit]:.{digits}f} {unit}"


_SCALES = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "GJ": 1e9, "s": 1.0, "min": 60.0, "h": 3600.0}


def picture(
    board: TradeOffView,
    points: Sequence[PlotPoint],
    place: TradeOff,
    steps: Sequence[int],
    across: Across,
    up: Up,
    hidden: Collection[int],
) -> ChartMarks:
    """Return a board as a picture: options outside of the zone are faint."""
    zone = set(place.zone)
    marks = [
        Mark(sign(board, o), _role(board, o) if i in zone else "outside")
        for i, o in enumerate(board.options)
    ]
    special = {board.baseline: Mark(signs.BASELINE, "baseline")}
    if board.policy_at is not None:
        special[board.policy_at] = Mark(signs.POLICY, "policy")
    if board.yours_at is not None:
        special[board.yours_at] = Mark(signs.YOURS, "yours")
    undisturbed_points = [p for i, p in enumerate(points) if i not in board.disturbed]
    xs, ys = [p[0] for p in undisturbed_points], [p[1] for p in undisturbed_points]
    plain = across == "time" and up == "energy"
    ends: dict[int, str] = {}
    if len(place.front) > 1:
        ends = {place.front[0]: "fastest", place.front[-1]: "least energy"}
        if points[place.front[0]][0] > points[place.front[-1]][0] and across == "time":
            ends = dict(zip(ends, reversed(ends.values()), strict=True))
    names = {board.policy_at: "advised", board.yours_at: "yours", board.baseline: "as written"}
    labels = {n: text for n, text in names.items() if n is not None}
    for n, text in ends.items():
        labels[n] = f"{text}, {labels[n]}" if n in labels else text
    return ChartMarks(
        points,
        marks,
        special,
        place.front,
        place.polygon,
        board.window(points, place),
        (padded(min(xs), max(xs)), padded(min(ys), max(ys))),
        view.axis_title(across),
        view.axis_title(up),
        steps,
        points[board.baseline],
        points[board.baseline] if plain else None,
        board.bound(across),
        {n: text for n, text in labels.items() if n not in hidden},
        board.spreads(across, up),
        hidden,
        lambda number: against(
            board.view.baseline.configuration, board.options[number].configuration
        ),
    )


def _role(board: TradeOffView, option: Option) -> str:
    if board.guessed(option) or board.extrapolated:
        return "estimated"
    return "measured" if option.measured else "predicted"


def padded(low: float, high: float, share: float = 0.03) -> PlotPoint:
    """Return an axis a little longer than its values, at both ends."""
    margin = share * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin
