"""Standard output and error as they come: another locale's, a closed one, a full disk.

One place for all verbs, so that none of them ends in a traceback for where it prints to.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PLAIN = "advisor-plain"
_LOOKALIKES = {
    **dict.fromkeys("−–—─━═┄┅┈┉╌╍", "-"),
    **dict.fromkeys("│┃║┆┇┊┋╎╏", "|"),
    **dict.fromkeys("→▶▸►›", ">"),
    **dict.fromkeys("←◀◂◄‹", "<"),
    **dict.fromkeys("↑▲▴", "^"),
    **dict.fromkeys("↓▼▾", "v"),
    **dict.fromkeys("●○◆◇◉•∙·★☆⚑", "*"),
    **dict.fromkeys("‘’‚", "'"),
    **dict.fromkeys("“”„", '"'),
    "±": "~",
    "×": "x",
    "✗": "x",
    "✓": "+",
    "…": ".",
    "µ": "u",
    "μ": "u",
    "≤": "<",
    "≥": ">",
    "≈": "~",
    "⁄": "/",
}
"""One character each, so that columns stay aligned."""


def prepare() -> None:
    """Make sure that nothing printed can fail for its characters, and that 0 to 2 are open.

    What the locale's encoding lacks is printed as what looks most like it. A file opened later
    must not become descriptor 1 or 2 where the caller had closed those: what is printed, by
    children too, would land in it.
    """
    codecs.register_error(_PLAIN, _plain_text)
    _fill_closed()
    for stream in (sys.stdout, sys.stderr, sys.__stderr__):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError, ValueError):
                stream.reconfigure(errors=_PLAIN)


def guarded(work: Callable[[], int]) -> int:
    """Return ``work``'s exit code once all it printed is out.

    A reader that has gone, as of ``| head``, is no failure. Output that cannot be written, a
    closed one too, is one line and 1; so is any other failure of a file that nobody has explained.
    """
    try:
        try:
            code = work()
        except SystemExit:  # argparse has printed its help
            _print_all()
            raise
        if not code:
            _print_all()
        sys.stdout.flush()
    except OSError as error:
        unprinted = _discard_output()
        if isinstance(error, BrokenPipeError) and (unprinted or _reader_has_gone()):
            return 0
        where = error.filename if error.filename and not unprinted else "cannot write the output"
        complain(f"{where}: {error.strerror or error}")
        return 1
    return code


class _Closed(io.TextIOWrapper):
    """In place of a standard output that the caller closed; work goes on whatever it prints."""

    used = False

    def write(self, s: str, /) -> int:
        """Drop a text, and note that there was one."""
        self.used = self.used or bool(s)
        return len(s)


def _print_all() -> None:
    """Have all printed. Raises OSError where it cannot be."""
    sys.stdout.flush()
    if isinstance(sys.stdout, _Closed) and sys.stdout.used:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def complain(text: str, prefix: str = "advisor: ") -> None:
    """Print one line to standard error, if anybody can read it."""
    with suppress(OSError, ValueError):
        print(f"{prefix}{text}", file=sys.stderr, flush=True)


def encodes_all() -> bool:
    """Tell whether standard output can print every character."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").replace("_", "").startswith("utf")


def _plain_text(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_lookalike(c, error.encoding) for c in lacking), error.end


def _lookalike(character: str, encoding: str) -> str:
    substitute = _LOOKALIKES.get(character) or unicodedata.normalize("NFKD", character)[:1]
    if "▀" <= character <= "▟" or "⠀" <= character <= "⣿":  # bars and the dots of pictures
        substitute = " " if character == "⠀" else "#"
    elif "─" <= character <= "╿" and character not in _LOOKALIKES:
        substitute = "+"
    return substitute if substitute.isascii() and substitute.isprintable() else "?"


def _fill_closed() -> None:
    """Open what the caller closed on nothing."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno == errno.EBADF:
                os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
                os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = _Closed(Path(os.devnull).open("wb"), encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _discard_output() -> bool:
    """Drop what could not be printed; return whether there was any."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, sys.stdout.fileno())
            os.close(sink)
        return True
    return False


def _reader_has_gone() -> bool:
    """Tell whether nobody reads standard output any more; unbuffered, nothing is left to flush."""
    with suppress(OSError, ValueError):
        watched = select.poll()
        watched.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in watched.poll(0))
    return False
