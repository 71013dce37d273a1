"""What any terminal can show: text that stands out from its ground, ASCII where no more is known.

Both are filters that every painted line passes, so no page and no theme has to think of them.
"""

from __future__ import annotations

import locale
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.color import Color
from textual.filter import LineFilter

_SIGNS = {
    "●": "*",
    "○": "o",
    "◍": "@",
    "◌": "c",
    "△": "^",
    "◆": "B",
    "★": "P",
    "⚑": "Y",
    "░": ":",
    "✗": "x",
    "◇": "g",
    "▸": ">",
    "▶": ">",
    "•": "*",
    "·": "-",
    "…": "~",
    "±": "+",
    "×": "x",
    "−": "-",
    "–": "-",
    "—": "-",
    "“": '"',
    "”": '"',
    "’": "'",
    "‘": "'",
    "→": ">",
    "←": "<",
    "┊": "!",
    "↑": "^",
    "↓": "v",
    "‹": "<",
    "›": ">",
    "≤": "<",
    "≥": ">",
    "⏎": "E",
    "⌨": " ",
    "█": "#",
    "▓": "#",
    "▒": "+",
}
_LINES = {
    "─": "-",
    "━": "-",
    "═": "=",
    "│": "|",
    "┃": "|",
    "║": "|",
    "┤": "+",
    "├": "+",
    "┼": "+",
    "┬": "+",
    "┴": "+",
    "└": "+",
    "┘": "+",
    "┌": "+",
    "┐": "+",
    "╭": "+",
    "╮": "+",
    "╰": "+",
    "╯": "+",
    "▔": "-",
    "▁": "_",
    "▏": "|",
    "▕": "|",
    "▎": "|",
    "▌": "|",
    "▐": "|",
    "▊": "|",
    "▂": "#",
    "▃": "#",
    "▄": "#",
    "▅": "#",
    "▆": "#",
    "▇": "#",
    "▀": "#",
}
_PLAIN = str.maketrans({**_SIGNS, **_LINES})
_LINE_OF_DOTS = re.compile("[\u2801-\u28ff]")
_OTHER = re.compile(r"[^\x00-\x7f]")
_BAR_END = re.compile("[\u2581-\u2587]")
"""The end of a scrollbar: a part of its bar, no text."""


def plain(text: str) -> str:
    """Return a text in ASCII, as many cells wide as it was."""
    if text.isascii():
        return text
    text = text.replace(" ±", "+-").replace("\u2800", " ").replace("\xa0", " ")
    text = _LINE_OF_DOTS.sub(".", text.translate(_PLAIN))
    return _OTHER.sub(lambda match: "?" * cell_len(match[0]), text)


CONTRAST = 4.5
"""What text needs to be read (WCAG 2.1, level AA)."""
_FAINT = 0.62
"""How much of its colour faint text keeps."""
Rgb = tuple[int, int, int]
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)
XTERM = TerminalTheme(
    _BLACK,
    _WHITE,
    [
        _BLACK,
        (205, 0, 0),
        (0, 205, 0),
        (205, 205, 0),
        (0, 0, 238),
        (205, 0, 205),
        (0, 205, 205),
        (229, 229, 229),
    ],
    [
        (127, 127, 127),
        (255, 0, 0),
        (0, 255, 0),
        (255, 255, 0),
        (92, 92, 255),
        (255, 0, 255),
        (0, 255, 255),
        _WHITE,
    ],
)
"""The 16 colours as xterm shows them; Rich's own are darker than most terminals' (its cyan takes
white text, theirs black)."""


def contrast(one: Rgb, other: Rgb) -> float:
    """Return the contrast of two colours as WCAG 2.1 defines it, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: Rgb) -> float:
    red, green, blue = (
        v / 3294.6 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _mixed_colour(one: Rgb, other: Rgb, share: float) -> Rgb:
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(one, other, strict=True))
    return red, green, blue


@lru_cache(4096)
def legible(style: Style, depth: ColorSystem) -> Style:
    """Return a style whose text can be read on its ground: lighter or darker as far as need be.

    ``depth``: in the colours that the terminal has.
    """
    front, ground = style.color, style.bgcolor
    if front is None or ground is None or front.is_default or ground.is_default:
        return style
    if style.reverse:
        front, ground = ground, front
    has_16, has_256 = depth is ColorSystem.STANDARD, depth is ColorSystem.EIGHT_BIT
    if has_16 or has_256:
        front, ground = (c.downgrade(depth) for c in (front, ground))
    text, ground_rgb = front.get_truecolor(XTERM), ground.get_truecolor(XTERM)
    colour: Rgb = _mixed_colour(ground_rgb, text, _FAINT) if style.dim and not has_16 else text
    end = max(_BLACK, _WHITE, key=lambda c: contrast(c, ground_rgb))

    def seen(colour: Rgb) -> RichColor:
        """Return a colour as the terminal shows it: the nearest of 256 may be nearer the ground."""
        rgb = RichColor.from_rgb(*colour)
        return rgb.downgrade(depth) if has_256 else rgb

    share = 0.0
    while contrast(seen(colour).get_truecolor(), ground_rgb) < CONTRAST and share < 1:
        share += 0.1
        colour = _mixed_colour(colour, end, share)
    if has_256 or colour != text:
        front = RichColor.from_ansi(15 if end == _WHITE else 0) if has_16 else seen(colour)
    return style + Style(color=front, bgcolor=ground, reverse=False, dim=False)


class Legible(LineFilter):
    """Keeps every text readable, in whatever theme."""

    def __init__(self, color_system: str | None) -> None:
        super().__init__()
        depths = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT}
        self._depth = depths.get(color_system or "", ColorSystem.TRUECOLOR)

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same segments in colours that contrast with their ground."""
        return [
            s
            if s.style is None or _BAR_END.fullmatch(s.text)
            else Segment(s.text, legible(s.style, self._depth), s.control)
            for s in segments
        ]


class Plain(LineFilter):
    """Paints ASCII only, whatever a widget draws."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same segments in ASCII."""
        return [Segment(plain(s.text), s.style, s.control) for s in segments]


def speaks_utf8(environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether the locale's codeset is UTF-8, by the environment this program began with.

    Python itself sets LC_CTYPE where the locale is C, so its own environment does not say.
    """
    env = _first_environment() if environ is None else environ
    name = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or "C"
    codeset = name.partition("@")[0].partition(".")[2]
    if not codeset and name not in ("C", "POSIX"):  # a name like de_DE: the system knows
        codeset = (locale.locale_alias.get(name.lower(), "").partition(".")[2]) or "?"
    return codeset.lower().replace("-", "") == "utf8"


_IMAGES = ("xterm-kitty", "xterm-ghostty")
"""TERM of terminals with kitty's graphics protocol, whatever their version; ssh hands it on."""
_BETWEEN = ("TMUX", "STY", "ZELLIJ", "TEXTUAL_DRIVER")
"""Set by what stands between the program and the terminal, and hands no images on."""


def shows_images(pictures: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the terminal shows images: by its name, or as ``settings.PICTURES`` say.

    It is not asked: an answer that comes late, as over a slow line, would be read as keys.
    """
    if pictures == "off" or any(environ.get(name) for name in (*_BETWEEN, "NO_COLOR")):
        return False
    return pictures == "kitty" or environ.get("TERM") in _IMAGES


def _first_environment() -> Mapping[str, str]:
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ
    pairs = (entry.decode("ascii", "replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}
