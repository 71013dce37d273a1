"""The files that the tour shows are those that whoever follows it copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts import steps

ROOT = Path(__file__).parents[2]
FILES = ("site.yaml", "policy.yaml", "grid.csv", "job.sh")


@pytest.mark.parametrize("name", FILES)
def test_the_tour_shows_the_example_s_files(name: str) -> None:
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    shown = next(step for step in steps(page) if step.command == f"cat {name}")
    kept = (ROOT / "examples" / "tour" / name).read_text(encoding="utf-8")
    assert list(shown.output) == kept.splitlines()
