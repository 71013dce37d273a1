"""The top line: where one is, where one can go, and how store and daemon are doing."""

from __future__ import annotations

from rich.segment import Segment
from textual.events import Click
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from advisor_tui.ink import ink
from advisor_tui.places import PLACES

_LEAST = 10
"""Cells from which on a part of the status is shown; with fewer ``!`` says that all is not well."""


class Bar(Widget):
    """One line; a click on a place goes there."""

    status: reactive[str] = reactive("")
    brief: reactive[str] = reactive("")
    """What stands there when the status is too long."""
    trouble: reactive[bool] = reactive(False)

    def __init__(self, place_name: str) -> None:
        super().__init__()
        self._here = place_name

    def _parts(self) -> list[tuple[str, str, str]]:
        """Return (text, colour, place) from the left."""
        parts = [(" advisor ", "bold $primary", "")]
        for number, place in enumerate(PLACES, 1):
            is_current, title = place.name == self._here, f"{number} {place.title}"
            text = f"[{title}]" if is_current else f" {title} "
            parts.append((text, "bold $accent" if is_current else "$foreground", place.name))
        return parts

    def render_line(self, y: int) -> Strip:
        """Paint the line: the places, and at the right end the status as far as there is room."""
        style = ink(self)
        segments = [Segment(text, ink(self, colour)) for text, colour, _ in self._parts()]
        used = sum(s.cell_length for s in segments)
        room = self.size.width - used - 1
        status = self.status if len(self.status) <= room else self.brief
        if len(status) > room:  # a few letters say nothing
            status = status[: room - 1] + "…" if room >= _LEAST else "!" * self.trouble
        if room > 0:
            colour = "bold $warning" if self.trouble else "dim"
            segments.append(Segment(" " * (room - len(status)), style))
            segments.append(Segment(status, ink(self, colour)))
        return Strip(segments).extend_cell_length(self.size.width, style)

    async def on_click(self, event: Click) -> None:
        """Go to the place that was clicked."""
        column = 0
        for text, _, place in self._parts():
            if column <= event.x < column + len(text) and place:
                await self.app.run_action(f"go('{place}')")
                return
            column += len(text)
