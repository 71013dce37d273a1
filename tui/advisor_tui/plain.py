"""Terminals that cannot show every sign: which they are, and ASCII in place of each sign."""

from __future__ import annotations

import locale
import os
import re
from collections.abc import Mapping
from pathlib import Path

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_SIGNS = {
    "●": "*", "○": "o", "◍": "@", "◌": "c", "△": "^", "◆": "B", "★": "P", "⚑": "Y", "░": ":",
    "✗": "x", "◇": "g", "▸": ">", "▶": ">", "•": "*", "·": "-", "…": "~", "±": "+", "×": "x",
    "−": "-", "–": "-", "—": "-", "“": '"', "”": '"', "’": "'", "‘": "'", "→": ">", "←": "<",
    "↑": "^", "↓": "v", "‹": "<", "›": ">", "≤": "<", "≥": ">", "⏎": "E", "⌨": " ",
    "█": "#", "▓": "#", "▒": "+",
}  # fmt: skip
_LINES = {
    "─": "-", "━": "-", "═": "=", "│": "|", "┃": "|", "║": "|", "┤": "+", "├": "+", "┼": "+",
    "┬": "+", "┴": "+", "└": "+", "┘": "+", "┌": "+", "┐": "+", "╭": "+", "╮": "+", "╰": "+",
    "╯": "+", "▔": "-", "▁": "_", "▏": "|", "▕": "|", "▎": "|", "▌": "|", "▐": "|", "▊": "|",
}  # fmt: skip
_PLAIN = str.maketrans({**_SIGNS, **_LINES})
_LINE_OF_DOTS = re.compile("[\u2801-\u28ff]")
_OTHER = re.compile(r"[^\x00-\x7f]")


def plain(text: str) -> str:
    """Return a text in ASCII, as many cells wide as it was."""
    if text.isascii():
        return text
    text = text.replace(" ±", "+-").replace("\u2800", " ").replace("\xa0", " ")
    text = _LINE_OF_DOTS.sub(".", text.translate(_PLAIN))
    return _OTHER.sub(lambda found: "?" * cell_len(found[0]), text)


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


def _first_environment() -> Mapping[str, str]:
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ
    pairs = (entry.decode("ascii", "replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}
