"""Variables that a job leaves unset, and caps that would not reach its program."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from advisor.core.availability import Availability, JobLimits, PartitionState, Queue
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.observation import Observation
from advisor.core.thread_use import KEY, ThreadUse, filled, filled_by_all, unset_stats
from advisor.schedulers.pbs.translator import parse_request
from advisor.schedulers.slurm.translator import parse_request as slurm_request
from advisor.schedulers.slurm.translator import read_arguments
from advisor.service.decide import decide
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.decide.site import FREQS, SCRIPT, ask, codes, model, policy, response, snapshot

TOP = FREQS[-1]
OPTIONS = [response("bdw", 1, 1, t, f) for t in range(4, 29, 4) for f in FREQS]


def measured(writer: Writer, *shapes: list[int], **more: Any) -> None:
    """Put a model of runs into the store that used all of their threads at these shapes."""
    model(writer, "bdw", OPTIONS, stats={"threads_unset": list(shapes)}, **more)


def rule(writer: Writer, **keys: Any) -> None:
    known = {"name": "stencil", "executable": ["stencil"], **keys}
    writer.apply_config(
        "site", path="s", text=repr(keys), compiled={"applications": [known]}, by="test"
    )


@pytest.mark.parametrize("arguments", ["-N1 --exclusive", "-N1 --exclusive -c 28", "-N1 -c28"])
@pytest.mark.parametrize("shapes", [[], [[1, 1, 20]], [[2, 1, 28]], [[1, 14, 28]]])
def test_threads_stay_where_no_run_with_the_variable_unset_used_them(
    store: Writer, arguments: str, shapes: list[list[int]]
) -> None:
    policy(store, axes={"threads": "override"})
    measured(store, *shapes)
    decision = ask(store, arguments)
    assert decision.environment == {} and "threads-unset" in codes(decision)
    assert set(decision.rewrite) == {"cpu-freq"}  # the cap and the baseline are what they were
    assert decision.baseline == Configuration("bdw", 1, 1, 28, TOP)
    text = next(r.text for r in decision.reasons if r.code == "threads-unset")
    assert "OMP_NUM_THREADS unset" in text and "28 threads" in text


@pytest.mark.parametrize("arguments", ["-N1 --exclusive", "-N1 --exclusive -c 28"])
@pytest.mark.parametrize("known", ["measured", "vouched"])
def test_threads_change_where_a_run_used_them_or_the_site_vouches(
    store: Writer, arguments: str, known: str
) -> None:
    policy(store, axes={"threads": "override"})
    measured(store, *([[1, 1, 28]] if known == "measured" else []))
    if known == "vouched":
        rule(store, threads_unset="all-cores")
    assert ask(store, arguments).environment == {"OMP_NUM_THREADS": "20"}


def test_a_rule_that_names_variables_vouches_for_nothing(store: Writer) -> None:
    measured(store)
    rule(store, threads_from=["JULIA_NUM_THREADS"])
    decision = ask(store)
    text = next(r.text for r in decision.reasons if r.code == "threads-unset")
    assert decision.environment == {} and "JULIA_NUM_THREADS unset" in text


def test_a_smaller_request_sets_no_unset_variable_either(store: Writer) -> None:
    shared = [response("bdw", 1, 1, t, TOP) for t in range(4, 29, 4)]
    policy(store, axes={"threads": "override"})
    model(store, "bdw", shared, stats={"method": "request"})
    decision = ask(store, "-n1 -c24 --mem=1000")
    assert not decision.changed and "threads-unset" in codes(decision)
    follows = "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./stencil"
    decision = ask(store, "-n1 -c24 --mem=1000", follows)  # its own line sets it
    assert decision.rewrite == {"cpus-per-task": "20"} and decision.environment == {}


STATED = "-N1 -n1 --exclusive -c 28"


@pytest.mark.parametrize(("knowing", "threads"), [([1, 1, 28], "20"), ([1, 1, 20], ""), (None, "")])
def test_stated_cores_change_nothing_where_no_run_knew_them(
    store: Writer, knowing: list[int] | None, threads: str
) -> None:
    stats = {"threads_unset": [[1, 1, 28]], **({"threads_of_cores": [knowing]} if knowing else {})}
    model(store, "bdw", OPTIONS, stats=stats)
    # A program that reads them may start as many workers, which none of these runs did.
    decision = ask(store, STATED, "./stencil")
    assert decision.environment.get("OMP_NUM_THREADS", "") == threads
    assert threads or "user-set" in codes(decision)
    assert ask(store, "-N1 -n1 --exclusive", "./stencil").environment
    rule(store, threads_unset="all-cores")
    assert ask(store, STATED, "./stencil").environment == {"OMP_NUM_THREADS": "20"}


def run(threads: int, use: object, time_s: float = 1.0) -> Observation:
    extra = {KEY: use} if use else {}
    return Observation(Configuration("bdw", 1, 1, threads, TOP), time_s, extra=extra)


def counted(*threads: int, unset: bool = True, knows_cores: bool = False) -> dict[str, object]:
    return ThreadUse(unset, threads, knows_cores).to_dict()


def test_what_a_run_counted_is_held_against_what_is_assumed() -> None:
    assert filled([run(28, counted(28))]) == [(1, 1, 28)]
    assert filled([run(28, counted(*[1] * 28))]) == []  # as many threads, of as many processes
    assert filled([run(28, counted(28, unset=False))]) == []
    assert filled([run(28, counted(27))]) == filled([run(28, counted(28, 1))]) == []
    assert filled([run(28, None)]) == []
    assert filled([run(28, counted(28)), run(28, counted(14))]) == []  # the newest
    assert filled([run(28, counted(14)), run(28, counted(28))]) == [(1, 1, 28)]
    wrong: tuple[object, ...] = ([0], [], "28", [True], [1] * 5000)
    no_use: list[object] = [{"unset": True, "threads": threads} for threads in wrong]
    for bad in (*no_use, {}, {"unset": 1, "threads": [28]}, [28], "x"):
        assert ThreadUse.from_dict(bad) is None
        assert filled([run(28, bad)]) == []


def test_a_run_knows_its_cores_where_one_of_its_processes_does() -> None:
    told, other = run(28, counted(28, knows_cores=True)), run(28, counted(28))
    assert unset_stats([other]) == {"threads_unset": [[1, 1, 28]], "threads_of_cores": []}
    assert unset_stats([told])["threads_of_cores"] == unset_stats([told, other])["threads_of_cores"]
    assert unset_stats([told])["threads_of_cores"] == [[1, 1, 28]]
    workers = run(28, counted(*[1] * 28, knows_cores=True))
    assert unset_stats([told, workers]) == {"threads_unset": [], "threads_of_cores": []}
    assert unset_stats([workers, other]) == {"threads_unset": [[1, 1, 28]], "threads_of_cores": []}
    assert "knows_cores" not in counted(28)
    assert ThreadUse.from_dict({"unset": True, "threads": [28], "knows_cores": 1}) is None


def test_a_size_that_never_ran_needs_two_that_did_and_none_that_did_otherwise() -> None:
    all_cores, pool = run(28, counted(28)), run(28, counted(*[1] * 14))
    assert filled_by_all([("-n 1", all_cores), ("-n 2", all_cores)]) == [(1, 1, 28)]
    assert filled_by_all([("-n 1", all_cores)]) == []
    assert filled_by_all([("-n 1", all_cores), ("-n 2", all_cores), ("-n 3", pool)]) == []
    assert filled_by_all([("-n 1", all_cores), ("-n 2", run(28, None))]) == []


# -- caps ------------------------------------------------------------------------------------------

NONE, MPI = "no srun", "mpirun, and Slurm caps srun's steps only"
UNBOUND = "without binding to cores"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("./stencil", NONE),
        ("numactl -l ./stencil", NONE),
        ("mpirun -np 1 ./stencil", MPI),
        ("time mpirun -np 1 ./stencil", MPI),
        ("srun --cpu-bind=none ./stencil", UNBOUND),
        ("srun --cpu-bind=verbose,none ./stencil", UNBOUND),
        ("export SLURM_CPU_BIND=none\nsrun ./stencil", UNBOUND),
        ("SLURM_CPU_BIND=quiet,none srun ./stencil", UNBOUND),
        ("export SLURM_CPU_BIND=none\nsrun --cpu-bind=cores ./stencil", ""),
        ("export SLURM_CPU_BIND=cores\nsrun ./stencil", ""),
        ("export SLURM_CPU_BIND_TYPE=none SLURM_MEM_BIND=none\nsrun ./stencil", ""),
        ("srun ./stencil", ""),
        ("timeout 2h srun --cpu-bind=cores ./stencil", ""),
    ],
)
def test_a_cap_that_would_not_land_is_not_promised(store: Writer, line: str, why: str) -> None:
    decision = ask(store, "-N1 -n1 --exclusive", f"#!/bin/bash\n{line}\n")
    assert ("cpu-freq" in decision.rewrite) is not bool(why)
    assert decision.baseline is not None
    if decision.chosen is not None:
        chosen = decision.chosen.configuration
        assert (chosen.freq_khz == decision.baseline.freq_khz) is bool(why)
    kept = [r.text for r in decision.reasons if r.code == "axis-bound"]
    assert any(why in text for text in kept) if why else not kept
    assert "GHz" not in decision.message or not why


@pytest.mark.parametrize(
    ("settings", "line", "why"),
    [
        ({"TaskPlugin": "task/none"}, "srun ./stencil", "TaskPlugin=task/none"),
        ({"TaskPlugin": ""}, "srun --cpu-bind=cores ./stencil", "TaskPlugin=none"),
        (
            {"TaskPlugin": "task/affinity", "TaskPluginParam": "None"},
            "srun ./stencil",
            "TaskPluginParam=none",
        ),
        (
            {"TaskPlugin": "task/affinity", "TaskPluginParam": "none"},
            "srun --cpu-bind=cores ./stencil",
            "",
        ),
        ({"TaskPlugin": "task/cgroup,task/affinity"}, "srun ./stencil", ""),
        ({}, "srun ./stencil", ""),
    ],
)
def test_a_site_whose_slurm_binds_no_step_caps_none(
    store: Writer, settings: dict[str, str], line: str, why: str
) -> None:
    site = snapshot(store)
    site.availability = Availability(
        "slurm",
        {},
        {"batch": PartitionState()},
        limits=JobLimits(enforced=False),
        settings=settings,
    )
    request = slurm_request(
        {
            "type": "sbatch",
            "options": read_arguments(["-N1", "-n1", "--exclusive", "-t", "60"]),
            "script": f"#!/bin/bash\n{line}\n",
        },
        user="ada",
        uid=1000,
        choices={},
    )
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    assert ("cpu-freq" in decision.rewrite) is not bool(why)
    kept = [r.text for r in decision.reasons if r.code == "axis-bound"]
    assert any(why in text for text in kept) if why else not kept


@pytest.mark.parametrize(
    ("line", "khz"),
    [
        ("./stencil", TOP),
        ("srun --cpu-bind=none ./stencil", TOP),
        ("export SLURM_CPU_BIND=none\nsrun ./stencil", TOP),
        ("srun ./stencil", 1_800_000),
    ],
)
def test_a_cap_of_the_users_own_that_does_not_land_is_no_baseline(
    store: Writer, line: str, khz: int
) -> None:
    decision = ask(store, "-N1 --exclusive --cpu-freq=1200000-1800000", f"#!/bin/bash\n{line}\n")
    assert decision.baseline is not None and decision.baseline.freq_khz == khz
    assert ("cpu-freq" in decision.rewrite) is (khz != TOP)


@pytest.mark.parametrize("binding", [{"cpu-bind": "none"}, {}])
def test_a_command_of_srun_is_a_step(store: Writer, binding: dict[str, str]) -> None:
    decision = ask(
        store,
        " ".join(["-N1 --exclusive", *(f"--{k}={v}" for k, v in binding.items())]),
        None,
        type="srun",
        argv=["./stencil"],
    )
    assert ("cpu-freq" in decision.rewrite) is not bool(binding)


def test_threads_and_node_type_may_change_where_the_cap_may_not(store: Writer) -> None:
    decision = ask(store, script="#!/bin/bash\n./stencil\n")
    assert decision.environment == {"OMP_NUM_THREADS": "20"} and decision.rewrite == {}


# -- PBS -------------------------------------------------------------------------------------------


def ask_pbs(store: Writer, select: str, line: str = "./stencil", **options: str) -> Decision:
    client = {"v": 1, "script": f"#!/bin/bash\n{line}\n", "whole": True}
    packed = base64.urlsafe_b64encode(zlib.compress(json.dumps(client).encode())).decode()
    request = parse_request(
        {
            "options": {"select": select, "place": "scatter:excl", "queue": "batch", **options},
            "host_resources": ["node_type"],
            "client": packed,
        },
        user="ada",
        uid=1000,
        choices={},
    )
    site = snapshot(store)
    queues = {"": Queue(""), "batch": Queue("batch")}
    site.availability = Availability(
        "pbs", {}, {"batch": PartitionState()}, queues, JobLimits(enforced=False)
    )
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    return decision


def test_pbs_sets_the_variable_in_every_job_and_caps_whatever_runs(store: Writer) -> None:
    policy(store, axes={"threads": "override"})
    measured(store)
    for line in ("./stencil", "mpirun -np 1 ./stencil"):
        decision = ask_pbs(store, "1:ncpus=28", line)
        assert "ompthreads=20" in decision.rewrite.get("select", ""), decision.reasons
        assert "cpu_freq_mhz" in decision.rewrite


def test_other_variables_are_unset_on_pbs_too(store: Writer) -> None:
    policy(store, axes={"threads": "override"})
    measured(store)
    rule(store, threads_from=["OMP_NUM_THREADS", "JULIA_NUM_THREADS"])
    decision = ask_pbs(store, "1:ncpus=28")
    assert decision.environment == {} and "ompthreads" not in str(decision.rewrite)
    text = next(r.text for r in decision.reasons if r.code == "threads-unset")
    assert "leaves JULIA_NUM_THREADS unset" in text
    rule(store, threads_from=["OMP_NUM_THREADS", "JULIA_NUM_THREADS"], threads_unset="all-cores")
    assert ask_pbs(store, "1:ncpus=28").environment == {"JULIA_NUM_THREADS": "20"}


def test_the_script_is_not_needed_to_decide_again(store: Writer) -> None:
    rule(store, threads_unset="all-cores")
    measured(store)
    assert ask(store, script=SCRIPT).environment  # ask() decides each job again from its record
