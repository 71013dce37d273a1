"""A screen that is styled, laid out and painted once when it opens.

Textual 8 styles a new screen twice, lays it out three times and paints it up to five times before
it rests: half of what a key costs that opens one. Two methods of Textual's own are overridden; a
version that has others does as much as it always did.
"""

from __future__ import annotations

from textual import on
from textual.events import Mount, Resize, ScreenResume
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType
from textual.widget import Widget


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
        self._laid_out: Size | None = None
        self._fits = self.app.size
        """The size by which it has its classes."""
        # Made with the styles that hold now: switch_mode cannot know it and would parse them all
        # again, twice. Textual has no public way to say so.
        self._css_update_count = getattr(self.app, "_css_update_count", -1)
        for breakpoints, cells in zip(
            (self.app.HORIZONTAL_BREAKPOINTS, self.app.VERTICAL_BREAKPOINTS),
            self.app.size,
            strict=True,
        ):  # its size from the first, not once everything is mounted and styled
            names = [name for least, name in breakpoints or () if cells >= least]
            self.add_class(*names[-1:], update=False)

    @on(Mount)
    def _paint_whole(self) -> None:
        """Have everything painted, once all is there."""
        self.refresh()

    @on(ScreenResume)
    def _shown_again(self, event: ScreenResume) -> None:
        """Keep the styles that the screen has, unless the theme is another one now."""
        now = getattr(self.app, "_css_update_count", None)
        event.refresh_styles = now is None or self._css_update_count != now
        self._css_update_count = now or 0
        if self._new:
            self._new = False
            self.opened()

    def opened(self) -> None:
        """Do what is to be done once, when the screen is shown and not merely made."""

    async def ahead(self) -> None:
        """Make more of the screen, when it is made ahead."""

    @on(Resize)
    def _laid_out_already(self, event: Resize) -> None:
        """Lay out for a size once: a screen learns of its own layout, too."""
        if event.size == self._laid_out == self._fits:
            event.prevent_default()
        self._fits = event.size

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        super()._refresh_layout(size, scroll)
        self._laid_out = size or self._laid_out

    def _compositor_refresh(self) -> None:
        """Paint, unless everything is about to be painted."""
        if not self._repaint_required:
            super()._compositor_refresh()
