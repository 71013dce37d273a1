"""The phases of a sweep's program: iterations, caps by phase, power inside an iteration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from advisor_tui.background import begin
from advisor_tui.boxes import Scrolled
from advisor_tui.shell import Page
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from advisor.training.progress import Progress

_MARGIN = 4
"""Columns beside the picture."""


class PhasesPage(Page):
    """What was seen of the complete run of a sweep."""

    TITLE = "Phases of the program"
    PLACE = "training"
    HELP = """\
Most programs repeat themselves. This is what was seen of the sweep's
complete run: its phases and their iterations, and the power inside an
iteration where the node's meter could be read.

The best cap of each phase is what would need the least energy if caps
could change inside of a run. Nothing is set by it.
"""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "back", "back")]

    def __init__(self, sweep: Progress) -> None:
        super().__init__()
        self._sweep = sweep

    def body(self) -> Iterable[Widget]:
        """Yield the lines."""
        yield Static(
            Content(f"Phases of {self._sweep.application} / {self._sweep.workload}"),
            classes="title",
        )
        with Scrolled(id="phases"):
            yield Static("reading ...", id="phases-text")

    def on_mount(self) -> None:
        """Begin to read."""
        self.set_focus(self.query_one("#phases"))
        begin(self, self._load, group="phases", exclusive=True)

    async def _load(self) -> None:
        from advisor_lab.phases.caps import SLOWDOWN
        from advisor_lab.phases.views import phases_of_sweep

        folder, width = self._sweep.folder, max(40, self.size.width - _MARGIN)
        lines = await self.ask(lambda: phases_of_sweep(folder, SLOWDOWN, width))
        if lines is not None and self.is_attached:
            self.query_one("#phases-text", Static).update(Content("\n".join(lines)))

    def action_back(self) -> None:
        """Go back to the list."""
        self.dismiss()
