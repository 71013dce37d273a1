"""What installing or removing a hook will do: shown first, then done step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from advisor.errors import AdvisorError


@dataclass(slots=True)
class Plan:
    """What an action will do, in words, and the steps that do it in order."""

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[Callable[[], None]] = field(default_factory=list)
    folder_id: str = ""
    kept: list[str] = field(default_factory=list)
    """What a step could not take away."""

    def add(self, line: str, step: Callable[[], None]) -> None:
        """Add a step and the line that says it."""
        self.lines.append(line)
        self.steps.append(step)

    def run(self) -> None:
        """Do it. Raises AdvisorError naming the file that could not be written."""
        try:
            for step in self.steps:
                step()
        except OSError as error:
            name = error.filename or "a file"
            raise AdvisorError(
                f"{name}: {error.strerror}", hint="nothing is lost; mend it and run this again"
            ) from None
