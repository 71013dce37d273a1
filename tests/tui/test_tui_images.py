"""Charts in pixels, on a terminal with kitty's graphics protocol; characters on every other one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import terminal
from advisor_tui import signs
from advisor_tui.app import AdvisorApp
from advisor_tui.chart import Chart
from advisor_tui.drawing import MOST_PIXELS, Scale, draw, draw_cursor
from advisor_tui.graphics import Graphics, ImageDriver
from advisor_tui.legible import shows_images
from advisor_tui.session import Session
from advisor_tui.signs import ChartMarks, Mark

from advisor.plotting.raster import Frame

Play = Callable[..., Any]
ADVISOR = [sys.executable, "-m", "advisor", "tui"]
_APC = re.compile(rb"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\")


@pytest.mark.parametrize(
    ("pictures", "environ", "shown"),
    [
        ("auto", {"TERM": "xterm-kitty"}, True),
        ("auto", {"TERM": "xterm-ghostty"}, True),
        ("auto", {"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, False),  # handed down
        ("auto", {"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"}, False),
        ("auto", {"TERM": "xterm-kitty", "STY": "1.pts-0.host"}, False),
        ("auto", {"TERM": "xterm-kitty", "ZELLIJ": "0"}, False),
        ("auto", {"TERM": "xterm-kitty", "TEXTUAL_DRIVER": "textual.drivers.web_driver"}, False),
        ("auto", {"TERM": "xterm-kitty", "NO_COLOR": "1"}, False),
        ("auto", {}, False),
        ("off", {"TERM": "xterm-kitty"}, False),
        ("kitty", {"TERM": "xterm-256color"}, True),
        ("kitty", {"TERM": "xterm-256color", "TMUX": "x"}, False),
    ],
)
def test_the_name_tells_whether_a_terminal_shows_images(
    pictures: str, environ: Mapping[str, str], shown: bool
) -> None:
    assert shows_images(pictures, environ) is shown


def test_a_setting_says_so_and_the_option_has_the_last_word(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.settings is not None
    session.settings.parent.mkdir(parents=True)
    session.settings.write_text('{"pictures": "off"}')
    for name in ("NO_COLOR", "STY", "ZELLIJ", "TEXTUAL_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-kitty")
    assert AdvisorApp(session).driver_class is not ImageDriver
    assert AdvisorApp(session, pictures="auto").driver_class is ImageDriver
    session.settings.write_text('{"pictures": "sixel"}')
    assert AdvisorApp(session).driver_class is ImageDriver  # what is wrong counts as not set
    session.settings.write_text('{"signs": "ascii"}')
    assert AdvisorApp(session).driver_class is not ImageDriver


# -- what is drawn -------------------------------------------------------------------------------

COLOURS = {
    role: (10 * number, 255 - 10 * number, number)
    for number, role in enumerate(
        ("zone", "front", "predicted", "measured", "outside", "baseline", "policy", "bound"), 1
    )
}
FRAME = Frame((0.0, 10.0), (0.0, 10.0), 41, 21)
SCALE = Scale.of(FRAME, (10, 20))


def marks(**changed: Any) -> ChartMarks:
    values: dict[str, Any] = {
        "points": [(2.0, 8.0), (4.0, 4.0), (8.0, 2.0), (9.0, 9.0), (40.0, 5.0)],
        "marks": [
            Mark(signs.MEASURED, "measured"),
            Mark(signs.PREDICTED, "predicted"),
            Mark(signs.MEASURED, "measured"),
            Mark(signs.MEASURED, "outside"),
            Mark(signs.MEASURED, "outside"),
        ],
        "special": {2: Mark(signs.POLICY, "policy")},
        "front": (0, 1, 2),
        "polygon": [(2.0, 8.0), (4.0, 4.0), (8.0, 2.0), (8.0, 8.0)],
        "window": (FRAME.x, FRAME.y),
        "limits": (FRAME.x, FRAME.y),
        "x_axis": "time",
        "y_axis": "energy",
    }
    return ChartMarks(**{**values, **changed})


def drawn(picture: ChartMarks, words: tuple[tuple[int, int], ...] = ()) -> np.ndarray:
    image = draw(picture, SCALE, COLOURS, words)
    assert (image.columns, image.rows) == (FRAME.columns, FRAME.rows)
    return np.frombuffer(image.rgba, np.uint8).reshape(image.height, image.width, 4)


def pixel(image: np.ndarray, point: tuple[float, float]) -> tuple[int, ...]:
    x, y = SCALE.at(point)
    return tuple(int(v) for v in image[int(y), int(x)])


def test_every_point_lies_where_its_values_are() -> None:
    image = drawn(marks())
    assert pixel(image, (2.0, 8.0)) == (*COLOURS["measured"], 255)
    assert pixel(image, (8.0, 2.0)) == (*COLOURS["policy"], 255)
    assert pixel(image, (9.0, 9.0)) == (*COLOURS["outside"], 255)
    assert pixel(image, (3.0, 6.0)) == (*COLOURS["front"], 255)  # half way
    assert pixel(image, (4.0, 4.0))[3] == 0  # a ring, which is hollow
    assert pixel(image, (6.0, 6.0)) == (*COLOURS["front"], 31)  # the zone's tint, 12 %
    assert pixel(image, (1.0, 1.0))[3] == 0
    x, y = SCALE.at((4.0, 4.0))
    assert tuple(image[int(y), int(x - 0.22 * SCALE.height)])[:3] == COLOURS["predicted"]


def test_what_is_hidden_is_not_drawn_and_words_stay_clear() -> None:
    assert pixel(drawn(marks(hidden={3})), (9.0, 9.0))[3] == 0
    column, row = (int(v) for v in FRAME.place((6.0, 6.0)))
    assert pixel(drawn(marks(), ((column, row),)), (6.0, 6.0))[3] == 0


def test_the_bound_leaves_lines_of_text_free() -> None:
    image = drawn(marks(bound=6.5))
    x = int(SCALE.at((6.5, 0.0))[0])
    column = image[:, x - 1 : x + 1].max(axis=1)
    seen = (column[:, :3] == COLOURS["bound"]).all(axis=1)
    assert seen.any() and not seen[SCALE.height * 5 + 8]


def test_every_sign_is_another_shape() -> None:
    chars = (
        *(signs.MEASURED, signs.PREDICTED, signs.MEASURED_ESTIMATE, signs.PREDICTED_ESTIMATE),
        *(signs.ESTIMATED, signs.EXTRAPOLATED, signs.BASELINE, signs.POLICY, signs.YOURS),
    )
    shapes = set()
    for char in chars:
        mark = Mark(char, "predicted")
        picture = marks(points=[(5.0, 5.0)], marks=[mark], special={}, front=(), polygon=())
        shapes.add(drawn(picture).tobytes())
    assert len(shapes) == len(chars)


def test_the_interval_ends_where_it_should() -> None:
    point, spread = (5.0, 5.0), ((3.0, 8.0), (2.0, 7.0))
    image = draw_cursor(point, spread, SCALE, (1, 2, 3), ())
    found = np.frombuffer(image.rgba, np.uint8).reshape(image.height, image.width, 4)[..., 3] > 128
    left, top = image.column * SCALE.width, image.row * SCALE.height
    rows, columns = np.nonzero(found)
    (low_x, high_y), (high_x, low_y) = SCALE.at((3.0, 2.0)), SCALE.at((8.0, 7.0))
    assert columns.min() + left == pytest.approx(low_x, abs=2)
    assert columns.max() + left == pytest.approx(high_x, abs=2)
    assert rows.min() + top == pytest.approx(low_y, abs=2)
    assert rows.max() + top == pytest.approx(high_y, abs=2)


@pytest.mark.parametrize("point", [(0.0, 0.0), (10.0, 10.0), (0.0, 10.0), (10.0, 0.0)])
def test_a_cursor_at_the_edge_stays_in_the_frame(point: tuple[float, float]) -> None:
    image = draw_cursor(point, ((-50.0, 50.0), (-50.0, 50.0)), SCALE, (1, 2, 3), ())
    assert image.column >= 0 and image.column + image.columns <= FRAME.columns
    assert image.row >= 0 and image.row + image.rows <= FRAME.rows
    assert len(image.rgba) == 4 * image.width * image.height > 0


def test_a_picture_for_small_pixels_is_no_larger_than_need_be() -> None:
    scale = Scale.of(Frame((0, 1), (0, 1), 400, 120), (24, 48))
    assert 400 * scale.width * 120 * scale.height <= MOST_PIXELS
    assert scale.height / scale.width == pytest.approx(2, rel=0.15)


# -- what is written -----------------------------------------------------------------------------


def commands(written: bytes) -> list[tuple[dict[str, str], bytes]]:
    """Return the graphics commands of what was written, chunks put together."""
    found: list[tuple[dict[str, str], bytes]] = []
    more = False
    for keys, data in _APC.findall(written):
        values = dict(pair.split("=") for pair in keys.decode().split(",") if pair)
        if more:
            found[-1] = found[-1][0], found[-1][1] + data
        else:
            found.append((values, data))
        more = values.get("m") == "1"
    return found


def test_an_image_is_written_in_chunks_at_its_place() -> None:
    written: list[str] = []
    image = draw(marks(), SCALE, COLOURS, ())
    graphics = Graphics(written.append)
    graphics.show(1, image, 4, 2)
    assert all(len(data) <= 4096 for _, data in _APC.findall("".join(written).encode()))
    [(keys, data)] = commands("".join(written).encode())
    assert zlib.decompress(b64decode(data)) == image.rgba
    assert keys["q"] == "2" and (keys["c"], keys["r"]) == ("41", "21")  # it is to answer nothing
    assert written[0].startswith("\x1b7\x1b[3;5H") and written[0].endswith("\x1b8")
    graphics.clear()
    assert commands(written[1].encode()) == [({"a": "d", "d": "I", "q": "2", "i": keys["i"]}, b"")]


def test_cells_hold_words_alone_where_an_image_is_shown(session: Session, play: Play) -> None:
    """The program without a terminal, with what would write images."""
    written: list[str] = []

    async def story(at: Any) -> None:
        await at.press("home", "down", "enter", "right")
        await at.until(lambda: "[●]" in at.text and "time (s)" in at.text)
        chart = at.one("#chart", Chart)
        at.app.graphics = Graphics(written.append)
        chart.refresh()
        await at.until(lambda: "[●]" not in at.text)
        rows = slice(chart.region.y, chart.region.bottom - 1)  # but for the scale below
        inside = "\n".join(line[4:] for line in at.lines[rows])
        assert "as written" in inside and "advised" in inside and "energy (kJ)" in inside
        assert "cores" in inside and "→" in inside  # the cursor's name, points farther away
        assert not set(inside) & set("●○◆★░┊│─[]⠈⠉"), inside
        images = [keys for keys, _ in commands("".join(written).encode()) if keys["a"] == "T"]
        assert [keys["z"] for keys in images] == ["1", "2"]
        before = len(written)
        await at.press("right")
        await at.until(lambda: len(written) > before)
        [(keys, _)] = commands("".join(written[before:]).encode())
        assert keys["i"] == images[1]["i"] and keys["a"] == "T"  # of a move the cursor's alone
        await at.press("question_mark")
        assert at.app.graphics.owner is None
        await at.press("escape")
        await at.until(lambda: at.app.graphics.owner is chart)
        for theme in ("textual-light", "ansi-dark", "textual-dark"):
            at.app.theme = theme
            await at.until(lambda: at.app.graphics.owner is None)
            await at.until(lambda: at.app.graphics.owner is chart)
        await at.press("c")
        assert at.app.graphics.owner is None
        at.app.graphics = None
        await at.press("escape")
        await at.until(lambda: "[●]" in at.text)

    play(session, story)


class Recorded(terminal.Pty):
    """A terminal that keeps what is written to it and knows no images, whatever its name."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        super().__init__(argv, env, 120, 40)
        self.bytes, stream, rest = b"", self._stream, b""

        class Both:
            def feed(_, data: bytes) -> None:
                nonlocal rest
                self.bytes += data
                text, begin, end = _APC.sub(b"", rest + data), b"\x1b_", b"\x1b\\"
                whole = text.rfind(begin) <= text.rfind(end)
                cut = len(text) if whole else text.rfind(begin)
                rest = text[cut:]
                stream.feed(text[:cut])

        self._stream: Any = Both()


def shown(screen: Recorded) -> bool:
    """Whether images are shown by now that were not taken off again."""
    screen.screen()
    on: set[str] = set()
    for keys, _ in commands(screen.bytes):
        (on.add if keys["a"] == "T" else on.discard)(keys["i"])
    return bool(on)


def until(found: Callable[[], object]) -> None:
    end = time.monotonic() + terminal.WAIT_S
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.terminal
def test_the_real_program_shows_images_and_asks_for_no_answer(at_home: dict[str, str]) -> None:
    """This terminal answers nothing at all, and keys typed from the first are not lost."""
    places = {**at_home, "TERM": "xterm-kitty", "COLORTERM": "truecolor", "TMUX": ""}
    screen = Recorded(ADVISOR, places)
    try:
        terminal.until(screen, lambda t: "12 workloads" in t and "% less" in t)
        until(lambda: shown(screen))
        screen.key("Enter")
        terminal.until(screen, lambda t: "v front, zone, all" in t)
        until(lambda: shown(screen))
        screen.type("?")
        terminal.until(screen, lambda t: "Help: Options" in t)
        until(lambda: not shown(screen))
        screen.type("q")
        until(lambda: shown(screen))
        assert all(keys.get("q") == "2" for keys, _ in commands(screen.bytes))
        assert b"\x1b[c" not in screen.bytes and b"a=q" not in screen.bytes
        screen.type("q")
        terminal.until_left(screen)
        assert not shown(screen)
    finally:
        screen.close()


@pytest.mark.terminal
@pytest.mark.parametrize(
    ("words", "env"),
    [(["--pictures", "off"], {}), ([], {"TMUX": "/tmp/none,1,0"}), ([], {"TERM": "xterm"})],
)
def test_every_other_terminal_gets_characters(
    at_home: dict[str, str], words: list[str], env: dict[str, str]
) -> None:
    screen = Recorded([*ADVISOR, *words], {**at_home, "TERM": "xterm-kitty", "TMUX": "", **env})
    try:
        terminal.until(screen, lambda t: "12 workloads" in t and "% less" in t)
        screen.key("Enter")
        terminal.until(screen, lambda t: "v front, zone, all" in t and "◆" in t)
        assert b"\x1b_G" not in screen.bytes
    finally:
        screen.close()


# -- on a real kitty -----------------------------------------------------------------------------

_ORANGE = (0xFF, 0xA6, 0x2B)
"""The colour of the star, the cursor's ring and its interval in Textual's dark theme."""


class Kitty:
    """Kitty on an X server of its own that keeps what is shown in a file."""

    def __init__(self, folder: Path, argv: list[str], env: Mapping[str, str]) -> None:
        self._folder = folder
        number, told = os.pipe()
        screen = ["-screen", "0", "1300x900x24", "-fbdir", str(folder)]
        self._server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(told), *screen], stderr=subprocess.DEVNULL, pass_fds=[told]
        )
        os.close(told)
        with os.fdopen(number) as lines:
            display = f":{lines.readline().strip()}"  # one that nobody has
        self._socket = f"unix:{folder}/remote"
        settings = {
            "remember_window_size": "no",
            "initial_window_width": "120c",
            "initial_window_height": "40c",
            "font_size": "10",
            "update_check_interval": "0",
            "allow_remote_control": "socket-only",
            "confirm_os_window_close": "0",
        }
        options = [w for name, value in settings.items() for w in ("-o", f"{name}={value}")]
        self._kitty = subprocess.Popen(
            ["kitty", "--config", "NONE", *options, "--listen-on", self._socket, *argv],
            env={
                **{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "TMUX")},
                **env,
                "DISPLAY": display,
                "LIBGL_ALWAYS_SOFTWARE": "1",
                "XDG_RUNTIME_DIR": str(folder),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def begun(self) -> bool:
        """Tell whether it shows something; False where it ended, as without OpenGL."""
        until(lambda: self._kitty.poll() is not None or self.text().strip())
        return self._kitty.poll() is None

    def type(self, keys: str) -> None:
        """Type keys, written with escapes."""
        kitten = ["kitty", "@", "--to", self._socket]
        subprocess.run([*kitten, "send-text", keys], check=True, capture_output=True)

    def text(self) -> str:
        """Return what is written on the screen; "" while kitty begins."""
        kitten = ["kitty", "@", "--to", self._socket]
        return subprocess.run([*kitten, "get-text"], capture_output=True, text=True).stdout

    def pixels(self) -> np.ndarray:
        """Return what is shown: (rows, columns, red green blue); X11's XWDFile.h has the form."""
        data = (self._folder / "Xvfb_screen0").read_bytes()
        header = np.frombuffer(data, ">u4", 25)
        start = int(header[0] + 12 * header[19])
        height, width, line = int(header[5]), int(header[4]), int(header[12])
        rows = np.frombuffer(data, np.uint8, height * line, start).reshape(height, line)
        return rows[:, : width * 4].reshape(height, width, 4)[..., 2::-1]

    def count(self, colour: tuple[int, int, int]) -> int:
        """Count the pixels of about a colour: kitty's own arithmetic rounds otherwise."""
        return int((np.abs(self.pixels() - np.array(colour)) < 12).all(axis=2).sum())

    def close(self) -> None:
        """End both."""
        for child in (self._kitty, self._server):
            child.terminate()
            child.wait(20)


@pytest.fixture
def kitty(at_home: dict[str, str], tmp_path: Path) -> Iterator[Kitty]:
    if missing := [name for name in ("kitty", "Xvfb") if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path / "x"
    folder.mkdir(mode=0o700)
    running = Kitty(folder, ADVISOR, at_home)
    try:
        if not running.begun():
            pytest.skip("kitty does not start here")
        yield running
    finally:
        running.close()


@pytest.mark.terminal
def test_kitty_shows_the_picture(kitty: Kitty) -> None:
    until(lambda: "12 workloads" in kitty.text() and "% less" in kitty.text())
    kitty.type(r"\r")
    until(lambda: "v front, zone, all" in kitty.text())
    until(lambda: kitty.count(_ORANGE) > 150)
    with_picture = kitty.count(_ORANGE)
    kitty.type("?")
    until(lambda: "Help: Options" in kitty.text())
    until(lambda: kitty.count(_ORANGE) < with_picture / 2)
    kitty.type(r"\x1b")
    until(lambda: kitty.count(_ORANGE) >= with_picture - 5)
