"""The last lines: what was noticed, while it is news, and the keys of the page."""

from __future__ import annotations

from rich.segment import Segment
from textual.binding import Binding
from textual.content import Content
from textual.events import Click
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from advisor_tui.ink import ink

_LASTS_S = {"information": 8.0, "warning": 15.0, "error": 30.0}
"""Seconds a notice stays."""
_NAMES = {
    "escape": "esc",
    "question_mark": "?",
    "slash": "/",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
}


def key_name(key: str) -> str:
    """Return how a key is written: ``esc``, ``/``, ``ctrl+p``."""
    return _NAMES.get(key, key)


class Notice(Static):
    """What was noticed, in lines of its own, which are not there otherwise."""

    _until: Timer | None = None

    def tell(self, text: str, severity: str) -> None:
        """Show a notice until it is old, or another takes its place."""
        if self._until is not None:
            self._until.stop()
        self.update(Content(text))
        self.set_classes(f"-{severity}")
        self._until = self.set_timer(_LASTS_S[severity], self.clear)

    def clear(self) -> None:
        """Give the lines back."""
        self.set_classes("")


class Keys(Widget):
    """One line: keys and what they do, as many as there is room for; a click presses one."""

    def on_mount(self) -> None:
        """Repaint whenever other keys hold."""
        self.screen.bindings_updated_signal.subscribe(self, self._keys_changed)

    def _keys_changed(self, screen: Screen[object]) -> None:
        self.refresh()

    def _shown(self) -> list[Binding]:
        """Return the keys from the left, without those that do not fit; help is never left out."""
        bindings: dict[str, Binding] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and binding.description:
                bindings.setdefault(binding.action, binding)
        last = [b for b in bindings.values() if b.action == "help"]
        first = [b for b in bindings.values() if b.action != "help"]
        while first and sum(_width(b) for b in (*first, *last)) > self.size.width:
            first.pop()
        return first + last

    def render_line(self, y: int) -> Strip:
        """Paint the line."""
        description_style, key_style = ink(self), ink(self, "bold $text-accent")
        segments = []
        for binding in self._shown():
            segments.append(Segment(f" {key_name(binding.key)}", key_style))
            segments.append(Segment(f" {binding.description}  ", description_style))
        return Strip(segments).adjust_cell_length(self.size.width, description_style)

    def on_click(self, event: Click) -> None:
        """Do what the key under the mouse does."""
        column = 0
        for binding in self._shown():
            if column <= event.x < column + _width(binding):
                self.app.simulate_key(binding.key)
                return
            column += _width(binding)


def _width(binding: Binding) -> int:
    return len(key_name(binding.key)) + len(binding.description) + 4
