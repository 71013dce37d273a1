"""``advisor lab pareto``: the published table through the command line, and every mistake told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pictures import kept

GOLDEN = Path(__file__).parents[1] / "golden" / "stencil64_bspline.csv"
AXES = ("--x", "mflops_per_joule:max", "--y", "mflops_per_second:max")
Advisor = Callable[..., Any]


def test_json_is_the_published_trade_off(advisor: Advisor) -> None:
    result = advisor("pareto", GOLDEN, *AXES, "--error", 5, "--json")
    assert result.code == 0
    data = result.json()
    assert data["schema"] == "advisor/pareto/1"
    assert data["front"] == [62, 63, 64, 65]
    assert data["extended_front"][0] == [210.024999, 2696985.11]
    assert data["extended_front"][-1] == [182.741915, 3314084.22]
    assert len(data["extended_front"]) == 6
    assert len(data["zone"]) == 37
    assert 55 not in data["zone"]
    assert 87 in data["zone"]
    assert all(len(p) == 2 for p in data["polygon"])
    assert data["rows"] == 121


def test_people_get_a_table_and_a_picture(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        result = advisor("pareto", GOLDEN, *AXES)
        assert result.code == 0
        table, picture = result.out.split("\n\n", 1)
        lines = table.splitlines()
        assert lines[0].split()[:3] == ["row", "index", "threads_per_node"]
        assert [line.split()[-1] for line in lines[1:5]] == ["front"] * 4
        assert sum(line.endswith("zone") for line in lines) == 33
        assert "●" in picture
        assert "○" in picture
        assert max(map(len, picture.splitlines()[:-1])) <= min(columns, 100)
        assert "4 rows on the front, 37 of 121 in the trade-off zone at 5 % error" in picture


def test_papers_and_spreadsheets_get_the_whole_zone(advisor: Advisor) -> None:
    """As listing 5.3 has it: 37 rows, and lines that are no table as comments."""
    table = advisor("pareto", GOLDEN, *AXES, "--format", "csv").out.splitlines()
    rows = [line for line in table if line and not line.startswith("#")]
    assert rows[0].startswith("row,") and len(rows) == 38
    assert "# 4 rows on the front, 37 of 121 in the trade-off zone at 5 % error" in table
    tabular = advisor("pareto", GOLDEN, *AXES, "--format", "latex").out
    assert r"mflops\_per\_joule" in tabular and "┤" not in tabular


def test_minimised_columns_and_errors_of_their_own(advisor: Advisor, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,name,b\n10,x,100\n10.4,y,104\n20,z,50\n30,w,200\n")
    data = advisor("pareto", table, "--x", "a:min", "--y", "b:min", "--json").json()
    assert data["front"] == [0, 2]
    assert data["zone"] == [0, 1, 2]
    none = advisor("pareto", table, "--x", "a:min", "--y", "b:min", "--error", "0%", "--json")
    assert none.json()["zone"] == [0, 2]
    own = advisor("pareto", table, "--x", "a:min", "--y", "b:min", "--x-error", 10, "--json").json()
    assert (own["x"]["error_pct"], own["y"]["error_pct"]) == (10, 5)


def test_the_older_ways_to_find_what_is_near_the_front(advisor: Advisor, tmp_path: Path) -> None:
    """Relaxed and iterated fronts (Endrei 2019, figures 2.3 and 2.4), beside the zone."""
    data = advisor("pareto", GOLDEN, *AXES, "--json").json()
    assert data["iterated"][0] == data["front"] and len(data["iterated"]) == 4
    assert set(data["front"]) <= set(data["relaxed"])
    relaxed = advisor("pareto", GOLDEN, *AXES, "--near", "relaxed").out
    assert f"{len(data['relaxed'])} of 121 on the front relaxed by 5 % error" in relaxed
    assert sum(line.endswith(" relaxed") for line in relaxed.splitlines()) == (
        len(data["relaxed"]) - len(data["front"])
    )
    iterated = advisor("pareto", GOLDEN, *AXES, "--near", "iterated", "--all").out
    for number, rows in enumerate(data["iterated"][1:], start=2):
        assert sum(line.endswith(f"front {number}") for line in iterated.splitlines()) == len(rows)
    assert "on the first 4 fronts" in iterated
    wide = advisor("pareto", GOLDEN, *AXES, "--outer-error", "10%", "--json").json()
    assert wide["x"]["outer_error_pct"] == 10
    assert max(p[0] for p in wide["polygon"]) > max(p[0] for p in data["polygon"])
    assert advisor("pareto", GOLDEN, *AXES, "--near", "far").code == 2


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_picture_file(advisor: Advisor, tmp_path: Path, kind: str) -> None:
    picture = tmp_path / f"zone.{kind}"
    assert advisor("pareto", GOLDEN, *AXES, "--plot", picture).code == 0
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[kind]
    assert picture.read_bytes().startswith(start)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [picture.name]
    if kind == "svg":
        drawn = picture.read_bytes()
        assert b"trade-off zone" in drawn and b"mflops_per_joule, more is better" in drawn
        assert b"(max)" not in drawn
        kept(picture, "zone")


def test_a_picture_that_cannot_be_made_is_refused_before_anything_is_printed(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code, message in (
        ("zone.gif", 2, "unknown kind of picture"),
        ("none/zone.svg", 1, "there is no folder"),
    ):
        result = advisor("pareto", GOLDEN, *AXES, "--plot", tmp_path / name)
        assert (result.code, result.out) == (code, "")
        assert message in result.err
    for module in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = advisor("pareto", GOLDEN, *AXES, "--plot", tmp_path / "zone.svg")
    assert result.code == 1
    assert f"({sys.executable} -P -m pip install matplotlib)" in result.err


def test_cells_that_are_no_numbers_are_named_by_line_and_row(
    advisor: Advisor, tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n\nnan,3\n4,\n5,x\n6\n")
    result = advisor("pareto", table, "--x", "a:max", "--y", "b:max")
    assert (result.code, result.out) == (1, "")
    for text in (
        "line 4 (row 1), a: nan is not a finite number",
        "line 5 (row 2), b: blank is not a finite number",
        "line 6 (row 3), b: x is not a finite number",
        "line 7 (row 4): 1 cells, but the header has 2 columns",
    ):
        assert text in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a,b\n", "only a header"),
        (b"a,c\n1,2\n", "line 1, b: column is missing (the columns are a, c)"),
        (b"a,b,b\n1,2,3\n", "line 1, b: column given twice"),
        (b"a,b\n1,\xff\n", "is not UTF-8 text"),
        (b'a,b\n1,"2\n', "not CSV"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    advisor: Advisor, tmp_path: Path, content: bytes, message: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(content)
    result = advisor("pareto", table, "--x", "a:max", "--y", "b:max")
    assert (result.code, result.out) == (1, "")
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_missing_file_and_a_wrong_call(advisor: Advisor, tmp_path: Path) -> None:
    missing = advisor("pareto", tmp_path / "no.csv", *AXES)
    assert missing.code == 1
    assert "no.csv cannot be read: No such file" in missing.err
    for argv in (
        (GOLDEN, "--x", "a", "--y", "b:max"),
        (GOLDEN, "--x", "a:best", "--y", "b:max"),
        (GOLDEN, *AXES, "--error", "-1"),
        (GOLDEN, *AXES, "--error", "100"),
        (GOLDEN, "--x", "a:max"),
    ):
        assert advisor("pareto", *argv).code == 2
