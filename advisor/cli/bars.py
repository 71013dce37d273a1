"""Bars beside figures, where a person reads: not in pipes, not with NO_COLOR."""

from __future__ import annotations

import shutil

from advisor.cli.colour import coloured

BAR = 24
"""Cells of a whole bar."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int = BAR, *, worse: bool = False) -> str:
    """Return a bar of a share between 0 and 1, in eighths of a character, as wide as the whole.

    What is ``worse`` than before is drawn with another stroke.
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    drawn = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    return f"{'░' * len(drawn) if worse else drawn:<{width}}"


def beside(share: float, *, worse: bool = False) -> str:
    """Return a bar and the gap after it; "" where no bars are drawn."""
    return f"{bar(share, worse=worse)}  " if coloured() else ""


def room_for(lines: list[str], width: int) -> bool:
    """Tell whether bars are drawn and a column of them fits beside lines of a table."""
    widest = max(map(len, lines), default=0)
    return coloured() and widest + 2 + width <= shutil.get_terminal_size().columns
