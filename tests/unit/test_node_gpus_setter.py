"""What changes a job's GPUs as it runs: the setter that the node's program leaves."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from tests.another_user import NOBODY, as_user
from tests.unit.posed_gpus import needs_compiler, nvml_library, pose
from tests.unit.test_node_gpus import CLOCKED, PROGRAM, Node
from tests.waiting import wait_for

pytestmark = needs_compiler
CLOCKS = "gpu_freq_khz=1400000/900000/500000"
OWN = f"uid={os.getuid()}"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    pose(made.posed, CLOCKED, CLOCKED)
    yield made
    for note in made.states.glob(".setter.*"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(note.read_text())["pid"], signal.SIGKILL)


def path_of(node: Node, job: str = "7") -> Path:
    return node.states.with_name(f"{node.states.name}.{job}")


def pid_of(node: Node, job: str = "7") -> int:
    return int(json.loads((node.states / f".setter.{job}").read_text())["pid"])


def ask(node: Node, line: str, job: str = "7") -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path_of(node, job)))
        try:
            client.sendall(line.encode())
            return client.recv(200).decode()
        except (BrokenPipeError, ConnectionResetError):  # closed unread
            return ""


def alive(pid: int) -> bool:
    """Whether it runs: one that nobody waits for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_user_chooses_among_the_values_by_their_number(node: Node) -> None:
    assert node.set("7", "0,1", CLOCKS, OWN) == ""
    assert node.calls() == [], "nothing before it is asked for"
    assert ask(node, "2\n") == "ok\n" and ask(node, "0\n") == "ok\n"
    assert node.calls() == ["0 clocks 500", "1 clocks 500", "0 clocks 1400", "1 clocks 1400"]
    pid = pid_of(node)
    done = node.run("lift", "7")
    assert (done.stdout, done.stderr) == ("0/0/0/0.0,1/0/0/0.0\n", "")
    assert node.calls()[4:] == ["0 clocks 0", "1 clocks 0"]
    assert not alive(pid) and not path_of(node).exists() and not list(node.states.iterdir())


def test_limits_go_the_same_way(node: Node) -> None:
    assert node.set("7", "1", "gpu_power_w=300/200", OWN) == ""
    assert ask(node, "1\n") == "ok\n"
    assert node.calls() == ["1 limit 200000"]
    assert node.run("lift", "7").stdout == "1/0/0/0.0\n", "of several limits none is the job's"
    assert node.calls() == ["1 limit 200000", "1 limit 300000"]


def test_it_is_reached_by_the_jobs_user_and_outlives_the_prolog(node: Node) -> None:
    node.states.parent.chmod(0o700)
    path_of(node).touch()  # of a job of that number before, whose node was switched off
    assert node.set("7", "0", CLOCKS, OWN) == ""
    assert stat.S_IMODE(node.states.parent.stat().st_mode) == 0o711
    assert stat.S_IMODE(path_of(node).stat().st_mode) == 0o600
    assert os.getsid(pid_of(node)) == pid_of(node), "slurmd ends the prolog's process group"
    assert ask(node, "1\n") == "ok\n"


def test_a_socket_that_cannot_be_made_leaves_the_job_as_written(node: Node) -> None:
    job = "7" * 150  # more than a socket's path may have
    said = node.set(job, "0", CLOCKS, OWN)
    assert (
        said.startswith("runs without its GPU limits: no setter: ") and path_of(node).name in said
    )
    assert node.run("lift", job).stdout == "0/0/0/0.0\n"
    assert node.calls() == [] and not list(node.states.iterdir())


@pytest.mark.parametrize("line", ["3\n", "99\n", "-1\n", "900000\n", "1", "1 2\n", "\n", "x" * 999])
def test_what_is_no_number_of_a_value_sets_nothing(node: Node, line: str) -> None:
    node.set("7", "0,1", CLOCKS, OWN)
    assert ask(node, line) == "no such value\n"
    assert node.calls() == [] and ask(node, "1\n") == "ok\n"


def test_a_client_that_says_nothing_holds_it_up_for_a_moment(node: Node) -> None:
    node.set("7", "0", CLOCKS, OWN)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path_of(node)))
        assert ask(node, "1\n") == "ok\n"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_only_the_jobs_user_may_ask(node: Node) -> None:
    for folder in list(node.states.parents)[:-2]:
        folder.chmod(folder.stat().st_mode | 0o111)
    uid = pwd.getpwnam(NOBODY).pw_uid
    node.set("7", "0", CLOCKS, f"uid={uid}")
    status = path_of(node).stat()
    assert status.st_uid == uid and stat.S_IMODE(status.st_mode) == 0o600
    assert ask(node, "1\n") == "", "root may connect, and is told by the kernel"
    assert node.calls() == []
    assert as_user(lambda: ask(node, "1\n")) == "ok\n" and node.calls() == ["0 clocks 900"]
    node.run("lift", "7")
    node.set("7", "0", CLOCKS, "uid=0")
    assert "PermissionError" in as_user(lambda: ask(node, "1\n"))


def test_all_devices_get_a_value_or_none(node: Node) -> None:
    node.set("7", "0,1", CLOCKS, OWN)
    ask(node, "1\n")
    pose(node.posed, CLOCKED, {**CLOCKED, "error.set": 4})
    answer = ask(node, "2\n")
    assert answer == "no GPU 1: nvmlDeviceSetGpuLockedClocks: Insufficient Permissions\n"
    assert node.calls()[2:] == ["0 clocks 500", "0 clocks 900"]
    pose(node.posed, CLOCKED)
    assert ask(node, "0\n") == "no GPU 1: GPU 1 is gone\n"
    assert node.calls()[4:] == ["0 clocks 1400", "0 clocks 900"]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ((CLOCKS + "/450000", OWN), "GPU 0: it has no clock of 450 MHz"),
        (("gpu_power_w=300/301", OWN), "GPU 0: 301 W is outside of its range, 100 to 300 W"),
        ((CLOCKS, "gpu_power_w=200", OWN), "too many values"),
        (("gpu_power_w=" + "/".join(["200"] * 17), OWN), "too many values"),
        ((CLOCKS,), "of several values the job's user chooses, and nobody says who that is"),
        ((CLOCKS, "uid=root"), "of several values the job's user chooses, and nobody says who"),
    ],
)
def test_a_value_that_a_device_cannot_have_leaves_no_setter(
    node: Node, wanted: tuple[str, ...], why: str
) -> None:
    assert node.set("7", "0,1", *wanted).startswith(f"runs without its GPU limits: {why}")
    assert not path_of(node).exists() and not (node.states / ".setter.7").exists()
    node.run("lift", "7")
    assert node.calls() == []


def test_no_job_has_more_than_stood_there(node: Node) -> None:
    pose(node.posed, CLOCKED)
    Path(f"{node.posed}.set").write_text("0 limit 250000\n")
    for wanted in ("gpu_power_w=300", "gpu_power_w=300/200"):
        said = node.set("7", "0", wanted, OWN)
        assert said == "runs without its GPU limits: GPU 0: 300 W is more than its 250 W\n"
    assert node.set("7", "0", "gpu_power_w=250/200", OWN) == ""


def test_without_its_setter_a_jobs_devices_are_put_back_all_the_same(node: Node) -> None:
    node.set("7", "0,1", CLOCKS, OWN)
    ask(node, "1\n")
    os.kill(pid_of(node), signal.SIGKILL)
    wait_for(lambda: not alive(pid_of(node)), 10)
    with pytest.raises(OSError, match="refused"):
        ask(node, "0\n")
    assert node.run("lift", "7").stderr == ""
    assert node.calls()[2:] == ["0 clocks 0", "1 clocks 0"]


@pytest.mark.parametrize("after", ["7", "8"])
def test_another_job_on_its_devices_ends_it(node: Node, after: str) -> None:
    """A suspended job's, or one whose epilog never ran; and the same job, requeued."""
    node.set("7", "0,1", CLOCKS, OWN)
    ask(node, "1\n")
    pid = pid_of(node)
    assert node.set(after, "1") == ""
    assert not alive(pid) and node.calls()[2:] == ["0 clocks 0", "1 clocks 0"]
    assert not path_of(node).exists() and not list(node.states.iterdir())


def test_a_job_on_other_devices_leaves_it(node: Node) -> None:
    node.set("7", "0", CLOCKS, OWN)
    node.set("8", "1", CLOCKS, OWN)
    assert ask(node, "1\n", "7") == "ok\n" and ask(node, "2\n", "8") == "ok\n"
    node.run("lift", "8")
    assert ask(node, "2\n", "7") == "ok\n"
    assert node.calls() == ["0 clocks 900", "1 clocks 500", "1 clocks 0", "0 clocks 500"]


def test_it_ends_with_the_file_of_its_job(node: Node) -> None:
    node.set("7", "0", CLOCKS, OWN)
    pid = pid_of(node)
    (node.states / "7").unlink()
    wait_for(lambda: not alive(pid), 10)
    (node.states / ".setter.7").unlink()


@pytest.mark.parametrize("note", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "started": 1}'])
def test_a_note_that_was_written_in_part_is_of_no_setter(node: Node, note: str) -> None:
    """A full /run: the process that writes it has not begun to listen."""
    node.set("7", "0", "gpu_freq_khz=900000")
    (node.states / ".setter.7").write_text(note)
    assert node.run("lift", "7").stderr == ""
    assert node.calls() == ["0 clocks 900", "0 clocks 0"] and not list(node.states.iterdir())


def test_a_driver_that_hangs_keeps_the_setter_alone(node: Node) -> None:
    """Its program, which started it, and what ends the job wait for none of its calls."""
    node.set("7", "0,1", CLOCKS, OWN)
    ask(node, "1\n")
    pose(node.posed, {**CLOCKED, "hang.set": 1000}, CLOCKED)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path_of(node)))
        client.sendall(b"2\n")
        time.sleep(0.3)
        pose(node.posed, CLOCKED, CLOCKED)
        pid = pid_of(node)
        assert node.run("lift", "7").stderr == ""
    assert not alive(pid) and node.calls()[2:] == ["0 clocks 0", "1 clocks 0"]


@pytest.fixture
def program(node: Node, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the program as a module, with the posed driver."""
    monkeypatch.setenv("POSED_NVML", str(node.posed))
    loader = SourceFileLoader("node_gpus", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("node_gpus", loader))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    library = nvml_library() / "libnvidia-ml.so.1"
    found = module.ctypes.CDLL(str(library))
    monkeypatch.setattr(module.ctypes, "CDLL", lambda name: found)
    return module


def test_what_a_setter_that_cannot_be_ended_may_still_set_is_put_back_again(
    node: Node,
    program: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No signal ends a process that the driver does not return to: none is sent here."""
    node.set("7", "0", CLOCKS, OWN)
    ask(node, "1\n")
    with monkeypatch.context() as patched:
        patched.setattr(program.os, "kill", lambda pid, number: None)
        program.lift(str(node.states), "7")
    assert "will be tried again: its setter is still in the driver" in capsys.readouterr().err
    assert node.calls() == ["0 clocks 900", "0 clocks 0"] and (node.states / "7").exists()
    assert not path_of(node).exists()
    with monkeypatch.context() as patched:
        patched.setattr(program.os, "kill", lambda pid, number: None)
        with pytest.raises(program.Refused, match="what job 7 left cannot be put back"):
            program.prepare(str(node.states), "8", [0], {"gpu_freq_khz": [900_000]})
    assert node.calls()[2:] == ["0 clocks 0"]
    assert node.set("8", "0") == "" and node.calls()[3:] == ["0 clocks 0"]
    assert not list(node.states.iterdir())
