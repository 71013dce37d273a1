"""``advisor store publish`` and ``advisor store promote``, and readers that notice a new copy."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.job_history import JobHistory, PastJob
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.errors import StoreError
from advisor.store.announced import place_of
from advisor.store.backup import restore
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.records import Outcome
from advisor.store.stale_histories import save_histories, stale_histories, touch_histories
from advisor.store.writer import Writer

C = Configuration("hsw", 1, 1, 4, 0)


def fill(path: Path, application: str = "app", **more: Any) -> None:
    with Writer(path) as store:
        store.add_observations(
            application, "default", [Observation(C, 1.0, contributor="ann", **more)]
        )
        store.save_model(
            application,
            "default",
            "hsw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="missing",
            n_train=1,
            stats={},
            options=[Option(C, 1.0, 0.9, 1.1, 1.0, 1.0, 1.0)],
        )


# -- publish -------------------------------------------------------------------------------------


def test_publish_says_what_it_did(
    advisor: Callable[..., Any], store_path: Path, tmp_path: Path
) -> None:
    fill(store_path)
    target = tmp_path / "copy.db"
    done = advisor("publish", target)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"published {target}: 1 model of 1 workload")
    done = advisor("publish", target, "--json")
    data = done.json()
    assert data["schema"] == "advisor/publish/1"
    assert (data["models"], data["path"], data["bytes"]) == (1, str(target), target.stat().st_size)


def test_a_copy_is_whole_readable_by_all_and_needs_no_other_file(
    store_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "shared" / "copy.db"
    target.parent.mkdir()
    with Writer(store_path) as store:  # still open: part of it is only in the write-ahead log
        fill(store_path)
        store.save_decision(Decision.from_dict({"decision": "d1"}))
        assert Path(f"{store_path}-wal").stat().st_size
        publish(store_path, target)
    assert {p.name for p in target.parent.iterdir()} == {"copy.db", "copy.db.announced"}
    assert place_of(target).stat().st_mode & 0o777 == 0o644
    assert target.stat().st_mode & 0o777 == 0o644
    db = sqlite3.connect(f"{target.as_uri()}?mode=ro", uri=True)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    with Reader(target) as copy:
        assert copy.published
        assert len(copy.observations("app")) == len(copy.model_stamps()) == 1
        assert copy.decision("d1") is not None
    assert not [p for p in tmp_path.iterdir() if "draft" in p.name]


def test_a_copy_without_history(
    advisor: Callable[..., Any], store_path: Path, tmp_path: Path
) -> None:
    fill(store_path)
    outcome = Outcome(
        "1",
        "slurm",
        "",
        "",
        "d1",
        "ann",
        "",
        "COMPLETED",
        1,
        "",
        1.0,
        None,
        "missing",
        None,
        None,
        "",
        {"secret": "payroll"},
        "",
    )
    with Writer(store_path) as store:
        store.save_decision(
            Decision.from_dict({"decision": "d1", "request": {"job_name": "payroll"}})
        )
        store.save_outcome(outcome)
        touch_histories(store, ["payroll"])
        (mark,) = stale_histories(store, 1)
        history = JobHistory((PastJob("payroll", 1, 1.0, 1.0, 1, 1, ()),))
        save_histories(store, {mark: history}, "")
        touch_histories(store, ["payroll"])
    target = tmp_path / "copy.db"
    assert advisor("publish", target, "--no-history").code == 0
    assert b"payroll" not in target.read_bytes()
    with Reader(target) as copy:
        assert copy.decisions() == [] == copy.outcomes()
        assert len(copy.model_stamps()) == 1
    report = advisor("report", "--db", target)
    assert report.code == 0 and "on the store's host" in report.out
    with Reader(store_path) as store:
        assert len(store.decisions()) == len(store.outcomes()) == 1


def test_an_open_reader_notices_a_replaced_copy(store_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    fill(store_path)
    publish(store_path, target)
    with Reader(target) as copy:
        assert not copy.changed()
        assert list(copy.model_stamps()) == [1]
        fill(store_path, "second")
        assert not copy.changed()  # not published yet
        assert list(copy.model_stamps()) == [1]
        publish(store_path, target)
        assert copy.changed()
        assert not copy.changed()
        assert list(copy.model_stamps()) == [1, 2]
        assert [m.application for m in copy.models()] == ["app", "second"]


def test_a_bad_replacement_is_said_and_the_old_copy_still_answers(
    store_path: Path, tmp_path: Path
) -> None:
    target, bad = tmp_path / "copy.db", tmp_path / "bad"
    fill(store_path)
    publish(store_path, target)
    with Reader(target) as copy:
        bad.write_bytes(b"garbage" * 100)
        bad.replace(target)
        for _ in range(2):
            with pytest.raises(StoreError, match="damaged"):
                copy.changed()
        assert list(copy.model_stamps()) == [1]
        target.unlink()
        with pytest.raises(StoreError, match="gone"):
            copy.changed()
        assert list(copy.model_stamps()) == [1]
        publish(store_path, target)
        assert copy.changed()
        assert list(copy.model_stamps()) == [1]


def test_a_reader_notices_what_is_written_to_a_live_store(store_path: Path) -> None:
    fill(store_path)
    with Reader(store_path) as reader, Writer(store_path) as store:
        assert not reader.published
        assert not reader.changed()
        store.set_model_state(1, "suspended", "slow")
        assert reader.changed()
        assert not reader.changed()
        assert next(reader.models()).state == "suspended"


def test_a_reader_notices_a_replaced_live_store(store_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    fill(store_path)
    fill(other, "restored")
    with Reader(store_path) as reader:
        for end in ("-wal", "-shm"):
            Path(f"{store_path}{end}").unlink(missing_ok=True)
        other.replace(store_path)
        assert reader.changed()
        assert [w.application for w in reader.workloads()] == ["restored"]


def test_a_published_copy_can_be_put_back_as_the_store(store_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    fill(store_path)
    publish(store_path, copy)
    restore(copy, store_path)
    fill(store_path, "later")
    with Reader(store_path) as reader:
        assert not reader.published
        assert [w.application for w in reader.workloads()] == ["app", "later"]


def test_publish_refuses_what_would_do_harm(
    advisor: Callable[..., Any], store_path: Path, tmp_path: Path
) -> None:
    other, text = tmp_path / "other.db", tmp_path / "notes.txt"
    fill(store_path)
    fill(other)
    text.write_text("precious")
    for target, what in (
        (store_path, "is the store itself (name another file)"),
        (other, "is a live store"),
        (text, "damaged or no advisor store"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "copy.db", "there is no folder"),
    ):
        done = advisor("publish", target)
        assert done.code == 1 and done.out == ""
        assert what in done.err and str(target) in done.err
        assert done.err.count("\n") == 1
    assert text.read_text() == "precious"
    with Reader(other) as reader:
        assert len(reader.model_stamps()) == 1


def test_damage_is_never_published(
    advisor: Callable[..., Any], store_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    with Writer(store_path) as store:
        store.add_observations("app", "default", [Observation(C, n + 1.0) for n in range(500)])
    assert advisor("publish", target).code == 0
    before = target.read_bytes()
    with store_path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(store_path.stat().st_size - 8192))
    done = advisor("publish", target)
    assert done.code == 1
    assert "damaged" in done.err and str(store_path) in done.err
    assert target.read_bytes() == before


def test_drafts_of_a_killed_publishing_are_swept_up(store_path: Path, tmp_path: Path) -> None:
    fill(store_path)
    old = tmp_path / ".copy.db.n1-4.77.0123abcd.draft"
    fresh = tmp_path / ".copy.db.n1-4.78.0123abcd.draft"
    old.write_text("half")
    fresh.write_text("somebody is at it")
    os.utime(old, (0, 0))
    publish(store_path, tmp_path / "copy.db")
    assert not old.exists()
    assert fresh.exists()


def test_publish_without_a_store(advisor: Callable[..., Any], tmp_path: Path) -> None:
    done = advisor("publish", tmp_path / "copy.db")
    assert done.code == 1
    assert "there is no store" in done.err
    assert list(tmp_path.iterdir()) == []


# -- promote -------------------------------------------------------------------------------------


def test_promote(advisor: Callable[..., Any], store_path: Path) -> None:
    fill(store_path, scope="own", account="climate")
    done = advisor("promote", "app", "--scope", "account")
    assert done.code == 0
    assert "1 run of app now advises the jobs of their accounts" in done.out
    assert "advisor fit app" in done.out
    done = advisor("promote", "app", "--workload", "default", "--scope", "all", "--json")
    data = done.json()
    assert data["schema"] == "advisor/promote/1"
    assert (data["promoted"], data["scope"], data["without_account"]) == (1, "all", 0)
    assert data["next"] == "advisor fit app --workload default"
    with Reader(store_path) as reader:
        assert len(reader.observations("app", user="zoe")) == 1
    done = advisor("promote", "app", "--scope", "all")
    assert done.code == 3
    assert "nothing to do: all 1 run" in done.err


def test_promote_says_which_runs_carry_no_account(
    advisor: Callable[..., Any], store_path: Path
) -> None:
    fill(store_path, scope="own")
    done = advisor("promote", "app", "--scope", "account")
    assert done.code == 3
    assert "no account is known for the runs of ann (1)" in done.err and "--scope all" in done.err
    fill(store_path, scope="own", account="climate")
    done = advisor("promote", "app", "--scope", "account")
    assert done.code == 0
    assert "not shared, because no account is known: ann (1)" in done.out


def test_promote_names_what_is_known(advisor: Callable[..., Any], store_path: Path) -> None:
    fill(store_path)
    for arguments, known in (
        (("promote", "ap", "--scope", "all"), "did you mean app?"),
        (("promote", "app", "--scope", "all", "--workload", "x"), "known: default"),
        (("promote", "app", "--scope", "all", "--contributor", "x"), "known: ann"),
    ):
        done = advisor(*arguments)
        assert done.code == 2 and known in done.err
    assert advisor("promote", "app").code == 2
    assert advisor("promote", "app", "--scope", "own").code == 2


def test_promote_needs_a_live_store(
    advisor: Callable[..., Any], store_path: Path, tmp_path: Path
) -> None:
    assert advisor("promote", "app", "--scope", "all").code == 1
    assert not store_path.exists()
    fill(store_path, scope="own")
    copy = tmp_path / "copy.db"
    publish(store_path, copy)
    before = copy.read_bytes()
    done = advisor("promote", "app", "--scope", "all", "--db", copy)
    assert done.code == 3 and "published copy" in done.err
    assert copy.read_bytes() == before
