"""Backup, restore and prune: while others write, and killed at every step."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.decision import Decision
from advisor.errors import InputError
from advisor.policy.load import check_text
from advisor.store.backup import backup, restore
from advisor.store.pruning import prune, purge_pruned, restore_pruned
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.examples import example_store

Run = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "site" / "advisor.db"
    path.parent.mkdir()
    example_store(path, "ann")
    return path


def decide(path: Path, name: str) -> None:
    with Writer(path) as writer:
        writer.save_decision(Decision.from_dict({"decision": name, "user": "ann"}))


def whole(path: Path) -> bool:
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as db:
        return bool(db.execute("PRAGMA integrity_check").fetchone() == ("ok",))


def test_a_backup_is_its_owners_and_restores(advisor: Run, store: Path, tmp_path: Path) -> None:
    decide(store, "before")
    file = tmp_path / "backup.db"
    os.umask(0o022)
    done = advisor("backup", file, "--db", store)
    assert (done.code, file.stat().st_mode & 0o777) == (0, 0o600)
    decide(store, "after")
    done = advisor("restore", file, "--db", store, "--json")
    assert done.code == 0, done.err
    with Reader(store) as reader:
        assert reader.decision("before") is not None
        assert reader.decision("after") is None
    with Reader(Path(done.json()["kept"])) as reader:
        assert reader.decision("after") is not None
    assert store.stat().st_mode & 0o777 == 0o600
    decide(store, "later")


@pytest.mark.parametrize(
    "name",
    ["advisor.db.copy", "advisor.db.backup", "advisor.db.new", ".advisor.db", "advisor.db-1"],
)
@pytest.mark.parametrize("verb", ["backup", "publish"])
def test_no_name_beside_the_store_collides_with_a_draft(
    advisor: Run, store: Path, verb: str, name: str
) -> None:
    """``advisor.db.copy`` was the draft's own name: 0 bytes were written, and it said done."""
    decide(store, "kept")
    file = store.with_name(name)
    for _ in range(2):
        history = ["--history"] if verb == "publish" else []
        done = advisor(verb, file, "--db", store, "--json", *history)
        assert done.code == 0, done.err
        assert done.json()["bytes"] == file.stat().st_size > 0
        with Reader(file) as reader:
            assert reader.decision("kept") is not None
    assert {p.name for p in store.parent.iterdir()} <= {
        "advisor.db",
        "advisor.db-wal",
        "advisor.db-shm",
        name,
        *([f"{name}.announced"] if verb == "publish" else []),
    }


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3\0" + b"x" * 5000, None])
@pytest.mark.parametrize("verb", ["backup", "publish"])
def test_what_does_not_read_back_whole_is_not_called_done(
    advisor: Run,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    damage: bytes | None,
) -> None:
    """The target's file system loses what was written, or half of it (None), without a word."""
    file = tmp_path / "backup.db"
    assert advisor(verb, file, "--db", store).code == 0
    before = file.read_bytes()
    with Writer(store) as writer, writer.transaction() as db:  # an equal copy is not written again
        writer.workload_id(db, "later", "default")

    def losing(path: Path) -> None:
        if path.name.startswith(".backup.db."):
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)

    monkeypatch.setattr("advisor.store.publish.synced", losing)
    done = advisor(verb, file, "--db", store)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1 and "backup.db" in done.err and "untouched" in done.err
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if "draft" in p.name] == []


def test_a_log_that_was_left_behind_destroys_nothing(
    advisor: Run, store: Path, tmp_path: Path
) -> None:
    """A daemon that was killed leaves its log; SQLite would write it into the backup."""
    file = tmp_path / "backup.db"
    backup(store, file)
    code = (
        "import os, sys\\nfrom pathlib import Path\\nfrom advisor.store.writer import Writer\\n"
        "from advisor.core.decision import Decision\\nw = Writer(Path(sys.argv[1]))\\n"
        "w.save_decision(Decision.from_dict({'decision': 'killed', 'user': 'ann'}))\\n"
        "os.kill(os.getpid(), 9)"
    ).replace("\\n", "\n")
    killed = subprocess.run([sys.executable, "-c", code, str(store)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert Path(f"{store}-wal").stat().st_size
    assert advisor("restore", file, "--db", store).code == 0
    assert whole(store)
    with Reader(store) as reader:
        assert reader.decision("killed") is None
    store.unlink()
    shutil.copy(file, store)
    Path(f"{store}-wal").write_bytes(b"x" * 5000)  # of a store that is gone
    assert advisor("restore", file, "--db", store).code == 0
    assert whole(store)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"x" * 5000, b"hello"])
def test_what_is_no_store_is_refused(
    advisor: Run, store: Path, tmp_path: Path, content: bytes
) -> None:
    file, before = tmp_path / "f", store.read_bytes()
    file.write_bytes(content)
    done = advisor("restore", file, "--db", store)
    assert done.code in (1, 2)
    assert done.err.count("\n") == 1
    assert store.read_bytes() == before
    with pytest.raises(InputError):
        restore(tmp_path / "none", store)
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE a (b)")
    with pytest.raises(InputError, match="is not a store of the advisor"):
        restore(tmp_path / "other.db", store)
    with pytest.raises(InputError, match="the store itself"):
        restore(store, store)


KILLED = """
import os, sys
from pathlib import Path
from advisor.store import backup
step, left = sys.argv[1], int(sys.argv[2])
def dying(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return function(*args, **kwargs)
    return call
for name in ("replace", "rename", "hardlink_to", "unlink"):
    setattr(Path, name, dying(getattr(Path, name)))
for name in ("fsync", "utime", "open"):
    setattr(os, name, dying(getattr(os, name)))
getattr(backup, step)(Path(sys.argv[3]), Path(sys.argv[4]))
"""


@pytest.mark.parametrize("step", ["backup", "restore"])
def test_killed_at_every_step_nothing_is_half(store: Path, tmp_path: Path, step: str) -> None:
    file = tmp_path / "backup.db"
    decide(store, "old")
    backup(store, file)
    decide(store, "new")
    source, target = (store, file) if step == "backup" else (file, store)
    survived = False
    for left in range(0, 60, 2):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, step, str(left), str(source), str(target)],
            capture_output=True,
            check=False,
        )
        survived = killed.returncode == 0
        for path in (store, file):
            with Reader(path) as reader:
                assert reader.decision("old") is not None, left
        if step == "restore" and not survived:
            with Reader(store) as reader:
                new = reader.decision("new")
            kept = list(store.parent.glob("*.before-*[0-9]"))
            assert new is not None or kept, left
        if survived:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert survived
    assert whole(target)


def test_a_restore_under_load(store: Path, tmp_path: Path) -> None:
    """Writers that come again and again either write into the old store or the new one."""
    file, stop, failed = tmp_path / "backup.db", threading.Event(), []
    backup(store, file)

    def load() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                decide(store, f"load{number}")
            except Exception as error:
                failed.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(5):
            restore(file, store)
            assert whole(store)
    finally:
        stop.set()
        thread.join()
    assert whole(store)
    decide(store, "after")
    assert len(failed) <= 5, failed[:3]


def test_pruning_forgets_decisions_and_no_model(advisor: Run, store: Path) -> None:
    with Reader(store) as reader:
        models, jobs = reader.model_stamps(), len(reader.decisions(limit=10**6))
        outcomes = len(reader.outcomes())
        runs = len(reader.observations("cg-solver"))
    assert jobs and outcomes and models
    done = advisor("prune", "--older-than", "0d", "--db", store, "--json", "--yes")
    assert done.code == 0, done.err
    assert (done.json()["decisions"], done.json()["outcomes"]) == (jobs, outcomes)
    with Reader(store) as reader:
        assert reader.decisions() == [] and reader.outcomes() == []
        assert reader.model_stamps() == models
        assert len(reader.observations("cg-solver")) == runs
        sums = reader.rows("SELECT sum(decisions), sum(outcomes) FROM months")[0]
        assert tuple(sums) == (jobs, outcomes)
    report = advisor("report", "--since", "2000-01-01", "--db", store, "--json").json()
    assert report["jobs"] == 0
    assert sum(month["decisions"] for month in report["pruned"]) == jobs
    assert sum(month["outcomes"] for month in report["pruned"]) == outcomes
    text = advisor("report", "--since", "2000-01-01", "--db", store).out
    assert "sums by whole month" in text and report["pruned"][0]["month"] in text
    others = ("--application", "other"), ("--user", "root")  # the sums know no users
    for more in others:
        found = advisor("report", "--since", "2000-01-01", "--db", store, "--json", *more).json()
        assert found["pruned"] == []
    assert advisor("prune", "--db", store).code == 3  # the policy keeps everything
    assert advisor("prune", "--older-than", "soon", "--db", store).code == 2


def test_the_policy_says_how_long(advisor: Run, store: Path, tmp_path: Path) -> None:
    text = "version: 1\nretention: {decisions: 30d, observations: 30d}\n"
    compiled, problems = check_text(text, "policy.yaml", "policy")
    assert compiled is not None and not problems
    assert compiled["retention"] == {"decisions": "30d", "observations": "30d"}
    assert check_text(text.replace("30d", "long"), "policy.yaml", "policy")[0] is None
    compiled, problems = check_text(
        text.replace("decisions: 30d", "decisions: 0d"), "p.yaml", "policy"
    )
    assert compiled is None and "jobs and sweeps that still run" in str(problems[0])
    (tmp_path / "policy.yaml").write_text(text)
    assert advisor("policy", "apply", tmp_path / "policy.yaml", "--db", store).code == 0
    with Writer(store) as writer:
        old = Decision.from_dict({"decision": "old", "user": "ann"})
        writer.save_decision(replace(old, created_at="2020-01-02T03:04:05Z"))
    asked = advisor("prune", "--db", store)
    assert (asked.code, asked.out) == (2, "") and "--yes" in asked.err
    done = advisor("prune", "--db", store, "--yes")
    assert done.code == 0, done.err
    with Reader(store) as reader:
        assert reader.decision("old") is None
        assert reader.rows("SELECT month FROM months WHERE decisions = 1")[0]["month"] == "2020-01"


def test_prune_killed_half_way_counts_nothing_twice(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.store.pruning._STEP", 7)
    with Writer(store) as writer:
        jobs = len(writer.decisions(limit=10**6))
        calls = 0

        def dying(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 5:
                raise KeyboardInterrupt
            return transaction(*args, **kwargs)

        transaction = writer.transaction
        monkeypatch.setattr(type(writer), "transaction", lambda self: dying())
        with pytest.raises(KeyboardInterrupt):
            prune(writer, decisions_before="9999")
        monkeypatch.undo()
        prune(writer, decisions_before="9999")
        assert writer.rows("SELECT sum(decisions) FROM months")[0][0] == jobs


TABLES = ("decisions", "outcomes", "observations", "months", "summed")


def content(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with Reader(path) as reader:
        return {
            table: sorted(
                [
                    tuple(round(v, 3) if isinstance(v, float) else v for v in row)
                    for row in reader.rows(f"SELECT * FROM {table}")
                ],
                key=repr,
            )
            for table in TABLES
        }


@pytest.mark.parametrize("span", ["30", "0", "1.5", " 7 "])
def test_a_time_span_without_a_unit_deletes_nothing(advisor: Run, store: Path, span: str) -> None:
    """30 was taken for seconds, and everything older was deleted at once."""
    before = content(store)
    done = advisor("prune", "--older-than", span, "--db", store, "--yes")
    assert done.code == 2 and f"{span.strip()}d" in done.err and done.err.count("\n") == 1
    for verb in (("report",), ("forget", "cg-solver", "--yes")):
        refused = advisor(*verb, "--since", span, "--db", store)
        assert refused.code == 2 and refused.err.count("\n") == 1, verb
        assert "." in span or f"{span.strip()}d" in refused.err, verb
    assert content(store) == before


@pytest.mark.parametrize("kind", ["decisions", "observations"])
def test_a_retention_without_a_unit_is_refused_and_an_old_one_keeps_everything(
    advisor: Run, store: Path, tmp_path: Path, kind: str
) -> None:
    text = f"version: 1\nretention: {{{kind}: 2592000}}\n"
    compiled, problems = check_text(text, "policy.yaml", "policy")
    assert compiled is None and "2592000d" in str(problems[0])
    with Writer(store) as writer:  # as an earlier version took it
        old = {"retention": {kind: "2592000"}}
        writer.apply_config("policy", path="p", text="old", compiled=old, by="root")
    before = content(store)
    assert advisor("prune", "--db", store, "--yes").code == 3
    assert content(store) == before


def test_pruning_asks_with_counts_and_can_be_undone_for_a_day(
    advisor: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.store.pruning._STEP", 7)
    before = content(store)
    jobs, outcomes = len(before["decisions"]), len(before["outcomes"])
    refused = advisor("prune", "--older-than", "0d", "--db", store)
    assert refused.code == 2 and "--yes" in refused.err  # nobody to ask
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    refused = advisor("prune", "--older-than", "0d", "--db", store)
    assert refused.code == 3
    assert f"{jobs} decisions, {outcomes} outcomes" in refused.out
    assert content(store) == before
    monkeypatch.setattr("builtins.input", lambda question: "y")
    done = advisor("prune", "--older-than", "0d", "--db", store)
    assert done.code == 0 and "advisor store prune --undo" in done.out
    assert content(store)["decisions"] == []
    assert advisor("prune", "--undo", "--older-than", "1d", "--db", store).code == 2
    undone = advisor("prune", "--undo", "--db", store, "--json")
    assert undone.code == 0, undone.err
    assert undone.json() | {"schema": ""} == {
        "schema": "",
        "decisions": jobs,
        "outcomes": outcomes,
        "observations": 0,
        "undo": True,
    }
    assert content(store) == before
    assert advisor("prune", "--undo", "--db", store).code == 3


def test_runs_that_were_pruned_come_back_and_after_a_day_nothing_does(store: Path) -> None:
    with Writer(store) as writer:
        run = writer.observations("cg-solver")[0].observation
        writer.add_observations("unused", "default", [run])
        runs = len(writer.observations("unused"))
        gone = prune(writer, observations_before="9999").observations
        assert gone >= runs == 1
        assert writer.observations("unused") == []
        assert restore_pruned(writer).observations == gone
        assert [o.observation for o in writer.observations("unused")] == [run]
        prune(writer, decisions_before="9999", observations_before="9999")
        writer.change("UPDATE pruned_rows SET pruned_at = '2020-01-01T00:00:00.000000Z'")
        assert not restore_pruned(writer).anything
        assert purge_pruned(writer) > 0
        assert writer.rows("SELECT count(*) FROM pruned_rows")[0][0] == 0


def test_a_copy_for_others_has_nothing_that_was_pruned(store: Path, tmp_path: Path) -> None:
    with Writer(store) as writer:
        prune(writer, decisions_before="9999")
    publish(store, tmp_path / "copy.db", history=False)
    with sqlite3.connect(tmp_path / "copy.db") as db:
        assert db.execute("SELECT count(*) FROM pruned_rows").fetchone() == (0,)
