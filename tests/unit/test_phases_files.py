"""``advisor lab phases`` on files: what it prints, and a bad file names line and column."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor_lab.phases import files


@pytest.mark.parametrize(
    ("text", "read", "place"),
    [
        ("time_s,site\n0,a\nx,b\n", files.read_events, "line 3, column time_s: 'x' is not"),
        ("time_s,site\n1,a\n0,b\n", files.read_events, "line 3, column time_s: 0 is before"),
        ("time_s,site\n0,a\n1,\n", files.read_events, "line 3, column site: it is blank"),
        ('time_s,site\n0,"a\n1,b\n', files.read_events, "line 3: a quote is not closed"),
        ("time_s\n0\n", files.read_events, "line 1: there is no column site"),
        ("time_s,power_w\n0,1\n1,nan\n", files.read_signal, "line 3, column power_w: 'nan'"),
        ("time_s,energy_j\n0,1\n1\n", files.read_readings, "line 3, column energy_j: 1 cells"),
        ("time_s\n0\n0\n", files.read_marks, "line 3, column time_s: an iteration takes no"),
        (
            "process,duration_s,instructions,cycles\n0,1,0,1\n",
            files.read_bursts,
            "line 2, column instructions: 0 is not above 0",
        ),
        ("process,duration_s,instructions,cycles\n", files.read_bursts, "there are no bursts"),
    ],
)
def test_a_bad_file_names_line_and_column(
    tmp_path: Path, text: str, read: Callable[[Path], object], place: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read(path)
    assert str(path) in str(error.value) and place in str(error.value)


def test_the_verb_prints_what_was_found(
    tmp_path: Path, advisor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i / 10},{'ab'[i % 2]}\n" for i in range(200))
    Path("events.csv").write_text(f"time_s,site\n{rows}")
    assert "1 phase" in advisor("phases", "period", "events.csv").out
    done = advisor("phases", "replay", "events.csv", "events.csv", "--within", "3%")
    assert "known within 3 %" in done.out
    Path("none.csv").write_text("time_s,site\n0,a\n1,b\n")
    answer = json.loads(advisor("phases", "period", "none.csv", "--json").out)
    assert (answer["phases"], answer["answer"]) == ([], "no period")
    refused = advisor("phases", "replay", "events.csv", "events.csv", "--readings", "none.csv")
    assert refused.code == 2 and "--base-readings" in refused.err
