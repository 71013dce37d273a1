"""A question over the page, something to read and yes or no; and a line to type into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Button, Input, Static
from textual.widgets.button import ButtonVariant

from advisor_tui.boxes import Below, Scrolled, SideBySide
from advisor_tui.keys import Notice
from advisor_tui.paint_once import PaintOnce, StyleOnce

T = TypeVar("T")


class Field(Input, StyleOnce):
    """A line to type into; Up and Down go on to the fields around it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]

    def blank(self, placeholder: str) -> None:
        """Hold nothing, and complete nothing."""
        with self.prevent(Input.Changed):
            self.value = ""
        self.placeholder, self.suggester = placeholder, None

    def suggest(self, folder: Path, scripts: Sequence[Path]) -> None:
        """Complete what is typed with the job scripts of a folder."""
        names = [str(path.relative_to(folder)) for path in scripts]
        if names:
            self.suggester = SuggestFromList(names)
            self.placeholder = f"for instance {names[0]} (→ completes what you type)"


class Push(Button, StyleOnce):
    """A button of one line."""

    def __init__(
        self, label: str, *, id: str, variant: ButtonVariant = "default", disabled: bool = False
    ) -> None:
        super().__init__(label, variant, id=id, disabled=disabled, compact=True)


class Dialogue(ModalScreen[T], PaintOnce[T]):
    """A box in the middle of the page; Esc leaves it without a result."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "cancel")]
    KEYS: ClassVar[str] = "Esc closes"

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        """Lay out the title and what is in the box."""
        with Below():
            yield Static(Content(self._title), classes="dialogue-title")
            yield from self.body()
            yield Notice()
            yield Static(self.KEYS, classes="keys")

    def body(self) -> Iterable[Widget]:
        """Yield what is in the box."""
        return ()

    def action_leave(self) -> None:
        """Close without a result."""
        self.dismiss(None)


class Confirm(Dialogue[bool]):
    """A question with a text to read; the answer is True, False or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n", "answer(False)", "no"),
    ]
    KEYS = "Esc changes nothing"

    def __init__(self, title: str, text: Content, yes: str = "Yes") -> None:
        super().__init__(title)
        self._text, self._yes = text, yes

    def body(self) -> Iterable[Widget]:
        """Yield the text and two buttons."""
        with Scrolled():
            yield Static(self._text)
        with SideBySide(classes="row"):
            yield Push(f"{self._yes} (y)", id="yes", variant="primary")
            yield Push("No (n)", id="no")

    @on(Button.Pressed)
    def _button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Close with an answer."""
        self.dismiss(answer)


def painted_diff(lines: Iterable[str]) -> Content:
    """Return a difference, what is added and what goes in colours of their own."""
    styles = {"+": "$success", "-": "$error", "@": "$accent"}
    parts = []
    for line in lines:
        style = "bold" if line.startswith(("+++", "---")) else styles.get(line[:1], "")
        parts.append(Content.styled(line + "\n", style) if style else Content(line + "\n"))
    return Content.assemble(*parts)
