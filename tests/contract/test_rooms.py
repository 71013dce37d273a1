"""Each scheduler has a room of its own: nobody else names it or imports from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.paths import share

ROOT = share("config").parent
ROOMS = ("slurm", "pbs", "local")
ELSEWHERE = sorted(
    path
    for folder in ("advisor", "tui")
    for path in (ROOT / folder).rglob("*.py")
    if not any((ROOT / "advisor" / "schedulers" / room) in path.parents for room in ROOMS)
)


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_scheduler_is_named_outside_its_room(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"""["'](?:slurm|pbs)["']""", text)
    assert not re.findall(r"advisor\.schedulers\.(?:slurm|pbs)\b", text)
    assert not re.match(r"slurm|pbs", path.stem)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_no_other_room(room: str) -> None:
    others = "|".join(r for r in ROOMS if r != room)
    for path in (ROOT / "advisor" / "schedulers" / room).glob("*.py"):
        assert not re.findall(rf"advisor\.schedulers\.(?:{others})\b", path.read_text()), path
