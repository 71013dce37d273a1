"""The real program on a real terminal: in tmux where there is one, else on a screen of our own.

Both run the same command with the same keys; ``screen()`` is what a person would see.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Protocol

import pyte

WAIT_S = 30.0


class Terminal(Protocol):
    """A terminal that runs one program."""

    def type(self, keys: str) -> None:
        """Type characters."""

    def key(self, name: str) -> None:
        """Press a key that is no character: Enter, Escape, Down, Up, Right, Left, Tab, C-p."""

    def screen(self) -> list[str]:
        """What is on the screen, line by line."""

    def resize(self, columns: int, lines: int) -> None:
        """Give it another size."""

    def alive(self) -> bool:
        """Whether the program runs."""

    def close(self) -> None:
        """End it."""


def _environment() -> dict[str, str]:
    """Return our environment without a fixed size, which a runner of tests may have set."""
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}


def until(terminal: Terminal, found: Callable[[str], object]) -> str:
    """Wait until something is on the screen, and return the screen."""
    end = time.monotonic() + WAIT_S
    while True:
        text = "\n".join(terminal.screen())
        if found(text):
            return text
        assert time.monotonic() < end, f"not on the screen:\n{text}"
        time.sleep(0.05)


def until_left(terminal: Terminal) -> None:
    """Wait until the program has ended by itself."""
    end = time.monotonic() + WAIT_S
    while terminal.alive():
        assert time.monotonic() < end, "\n".join(terminal.screen())
        terminal.screen()


_CODES = {
    "Enter": b"\r",
    "Escape": b"\x1b",
    "Tab": b"\t",
    "C-p": b"\x10",
    "Up": b"\x1b[A",
    "Down": b"\x1b[B",
    "Right": b"\x1b[C",
    "Left": b"\x1b[D",
}


class Tmux:
    """A program in a tmux server of its own."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], columns: int, lines: int
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tmux-"))
        size = ["-x", str(columns), "-y", str(lines)]
        variables = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, *variables, *argv)
        self._tmux("set-option", "-g", "remain-on-exit", "on")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._folder / "s"), *words],
            capture_output=True,
            text=True,
            check=True,
            env={**_environment(), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"},
        )
        return done.stdout

    def type(self, keys: str) -> None:
        """Type characters."""
        self._tmux("send-keys", "-l", keys)

    def key(self, name: str) -> None:
        """Press a named key."""
        self._tmux("send-keys", name)

    def screen(self) -> list[str]:
        """Return the pane's lines."""
        return self._tmux("capture-pane", "-p").splitlines()

    def resize(self, columns: int, lines: int) -> None:
        """Resize the window."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def alive(self) -> bool:
        """Ask whether the pane is dead."""
        return self._tmux("display-message", "-p", "#{pane_dead}").strip() != "1"

    def close(self) -> None:
        """End the server."""
        self._tmux("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)


class Pty:
    """A program on a pseudo-terminal whose output is drawn on a screen in memory."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], columns: int, lines: int
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._leader, follower = pty.openpty()
        ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._child = subprocess.Popen(
            argv,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**_environment(), "TERM": "xterm-256color", **env},
            start_new_session=True,
        )
        os.close(follower)

    def type(self, keys: str) -> None:
        """Write characters to the program."""
        os.write(self._leader, keys.encode())

    def key(self, name: str) -> None:
        """Write what a key sends."""
        os.write(self._leader, _CODES[name])

    def screen(self) -> list[str]:
        """Draw what has been written since, and return the screen's lines."""
        while select.select([self._leader], [], [], 0.02)[0]:
            try:
                data = os.read(self._leader, 1 << 16)
            except OSError:  # the program has ended
                break
            if not data:
                break
            self._stream.feed(data)
        return [line.rstrip() for line in self._screen.display]

    def resize(self, columns: int, lines: int) -> None:
        """Change the size and tell the program."""
        self._screen.resize(lines, columns)
        ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.kill(self._child.pid, signal.SIGWINCH)

    def alive(self) -> bool:
        """Ask for the exit code."""
        return self._child.poll() is None

    def close(self) -> None:
        """End the program."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait(10)
        os.close(self._leader)


KINDS: dict[str, type[Tmux] | type[Pty]] = {"tmux": Tmux, "pty": Pty}


def missing(kind: str) -> str:
    """Return why a kind of terminal cannot be had here, "" when it can."""
    return "tmux is not installed" if kind == "tmux" and not shutil.which("tmux") else ""
