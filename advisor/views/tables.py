"""Aligned tables as lines of text."""

from __future__ import annotations

from collections.abc import Sequence


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return an aligned table; columns whose cells all look like numbers are right-aligned."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(len(h), *(len(r[i]) for r in cells)) if cells else len(h)
              for i, h in enumerate(headers)]  # fmt: skip
    right = [bool(cells) and all(_numeric(r[i]) for r in cells) for i in range(len(headers))]
    lines = []
    for row in [list(headers), *cells]:
        line = "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        )
        lines.append(line.rstrip())
    return lines


def _numeric(text: str) -> bool:
    return not text or text[0] in "+-−.0123456789"
