"""What of a workload's options is shown: node type, axes, which of them, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from advisor.core.pareto import TradeOff
from advisor.plotting import PlotPoint
from advisor.views import tradeoff as view
from advisor.views.narrow import ORDERS, Narrowing, ordered
from advisor.views.tradeoff import Across, TradeOffView, Up
from advisor_tui import points
from advisor_tui.signs import ChartMarks

Which = Literal["front", "zone", "all"]
_WHICH: tuple[Which, ...] = ("front", "zone", "all")
_AXES: tuple[tuple[Across, Up], ...] = (
    ("time", "energy"),
    ("performance", "energy"),
    ("performance", "efficiency"),
    ("time", "efficiency"),
)


@dataclass(slots=True)
class Shown:
    """What a person wants to see. ``steps`` are the numbers of the options in the list."""

    node_type: str = view.EVERY
    which: Which = "front"
    axes: int = 0
    narrowing: Narrowing = field(default_factory=Narrowing)
    order: str = ""
    parameter: int = 0
    """The number of the size's parameter that keys change."""
    steps: list[int] = field(default_factory=list)
    points: Sequence[PlotPoint] = ()

    @property
    def across(self) -> Across:
        """The axis across."""
        return _AXES[self.axes][0]

    @property
    def up(self) -> Up:
        """The axis upwards."""
        return _AXES[self.axes][1]

    def next_axes(self) -> None:
        """Take the next pair of axes."""
        self.axes = (self.axes + 1) % len(_AXES)

    def next_which(self) -> None:
        """List front, zone, or everything."""
        self.which = _WHICH[(_WHICH.index(self.which) + 1) % len(_WHICH)]

    def next_order(self) -> None:
        """Take the next order of the list."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]

    def arrange(self, board: TradeOffView) -> ChartMarks | None:
        """Fill ``points`` and ``steps``, and return the picture; None where no energy is known."""
        place: TradeOff | None = None
        if board.view.energy_known:
            self.points = board.points(self.across, self.up)
            place = board.place(self.across, self.up)
        else:
            self.points = [(o.time_s, 0.0) for o in board.options]
        base, fits = board.view.baseline, self.narrowing.holds
        walked = view.walk(board, self.points, place, "all" if self.narrowing.text else self.which)
        listed = [n for n in walked if n == board.baseline or fits(board.options[n], base)]
        self.steps = ordered(board.options, listed, self.order)
        if place is None:
            return None
        hidden = set(board.disturbed)
        if self.narrowing.text:
            special = {board.policy_at, board.yours_at, *listed}
            hidden |= {n for n in range(len(board.options)) if n not in special}
        return points.picture(board, self.points, place, self.steps, self.across, self.up, hidden)

    def begin_at(self, board: TradeOffView, current_number: int | None = None) -> int:
        """Return the option to look at first: the current one, yours, the policy's, as written."""
        special = (current_number, board.yours_at, board.policy_at, board.baseline)
        return self.near(next(n for n in special if n is not None))

    def near(self, number: int) -> int:
        """Return an option of the list: this one, or the one nearest to it across."""
        if number in self.steps:
            return number
        return min(self.steps, key=lambda i: abs(self.points[i][0] - self.points[number][0]))

    def words(self, board: TradeOffView) -> str:
        """Say which options the list holds."""
        which = self.narrowing.text or self.which
        order = f" by {self.order}" if self.order else ""
        left_out = f", {len(board.disturbed)} outliers left out" if board.disturbed else ""
        return f"{which} {len(self.steps)}/{len(board.options)}{left_out}{order}"
