"""Meters on posed /sys trees, and the measuring of real child processes."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from advisor import plugins
from advisor.core.inventory import NodeType
from advisor.core.power import power_w
from advisor.errors import InputError, MeterError, SchedulerError
from advisor.meters.base import Load, MeteredNode
from advisor.meters.choose import best_meter
from advisor.meters.estimate import EstimateMeter, estimate_j
from advisor.meters.pm_counters import PmCounters
from advisor.meters.process import (
    MeasuredCommand,
    MeasuredProcess,
    exit_text,
    measure,
    usable_cpus,
)
from advisor.meters.rapl import Rapl

RANGE = 262_143_328_850


def zone(root: Path, folder: str, name: str, energy: int, limit: int = RANGE) -> Path:
    path = root / "class" / "powercap" / folder
    path.mkdir(parents=True)
    (path / "name").write_text(f"{name}\n")
    (path / "max_energy_range_uj").write_text(f"{limit}\n")
    (path / "energy_uj").write_text(f"{energy}\n")
    return path


def set_uj(path: Path, value: int) -> None:
    partial = path / "partial"
    partial.write_text(f"{value}\n")
    partial.replace(path / "energy_uj")


def two_sockets(root: Path) -> dict[str, Path]:
    """A server as Linux shows it: every zone that may be mistaken for a package is there."""
    return {
        "package-0": zone(root, "intel-rapl:0", "package-0", 1_000_000),
        "core-0": zone(root, "intel-rapl:0:0", "core", 500_000),
        "dram-0": zone(root, "intel-rapl:0:1", "dram", 200_000, 65_712_999_613),
        "package-1": zone(root, "intel-rapl:1", "package-1", RANGE - 1_000_000),
        "dram-1": zone(root, "intel-rapl:1:0", "dram", 0, 65_712_999_613),
        "psys": zone(root, "intel-rapl:2", "psys", 9_000_000),
        "mmio": zone(root, "intel-rapl-mmio:0", "package-0", 1_000_000),
    }


def test_a_run_too_short_for_its_meter_and_one_of_the_system_alone_are_doubted() -> None:
    def run(time_s: float, user_s: float = 0.0, system_s: float = 0.0) -> list[str]:
        return MeasuredProcess(
            0,
            time_s,
            50.0,
            "measured",
            "pm_counters",
            user_s=user_s,
            system_s=system_s,
            update_s=0.1,
        ).doubts()

    (short,) = run(0.5)
    assert "fewer than 10 updates of pm_counters, one each 0.1 s" in short and "20 %" in short
    assert run(1.0) == [] == run(5.0, 9.5, 0.5) == run(5.0, 0.2, 0.2)
    (system,) = run(5.0, 9.0, 1.0)
    assert "the system took 10 % of its processor time" in system
    unmetered = MeasuredProcess(0, 0.5, None, "missing", "", update_s=0.1)
    assert unmetered.doubts() == []


def test_processor_time_of_a_child_is_its_own(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    busy = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    measured = measure(MeasuredCommand((sys.executable, "-c", busy), 1), None)
    assert 0.2 <= measured.user_s + measured.system_s < measured.time_s + 0.1
    assert best_meter(root=tmp_path, name="rapl").meter.UPDATE_S == 0.001  # type: ignore[union-attr]


def test_rapl_counts_packages_and_memory_once(tmp_path: Path) -> None:
    zones = two_sockets(tmp_path)
    meter = Rapl(MeteredNode(tmp_path))
    assert meter.available() is None
    assert [z.name for z in meter.zones()] == ["package-0", "dram", "package-1", "dram"]
    meter.start(Load())
    set_uj(zones["package-0"], 1_000_000 + 30_000_000)
    set_uj(zones["core-0"], 500_000 + 25_000_000)
    set_uj(zones["dram-0"], 200_000 + 5_000_000)
    set_uj(zones["package-1"], 6_000_000)  # past its range: 1 J to the end and 6 J more
    set_uj(zones["psys"], 9_000_000 + 80_000_000)
    set_uj(zones["mmio"], 31_000_000)
    reading = meter.stop()
    assert reading.energy_j == pytest.approx(30 + 5 + 7)
    assert reading.quality == "measured"
    assert reading.detail == "package-0 dram package-1 dram"


def test_rapl_counters_that_were_set_back_or_stopped_are_no_energy(tmp_path: Path) -> None:
    """A wrap leaves what was left of the range; 260 kJ in no time are none."""
    path = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    meter = Rapl(MeteredNode(tmp_path))
    meter.start(Load())
    set_uj(path, 5_000)
    with pytest.raises(MeterError, match="the counter of package-0 was set back"):
        meter.stop()
    meter.start(Load())
    set_uj(path, 7_000_000)
    meter._begun_s -= 60  # so long ago that a counter that stands still stopped before its end
    with pytest.raises(MeterError, match="its counters stopped"):
        meter.stop()


def test_rapl_counts_several_wraps(tmp_path: Path) -> None:
    """A counter that wraps every 100 J goes through 1000 J while the meter's thread samples."""
    path = zone(tmp_path, "intel-rapl:0", "package-0", 0, 100_000_000)
    meter = Rapl(MeteredNode(tmp_path), max_power_w=25_000.0)
    sampled = threading.Event()
    original = meter.sample

    def sample() -> None:
        original()
        sampled.set()

    meter.sample = sample  # type: ignore[method-assign]
    meter.start(Load())
    assert meter.interval_s() == pytest.approx(0.001)
    for step in range(1, 26):
        set_uj(path, step * 40_000_000 % 100_000_000)
        sampled.clear()
        assert sampled.wait(10)
        sampled.clear()
        assert sampled.wait(10)
    assert meter.stop().energy_j == pytest.approx(1000.0)


def test_rapl_interval_follows_range_and_power(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1, RANGE)
    zone(tmp_path, "intel-rapl:0:0", "dram", 1, 65_712_999_613)
    meter = Rapl(MeteredNode(tmp_path), max_power_w=1000.0)
    meter.start(Load())
    assert meter.interval_s() == pytest.approx(65_713 / 1000 / 4, rel=1e-3)
    with pytest.raises(MeterError, match="stood still"):
        meter.stop()


def test_rapl_that_only_root_may_read_says_the_fix() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (zone(root, "intel-rapl:0", "package-0", 5) / "energy_uj").chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            reason = Rapl(MeteredNode(root)).available()
        finally:
            os.seteuid(user)
    assert reason is not None and "root only" in reason and "chmod o+r" in reason


def test_rapl_without_packages_is_unavailable(tmp_path: Path) -> None:
    assert "no RAPL package" in (Rapl(MeteredNode(tmp_path)).available() or "")
    zone(tmp_path, "intel-rapl:0", "psys", 5)
    assert "no RAPL package" in (Rapl(MeteredNode(tmp_path)).available() or "")


def test_rapl_that_breaks_during_the_run_is_an_error(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    meter = Rapl(MeteredNode(tmp_path))
    meter.start(Load())
    (path / "energy_uj").write_text("nonsense\n")
    with pytest.raises(MeterError, match="failed during the run"):
        meter.stop()


def counters(root: Path, energy: int, **files: object) -> Path:
    folder = root / "cray" / "pm_counters"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "energy").write_text(f"{energy} J\n")
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")
    return folder


def test_pm_counters_measure_the_whole_node(tmp_path: Path) -> None:
    counters(tmp_path, 1000, power="100 W", freshness=7, startup=1)
    meter = PmCounters(MeteredNode(tmp_path))
    assert meter.available() is None
    assert meter.power_w() == 100.0
    meter.start(Load())
    counters(tmp_path, 4499, freshness=8)
    reading = meter.stop()
    assert (reading.energy_j, reading.quality, reading.meter) == (3499.0, "measured", "pm_counters")


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ({"energy": 1500, "startup": 2}, "restarted"),
        ({"energy": 900}, "restarted"),
        ({"energy": 1000}, "stood still"),
    ],
)
def test_pm_counters_that_cannot_be_trusted(
    tmp_path: Path, after: dict[str, int], message: str
) -> None:
    counters(tmp_path, 1000, startup=1, freshness=1)
    meter = PmCounters(MeteredNode(tmp_path))
    meter.start(Load())
    counters(tmp_path, after.pop("energy"), freshness=2, **after)
    with pytest.raises(MeterError, match=message):
        meter.stop()


def test_pm_counters_notice_a_dead_sensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counters(tmp_path, 1000, freshness=1)
    meter = PmCounters(MeteredNode(tmp_path))
    meter.start(Load())
    counters(tmp_path, 1001)
    monkeypatch.setattr("advisor.meters.pm_counters.STALE_S", 0.0)
    with pytest.raises(MeterError, match="not refreshed"):
        meter.stop()


@pytest.mark.parametrize("text", ["0 J\n", "12\n", "12 W\n", "", "x J\n"])
def test_pm_counters_with_nonsense_are_unavailable(tmp_path: Path, text: str) -> None:
    folder = counters(tmp_path, 1)
    (folder / "energy").write_text(text)
    assert PmCounters(MeteredNode(tmp_path)).available()


def test_estimate_formula() -> None:
    assert power_w(100, 5, 10, 2_000_000, 2_000_000) == 150
    assert power_w(100, 5, 10, 1_000_000, 2_000_000) == pytest.approx(100 + 50 / 8)
    assert power_w(100, 5, 10, 0, 2_000_000) == 150
    assert power_w(100, 5, 10, 3_000_000, 2_000_000) == 150
    node = NodeType("n", freq_khz=(1_000_000, 2_000_000), base_power_w=100, core_power_w=5)
    guess = estimate_j(node, nodes=2, busy_cores=10, freq_khz=0, time_s=3)
    assert guess == pytest.approx(900)
    assert estimate_j(NodeType("n"), nodes=1, busy_cores=1, freq_khz=0, time_s=1) is None


def test_estimate_needs_stated_power_or_an_explicit_wish() -> None:
    assert "the power of node type laptop is not known" in (
        EstimateMeter(MeteredNode(node_type=NodeType("laptop"))).available() or ""
    )
    generic = EstimateMeter(MeteredNode(node_type=NodeType("laptop"), generic=True))
    assert generic.available() is None
    measured = measure(MeasuredCommand((sys.executable, "-c", "pass"), 1), generic)
    assert measured.meter == "estimate (generic)"
    assert measured.energy_quality == "estimated"


def test_estimate_counts_busy_cores_not_asked_ones() -> None:
    """A child that only sleeps keeps no core busy: base power is all that is left."""
    node = NodeType("n", cores=64, base_power_w=100, core_power_w=1000)
    idle = measure(
        MeasuredCommand((sys.executable, "-c", "import time; time.sleep(0.5)"), 1),
        EstimateMeter(MeteredNode(node_type=node)),
    )
    assert idle.energy_j is not None
    assert idle.energy_j / idle.time_s < 100 + 500
    busy = measure(
        MeasuredCommand((sys.executable, "-c", "sum(i * i for i in range(4_000_000))"), 1),
        EstimateMeter(MeteredNode(node_type=node)),
    )
    assert busy.energy_j is not None
    assert busy.energy_j / busy.time_s > idle.energy_j / idle.time_s


def test_best_meter_takes_the_best_and_says_why_not_others(tmp_path: Path) -> None:
    node = NodeType("n", base_power_w=1, core_power_w=1)
    choice = best_meter(node, root=tmp_path)
    assert choice.meter is not None and choice.meter.NAME == "estimate"
    ranks = {n: plugins.load("meters", n).RANK for n in plugins.names("meters")}
    better = {n for n, rank in ranks.items() if rank < ranks["estimate"]}
    assert set(choice.missing) == better >= {"pm_counters", "rapl"}
    assert "estimated, not measured" in choice.sentence
    zone(tmp_path, "intel-rapl:0", "package-0", 5)
    choice = best_meter(node, root=tmp_path)
    assert choice.meter is not None and choice.meter.NAME == "rapl"
    counters(tmp_path, 1000)
    choice = best_meter(node, root=tmp_path)
    assert choice.meter is not None and choice.meter.NAME == "pm_counters"
    assert choice.missing == {}


def test_meter_by_name(tmp_path: Path) -> None:
    none = best_meter(None, root=tmp_path)
    assert none.meter is None and "the power of this machine is not known" in none.sentence
    assert best_meter(None, name="none", root=tmp_path).meter is None
    generic = best_meter(NodeType("n"), name="estimate", root=tmp_path)
    assert generic.meter is not None and generic.meter.available() is None
    with pytest.raises(MeterError, match="no RAPL package"):
        best_meter(None, name="rapl", root=tmp_path)
    with pytest.raises(InputError, match="watts"):
        best_meter(None, name="watts", root=tmp_path)


def test_measured_child_gets_its_cores_and_ours_stay(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    out = tmp_path / "out"
    code = "import os; print(len(os.sched_getaffinity(0)))"
    measured = measure(MeasuredCommand((sys.executable, "-c", code), 1, output=out), None)
    assert measured.exit_code == 0
    assert out.read_text().strip() == "1"
    assert os.sched_getaffinity(0) == before
    assert (measured.energy_j, measured.energy_quality) == (None, "missing")


def test_measured_child_that_fails_or_takes_too_long(tmp_path: Path) -> None:
    failed = measure(MeasuredCommand((sys.executable, "-c", "raise SystemExit(3)"), 1), None)
    assert (failed.exit_code, exit_text(failed.exit_code)) == (3, "exit code 3")
    waits = ("/bin/sh", "-c", "sleep 60 & wait")
    late = measure(MeasuredCommand(waits, 1, output=tmp_path / "out", limit_s=0.2), None)
    assert late.timed_out and exit_text(late.exit_code) == "killed by SIGTERM"


def test_more_threads_than_cpus_are_refused() -> None:
    with pytest.raises(SchedulerError, match="offers"):
        measure(MeasuredCommand(("true",), len(usable_cpus()) + 1), None)
    with pytest.raises(SchedulerError, match="cannot run"):
        measure(MeasuredCommand(("/nonexistent/program",), 1), None)


def test_one_cpu_of_each_core_comes_first(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    for cpu in cpus:
        topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        pair = cpus[:2] if cpu in cpus[:2] else [cpu]
        (topology / "thread_siblings_list").write_text(",".join(map(str, pair)))
    assert usable_cpus(tmp_path)[-1] == cpus[1]
