"""The process beside a run that goes through values asks the node's setter for them."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.training import visiting
from advisor.training.visiting import Setter
from tests.unit.posed_gpus import needs_compiler, pose
from tests.unit.test_node_gpus import CLOCKED, Node
from tests.unit.test_node_gpus_setter import CLOCKS, OWN, path_of, pid_of
from tests.waiting import wait_for

pytestmark = needs_compiler


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    pose(made.posed, CLOCKED, CLOCKED)
    made.set("7", "0,1", CLOCKS, OWN)
    yield made
    made.run("lift", "7")


def asked(setter: Setter, number: int) -> bool:
    """Whether a value stands that was asked for."""
    setter.ask(number)
    return wait_for(lambda: setter.answered() or bool(setter.why)) and not setter.why


def of(node: Node) -> Setter:
    return Setter(path_of(node), owner=os.getuid())


def test_it_knows_when_a_value_stands(node: Node) -> None:
    setter = of(node)
    assert asked(setter, 2) and setter.number == 2 and not setter.waits
    assert node.calls() == ["0 clocks 500", "1 clocks 500"]
    assert not asked(setter, 3) and setter.why == "no such value"


def test_it_says_what_the_driver_says(node: Node) -> None:
    pose(node.posed, CLOCKED, {**CLOCKED, "error.set": 4})
    setter = of(node)
    assert not asked(setter, 1)
    assert setter.why == "GPU 1: nvmlDeviceSetGpuLockedClocks: Insufficient Permissions"


def test_without_a_setter_it_says_so(node: Node, tmp_path: Path) -> None:
    nowhere = Setter(tmp_path / "nowhere", owner=os.getuid())
    assert not asked(nowhere, 0)
    assert nowhere.why == "nothing sets it as a job runs: No such file or directory"
    setter = of(node)
    assert asked(setter, 1)
    os.kill(pid_of(node), signal.SIGKILL)
    assert not asked(setter, 0) and setter.why.startswith(("nothing sets it", "its setter is gone"))


def test_a_process_of_another_user_is_no_setter(node: Node) -> None:
    setter = Setter(path_of(node), owner=os.getuid() + 1)
    assert not asked(setter, 0) and "another user's process listens there" in setter.why
    assert node.calls() == []


def test_a_driver_that_hangs_is_waited_for_no_longer_than_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visiting, "_ANSWER_S", 0.2)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "7"))
        listening.listen()
        setter = Setter(tmp_path / "7", owner=os.getuid())
        assert not asked(setter, 0) and setter.why == "the driver does not answer"
