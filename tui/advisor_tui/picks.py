"""One of several: ``(•) this  ( ) that``, told apart without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget


class Picks(Widget, can_focus=True):
    """Pairs of (key, label), one below the other or in a row; the arrows choose."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "previous", show=False),
        Binding("right,space", "step(1)", "next", show=False),
        Binding("up,k", "go(-1)", "up", show=False),
        Binding("down,j", "go(1)", "down", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"picks--on", "picks--focus"}

    at: reactive[int] = reactive(0)

    class Changed(Message):
        """Another one was chosen."""

        def __init__(self, picks: Picks) -> None:
            super().__init__()
            self.picks = picks

        @property
        def control(self) -> Picks:
            """The widget."""
            return self.picks

    def __init__(
        self, options: Sequence[tuple[str, str]], *, row: bool = False, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._options, self._row = tuple(options), row

    @property
    def key(self) -> str:
        """The key of what is chosen."""
        return self._options[self.at][0]

    def choose(self, key: str) -> None:
        """Choose by key, if there is such."""
        keys = [k for k, _ in self._options]
        if key in keys:
            self.at = keys.index(key)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines it takes."""
        return 1 if self._row else len(self._options)

    def action_step(self, by: int) -> None:
        """Choose the next one."""
        self.at = (self.at + by) % len(self._options)

    async def action_go(self, by: int) -> None:
        """Choose the one above or below; beyond the last one go on to the next field."""
        if self._row or not 0 <= self.at + by < len(self._options):
            await self.run_action("app.focus_next" if by > 0 else "app.focus_previous")
        else:
            self.at += by

    def watch_at(self, old: int, new: int) -> None:
        """Tell of another one."""
        if old != new:
            self.post_message(self.Changed(self))

    def _text(self, number: int) -> str:
        on = number == self.at
        mark = "▸" if on and self.has_focus else " "
        return f"{mark}({'•' if on else ' '}) {self._options[number][1]}"

    def render_line(self, y: int) -> Strip:
        """Paint one option, or all of them in a row."""
        base, width = self.rich_style, self.size.width
        numbers = range(len(self._options)) if self._row else [y]
        segments = []
        for number in numbers:
            if not 0 <= number < len(self._options):
                continue
            style = base
            if number == self.at:
                kind = "picks--focus" if self.has_focus else "picks--on"
                style = base + self.get_component_rich_style(kind, partial=True)
            segments.append(Segment(self._text(number), style))
            segments.append(Segment("  " if self._row else "", base))
        return Strip(segments).crop(0, width).extend_cell_length(width, base)

    def on_click(self, event: Click) -> None:
        """Choose what was clicked."""
        if not self._row:
            self.at = max(0, min(event.y, len(self._options) - 1))
            return
        start = 0
        for number in range(len(self._options)):
            end = start + cell_len(self._text(number)) + 2
            if start <= event.x < end:
                self.at = number
                return
            start = end
