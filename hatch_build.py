"""What the build adds: man pages and completion in the wheel, and the README as PyPI shows it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_VERSION = re.compile(r'^__version__ = "(.*)"', re.MULTILINE)
_PAGES = {
    "Homepage": "",
    "Documentation": "/tree/v{version}/docs",
    "Source": "",
    "Issues": "/issues",
    "Changelog": "/blob/v{version}/CHANGELOG.md",
}
"""The project's addresses, below the repository's."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")


def readme_text(text: str, place: str = "") -> str:
    """Return a README as PyPI shows it, where the files beside it are not.

    ``place`` is where they lie, with ``{kind}`` for blob (a page) or raw (a picture). Without it a
    link becomes its text and, where that is another, the file's name; a picture goes.
    """

    def plain(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if place:
            return f"{picture}[{words}]({place.format(kind='raw' if picture else 'blob')}{target})"
        if picture:
            return ""
        return f"`{target}`" if words == target else f"{words} (`{target}`)"

    return _LINK.sub(plain, text)


class Readme(MetadataHookInterface):
    """Gives the package's metadata its addresses, and the README without relative links.

    ``ADVISOR_URL`` is the repository's address, like https://github.com/OWNER/NAME, known to who
    publishes; without it there are no addresses.
    """

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description and the project's addresses."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        url = os.environ.get("ADVISOR_URL", "").rstrip("/")
        (version,) = _VERSION.findall((Path(self.root) / "advisor/__init__.py").read_text())
        place = f"{url}/{{kind}}/v{version}/" if url else ""
        readme = readme_text(text, place)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        metadata["urls"] = {
            name: url + path.format(version=version) for name, path in _PAGES.items() if url
        }


class SharedFiles(BuildHookInterface):
    """Adds the folder that ``ADVISOR_SHARED`` names as the wheel's share; nothing without it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, which are generated from the code and therefore in no checkout."""
        if folder := os.environ.get("ADVISOR_SHARED"):
            build_data["shared_data"][folder] = "share"
