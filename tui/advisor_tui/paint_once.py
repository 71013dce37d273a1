"""A screen that is styled, laid out and painted once when it opens.

Textual 8 styles a new screen twice, lays it out three times and paints it up to five times before
it rests: half of what a key costs that opens one.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress

from textual import on
from textual.app import ScreenStackError
from textual.events import Mount, Resize, ScreenResume, ScreenSuspend
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType
from textual.widget import Widget

from advisor_tui.background import finished
from advisor_tui.keys import Notice

FIRST_S = 0.05
"""Seconds for which a screen waits for what it reads; it paints what it has after that."""
LATER = ("look", "ahead", "first", "measured", "whatif-load", "jobs-more")
"""Groups of work that nobody waits for: its results come into what is shown."""
UNSEEN_S = 0.5
"""Seconds for which work that can wait waits for a painting; the screen may have been left."""
SETTLED_S = 0.005
"""Seconds in which widgets that were changed have asked for all they want."""


class StyleOnce(Widget):
    """A widget that leaves its styles to its mounting while it is still being made.

    It comes last among the bases: Textual takes a widget's style sheet from the first.
    """

    def update_node_styles(self, animate: bool = True) -> None:
        """Give it the styles of its classes and state."""
        if self.is_attached:
            super().update_node_styles(animate)


class PaintOnce(Screen[ScreenResultType]):
    """The base of every screen of the program, the last one of a screen that has others."""

    def __init__(
        self, name: str | None = None, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(name, id, classes)
        self._new = True
        self._held: asyncio.Task[None] | None = None
        self._rehearsing = False
        self._shown = asyncio.Event()
        """Set once what was held back is painted."""
        self.styled_for = getattr(self.app, "styled_for", "")
        """The theme whose styles it has: those that hold when it is made, before it is shown."""
        self._named_by(self.app.size)  # from the first, not once everything is mounted and styled

    def _named_by(self, size: Size) -> bool:
        """Take the classes of a size; tell whether others were there."""
        former_classes = self.classes
        for breakpoints, cells in zip(
            (self.app.HORIZONTAL_BREAKPOINTS, self.app.VERTICAL_BREAKPOINTS), size, strict=True
        ):
            names = [name for least, name in breakpoints or () if cells >= least]
            self.remove_class(*(name for _, name in breakpoints or ()), update=False)
            self.add_class(*names[-1:], update=False)
        return self.classes != former_classes

    def _styled_by(self, size: Size) -> bool:
        """Take the styles of a size; tell whether others held."""
        if changed := self._named_by(size):
            self.app.stylesheet.update(self)
        return changed

    @on(Mount)
    def _paint_whole(self) -> None:
        """Have everything painted, once all is there."""
        self.refresh()

    @on(ScreenResume)
    def _shown_again(self, event: ScreenResume) -> None:
        """Keep the styles that the screen has, unless the theme is another one now."""
        event.refresh_styles = self.styled_for != self.app.theme
        self.styled_for = self.app.theme
        self._styled_by(self.app.size)
        if self._new:
            self._new = False
            self.opened()
            self.hold()

    @property
    def is_new(self) -> bool:
        """Whether it is yet to be opened."""
        return self._new

    def opened(self) -> None:
        """Do what is to be done once, when the screen is shown and not merely made."""

    def as_new(self) -> None:
        """Forget what was shown, and end what was begun, before it is opened again."""
        if not self._new:
            self._new = True
            self.workers.cancel_node(self)
            for notice in self.query(Notice):
                notice.clear()
            self.blank()

    def blank(self) -> None:
        """Show what a new one shows, but for what ``opened`` writes."""

    def hold(self) -> None:
        """Paint nothing until what was just begun beside the screen is there, but not for long.

        All that a key changes is then laid out and painted once.
        """
        self._shown.clear()
        batch = ExitStack()
        batch.enter_context(self.app.batch_update())
        self._held = asyncio.ensure_future(self._release(batch))

    async def _release(self, batch: ExitStack) -> None:
        with batch:
            await self.first_read()
            await asyncio.sleep(SETTLED_S)
        with suppress(ScreenStackError):  # the program is being left
            self.app.screen.refresh()  # another one may be shown by now
        self.call_after_refresh(self._shown.set)

    async def first_read(self) -> None:
        """Wait for what the screen reads, but not for long."""
        reads = [w for w in self.app.workers if w.node is self and w.group not in LATER]
        await finished(reads, FIRST_S)

    async def painted(self) -> None:
        """Wait until what was held back is painted; for work that somebody can watch."""
        if self._held is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._shown.wait(), UNSEEN_S)

    async def ahead(self) -> None:
        """Make more of the screen, when it is made ahead."""

    async def rehearse(self) -> None:
        """Lay the screen out and paint it for nobody: styles and lines are known by then."""
        size = self.app.size
        self._rehearsing = True  # what is shown may be another part, of the same size
        self.stack_updates += 1  # Textual lays out no screen that was never shown
        self.post_message(Resize(size, size))
        laid_out = asyncio.Event()
        self.call_later(laid_out.set)
        await laid_out.wait()
        self.stack_updates -= 1
        self._rehearsing = False
        for widget in self.walk_children(Widget):
            if widget.is_on_screen:
                widget.render_lines(widget.size.region)

    @on(ScreenSuspend)
    def _left(self) -> None:
        """Be laid out once when it is shown again: switch_mode would do it before, in any case."""
        self.stack_updates = -1  # 0 once Textual has counted; it then looks for another size only

    @on(Resize)
    def _laid_out(self, event: Resize) -> None:
        """Lay out for a size once, in its styles: a screen learns of its own layout, too."""
        changed = self._styled_by(event.size) or event.size != self.outer_size
        if not (changed or self._rehearsing):
            event.stop()
            event.prevent_default()
