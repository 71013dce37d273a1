"""Pages are made once: one that is opened again shows nothing of what was done on it before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from advisor_tui.session import Session

from advisor.views import tradeoff
from tests.tui.boards import LBM

Play = Callable[..., Any]


async def used_and_left(at: Any, *keys: str) -> tuple[Any, str, Any]:
    """Type keys on the page that is shown and leave it; return it, its text and focus before."""
    page, text, focused = at.app.screen, at.text, at.app.focused
    await at.press(*keys)
    assert at.text != text
    while at.app.screen is page:
        await at.press("escape")
    return page, text, focused


async def open_row_unread(at: Any, row: int) -> None:
    await at.press("home")
    await at.pilot.press(*["down"] * row, "enter")
    await at.until(lambda: not at.app._batch_count and "reading" in at.text)


def test_a_page_opened_again_is_as_new(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is the same one; nothing that was done on it or shown there is left."""
    go_on = threading.Event()
    go_on.set()
    load = tradeoff.load

    def slow(*arguments: Any) -> tradeoff.Boards:
        go_on.wait(60)
        return load(*arguments)

    monkeypatch.setattr(tradeoff, "load", slow)

    async def story(at: Any) -> None:
        for row, keys in (
            (1, ["right", "b", "v", "s", "x", "n", "plus", "slash", *"cores", ">", "1", "enter"]),
            (1, ["x", "minus", "slash", *"zone"]),
            (LBM, ["down", "down", "down", "v", "v", "end"]),
        ):
            await at.open_row(row)
            page, first, at_first = await used_and_left(at, *keys)
            await at.open_row(3)
            assert at.app.screen is page
            await at.press("escape")
            await at.open_row(row)
            assert at.app.screen is page and at.text == first and at.app.focused is at_first
            await at.press("escape")
        go_on.clear()
        await open_row_unread(at, 3)
        assert "reading ..." in at.text and "lbm" not in at.text
        assert not any(sign in at.text for sign in "◆★●○")
        go_on.set()
        await at.settle()
        assert "◆" in at.text and "reading" not in at.text

    play(session, story)


def test_a_form_opened_again_is_as_new(session: Session, play: Play) -> None:
    (session.folder / "a.sh").write_text("#!/bin/bash\n#SBATCH -c 8\nsrun ./cg-solver\n")

    async def story(at: Any) -> None:
        await at.open_row(1)
        for key, typed in (
            ("c", ["down", "tab", "right", "right", "tab", "right"]),
            ("c", ["slash", *"a.sh"]),
            ("c", ["s"]),
            ("question_mark", ["down", "down", "down"]),
        ):
            await at.press(key)
            page, first, at_first = await used_and_left(at, *typed)
            await at.press("u", key)
            assert at.app.screen is page and at.app.focused is at_first
            assert at.text == first
            await at.press("escape")

    play(session, story)
