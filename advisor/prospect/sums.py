"""Sums by program, as some sites publish them each month: jobs, node-hours, kWh and users.

ARCHER2's are such tables (https://github.com/ARCHER2-HPC/usage-data, CC0). They have no jobs, so
two things are assumed of a program: whole nodes, and that each of its users ran it equally often.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from advisor.core.power import is_possible
from advisor.core.recognise import clean_name
from advisor.core.worth import J_PER_KWH
from advisor.errors import InputError
from advisor.prospect.usage import NOT_PROGRAMS, OTHERS, GroupSums, UseGroup
from advisor.schedulers.accounting_lines import DamagedLines, numbered_lines

SUMS = "sums"
"""What ``--from`` calls it."""
COLUMNS = {
    "program": ("software", "program", "application", "code"),
    "jobs": ("jobs",),
    "node-hours": ("nodeh", "node_hours", "node-hours"),
    "users": ("users",),
    "kWh": ("kwh",),
}
"""What a column may be called; all but the energy are needed."""
_TOTALS = frozenset({"overall", "total", "all"})
_UNKNOWN = frozenset({"unidentified", "unknown", "other", "others", ""})
_MOST = 1e15
"""No sum is as large."""


def writes_sums(line: str) -> bool:
    """Tell whether a first line heads such a table."""
    return not _lacking(_places(line))


def _places(line: str) -> dict[str, int]:
    heads = [cell.strip().casefold() for cell in next(csv.reader([line]), [])]
    return {
        kind: next((heads.index(name) for name in names if name in heads), -1)
        for kind, names in COLUMNS.items()
    }


def _lacking(places: dict[str, int]) -> list[str]:
    return [kind for kind, place in places.items() if place < 0 and kind != "kWh"]


def stream_sums(path: Path, damaged: DamagedLines) -> Iterator[tuple[UseGroup, GroupSums]]:
    """Yield each program with its sums. Raises InputError for a file that is no such table."""
    lines = numbered_lines(path)
    head = next((line for _, line in lines), "")
    places = _places(head)
    lacking = _lacking(places)
    if lacking:
        raise InputError(
            f"{path}:1: there is no column of {', '.join(lacking)}",
            hint=f"they may be called {', '.join(COLUMNS[lacking[0]])}",
        )
    for number, line in lines:
        if not line.strip():
            continue
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        if len(cells) <= max(places.values()):
            damaged.add(path, number, f"{len(cells)} columns, fewer than the first line's")
            continue
        name = clean_name(cells[places["program"]])
        if name.casefold() in _TOTALS:
            continue
        try:
            values = {
                kind: float(cells[place])
                for kind, place in places.items()
                if kind != "program" and place >= 0
            }
        except ValueError:
            damaged.add(path, number, "a sum that is no number")
            continue
        if not all(0 <= value < _MOST for value in values.values()):
            damaged.add(path, number, "a sum that is none")
            continue
        yield _group(name), _sums(values)


def _group(name: str) -> UseGroup:
    known = name.casefold() not in _UNKNOWN | _NOT_PROGRAMS_FOLDED
    application, by = (name, "program") if known else (OTHERS, "")
    return UseGroup(application, by, "", "", "", "", 0, 0, 0, 0, 0, True)


_NOT_PROGRAMS_FOLDED = frozenset(name.casefold() for name in NOT_PROGRAMS)


def _sums(values: dict[str, float]) -> GroupSums:
    node_s, energy_j = 3600 * values["node-hours"], J_PER_KWH * values.get("kWh", 0.0)
    metered = is_possible(energy_j, node_s, 1)
    return GroupSums(
        jobs=int(values["jobs"]),
        node_s=node_s,
        metered_s=node_s if metered else 0.0,
        energy_j=energy_j if metered else 0.0,
        users=max(1, int(values["users"])),
    )
