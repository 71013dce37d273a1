"""Images on terminals with kitty's graphics protocol, clear where the text below is to be read.

Nothing is asked of the terminal: an answer that comes late would be read as keys. The kernel knows
how large its cells are.
https://sw.kovidgoyal.net/kitty/graphics-protocol/
"""

from __future__ import annotations

import os
import struct
import termios
import zlib
from base64 import b64encode
from collections.abc import Callable
from fcntl import ioctl
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.widget import Widget

    from advisor_tui.drawing import ChartPixels

_CHUNK = 4096
_CELL = 10, 20
"""Pixels of a cell where the terminal does not say."""


def cell_pixels() -> tuple[int, int]:
    """Return width and height of the terminal's cells in pixels."""
    try:
        size = ioctl(1, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return _CELL
    rows, columns, width, height = struct.unpack("HHHH", size)
    if not (rows and columns and width >= 4 * columns and height >= 8 * rows):
        return _CELL
    return width // columns, height // rows


class Graphics:
    """The images that are shown now: those of one widget, its ``owner``."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.owner: Widget | None = None
        self._first = (os.getpid() & 0xFFFFFF) << 8
        """Numbers from here on are ours; another program may have shown images here, too."""
        self._shown: set[int] = set()

    def show(self, number: int, image: ChartPixels, x: int, y: int) -> None:
        """Show an image from a cell of the screen on, instead of the last one of this number.

        Images lie over the text, those of higher numbers over others.
        """
        keys = (
            f"a=T,q=2,f=32,o=z,i={self._first + number},p=1,s={image.width},v={image.height},"
            f"c={image.columns},r={image.rows},z={number},C=1"
        )
        data = b64encode(zlib.compress(image.rgba, 1)).decode()
        parts = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)]
        words = [f"\x1b7\x1b[{y + image.row + 1};{x + image.column + 1}H"]
        for place, part in enumerate(parts, 1):
            words.append(f"\x1b_G{keys},m={int(place < len(parts))};{part}\x1b\\")
            keys = "q=2"
        self._write("".join([*words, "\x1b8"]))
        self._shown.add(number)

    def clear(self) -> None:
        """Take all images off the screen and out of the terminal's memory."""
        for number in self._shown:
            self._write(f"\x1b_Ga=d,d=I,q=2,i={self._first + number}\x1b\\")
        self._shown.clear()
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.refresh()  # what it shows without them


class ImageDriver(LinuxDriver):
    """Textual's driver, which leaves no image behind; the program has its ``graphics``."""

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.graphics = Graphics(self.write)
        app.graphics = self.graphics  # type: ignore[attr-defined]

    def stop_application_mode(self) -> None:
        """Give the terminal back without our images."""
        self.graphics.clear()
        super().stop_application_mode()
