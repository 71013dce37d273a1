"""Five tasks without the documents: how many keys they take from the first screen on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from advisor_tui.session import Session

Play = Callable[..., Any]


def test_find_the_best_option(session: Session, play: Play) -> None:
    """One key: the list opens on the row with most to save, Enter shows its best option."""

    async def story(at: Any) -> None:
        await at.settle()
        row = next(line for line in at.lines if "▸" in line)
        assert "lbm" in row and "% less" in row
        await at.press("enter")
        await at.until(lambda: "WILL SAVE" in at.text)
        assert "cores" in next(line for line in at.lines if "WILL SAVE" in line)
        assert "APPLIED" in at.text

    play(session, story, settle=False)


def test_why_it_is_not_applied(session: Session, play: Play) -> None:
    """No key: the line below the list says it of the row under the cursor; Enter says more."""

    async def story(at: Any) -> None:
        assert "nothing changed: 35 promising options are not confirmed by a run yet" in at.text
        await at.press("enter")
        await at.until(lambda: "NOTHING TO APPLY" in at.text)
        assert "not confirmed" in at.text

    play(session, story)


def test_override_it_and_take_that_back(session: Session, play: Play) -> None:
    """Four keys for another point of the front; then the screen says which one takes it back."""

    async def story(at: Any) -> None:
        await at.press("down")  # to the row that somebody wants
        for key in ("enter", "right", "c", "s"):
            await at.press(key)
        await at.until(session.choices.exists)
        pinned = json.loads(session.choices.read_text())
        assert "pin" in json.dumps(pinned)
        await at.until(lambda: "u " in at.text and "undo" in at.text)
        await at.press("u")
        await at.until(
            lambda: not session.choices.exists() or "pin" not in session.choices.read_text()
        )

    play(session, story)


def test_how_the_last_job_came_out(session: Session, play: Play) -> None:
    """One key for the latest jobs' outcomes; Enter, the second one, says all of the last job."""

    async def story(at: Any) -> None:
        await at.settle()
        await at.press("2")
        await at.until(lambda: "Came out" in at.text and "% less" in at.text)
        last, before, *_ = (line for line in at.lines if "ago" in line)
        assert "not collected yet" in last and before.count("% less") == 2  # promised, came out
        await at.press("enter")
        await at.until(lambda: "Why: job" in at.text)
        assert "nothing changed: no other option is allowed" in at.text

    play(session, story, settle=False)
