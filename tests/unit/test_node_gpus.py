"""The program that sets a job's GPUs on a node, against a posed NVML."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.unit.posed_gpus import needs_compiler, nvml_library, pose

pytestmark = needs_compiler
PROGRAM = Path(__file__).resolve().parents[2] / "hooks/slurm/advisor-node-gpus"
DEVICE: dict[str, object] = {"energy": 1_000_000, "least": 100_000, "most": 300_000}
CLOCKED = {**DEVICE, "clocks": "1400 500 100"}


class Node:
    """A node with posed GPUs."""

    def __init__(self, folder: Path) -> None:
        self.posed, self.states = folder / "posed", folder / "states"
        self.states.mkdir()

    def run(self, *words: str, library: str = "") -> subprocess.CompletedProcess[str]:
        """Run the program; it never fails."""
        env = {"LD_LIBRARY_PATH": library or str(nvml_library()), "POSED_NVML": str(self.posed)}
        command = [str(PROGRAM), words[0], str(self.states), *words[1:]]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0
        return done

    def set(self, job: str, gpus: str, *wanted: str) -> str:
        return self.run("set", job, gpus, *wanted).stderr

    def calls(self) -> list[str]:
        """What was set: DEVICE CALL VALUE."""
        file = Path(f"{self.posed}.set")
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_limit_is_set_on_the_jobs_own_gpus_and_put_back(node: Node) -> None:
    pose(node.posed, *[{**DEVICE, "minor": 3 - i} for i in range(4)])
    assert node.set("7", "0,1", "gpu_power_w=150") == ""
    assert node.calls() == ["3 limit 150000", "2 limit 150000"], "by minor number, not by index"
    pose(node.posed, *[{**DEVICE, "minor": 3 - i, "energy": 1_500_000 + i} for i in range(4)])
    assert node.run("lift", "7").stdout == "0/150/0/500.0,1/150/0/500.0\n"
    assert node.calls()[2:] == ["3 limit 300000", "2 limit 300000"]
    assert not list(node.states.iterdir())
    assert node.run("lift", "7").stdout == "" and len(node.calls()) == 4


def uuid(index: int) -> str:
    return f"GPU-{index:08d}-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("gpus", "calls"),
    [
        ("all:3", ["2 limit 150000", "1 limit 150000", "0 limit 150000"]),
        (f"{uuid(0)},{uuid(2)}", ["2 limit 150000", "0 limit 150000"]),
        (f"{uuid(1)},{uuid(1)}", ["1 limit 150000"]),
        ("all:2", "the driver has 3 GPUs, not the 2 it was given"),
        ("all:33", "the driver has 3 GPUs, not the 33 it was given"),
        (f"{uuid(0)},{uuid(3)}", f"the driver has no {uuid(3)}"),
    ],
)
def test_gpus_by_uuid_or_all_of_them(node: Node, gpus: str, calls: list[str] | str) -> None:
    pose(node.posed, *[{**DEVICE, "minor": 2 - i} for i in range(3)])
    why = f"runs without its GPU limits: {calls}\n" if isinstance(calls, str) else ""
    assert node.set("7", gpus, "gpu_power_w=150") == why
    assert node.calls() == ([] if why else calls)
    assert [path.name for path in node.states.iterdir()] == ([] if why else ["7"])


@pytest.mark.parametrize(
    ("wanted", "calls"),
    [
        (("gpu_power_w=100",), ["0 limit 100000"]),
        (("gpu_power_w=300",), ["0 limit 300000"]),
        (("gpu_freq_khz=1400000",), ["0 clocks 1400"]),
        (("gpu_freq_khz=500000",), ["0 clocks 500"]),
    ],
)
@pytest.mark.parametrize("processes", ["", "_v3"])
def test_the_ends_of_a_devices_range_are_in_it_with_any_driver(
    node: Node, wanted: tuple[str, ...], calls: list[str], processes: str
) -> None:
    pose(node.posed, {**CLOCKED, "mig": 0})
    name = "nvmlDeviceGetComputeRunningProcesses"
    older = (f"{name}_v3={name}", "nvmlDeviceGetMigMode=nvmlNoMig") if not processes else ()
    library = str(nvml_library(*older))
    assert node.run("set", "7", "0", *wanted, library=library).stderr == ""
    assert node.calls() == calls
    _, kind, value = calls[0].split()
    took = f"0/{int(value) // 1000}/0" if kind == "limit" else f"0/0/{value}"
    assert node.run("lift", "7", library=library).stdout == took + "/0.0\n"
    pose(node.posed, {**CLOCKED, "processes": 1})
    said = node.run("set", "7", "0", *wanted, library=library).stderr
    assert said == "runs without its GPU limits: GPU 0: something computes on it already\n"


def test_a_device_may_have_as_many_clocks_as_there_is_room_for(node: Node) -> None:
    pose(node.posed, {**DEVICE, "clocks": "1124 101 1"})
    assert node.set("7", "0", "gpu_freq_khz=1100000") == "" and node.calls() == ["0 clocks 1100"]


def test_a_device_may_have_a_single_clock(node: Node) -> None:
    pose(node.posed, {**DEVICE, "clocks": "900 900 50"})
    assert node.set("7", "0", "gpu_freq_khz=900000") == "" and node.calls() == ["0 clocks 900"]


@pytest.mark.parametrize(
    ("before", "behind", "joules"),
    [
        ({}, {"energy": 1_002_500}, "2.5"),
        ({}, {"energy": 999_999}, "-"),
        ({}, {"error.energy": 3}, "-"),
        ({"error.energy": 3}, {}, "-"),
        ({}, {"error.handle": 15}, "-"),
    ],
)
def test_joules_are_told_where_the_counter_goes_on(
    node: Node, before: dict[str, object], behind: dict[str, object], joules: str
) -> None:
    pose(node.posed, CLOCKED, {**CLOCKED, **before})
    assert node.set("7", "0,1", "gpu_power_w=150", "gpu_freq_khz=900000") == ""
    pose(node.posed, CLOCKED, {**CLOCKED, **behind})
    done = node.run("lift", "7")
    assert (done.stdout, done.stderr) == (f"0/150/900/0.0,1/150/900/{joules}\n", "")
    freed = ["0 limit 300000", "0 clocks 0", "1 limit 300000", "1 clocks 0"]
    assert node.calls()[4:] == (freed[:2] if "error.handle" in behind else freed)
    assert not list(node.states.iterdir())


def test_a_clock_is_kept_below_and_freed(node: Node) -> None:
    pose(node.posed, CLOCKED)
    assert node.set("7", "0", "gpu_freq_khz=900000", "gpu_power_w=200") == ""
    assert node.calls() == ["0 clocks 900", "0 limit 200000"]
    assert node.run("lift", "7").stdout == "0/200/900/0.0\n"
    assert node.calls()[2:] == ["0 limit 300000", "0 clocks 0"]


@pytest.mark.parametrize(
    ("second", "gpus", "wanted", "why"),
    [
        ({"mig": 1}, "0,1", "gpu_power_w=150", "GPU 1: it is cut into MIG instances"),
        ({"error.mig": 999}, "0,1", "gpu_power_w=150", "or does not say that it is not"),
        ({"processes": 1}, "0,1", "gpu_power_w=150", "something computes on it already"),
        ({"error.processes": 7}, "0,1", "gpu_power_w=150", "something computes on it already"),
        ({"error.processes": 4}, "0,1", "gpu_power_w=150", "does not say whether something"),
        ({"least": 200_000}, "0,1", "gpu_power_w=150", "150 W is outside of its range, 200 to 300"),
        ({"least": 10**6, "most": 2 * 10**6}, "0,1", "gpu_power_w=150", "range, 1000 to 2000 W"),
        ({}, "0,1", "gpu_power_w=350", "GPU 0: 350 W is outside of its range, 100 to 300 W"),
        ({"error.limits": 3}, "0,1", "gpu_power_w=150", "GPU 1: nvmlDeviceGetPowerManagement"),
        ({"error.handle": 15}, "0,1", "gpu_power_w=150", "GPU 1: the driver has no such device"),
        ({}, "0,5", "gpu_power_w=150", "GPU 5: the driver has no such device"),
        ({"clocks": "1400 1000 100"}, "0,1", "gpu_freq_khz=900000", "has no clock of 900 MHz"),
        ({}, "0,1", "gpu_freq_khz=1450000", "GPU 0: it has no clock of 1450 MHz\n"),
        ({"clocks": "0 1 1"}, "0,1", "gpu_freq_khz=900000", "SupportedGraphicsClocks names none\n"),
    ],
)
def test_all_of_a_jobs_gpus_are_set_or_none(
    node: Node, second: dict[str, object], gpus: str, wanted: str, why: str
) -> None:
    pose(node.posed, CLOCKED, {**CLOCKED, **second})
    said = node.set("7", gpus, wanted)
    assert why in said and said.count("\n") == 1 and node.calls() == []
    took = node.run("lift", "7").stdout
    assert took.startswith("0/0/0/") and node.calls() == [], "what it took is told all the same"


def test_a_device_that_refuses_gives_the_others_back(node: Node) -> None:
    pose(node.posed, DEVICE, {**DEVICE, "error.set": 4})
    said = node.set("7", "0,1", "gpu_power_w=150")
    why = "GPU 1: nvmlDeviceSetPowerManagementLimit: Insufficient Permissions"
    assert said == f"runs without its GPU limits: {why}\n"
    assert node.calls() == ["0 limit 150000", "0 limit 300000"]
    pose(node.posed, DEVICE, DEVICE)
    assert node.run("lift", "7").stdout.startswith("0/0/0/") and len(node.calls()) == 2


def test_a_device_that_refuses_a_clock_gives_the_others_back(node: Node) -> None:
    pose(node.posed, CLOCKED, {**CLOCKED, "error.set": 4})
    said = node.set("7", "0,1", "gpu_power_w=150", "gpu_freq_khz=900000")
    assert "GPU 1: nvmlDeviceSetGpuLockedClocks: Insufficient Permissions" in said
    calls = ["0 clocks 900", "0 limit 150000", "0 limit 300000", "0 clocks 0"]
    assert node.calls() == calls
    pose(node.posed, CLOCKED, CLOCKED)
    assert node.run("lift", "7").stdout == "0/0/0/0.0,1/0/0/0.0\n" and node.calls() == calls


def test_the_next_job_on_a_gpu_puts_back_what_no_epilog_did(node: Node) -> None:
    pose(node.posed, DEVICE, DEVICE)
    node.set("7", "0", "gpu_power_w=150")  # its node died, or it is suspended
    node.set("8", "1", "gpu_power_w=200")
    assert node.calls() == ["0 limit 150000", "1 limit 200000"], "beside it, on its own GPU"
    assert node.set("9", "0") == "" and node.calls()[2:] == ["0 limit 300000"]
    assert [path.name for path in node.states.iterdir()] == ["8"]
    (node.states / "6").write_text('{"1": 5}')  # somebody's, or cut
    node.set("8", "1", "gpu_power_w=150")  # requeued
    assert node.calls()[3:] == ["1 limit 300000", "1 limit 150000"]
    assert json.loads((node.states / "8").read_text())["1"]["before_mw"] == 300_000
    node.set("8", "0", "gpu_power_w=150")  # requeued, on another GPU
    assert node.calls()[5:] == ["1 limit 300000", "0 limit 150000"]


def test_what_cannot_be_put_back_is_tried_again(node: Node) -> None:
    pose(node.posed, DEVICE)
    node.set("7", "0", "gpu_power_w=150")
    pose(node.posed, {**DEVICE, "error.set": 4})
    why = "GPU 0: nvmlDeviceSetPowerManagementLimit: Insufficient Permissions"
    said = f"job 7: its limits could not be lifted, and will be tried again: {why}\n"
    assert node.run("lift", "7").stderr == said
    assert "what job 7 left cannot be put back" in node.set("8", "0", "gpu_power_w=200")
    pose(node.posed, DEVICE)
    assert node.set("8", "0", "gpu_power_w=200") == ""
    assert node.calls() == ["0 limit 150000", "0 limit 300000", "0 limit 200000"]


@pytest.mark.parametrize(
    "words",
    [
        ("0", "gpu_power_w=0"),
        ("0", "fan=9"),
        ("", "gpu_power_w=150"),
        ("x", "gpu_power_w=0"),
        ("0", "gpu_power_w=150x"),
        ("0", "gpu_power_w=150\n"),
    ],
)
def test_words_that_say_nothing_set_nothing(node: Node, words: tuple[str, str]) -> None:
    pose(node.posed, DEVICE)
    assert node.set("7", *words) == "" and node.calls() == [] and not list(node.states.iterdir())


@pytest.mark.parametrize(
    ("gpus", "shown"),
    [
        ("x", "'x'"),
        ("0x", "'0x'"),
        ("0\n", r"'0\n'"),
        ("1000", "'1000'"),
        ("0,x,1", "'x'"),
        ("MIG-" + "7" * 60, "'MIG-" + "7" * 36 + "'"),
    ],
)
def test_a_gpu_that_is_no_number_is_told_and_none_is_set(node: Node, gpus: str, shown: str) -> None:
    pose(node.posed, DEVICE, DEVICE)
    said = node.set("7", gpus, "gpu_power_w=150")
    assert said == f"runs without its GPU limits: {shown} is no GPU's number\n"
    assert node.calls() == [] and not list(node.states.iterdir())


def test_what_a_former_job_left_goes_also_where_a_gpu_is_no_number(node: Node) -> None:
    pose(node.posed, DEVICE, DEVICE)
    node.set("7", "0", "gpu_power_w=150")
    assert "'x' is no GPU's number" in node.set("8", "0,x", "gpu_power_w=200")
    assert node.calls() == ["0 limit 150000", "0 limit 300000"]
    assert not list(node.states.iterdir())


def test_without_driver_or_job_a_line_says_so(node: Node, tmp_path: Path) -> None:
    said = node.run("set", "7", "0", "gpu_power_w=9", library=str(tmp_path)).stderr
    assert "there is no NVIDIA driver here" in said
    pose(node.posed, DEVICE)
    for job in ("../7", "7/../../7", "7\n", "7 8"):
        assert "no job" in node.run("set", job, "0", "gpu_power_w=150").stderr
    assert not list(node.states.iterdir()) and not (tmp_path / "7").exists()
    assert "advisor-node-gpus failed: IndexError" in node.run("set", "7").stderr
    for text in ('{"0": 5, "x": {}}', "{}", ""):
        (node.states / "7").write_text(text)
        done = node.run("lift", "7")
        assert (done.stdout, done.stderr, node.calls()) == ("", "", [])
    node.posed.write_text("-1 error.init 9\n")
    assert "Driver Not Loaded" in node.set("7", "0", "gpu_power_w=150")
