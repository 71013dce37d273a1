"""Whatever is broken, slow or gone: a notice, and the program goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advisor_tui import background
from advisor_tui.session import Session
from textual.widgets import Static

from advisor.errors import AdvisorError

Play = Callable[..., Any]


def everywhere(at: Any) -> Any:
    """Every page and what can be done there with one key."""
    return at.press(
        "down", "enter", "escape", "2", "a", "3", "n", "escape", "4", "w", "escape", "1"
    )


def test_without_a_store(session: Session, tmp_path: Path, play: Play) -> None:
    gone = replace(session, store=tmp_path / "none.db", socket=tmp_path / "none")

    async def story(at: Any) -> None:
        assert "there is no store" in at.notices and str(gone.store) in at.notices
        assert "the store cannot be read" in at.text
        assert at.lines[0].endswith("no daemon · ann")
        await everywhere(at)
        assert "[1 Applications]" in at.lines[0]
        shutil.copy(session.store, gone.store)
        await at.press("r")
        assert "12 workloads" in at.text

    play(gone, story)


@pytest.mark.parametrize("content", [b"", b"not a store at all" * 100, None])
def test_a_store_that_is_none(
    session: Session, tmp_path: Path, play: Play, content: bytes | None
) -> None:
    path = tmp_path / "bad.db"
    if content is None:  # a store whose pages were written over
        good = session.store.read_bytes()
        content = good[:4096] + b"\xc4\x00table\xff" * (len(good) // 8)
    path.write_bytes(content)

    async def story(at: Any) -> None:
        assert str(path) in at.notices
        await at.press("2", "4", "1")

    play(replace(session, store=path), story)
    assert path.read_bytes() == content


def test_a_locked_store(own_store: Session, play: Play) -> None:
    with closing(sqlite3.connect(own_store.store, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE workloads SET name = name")

        async def story(at: Any) -> None:
            assert "locked" in at.notices or "busy" in at.notices
            assert "the store cannot be read" in at.text
            other.close()
            await at.press("r")
            assert "12 workloads" in at.text

        play(own_store, story)


def test_a_store_that_hangs_holds_nothing_up(
    session: Session, tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named pipe that nobody writes to: whoever opens it waits for ever."""
    from advisor_tui import shell

    monkeypatch.setattr(shell, "SLOW_S", 0.2)
    pipe = tmp_path / "hung.db"
    os.mkfifo(pipe)

    async def story(at: Any) -> None:
        await at.until(lambda: "The store is slow" in at.notices)
        for key, title in (("2", "2 Jobs"), ("4", "4 Policy"), ("1", "1 App")):
            await at.pilot.press(key)
            assert f"[{title}" in at.lines[0]
        await at.pilot.press("question_mark")
        assert "Help: Applications" in at.text
        await at.pilot.press("escape", "slash")
        await at.pilot.press(*"lbm")
        assert "lbm" in at.lines[1]

    play(replace(session, store=pipe), story, settle=False)  # and it could be left
    with pipe.open("wb"):
        pass  # lets the waiting threads go
    assert background._waiting.acquire(timeout=10)
    background._waiting.release()


def test_what_nobody_expected_is_told_and_the_program_goes_on(
    session: Session, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr("advisor.views.jobs.page", broken)
    monkeypatch.setattr("advisor.views.choosing.scripts_in", broken)

    async def story(at: Any) -> None:
        await at.press("2")
        assert "ZeroDivisionError: a mistake (test_tui_faults.py:" in at.notices
        await everywhere(at)
        assert "12 workloads" in at.text

    play(session, story)


def test_a_text_that_changes_while_the_page_is_laid_out_has_its_room(
    session: Session, play: Play
) -> None:
    async def story(at: Any) -> None:
        count = at.one("#count", Static)
        count.update("longer than it was: 12 workloads of 10 applications")
        at.app.screen._refresh_layout()  # before the text has asked for its room
        await at.settle()
        assert "longer than it was: 12 workloads of 10 applications" in at.text

    play(session, story)


def test_too_many_waiting_threads_are_refused() -> None:
    gate = threading.Event()

    async def story() -> None:
        waiting = [
            asyncio.ensure_future(background.in_thread(gate.wait)) for _ in range(background.MOST)
        ]
        await asyncio.sleep(0)
        with pytest.raises(AdvisorError, match="does not answer"):
            await background.in_thread(lambda: 1)
        gate.set()
        assert await asyncio.gather(*waiting) == [True] * background.MOST
        assert await background.in_thread(lambda: 2) == 2

    asyncio.run(story())


def test_a_daemon_that_never_answers(session: Session, tmp_path: Path, play: Play) -> None:
    path = tmp_path / "mute"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen(8)

        async def story(at: Any) -> None:
            assert "12 workloads" in at.text
            await everywhere(at)
            await at.until(lambda: "no daemon" in at.lines[0], 10)

        play(replace(session, socket=path), story)


def test_a_dead_daemon_is_told_where_it_matters(
    session: Session, tmp_path: Path, play: Play
) -> None:
    path = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async def story(at: Any) -> None:
        assert "no daemon" in at.lines[0]
        await at.press("down", "c")
        assert "No daemon answers now" in at.text

    play(replace(session, socket=path), story, (80, 40))


def test_the_daemons_own_trouble_is_shown(session: Session, tmp_path: Path, play: Play) -> None:
    path, store = tmp_path / "s", tmp_path / "copy.db"
    shutil.copy(session.store, store)
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "advisor",
            "serve",
            "--db",
            str(store),
            "--socket",
            str(path),
            "--refresh",
            "0.05",
        ],
        stderr=subprocess.PIPE,
    ) as daemon:
        try:
            end = time.monotonic() + 20
            while not path.exists():
                assert daemon.poll() is None and time.monotonic() < end, daemon.communicate()
                time.sleep(0.02)
            store.unlink()
            store.write_bytes(b"not a store" * 100)

            async def story(at: Any) -> None:
                await at.until(lambda: "daemon cannot read its store" in at.lines[0])

            play(replace(session, socket=path), story, (160, 24))
        finally:
            daemon.terminate()


def test_a_folder_that_cannot_be_written(session: Session, play: Play) -> None:
    async def story(at: Any) -> None:
        await at.press("down", "c", "down", "s")
        assert "nothing was changed" in at.notices
        assert at.app.edits == []

    play(replace(session, choices=Path("/proc/none/choices.json")), story)


def test_any_key_anywhere_breaks_nothing(session: Session, play: Play) -> None:
    """What is typed without looking: all keys of all pages on each of them, and a broken screen."""
    keys = [*"+-0abchijklnorsvwxy/\t", "?", "escape", "enter", "escape", "up", "end", "pageup", "u"]
    names = {"+": "plus", "-": "minus", "/": "slash", "\t": "tab", "?": "question_mark"}

    async def story(at: Any) -> None:
        for way in (("1",), ("1", "end", "enter"), ("1", "home", "enter", "c"), "2", "3", "4"):
            await at.pilot.resize_terminal(*((80, 24) if len(way) == 1 else (40, 10)))
            await at.pilot.press("escape", "escape", "escape", *way)
            await at.pilot.press(*(names.get(key, key) for key in keys))
        await at.settle()
        await at.pilot.resize_terminal(80, 24)
        await at.press("escape", "escape", "escape", "1")
        assert at.app.is_running and "12 workloads" in at.text
        assert "advisor doctor" not in at.notices  # what nobody expected

    play(session, story)
