"""One of several: ``(•) this  ( ) that``, readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.widgets import RadioButton, RadioSet


class _Pick(RadioButton):
    """A button whose sign, not only its colour, shows whether it is on."""

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the cells it takes."""
        return self.label.cell_length + 7

    def render(self) -> Content:
        """Paint sign and label; ``▸`` where the keys act."""
        mark = (
            "▸" if self.value and isinstance(self.parent, Picks) and self.parent.has_focus else " "
        )
        return Content.assemble(f"{mark}({'•' if self.value else ' '}) ", self.label)


class Picks(RadioSet):
    """Pairs of (key, label), one below the other or in a row; the arrows choose at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "previous", show=False),
        Binding("right,space,enter", "step(1)", "next", show=False),
        Binding("up,k", "go(-1)", "up", show=False),
        Binding("down,j", "go(1)", "down", show=False),
    ]

    def __init__(
        self, options: Sequence[tuple[str, str]], *, row: bool = False, id: str | None = None
    ) -> None:
        buttons = [_Pick(Content(label), number == 0) for number, (_, label) in enumerate(options)]
        super().__init__(*buttons, id=id, compact=True, classes="row" if row else None)
        self._keys, self._row = [key for key, _ in options], row

    @property
    def at(self) -> int:
        """The number of what is chosen."""
        return max(0, self.pressed_index)

    @property
    def key(self) -> str:
        """The key of what is chosen."""
        return self._keys[self.at]

    def choose(self, key: str) -> None:
        """Choose by key, if there is such."""
        if key in self._keys:
            self.query(_Pick)[self._keys.index(key)].value = True

    def action_step(self, by: int) -> None:
        """Choose the next one."""
        self.choose(self._keys[(self.at + by) % len(self._keys)])

    async def action_go(self, by: int) -> None:
        """Choose the one above or below; beyond the last one go on to the next field."""
        if self._row or not 0 <= self.at + by < len(self._keys):
            await self.run_action("app.focus_next" if by > 0 else "app.focus_previous")
        else:
            self.action_step(by)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show where the keys act."""
        super().watch_has_focus(has_focus)
        for pick in self.query(_Pick):
            pick.refresh()
