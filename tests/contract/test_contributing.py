"""CONTRIBUTING.md lists every file that a change takes: held against changes made before."""

from __future__ import annotations

import re

import pytest

from advisor.paths import share

ROOT = share("config").parent
EVERYWHERE = ("advisor", "tui", "lab", "hooks", "db")
ADDED: dict[str, tuple[str, tuple[str, ...], str, int]] = {
    "A reason": (r'"training-budget": ', EVERYWHERE, "", 1),
    "A policy key": (r"\bunknown_workload: ", EVERYWHERE, "", 1),
    "A meter": (r"\bPmCounters\b", EVERYWHERE, "pm_counters", 1),
    "A model": (r"\bBSpline\b", EVERYWHERE, "bspline", 1),
    "An option of a scheduler": (r"\bkill-on-invalid-dep\b", EVERYWHERE, "", 1),
    "A goal": (r'"min_time"', EVERYWHERE, "", 2),
    "A column of `options`": (
        r"\bed2p\(|\bed2p_js2\b",
        ("advisor/core", "advisor/cli"),
        "",
        2,
    ),
    "A microbenchmark": (r'"copy2"', EVERYWHERE, "", 2),
    "A protocol field": (
        r"\bfingerprint\b",
        ("hooks", "advisor/schedulers", "advisor/core"),
        "",
        3,
    ),
    "A TUI page": (r"\bJobsPage\b", EVERYWHERE, "jobs", 2),
    "A schema change": (r"by_hand\b", ("db", "advisor/store"), "", 2),
    "A node attribute": (
        r'(?m)^    sockets: int|^    sockets: Annotated|"sockets", "cores"|sockets=\w+\("Sockets"',
        EVERYWHERE,
        "",
        2,
    ),
}
"""What was added once, as a pattern that finds it; where it is looked for (what uses it later may
lie elsewhere); the NAME of new files; how many files there may be."""


def changes() -> dict[str, list[str]]:
    """Return the files listed below each heading."""
    parts = re.split(r"(?m)^## ", (ROOT / "CONTRIBUTING.md").read_text())[1:]
    return {p.partition("\n")[0]: re.findall(r"(?m)^- `([^`]+)`", p) for p in parts}


def test_thirteen_changes_are_described() -> None:
    assert set(changes()) == {*ADDED, "A scheduler"}
    assert changes()["A scheduler"] == ["advisor/schedulers/NAME/"]  # make lint holds the rest


@pytest.mark.parametrize("change", ADDED)
def test_a_change_takes_these_files_and_no_other(change: str) -> None:
    pattern, folders, name, most = ADDED[change]
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".lua", ".c", ".json")
        and re.search(pattern, path.read_text(encoding="utf-8"))
    }
    listed = changes()[change]
    assert {file.replace("NAME", name) for file in listed} == files
    assert len(listed) <= most


def test_the_tests_that_it_names_are_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+(?:\.\w+)?)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
