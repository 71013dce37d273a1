"""A check of an installation: how it came out, and what to do."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from advisor.errors import AdvisorError

CheckState = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, how it came out, what was found, and what to do ("" when nothing)."""

    name: str
    state: CheckState
    text: str
    todo: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {"name": self.name, "state": self.state, "text": self.text, "todo": self.todo}


def check_error(name: str, state: CheckState, error: AdvisorError) -> Check:
    """Return the check that failed with an error."""
    return Check(name, state, error.message, error.hint)


def opening(files: Iterable[Path]) -> str:
    """Return the command that lets every user read the files, "" where they can.

    Read: r for others on the file, x for others on each folder on the way, links followed. A file
    that is not there, or that the caller cannot look at, is not judged.
    """
    folders, closed = dict[Path, None](), dict[Path, None]()
    for file in files:
        real = file.resolve()
        for place in (*reversed(file.absolute().parents), *reversed(real.parents), real):
            try:
                mode = place.stat().st_mode
            except OSError:
                break
            if stat.S_ISDIR(mode) and not mode & stat.S_IXOTH:
                folders[place] = None
            elif not stat.S_ISDIR(mode) and not mode & stat.S_IROTH:
                closed[place] = None
    found = (("x", folders), ("r", closed))
    return " && ".join(f"chmod o+{bit} {shlex.join(map(str, p))}" for bit, p in found if p)
