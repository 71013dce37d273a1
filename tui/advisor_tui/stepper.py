"""One value of several, changed with the arrow keys or the mouse: a slider of one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from advisor_tui.ink import ink


class Stepper(Widget, can_focus=True):
    """``label  ‹ value ›``, with a slider where the values are steps of one quantity."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,minus", "step(-1)", "less", show=False),
        Binding("right,plus,space", "step(1)", "more", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("home", "step(-999)", "least", show=False),
        Binding("end", "step(999)", "most", show=False),
    ]

    at: reactive[int] = reactive(0)

    class Changed(Message):
        """Another value was chosen."""

        def __init__(self, stepper: Stepper) -> None:
            super().__init__()
            self.stepper = stepper

        @property
        def control(self) -> Stepper:
            """The stepper."""
            return self.stepper

    def __init__(
        self,
        label: str,
        values: Sequence[str],
        position: int = 0,
        *,
        slider: bool = False,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._label, self._values, self._slider = label, tuple(values), slider
        self.set_reactive(Stepper.at, max(0, min(position, len(values) - 1)))

    @property
    def value(self) -> str:
        """The chosen value."""
        return self._values[self.at]

    def begin_at(self, value: str) -> None:
        """Begin with a value, if it is one of them: nobody has changed anything."""
        if value in self._values:
            self.set_reactive(Stepper.at, self._values.index(value))
            self.refresh()

    def action_step(self, offset: int) -> None:
        """Go on by some values; without a slider from the last to the first."""
        last = len(self._values) - 1
        position = self.at + offset
        if not self._slider and abs(offset) == 1:
            position %= last + 1
        self.at = max(0, min(last, position))

    def watch_at(self, old: int, new: int) -> None:
        """Tell of another value."""
        if old != new:
            self.post_message(self.Changed(self))

    def _text(self) -> str:
        width = max(map(len, self._values))
        if self._slider:
            track = "".join("●" if i == self.at else "─" for i in range(len(self._values)))
            return f"├{track}┤ {self.value:<{width}}"
        return f"‹ {self.value:^{width}} ›"

    def render_line(self, y: int) -> Strip:
        """Paint the line."""
        base = ink(self)
        style = ink(self, "bold $accent" if self.has_focus else "$foreground")
        mark = "▸" if self.has_focus else " "
        strip = Strip([Segment(f"{mark}{self._label} ", base), Segment(self._text(), style)])
        return strip.crop(0, self.size.width).extend_cell_length(self.size.width, base)

    def on_click(self, event: Click) -> None:
        """Take the value under the mouse, or the next one."""
        column = event.x - len(self._label) - 2
        if self._slider and 1 <= column <= len(self._values):
            self.at = column - 1
        elif column >= 0:
            self.action_step(-1 if column <= 1 else 1)
