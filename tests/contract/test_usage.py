"""How a wrong call is answered: one line, what was probably meant, JSON where it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.store.writer import Writer

Advisor = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("optons", "options"),
        ("site discovr", "discover"),
        ("options A --nodetype x", "--node-type"),
        ("options A --sort tme", "time"),
        ("policy shw", "show"),
    ],
)
def test_what_was_probably_meant(advisor: Advisor, words: str, meant: str) -> None:
    done = advisor(*words.split())
    assert done.code == 2 and done.out == ""
    assert done.err.count("\n") == 1
    assert f"did you mean {meant}?" in done.err


@pytest.mark.parametrize("words", ["optons --json", "options --json", "options A B --json"])
def test_an_error_is_json_where_answers_are(advisor: Advisor, words: str) -> None:
    done = advisor(*words.split())
    assert done.code == 2
    answer = json.loads(done.out)
    assert answer["error"] and answer["exit_code"] == 2
    assert done.err.startswith(f"advisor: {answer['error']}")


@pytest.mark.parametrize(
    "words",
    [
        "options A",
        "fit A",
        "rank A",
        "report",
        "forget A",
        "prune --older-than 1d",
        "bench show",
        "classify A",
        "profile show A",
    ],
)
def test_a_missing_store_has_one_exit_code(advisor: Advisor, tmp_path: Path, words: str) -> None:
    done = advisor(*words.split(), "--db", str(tmp_path / "none.db"))
    assert (done.code, done.out) == (1, "")
    assert f"{tmp_path / 'none.db'}: there is no store" in done.err
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("words", ["rank stencl", "classify stencl", "forget stencl --yes"])
def test_an_application_that_was_probably_meant(
    advisor: Advisor, store_path: Path, words: str
) -> None:
    with Writer(store_path) as store, store.transaction() as db:
        store.workload_id(db, "stencil", "w0")
    done = advisor(*words.split())
    assert done.code == 2 and done.out == ""
    assert "did you mean stencil?" in done.err


def test_advisor_alone_prints_its_verbs_in_groups(advisor: Advisor) -> None:
    done = advisor()
    assert done.code == 0
    heads = [line for line in done.out.splitlines() if line.endswith(":") and line[:1].isalpha()]
    assert heads == ["your jobs:", "measure:", "site:", "study:"]
    assert done.out == advisor("--help").out


@pytest.mark.parametrize(
    ("option", "what", "shown"),
    [
        ("--trust-user", "user", "passwd"),
        ("--admin-user", "user", "passwd"),
        ("--admin-group", "group", "group"),
    ],
)
def test_a_name_that_the_host_does_not_know(
    advisor: Advisor, option: str, what: str, shown: str
) -> None:
    result = advisor("serve", option, "no-such")
    assert result.code == 2 and result.err == (
        f"advisor: {option} no-such: this host knows no such {what} "
        f"(getent {shown} no-such has to show it)\n"
    )
