"""The colours of what widgets paint themselves, by the theme.

Not Textual's component classes: for each of them it goes through the whole style sheet whenever
its widget is made, is given the keys, or comes back to the screen.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style as RichStyle
from textual.style import Style
from textual.widget import Widget


def ink(widget: Widget, words: str = "") -> RichStyle:
    """Return the widget's own style with what ``words`` say, like ``bold $accent``, on top."""
    if not words:
        return widget.visual_style.rich_style
    return _ink(widget.visual_style, words, widget.app.theme)


@lru_cache(1024)
def _ink(ground: Style, words: str, theme: str) -> RichStyle:
    return (ground + Style.parse(words)).rich_style
