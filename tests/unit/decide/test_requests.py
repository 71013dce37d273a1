"""What is rewritten of a job, and what of a request that shares its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.request import CannotWriteError
from advisor.schedulers.slurm import translator as slurm
from advisor.store.writer import Writer
from tests.unit.decide.site import FREQS, SCRIPT, ask, codes, model, policy, response


def test_a_known_application_is_rewritten(store: Writer) -> None:
    decision = ask(store)
    assert set(decision.rewrite) == {"cpu-freq"}
    low, high = decision.rewrite["cpu-freq"].split("-")
    assert int(low) == 1_200_000
    assert int(high) in FREQS
    assert decision.environment == {"OMP_NUM_THREADS": "20"}
    assert decision.baseline == Configuration("bdw", 1, 1, 28, 2_200_000)
    assert "stencil" in decision.message and "ADVISOR=off" in decision.message
    assert decision.chosen is not None
    assert decision.chosen.energy.change < -0.1
    assert decision.chosen.time.hi <= 0.06


@pytest.mark.parametrize(
    ("arguments", "script", "env", "code"),
    [
        ("-N1 --exclusive -c 28", SCRIPT, {}, "user-set"),
        ("-N1 -c 28", SCRIPT, {}, "user-set"),  # takes all cores of its node
        ("-N1 --exclusive", "export OMP_NUM_THREADS=28\nsrun ./stencil", {}, "threads-own"),
        (
            "-N1 --exclusive -c 28",
            "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./stencil",
            {"ADVISOR_MODE": "apply"},
            "user-set",
        ),
        ("-N1 --exclusive", "srun -c 28 ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "echo $OMP_NUM_THREADS\nsrun ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "echo $(nproc)\nsrun ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "export OMP_PLACES={0:28}\nsrun ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "srun --cpu-bind=map_cpu:0,1,2 ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", "srun numactl -C 0-27 ./stencil", {}, "threads-own"),
        ("-N1 --exclusive", SCRIPT, {"OMP_NUM_THREADS": "28"}, "threads-own"),
        ("-N1 --exclusive", SCRIPT, {"GOMP_CPU_AFFINITY": "0-27"}, "threads-own"),
        ("-N1 --exclusive --export=NONE", SCRIPT, {}, "threads-own"),
    ],
)
def test_what_the_user_fixed_is_kept(
    store: Writer, arguments: str, script: str, env: dict[str, str], code: str
) -> None:
    decision = ask(store, arguments, script, env=env)
    assert decision.environment == {}
    assert set(decision.rewrite) == {"cpu-freq"}
    assert code in codes(decision)


WITHOUT_SRUN = ["./stencil", "mpirun ./stencil", "python stencil"]


@pytest.mark.parametrize("line", WITHOUT_SRUN)
@pytest.mark.parametrize("size", ["-N1 -n1 --exclusive -c 28", "-N1 -n1 -c 28"])
def test_cores_that_are_all_of_the_nodes_are_no_choice_of_threads(
    store: Writer, line: str, size: str
) -> None:
    script = f"#!/bin/bash\n{line}\n"
    plain, stated = ask(store, "-N1 -n1 --exclusive", script), ask(store, size, script)
    assert stated.environment == plain.environment == {"OMP_NUM_THREADS": "20"}
    assert stated.rewrite == plain.rewrite == {}  # the request stays
    policy(store, axes={"threads": "keep"})
    assert not ask(store, size, script).environment


@pytest.mark.parametrize(
    ("size", "script"),
    [
        ("-N1 -n1 --exclusive -c 24", "./stencil"),  # fewer than the node has
        ("-N1 -n1 --exclusive -c 28", "mpirun -np 1 ./stencil"),  # tasks of its own count
        ("-N1 -n1 --exclusive -c 28", "srun ./stencil"),  # its step tells
        ("-N1 -n1 --exclusive -c 28", "./stencil $SLURM_CPUS_PER_TASK"),
        ("-N1 -n1 --exclusive -c 28", "W=${SLURM_CPUS_PER_TASK} ./stencil"),
        ("-N1 -n1 --exclusive -c 28", "./stencil\n./stencil"),
        ("-N1 -n1 --exclusive -c 28 -p mixed", "./stencil"),  # nodes of 28 or of 40 cores
    ],
)
def test_cores_that_may_be_meant_as_threads_are_their_users_word(
    store: Writer, size: str, script: str
) -> None:
    assert ask(store, size, f"#!/bin/bash\n{script}\n").environment == {}


@pytest.mark.parametrize("kind", ["srun", "salloc"])
def test_an_interactive_jobs_cores_are_its_users_word(store: Writer, kind: str) -> None:
    decision = ask(store, "-N1 -n1 --exclusive -c 28", None, type=kind, argv=["./stencil"])
    assert decision.environment == {}


def test_an_explicit_frequency_is_a_cap_that_may_be_lowered_never_raised(store: Writer) -> None:
    decision = ask(store, "-N1 --exclusive --cpu-freq=1200000-1800000")
    if "cpu-freq" in decision.rewrite:
        assert int(decision.rewrite["cpu-freq"].split("-")[1]) < 1_800_000
    assert decision.baseline is not None
    assert decision.baseline.freq_khz == 1_800_000
    policy(store, axes={"frequency": "fill"})
    assert "cpu-freq" not in ask(store, "-N1 --exclusive --cpu-freq=1200000-1800000").rewrite


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("1200000-2400000", "1200000-1700000"),
        ("1400000-2400000", "1400000-1700000"),
        ("1500000-2400000", "1500000-1700000"),
        ("1400000-high", "1400000-1700000"),
        ("1900000-2400000", ""),  # nothing at or above it saves enough
        ("2400000", ""),  # one number: the cores stay there
        ("high", ""),
        ("1200000-high:userspace", ""),
    ],
)
def test_the_user_s_least_frequency_stays(store: Writer, asked: str, written: str) -> None:
    policy(store, max_slowdown=0.06, axes={"threads": "keep"}, min_saving=0.12)
    decision = ask(store, f"-N1 --exclusive --cpu-freq={asked}")
    assert decision.rewrite.get("cpu-freq", "") == written, decision.reasons


def test_a_policy_that_overrides_goes_below_the_user_s_least_frequency(store: Writer) -> None:
    policy(
        store, max_slowdown=1.0, min_saving=0.2, axes={"threads": "keep", "frequency": "override"}
    )
    decision = ask(store, "-N1 --exclusive --cpu-freq=1900000-2400000")
    assert decision.rewrite == {"cpu-freq": "1200000-1200000"}


@pytest.mark.parametrize("name", ["low", "medium", "highm1", "1200000-medium", "low-2400000"])
def test_a_frequency_that_only_the_node_knows_leaves_the_job_alone(
    store: Writer, name: str
) -> None:
    decision = ask(store, f"-N1 --exclusive --cpu-freq={name}")
    assert not decision.rewrite and not decision.environment


@pytest.mark.parametrize(
    "script", ["echo $SLURM_CPU_FREQ_REQ\n", "env | grep -E '^(OMP|SLURM_CPU_FREQ)'\n"]
)
def test_a_script_that_reads_its_cap_keeps_it(store: Writer, script: str) -> None:
    decision = ask(store, "-N1 --exclusive", f"{script}srun ./stencil")
    assert set(decision.environment) == {"OMP_NUM_THREADS"}
    assert "cpu-freq" not in decision.rewrite
    assert "the script uses SLURM_CPU_FREQ" in str(decision.reasons)


SHARED = "-N1 -c 24 --mem=2G"


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        (SCRIPT, {"OMP_NUM_THREADS": "20"}),
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./stencil", {}),
        (
            "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK}\nsrun -c $SLURM_CPUS_PER_TASK ./stencil",
            {},
        ),
        ("srun --mpi=pmi2 ./stencil", {"OMP_NUM_THREADS": "20"}),
    ],
)
def test_a_request_that_shares_its_node_becomes_smaller(
    store: Writer, script: str, environment: dict[str, str]
) -> None:
    policy(store, axes={"threads": "cap"})
    decision = ask(store, SHARED, script)
    assert decision.rewrite == {"cpus-per-task": "20"}
    assert decision.environment == environment
    assert "shared-nodes" in codes(decision)  # no cap: others run there


@pytest.mark.parametrize(
    ("arguments", "script", "why"),
    [
        ("-N1 -c 24", SCRIPT, "memory is per core"),
        ("-N1 -c 24 --mem-per-cpu=100M", SCRIPT, "memory is per core"),
        (SHARED, "srun -c 24 ./stencil", "states what a step takes"),
        (SHARED, "srun -n 1 ./stencil", "states what a step takes"),
        (SHARED, "export OMP_NUM_THREADS=24\nsrun ./stencil", "sets its threads"),
        (SHARED, "N=$((SLURM_CPUS_ON_NODE / 2))\nsrun ./stencil", "SLURM_CPUS_ON_NODE"),
        (SHARED, "echo $SLURM_CPUS_PER_TASK\nsrun ./stencil", "SLURM_CPUS_PER_TASK"),
    ],
)
def test_why_a_request_that_shares_its_node_stays(
    store: Writer, arguments: str, script: str, why: str
) -> None:
    policy(store, axes={"threads": "cap"})
    decision = ask(store, arguments, script)
    assert not decision.rewrite and not decision.environment
    assert any(why in r.text for r in decision.reasons), decision.reasons


def test_requests_stay_as_they_are_where_the_policy_says_so(store: Writer) -> None:
    policy(store, axes={"threads": "cap"}, allocation="keep")
    decision = ask(store, SHARED)
    assert not decision.rewrite and "cores-kept" in codes(decision)
    policy(store, axes={"threads": "fill"})
    assert "user-set" in codes(ask(store, SHARED))
    policy(store, axes={"threads": "cap"})
    assert ask(store, SHARED).rewrite
    model(
        store,
        "bdw",
        [response("bdw", 1, 1, t, f) for t in (20, 24, 28) for f in FREQS],
        stats={"method": "variables"},
    )
    assert not ask(store, SHARED).rewrite


def test_a_model_of_smaller_requests_is_not_used_inside_of_an_allocation(store: Writer) -> None:
    model(
        store,
        "bdw",
        [response("bdw", 1, 1, t, f) for t in (20, 28) for f in FREQS],
        stats={"method": "request"},
    )
    decision = ask(store)
    assert not decision.rewrite and not decision.environment
    assert "measured-otherwise" in codes(decision)


def test_the_controller_makes_no_request_smaller(store: Writer) -> None:
    policy(store, axes={"threads": "cap"})
    assert ask(store, SHARED).rewrite
    decision = ask(store, SHARED, hook="job_submit")
    assert not decision.rewrite and not decision.environment
    assert any("never made smaller" in r.text for r in decision.reasons)


def test_an_axis_that_cannot_be_written_is_kept_and_the_others_change(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = slurm.render
    draws: list[float] = []

    def render(baseline: Configuration, chosen: Configuration, *args: Any, **other: Any) -> Any:
        if chosen.threads_per_node != baseline.threads_per_node:
            raise CannotWriteError("threads", "not so many", "the chunk's cores")
        return written(baseline, chosen, *args, **other)

    def chance() -> float:
        draws.append(1.0)
        return 1.0

    monkeypatch.setattr(slurm, "render", render)
    decision = ask(store, chance=chance)
    assert decision.environment == {} and set(decision.rewrite) == {"cpu-freq"}
    assert decision.chosen is not None and decision.chosen.configuration.threads_per_node == 28
    assert any("the chunk's cores binds it" in r.text for r in decision.reasons)
    assert len(draws) == 2  # the decision, and the same again

    def nothing(*_: Any, **__: Any) -> Any:
        raise CannotWriteError("frequency", "no cap", "the site")

    monkeypatch.setattr(slurm, "render", nothing)
    assert codes(ask(store)) & {"cannot-write", "no-candidates", "saving-too-small"}
