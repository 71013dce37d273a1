"""Meters of accelerators: the real nvidia-ml-py on a posed driver, and posed trees of /sys."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation, coverage
from advisor.core.power import device_is_possible
from advisor.errors import MeterError
from advisor.meters.base import EnergyReading, Load, MeteredNode
from advisor.meters.choose import best_meter
from advisor.meters.drm import AmdGpu, IntelGpu
from advisor.meters.grace import Grace
from advisor.meters.nvml import Nvml
from advisor.meters.pm_counters import PmCounters
from advisor.models.runs import gather
from advisor.schedulers.slurm import health
from tests.unit.posed_gpus import (
    amd_card,
    hwmon,
    load_nvml,
    needs_compiler,
    nvml_library,
    pci_device,
    pose,
    set_steps,
)
from tests.unit.test_meters import counters, set_uj, zone

NVIDIA, AMD = "0x10de", "0x1002"
NOT_SUPPORTED, NO_PERMISSION, NO_DRIVER, LOST = 3, 4, 9, 15


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the posed NVML of this process answers from."""
    load_nvml()
    path = tmp_path / "nvml.txt"
    pose(path)
    monkeypatch.setenv("POSED_NVML", str(path))
    return path


def metered(meter: Nvml | AmdGpu | IntelGpu | Grace | PmCounters, seconds: float) -> EnergyReading:
    meter.start(Load())
    time.sleep(seconds)
    return meter.stop()


@needs_compiler
def test_nvml_counts_each_device(nvml: Path, tmp_path: Path) -> None:
    pose(nvml, {"name": "NVIDIA V100", "energy": 5e6, "power": 200_000}, {"power": 50_000})
    began = time.monotonic()
    reading = metered(Nvml(MeteredNode(tmp_path)), 0.3)
    elapsed = time.monotonic() - began
    parts = dict(reading.parts)
    assert list(parts) == ["GPU 0 NVIDIA V100", "GPU 1 NVIDIA Posed"]
    assert 200 * 0.3 * 0.98 < parts["GPU 0 NVIDIA V100"] < 200 * elapsed + 1
    assert 50 * 0.3 * 0.98 < parts["GPU 1 NVIDIA Posed"] < 50 * elapsed + 1
    assert reading.energy_j == pytest.approx(sum(parts.values()))
    assert reading.quality == "measured" and reading.meter == "nvml" and reading.detail == ""
    assert not Path(f"{nvml}.set").exists(), "a meter sets nothing"


@needs_compiler
def test_nvml_names_devices_without_a_counter_and_those_that_are_shared(
    nvml: Path, tmp_path: Path
) -> None:
    pose(
        nvml,
        {"name": "Tesla P100", "error.energy": NOT_SUPPORTED},
        {"error.handle": NO_PERMISSION},
        {"name": "A100", "power": 90_000, "mig": 1, "processes": 2},
        {"error.handle": LOST},
    )
    reading = metered(Nvml(MeteredNode(tmp_path)), 0.1)
    assert [name for name, _ in reading.parts] == ["GPU 2 A100"]
    assert reading.detail.split("; ") == [
        "without GPU 0 Tesla P100, which has no energy counter",
        "without GPU 1: Insufficient Permissions",
        "GPU 2 A100: the energy of all its MIG instances",
        "GPU 2 A100: others compute on it, too: 2",
        "without GPU 3: GPU is lost",
    ]


@needs_compiler
def test_nvml_that_cannot_be_used_says_why(nvml: Path, tmp_path: Path) -> None:
    meter = Nvml(MeteredNode(tmp_path))
    assert meter.available() == "no such device"
    pose(nvml, {"name": "K80", "error.energy": NOT_SUPPORTED})
    assert meter.available() == "without GPU 0 K80, which has no energy counter"
    pose(nvml, {}, **{"error.init": NO_DRIVER})
    assert meter.available() == "NVML cannot be used: Driver Not Loaded"
    with pytest.raises(MeterError, match="Driver Not Loaded"):
        meter.start(Load())
    pose(nvml, **{"error.count": 999})
    assert meter.available() == "NVML cannot be used: Unknown Error"


@needs_compiler
@pytest.mark.parametrize(
    ("after", "why"),
    [
        ({"energy": 10_000, "error.energy": LOST}, "GPU is lost"),
        ({"energy": 5_000}, "was set back"),
        ({"energy": 10_000}, "stood still"),
        ({"energy": 2**62}, "which is impossible"),
        ({"energy": 10_000 + 2**32}, "which is impossible"),
    ],
)
def test_nvml_that_fails_during_the_run_is_no_energy(
    nvml: Path, tmp_path: Path, after: dict[str, object], why: str
) -> None:
    pose(nvml, {"energy": 10_000})
    meter = Nvml(MeteredNode(tmp_path))
    meter.start(Load())
    pose(nvml, after)
    with pytest.raises(MeterError, match=why):
        meter.stop()


def test_what_no_device_can_have_used() -> None:
    assert device_is_possible(0, 10) and device_is_possible(7000, 10)
    assert device_is_possible(70, 0.01), "a counter moves in steps"
    assert not device_is_possible(-1, 10)
    assert not device_is_possible(40_000, 10)
    assert not device_is_possible(4294967295.0, 1e7)


def test_nvml_without_the_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reason = Nvml(MeteredNode(tmp_path)).available()
    assert reason is not None and "nvidia-ml-py is not installed" in reason
    assert "-m pip install nvidia-ml-py" in reason


@needs_compiler
def test_accelerators_are_added_to_the_processors(nvml: Path, tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    pci_device(tmp_path, "0000:3b:00.0", NVIDIA)
    pose(nvml, {"name": "V100", "power": 100_000})
    choice = best_meter(None, root=tmp_path)
    assert choice.meter is not None and choice.meter.NAME == "rapl+nvml"
    assert "NVML's energy counters" in choice.sentence
    choice.meter.start(Load())
    time.sleep(0.2)
    set_uj(folder, 31_000_000)
    reading = choice.meter.stop()
    parts = dict(reading.parts)
    assert parts["package-0"] == 30 and 19 < parts["GPU 0 V100"] < 200
    assert reading.meter == "rapl+nvml" and reading.energy_j == pytest.approx(sum(parts.values()))
    assert choice.meter.so_far_j  # type: ignore[attr-defined]  # runs can be ended early
    named = best_meter(None, name="rapl", root=tmp_path)
    assert named.meter is not None and named.meter.NAME == "rapl"


@needs_compiler
def test_accelerators_that_cannot_be_read_are_named(nvml: Path, tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    assert best_meter(None, root=tmp_path).missing.keys() == {"pm_counters"}, "it has none"
    pci_device(tmp_path, "0000:3b:00.0", NVIDIA)
    pose(nvml, {}, **{"error.init": NO_DRIVER})
    choice = best_meter(None, root=tmp_path)
    assert choice.meter is not None and choice.meter.NAME == "rapl"
    assert choice.missing["nvml"] == "NVML cannot be used: Driver Not Loaded"


@needs_compiler
def test_accelerators_never_stand_for_a_node(nvml: Path, tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:3b:00.0", NVIDIA)
    pose(nvml, {"power": 100_000})
    assert best_meter(None, root=tmp_path).meter is None
    estimated = best_meter(NodeType("n", base_power_w=50, core_power_w=1), root=tmp_path).meter
    assert estimated is not None and estimated.NAME == "estimate+nvml"
    assert not hasattr(estimated, "so_far_j") and "50 W + 1 W" in estimated.basis  # type: ignore[attr-defined]
    estimated.start(Load())
    time.sleep(0.1)
    reading = estimated.stop()
    assert reading.quality == "estimated" and reading.parts[0][0] == "estimate"


@needs_compiler
def test_a_part_that_fails_leaves_the_node_unknown_and_ends_the_others(
    nvml: Path, tmp_path: Path
) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    pci_device(tmp_path, "0000:3b:00.0", NVIDIA)
    pose(nvml, {"power": 100_000})
    meter = best_meter(None, root=tmp_path).meter
    assert meter is not None
    meter.start(Load())
    set_uj(folder, 9_000_000)
    pose(nvml, {"power": 100_000, "error.energy": LOST})
    with pytest.raises(MeterError, match="GPU is lost"):
        meter.stop()
    with pytest.raises(MeterError, match="was not started"):
        meter.stop()
    with pytest.raises(MeterError, match="GPU is lost"):
        meter.start(Load())


@pytest.mark.parametrize("revision", [(1, 1), (1, 3), (1, 4), (1, 5)])
def test_amd_counts_by_the_drivers_accumulator(tmp_path: Path, revision: tuple[int, int]) -> None:
    table = amd_card(tmp_path, 1, revision, 1_000_000, product_name="Instinct MI210")
    amd_card(tmp_path, 10, revision, 65_536)
    (tmp_path / "class/drm/card1-DP-1").mkdir()
    pci_device(tmp_path, "0000:c1:00.0", AMD, "0x038000")
    meter = AmdGpu(MeteredNode(tmp_path))
    assert meter.present() and meter.available() is None
    meter.start(Load())
    set_steps(table, revision, 1_000_000 + 300 * 65_536)
    assert meter.so_far_j() == 300
    reading = meter.stop()
    assert reading.parts == (("GPU 1 Instinct MI210", 300.0), ("GPU 10 AMD", 0.0))


@pytest.mark.parametrize(
    ("revision", "steps", "why"),
    [
        ((1, 3), 2**64 - 1, "it has no energy accumulator"),
        ((2, 3), 5, "gpu_metrics 2.3 has no energy that is understood"),
        ((1, 3), 0, "its accumulator stands at 0"),
    ],
)
def test_amd_devices_without_energy_are_named(
    tmp_path: Path, revision: tuple[int, int], steps: int, why: str
) -> None:
    amd_card(tmp_path, 0, revision, steps)
    assert AmdGpu(MeteredNode(tmp_path)).available() == f"without GPU 0 AMD: {why}"


def test_amd_tables_that_are_cut_off_and_devices_with_processors(tmp_path: Path) -> None:
    table = amd_card(tmp_path, 0, (1, 3), 99)
    amd_card(tmp_path, 1, (1, 5), 99, device="0x74a0")
    table.write_bytes(table.read_bytes()[:20])
    reason = AmdGpu(MeteredNode(tmp_path)).available()
    assert reason == (
        "without GPU 0 AMD: its table gpu_metrics is cut off; "
        "without GPU 1 AMD: its accumulator counts processor cores, too"
    )
    table.write_bytes(b"")
    assert "is empty" in (AmdGpu(MeteredNode(tmp_path)).available() or "")


def test_intel_counts_the_card_and_no_part_of_it_twice(tmp_path: Path) -> None:
    card = hwmon(
        tmp_path,
        2,
        "xe",
        energy1_label="card",
        energy1_input=1_000_000,
        energy2_label="pkg",
        energy2_input=700_000,
    )
    package = hwmon(tmp_path, 3, "xe", energy2_label="pkg", energy2_input=500_000)
    old = hwmon(tmp_path, 4, "i915", energy1_input=100)
    hwmon(tmp_path, 5, "i915_gt0", energy1_input=100)
    hwmon(tmp_path, 6, "coretemp", temp1_input=40_000)
    meter = IntelGpu(MeteredNode(tmp_path))
    assert meter.present()
    meter.start(Load())
    (card / "energy1_input").write_text("21000000\n")
    (card / "energy2_input").write_text("15000000\n")
    (package / "energy2_input").write_text("3500000\n")
    (old / "energy1_input").write_text("5000100\n")
    reading = meter.stop()
    assert reading.parts == (("GPU 0 Intel", 20.0), ("GPU 1 Intel", 3.0), ("GPU 2 Intel", 5.0))
    assert reading.detail == "GPU 1 Intel: its package without the card's memory"


def test_intel_without_counters_or_with_nonsense(tmp_path: Path) -> None:
    assert not IntelGpu(MeteredNode(tmp_path)).present()
    hwmon(tmp_path, 0, "i915", power1_max=1)
    hwmon(tmp_path, 1, "xe", energy1_input="many")
    reason = IntelGpu(MeteredNode(tmp_path)).available() or ""
    assert "has no counter of energy" in reason and "invalid literal" in reason


def test_a_grace_hopper_module_is_counted_once(tmp_path: Path) -> None:
    watts = {"Module": 600, "Grace": 250, "CPU": 120, "SysIO": 40}
    for number, (name, value) in enumerate(watts.items()):
        hwmon(
            tmp_path,
            number,
            "power_meter",
            power1_oem_info=f"{name} Power Socket 0",
            power1_average=value * 1_000_000,
        )
    pci_device(tmp_path, "0009:01:00.0", NVIDIA)
    choice = best_meter(None, root=tmp_path)
    assert isinstance(choice.meter, Grace) and choice.meter.COVERS == "node"
    began = time.monotonic()
    reading = metered(choice.meter, 0.5)
    elapsed = time.monotonic() - began
    assert dict(reading.parts).keys() == {"module 0"}
    assert 600 * 0.5 <= reading.energy_j <= 600 * elapsed + 1


@needs_compiler
def test_grace_without_a_module_sensor_gets_its_gpus_from_nvml(nvml: Path, tmp_path: Path) -> None:
    folder = hwmon(tmp_path, 0, "power_meter")
    (folder / "device").mkdir()
    (folder / "device/power1_oem_info").write_text("Grace Power Socket 1\n")
    (folder / "device/power1_average").write_text("100000000\n")
    pci_device(tmp_path, "0009:01:00.0", NVIDIA)
    pose(nvml, {"power": 300_000})
    meter = best_meter(None, root=tmp_path).meter
    assert meter is not None and meter.NAME == "grace+nvml"
    meter.start(Load())
    time.sleep(0.2)
    reading = meter.stop()
    assert [name for name, _ in reading.parts] == ["processor 1", "GPU 0 NVIDIA Posed"]
    meter.start(Load())
    (folder / "device/power1_average").write_text("none\n")
    with pytest.raises(MeterError, match="Grace sensors failed"):
        meter.stop()


def test_pm_counters_show_parts_and_never_add_them(tmp_path: Path) -> None:
    parts = {"cpu_energy": "10 J", "memory_energy": "20 J", "accel0_energy": "30 J 77 us"}
    folder = counters(tmp_path, 1000, **parts, accel1_energy="40 J", cpu0_temp="31 C")
    meter = PmCounters(MeteredNode(tmp_path))
    meter.start(Load())
    after = {"energy": 1900, "cpu_energy": 110, "memory_energy": 60, "accel0_energy": 330}
    for name, value in after.items():
        (folder / name).write_text(f"{value} J\n")
    (folder / "accel1_energy").unlink()
    reading = meter.stop()
    assert reading.energy_j == 900
    assert reading.parts == (
        ("GPU 0", 300.0),
        ("cpu", 100.0),
        ("memory", 40.0),
        ("rest of the node", 460.0),
    )


@needs_compiler
def test_run_prints_the_joules_by_device(tmp_path: Path) -> None:
    file = tmp_path / "nvml.txt"
    pose(file, {"name": "NVIDIA A100", "power": 100_000}, {"name": "NVIDIA A100", "power": 60_000})
    command = [
        sys.executable,
        *["-m", "advisor", "run", "--meter", "nvml", "--db"],
        str(tmp_path / "db"),
    ]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(nvml_library()),
        "POSED_NVML": str(file),
        "HOME": str(tmp_path),
    }
    text = subprocess.run(
        [*command, "--", "sleep", "0.3"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = text.splitlines()
    assert lines[0].endswith("(measured, nvml)")
    assert lines[1].startswith("  GPU 0 NVIDIA A100: ") and lines[1].endswith(" J")
    assert lines[2].startswith("  GPU 1 NVIDIA A100: ")
    text = subprocess.run(
        [*command, "--json", "--record", "--", "sleep", "0.3"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    run = json.loads(text)["runs"][0]
    assert run["energy_j"] == pytest.approx(sum(run["energy_parts_j"].values()))
    environment["POSED_NVML"] = str(tmp_path / "nothing")
    refused = subprocess.run(
        [*command, "--", "true"], env=environment, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1 and refused.stderr.count("\n") <= 2
    assert "meter nvml cannot be used" in refused.stderr


@pytest.mark.gpu
def test_a_real_gpu_is_metered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from advisor import plugins

    names = ("nvml", "amdgpu", "intelgpu")
    meters = {name: plugins.load("meters", name)(MeteredNode()) for name in names}
    reasons = {name: meter.available() for name, meter in meters.items()}
    usable = [name for name, reason in reasons.items() if reason is None]
    if not usable:
        pytest.skip(f"no GPU that can be metered: {reasons}")
    for name in usable:
        arguments = ["run", "--meter", name, "--db", str(tmp_path / "db"), "--json"]
        assert main([*arguments, "--", "sleep", "3"]) == 0
        run = json.loads(capsys.readouterr().out)["runs"][0]
        assert run["energy_quality"] == "measured"
        assert all(0 <= part_j / run["time_s"] < 3000 for part_j in run["energy_parts_j"].values())


def run_at(threads: int, energy_j: float, meter: str) -> Observation:
    return Observation(Configuration("n", 1, 1, threads, 0), 10.0, energy_j, meter=meter)


def test_energies_with_and_without_the_gpus_stand_in_no_fit_together() -> None:
    old = [run_at(t, 1000.0, "rapl") for t in (1, 2, 3, 4, 5)]
    new = [run_at(t, 9000.0, "rapl+nvml") for t in (1, 2, 3, 4)]
    both = gather([*old, *new])
    assert both.energy is not None and len(both.time.log_mean) == 5
    assert {round(math.exp(e)) for e in both.energy.log_mean.values()} == {9000}
    assert "left out: 5 readings by a meter that sees other accelerators" in both.notes
    back = gather([*new, *old])
    assert back.energy is not None
    assert {round(math.exp(e)) for e in back.energy.log_mean.values()} == {1000}


def test_what_a_meter_covers_follows_from_its_name() -> None:
    assert coverage("rapl") == coverage("pm_counters") == coverage("") == ()
    assert coverage("rapl+nvml") == coverage("estimate+nvml") != coverage("nvml") != ()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"AcctGatherEnergyType": "acct_gather_energy/gpu"}, "the energy of GPUs alone"),
        (
            {"AcctGatherEnergyType": "acct_gather_energy/rapl", "GresTypes": "mps,gpu"},
            "not the nodes' GPUs",
        ),
    ],
)
def test_doctor_says_what_slurms_energy_leaves_out(settings: dict[str, str], text: str) -> None:
    checks = list(health._energy({"JobAcctGatherType": "jobacct_gather/cgroup", **settings}))
    assert [c.state for c in checks] == ["warn"] and text in checks[0].text
    plain = {"AcctGatherEnergyType": "acct_gather_energy/rapl"}
    (check,) = health._energy({"JobAcctGatherType": "jobacct_gather/cgroup", **plain})
    assert check.state == "ok"


@pytest.mark.parametrize("tracked", ["energy", "energy,gres/gpu"])
def test_doctor_says_where_nobody_counts_jobs_gpus(
    monkeypatch: pytest.MonkeyPatch, tracked: str
) -> None:
    monkeypatch.setattr(health, "ask", lambda *words, **more: "")
    settings = {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStoreFlags": "job_env",
        "AccountingStorageTRES": tracked,
        "GresTypes": "gpu",
    }
    warned = [c.text for c in health._accounting(settings) if c.state == "warn"]
    assert [text.partition(" ")[0] for text in warned] == ["gres/gpu"] * (tracked == "energy")
