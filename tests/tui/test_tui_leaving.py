"""The terminal afterwards: signals, Ctrl+Z, what was copied, and what the demo leaves alone."""

from __future__ import annotations

import json
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import terminal
from advisor_tui import clipboard
from advisor_tui.demo import demonstration
from advisor_tui.session import Session

pytestmark = pytest.mark.terminal
ADVISOR = [sys.executable, "-m", "advisor", "tui"]
MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h", b"\x1b[?1000l"
OTHER_SCREEN_OFF, CURSOR_ON = b"\x1b[?1049l", b"\x1b[?25h"

needs_tmux = pytest.mark.skipif(bool(terminal.missing("tmux")), reason="tmux is not installed")

Play = Callable[..., Any]


class Recorded(terminal.Pty):
    """A terminal that keeps all that was written to it."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        super().__init__(argv, env, 100, 30)
        self.bytes, stream = b"", self._stream

        class Both:
            def feed(_, data: bytes) -> None:
                self.bytes += data
                stream.feed(data)

        self._stream: Any = Both()

    def gave_back(self) -> bool:
        """Whether mouse, screen and cursor are as they were, and typing is echoed again."""
        self.screen()
        tail = self.bytes[self.bytes.rfind(MOUSE_ON) :]
        echoes = bool(termios.tcgetattr(self._leader)[3] & termios.ECHO)
        return echoes and all(code in tail for code in (MOUSE_OFF, OTHER_SCREEN_OFF, CURSOR_ON))


def begun(screen: terminal.Terminal) -> None:
    terminal.until(screen, lambda t: "12 workloads" in t)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_gives_the_terminal_back(at_home: dict[str, str], number: signal.Signals) -> None:
    """SIGTERM left the mouse mode on: each move of the mouse then typed into the shell."""
    screen = Recorded(ADVISOR, at_home)
    try:
        begun(screen)
        assert MOUSE_ON in screen.bytes and not screen.gave_back()
        os.kill(screen._child.pid, number)
        terminal.until_left(screen)
        assert screen.gave_back()
        assert screen._child.returncode == 128 + number
    finally:
        screen.close()


@pytest.mark.parametrize("delay_s", [0.7, 0.85, 1.2])
def test_who_leaves_while_pages_are_made_ahead_sees_no_error(
    at_home: dict[str, str], delay_s: float
) -> None:
    """A page that was half made failed without its widgets, and its traceback was the last word."""
    screen = Recorded(ADVISOR, at_home)
    try:
        begun(screen)
        time.sleep(delay_s)
        os.kill(screen._child.pid, signal.SIGTERM)
        terminal.until_left(screen)
        assert b"Traceback" not in screen.bytes
        assert screen._child.returncode == 128 + signal.SIGTERM
    finally:
        screen.close()


def test_a_mistake_of_ours_gives_the_terminal_back(at_home: dict[str, str]) -> None:
    code = (
        "import advisor_tui.app as a\n"
        "def fails(self): raise RuntimeError('a mistake')\n"
        "a.AdvisorApp.action_undo = fails\n"
        "a.AdvisorApp.check_action = lambda *_: True\n"
        "raise SystemExit(a.start())"
    )
    screen = Recorded([sys.executable, "-c", code], at_home)
    try:
        begun(screen)
        screen.type("u")
        terminal.until_left(screen)
        assert screen.gave_back() and screen._child.returncode == 1
        assert b"a mistake" in screen.bytes
    finally:
        screen.close()


@needs_tmux
def test_the_shell_has_the_terminal_while_it_is_stopped(at_home: dict[str, str]) -> None:
    screen = terminal.Tmux(["bash", "--norc", "-i"], {**at_home, "PS1": "ready> "}, 100, 30)

    def modes() -> str:
        return screen._tmux("display-message", "-p", "#{alternate_on} #{mouse_any_flag}").strip()

    try:
        terminal.until(screen, lambda t: "ready>" in t)
        screen.type(" ".join(ADVISOR) + "\n")
        begun(screen)
        assert modes() == "1 1"
        screen.key("C-z")
        terminal.until(screen, lambda t: "Stopped" in t)
        assert modes() == "0 0"
        screen.type("echo $((6 * 7))\n")
        terminal.until(screen, lambda t: "\n42\n" in t)
        screen.type("fg\n")
        whole = ("[1 Applications]", "press / to search", "12 workloads", "wave2d", "? help")
        terminal.until(screen, lambda t: all(part in t for part in whole))
        assert modes() == "1 1"
        screen.type("q")
        terminal.until(screen, lambda t: "\n42\n" in t and t.rstrip().endswith("ready>"))
        assert modes() == "0 0"
    finally:
        screen.close()


def test_without_a_shell_nothing_is_stopped(at_home: dict[str, str]) -> None:
    """Nobody could let it go on: the window would stand still for good."""
    screen = Recorded(ADVISOR, at_home)
    try:
        begun(screen)
        screen.type("\x1a")
        terminal.until(screen, lambda t: "No shell waits below" in t)
        screen.type("q")
        terminal.until_left(screen)
    finally:
        screen.close()


@needs_tmux
def test_what_is_copied_in_tmux_can_be_pasted(at_home: dict[str, str], tmp_path: Path) -> None:
    """tmux takes nothing that a program sends to the clipboard unless it is told to."""
    screen = terminal.Tmux(ADVISOR, at_home, 100, 30)
    try:
        begun(screen)
        screen.key("Enter")
        terminal.until(screen, lambda t: "time (" in t)
        while "tmux's buffer" not in "\n".join(screen.screen()):
            screen.type("y")  # until the page takes keys
            time.sleep(0.3)
        pasted = screen._tmux("show-buffer")
        assert pasted.startswith("advisor choose ")
        assert (tmp_path / "state" / "advisor" / clipboard.FILE).read_text() == pasted.rstrip("\n")
        screen.type("q")
        terminal.until_left(screen)
    finally:
        screen.close()


def test_what_is_copied_is_said_to_be_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = clipboard.keep("one\ntwo\n", tmp_path / "own")
    kept = tmp_path / "own" / clipboard.FILE
    assert said == f"sent to the terminal, which may not take it; also in {kept}"
    assert kept.read_text() == "one\ntwo\n" and kept.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("TMUX", f"{tmp_path / 'gone'},1,0")  # a server that is not there
    assert clipboard.keep("three", tmp_path / "own").startswith("tmux does not take it; also in")
    (tmp_path / "file").touch()
    assert "not in a file" in clipboard.keep("four", tmp_path / "file" / "below")


def test_the_demo_writes_nothing_of_its_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    for name in ("ADVISOR_DB", "ADVISOR_SOCKET"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("CONFIG", "STATE", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / "CONFIG" / "advisor" / "tui.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"theme": "nord", "keys": {"copy": "k"}}))

    async def story(at: Any) -> None:
        assert at.app.theme == "nord"  # shown as they have it
        at.app.theme = "gruvbox"
        await at.press("down", "enter", "k")
        await at.until(lambda: "Copied " in at.notices)
        await at.press("c", "s")
        assert "Saved: " in at.notices
        await at.press("u")

    with demonstration() as session:
        play(session, story)
    assert json.loads(own.read_text())["theme"] == "nord"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [own]


def test_after_a_save_the_page_below_says_how_to_undo_it(session: Session, play: Play) -> None:
    """The notice was on the page that was left."""

    async def story(at: Any) -> None:
        await at.press("down", "enter", "c", "s")
        assert "press u to undo" in at.text
        await at.press("u")
        assert "Undone: a point is pinned" in at.text

    play(session, story)
    assert not session.choices.exists()
