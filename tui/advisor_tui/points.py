"""An option as a row of the table and as a sign in the picture."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.core.option import Option
from advisor.core.pareto import TradeOff
from advisor.core.units import duration_like, format_energy
from advisor.plotting import PlotPoint
from advisor.views import tradeoff as view
from advisor.views.tradeoff import Across, TradeOffView, Up
from advisor_tui import chart as signs
from advisor_tui.chart import ChartMarks, Mark
from advisor_tui.table import Cell, Column

_WIDE = 110
COLUMNS = (
    Column("", 2),
    Column("Node type", 10, flex=1, from_width=_WIDE, gap=1),
    Column("Nodes", 5, right=True, from_width=_WIDE),
    Column("Ranks", 5, right=True, from_width=_WIDE),
    Column("Threads", 7, right=True, from_width=_WIDE),
    Column(" N  R   T", 9, below=_WIDE, gap=1),
    Column("GHz", 4, right=True, gap=1),
    Column("Time", 15),
    Column("Energy", 12, gap=1),
    Column("Against the job as written", 28, flex=4, gap=1),
)
COLUMNS_OF_EVERY = (
    COLUMNS[0],
    Column("Node type", 9, flex=1, gap=1),
    *COLUMNS[2:-3],
    Column("Time", 14, gap=1),
    COLUMNS[-2],
    Column("Against the job as written", 22, flex=4, gap=1),
)
"""Where several node types are together: each option says on which it is."""


def sign(board: TradeOffView, option: Option) -> str:
    """Return the sign of what is measured, predicted, estimated."""
    if board.transferred(option):
        return signs.ESTIMATED
    if board.estimated:
        return signs.MEASURED_ESTIMATE if option.measured else signs.PREDICTED_ESTIMATE
    return signs.MEASURED if option.measured else signs.PREDICTED


def cells(board: TradeOffView, number: int) -> list[Cell]:
    """Return an option's row."""
    o = board.options[number]
    c = o.configuration
    special = {
        board.baseline: signs.BASELINE, board.policy_at: signs.POLICY, board.yours_at: signs.YOURS,
    }.get(number, " ")  # fmt: skip
    energy: Cell = ("not known", "dim")
    if o.energy_j == o.energy_j:
        about = "~" if board.estimated or board.transferred(o) else ""
        margin = view.spread(o.energy_lo_j, o.energy_j, o.energy_hi_j)
        energy = f"{about}{format_energy(o.energy_j)} {margin}"
    words = board.words(number, brief=board.node_type == view.EVERY)
    as_time = duration_like(board.view.baseline.time_s)
    time = f"{as_time(o.time_s)} {view.spread(o.time_lo_s, o.time_s, o.time_hi_s)}"
    return [
        (f"{sign(board, o)}{special}", "strong"),
        (c.node_type, "dim"),
        str(c.nodes),
        str(c.ranks_per_node),
        str(c.threads_per_node),
        f"{c.nodes:>2} {c.ranks_per_node:>2} {c.threads_per_node:>3}",
        f"{c.freq_khz / 1e6:g}" if c.freq_khz else "-",
        f"~{time}" if board.transferred(o) else time,
        energy,
        (words, "good" if words.partition(",")[0].endswith((" less", "less energy")) else ""),
    ]


def picture(
    board: TradeOffView, points: Sequence[PlotPoint], place: TradeOff, steps: Sequence[int],
    across: Across, up: Up,
) -> ChartMarks:  # fmt: skip
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
    seen = [p for i, p in enumerate(points) if i not in board.disturbed]
    xs, ys = [p[0] for p in seen], [p[1] for p in seen]
    plain = across == "time" and up == "energy"
    ends = {}
    if len(place.front) > 1:
        ends = {place.front[0]: "fastest", place.front[-1]: "least energy"}
        if points[place.front[0]][0] > points[place.front[-1]][0] and across == "time":
            ends = dict(zip(ends, reversed(ends.values()), strict=True))
    return ChartMarks(
        points, marks, special, place.front, place.polygon,
        board.window(points, place), (padded(min(xs), max(xs)), padded(min(ys), max(ys))),
        view.axis_title(across), view.axis_title(up), steps, points[board.baseline],
        points[board.baseline] if plain else None, board.bound(across), ends,
        board.spreads(across, up), board.disturbed,
    )  # fmt: skip


def _role(board: TradeOffView, option: Option) -> str:
    if board.transferred(option):
        return "estimated"
    return "measured" if option.measured else "predicted"


def padded(low: float, high: float, share: float = 0.03) -> PlotPoint:
    """Return an axis a little longer than its values, at both ends."""
    margin = share * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin
