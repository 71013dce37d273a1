"""CHANGELOG.md has the form of Keep a Changelog, and its newest version is this one's."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from advisor import __version__

TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d|unreleased|never released)$")
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_every_version_has_its_section_newest_first() -> None:
    headings = [line for line in TEXT.splitlines() if line.startswith("## ")]
    found = [HEADING.fullmatch(line) for line in headings]
    assert all(found), headings
    versions = [tuple(int(m[i]) for i in (1, 2, 3)) for m in found if m]
    assert all(newer > older for newer, older in pairwise(versions))
    assert ".".join(map(str, versions[0])) == __version__
    assert [m[4] for m in found if m].count("unreleased") <= 1


def test_every_change_is_of_a_kind() -> None:
    for section in re.split(r"^## .*$", TEXT, flags=re.MULTILINE)[1:]:
        kinds = re.split(r"^### (.*)$", section, flags=re.MULTILINE)
        assert "\n- " not in kinds[0]
        assert kinds[1::2] and set(kinds[1::2]) <= set(KINDS)
        assert len(set(kinds[1::2])) == len(kinds[1::2])
        assert all(changes.strip().startswith("- ") for changes in kinds[2::2])


def test_the_program_says_its_version(advisor: Callable[..., Any]) -> None:
    assert advisor("--version").out == f"advisor {__version__}\n"
