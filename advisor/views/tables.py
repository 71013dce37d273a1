"""Tables as lines: aligned text, and the forms that papers and spreadsheets take."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from advisor.core.columns import columns_of, padded

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\u2212": "$-$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return an aligned table; columns whose cells all look like numbers are right-aligned."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [
        max(columns_of(h), *(columns_of(r[i]) for r in cells)) if cells else columns_of(h)
        for i, h in enumerate(headers)
    ]
    right = _right_aligned(rows, len(headers))
    lines = []
    for row in [list(headers), *cells]:
        line = "  ".join(padded(c, w, right=r) for c, w, r in zip(row, widths, right, strict=True))
        lines.append(line.rstrip())
    return lines


def markdown(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a table of GitHub's Markdown, numbers to the right."""
    cells = [[str(c).replace("|", "\\|") for c in row] for row in [headers, *rows]]
    rule = ["---:" if right else "---" for right in _right_aligned(rows, len(headers))]
    return [f"| {' | '.join(row)} |" for row in [cells[0], rule, *cells[1:]]]


def latex(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a tabular environment of LaTeX that needs no package."""

    def line(row: Sequence[object]) -> str:
        escaped = ("".join(_LATEX.get(c, c) for c in str(cell)) for cell in row)
        return " & ".join(escaped) + r" \\"

    columns = "".join("r" if right else "l" for right in _right_aligned(rows, len(headers)))
    return [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        line(headers),
        r"\hline",
        *map(line, rows),
        r"\hline",
        r"\end{tabular}",
    ]


def comma_separated(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a table as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([headers, *rows])
    return out.getvalue().splitlines()


FORMS: dict[str, Callable[[Sequence[str], Sequence[Sequence[object]]], list[str]]] = {
    "text": table,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}
COMMENTS = {"latex": "% ", "csv": "# "}
"""What lines between tables begin with, in the forms that take no prose."""


def _right_aligned(rows: Sequence[Sequence[object]], columns: int) -> list[bool]:
    cells = [[str(c) for c in row] for row in rows]
    return [bool(cells) and all(_numeric(r[i]) for r in cells) for i in range(columns)]


def _numeric(text: str) -> bool:
    return not text or text[0] in "+-−.0123456789"
