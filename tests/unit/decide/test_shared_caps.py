"""Caps of jobs that share their nodes, where the site says that cores have clocks of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.core.inventory import Inventory
from advisor.core.stamp import make_stamp
from advisor.loop.execution import NO_STEP, differs, ran
from advisor.schedulers.slurm.translator import cores_uncapped
from advisor.store.writer import Writer
from tests.unit.decide.site import BDW, SCRIPT, SKL, ask, codes, policy
from tests.unit.decide.test_node_cap import CAP, CAPPING, MPI, PLAIN, WANTED, record
from tests.unit.decide.test_node_cap import ask as ask_capping

SHARED = "-N1 -c 24 --mem=16G"


@pytest.fixture
def accepting(store: Writer) -> Writer:
    store.save_node_types([replace(BDW, shared_caps="accept"), SKL], source="test")
    policy(store, axes={"threads": "keep"})
    return store


def test_a_program_of_srun_is_capped_on_its_own_cores(accepting: Writer) -> None:
    decision = ask(accepting, SHARED)
    assert list(decision.rewrite) == ["cpu-freq"] and not decision.environment
    assert decision.chosen is not None and decision.baseline is not None
    assert decision.chosen.configuration.freq_khz < decision.baseline.freq_khz
    assert decision.node_cap_khz == 0


@pytest.mark.parametrize("line", ["./stencil", "mpirun -np 1 ./stencil"])
def test_nothing_else_is(accepting: Writer, line: str) -> None:
    assert not ask(accepting, SHARED, f"#!/bin/bash\n{line}\n").rewrite


def test_none_without_the_sites_word(store: Writer) -> None:
    policy(store, axes={"threads": "keep"})
    decision = ask(store, SHARED, SCRIPT)
    assert not decision.rewrite and "shared-nodes" in codes(decision)


# -- the nodes' prolog, where Slurm binds each job to its cores ------------------------------------

BOUND = {
    "PrologFlags": "Contain",
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainCores": "yes",
    "CgroupMountpoint": "/sys/fs/cgroup",
}


@pytest.mark.parametrize("line", [PLAIN, MPI, "srun --cpu-bind=none ./stencil"])
def test_nodes_cap_the_own_cores_of_whatever_a_job_runs(accepting: Writer, line: str) -> None:
    decision = ask_capping(accepting, line, SHARED, more=BOUND)
    assert decision.chosen is not None and decision.baseline is not None
    cap = decision.chosen.configuration.freq_khz
    assert cap < decision.baseline.freq_khz
    assert decision.node_cap_khz == cap and "node-cap" in codes(decision)
    assert f'"cap":{cap}' in make_stamp(decision)
    assert list(decision.rewrite) == ["cpu-freq"] and not decision.environment


def test_what_srun_starts_is_capped_by_its_step_alone_there_too(accepting: Writer) -> None:
    decision = ask_capping(accepting, "srun ./stencil", SHARED, more=BOUND)
    assert decision.rewrite and decision.node_cap_khz == 0


def test_the_sites_word_counts_whatever_its_nodes_can_do(store: Writer) -> None:
    policy(store, axes={"threads": "keep"})
    decision = ask_capping(store, PLAIN, SHARED, more=BOUND)
    assert not decision.rewrite and not decision.node_cap_khz
    assert "shared-nodes" in codes(decision)


def test_who_has_all_cores_of_its_nodes_needs_no_word_of_the_site(store: Writer) -> None:
    policy(store, axes={"threads": "keep"})
    assert ask_capping(store, PLAIN, "-N1 -n1 -c28", more=BOUND).node_cap_khz
    assert not ask_capping(store, PLAIN, "-N1 -n1 -c28").node_cap_khz


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"PrologFlags": "Alloc"}, "PrologFlags is without Contain"),
        ({"PrologFlags": ""}, "PrologFlags is without Alloc"),
        ({"TaskPlugin": "task/affinity"}, "TaskPlugin is without task/cgroup"),
        ({"ConstrainCores": "no"}, "ConstrainCores is not yes"),
        ({"ConstrainCores": ""}, "ConstrainCores is not yes"),
        ({"CgroupMountpoint": "/cgroup"}, "CgroupMountpoint is not /sys/fs/cgroup"),
        ({"Epilog": ""}, "Epilog does not name advisor-node-cap"),
    ],
)
def test_no_promise_where_slurm_does_not_tell_which_cores_are_a_jobs(
    accepting: Writer, more: dict[str, str], why: str
) -> None:
    settings = {**BOUND, **more}
    assert cores_uncapped(CAPPING | settings) == why
    decision = ask_capping(accepting, PLAIN, SHARED, more=settings)
    assert not decision.rewrite and '"cap"' not in make_stamp(decision)


@pytest.mark.parametrize(
    "more", [{"CgroupMountpoint": ""}, {"PrologFlags": "X11"}, {"ConstrainCores": "Yes"}]
)
def test_what_slurm_has_by_default_is_as_good(more: dict[str, str]) -> None:
    assert cores_uncapped(CAPPING | BOUND | more) == ""


@pytest.mark.parametrize(
    ("line", "arguments", "payload"),
    [
        (PLAIN, f"{SHARED} --cpu-freq=1200000-2000000", {}),
        (PLAIN, f"{SHARED} --oversubscribe", {}),
        (f"echo $SLURM_CPU_FREQ_REQ\n{PLAIN}", SHARED, {}),
        (PLAIN, SHARED, {"het": True}),
        ("", SHARED, {"type": "salloc", "script": None}),
    ],
)
def test_what_keeps_nodes_from_capping_a_jobs_cores(
    accepting: Writer, line: str, arguments: str, payload: dict[str, Any]
) -> None:
    decision = ask_capping(accepting, line, arguments, more=BOUND, **payload)
    assert decision.node_cap_khz == 0 and '"cap"' not in make_stamp(decision)


def test_a_shared_jobs_cap_is_judged_and_its_energy_is_not_known() -> None:
    accepts = Inventory.of([replace(BDW, shared_caps="accept")])
    shared = replace(WANTED, threads_per_node=4)
    execution = ran(record(cpus=4), accepts)
    assert (execution.cap_khz, execution.uncapped) == (CAP, "")
    assert (execution.energy_j, execution.energy_note) == (
        None,
        "other jobs may have run on its nodes",
    )
    assert differs(shared, execution, accepts) == ""
    faster = ran(record(cpus=4, seen_khz=2_200_000), accepts)
    assert "it ran at 2.2 GHz" in differs(shared, faster, accepts)
    assert ran(record(0, cpus=4), accepts).uncapped == NO_STEP
