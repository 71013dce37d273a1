"""What follows from a change is worked out after its commit, while others write, or later."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.derive import transfers
from advisor.derive.worker import derive
from advisor.store.reader import Reader
from advisor.store.records import StoredModel
from advisor.store.signatures import save_signatures
from advisor.store.stale import stale
from advisor.store.writer import Writer
from tests.unit.never_swept import NODE_TYPE, signature, sweep
from tests.unit.sizes import stencil
from tests.unit.test_transfer_models import BDW, SKL, fitted, ranked

AT = {
    "class": "advisor.prior.fit:learn",
    "transfers": "advisor.derive.transfers:transfer",
    "sizes": "advisor.derive.size_models:_table",
}
"""What takes the time, by the kind of model: there the other process says so and waits."""
DERIVING = """
import importlib, sys
from advisor.derive.worker import derive
from advisor.store.writer import Writer
path, place, budget = sys.argv[1:]
module, _, name = place.partition(":")
real = getattr(importlib.import_module(module), name)
def held(*args, **more):
    print("computing", flush=True)
    sys.stdin.readline()
    return real(*args, **more)
setattr(sys.modules[module], name, held)
with Writer(path) as writer:
    print(derive(writer, budget_s=float(budget)), flush=True)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store where models of every kind follow, and all but what ``change`` marks is in step."""
    path = tmp_path_factory.mktemp("derive") / "advisor.db"
    with Writer(path) as writer:
        writer.save_node_types([NODE_TYPE, BDW, SKL], source="test")
        for i in range(4):
            sweep(writer, f"app{i}", 0.2 + 0.2 * i)
        for n in (1e6, 2e6, 4e6):
            stencil.sweep(writer, n, stencil.CELLS[::4] if n < 4e6 else stencil.CELLS[::2])
        ranked(writer)
        assert derive(writer) and not stale(writer)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    shutil.copy(made, tmp_path / "advisor.db")
    return tmp_path / "advisor.db"


def change(path: Path, kind: str) -> None:
    """Write what one model of a kind follows from, and nothing that follows."""
    with Writer(path) as writer:
        if kind == "class":
            save_signatures(writer, "new", "default", [signature(0.65)])
        elif kind == "transfers":
            fitted(writer)
        else:
            with writer.batch():
                stencil.fit(writer, 4e6)
        assert stale(writer)


def following(reader: Reader, kind: str) -> list[StoredModel]:
    if kind == "class":
        return [m for m in reader.find_models("new") if m.by_class]
    if kind == "transfers":
        return [m for m in reader.find_models("stencil", "default") if m.transferred]
    return reader.size_models("stencil")


@contextmanager
def deriving(path: Path, kind: str, budget_s: float = 600.0) -> Iterator[subprocess.Popen[str]]:
    """Run another process that derives, until it is in the midst of working a model out."""
    command = [sys.executable, "-c", DERIVING, str(path), AT[kind], str(budget_s)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "computing\n"
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str], waits: int = 1) -> str:
    """Let it go on, each time it waits; return the last it says."""
    out, _ = process.communicate("go\n" * waits, timeout=120)
    assert process.returncode == 0
    return out.split()[-1]


@pytest.mark.parametrize("kind", AT)
def test_others_write_while_it_is_worked_out(path: Path, kind: str) -> None:
    change(path, kind)
    with deriving(path, kind) as process:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # at once, or it raises
            other.execute("ROLLBACK")
        with Writer(path, timeout_s=0) as writer:
            writer.save_decision(stencil.ask(stencil.snapshot(path)))
            assert not following(writer, kind)
        assert ended(process, 9) == "True"
    with Reader(path) as reader:
        (model,) = following(reader, kind)
        assert model.state == "fitted" and not stale(reader)
        assert len(reader.decisions()) == 1


@pytest.mark.parametrize("kind", ["class", "transfers"])
def test_a_killed_process_leaves_the_mark(
    path: Path, kind: str, advisor: Callable[..., Any]
) -> None:
    change(path, kind)
    with deriving(path, kind) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with Reader(path) as reader:
        assert stale(reader) and not following(reader, kind)
    assert advisor("collect", "--spool", "--db", path).code == 0
    with Reader(path) as reader:
        assert following(reader, kind) and not stale(reader)


def test_a_change_meanwhile_leaves_it_stale(path: Path) -> None:
    change(path, "class")
    with Writer(path) as writer:
        while {m.kind for m in stale(writer)} != {"class"}:
            assert not derive(writer, budget_s=0)
    with deriving(path, "class", budget_s=0) as process:
        with Writer(path) as writer:
            save_signatures(writer, "new", "default", [signature(0.35)])
        assert ended(process) == "False"
    with Writer(path) as writer:
        assert {m.kind for m in stale(writer)} == {"lesson", "transfers", "sizes", "class"}
        assert not following(writer, "class")
        assert derive(writer)
        (model,) = following(writer, "class")
        assert model.cold_start["signature"]["gbs"] == pytest.approx(100)
        assert model.version == 1


def test_runs_added_meanwhile_leave_a_family_stale(path: Path) -> None:
    """Whoever adds runs marks nothing: they count for a model once it is fitted with them."""
    change(path, "sizes")
    with Writer(path) as writer:
        while {m.kind for m in stale(writer)} != {"sizes"}:
            assert not derive(writer, budget_s=0)
    with deriving(path, "sizes", budget_s=0) as process:
        with Writer(path) as writer:
            stencil.sweep(writer, 1e6, stencil.CELLS[1:2])
        assert ended(process) == "False"
    with Reader(path) as reader:
        assert not following(reader, "sizes")
        assert [m.kind for m in stale(reader)] == ["sizes"]


def test_two_who_derive_the_same_store_it_once(path: Path) -> None:
    change(path, "class")
    with deriving(path, "class") as process:
        with Writer(path) as writer:
            assert derive(writer)
        assert ended(process) == "True"
    with Reader(path) as reader:
        (model,) = following(reader, "class")
        assert model.version == 1


@pytest.mark.slow
def test_a_thousand_workloads_are_derived_in_passes(path: Path) -> None:
    names = [f"new{i:04}" for i in range(1000)]
    with Writer(path) as writer:
        with writer.batch():
            for i, name in enumerate(names):
                save_signatures(writer, name, "default", [signature(0.1 + 0.0008 * i)])
        counts = []
        for _ in range(500):
            done = derive(writer, budget_s=0.75)
            models = {m.application: m.version for m in writer.models() if m.by_class}
            counts.append(len(models))
            if done:
                break
            # the longest stale come first
            assert sorted(models) == names[: len(models)]
        assert counts[-1] == 1000 and len(counts) > 1
        assert counts == sorted(counts) and len(set(counts[1:])) == len(counts) - 1
        assert set(models.values()) == {1}
        assert not stale(writer)


def test_each_pass_ends_what_it_begins(path: Path) -> None:
    change(path, "class")
    with Writer(path) as writer:
        passes = 0
        while not derive(writer, budget_s=0):
            passes += 1
            assert passes < 10
        assert following(writer, "class") and not stale(writer)


def test_what_is_asked_for_comes_first(path: Path) -> None:
    change(path, "transfers")
    change(path, "class")
    with Writer(path) as writer:
        kinds = Counter(m.kind for m in stale(writer))
        assert kinds["lesson"] == 2
        while not following(writer, "class"):
            assert not derive(writer, budget_s=0, first="new")
            assert not following(writer, "transfers")
        assert derive(writer)
        assert following(writer, "transfers")


def test_what_fails_keeps_nothing_else_from_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    change(path, "transfers")
    change(path, "class")

    def broken(*_: object, **more: object) -> None:
        raise ZeroDivisionError("a defect")

    with Writer(path) as writer, monkeypatch.context() as patch:
        patch.setattr(transfers, "transfer", broken)
        with caplog.at_level(logging.WARNING):
            assert not derive(writer)
        assert "not-derived" in caplog.text and "a defect" in caplog.text
        assert following(writer, "class")
        assert [(m.kind, m.application) for m in stale(writer)] == [("transfers", "stencil")]
    with Writer(path) as writer:
        assert derive(writer)
        assert following(writer, "transfers")


def test_what_is_estimated_from_a_suspended_model_stops_with_it(path: Path) -> None:
    """In the same commit: whoever dies after it leaves nothing that goes on advising."""
    change(path, "transfers")
    with Writer(path) as writer:
        assert derive(writer)
        (base,) = (m for m in writer.find_models("stencil", "default") if m.fitted)
        assert following(writer, "transfers")
        writer.set_model_state(base.id, "suspended", "worse")
        assert not following(writer, "transfers")
        writer.set_model_state(base.id, "fitted")
        assert derive(writer)
        assert following(writer, "transfers")


def test_a_suspension_meanwhile_counts(path: Path) -> None:
    """A model that is suspended while a newer one is worked out is not replaced unseen."""
    change(path, "transfers")
    with Writer(path) as writer:
        assert derive(writer)
        (estimate,) = following(writer, "transfers")
        fitted(writer)
    with deriving(path, "transfers") as process:
        with Writer(path) as writer:
            writer.set_model_state(estimate.id, "suspended", "worse")
        ended(process, 3)
    with Reader(path) as reader:
        (model,) = following(reader, "transfers")
        assert (model.id, model.state) == (estimate.id, "suspended")


def test_class_models_that_waited_are_stale_after_an_upgrade(path: Path) -> None:
    change(path, "class")
    with Writer(path) as writer:
        assert derive(writer)
        sweep(writer, "late", 0.45)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE stale")
        db.execute("DELETE FROM _sqlite_migrations WHERE name = 'm0021_stale'")
        db.commit()
    with Writer(path) as writer:
        assert [(m.kind, m.named, m.whose) for m in stale(writer)] == [
            ("class", ("new", "default"), ("all", ""))
        ]
        assert derive(writer)
        (model,) = following(writer, "class")
        assert model.cold_start["applications"] == 5
