"""Readings of meters that no node can have made, whichever way they come in."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.observation import Observation
from advisor.core.power import DROPPED, is_possible, power_bounds_w, without_impossible
from advisor.loop.execution import IMPOSSIBLE, ran
from advisor.loop.health_site import check_energies
from advisor.loop.past_jobs import JobNaming, past_jobs
from advisor.meters.base import EnergyReading, Load, Meter, MeteredNode
from advisor.meters.process import MeasuredCommand, measure
from advisor.schedulers.base import JobRecord
from advisor.schedulers.pbs.accounting import record_of
from advisor.schedulers.slurm.accounting import FIELDS, parse
from advisor.store.reader import Reader
from advisor.store.writer import Writer

Run = Callable[..., Any]
BDW = NodeType("bdw", cores=28, sockets=2, nodes=("bdw1", "bdw2"))
STATED = NodeType("bdw", cores=28, sockets=2, nodes=("bdw1",), base_power_w=100, core_power_w=10)
NO_VALUES = [
    2.0**32 - 1,
    2.0**32 - 2,
    2.0**32 - 5,
    2.0**31 - 1,
    2.0**32,
    2.0**63,
    2.0**64 - 2,
    2.0**64,
    -1.0,
    -4294967295.0,
    math.nan,
    math.inf,
]


@pytest.mark.parametrize("energy_j", NO_VALUES)
@pytest.mark.parametrize("time_s", [None, 0.0, 60.0, 864000.0])
def test_what_stands_for_no_value_is_none(energy_j: float, time_s: float | None) -> None:
    assert not is_possible(energy_j, time_s, 100)


def test_bounds_follow_from_what_is_known_of_a_node() -> None:
    assert power_bounds_w(None) == (1.0, 20_000.0)
    assert power_bounds_w(BDW) == (1.0, 14_000.0)
    assert power_bounds_w(STATED) == (10.0, 4 * 380.0)
    assert is_possible(60 * 300.0, 60, 1, STATED)
    assert not is_possible(60 * 1600.0, 60, 1, STATED)
    assert is_possible(60 * 1600.0, 60, 2, STATED)
    assert not is_possible(60 * 9.0, 60, 1, STATED)
    assert is_possible(60 * 9.0, 60, 1, BDW)
    assert is_possible(5.0, None, 1)


def row(**values: str) -> str:
    usual = {
        "State": "COMPLETED",
        "ElapsedRaw": "60",
        "NNodes": "1",
        "NCPUS": "28",
        "NodeList": "bdw1",
        "User": "ann",
        "JobName": "app",
        "NTasks": "1",
    }
    return "".join({**usual, **values}.get(name, "") + "\x1f" for name in FIELDS)


def slurm_job(*readings: str, elapsed: str = "60") -> JobRecord:
    text = row(JobID="5", Partition="p") + "".join(
        row(JobID=f"5.{n}", ConsumedEnergyRaw=r, ElapsedRaw=elapsed) for n, r in enumerate(readings)
    )
    (job,) = parse(text, "\x1f")
    return job


@pytest.mark.parametrize(
    "reading",
    ["4294967294", "4294967295", "4294967291", "-5", "12", "18446744073709551614", "30000000"],
)
def test_slurm_s_accounting(reading: str) -> None:
    job = slurm_job(reading)
    assert job.energy_j is None
    seen = ran(job, Inventory({"bdw": BDW}))
    assert (seen.energy_j, seen.energy_note) == (None, IMPOSSIBLE)
    assert ran(slurm_job("18000"), Inventory({"bdw": BDW})).energy_j == 18000
    assert ran(slurm_job(""), Inventory({"bdw": BDW})).energy_note != IMPOSSIBLE
    assert ran(slurm_job("0"), Inventory({"bdw": BDW})).energy_note != IMPOSSIBLE


def test_one_step_of_several_spoils_the_sum() -> None:
    seen = ran(slurm_job("18000", "4294967294"), Inventory())
    assert (seen.energy_j, seen.energy_note) == (None, IMPOSSIBLE)


def test_a_short_step_that_was_not_read_is_no_impossible_one() -> None:
    assert not any(s.energy_impossible for s in slurm_job("0.5", elapsed="1").steps)
    assert any(s.energy_impossible for s in slurm_job("4294967294", elapsed="0").steps)


@pytest.mark.parametrize("reading", [4294967294, "4294967294", -5, 12, 30000000])
def test_pbs_s_energy(reading: object) -> None:
    job = record_of(
        "7.pbs1",
        {
            "job_state": "F",
            "Exit_status": 0,
            "exec_host": "bdw1/0*28",
            "Job_Name": "app",
            "Resource_List": {"select": "1:ncpus=28", "place": "excl", "ncpus": 28},
            "resources_used": {"walltime": "00:01:00", "energy_j": reading, "energy_nodes": 1},
        },
    )
    assert job is not None and job.energy_j is None
    assert ran(job, Inventory({"bdw": BDW})).energy_note == IMPOSSIBLE


def test_jobs_of_the_past_are_runs_without_it() -> None:
    naming, inventory = JobNaming(application="app"), Inventory({"bdw": BDW})
    past = past_jobs([slurm_job("4294967294")], inventory, naming, meter="slurm", scope="own")
    [[run]] = past.runs.values()
    assert (run.energy_j, run.energy_quality, past.impossible) == (None, "missing", 1)


class Wrong:
    NAME: ClassVar[str] = "rapl"
    DESCRIPTION: ClassVar[str] = ""
    RANK: ClassVar[int] = 0
    UPDATE_S: ClassVar[float] = 0.0

    def __init__(self, node: MeteredNode) -> None:
        pass

    def available(self) -> str | None:
        return None

    def start(self, load: Load) -> None:
        pass

    def stop(self) -> EnergyReading:
        return EnergyReading(4294967294.0, "measured", "rapl")


def test_a_process_measured_here() -> None:
    wrong: Meter = Wrong(MeteredNode())
    done = measure(MeasuredCommand((sys.executable, "-c", ""), 1), wrong)
    assert (done.energy_j, done.energy_quality) == (None, "missing")
    assert "rapl says 4.295e+09 J, which is impossible" in done.detail


def test_a_run_keeps_what_was_dropped() -> None:
    run = Observation(Configuration("bdw", 1, 1, 28, 0), 60.0, 4294967294.0, meter="x")
    kept = without_impossible(run, BDW)
    assert (kept.energy_j, kept.energy_quality, kept.meter) == (None, "missing", "")
    assert kept.extra[DROPPED] == 4294967294.0
    good = Observation(run.configuration, 60.0, 18000.0)
    assert without_impossible(good, BDW) is good


def test_imported_runs_and_the_doctor_s_word(
    advisor: Run, tmp_path: Path, store_path: Path
) -> None:
    (tmp_path / "runs.csv").write_text(
        "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
        "1,1,28,2200000,60,18000\n1,1,14,2200000,60,4294967294\n"
    )
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
    done = advisor(
        "import", tmp_path / "runs.csv", "--application", "app", "--node-type", "bdw", "--json"
    )
    assert done.code == 0, done.err
    told = done.json()
    assert told["impossible_energies"] == 1
    assert told["energy"]["missing"] == 1
    with Reader(store_path) as reader:
        energies = sorted(o.observation.energy_j or 0.0 for o in reader.observations("app"))
        [check] = check_energies(reader)
    assert energies == [0.0, 18000.0]
    assert "0 jobs and 1 imported run" in check.text
    again = advisor(
        "import", tmp_path / "runs.csv", "--application", "app", "--node-type", "bdw", "--json"
    )
    assert again.json()["imported"] == 0
    rows = sqlite3.connect(store_path).execute("SELECT extra FROM observations").fetchall()
    assert [json.loads(e)[DROPPED] for (e,) in rows if DROPPED in e] == [4294967294.0]
