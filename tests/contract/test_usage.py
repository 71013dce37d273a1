"""How a wrong call is answered: one line, what was probably meant, JSON where it was asked for."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from advisor.cli import FORMER, VERBS
from advisor.core.columns import columns_of, padded
from advisor.store.writer import Writer
from advisor.views.tables import table

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


@pytest.mark.parametrize("words", ["- report", "-5 report", "lab - rank"])
def test_what_is_no_verb_is_answered_with_all_verbs(advisor: Advisor, words: str) -> None:
    """Whatever verb follows: its parser alone would know no other."""
    done = advisor(*words.split())
    assert done.code == 2 and f"there is no verb {words.split()[-2]!r}" in done.err
    others = ("bench", "classify") if words.startswith("lab") else ("explain", "store")
    assert "choose from" in done.err and all(name in done.err for name in others)


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
    assert heads == ["your jobs:", "your site:", "to study:"]
    assert done.out == advisor("--help").out


def test_the_first_help_has_few_verbs(advisor: Advisor) -> None:
    listed = [line for line in advisor().out.splitlines() if line.startswith("  ")]
    assert len(listed) <= 17
    assert advisor("store").out == advisor("store", "--help").out != ""


@pytest.mark.parametrize("former", FORMER)
def test_a_former_name_is_the_verb_of_today(advisor: Advisor, former: str) -> None:
    """Scripts hear nothing of it: neither here, where no terminal is, nor on standard output."""
    of_today = advisor(*FORMER[former], "--no-such-option")
    done = advisor(former, "--no-such-option")
    assert (done.code, done.err, done.out) == (2, of_today.err, of_today.out)
    done = advisor("--json", former, "--no-such-option")
    assert json.loads(done.out)["hint"].startswith("advisor ")


def test_people_hear_once_where_a_verb_has_gone(tmp_path: Path) -> None:
    """Only at a terminal, on standard error, and not where the answer is JSON.

    Where nothing can be kept they hear it again: here a file is in the folder's place.
    """
    (tmp_path / "file").touch()
    for words, told, state in (
        (["off", "--json"], 0, "state"),
        (["choose", "--off"], 0, "state"),
        (["off"], 1, "state"),
        (["off"], 0, "state"),
        (["off"], 1, "file"),
        (["off"], 1, "file"),
    ):
        reading, terminal = pty.openpty()
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *words],
            stdout=subprocess.PIPE,
            stderr=terminal,
            env={
                **os.environ,
                "HOME": str(tmp_path),
                "XDG_CONFIG_HOME": str(tmp_path),
                "XDG_STATE_HOME": str(tmp_path / state),
            },
            check=True,
        )
        os.write(terminal, b"end")
        heard = os.read(reading, 4096).decode()
        assert heard.count("advisor off is advisor choose --off now") == told
        assert b"now" not in done.stdout and b'"off": true' in done.stdout
        os.close(reading)
        os.close(terminal)


def test_an_application_and_its_workload_are_one_word(
    advisor: Advisor, store_path: Path, tmp_path: Path
) -> None:
    """As every list prints them; an application may have a slash in its name."""
    with Writer(store_path) as store, store.transaction() as db:
        store.workload_id(db, "stencil", "w0")
        store.workload_id(db, "a/b", "w0")
    for words, told in (
        ("options stencil/w0", "no model of stencil "),
        ("options stencil/w1", "stencil has no workload 'w1'"),
        ("options a/b", "no model of a/b "),
        ("options a/b/w0", "no model of a/b "),
        ("options a/b/w1", "a/b has no workload 'w1'"),
    ):
        assert told in advisor(*words.split()).err, words


def test_yes_and_spans_are_written_in_one_way(advisor: Advisor, store_path: Path) -> None:
    with Writer(store_path) as store, store.transaction() as db:
        store.workload_id(db, "stencil", "w0")
    assert advisor("store", "forget", "stencil", "-y").code == 0
    assert "write it like 10m" in advisor("serve", "--refresh", "soon").err
    assert "--watch takes 0 to" in advisor("serve", "--watch", "90d").err
    assert "--refresh must be above 0" in advisor("serve", "--refresh", "0").err


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


@pytest.mark.parametrize(
    "words",
    [
        "--json options A",
        "--db {db} --json options A",
        "--json --db={db} options A",
        "--json report",
    ],
)
def test_what_every_verb_takes_may_stand_before_it(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """`advisor --json report` was answered "did you mean --json"."""
    monkeypatch.setenv("ADVISOR_DB", str(tmp_path / "none.db"))
    done = advisor(*words.format(db=tmp_path / "none.db").split())
    assert done.code == 1
    answer = json.loads(done.out)
    assert answer["error"] == f"{tmp_path / 'none.db'}: there is no store"
    assert advisor("--json").code == advisor("--json", "optons").code == 2


@pytest.mark.parametrize("verb", [v for v in VERBS if v != "cc"])  # cc's words are the compiler's
def test_a_call_that_makes_no_sense_has_one_exit_code(advisor: Advisor, verb: str) -> None:
    one = verb.split()
    for words in ([*one, "--no-such-option"], [*one, *"abcdefgh"], ["--json", *one, "--no-such"]):
        done = advisor(*words)
        assert done.code == 2, (words, done.err)
        assert done.err.count("\n") == 1


def test_the_name_of_a_program_in_this_folder_is_an_application_s(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`advisor train matmul -- ./matmul 400` took the program for a job script."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "matmul"
    for content in (b"#!/bin/sh\nsleep 0.01\n", Path("/bin/true").read_bytes()):
        program.write_bytes(content)
        program.chmod(0o755)
        for command in (["./matmul", "400"], [str(program), "400"], ["env", "./matmul", "400"]):
            done = advisor(
                "train", "matmul", "--scheduler", "local", "--dry-run", "--json", "--", *command
            )
            assert done.code == 0, done.err
            assert done.json()["application"] == "matmul"
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --exclusive\nsrun ./matmul $1\n")
    done = advisor("train", "job.sh", "--scheduler", "local", "--dry-run", "--json", "--", "400")
    assert done.code == 0 and done.json()["application"] == "matmul", done.err


def test_wide_characters_keep_a_table_aligned() -> None:
    names = ["plain", "熱伝導", "e\u0301te\u0301", "🔥 fire", "\u2764\ufe0f", "한국어", "ｗｉｄｅ"]
    for name in names:
        assert columns_of(name) == cell_len(name), name
    lines = table(["name", "time"], [[name, number] for number, name in enumerate(names, 10)])
    assert len({cell_len(line) for line in lines}) == 1
    assert all(cell_len(padded(name, 12)) == 12 for name in names)


@pytest.mark.parametrize(
    "words",
    [
        "explain job.sh --user no-such",
        "explain job.sh --scheduler nope",
        "train job.sh --scheduler nope",
        "train job.sh --node-type nope --scheduler local",
        "train job.sh --meter nope --scheduler local --yes",
        "train job.sh --design nope",
        "run --meter nope -- true",
        "fit stencil --model nope",
        "hook status --scheduler nope",
        "collect --scheduler nope",
        "classify stencil --node-type nope",
        "demo --plot x.nope",
        "policy show 99",
        "options stencil --node-type nope",
        "forget stencil/nope --yes",
    ],
)
def test_a_name_that_does_not_exist_has_the_exit_code_of_usage(
    advisor: Advisor, tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """docs/user.md: 2 is a name, option or value that does not exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -N1 --exclusive\nsrun ./stencil\n")
    with Writer(store_path) as store, store.transaction() as db:
        store.workload_id(db, "stencil", "w0")
    done = advisor(*words.split())
    assert done.code == 2, (done.out, done.err)
    assert done.err.count("\n") == 1
