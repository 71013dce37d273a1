"""The line that says what the signs of a picture mean."""

from __future__ import annotations

import textwrap

from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static


class Legend(Static):
    """A text of which no line ends at a no-break blank, where Textual itself would break it."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the count of its lines."""
        return len(self._lines(width))

    def render(self) -> Content:
        """Return its lines."""
        return Content("\n".join(self._lines(self.content_size.width)))

    def _lines(self, width: int) -> list[str]:
        return textwrap.wrap(str(self.content), max(1, width), break_on_hyphens=False) or [""]
