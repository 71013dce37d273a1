"""A Slurm request as the hooks send it, and a choice written back, at the bounds of each number."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.availability import Availability, JobLimits, PartitionState
from advisor.core.configuration import Configuration
from advisor.core.cpu_freq import parse_cpu_freq
from advisor.core.inventory import NodeType
from advisor.core.request import CannotWriteError, JobRequest
from advisor.core.script_use import NO_USE
from advisor.schedulers.slurm import table
from advisor.schedulers.slurm.translator import (
    array_task,
    asking_for,
    bound_ranks,
    cap_obstacle,
    fold,
    launched,
    limited,
    parse_request,
    render,
    uncapped_by,
    uncapped_launcher,
    without,
)

STEPS = (1_200_000, 1_600_000, 2_000_000)
TYPE = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch",),
    sockets=2,
    cores=16,
    memory_mb=64_000,
    freq_khz=STEPS,
    default_freq_khz=STEPS[-1],
    nodes=("n1", "n2"),
    default_partition="batch",
)
BASE = Configuration("bdw", 1, 2, 16, STEPS[-1])


def request(options: dict[str, str] | None = None, **payload: Any) -> JobRequest:
    return parse_request(
        {"options": options or {}, **payload}, user="ada", uid=1000, choices={"goal": "edp"}
    )


# -- limits of a request -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [
        ("", None),
        ("0", 0),
        ("1", 60),
        ("90", 5400),
        ("1:30", 90),
        ("0:59", 59),
        ("1:02:03", 3723),
        ("2-3", 183_600),
        ("2-3:04", 183_840),
        ("2-3:04:05", 183_845),
        ("0-0:0:1", 1),
        ("UNLIMITED", 0),
        ("infinite", 0),
        ("-1", 0),
        (" 5 ", 300),
    ],
)
def test_time_limits(text: str, limit_s: int | None) -> None:
    assert request({"time": text}).time_limit_s == limit_s


@pytest.mark.parametrize("text", ["1:2:3:4", "x", "1:-2", "-5", "1-", "1-2:3:4:5", "1:", "1.5"])
def test_what_is_no_time_limit(text: str) -> None:
    with pytest.raises(ValueError, match=f"--time={text} is not a time limit"):
        request({"time": text})


@given(
    st.integers(0, 9),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 59),
    st.sampled_from(["days", "hours", "minutes"]),
)
def test_a_time_limit_is_the_sum_of_its_parts(d: int, h: int, m: int, s: int, form: str) -> None:
    text, parts = {
        "days": (f"{d}-{h}:{m}:{s}", (d, h, m, s)),
        "hours": (f"{h}:{m}:{s}", (0, h, m, s)),
        "minutes": (f"{m}:{s}", (0, 0, m, s)),
    }[form]
    seconds = sum(n * f for n, f in zip(parts, (86_400, 3_600, 60, 1), strict=True))
    assert (request({"time": text}).time_limit_s or 0) == seconds


@pytest.mark.parametrize(
    ("text", "before_s"),
    [("", 0), ("TERM", 120), ("TERM@120", 180), ("B:USR1@1", 61), ("USR1@x", 120), ("@", 120)],
)
def test_a_signal_may_come_a_minute_earlier(text: str, before_s: int) -> None:
    assert request({"signal": text}).signal_before_s == before_s


@pytest.mark.parametrize("name", ["mem", "mem-per-cpu"])
@pytest.mark.parametrize(
    ("text", "mb"),
    [("", None), ("0", None), ("1", 1.0), ("2G", 2048.0), ("2G?", 2048.0), ("512K", 0.5)],
)
def test_memory(name: str, text: str, mb: float | None) -> None:
    job = request({name: text})
    stated = {"mem": job.memory_per_node_mb, "mem-per-cpu": job.memory_per_cpu_mb}
    assert stated.pop(name) == mb and set(stated.values()) == {None}


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", None, None),
        ("1200000", 1_200_000, 1_200_000),
        ("1200000-1600000", 1_200_000, 1_600_000),
        ("1200000-1600000:Performance", 1_200_000, 1_600_000),
        ("1200000-high", 1_200_000, None),
        ("high", None, None),
        ("low-1600000", None, 1_600_000),
        (":OnDemand", None, None),
    ],
)
def test_bounds_of_the_frequency(text: str, low: int | None, high: int | None) -> None:
    assert parse_cpu_freq(text) == (low, high)
    job = request({"cpu-freq": text})
    assert (job.freq_low_khz, job.freq_khz) == (low, high)


@pytest.mark.parametrize(
    ("text", "binds"),
    [
        ("high", "frequency"),
        ("High:userspace", "frequency"),
        ("low", "all"),
        ("medium", "all"),
        ("highm1", "all"),
        ("1200000-medium", "all"),
        ("low-high", "all"),
        ("1200000-high", ""),
        ("1200000", ""),
        ("", ""),
    ],
)
def test_what_a_name_of_a_frequency_binds(text: str, binds: str) -> None:
    job = request({"cpu-freq": text})
    assert set(job.binds) == {binds} - {""}


@pytest.mark.parametrize(
    ("environment", "option", "variables"),
    [
        ({"SLURM_CPU_FREQ_REQ": "1600000"}, "", {"SLURM_CPU_FREQ_REQ": 1_600_000}),
        ({"SLURM_CPU_FREQ_REQ": "1200000-1600000"}, "", {"SLURM_CPU_FREQ_REQ": 1_600_000}),
        ({"SLURM_CPU_FREQ_REQ": "high"}, "", {}),
        ({"SLURM_CPU_FREQ_REQ": "1600000", "SBATCH_CPU_FREQ_REQ": "high"}, "", {}),
        (
            {"SLURM_CPU_FREQ_REQ": "1600000", "SBATCH_CPU_FREQ_REQ": "1600000"},
            "1600000",
            {"SLURM_CPU_FREQ_REQ": 1_600_000, "SBATCH_CPU_FREQ_REQ": 1_600_000},
        ),
        ({"SLURM_CPU_FREQ_REQ": "1600000"}, "1600000", {"SLURM_CPU_FREQ_REQ": 1_600_000}),
        ({"SLURM_CPU_FREQ_REQ": "1600000"}, "1200000", {}),
        ({"SLURM_CPU_FREQ_REQ": "1600000"}, "1200000-1600000", {"SLURM_CPU_FREQ_REQ": 1_600_000}),
        ({"SLURM_CPU_FREQ_REQ": "1600000"}, "1600000-2000000", {}),
        ({}, "1600000", {}),
        ({}, "", {}),
    ],
)
def test_variables_that_cap_a_job(
    environment: dict[str, str], option: str, variables: dict[str, int]
) -> None:
    assert request({"cpu-freq": option}, env=environment).freq_variables == variables


# -- shape ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ({}, None),
        ({"nodes": "4"}, 4),
        ({"nodes": "4-4"}, 4),
        ({"nodes": "0"}, None),
        ({"nodes": "2k"}, 2),
        ({"nodelist": "n[1-3]"}, 3),
        ({"nodelist": "n1"}, 1),
        ({"nodes": "5", "nodelist": "n[1-3]"}, 5),
        ({"nodelist": "n[1-"}, None),
        ({"nodelist": ""}, None),
        ({"nodelist": ","}, None),
    ],
)
def test_nodes(options: dict[str, str], nodes: int | None) -> None:
    assert request(options).nodes == nodes


def test_tasks_and_cores() -> None:
    job = request({"ntasks": "8", "ntasks-per-node": "4", "cpus-per-task": "2"})
    assert (job.ntasks, job.ntasks_per_node, job.cpus_per_task) == (8, 4, 2)
    assert request().cpus_per_task is None and request({"ntasks": "0"}).ntasks is None
    assert job.explicit == {"ranks", "threads"}
    assert request({"nodes": "1", "cpu-freq": "1", "constraint": "x"}).explicit == {
        "nodes",
        "frequency",
        "node_type",
    }


@pytest.mark.parametrize(
    ("program", "options", "cpus"),
    [
        ("srun", {"exclusive": "", "ntasks": "4"}, 1),
        ("srun", {"exclusive": "", "ntasks-per-node": "4"}, 1),
        ("srun", {"exclusive": "", "ntasks": "4", "cpus-per-task": "2"}, 2),
        ("srun", {"exclusive": ""}, None),
        ("srun", {"ntasks": "4"}, None),
        ("sbatch", {"exclusive": "", "ntasks": "4"}, None),
    ],
)
def test_exclusive_tasks_of_srun_have_one_core_each(
    program: str, options: dict[str, str], cpus: int | None
) -> None:
    assert request(options, type=program).cpus_per_task == cpus


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({}, False),
        ({"exclusive": ""}, True),
        ({"exclusive": "exclusive"}, True),
        ({"exclusive": "user"}, False),
        ({"exclusive": "MCS"}, False),
        ({"exclusive": "no"}, False),
    ],
)
def test_who_has_whole_nodes(options: dict[str, str], whole: bool) -> None:
    assert request(options).exclusive is whole


@pytest.mark.parametrize(
    ("program", "options", "kind"),
    [
        ("sbatch", {}, "batch"),
        ("sbatch", {"jobid": "1"}, "batch"),
        ("srun", {}, "run"),
        ("srun", {"jobid": "1"}, "step"),
        ("salloc", {}, "allocate"),
        ("other", {}, "batch"),
        ("", {}, "batch"),
    ],
)
def test_kinds(program: str, options: dict[str, str], kind: str) -> None:
    job = request(options, type=program)
    assert job.kind == kind and job.launcher == ("srun" if program == "srun" else "")


@pytest.mark.parametrize(
    ("text", "all_of_it"),
    [("", True), ("ALL", True), ("all,X=1", True), ("NONE", False), ("X=1,ALL", False)],
)
def test_what_exports_the_environment(text: str, all_of_it: bool) -> None:
    assert request({"export": text}).environment_exported is all_of_it


def test_every_word_of_a_request_arrives() -> None:
    job = request(
        {
            "account": "lab",
            "partition": "p",
            "qos": "q",
            "job_name": "run",
            "constraint": " c ",
            "nodelist": "n1",
            "array": "1-4",
            "begin": "now+1hour",
        },
        hook="cli_filter",
        type="sbatch",
        script="srun ./a\n",
        script_path="/home/ada/job.sh",
        argv=["/home/ada/job.sh", "x"],
        cwd="/home/ada",
        env={"A": "1"},
        truncated=True,
    )
    shown = (job.scheduler, job.hook, job.user, job.uid, job.account, job.partition, job.qos)
    assert shown == ("slurm", "cli_filter", "ada", 1000, "lab", "p", "q")
    assert (job.job_name, job.constraint, job.node_list) == ("run", "c", "n1")
    assert job.array and job.held and job.script_truncated and not job.het
    assert (job.script, job.script_path, job.cwd) == ("srun ./a\n", "/home/ada/job.sh", "/home/ada")
    assert (job.command, job.environment) == (("/home/ada/job.sh", "x"), {"A": "1"})
    assert job.choices == {"goal": "edp"} and job.options["job-name"] == "run"
    plain = request()
    assert not (plain.array or plain.held or plain.script_truncated or plain.het)
    assert (plain.hook, plain.launcher, plain.kind) == ("", "", "batch")
    assert (plain.script, plain.command, plain.script_path, plain.cwd) == (None, (), "", "")
    wrapped = request({"wrap": "srun ./b"}, script="x", argv=["y"])
    assert (wrapped.script, wrapped.command) == ("srun ./b", ())
    assert request({}, script=5, options_=None).script is None


def test_a_program_s_path_is_taken_from_the_job_s_folder() -> None:
    program = {"path": "a", "size": 4, "mtime": 5, "build": "ab" * 20}
    job = request({}, program=program, cwd="/home")
    assert job.program.get("path") == "/home/a", job.program
    assert request({}).program == {}


def test_a_null_option_is_set_and_binds() -> None:
    payload = {"options": {"exclude": None, "nodelist": None}}
    job = parse_request(payload, user="a", uid=1, choices={})
    assert job.binds == {"node_type": "--exclude"} and job.options == {}
    assert parse_request({"options": 5, "env": 1, "argv": 2}, user="a", uid=1, choices={}) == (
        replace(request(), user="a", uid=1, choices={})
    )


def test_what_is_in_no_table_leaves_the_job_alone() -> None:
    job = request({"new-one": "1"}, env={"SLURM_NEW": "1"})
    assert job.not_understood == ("--new-one", "SLURM_NEW")


def test_values_of_options_count() -> None:
    assert request({"reservation": "unset"}).binds == {}
    assert request({"cpu-bind": "map_cpu:0"}).binds.keys() == {"shape", "cores", "threads"}
    assert {"all", "shape"}.isdisjoint(request({"cpu-bind": "cores"}).binds)
    assert request({"cpu-freq": "high", "power": "x"}).binds == {"frequency": "--cpu-freq"}


def test_heterogeneous_jobs() -> None:
    assert request({}, het=True).het
    for line in ("#SBATCH hetjob", "#SBATCH  packjob", "#sbatch HetJob"):
        assert request({}, script=f"#!/bin/sh\n{line}\nsrun ./a\n").het
    assert not request({}, script="#!/bin/sh\n# SBATCH hetjob\n#SBATCH hetjobs\n").het


def test_what_a_script_sets_for_srun_counts() -> None:
    job = request({}, script="export SLURM_NTASKS=4\nsrun ./a\n")
    assert job.binds == {"shape": "SLURM_NTASKS"}
    used = request({}, script="echo $SLURM_NTASKS\nsrun ./a\n")
    assert used.binds == {}
    both = request({"exclude": "n1"}, script="export SRUN_CPUS_PER_TASK=4\nsrun ./a\n")
    assert both.binds["node_type"] == "--exclude" and both.binds["threads"] == "SRUN_CPUS_PER_TASK"


def test_a_hook_that_names_no_program_is_sbatch_s() -> None:
    variable = {"SBATCH_REQ_SWITCH": "1"}
    assert request({}, env=variable).binds == {"node_type": "SBATCH_REQ_SWITCH"}
    assert request({}, env=variable, type="srun").binds == {}


def test_the_controller_reads_in_the_script_what_slurm_does_not_tell_it() -> None:
    script = "#!/bin/sh\n#SBATCH --deadline=now+1hour --nodes=5\nsrun ./a\n"
    job = request({}, script=script, hook="job_submit")
    assert job.options == {"deadline": "now+1hour"}
    assert request({}, script=script, hook="cli_filter").options == {}
    assert request({}, script=None, hook="job_submit").options == {}


# -- what Slurm adds -----------------------------------------------------------------------------


def watched(limit_s: float | None) -> Availability:
    place = PartitionState(default=True, time_limit_s=limit_s, default_memory_mb=(0.0, 2000.0))
    return Availability("slurm", partitions={"batch": place}, limits=JobLimits(enforced=False))


@pytest.mark.parametrize(
    ("options", "limit_s", "holds_s"),
    [
        ({}, 600.5, 600),
        ({}, math.inf, 0),
        ({}, None, None),
        ({"time": "5"}, 600.0, 300),
        ({"time": "0"}, 600.0, 0),
        ({"time": "5", "deadline": "now+1hour"}, 600.0, None),
        ({"deadline": "now+1hour"}, 600.0, None),
        ({}, 0.0, None),
    ],
)
def test_the_limit_that_will_hold(
    options: dict[str, str], limit_s: float | None, holds_s: int | None
) -> None:
    job = request({"partition": "batch", **options})
    assert fold(job, watched(limit_s)).time_limit_s == holds_s
    assert fold(job, watched(limit_s)).default_memory_mb == (0.0, 2000.0)
    unwatched = fold(job, None)
    assert unwatched.time_limit_s == (None if "deadline" in options else job.time_limit_s)
    assert unwatched.default_memory_mb is None


def test_the_controller_does_not_know_the_limit_that_will_hold() -> None:
    job = request({"partition": "batch", "time": "5"}, hook="job_submit")
    assert fold(job, watched(600.0)).time_limit_s is None
    assert fold(job, None).time_limit_s is None


def test_a_partition_whose_jobs_share_cores_leaves_all_alone() -> None:
    job = request({"partition": "batch", "nodelist": "n1"})
    shared = PartitionState(default=True, shared_cores="OverSubscribe=FORCE:2")
    sharing = fold(job, Availability("slurm", partitions={"batch": shared}))
    assert sharing.binds == {**job.binds, "all": "OverSubscribe=FORCE:2 of partition batch"}
    assert fold(job, watched(600.0)).binds == job.binds


# -- written back --------------------------------------------------------------------------------


def written(
    chosen: Configuration,
    options: dict[str, str] | None = None,
    *,
    script: str = "",
    node_type: NodeType = TYPE,
    pin: bool = False,
    **more: Any,
) -> tuple[dict[str, str], dict[str, str]]:
    job = request(options, script=script)
    return render(BASE, chosen, node_type, job, pin_node_type=pin, **more)


def test_only_what_differs_is_written() -> None:
    assert written(BASE) == ({}, {})
    assert written(BASE, pin=True) == ({"constraint": "broadwell"}, {})
    fewer = replace(BASE, threads_per_node=12)
    assert written(fewer) == ({}, {"OMP_NUM_THREADS": "6"})
    assert written(fewer, variables=("A", "B")) == ({}, {"A": "6", "B": "6"})


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"cpus-per-task": "3", "ntasks-per-node": "2"}, 3),
        ({}, 32),
        ({"ntasks": "3"}, 10),
        ({"ntasks": "3", "nodes": "2"}, 16),
        ({"ntasks": "8", "ntasks-per-node": "5"}, 6),
        ({"ntasks": "40"}, 1),
        ({"ntasks-per-node": "40"}, 1),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_task_gets_no_more_threads_than_its_request_leaves_it(
    options: dict[str, str], most: int, whole: bool
) -> None:
    """The hooks refuse more (hooks/slurm/advisor/limits.lua)."""
    smt = replace(TYPE, threads_per_core=2)
    base, chosen = replace(BASE, threads_per_node=99), Configuration("bdw", 1, 1, most, STEPS[-1])
    rewrite, environment = render(
        base, chosen, smt, request(options), pin_node_type=False, whole=whole
    )
    assert rewrite == ({} if whole else {"cpus-per-task": str(most)})
    assert environment == {"OMP_NUM_THREADS": str(most)}
    with pytest.raises(CannotWriteError, match=f"has {most} CPUs? for each of its tasks"):
        more = replace(chosen, threads_per_node=most + 1)
        render(base, more, smt, request(options), pin_node_type=False, whole=whole)


def test_a_job_that_shares_its_nodes_asks_for_fewer_cores() -> None:
    fewer = replace(BASE, threads_per_node=12)
    assert written(fewer, whole=False) == ({"cpus-per-task": "6"}, {"OMP_NUM_THREADS": "6"})
    for job, environment in (
        (request(), {"OMP_NUM_THREADS": "6"}),
        (replace(request(), script_counts=True), {}),
    ):
        smaller = render(BASE, fewer, TYPE, job, pin_node_type=False, whole=False)
        assert smaller == ({"cpus-per-task": "6"}, environment)
    counts = "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./a\n"
    assert written(fewer, whole=False, script=counts) == ({"cpus-per-task": "6"}, {})
    assert written(fewer, script=counts)[1] == {"OMP_NUM_THREADS": "6"}


@pytest.mark.parametrize(
    ("asked", "khz", "cap"),
    [
        ("", STEPS[0], "1200000-1200000"),
        ("", STEPS[1], "1200000-1600000"),
        ("", STEPS[2], None),
        ("1200000-1600000", STEPS[1], None),
        ("1200000-1600000", STEPS[0], "1200000-1200000"),
        ("1200000-1600000", STEPS[2], "1200000-2000000"),
        ("1600000-2000000", STEPS[1], "1600000-1600000"),
        ("1400000-2000000", STEPS[1], "1400000-1600000"),
        ("1000000-2000000", STEPS[1], "1200000-1600000"),
        ("1600000-2000000", STEPS[0], "1200000-1200000"),
    ],
)
def test_the_cap_is_the_chosen_one_and_its_least_no_less_than_the_user_s(
    asked: str, khz: int, cap: str | None
) -> None:
    rewrite, environment = written(replace(BASE, freq_khz=khz), {"cpu-freq": asked})
    assert rewrite == ({} if cap is None else {"cpu-freq": cap}) and environment == {}
    bare = replace(TYPE, freq_khz=())
    assert written(replace(BASE, freq_khz=khz), {"cpu-freq": asked}, node_type=bare) == ({}, {})


@given(st.sampled_from(STEPS), st.integers(900_000, 2_100_000))
def test_no_cap_is_written_the_wrong_way_round(khz: int, low: int) -> None:
    cap = written(replace(BASE, freq_khz=khz), {"cpu-freq": f"{low}-2000000"})[0].get("cpu-freq")
    if cap is not None:
        least, most = map(int, cap.split("-"))
        assert STEPS[0] <= least <= most == khz and (least >= low or least == most)


@pytest.mark.parametrize(
    ("use", "options", "environment", "capped"),
    [
        ("srun", {}, {}, True),
        ("mpirun", {}, {}, False),
        ("", {}, {}, False),
        ("srun", {"cpu-bind": "none"}, {}, False),
        ("srun", {}, {"SLURM_CPU_BIND": "none"}, False),
        ("srun", {"cpu-bind": "cores"}, {"SLURM_CPU_BIND": "cores"}, True),
    ],
)
def test_what_a_cap_reaches(
    use: str, options: dict[str, str], environment: dict[str, str], capped: bool
) -> None:
    job = request(options, env=environment)
    obstacle = cap_obstacle(job, replace(NO_USE, launcher=use), {})
    assert (obstacle == "") is capped
    if "none" in (*options.values(), *environment.values()):
        assert obstacle == "without binding to cores, srun sets no cap"
    assert cap_obstacle(replace(job, scheduler="local"), NO_USE, {}) == ""


def test_what_starts_a_program_without_a_cap_is_named() -> None:
    assert cap_obstacle(request(type="srun"), NO_USE, {}) == ""
    assert "with no srun" in cap_obstacle(request(), NO_USE, {})
    assert "with mpirun, and" in cap_obstacle(request(), replace(NO_USE, launcher="mpirun"), {})

    assert uncapped_launcher("srun") == ""


@pytest.mark.parametrize("value", ["none", "cores"])
def test_a_script_s_own_binding_counts_by_its_arguments(value: str) -> None:
    script = "export SLURM_CPU_BIND=$1\nsrun ./a\n"
    job = request(script=script, argv=["job.sh", value, "x"])
    obstacle = cap_obstacle(job, replace(NO_USE, launcher="srun"), {})
    assert obstacle == ("without binding to cores, srun sets no cap" if value == "none" else "")
    # what srun's own line says goes before it
    assert cap_obstacle(job, replace(NO_USE, launcher="srun", binding="cores"), {}) == ""


@pytest.mark.parametrize(
    ("settings", "unbound", "bound"),
    [
        ({}, "", ""),
        ({"TaskPlugin": "task/affinity"}, "", ""),
        ({"TaskPlugin": "cgroup"}, "", ""),
        ({"TaskPlugin": "task/affinity,task/cgroup"}, "", ""),
        ({"TaskPlugin": ""}, "TaskPlugin=none never", "TaskPlugin=none never"),
        ({"TaskPlugin": "task/none"}, "=task/none never", "=task/none never"),
        ({"TaskPlugin": "affinity", "TaskPluginParam": "Verbose,None"}, "binds no step", ""),
        ({"TaskPlugin": "affinity", "TaskPluginParam": "cores"}, "", ""),
    ],
)
def test_where_slurm_caps_no_step(settings: dict[str, str], unbound: str, bound: str) -> None:
    step = replace(NO_USE, launcher="srun")
    for options, why in (({}, unbound), ({"cpu-bind": "cores"}, bound)):
        obstacle = cap_obstacle(request(options), step, settings)
        assert why in obstacle and bool(why) == bool(obstacle)
        assert obstacle == uncapped_by(settings, bound=bool(options))
    assert unbound in uncapped_by(settings)
    assert bool(unbound) == bool(uncapped_by(settings))


# -- sweeps --------------------------------------------------------------------------------------


def test_a_job_that_asks_for_a_configuration() -> None:
    full = asking_for(BASE, TYPE, memory_mb=1000.9, freq_khz=STEPS[1])
    assert full == {
        "nodes": "1",
        "ntasks-per-node": "2",
        "cpus-per-task": "8",
        "partition": "batch",
        "constraint": "broadwell",
        "mem": "1000M",
        "cpu-freq": "1200000-1600000",
        "exclusive": "exclusive",
    }
    assert asking_for(BASE, replace(TYPE, partitions=("a", "batch")))["partition"] == "batch"
    none = replace(TYPE, default_partition="", partitions=("a", "b"), freq_khz=())
    few = asking_for(BASE, none, threads=False, constraint=False)
    assert few == {"nodes": "1", "ntasks-per-node": "2", "partition": "a", "exclusive": "exclusive"}
    assert asking_for(BASE, none, freq_khz=5)["cpu-freq"] == "5-5"
    assert "partition" not in asking_for(BASE, replace(none, partitions=()))


@pytest.mark.parametrize(
    ("limits", "nodes", "options"),
    [
        ("walltime=1:00:00", 2, {"time": "1:00:00"}),
        ("mem=4gb", 1, {"mem": "4194304K"}),
        ("mem=4gb", 2, {"mem": "2097152K"}),
        ("mem=1kb", 2, {"mem": "1K"}),
        ("mem=3k", 2, {"mem": "2K"}),
        ("mem=1", 1, {"mem": "1K"}),
        ("mem=0", 1, {"mem": "1K"}),
        ("mem=1025", 1, {"mem": "2K"}),
        ("mem=1024", 1, {"mem": "1K"}),
        ("pmem=4GB", 2, {"mem-per-cpu": "4194304K"}),
        ("vmem=1m", 1, {"mem": "1024K"}),
        ("file=1tb", 4, {"tmp": "1073741824K"}),
        ("pvmem=1m, walltime=60", 3, {"mem-per-cpu": "1024K", "time": "60"}),
    ],
)
def test_limits_of_pbs(limits: str, nodes: int, options: dict[str, str]) -> None:
    assert limited(limits, nodes, {}) == options
    mine = dict.fromkeys(options, "mine")
    assert limited(limits, nodes, {**mine, "x": "y"}) == {**mine, "x": "y"}


@pytest.mark.parametrize(("limits", "why"), [("cput=1", "not known here"), ("mem=x", "write a")])
def test_limits_that_mean_nothing_here(limits: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        limited(limits, 1, {})


@pytest.mark.parametrize(
    ("binding", "variable"),
    [
        ("cpu", "threads"),
        ("depth", "cores"),
        ("numa_node", "ldoms"),
        ("0,4", "map_cpu:0,4"),
        ("0-1:4-5", "mask_cpu:0x3,0x30"),
        ("3", "map_cpu:3"),
        ("0:4", "mask_cpu:0x1,0x10"),
    ],
)
def test_binding_of_ranks(binding: str, variable: str) -> None:
    assert bound_ranks(binding) == {"SLURM_CPU_BIND": variable}
    with pytest.raises(ValueError, match="without binding"):
        bound_ranks("none")


def test_small_words() -> None:
    assert array_task("") == {}
    assert array_task("3") == {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "1"}
    assert launched("./a", 4) == "srun ./a"
    line = "#SBATCH --array=1-4"
    assert without(line, {"array"}) == "" and without(line, {"time"}) == line
    assert without("#SBATCH -t 5 --array=1", {"array"}) == "#SBATCH -t 5 --array=1"
    assert table.parse_limit("UNLIMITED") is None and table.parse_limit("0") == 0
