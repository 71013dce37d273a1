"""What may be wrong with a node's GPUs: one line each where somebody looks, and the job as written.

The page docs/gpu.md has the same table.
"""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from advisor.cli import doctor
from advisor.core.inventory import Gpus, Inventory, NodeType
from advisor.errors import MeterError
from advisor.meters.base import Load, MeteredNode
from advisor.meters.nvml import Nvml, gpus_here
from advisor.store.writer import Writer
from tests.unit.decide.test_gpus import NODE, OPTION, ask, gpu_store
from tests.unit.posed_gpus import load_nvml, needs_compiler, nvml_library, pose

__all__ = ["gpu_store"]

pytestmark = needs_compiler
ROOT = Path(__file__).resolve().parents[3]
A100: dict[str, object] = {
    "name": "NVIDIA A100",
    "clocks": "1410 210 15",
    "least": 100_000,
    "most": 400_000,
    "energy": 1_000_000,
    "power": 50_000,
}
HOST = platform.node().partition(".")[0]


@dataclass(frozen=True)
class Case:
    """What is wrong with the second of two devices, and which line each part then has of it.

    "": that part has nothing to say. ``asked``: what a job asks for, of whose model's runs each had
    four GPUs a node; ``had``: what the inventory has of the node's.
    """

    what: str
    second: dict[str, object]
    node: str = ""
    meter: str = ""
    check: str = ""
    decision: str = ""
    asked: str = "--gres=gpu:4"
    had: Gpus = NODE.gpus
    driver_errors: tuple[tuple[str, object], ...] = ()
    is_set: bool = False


CASES = [
    Case(
        "no driver",
        {},
        "nvmlInit_v2: Driver Not Loaded",
        "NVML cannot be used: Driver Not Loaded",
        "NVML cannot be used: Driver Not Loaded",
        driver_errors=(("error.init", 9),),
    ),
    Case(
        "no energy counter",
        {"error.energy": 3},
        meter="without GPU 1 NVIDIA A100, which has no energy counter",
        check="GPU 1 NVIDIA A100 has no energy counter: what jobs take on it is not known",
        is_set=True,
    ),
    Case(
        "MIG",
        {"mig": 1},
        "GPU 1: it is cut into MIG instances, or does not say that it is not",
        "GPU 1 NVIDIA A100: the energy of all its MIG instances",
        "GPU 1 NVIDIA A100 is cut into MIG instances: nothing is set on it",
    ),
    Case(
        "a device that refuses",
        {"error.set": 4},
        "GPU 1: nvmlDeviceSetPowerManagementLimit: Insufficient Permissions",
    ),
    Case(
        "two models in a node",
        {"name": "NVIDIA T4"},
        check="GPUs of several models: NVIDIA A100, NVIDIA T4; nothing is set on them",
        decision="the inventory lists none for a100",
        had=Gpus(count=4),
        is_set=True,
    ),
    Case(
        "another number of GPUs than the model's runs had",
        {},
        check="2 GPUs, where the inventory has 4 for gpunode",
        decision="2 GPUs a node, where its runs had 4",
        asked="--gres=gpu:2",
        is_set=True,
    ),
    Case(
        "a limit outside of the device's range",
        {"least": 200_000},
        "GPU 1: 150 W is outside of its range, 200 to 400 W",
        decision="GPU power limit 150 W on a100",
        had=replace(NODE.gpus, power_w=(250, 300)),
    ),
]


@pytest.fixture(params=CASES, ids=lambda case: case.what.replace(" ", "-"))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def posed(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the posed NVML answers from: two devices, of which the second is the case's."""
    load_nvml()
    file = tmp_path / "nvml.txt"
    pose(file, A100, {**A100, **case.second}, **dict(case.driver_errors))
    monkeypatch.setenv("POSED_NVML", str(file))
    return file


def test_a_node_sets_all_of_a_jobs_devices_or_says_why_in_a_line(
    case: Case, posed: Path, tmp_path: Path
) -> None:
    states = tmp_path / "states"
    states.mkdir()

    def program(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "hooks/slurm/advisor-node-gpus"), words[0], str(states), *words[1:]]
        env = {"LD_LIBRARY_PATH": str(nvml_library()), "POSED_NVML": str(posed)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True)

    said = program("set", "7", "0,1", "gpu_power_w=150").stderr.splitlines()
    assert len(said) == bool(case.node) and all(case.node in line for line in said)
    calls = Path(f"{posed}.set")
    before = calls.read_text().splitlines() if calls.exists() else []
    assert before[-2:] in (
        [["0 limit 150000", "1 limit 150000"]]
        if case.is_set
        else [[], ["0 limit 150000", "0 limit 400000"]]
    )
    took = program("lift", "7").stdout
    assert ("/150/" in took) == case.is_set
    assert took.endswith("/-\n") == (case.what == "no energy counter")


def test_a_meter_says_what_its_energy_leaves_out_or_has_in_it(case: Case, posed: Path) -> None:
    meter = Nvml(MeteredNode())
    try:
        meter.start(Load())
        said = meter.stop().detail
    except MeterError as error:
        said = str(error)
    assert said == case.meter


def test_doctor_has_a_warning_of_it(
    case: Case, posed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nvml, "present", lambda _: True)
    count = 4 if "number" in case.what else 2
    inventory = Inventory({"gpunode": NodeType("gpunode", nodes=(HOST,), gpus=Gpus("A", count))})
    said = [c.text for c in doctor._gpus_here(inventory) if c.state == "warn"]
    assert [text for text in said if case.check not in text] == []
    assert len(said) == bool(case.check)


def test_discovery_sets_nothing_and_names_limits_that_all_devices_take(
    case: Case, posed: Path
) -> None:
    if case.driver_errors:
        with pytest.raises(MeterError, match="Driver Not Loaded"):
            gpus_here()
        return
    found, _ = gpus_here()
    assert found.count == 2 and not Path(f"{posed}.set").exists()
    least = int(str(case.second.get("least", A100["least"]))) // 1000
    assert found.power_w[:1] == (() if "models" in case.what else (least,))


def test_a_job_is_decided_as_written_where_its_nodes_gpus_are_not_the_models(
    case: Case, gpu_store: Writer
) -> None:
    gpu_store.save_node_types([replace(NODE, gpus=case.had)], source="test")
    decision = ask(gpu_store, f"-N1 -n1 {case.asked} --exclusive", "srun ./limited", axes=OPTION)
    said = [r.text for r in decision.reasons if case.decision and case.decision in r.text]
    assert len(said) == bool(case.decision)
    assert decision.rewrite == ({} if case.decision else {"gpu-power": "watts=150"})


def test_the_page_has_every_line(case: Case) -> None:
    page = " ".join((ROOT / "docs/gpu.md").read_text().split())
    assert f"| {case.what} |" in page
    for line in (case.node, case.meter, case.check, case.decision):
        assert line in page, line
