"""The node types of a workload in order, and how that order is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from advisor.core.units import duration_like, format_energy
from advisor.views.tradeoff import Boards
from advisor_tui.dialogue import Dialogue
from advisor_tui.table import Cell, Column, LazyTable

_COLUMNS = (
    Column("", 2, right=True),
    Column("Node type", 12, flex=1),
    Column("Fastest", 9, right=True),
    Column("Energy", 9, right=True),
    Column("How it is known", 20, flex=2),
)


class RankingDialogue(Dialogue[str]):
    """The ranking; Enter shows a node type's options, where there are any."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "show its options")]

    def __init__(self, boards: Boards) -> None:
        super().__init__(f"Node types for {boards.application} / {boards.workload}, fastest first")
        self._boards = boards

    def body(self) -> Iterable[Widget]:
        """Yield the table, and what would make it longer."""
        yield LazyTable(_COLUMNS, id="ranking")
        yield Static(
            "No ranking of other node types yet: advisor bench measures the nodes, advisor rank "
            "then tells how this application would run there without running it.",
            classes="hint",
        )

    def on_mount(self) -> None:
        """Fill the table."""
        table = self.query_one(LazyTable)
        rows: list[list[Cell]] = []
        as_time = duration_like(self._boards.ranking[-1].time_s)
        for place, rank in enumerate(self._boards.ranking, 1):
            energy = "not known" if rank.energy_j is None else format_energy(rank.energy_j)
            rows.append(
                [str(place), (rank.node_type, "strong"), as_time(rank.time_s), energy,
                 rank.how]
            )  # fmt: skip
        table.reset(len(rows))
        table.fill(0, rows)
        self.set_focus(table)

    @on(LazyTable.Opened)
    def action_open(self) -> None:
        """Show the options of the node type under the cursor."""
        self.dismiss(self._boards.ranking[self.query_one(LazyTable).cursor].node_type)
