"""One of several: ``(•) this  ( ) that``, readable without colour.

One widget, not a button for each: Textual styles, lays out and mounts every widget by itself.
"""

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

from advisor_tui.ink import ink


class Picks(Widget, can_focus=True):
    """Pairs of (key, label), one below the other or in a row; the arrows choose at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "previous", show=False),
        Binding("right,space,enter", "step(1)", "next", show=False),
        Binding("up,k", "go(-1)", "up", show=False),
        Binding("down,j", "go(1)", "down", show=False),
    ]

    at: reactive[int] = reactive(0)
    """The number of what is chosen."""

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
        self._row = row
        self.offer(options)

    def offer(self, options: Sequence[tuple[str, str]]) -> None:
        """Offer these from now on, the first one chosen."""
        self._keys = [key for key, _ in options]
        self._labels = [label for _, label in options]
        self.set_reactive(Picks.at, 0)
        self.refresh(layout=True)

    @property
    def key(self) -> str:
        """The key of what is chosen."""
        return self._keys[self.at]

    def choose(self, key: str) -> None:
        """Choose by key, if there is such."""
        if key in self._keys:
            self.at = self._keys.index(key)

    def action_step(self, offset: int) -> None:
        """Choose the next one."""
        self.at = (self.at + offset) % len(self._keys)

    async def action_go(self, offset: int) -> None:
        """Choose the one above or below; beyond the last one go on to the next field."""
        if self._row or not 0 <= self.at + offset < len(self._keys):
            await self.run_action("app.focus_next" if offset > 0 else "app.focus_previous")
        else:
            self.action_step(offset)

    def watch_at(self, old: int, new: int) -> None:
        """Tell of another choice."""
        if old != new:
            self.post_message(self.Changed(self))

    # -- painting --------------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the lines it takes."""
        return len(self._lines(width))

    def _lines(self, width: int) -> list[list[tuple[int, str]]]:
        """Return number and text of what stands in each line; ``▸`` is where the keys act.

        What does not fit into a row goes on in the next line.
        """
        lines: list[list[tuple[int, str]]] = []
        room = 0
        for number, label in enumerate(self._labels):
            is_chosen = number == self.at
            cursor = "▸" if is_chosen and self.has_focus else " "
            text = f"{cursor}({'•' if is_chosen else ' '}) {label}"
            if not self._row or cell_len(text) > room:
                lines.append([])
                room = width
            lines[-1].append((number, f"{text}  " if self._row else text))
            room -= cell_len(text) + 2
        return lines

    def _items(self, y: int) -> list[tuple[int, str]]:
        lines = self._lines(self.size.width)
        return lines[y] if y < len(lines) else []

    def render_line(self, y: int) -> Strip:
        """Paint a line."""
        base = ink(self)
        segments = []
        for number, text in self._items(y):
            style = base
            if number == self.at:
                style = ink(self, "bold $accent" if self.has_focus else "bold")
            segments.append(Segment(text, style))
        width = self.size.width
        return Strip(segments).crop(0, width).extend_cell_length(width, base)

    def on_click(self, event: Click) -> None:
        """Choose what was clicked."""
        column = 0
        for number, text in self._items(event.y):
            if not self._row or column <= event.x < column + cell_len(text):
                self.at = number
            column += cell_len(text)
