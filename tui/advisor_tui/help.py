"""What a page is for, its signs and its keys, on a page of its own."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from advisor_tui.paint_once import PaintOnce
from advisor_tui.places import PLACES
from advisor_tui.shell import Page

EVERYWHERE = f"""\
{f"1 to {len(PLACES)}":<8} {", ".join(place.title for place in PLACES):<41} Esc  back
Ctrl+P   every command by name, and themes         Tab  next part
u        undo the last change of a file       q    leave
Mouse    click to choose, double click to open, wheel to zoom
"""


class HelpScreen(ModalScreen[None], PaintOnce[None]):
    """The help of one page."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,q,enter", "dismiss", "close"),
        Binding("down,j", "scroll('down')", show=False),
        Binding("up,k", "scroll('up')", show=False),
    ]

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with VerticalScroll() as scroll:
            scroll.border_subtitle = "Esc closes"
            yield Static()

    def explain(self, page: Page) -> None:
        """Have it say what a page is for."""
        self._page = page

    def opened(self) -> None:
        """Write the text."""
        page = self._page
        self.query_one(VerticalScroll).border_title = f"Help: {type(page).TITLE}"
        parts = (type(page).HELP, f"On this page\n{keys_of(page)}", f"Everywhere\n{EVERYWHERE}")
        self.query_one(Static).update(Content("\n".join(parts)))

    def action_scroll(self, way: str) -> None:
        """Scroll the text."""
        scroll = self.query_one(VerticalScroll)
        (scroll.scroll_down if way == "down" else scroll.scroll_up)(animate=False)


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
    known = {
        "slash": "/", "plus": "+", "minus": "-", "question_mark": "?", "escape": "Esc",
        "enter": "Enter", "left": "←", "right": "→", "up": "↑", "down": "↓",
        "equals_sign": "=", "space": "Space",
    }  # fmt: skip
    return known.get(key, key.replace("ctrl+", "Ctrl+"))
