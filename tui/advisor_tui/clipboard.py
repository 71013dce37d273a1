"""Take text out of the terminal, and say where it surely is.

Whether a terminal puts what it is sent (OSC 52) on its clipboard nobody learns; tmux, as it is set
by default, does not pass it on. So text goes into tmux's own buffer where tmux runs, and a file.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from advisor.edits import replace
from advisor.errors import AdvisorError

FILE = "copied"
_TMUX_S = 2.0
"""Seconds that tmux may take."""


def keep(text: str, folder: Path) -> str:
    """Put a text where it can be pasted from, and return where that is, for people.

    ``folder`` is the person's own; the text is left in a file of it.
    """
    path = folder / FILE
    try:
        replace(path, text.encode())
        file = f"also in {path}"
    except AdvisorError as error:
        file = f"not in a file: {error.message}"
    if "TMUX" not in os.environ:
        return f"sent to the terminal, which may not take it; {file}"
    if _in_tmux(text, "-w") or _in_tmux(text):  # before version 3.2 it has no -w
        return f"in tmux's buffer (prefix ] pastes it); {file}"
    return f"tmux does not take it; {file}"


def _in_tmux(text: str, *options: str) -> bool:
    """Load tmux's buffer; with ``-w`` tmux hands the text to its own terminal, too."""
    try:
        completed = subprocess.run(
            ["tmux", "load-buffer", *options, "-"],
            input=text.encode(),
            capture_output=True,
            timeout=_TMUX_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.returncode == 0
