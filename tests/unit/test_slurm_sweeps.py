"""Sweeps on Slurm, without one: what counts as a run whose nodes were to set its GPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.axes import AxisWriting
from advisor.core.configuration import Configuration
from advisor.core.gpus import GpuUse
from advisor.core.inventory import NodeType
from advisor.schedulers.base import JobRecord, PlannedRun, RunResult, SweepJob, WatchPlan
from advisor.schedulers.slurm import control, sweeps
from advisor.schedulers.slurm.driver import GPUS_ON_NODES, SweepRun
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


LOWER = replace(TOP, extra=(("gpu_power_w", 150),))
STOP = {
    "time_s": 12.0,
    "time_half_s": 0.2,
    "base_time_s": 10.0,
    "energy_j": 80.0,
    "energy_half_j": 2.0,
    "base_energy_j": 100.0,
    "elapsed_s": 3.0,
    "spent_j": 20.0,
    "iterations": 40,
    "share": 0.25,
    "reason": "one of 3 values in one run",
}


def in_one(folder: Path) -> SweepJob:
    """The stage of a sweep whose two runs are made in one."""
    watch = WatchPlan(folder / "watch", folder / "watch" / "watch.so", 0.03)
    for name in ("stops", "whole"):
        (watch.folder / name).mkdir(parents=True)
    whole = {"time_s": 10.5, "energy_j": 1000.0, "meter": "slurm", "measured": True}
    (watch.folder / "whole.json").write_text(json.dumps(whole))
    (folder / "curve").mkdir()
    return replace(
        job(AxisWriting(nodes=True)),
        stage="curve",
        folder=folder / "curve",
        runs=(PlannedRun(1, "design", LOW), PlannedRun(2, "design", LOWER)),
        watch=watch,
        in_one=True,
        attempts=1,
    )


def log_of(folder: Path) -> None:
    lines = [["job", "7", ""], ["end", "1", "1", "100.0", "106.0", "143", "early"], ["done", "7"]]
    (folder / "events").write_text("".join("\t".join(line) + "\n" for line in lines))


@pytest.mark.parametrize("killed", [False, True])
def test_one_run_gives_a_result_of_each_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    made, slurm = in_one(tmp_path), Slurm()
    monkeypatch.setattr(Slurm, "_ask_queue", lambda *_: ("running", ""))
    for name in ("curve-1-1", "curve-2-1"):
        (tmp_path / "watch" / "stops" / name).write_text(json.dumps(STOP))
    log_of(made.folder)
    status = slurm.poll(made, "7")
    if killed:  # between two results: the other one is taken up
        lines = (made.folder / "results.jsonl").read_text().splitlines(keepends=True)
        (made.folder / "results.jsonl").write_text(lines[0])
        status = slurm.poll(made, "7")
    assert status.state == "ended" and [r.seq for r in status.results] == [1, 2]
    for result in status.results:
        assert result.ok and (result.time_s, result.energy_j) == (12.5, 800.0)
        assert (result.spent_s, result.spent_j) == (3.0, 20.0)  # half of 6 s each
        assert result.extrapolated is not None and not made.open_runs(status.results)


def test_a_value_of_which_one_run_tells_nothing_is_not_tried_so_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = in_one(tmp_path)
    monkeypatch.setattr(Slurm, "_ask_queue", lambda *_: ("running", ""))
    (tmp_path / "watch" / "stops" / "curve-1-1").write_text(json.dumps(STOP))
    (tmp_path / "watch" / "whole" / "curve-2-1").write_text("too few iterations")
    log_of(made.folder)
    known, unknown = Slurm().poll(made, "7").results
    assert known.ok and known.spent_s == 6.0
    assert not unknown.ok and unknown.final and unknown.detail == "too few iterations"
    assert unknown.time_s == 0 and not made.open_runs([known, unknown])


def test_its_job_names_the_jobs_own_value_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = []

    def submit(words: list[str], environment: dict[str, str]) -> str:
        submitted.append((words, environment))
        return "7\n"

    monkeypatch.setattr(sweeps, "submit", submit)
    monkeypatch.setattr(sweeps, "config_value", lambda key: "")
    monkeypatch.setattr(control, "config_value", lambda key: "")
    monkeypatch.setattr(Slurm, "_ids_in_queue", lambda *_: "")
    assert Slurm().submit_sweep(in_one(tmp_path)) == "7"
    [(words, environment)] = submitted
    assert environment[GPUS_ON_NODES] == '{"gpu_power_w":"300/200/150"}'
    assert environment["ADVISOR"] == "off" and "--no-requeue" in words
    driver = (tmp_path / "curve" / "driver.sh").read_text().splitlines()
    assert [line for line in driver if line.startswith("run ")] == ["run 1 1 0 0 0"]


@pytest.mark.parametrize(("meter", "watched"), [("gpu", "nvml"), ("ipmi", "auto")])
def test_energies_of_gpus_alone_are_watched_by_their_meter(
    monkeypatch: pytest.MonkeyPatch, meter: str, watched: str
) -> None:
    monkeypatch.setattr(sweeps, "energy_plugin", lambda: meter)
    assert sweeps._watched_by(job(AxisWriting(nodes=True))).meter == watched
