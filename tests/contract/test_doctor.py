"""``advisor doctor``: sound is told from broken, and each line says what to do."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.core.check import opening
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.protocol import call
from advisor.store.publish import publish
from advisor.store.writer import Writer

Run = Callable[..., Any]

BDW = NodeType("bdw", "broadwell", ("batch",), cores=28, freq_khz=(1_200_000,), nodes=("n1", "n2"))


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look at one machine without a scheduler."""
    monkeypatch.setenv("PATH", "/nonexistent")


def sound(path: Path) -> None:
    with Writer(path) as writer:
        writer.save_node_types([BDW], source="site")
        c = Configuration("bdw", 1, 1, 28, 1_200_000)
        writer.save_model(
            "stencil",
            "n64",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats={},
            options=[Option(c, 1.0, 0.9, 1.1, 1.0, 0.9, 1.1)],
        )


def checks(advisor: Run, name: str, state: str, *more: object) -> list[dict[str, str]]:
    found = advisor("doctor", "--json", *more).json()["checks"]
    return [c for c in found if c["name"] == name and c["state"] == state]


def test_a_sound_installation(advisor: Run, store_path: Path) -> None:
    sound(store_path)
    result = advisor("doctor")
    assert result.code == 0 and result.err == "", result.out
    for part in ("WAL", "2 nodes", "1 model", "no Slurm can be asked", "0 failed"):
        assert part in result.out, part
    data = advisor("doctor", "--json").json()
    assert data["schema"] == "advisor/doctor/1" and data["ok"] is True
    assert all(c["todo"] for c in data["checks"] if c["state"] != "ok")


def test_models_that_wait_for_long_are_named(advisor: Run, store_path: Path) -> None:
    sound(store_path)  # leaves marks: nothing was derived yet
    assert not checks(advisor, "models", "warn")
    with Writer(store_path) as writer:
        writer.change("UPDATE stale SET since = '2026-01-31T10:11:12.000000Z'")
    (late,) = checks(advisor, "models", "warn")
    assert late["text"] == "models that follow from 1 workload are late, since 2026-01-31T10:11Z"
    assert late["todo"].startswith("advisor collect")
    assert advisor("collect", "--spool").code == 0
    assert not checks(advisor, "models", "warn")


def test_no_store_fails_with_what_to_do(advisor: Run) -> None:
    result = advisor("doctor")
    assert result.code == 1 and "FAIL  store" in result.out and "there is no store" in result.out


@pytest.mark.parametrize("kind", ["text", "empty", "torn"])
def test_a_damaged_store_fails(advisor: Run, store_path: Path, kind: str) -> None:
    sound(store_path)
    data = store_path.read_bytes()
    with Writer(store_path) as writer:
        writer.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in ("-wal", "-shm"):
        Path(f"{store_path}{end}").unlink(missing_ok=True)
    data = store_path.read_bytes()
    middle = len(data) // 2
    torn = data[:8192] + b"\xa5" * (middle - 8192) + data[middle:]
    store_path.write_bytes({"text": b"hello\n" * 50, "empty": b"", "torn": torn}[kind])
    result = advisor("doctor")
    assert result.code == 1 and "FAIL  store" in result.out and "Traceback" not in result.err


def test_a_published_copy_is_fine(advisor: Run, store_path: Path, tmp_path: Path) -> None:
    sound(store_path)
    copy = tmp_path / "copy.db"
    publish(store_path, copy)
    result = advisor("doctor", "--db", copy)
    assert result.code == 0 and "a published copy" in result.out
    assert "never collected" not in result.out and "the store's host collects" in result.out
    assert not re.search(r"-> advisor (?!doctor|hook|serve)", result.out)  # it is only read here
    Writer(tmp_path / "empty.db").close()
    publish(tmp_path / "empty.db", copy)
    todo = advisor("doctor", "--db", copy).out
    assert "-> on the store's host: advisor site discover" in todo
    assert "-> on the store's host: advisor train" in todo


def test_files_that_are_not_what_is_applied(advisor: Run, store_path: Path, tmp_path: Path) -> None:
    sound(store_path)
    folder = tmp_path / "config"
    folder.mkdir()
    policy = folder / "policy.yaml"
    policy.write_text("version: 1\nmode: observe\n")
    assert advisor("policy", "apply").code == 0
    assert len(checks(advisor, "policy", "warn")) == 0
    policy.write_text("version: 1\nmode: apply\n")
    (found,) = checks(advisor, "policy", "warn")
    assert "is not what is applied" in found["text"] and "advisor policy diff" in found["todo"]
    policy.write_text("version: 1\nmoed: apply\n")
    (found,) = checks(advisor, "policy", "warn")
    assert "policy.yaml:2" in found["text"] and "moed" in found["text"]
    (folder / "site.yaml").write_text("version: 1\n")
    (found,) = checks(advisor, "site", "warn")
    assert "advisor site apply" in found["todo"]


def test_what_keeps_jobs_from_being_rewritten(advisor: Run, store_path: Path) -> None:
    Writer(store_path).close()
    assert "advisor site discover" in checks(advisor, "inventory", "warn")[0]["todo"]
    assert "advisor train" in checks(advisor, "models", "warn")[0]["todo"]
    sound(store_path)
    with Writer(store_path) as writer:
        writer.save_node_types([NodeType("old", cores=8, nodes=("o1",))], source="site")
        writer.set_model_state(1, "suspended", "worse than promised: job 7 (time +40 %)")
    texts = [c["text"] for c in checks(advisor, "inventory", "warn")]
    assert any("no frequency steps for old" in t for t in texts)
    assert any("no scheduler feature selects old" in t for t in texts)
    (found,) = checks(advisor, "models", "warn")
    assert "job 7 (time +40 %)" in found["text"] and "advisor fit stencil" in found["todo"]


def test_what_waits_to_be_collected(advisor: Run, store_path: Path) -> None:
    sound(store_path)
    old = datetime.now(UTC) - timedelta(days=3)
    with Writer(store_path) as writer:
        waiting = {"decision": "a" * 16, "created_at": old.isoformat(), "scheduler": "slurm"}
        writer.save_decision(Decision.from_dict({**waiting, "user": "ann", "mode": "apply"}))
    (found,) = checks(advisor, "collect", "warn")
    assert (
        "without outcome: 1 decision of 30 days" in found["text"]
        and "advisor-collect.timer" in found["todo"]
    )
    spool = store_path.with_name("spool")
    (spool / "bad").mkdir(parents=True)
    (spool / "runs-1.json").write_text("{}")
    (spool / "bad" / "runs-0.json").write_text("{")
    texts = [c["text"] for c in checks(advisor, "spool", "warn")]
    assert any("users' measurements wait in" in t and t.endswith(": 1 file") for t in texts)
    assert any("1 unreadable file" in t for t in texts)


def test_the_daemon_is_asked(advisor: Run, store_path: Path, tmp_path: Path) -> None:
    sound(store_path)
    assert "no daemon answers" in checks(advisor, "daemon", "warn")[0]["text"]
    socket = tmp_path / "advisor.sock"
    daemon = subprocess.Popen(
        [sys.executable, "-m", "advisor", "serve", "--db", store_path, "--socket", socket],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            if socket.exists() or "event=ready" in line:
                break
        (found,) = checks(advisor, "daemon", "ok", "--socket", socket)
        assert str(socket) in found["text"] and "models: 1, " in found["text"]
        assert call(socket, {"v": 1, "op": "ping"})["pong"] is True
    finally:
        daemon.terminate()
        daemon.wait(timeout=20)


@pytest.mark.parametrize("read", [True, False])
def test_a_daemon_without_its_store(
    advisor: Run, store_path: Path, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it decides by is said only where there is something."""
    sound(store_path)
    status = {"store_error": "x: the store is damaged", "store_read": read, "store_hangs": False}
    monkeypatch.setattr("advisor.core.protocol.call", lambda *_, **__: status)
    socket = store_path.parent / "s"
    socket.touch()
    found = [c for c in checks(advisor, "daemon", "fail", "--socket", socket)]
    now = "it answers from what it read last" if read else "it has read none yet, so jobs run as"
    assert now in found[-1]["todo"] and "advisor store restore FILE" in found[-1]["todo"]


def test_a_file_in_the_socket_s_place(advisor: Run, store_path: Path, tmp_path: Path) -> None:
    sound(store_path)
    path = tmp_path / "advisor.sock"
    path.write_text("")
    (found,) = checks(advisor, "daemon", "fail", "--socket", path)
    assert f"{path} is not a socket" in found["text"] and found["todo"].startswith(f"rm {path} &&")
    assert advisor("doctor", "--socket", path).code == 1
    path.unlink()
    assert checks(advisor, "daemon", "fail", "--socket", path) == []


def test_a_daemon_that_hangs(advisor: Run, store_path: Path, tmp_path: Path) -> None:
    """It is there, so to enable it would change nothing: it must be started anew."""
    sound(store_path)
    path = tmp_path / "advisor.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(path))
        silent.listen()
        (found,) = checks(advisor, "daemon", "fail", "--socket", path)
    assert f"the daemon at {path} does not answer within 3 s" in found["text"]
    assert found["todo"].startswith("systemctl restart advisor.service")


def test_a_store_that_vanished_under_its_daemon(
    advisor: Run, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound(store_path)
    store_path.unlink()
    monkeypatch.setattr("advisor.paths._daemons_store", lambda _: store_path)
    (found,) = checks(advisor, "store", "fail")
    assert "is gone" in found["text"] and "advisor store restore FILE" in found["todo"]


def test_a_backup_in_the_store_s_place_is_no_published_copy(
    advisor: Run, store_path: Path, tmp_path: Path
) -> None:
    sound(store_path)
    assert advisor("backup", tmp_path / "b").code == 0
    (tmp_path / "b").replace(store_path)
    (found,) = checks(advisor, "store", "ok")
    assert "a backup in the store's place" in found["text"]


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="doctor-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs for others")
def test_an_advisor_that_users_cannot_run(
    advisor: Run, store_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound(store_path)
    (place / "venv" / "bin").mkdir(parents=True, mode=0o755)
    python = place / "venv" / "bin" / "python"
    python.symlink_to("/usr/bin/env")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("advisor.loop.health.__file__", "/usr/bin/env")
    assert checks(advisor, "python", "warn") == []
    (place / "venv").chmod(0o700)
    (found,) = checks(advisor, "python", "warn")
    assert "other users cannot run the advisor" in found["text"]
    assert found["todo"].startswith(f"chmod o+x {place / 'venv'}; ")


def test_services_that_run_something_else(
    advisor: Run, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, program = tmp_path / "advisor.service", tmp_path / "advisor"
    monkeypatch.setattr("advisor.service.units.LOOKED_INTO", (tmp_path,))
    monkeypatch.setattr("advisor.service.units.program", lambda: program)
    assert checks(advisor, "service", "ok", "--db", store_path) == []  # there is no unit

    def found(state: str) -> dict[str, str]:
        [check] = checks(advisor, "service", state, "--db", store_path)
        return check

    unit.write_text("[Service]\nExecStart=advisor serve\n")
    assert "no program by its whole path" in found("fail")["text"]
    unit.write_text(f"[Service]\nExecStart={program} serve\n")
    assert f"{program}: No such file" in found("fail")["text"]
    program.write_text("#!/no/python3 -I\n")
    assert "may not be executed" in found("fail")["text"]
    program.chmod(0o755)
    assert "/no/python3, is not there" in found("fail")["text"]
    program.write_text("#!/bin/sh\n")
    assert found("ok")["text"] == f"{unit} runs {program}"
    other = tmp_path / "other"
    other.write_bytes(program.read_bytes())
    other.chmod(0o755)
    unit.write_text(f"[Service]\nExecStart={other} serve\n")
    check = found("warn")
    assert f"runs {other}, this command is {program}" in check["text"]
    assert "advisor service install" in check["todo"]


def test_the_command_that_opens_files(place: Path) -> None:
    (place / "a" / "b").mkdir(parents=True)
    (place / "a b").mkdir(mode=0o711)
    file, link = place / "a" / "b" / "file", place / "a b" / "link"
    file.write_text("")
    link.symlink_to(file)
    for path in (place / "a", place / "a" / "b"):
        path.chmod(0o711)
    file.chmod(0o644)
    assert opening([file, link, place / "nothing"]) == ""
    (place / "a").chmod(0o750)
    (place / "a b").chmod(0o700)
    file.chmod(0o600)
    command = opening([link])
    assert command == f"chmod o+x '{place / 'a b'}' {place / 'a'} && chmod o+r {file}"
    subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, check=True)
    assert opening([link]) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as others")
def test_a_right_of_a_group_is_one() -> None:
    """Others may read nothing, but all who work here are in the folder's group."""
    place = Path(tempfile.mkdtemp(prefix="grouped-", dir="/tmp"))
    try:
        file = place / "file"
        file.touch(0o640)
        place.chmod(0o750)
        assert "chmod o+x" in opening([file]) and "chmod o+r" in opening([file])
        group = pwd.getpwnam("nobody").pw_gid
        for path in (place, file):
            os.chown(path, 0, group)
        assert opening([file]) == ""
        file.chmod(0o600)
        assert f"chmod o+r {file}" in opening([file])
    finally:
        shutil.rmtree(place)
