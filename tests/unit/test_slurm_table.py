"""What Slurm's options and variables mean to the advisor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.core import protocol
from advisor.paths import share
from advisor.schedulers.slurm import table as slurm_table
from advisor.schedulers.slurm.hook_files import SlurmHookSettings, module_files
from advisor.schedulers.slurm.table import Judged, judge


@pytest.mark.parametrize(
    ("options", "binds"),
    [
        ({"exclude": "n1"}, {"node_type": "--exclude"}),
        ({"reservation": "r"}, {"node_type": "--reservation"}),
        ({"nodefile": "f"}, {"node_type": "--nodefile"}),
        ({"nodelist": "n1"}, {"node_type": "--nodelist"}),
        ({"prefer": "milan"}, {"node_type": "--prefer"}),
        ({"cpu-freq": "1200000-1900000:Performance"}, {"frequency": "--cpu-freq"}),
        ({"cpu-freq": "OnDemand"}, {"frequency": "--cpu-freq"}),
        ({"cpu_freq": "1200000-1900000"}, {}),
        ({"cpu-freq": "high"}, {}),
        ({"extra-node-info": "2:14:1"}, {"all": "--extra-node-info"}),
        ({"threads_per_core": "1"}, {"all": "--threads-per-core"}),
        ({"oversubscribe": "oversubscribe"}, {"all": "--oversubscribe"}),
        ({"exclusive": "user", "time": "10", "job-name": "x", "mem": "0"}, {"memory": "--mem"}),
        ({"cpu-bind": "cores"}, {"threads": "--cpu-bind", "cores": "--cpu-bind"}),
        (
            {"cpu-bind": "verbose,map_cpu:0,1"},
            {"threads": "--cpu-bind", "cores": "--cpu-bind", "all": "--cpu-bind"},
        ),
        ({"export": "ALL,OMP_NUM_THREADS=4"}, {"threads": "--export"}),
        ({"export": "NONE"}, {}),
        ({"reservation": "unset"}, {}),
        ({"nodes": "4"}, {}),
        ({"nodes": "4-4"}, {}),
        ({"nodes": "unset"}, {}),
        ({"nodes": "1-4"}, {"all": "--nodes"}),
        ({"nodes": "1-"}, {"all": "--nodes"}),
        ({"nodes": "1,3,5"}, {"all": "--nodes"}),
        ({"nodes": "1-9:2"}, {"all": "--nodes"}),
        ({"nodes": "1k"}, {"all": "--nodes"}),
    ],
)
def test_what_an_option_binds(options: dict[str, str], binds: dict[str, str]) -> None:
    assert judge(options, {}, "sbatch") == Judged(binds)


@pytest.mark.parametrize(
    ("variables_", "program", "options", "binds"),
    [
        ({"SLURM_CPU_FREQ_REQ": "1-2"}, "sbatch", {}, {"frequency": "SLURM_CPU_FREQ_REQ"}),
        ({"SLURM_CPU_FREQ_REQ": "1-2"}, "sbatch", {"cpu-freq": "1-3"}, {}),
        ({"SLURM_CPU_FREQ_REQ": "1-2"}, "srun", {"cpu-freq": "1-2"}, {}),
        ({"SRUN_CPUS_PER_TASK": "4"}, "sbatch", {"cpus-per-task": "28"},
         {"threads": "SRUN_CPUS_PER_TASK", "cores": "SRUN_CPUS_PER_TASK"}),
        ({"SLURM_NTASKS": "28"}, "sbatch", {}, {"all": "SLURM_NTASKS"}),
        ({"SLURM_NTASKS": "28"}, "sbatch", {"ntasks": "4"}, {}),
        ({"SLURM_NTASKS": ""}, "sbatch", {}, {}),
        ({"SLURM_OVERCOMMIT": ""}, "sbatch", {}, {"all": "SLURM_OVERCOMMIT"}),
        ({"SLURM_OVERCOMMIT": "0"}, "salloc", {}, {}),
        ({"SBATCH_REQ_SWITCH": "1"}, "sbatch", {}, {"node_type": "SBATCH_REQ_SWITCH"}),
        ({"SBATCH_REQ_SWITCH": "1"}, "srun", {}, {}),
        ({"SLURM_EXPORT_ENV": "NONE"}, "sbatch", {}, {"threads": "SLURM_EXPORT_ENV"}),
        ({"SLURM_EXPORT_ENV": "ALL", "SLURM_JOB_ID": "1", "SLURM_TASKS_PER_NODE": "28",
          "SLURM_RLIMIT_CPU": "0", "OMP_PLACES": "cores", "PATH": "/bin"}, "sbatch", {}, {}),
        ({"SLURM_NTASKS_HET_GROUP_1": "4"}, "sbatch", {}, {}),
    ],
)  # fmt: skip
def test_what_a_variable_binds(
    variables_: dict[str, str], program: str, options: dict[str, str], binds: dict[str, str]
) -> None:
    assert judge(options, variables_, program) == Judged(binds)


def test_what_is_in_no_table_is_named() -> None:
    judged = judge(
        {"new-one": "1", "spank:renice": "5"}, {"SLURM_NEW": "x", "SBATCH_NEW": "y"}, "sbatch"
    )
    assert judged.not_understood == ("--new-one", "--spank:renice", "SLURM_NEW", "SBATCH_NEW")


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"hold": "set"}, True), ({"dependency": "afterok:1"}, True), ({"begin": "x"}, True),
        ({"priority": "0"}, True), ({"priority": "10"}, False), ({"hold": "unset"}, False),
        ({"time": "1"}, False),
    ],
)  # fmt: skip
def test_who_starts_later(options: dict[str, str], held: bool) -> None:
    assert judge(options, {}, "sbatch").held is held


def test_classes_are_those_the_page_names() -> None:
    word = re.compile(
        "harmless|all|held|axis:(frequency|threads|node_type|nodes|ranks)"
        "|binds:(node_type|nodes|cores|memory|gpus|frequency|threads)"
    )
    for classes in (*slurm_table.OPTIONS.values(), *slurm_table.VARIABLES.values()):
        assert all(word.fullmatch(w) for w in classes.split()), classes
    assert set(slurm_table.SHORT.values()) <= slurm_table.OPTIONS.keys()
    assert slurm_table.VALUES.keys() | slurm_table.LAUNCHER.keys() <= slurm_table.OPTIONS.keys()


def test_every_documented_variable_is_sent_by_both_hooks() -> None:
    page = (share("config").parent / "docs" / "user.md").read_text()
    named = set(re.findall(r"\bADVISOR(?:_[A-Z]+)*\b", page))
    named -= {"ADVISOR_DB"}  # where commands look, nothing of a job
    assert len(named) > 5
    files = module_files(SlurmHookSettings(Path("/nowhere")), None, {})
    for name, key in (("config.lua", "names"), ("table.lua", "asked_by_name")):
        sent = re.search(rf'\b{key} = "([^"]*)"', files[name].decode())
        assert sent is not None
        assert named <= set(sent[1].split()), name


@pytest.mark.parametrize(
    ("name", "count"),
    [("OMP_NUM_THREADS", True), ("MKL_NUM_THREADS", True), ("GOMAXPROCS", True),
     ("_NUM_THREADS", False), ("x_NUM_THREADS", False), ("PATH", False),
     ("OMP_NUM_THREADS\n", False), ("OMP_PLACES", False)],
)  # fmt: skip
def test_what_may_be_set(name: str, count: bool) -> None:
    assert protocol.is_thread_count(name) is count
