"""Extra-P's files: all four forms of the same measurements give the same runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.store.csvfile import Terms
from advisor_lab.importers.extrap import ExtrapChoice, read_extrap

TERMS = Terms("bdw", "ann")
AXES = {"nodes": "p", "threads_per_node": "24"}
POINTS = [(1, 100), (2, 100), (1, 200), (2, 200)]
TIMES = [[8.0, 8.2], [4.0, 4.1], [16.0, 16.4], [8.0, 8.1]]
TEXT = """# two parameters, braces around each point
PARAMETER p
PARAMETER n
POINTS ( 1 100 ) ( 2 100 ) ( 1 200 ) (2 200)

METRIC time
REGION main
DATA 8 8.2
DATA 4 4.1
DATA 16 16.4
DATA 8.0 8.1
METRIC energy
REGION main
DATA 800 820
DATA 810 830
DATA 1600 1640
DATA 1620
REGION main->solve
METRIC time
DATA 1 1
DATA 1 1
DATA 1 1
DATA 1 1
"""


def nested() -> str:
    found = [{"point": p, "values": v} for p, v in zip(POINTS, TIMES, strict=True)]
    return json.dumps({"parameters": ["p", "n"], "measurements": {"main": {"time": found}}})


def referenced() -> str:
    return json.dumps(
        {
            "parameters": [{"id": 2, "name": "n"}, {"id": 1, "name": "p"}],
            "callpaths": [{"id": 1, "name": "main"}],
            "metrics": [{"id": 1, "name": "time"}],
            "coordinates": [
                {
                    "id": i,
                    "parameter_value_pairs": [
                        {"parameter_id": 2, "parameter_value": n},
                        {"parameter_id": 1, "parameter_value": str(p)},
                    ],
                }
                for i, (p, n) in enumerate(POINTS)
            ],
            "measurements": [
                {"id": 1, "callpath_id": 1, "metric_id": 1, "coordinate_id": i, "value": v}
                for i, values in enumerate(TIMES)
                for v in values
            ],
        }
    )


def lines() -> str:
    found = [
        json.dumps({"params": {"p": p, "n": n}, "metric": "time", "callpath": "main", "value": v})
        for (p, n), v in zip(POINTS, TIMES, strict=True)
    ]
    return "\n\n".join(found) + "\n"


@pytest.mark.parametrize("form", [TEXT, nested(), referenced(), lines()])
def test_every_form_gives_the_runs(tmp_path: Path, form: str) -> None:
    (tmp_path / "f").write_text(form)
    read = read_extrap(tmp_path / "f", TERMS, ExtrapChoice(axes=AXES))
    assert read.extra_columns == ("n",)
    runs = [(o.configuration.nodes, o.extra["n"], o.time_s) for o in read.observations]
    assert runs == [(p, n, t) for (p, n), v in zip(POINTS, TIMES, strict=True) for t in v]
    assert {o.configuration.threads_per_node for o in read.observations} == {24}


def test_energies_join_where_there_are_as_many(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(TEXT)
    read = read_extrap(tmp_path / "f", TERMS, ExtrapChoice(axes=AXES))
    assert [o.energy_j for o in read.observations][:4] == [800, 820, 810, 830]
    assert [o.energy_quality for o in read.observations][-2:] == ["missing", "missing"]
    inner = read_extrap(tmp_path / "f", TERMS, ExtrapChoice("main->solve", axes=AXES))
    assert {o.time_s for o in inner.observations} == {1.0}


def test_one_parameter_needs_no_braces_and_no_metric(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("PARAMETER n\nPOINTS 10 20\nREGION r\nDATA 1\nDATA 2\n")
    read = read_extrap(tmp_path / "f", TERMS, ExtrapChoice())
    assert [(o.extra["n"], o.time_s) for o in read.observations] == [(10, 1), (20, 2)]
    (tmp_path / "f").write_text('{"params": {"n": 10}, "value": 1.5}')
    assert len(read_extrap(tmp_path / "f", TERMS, ExtrapChoice()).observations) == 1


@pytest.mark.parametrize(
    ("text", "choice", "why"),
    [
        ("PARAMETER n\nPOINTS 1\nREGION r\nDATA 1\nDATA 2", {}, "line 5: more DATA than the 1"),
        ("PARAMETER n\nPOINTS 1 2\nDATA 1", {}, "its end: 1 DATA before it, but there are 2"),
        ("PARAMETER n\nPOINTS 1 2\nDATA 1\nMETRIC e", {}, "line 4: 1 DATA before it"),
        ("PARAMETER n\nPOINTS 1\nDATA x", {}, "line 3: 'x' is not a number"),
        ("PARAMETER n m\nPOINTS (1)\nDATA 1", {}, "line 3: 1 coordinates, but there are 2"),
        ("HELLO there", {}, "line 1: 'HELLO' is not a section"),
        ("POINTS 1", {}, "line 1: POINTS before any PARAMETER"),
        ("", {}, "no measurements"),
        ("{", {}, "not JSON"),
        ('{"parameters": ["n"]}', {}, "key 'measurements' is missing"),
        ('{"parameters": ["n"], "measurements": [1]}', {}, "not Extra-P's JSON"),
        ('{"params": {"n": 1}, "value": 1}\n{"value": 2}', {}, "line 2: key 'params' is missing"),
        ('{"params": {"n": 1}, "value": true}', {}, "line 1: True is not a number"),
        (TEXT, {"region": "mane"}, "no region 'mane'"),
        (TEXT, {"time": "watts"}, "no metric 'watts'"),
        (TEXT, {"axes": {"nodes": "q"}}, "no parameter 'q'"),
        (TEXT, {"axes": {"nodes": "1.5"}}, "is not a configuration"),
        (TEXT.replace("REGION main->solve", "REGION other"), {}, "several regions"),
        (TEXT.replace("METRIC time", "METRIC a"), {}, "no metric is named time"),
    ],
)
def test_mistakes_name_their_place(
    tmp_path: Path, text: str, choice: dict[str, object], why: str
) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(InputError) as error:
        read_extrap(tmp_path / "f", TERMS, ExtrapChoice(**choice))  # type: ignore[arg-type]
    assert why in str(error.value) and "\n" not in str(error.value)
    assert str(tmp_path / "f") in str(error.value)
