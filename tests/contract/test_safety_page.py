"""docs/safety.md says why a job was not changed: every reason code, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from advisor.core.reasons import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "safety.md"


def test_every_reason_code_is_explained() -> None:
    named = set(re.findall(r"`([a-z-]+)`", PAGE.read_text()))
    assert set(KINDS) - named == set()


def test_the_tables_name_no_other_codes() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {code for row in rows for code in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert named <= set(KINDS)
