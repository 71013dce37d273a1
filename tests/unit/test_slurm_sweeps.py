"""Sweeps on Slurm, without one: what counts as a run whose nodes were to set its GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.axes import AxisWriting
from advisor.core.configuration import Configuration
from advisor.core.gpus import GpuUse
from advisor.core.inventory import NodeType
from advisor.schedulers.base import JobRecord, PlannedRun, RunResult, SweepJob
from advisor.schedulers.slurm import control, sweeps
from advisor.schedulers.slurm.driver import SweepRun
from advisor.schedulers.slurm.scheduler import Slurm

TOP = Configuration("g", 2, 1, 8, 0, (("gpu_power_w", 300),))
LOW = replace(TOP, extra=(("gpu_power_w", 200),))
RUNS = (PlannedRun(0, "baseline", TOP), PlannedRun(1, "design", LOW))
ATTEMPT = SweepRun(1, 1, "7", "", 0.0, 10.0, 0, "ok")
GOOD = RunResult(1, 1, True, 10.0, 100.0, "measured", "slurm", "7")


def job(writing: AxisWriting) -> SweepJob:
    return SweepJob(
        "t",
        "design",
        Path("/none"),
        Path("/none"),
        NodeType("g", cores=8),
        RUNS,
        launcher="srun",
        baseline=TOP,
        axes={"gpu_power_w": writing},
    )


def use(node: str, watts: int, device: int = 0) -> GpuUse:
    return GpuUse(node, device, 50.0, {"gpu_power_w": watts} if watts else {})


@pytest.mark.parametrize(
    ("uses", "landed"),
    [
        ((use("n1", 200), use("n2", 200)), True),
        ((use("n1", 200), use("n2", 200), use("n2", 0, 1)), False),
        ((use("n1", 200), use("n2", 250)), False),
        ((use("n1", 200),), None),
        ((), None),
    ],
)
def test_a_run_counts_where_all_of_its_nodes_say_that_they_set_its_gpus(
    monkeypatch: pytest.MonkeyPatch, uses: tuple[GpuUse, ...], landed: bool | None
) -> None:
    slurm, by_nodes = Slurm(), job(AxisWriting(nodes=True))
    record = JobRecord("7", "adv-t", "ann", "", "COMPLETED", gpus=uses)
    monkeypatch.setattr(Slurm, "_record", lambda *_: (record, ""))
    found = slurm._landed(by_nodes, ATTEMPT, GOOD, ended=True)
    assert (found and found.ok) == landed
    if landed is False:
        assert found is not None and found.final
        assert "GPU power limit 200 W was not set" in found.detail
    # nodes that never say so are no nodes that set it
    if landed is None:
        monkeypatch.setattr(sweeps, "SETTLE_S", -1.0)
        late = slurm._landed(by_nodes, ATTEMPT, GOOD, ended=True)
        assert late is not None and not late.ok and late.final


def test_what_no_node_sets_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, by_option = Slurm(), job(AxisWriting("gpu-power"))
    assert slurm._landed(by_option, ATTEMPT, GOOD, ended=False) is GOOD
    as_written = replace(ATTEMPT, seq=0)
    assert slurm._landed(job(AxisWriting(nodes=True)), as_written, GOOD, ended=False) is GOOD


@pytest.mark.parametrize(
    ("meter", "launcher", "writing", "kept"),
    [
        ("pm_counters", "srun", AxisWriting("gpu-freq", per=1000), ""),
        ("gpu", "srun", AxisWriting("gpu-freq", per=1000), ""),
        ("rapl", "srun", AxisWriting("gpu-freq", per=1000), "the processors alone"),
        ("none", "srun", AxisWriting("gpu-power"), "no energy"),
        ("ipmi", "", AxisWriting("gpu-freq", per=1000), "no srun"),
        ("ipmi", "mpirun", AxisWriting("gpu-power"), "mpirun is not metered"),
        ("ipmi", "", AxisWriting("gpu-power"), ""),
        ("ipmi", "srun", AxisWriting(nodes=True), "Prolog does not name advisor-node-cap"),
    ],
)
def test_an_axis_is_varied_where_it_reaches_the_runs_and_their_gpus_are_metered(
    monkeypatch: pytest.MonkeyPatch, meter: str, launcher: str, writing: AxisWriting, kept: str
) -> None:
    values = {"AcctGatherEnergyType": f"acct_gather_energy/{meter}"}
    for module in (sweeps, control):
        monkeypatch.setattr(module, "config_value", lambda key: values.get(key, ""))
    why = Slurm().axis_kept(writing, launcher, 1)
    assert kept in why and bool(why) == bool(kept)
