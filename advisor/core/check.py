"""A check of an installation: how it came out, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
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
