"""Boxes that hold other widgets, painted as the ground that they are.

Textual paints every container line by line, borders, padding and filters included, and then covers
it with what it holds: with a few nested ones that is half of what painting a page costs.
"""

from __future__ import annotations

from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import ContentSwitcher


class Backdrop(Widget):
    """A widget without content of its own: one blank line, as often as it is high.

    It comes last among the bases: Textual takes a style sheet from the first. A border, but for one
    above, is left to Textual.
    """

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint lines: the one above that may be a border, and blank ones."""
        top, *side_kinds = (kind for kind, _ in self.styles.border)
        if any(side_kinds):
            return super().render_lines(crop)
        lines = [Strip.blank(crop.width, self.visual_style.rich_style)] * crop.height
        if top and crop.y == 0:
            lines[:1] = super().render_lines(Region(crop.x, 0, crop.width, 1))
        return lines


class Below(Vertical, Backdrop):
    """Widgets below each other."""


class SideBySide(Horizontal, Backdrop):
    """Widgets beside each other."""


class Scrolled(VerticalScroll, Backdrop):
    """Widgets below each other that may be more than there is room for."""


class OneOf(ContentSwitcher, Backdrop):
    """Widgets of which one is shown."""
