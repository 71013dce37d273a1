"""The execution hook and a job's GPUs, on a posed NVML: its own alone, and back in any case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hooked import HOOKS, Outcome, run_hook
from posed_sys import PosedSys

from tests.unit.posed_gpus import needs_compiler, nvml_library, pose
from tests.waiting import wait_for

pytestmark = needs_compiler
PROGRAM = HOOKS.parent / "slurm/advisor-node-gpus"
DEVICE: dict[str, object] = {
    "energy": 1_000_000,
    "least": 100_000,
    "most": 300_000,
    "clocks": "1400 500 100",
}
JOB = "7.pbs1"


def uuid(index: int) -> str:
    return f"GPU-{index:08d}-0000-0000-0000-000000000000"


class Node:
    """A node with posed GPUs on which pbs_mom runs the hook."""

    def __init__(self, folder: Path, devices: int = 4) -> None:
        self.folder, self.posed, self.gpu_states = folder, folder / "posed", folder / "gpus"
        self.settings = PosedSys(folder).settings(
            folder / "mom_priv/advisor",
            gpu_program=PROGRAM.read_text(),
            gpu_states=str(self.gpu_states),
        )
        self.driver_folder = str(nvml_library())
        pose(self.posed, *[DEVICE] * devices)

    def assign(self, *indexes: int, job: str = JOB, text: str = "") -> None:
        """Write what pbs_cgroups leaves of a job's devices."""
        (self.folder / "aux").mkdir(exist_ok=True)
        line = text or "CUDA_VISIBLE_DEVICES=" + ",".join(map(uuid, indexes))
        (self.folder / "aux" / f"{job}.env").write_text(f"{line}\nCUDA_DEVICE_ORDER=PCI_BUS_ID")

    def run(
        self,
        kind: str,
        job: str = JOB,
        *,
        ngpus: int = 2,
        place: str = "scatter",
        vnode: str = "node1",
        running: tuple[str, ...] = (),
        host: str = "node1",
        **wanted: int,
    ) -> Outcome:
        event: dict[str, Any] = {"event": kind, "node": host}
        if kind == "EXECHOST_PERIODIC":
            event["job_list"] = {name: {} for name in running}
        else:
            event["job"] = {
                "id": job,
                "exec_vnode": f"({vnode}:ncpus=1:ngpus={ngpus})+(node2:ncpus=1:ngpus=1)",
                "Resource_List": {"ncpus": 2, "place": place, **wanted},
            }
        environment = {"LD_LIBRARY_PATH": self.driver_folder, "POSED_NVML": str(self.posed)}
        [outcome] = run_hook(
            "advisor_execjob.py",
            [event],
            self.settings,
            folder=self.folder,
            environment=environment,
        )
        assert outcome["answer"] == ["accept", ""] and outcome["failure"] is None
        return outcome

    def begin(self, job: str = JOB, **how: Any) -> list[str]:
        """Begin a job; return what the log says of its GPUs."""
        log = self.run("EXECJOB_BEGIN", job, **how)["log"]
        return [line for line in log if "GPU" in line or "job" in line.partition("advisor:")[2]]

    def calls(self) -> list[str]:
        """What was set: DEVICE CALL VALUE."""
        file = Path(f"{self.posed}.set")
        return file.read_text().splitlines() if file.exists() else []

    def left(self) -> list[str]:
        return sorted(path.name for path in self.gpu_states.iterdir())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_limit_is_set_on_the_gpus_that_pbs_cgroups_gave(node: Node) -> None:
    node.assign(1, 3)
    assert node.begin(gpu_power_w=150, gpu_freq_mhz=900) == []
    set_calls = ["1 clocks 900", "1 limit 150000", "3 clocks 900", "3 limit 150000"]
    assert node.calls() == set_calls
    node.run("EXECJOB_PROLOGUE", gpu_power_w=150, gpu_freq_mhz=900)
    assert node.calls() == set_calls, "once"
    pose(node.posed, *[{**DEVICE, "energy": 1_500_000 + i} for i in range(4)])
    used = node.run("EXECJOB_EPILOGUE", gpu_power_w=150, gpu_freq_mhz=900)["used"]
    assert json.loads(used["advisor_gpus"]) == {"node1": "1/150/900/500.0,3/150/900/500.0"}
    assert sorted(node.calls()[4:]) == [
        "1 clocks 0",
        "1 limit 300000",
        "3 clocks 0",
        "3 limit 300000",
    ]
    node.run("EXECJOB_END")
    assert node.left() == [] and len(node.calls()) == 8


def test_a_job_that_has_its_node_alone_has_all_gpus_of_it(node: Node) -> None:
    assert node.begin(ngpus=4, place="scatter:exclhost", gpu_power_w=200) == []
    assert node.calls() == [f"{i} limit 200000" for i in range(4)]
    assert node.gpu_states.stat().st_mode & 0o777 == 0o700


def test_the_highest_clock_is_one_of_them(node: Node) -> None:
    node.assign(0, 1)
    assert node.begin(gpu_freq_mhz=1400) == []
    assert node.calls() == ["0 clocks 1400", "1 clocks 1400"]


def test_a_node_whose_name_has_a_domain_is_told_without_it(node: Node) -> None:
    how: dict[str, Any] = {"host": "node1.cluster", "vnode": "node1.cluster", "gpu_power_w": 200}
    assert node.begin(ngpus=4, place="scatter:excl", **how) == [] and len(node.calls()) == 4
    used = node.run("EXECJOB_EPILOGUE", **how)["used"]
    assert list(json.loads(used["advisor_gpus"])) == ["node1"]


@pytest.mark.parametrize(
    ("assigned", "how", "why"),
    [
        ("", {}, "no hook pbs_cgroups says which GPUs are its own"),
        ("", {"place": "scatter:exclhost"}, "the driver has 4 GPUs, not the 2 it was given"),
        (
            f"CUDA_VISIBLE_DEVICES={uuid(1)}",
            {},
            "names others than the 2 that PBS gave it",
        ),
        (f"CUDA_VISIBLE_DEVICES={uuid(1)},{uuid(1)}", {}, "names others than the 2"),
        ("CUDA_VISIBLE_DEVICES=MIG-1,MIG-2", {}, "names no whole GPUs"),
        ("CUDA_VISIBLE_DEVICES=0,1", {}, "names no whole GPUs"),
        (f"CUDA_VISIBLE_DEVICES={uuid(1)},{uuid(2)},MIG-1", {}, "names no whole GPUs"),
        (f"OLD_CUDA_VISIBLE_DEVICES={uuid(1)},{uuid(2)}", {}, "names no whole GPUs"),
        (f"CUDA_VISIBLE_DEVICES={uuid(1)},{uuid(9)}", {}, f"the driver has no {uuid(9)}"),
    ],
)
def test_where_its_gpus_are_not_surely_its_own_nothing_is_set(
    node: Node, assigned: str, how: dict[str, Any], why: str
) -> None:
    if assigned:
        node.assign(text=assigned)
    [line] = node.begin(gpu_power_w=150, **how)
    assert why in line and "runs without its GPU limits" in line and node.calls() == []


def test_without_gpus_here_nothing_is_said_or_done(node: Node) -> None:
    assert node.begin(ngpus=0, gpu_power_w=150) == [] and not node.gpu_states.exists()
    assert node.begin("8.pbs1", ngpus=2) == [] and not node.gpu_states.exists()
    node.assign(0, 1)
    log = node.run("EXECJOB_BEGIN")["log"] + node.run("EXECJOB_EPILOGUE")["log"]
    assert "FileNotFoundError" not in "".join(log) and not node.gpu_states.exists()


def test_who_wants_no_limits_is_not_told_of_them(node: Node) -> None:
    node.assign(0, 1)
    node.begin(gpu_power_w=150)
    assert node.begin("8.pbs1") == [] and len(node.calls()) == 2, "which are its own nobody says"


BAD: list[tuple[dict[str, object], dict[str, Any], str]] = [
    ({"mig": 1}, {"gpu_power_w": 150}, "it is cut into MIG instances"),
    ({"processes": 1}, {"gpu_power_w": 150}, "something computes on it already"),
    ({"error.set": 4}, {"gpu_power_w": 150}, "Insufficient Permissions"),
    ({}, {"gpu_power_w": 900}, "900 W is outside of its range, 100 to 300 W"),
    ({}, {"gpu_power_w": 5}, "5 W is outside of its range"),
    ({}, {"gpu_power_w": 1}, "1 W is outside of its range"),
    ({}, {"gpu_freq_mhz": 901}, "it has no clock of 901 MHz"),
    ({"least": 200_000}, {"gpu_power_w": 150}, "outside of its range, 200 to 300 W"),
    ({"clocks": "1000 950 50"}, {"gpu_freq_mhz": 900}, "it has no clock of 900 MHz"),
]


@pytest.mark.parametrize(("second", "wanted", "why"), BAD)
def test_bad_devices_are_a_line_each_and_the_job_runs_as_written(
    node: Node, second: dict[str, object], wanted: dict[str, Any], why: str
) -> None:
    pose(node.posed, DEVICE, {**DEVICE, **second}, DEVICE, DEVICE)
    node.assign(0, 1)
    [line] = node.begin(**wanted)
    assert why in line
    calls = node.calls()
    assert calls in ([], ["0 limit 150000", "0 limit 300000"]), "all or none"
    used = node.run("EXECJOB_EPILOGUE", **wanted)["used"]
    assert "/150/" not in used.get("advisor_gpus", "") and node.calls() == calls


def test_a_device_without_counter_is_limited_all_the_same(node: Node) -> None:
    bare = {name: value for name, value in DEVICE.items() if name != "energy"}
    pose(node.posed, DEVICE, {**bare, "error.energy": 3}, DEVICE, DEVICE)
    node.assign(0, 1)
    assert node.begin(gpu_power_w=150) == []
    used = node.run("EXECJOB_EPILOGUE", gpu_power_w=150)["used"]
    assert json.loads(used["advisor_gpus"]) == {"node1": "0/150/0/0.0,1/150/0/-"}
    assert node.calls()[2:] == ["0 limit 300000", "1 limit 300000"]


def test_without_a_driver_or_the_program_a_line_says_so(node: Node, tmp_path: Path) -> None:
    node.assign(0, 1)
    node.driver_folder = str(tmp_path)
    assert "there is no NVIDIA driver here" in node.begin(gpu_power_w=150)[0]
    del node.settings["gpu_program"]  # as an older installation left it
    assert "run: advisor hook install" in node.begin("8.pbs1", place="excl", gpu_power_w=150)[0]
    node.settings |= {"gpu_program": PROGRAM.read_text(), "python": "/nowhere/python3"}
    assert "No such file" in node.begin("9.pbs1", place="excl", gpu_power_w=150)[0]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('0/150/0/2.0,1/150/0/-')", True),
        ("print('0/150/0/2.0 more')", False),
        ("print('more 0/150/0/2.0')", False),
        ("print('0/150/0/2.0\\nmore')", False),
        ("", False),
    ],
)
def test_only_what_devices_had_and_took_is_told(node: Node, program: str, told: bool) -> None:
    node.assign(0, 1)
    node.begin(gpu_power_w=150)
    node.settings["gpu_program"] = program
    outcome = node.run("EXECJOB_EPILOGUE", gpu_power_w=150)
    assert ("advisor_gpus" in outcome["used"]) == told
    log = "".join(outcome["log"])
    assert "its energy is not reported" in log, "what comes behind it is done"
    assert ("advisor hook install" in log) == (not program)


def test_what_a_killed_mom_left_is_put_back(node: Node) -> None:
    node.assign(0, 1)
    node.begin(gpu_power_w=150)
    node.run("EXECHOST_PERIODIC", running=(JOB,))
    assert len(node.calls()) == 2 and node.left() == [JOB], "it still runs"
    node.run("EXECHOST_PERIODIC", running=("8.pbs1",))
    assert node.calls()[2:] == ["0 limit 300000", "1 limit 300000"] and node.left() == []
    (node.gpu_states / f".{JOB}").touch()
    log = node.run("EXECHOST_PERIODIC", running=("8.pbs1",))["log"]
    assert "no job" not in "".join(log), "what was never written whole is no job's"


def test_the_next_job_on_a_gpu_begins_with_what_the_device_had(node: Node) -> None:
    node.assign(0, 1)
    node.begin(gpu_power_w=150)  # suspended, or gone
    node.assign(1, 2, job="8[3].pbs1")
    assert node.begin("8[3].pbs1") == [], "it asks for no limit itself"
    assert node.calls()[2:] == ["0 limit 300000", "1 limit 300000"] and node.left() == []
    node.assign(0, 1)
    node.begin(gpu_power_w=150)
    node.begin("8[3].pbs1", gpu_power_w=200)
    assert node.calls()[-2:] == ["1 limit 200000", "2 limit 200000"]
    node.run("EXECJOB_ABORT", "8[3].pbs1")
    assert node.calls()[-2:] == ["1 limit 300000", "2 limit 300000"] and node.left() == []


def test_a_driver_that_hangs_is_left_to_itself(node: Node) -> None:
    node.settings["gpu_program"] = "import time\nimport sys\nsys.stdin.read()\ntime.sleep(60)\n"
    node.settings["gpu_timeout_s"] = 0.2
    node.assign(0, 1)
    [line] = node.begin(gpu_power_w=150)
    assert "did not answer in 0.2 s" in line


def test_a_program_that_hangs_is_ended(node: Node, tmp_path: Path) -> None:
    pid, shell = tmp_path / "pid", tmp_path / "python"
    shell.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 60\n")
    shell.chmod(0o755)
    node.settings |= {"python": str(shell), "gpu_timeout_s": 2.0}
    node.assign(0, 1)
    assert "did not answer in 2 s" in node.begin(gpu_power_w=150)[0]
    status = Path("/proc", pid.read_text().strip(), "stat")

    def ended() -> bool:
        try:
            return status.read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_for(ended, 20)
