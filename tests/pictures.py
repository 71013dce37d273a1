"""Pictures of plots that the pages show: tests that draw them anyway compare their words.

After a change that is meant to be seen, renew and look at them: ADVISOR_RENEW=1 pytest TESTS.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

KEPT = Path(__file__).parents[1] / "docs" / "pictures" / "plots"
_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"(?<=[ \"(,-])\d+\.\d{2,}")


def words(svg: str) -> list[str]:
    """Return what is written in a picture, any day as the same."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return [re.sub(r"\d{4}-\d\d-\d\d", "2026-01-31", html.unescape(text)) for text in texts]


def kept(path: Path, name: str) -> None:
    """Say that a picture has the words of the one kept as ``name``; ADVISOR_RENEW=1 keeps it."""
    drawn, file = path.read_text(encoding="utf-8"), KEPT / f"{name}.svg"
    if os.environ.get("ADVISOR_RENEW"):  # a tenth of a point is enough to look at
        file.parent.mkdir(exist_ok=True)
        small = _TAG.sub(lambda t: _NUMBER.sub(lambda n: f"{float(n[0]):.1f}", t[0]), drawn)
        file.write_text(re.sub(r"<metadata>.*?</metadata>\n?", "", small, flags=re.DOTALL))
    assert words(drawn) == words(file.read_text(encoding="utf-8")), name
