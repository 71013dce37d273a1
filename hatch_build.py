"""What the build adds: man pages and completion in the wheel, and the README as PyPI shows it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def readme_text(text: str) -> str:
    """Return a README without links to files beside it, which are not where PyPI shows it.

    A link becomes its text and, where that is another, the file's name; a picture goes.
    """

    def plain(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if picture:
            return ""
        return f"`{target}`" if words == target else f"{words} (`{target}`)"

    return _LINK.sub(plain, text)


class Readme(MetadataHookInterface):
    """Gives the package's metadata the README without relative links."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_text(text)}


class SharedFiles(BuildHookInterface):
    """Adds the folder that ``ADVISOR_SHARED`` names as the wheel's share; nothing without it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, which are generated from the code and therefore in no checkout."""
        if folder := os.environ.get("ADVISOR_SHARED"):
            build_data["shared_data"][folder] = "share"
