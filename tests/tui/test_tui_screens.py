"""Screens as pictures: what `app.export_screenshot()` draws, compared with the ones kept.

Compared is the text, cell for cell as it is drawn, without the last line, which is Textual's own
footer; so a newer Textual may draw colours and corners otherwise. The pictures in docs/pictures/tui
are SVG files to look at. After a change that is meant to be seen, renew and look at them:

    ADVISOR_RENEW=1 pytest tests/tui/test_tui_screens.py
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advisor_tui.session import Session

from advisor.core.configuration import Configuration
from advisor.training import progress

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
    """Return lines without times and names of decisions: the example site is new each time."""
    when = r"\d+ (?:s|min|h|d|days?) ago *|\d{4}-\d\d-\d\d(?:T[\d:]+)?|\b[0-9a-f]{16}$"
    return [re.sub(when, "then ", line) for line in lines]


def normal(svg: str) -> str:
    """Return a picture with ids that do not change from run to run."""
    return re.sub(r"terminal-\d+", "terminal-0", svg)


STORIES: dict[tuple[int, int], dict[str, tuple[str, ...]]] = {
    (80, 24): {
        "applications": (),
        "tradeoff": ("home", "down", "enter", "right"),
        "ranking": ("r",),
        "choose": ("escape", "left", "c"),
        "help": ("escape", "question_mark"),
        "policy": ("escape", "4"),
        "past": ("p", "enter"),
        "whatif": ("escape", "i", "home"),
    },
    (100, 24): {
        "jobs": ("2",),
        "why": ("down", "enter"),
        "training": ("escape", "3"),
        "sweep-log": ("down", "enter"),
        "new-sweep": ("escape", "n"),
    },
    (120, 40): {"applications-drawn": ("home", "down", "enter", "escape")},
    (160, 50): {"tradeoff": ("down", "enter", "right"), "rule": ("4", "w")},
}
"""By the terminal's size: pictures in the order in which one story comes to them, by which keys."""


def swept(folder: Path) -> None:
    """Leave what a sweep in the background leaves: what it is, how far it came, its log."""
    folder.mkdir(parents=True)
    made = [
        {
            "seq": seq,
            "attempt": 1,
            "role": role,
            "ok": True,
            "time_s": time_s,
            "energy_j": energy_j,
            "energy_quality": "measured",
            "detail": "",
            "configuration": Configuration("broadwell", 1, 1, threads, 2_200_000).to_dict(),
        }
        for seq, (role, threads, time_s, energy_j) in enumerate(RUNS, 1)
    ]
    (folder / "sweep.json").write_text(
        json.dumps(
            {
                "id": "sw-1",
                "state": "stopped",
                "detail": "stopped by ann",
                "created_at": "2026-01-31T09:00:00+00:00",
                "subject": {
                    "application": "stencil3d",
                    "workload": "--size 800",
                    "node_type": {"name": "broadwell"},
                },
                "settings": {"scheduler": "slurm", "most_runs": 12, "confirm": 2},
                "stages": {},
            }
        )
    )
    (folder / progress.NAME).write_text(
        json.dumps({"stage": "sweep", "made": made, "spent": [4, 0.09, 49300.0, True]})
    )
    lines = [
        f"run {m['seq']}/14  {m['role']:8} {t} threads  {m['time_s']:.1f} s"
        for m, (_, t, _, _) in zip(made, RUNS, strict=True)
    ]
    (folder / progress.LOG).write_text("\n".join([*lines, "stopped by ann"]) + "\n")


RUNS = (
    ("baseline", 28, 66.2, 13560.0),
    ("sweep", 20, 68.4, 12100.0),
    ("sweep", 14, 74.9, 11480.0),
    ("sweep", 8, 96.3, 12160.0),
)
"""Role, threads, time in s and energy in J of the runs that the example sweep made."""


@pytest.mark.parametrize("size", STORIES, ids=str)
def test_screens_look_as_they_should(
    session: Session, play: Play, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = {}
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(session.folder)
    monkeypatch.setenv("ADVISOR_CONFIG_DIR", ".")
    (session.folder / "policy.yaml").write_text("version: 1\nmode: advise\n")
    if "why" in STORIES[size]:  # no scheduler is asked
        session = replace(session, demo=lambda: None)
        swept(session.sweeps / "sw-1")

    async def story(at: Any) -> None:
        for name, keys in STORIES[size].items():
            for key in keys:
                await at.press(key)
            awaited = {
                "whatif": "- gone",
                "past": "decisions",
                "sweep-log": "baseline 28",
                "applications-drawn": "as written",
            }.get(name, "")
            await at.until(lambda awaited=awaited: awaited in at.text)
            await at.settle()
            pictures[f"{name}-{size[0]}x{size[1]}"] = normal(
                at.app.export_screenshot(simplify=True)
            )

    play(session, story, size)
    for name, picture in pictures.items():
        path = KEPT / f"{name}.svg"
        if os.environ.get("ADVISOR_RENEW"):
            path.write_text(picture)
        assert undated(drawn(picture)) == undated(drawn(path.read_text())), name


@pytest.mark.parametrize("page", ["README.md", "docs/tui.md"])
def test_pages_show_the_screen_that_is_kept(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = next(block for block in text.split("```\n")[1::2] if "[1 Applications]" in block)
    kept = "\n".join(drawn((KEPT / "tradeoff-80x24.svg").read_text())) + "\n"
    if os.environ.get("ADVISOR_RENEW"):
        (ROOT / page).write_text(text.replace(shown, kept), encoding="utf-8")
    else:
        assert shown == kept


def test_a_page_opened_and_a_terminal_that_grows_show_all(session: Session, play: Play) -> None:
    """PaintOnce spares Textual work, but none that somebody can see."""

    async def story(at: Any) -> None:
        await at.press("home", "down", "enter", "right")
        await at.until(lambda: "time (s)" in at.text)
        kept = drawn((KEPT / "tradeoff-80x24.svg").read_text())
        assert undated(at.lines[:-1])[1:4] == undated(kept)[1:4]
        await at.press("c", "escape")
        await at.pilot.resize_terminal(160, 50)
        await at.until(lambda: "Under the cursor" in at.text)

    play(session, story)
