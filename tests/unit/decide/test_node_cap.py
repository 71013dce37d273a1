"""Caps that the nodes' prolog applies to whatever a batch job on whole nodes runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.core.availability import Availability, JobLimits, PartitionState
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.stamp import make_stamp, node_cap_khz, read_stamp
from advisor.loop.execution import NO_STEP, differs, ran
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.schedulers.slurm.accounting import _with_steps
from advisor.schedulers.slurm.availability import parse_settings, prolog_settings
from advisor.schedulers.slurm.translator import parse_request, read_arguments
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.decide.site import BDW, codes, policy, snapshot

PROGRAM = "/etc/slurm/advisor-node-cap"
CAPPING = {
    "Prolog": PROGRAM,
    "Epilog": PROGRAM,
    "PrologFlags": "Alloc",
    "JobSubmitPlugins": "lua",
    "TaskPlugin": "task/affinity",
}
PLAIN, MPI = "./stencil", "mpirun -np 1 ./stencil"
WHOLE = "-N1 -n1 --exclusive"


def ask(
    writer: Writer,
    line: str = PLAIN,
    arguments: str = WHOLE,
    *,
    state: PartitionState | None = None,
    more: dict[str, str] | None = None,
    draw: float = 1.0,
    **payload: Any,
) -> Decision:
    """Decide for a job on a site whose Slurm runs the program, but for ``more`` settings."""
    site = snapshot(writer)
    site.availability = Availability(
        "slurm",
        {},
        {"batch": state or PartitionState()},
        limits=JobLimits(enforced=False),
        settings=CAPPING | (more or {}),
    )
    options = read_arguments([*arguments.split(), "-t", "600", "-p", "batch"])
    sent = {"type": "sbatch", "options": options, "script": f"#!/bin/bash\n{line}\n", **payload}
    request = parse_request(sent, user="ada", uid=1000, choices={})
    decision = decide(request, site, chance=lambda: draw)
    same_again(decision, site, lambda: draw)
    return decision


@pytest.mark.parametrize("line", [PLAIN, MPI, "srun --cpu-bind=none ./stencil"])
def test_a_whole_node_job_is_capped_whatever_starts_its_program(store: Writer, line: str) -> None:
    decision = ask(store, line)
    assert decision.chosen is not None and decision.baseline is not None
    cap = decision.chosen.configuration.freq_khz
    assert cap < decision.baseline.freq_khz
    assert decision.node_cap_khz == cap and "node-cap" in codes(decision)
    assert decision.rewrite["cpu-freq"] == f"1200000-{cap}"  # for the steps of srun in it
    assert "GHz" in decision.message
    stamp = make_stamp(decision)
    assert f'"cap":{cap}' in stamp and node_cap_khz(f"a site's words {stamp}") == cap
    again = read_stamp(stamp)
    assert again is not None and again.node_cap_khz == cap
    assert Decision.from_dict(decision.to_dict()).node_cap_khz == cap
    assert decision.withdrawn().node_cap_khz == 0


def test_a_partition_of_whole_nodes_needs_no_exclusive(store: Writer) -> None:
    assert ask(store, PLAIN, "-N1 -n1", state=PartitionState(whole_nodes=True)).node_cap_khz
    assert not ask(store, PLAIN, "-N1 -n1 -c28").node_cap_khz  # all its cores, and not alone


@pytest.mark.parametrize(
    ("line", "arguments", "payload"),
    [
        ("srun ./stencil", WHOLE, {}),  # its cap lands by srun: the rest runs as written
        (PLAIN, f"{WHOLE} --cpu-freq=1200000-2000000", {}),
        (PLAIN, f"{WHOLE} --cpu-freq=high", {}),
        (PLAIN, WHOLE, {"env": {"SLURM_CPU_FREQ_REQ": "2000000"}}),
        (f"export SLURM_CPU_FREQ_REQ=2000000\n{PLAIN}", WHOLE, {}),
        (f"echo $SLURM_CPU_FREQ_REQ\n{PLAIN}", WHOLE, {}),  # it reads its cap
        (PLAIN, WHOLE, {"het": True}),
        (PLAIN, f"{WHOLE} --oversubscribe", {}),
        (f"#ADVISOR off\n{PLAIN}", WHOLE, {}),
        ("", WHOLE, {"type": "srun", "argv": ["./stencil"], "script": None}),
        ("", WHOLE, {"type": "salloc", "script": None}),
    ],
)
def test_what_keeps_nodes_from_capping_a_job(
    store: Writer, line: str, arguments: str, payload: dict[str, Any]
) -> None:
    decision = ask(store, line, arguments, **payload)
    assert decision.node_cap_khz == 0 and "node-cap" not in codes(decision)
    assert '"cap"' not in make_stamp(decision)


@pytest.mark.parametrize(
    "more",
    [
        {"Prolog": ""},
        {"Epilog": "/etc/slurm/epilog.sh"},
        {"Prolog": f"{PROGRAM}.old"},
        {"PrologFlags": ""},
        {"PrologFlags": "Serial,NoHold"},
        {"JobSubmitPlugins": ""},
        {"JobSubmitPlugins": "luamost"},
    ],
)
def test_a_site_that_does_not_run_the_whole_program_caps_no_node(
    store: Writer, more: dict[str, str]
) -> None:
    decision = ask(store, more=more)
    assert not decision.node_cap_khz and "cpu-freq" not in decision.rewrite


@pytest.mark.parametrize("mode", ["advise", "observe"])
def test_what_is_only_shown_caps_nothing(store: Writer, mode: str) -> None:
    policy(store, mode=mode)
    assert '"cap"' not in make_stamp(ask(store))


def test_a_holdout_job_is_not_capped(store: Writer) -> None:
    policy(store, holdout=0.5)
    decision = ask(store, draw=0.1)
    assert decision.holdout and not decision.node_cap_khz
    assert ask(store, draw=0.9).node_cap_khz


def test_the_settings_of_newer_slurms_and_patterns_are_read(tmp_path: Any) -> None:
    (tmp_path / "advisor-node-cap").touch()
    (tmp_path / "10-site").touch()
    text = (
        "Epilog[0]               = /x/advisor-node-cap\n"
        f"Prolog[0]               = /etc/site\nProlog[1]               = {tmp_path}/*\n"
        "PrologFlags             = Alloc,Contain\nJobSubmitPlugins        = (null)\n"
    )
    settings = prolog_settings(parse_settings(text))
    assert settings == {
        "Prolog": f"/etc/site,{tmp_path}/10-site,{tmp_path}/advisor-node-cap",
        "Epilog": "/x/advisor-node-cap",
        "PrologFlags": "Alloc,Contain",
        "JobSubmitPlugins": "",
    }


# -- what came of it -------------------------------------------------------------------------------

CAP = 1_800_000
INVENTORY = Inventory.of([BDW])
WANTED = Configuration("bdw", 1, 1, 28, CAP)
BATCH = StepRecord("batch", "batch", "COMPLETED", 60.0, 1, 1, cpus=28)


def record(cap: int = CAP, *steps: StepRecord, cpus: int = 28, seen_khz: int = 0) -> JobRecord:
    job = JobRecord("7", "j", "ada", "proj", "COMPLETED", elapsed_s=60.0, nodes=1, node_list="bdw1")
    job = replace(job, cpus=cpus, node_cap_khz=cap)
    return _with_steps(job, [replace(BATCH, freq_observed_khz=seen_khz or None), *steps])


def test_a_cap_of_the_nodes_needs_no_step_and_is_judged_by_what_was_observed() -> None:
    for seen_khz in (0, CAP, 1_750_000):
        execution = ran(record(seen_khz=seen_khz), INVENTORY)
        assert (execution.cap_khz, execution.uncapped) == (CAP, "")
        assert differs(WANTED, execution, INVENTORY) == ""
    execution = ran(record(seen_khz=2_200_000), INVENTORY)
    assert execution.cap_khz == 0 and "it ran at 2.2 GHz" in differs(WANTED, execution, INVENTORY)


def test_without_a_cap_of_the_nodes_a_job_without_steps_had_none() -> None:
    execution = ran(record(0), INVENTORY)
    assert execution.uncapped == NO_STEP and "had no effect" in differs(
        WANTED, execution, INVENTORY
    )


def test_another_cap_than_decided_says_nothing_of_the_decision() -> None:  # as of a forged stamp
    assert "its cap was 1.2 GHz" in differs(WANTED, ran(record(1_200_000), INVENTORY), INVENTORY)


def test_a_job_that_shared_its_node_was_never_capped() -> None:
    assert ran(record(cpus=4), INVENTORY).uncapped == NO_STEP


@pytest.mark.parametrize(
    "text", ["", '"cap":1800000', 'advisor:{"v":1,"cap":1800000}', 'advisor:{"cap":"x"}']
)
def test_a_text_that_is_no_stamp_names_no_cap(text: str) -> None:
    assert node_cap_khz(text) == 0
