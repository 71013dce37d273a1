"""What the build adds to the wheel: the man pages of the laboratory's verbs."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SharedFiles(BuildHookInterface):
    """Adds the folder that ``ADVISOR_SHARED`` names as the wheel's share; nothing without it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, which are generated from the code and therefore in no checkout."""
        if folder := os.environ.get("ADVISOR_SHARED"):
            build_data["shared_data"][folder] = "share"
