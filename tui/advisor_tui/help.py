"""What a page is for, its signs and its keys, on a page of its own."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from advisor_tui.boxes import Scrolled
from advisor_tui.jobs import hanging
from advisor_tui.paint_once import PaintOnce
from advisor_tui.places import PLACES
from advisor_tui.shell import Page

EVERYWHERE = f"""\
{f"1 to {len(PLACES)}":<8} {", ".join(place.title for place in PLACES)}
Ctrl+P   every command by name, and themes
u        undo the last change of a file
Tab      next part          Esc  back          q  leave
Mouse    click to choose, double click to open, wheel to zoom
"""
_SHARE, _MOST, _FRAME = 0.96, 110, 6
"""Of the screen's columns, as style.tcss has it: the box's share, at most; frame, bar and air."""


class HelpScreen(ModalScreen[None], PaintOnce[None]):
    """The help of one page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,q,enter", "dismiss", "close"),
        Binding("down,j", "scroll('down')", show=False),
        Binding("up,k", "scroll('up')", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with Scrolled() as scroll:
            scroll.border_subtitle = "Esc closes"
            yield Static()

    def explain(self, page: Page) -> None:
        """Have it say what a page is for."""
        self._page = page

    def opened(self) -> None:
        """Write the text, as wide as there is room."""
        page = self._page
        self.query_one(Scrolled).border_title = f"Help: {type(page).TITLE}"
        width = min(_MOST, int(_SHARE * self.app.size.width)) - _FRAME
        parts = (
            joined(type(page).HELP),
            f"On this page\n{keys_of(page)}",
            f"Everywhere\n{EVERYWHERE}",
        )
        lines = [part for line in "\n".join(parts).split("\n") for part in hanging(line, width)]
        self.query_one(Static).update(Content("\n".join(lines)))

    def blank(self) -> None:
        """Begin at the top."""
        self.query_one(Scrolled).scroll_home(animate=False)

    def action_scroll(self, way: str) -> None:
        """Scroll the text."""
        scroll = self.query_one(Scrolled)
        (scroll.scroll_down if way == "down" else scroll.scroll_up)(animate=False)


def joined(text: str) -> str:
    """Return a text with the lines of each paragraph in one; lists and tables stay as they are."""
    lines: list[str] = []
    in_paragraph = False
    for line in text.split("\n"):
        prose = bool(line) and line[0] != " " and "  " not in line
        if prose and in_paragraph:
            lines[-1] += f" {line}"
        else:
            lines.append(line)
        in_paragraph = prose
    return "\n".join(lines)


def keys_of(page: Page) -> str:
    """Return the keys of a page as lines."""
    lines = []
    for binding in type(page).BINDINGS:
        if isinstance(binding, Binding) and binding.description:
            keys = page.advisor.keys.get(binding.action, binding.key)
            names = ", ".join(_name(key) for key in keys.split(","))
            lines.append(f"{names:<8} {binding.tooltip or binding.description}")
    return "\n".join(lines) + "\n"


def _name(key: str) -> str:
    key_names = {
        "slash": "/",
        "plus": "+",
        "minus": "-",
        "question_mark": "?",
        "escape": "Esc",
        "enter": "Enter",
        "left": "←",
        "right": "→",
        "up": "↑",
        "down": "↓",
        "equals_sign": "=",
        "space": "Space",
        "left_square_bracket": "[",
        "right_square_bracket": "]",
    }
    return key_names.get(key, key.replace("ctrl+", "Ctrl+"))
