"""The node types of a workload in order, and how that order is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from advisor.core.units import duration_like, format_energy
from advisor.plotting.chart import Marks
from advisor.plotting.terminal_statistics import draw_statistics
from advisor.views.ranking import RankedRow, intervals
from advisor.views.tradeoff import Boards
from advisor_tui import signs
from advisor_tui.dialogue import Dialogue
from advisor_tui.table import Cell, Column, LazyTable

SIGNS = {"measured": signs.MEASURED, "predicted": signs.PREDICTED, "estimated": signs.ESTIMATED}
_COLUMNS = (
    Column("", 2, right=True),
    Column("Node type", 12, flex=1),
    Column("Fastest", 11, right=True),
    Column("Energy", 9, right=True),
    Column("How it is known", 20, flex=2),
)
_BOX, _WIDTH, _TABLE, _OTHER_LINES, _AROUND = 0.9, 70, 8, 9, 3
"""Share of the screen that a dialogue may take; columns before it has a size; most lines of the
table; lines beside table and picture; lines of the picture beside the node types'."""


def figures(boards: Boards, rank: RankedRow) -> tuple[str, str]:
    """Return time and energy of a node type as text, ``~`` before what is estimated."""
    about = "~" if rank.kind == "estimated" else ""
    time = duration_like(boards.ranking[-1].time_s)(rank.time_s)
    energy = "not known" if rank.energy_j is None else about + format_energy(rank.energy_j)
    return f"{about}{time}", energy


class RankingDialogue(Dialogue[str]):
    """The ranking; Enter shows a node type's options, where there are any."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "show its options")]
    KEYS = "Enter shows its options.  Esc closes"

    def __init__(self, boards: Boards) -> None:
        super().__init__(f"Node types for {boards.application} / {boards.workload}, fastest first")
        self._boards = boards

    def body(self) -> Iterable[Widget]:
        """Yield the table, how the one under the cursor is known, and what would add to it."""
        yield LazyTable(_COLUMNS, id="ranking")
        yield Static("", id="how")
        yield Static("", id="intervals")
        if self._boards.unranked:
            names = ", ".join(self._boards.unranked)
            yield Static(
                Content(
                    f"Nothing is known of {names}: advisor lab bench measures a node, "
                    f"advisor lab rank {self._boards.application} then estimates, without "
                    "running it there."
                ),
                classes="hint",
            )

    def on_mount(self) -> None:
        """Fill the table."""
        table = self.query_one(LazyTable)
        rows: list[list[Cell]] = []
        for place, rank in enumerate(self._boards.ranking, 1):
            time, energy = figures(self._boards, rank)
            source_cell: Cell = (f"{SIGNS[rank.kind]} {rank.brief}", _ROLES[rank.kind])
            rows.append([str(place), (rank.node_type, "strong"), time, energy, source_cell])
        table.styles.height = min(_TABLE, len(rows) + 1)
        table.reset(len(rows))
        table.fill(0, rows)
        self.set_focus(table)
        self._say()
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        """Draw the times with their intervals as wide as the box, where there is room for it."""
        picture = self.query_one("#intervals", Static)
        panel = intervals(self._boards.ranking)
        table = min(_TABLE, len(panel.rows) + 1)
        room = int(_BOX * self.app.size.height) - table - _OTHER_LINES
        room -= 2 * bool(self._boards.unranked)
        if len(panel.rows) > 1 and room >= len(panel.rows) + _AROUND:
            text = draw_statistics(panel, picture.size.width or _WIDTH, Marks())
            picture.update(Content(text))

    @on(LazyTable.Moved)
    def _say(self) -> None:
        rank = self._boards.ranking[self.query_one(LazyTable).cursor]
        where = f"fastest at {rank.where}; " if rank.where else ""
        self.query_one("#how", Static).update(Content(f"{rank.node_type}: {where}{rank.how}"))

    @on(LazyTable.Opened)
    def action_open(self) -> None:
        """Show the options of the node type under the cursor."""
        self.dismiss(self._boards.ranking[self.query_one(LazyTable).cursor].node_type)


_ROLES = {"measured": "good", "predicted": "", "estimated": "warn"}
