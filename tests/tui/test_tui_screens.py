"""Screens as pictures: what `app.export_screenshot()` draws, compared with the ones kept.

Compared is the text, cell for cell as it is drawn, without the last line, which is Textual's own
footer; so a newer Textual may draw colours and corners otherwise. The pictures in docs/pictures/tui
are SVG files to look at. After a change that is meant to be seen, renew and look at them:

    ADVISOR_RENEW=1 pytest tests/tui/test_tui_screens.py
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from advisor_tui.session import Session

Play = Callable[..., Any]
ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "pictures" / "tui"
_TEXT = re.compile(r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
_MATRIX = re.compile(r'class="[^"]*-matrix">(.*)</g>', re.DOTALL)


def drawn(svg: str) -> list[str]:
    """Return the lines of text that a picture shows, the last one left out."""
    matrix = _MATRIX.search(svg)
    assert matrix is not None, "Textual draws its pictures otherwise now"
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in _TEXT.findall(matrix[1]):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    lines = []
    for y in sorted(rows):
        line = ""
        for x, text in sorted(rows[y]):
            line = line.ljust(round(x / 12.2)) + text
        lines.append(line.rstrip())
    return lines[:-1]


def undated(lines: list[str]) -> list[str]:
    """Return lines without how long ago things were: the example site is new each time."""
    return [re.sub(r"\d+ (?:s|min|h|d) ago *", "ago ", line) for line in lines]


def normal(svg: str) -> str:
    """Return a picture with ids that do not change from run to run."""
    return re.sub(r"terminal-\d+", "terminal-0", svg)


STORIES: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {
    "applications-80x24": ((80, 24), ("down", "down", "down", "down", "down")),
    "tradeoff-80x24": ((80, 24), ("down", "enter", "right")),
    "tradeoff-160x50": ((160, 50), ("down", "enter", "right")),
    "choose-80x24": ((80, 24), ("down", "enter", "c")),
    "whatif-80x24": ((80, 24), ("4", "i", "home")),
    "jobs-100x24": ((100, 24), ("2",)),
    "training-100x24": ((100, 24), ("3",)),
}


@pytest.mark.parametrize("name", sorted(STORIES))
def test_a_screen_looks_as_it_should(session: Session, play: Play, name: str) -> None:
    size, keys = STORIES[name]
    pictures = []

    async def story(at: Any) -> None:
        for key in keys:
            await at.press(key)
        if name.startswith("whatif"):
            at.one("#slowdown", Stepper).focus()
            await at.press("home")
            await at.until(lambda: "- gone" in at.text)
        await at.settle()
        pictures.append(normal(at.app.export_screenshot(simplify=True)))

    from advisor_tui.stepper import Stepper

    play(session, story, size)
    path = KEPT / f"{name}.svg"
    if os.environ.get("ADVISOR_RENEW"):
        path.write_text(pictures[0])
    assert undated(drawn(pictures[0])) == undated(drawn(path.read_text()))


@pytest.mark.parametrize("page", ["README.md", "docs/tui.md"])
def test_pages_show_the_screen_that_is_kept(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = next(block for block in text.split("```\n")[1::2] if "[1 Applications]" in block)
    kept = "\n".join(drawn((KEPT / "tradeoff-80x24.svg").read_text())) + "\n"
    if os.environ.get("ADVISOR_RENEW"):
        (ROOT / page).write_text(text.replace(shown, kept), encoding="utf-8")
    else:
        assert shown == kept
