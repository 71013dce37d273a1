"""The places of the program: modes, keys, the bar, the palette and the help are made of this."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True, slots=True)
class AppPlace:
    """A place to go to; ``page`` names its page, which is imported when somebody goes there."""

    name: str
    title: str
    about: str
    page: str

    def kind(self) -> Any:
        """Return the class of its page."""
        return resolve_name(f"advisor_tui.{self.page}")


PLACES = (
    AppPlace(
        "applications",
        "Applications",
        "what is known of each application",
        "applications:ApplicationsPage",
    ),
    AppPlace("jobs", "Jobs", "the latest decisions and how they came out", "jobs:JobsPage"),
    AppPlace("training", "Training", "sweeps: start, watch, stop, resume", "training:TrainingPage"),
    AppPlace(
        "policy",
        "Policy",
        "what the site's policy says, and what another would do",
        "policy:PolicyPage",
    ),
)
"""In the order of their keys: 1, 2, ..."""
