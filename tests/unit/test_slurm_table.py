"""What Slurm's options and variables mean to the advisor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.core import launchers, protocol
from advisor.paths import share
from advisor.schedulers.slurm import table as slurm_table
from advisor.schedulers.slurm.hook_files import SlurmHookSettings, module_files
from advisor.schedulers.slurm.table import Judged, judge
from advisor.schedulers.slurm.translator import read_arguments, read_directives, written

PLACING = ("threads", "cores", "node_type", "tasks")
"""What an option binds that says which CPUs a task gets."""


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
        ({"extra-node-info": "2:14:1"}, {"shape": "--extra-node-info"}),
        ({"threads_per_core": "1"}, {"shape": "--threads-per-core"}),
        ({"oversubscribe": "oversubscribe"}, {"all": "--oversubscribe"}),
        ({"hint": "nomultithread"}, {"shape": "--hint"}),
        ({"hint": "memory_bound"}, {"shape": "--hint"}),
        ({"gpus-per-task": "1"}, dict.fromkeys((*PLACING, "gpus"), "--gpus-per-task")),
        ({"ntasks-per-socket": "2"}, dict.fromkeys(PLACING, "--ntasks-per-socket")),
        ({"cpus-per-gpu": "2"}, {"shape": "--cpus-per-gpu"}),
        ({"exclusive": "user", "time": "10", "job-name": "x", "mem": "0"}, {"memory": "--mem"}),
        ({"cpu-bind": "cores"}, {"threads": "--cpu-bind", "cores": "--cpu-bind"}),
        (
            {"cpu-bind": "verbose,map_cpu:0,1"},
            {"threads": "--cpu-bind", "cores": "--cpu-bind", "shape": "--cpu-bind"},
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
        (
            {"SRUN_CPUS_PER_TASK": "4"},
            "sbatch",
            {"cpus-per-task": "28"},
            {"threads": "SRUN_CPUS_PER_TASK", "cores": "SRUN_CPUS_PER_TASK"},
        ),
        ({"SLURM_NTASKS": "28"}, "sbatch", {}, {"shape": "SLURM_NTASKS"}),
        ({"SLURM_NTASKS": "28"}, "sbatch", {"ntasks": "4"}, {}),
        ({"SLURM_NTASKS": ""}, "sbatch", {}, {}),
        ({"SLURM_OVERCOMMIT": ""}, "sbatch", {}, {"shape": "SLURM_OVERCOMMIT"}),
        ({"SLURM_OVERCOMMIT": "0"}, "salloc", {}, {}),
        ({"SBATCH_REQ_SWITCH": "1"}, "sbatch", {}, {"node_type": "SBATCH_REQ_SWITCH"}),
        ({"SBATCH_REQ_SWITCH": "1"}, "srun", {}, {}),
        ({"SLURM_EXPORT_ENV": "NONE"}, "sbatch", {}, {"threads": "SLURM_EXPORT_ENV"}),
        (
            {
                "SLURM_EXPORT_ENV": "ALL",
                "SLURM_JOB_ID": "1",
                "SLURM_TASKS_PER_NODE": "28",
                "SLURM_RLIMIT_CPU": "0",
                "OMP_PLACES": "cores",
                "PATH": "/bin",
            },
            "sbatch",
            {},
            {},
        ),
        ({"SLURM_NTASKS_HET_GROUP_1": "4"}, "sbatch", {}, {}),
    ],
)
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
        ({"hold": "set"}, True),
        ({"dependency": "afterok:1"}, True),
        ({"begin": "x"}, True),
        ({"priority": "0"}, True),
        ({"priority": "10"}, False),
        ({"hold": "unset"}, False),
        ({"time": "1"}, False),
    ],
)
def test_who_starts_later(options: dict[str, str], held: bool) -> None:
    assert judge(options, {}, "sbatch").held is held


def test_classes_are_those_the_page_names() -> None:
    word = re.compile(
        "harmless|all|held|axis:(frequency|threads|node_type|nodes|ranks)"
        "|binds:(node_type|nodes|cores|memory|gpus|frequency|threads|tasks|shape|gpu_freq_khz)"
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
    [
        ("OMP_NUM_THREADS", True),
        ("MKL_NUM_THREADS", True),
        ("GOMAXPROCS", True),
        ("_NUM_THREADS", False),
        ("x_NUM_THREADS", False),
        ("PATH", False),
        ("OMP_NUM_THREADS\n", False),
        ("OMP_PLACES", False),
    ],
)
def test_what_may_be_set(name: str, count: bool) -> None:
    assert protocol.is_thread_count(name) is count


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("#SBATCH -N 2 # -n 9\n#SBATCH -n 4\n", {"nodes": "2", "ntasks": "4"}),
        ("#SBATCH -N2#x\n#SBATCH -n4\n", {"nodes": "2", "ntasks": "4"}),
        ('#SBATCH\t--job-name="a # b"\t-HN2\r\n', {"job-name": "a # b", "hold": "", "nodes": "2"}),
        ("#SBATCH --out x --tasks-per-n=3\n", {"output": "x", "ntasks-per-node": "3"}),
        (
            "#SBATCH --stepmgr -N 2 --exclusive -n 3\n",
            {"stepmgr": "", "nodes": "2", "exclusive": "", "ntasks": "3"},
        ),
        (
            "#SBATCH --nice --propagate --get-user-env --exclusive=user -k -n 1\n",
            {
                "nice": "",
                "propagate": "",
                "get-user-env": "",
                "exclusive": "user",
                "no-kill": "",
                "ntasks": "1",
            },
        ),
        ("#SBATCH --kill-on-invalid-dep yes -n 2\n", {"kill-on-invalid-dep": "yes", "ntasks": "2"}),
        ("#SBATCH --comment a\\ b\\#c\n", {"comment": "a b#c"}),
        ('#SBATCH --comment "" -N 9\n#SBATCH -n 2\n', {"comment": "-n"}),
        ("#SBATCH --wrap=x -v -Q\n", {}),
        ("#SBATCH --ex -N 2\n", {"ex": "", "nodes": "2"}),
        ("#SBATCH -N 1\n#SBATCH HetJob\n#SBATCH -N 2\n", {"nodes": "1"}),
        (
            " #SBATCH -N 1\n##SBATCH -n 2\n#SBATCH -c 3\ntrue\n#SBATCH -t 4\n",
            {"cpus-per-task": "3"},
        ),
        (
            "#SBATCH -N 1\ntrue\n#PBS -N x -l nodes=2:ppn=4\n#PBS -l walltime=60 # no\n",
            {"nodes": "2", "job-name": "x", "ntasks": "8", "time": "60"},
        ),
        ("#SBATCH --ignore-pbs\n#PBS -N x\n", {"ignore-pbs": ""}),
    ],
)
def test_lines_of_options_as_sbatch_reads_them(script: str, options: dict[str, str]) -> None:
    assert read_directives(f"#!/bin/sh\n{script}") == options


def test_options_are_written_so_that_sbatch_reads_them_again() -> None:
    options = {"overcommit": "set", "nice": "", "exclusive": "user", "nodes": "2", "hold": ""}
    words = [word for part in written(options) for word in part]
    assert words == ["--overcommit", "--nice", "--exclusive=user", "--nodes=2", "--hold"]
    assert read_arguments(words) == {**options, "overcommit": ""}


def test_a_launcher_line_is_read_by_the_same_options() -> None:
    takes = {o.name: o.value for o in slurm_table.RECORDS if "srun" in o.programs}
    flags = {name for name, value in takes.items() if value != "required"}
    assert flags <= launchers.SRUN_FLAGS
    assert not {n for n, value in takes.items() if value == "required"} & launchers.SRUN_FLAGS
    colons = {"no": "", "required": ":", "optional": "::"}
    letters = {
        o.letter: colons[o.value] for o in slurm_table.RECORDS if o.letter and "srun" in o.programs
    }
    assert dict(re.findall("([A-Za-z])(:*)", launchers.SRUN_LETTERS)) == letters
    for name, classes in slurm_table.LAUNCHER.items():
        kept = launchers.option_keeps("srun", f"--{name}=1")
        assert kept != "" or classes == "harmless", name


def test_every_option_has_one_record_for_each_program() -> None:
    words = " ".join(slurm_table._OPTIONS.values()).split()
    assert all(slurm_table._RECORD.fullmatch(word) for word in words)
    assert len(words) == len(slurm_table.RECORDS)
    for program in ("sbatch", "srun", "salloc"):
        names = [o.name for o in slurm_table.RECORDS if program in o.programs]
        letters = [o.letter for o in slurm_table.RECORDS if o.letter and program in o.programs]
        assert len(names) == len(set(names)) and len(letters) == len(set(letters))


@pytest.mark.parametrize(
    ("assigned", "judged"),
    [
        ({"PATH": ["x"], "SBATCH_EXCLUSIVE": [""], "SALLOC_HINT": ["x"]}, Judged()),
        ({"SLURM_NTASKS": ["4"]}, Judged({"shape": "SLURM_NTASKS"})),
        # no Slurm reads it: the cap may change
        (
            {"SLURM_NEW": ["4"]},
            Judged(dict.fromkeys(("threads", "cores", "node_type"), "SLURM_NEW")),
        ),
        ({"SLURM_SPANK_X": ["4"], "SLURM_PMIX": ["1"], "SLURM_ADVISOR_X": ["1"]}, Judged()),
        # where its steps find their nodes and tasks
        ({"SLURM_NODELIST": ["n1"]}, Judged({"shape": "SLURM_NODELIST"})),
        ({"SLURM_UMASK": ["022"]}, Judged()),
        ({"SLURM_EXPORT_ENV": ["ALL", ""]}, Judged()),
        ({"SLURM_EXPORT_ENV": ["NONE"]}, Judged({"threads": "SLURM_EXPORT_ENV"})),
        ({"SLURM_EXPORT_ENV": [None]}, Judged({"threads": "SLURM_EXPORT_ENV"})),
        (
            {"SLURM_CPU_BIND": ["cores"]},
            Judged({"threads": "SLURM_CPU_BIND", "cores": "SLURM_CPU_BIND"}),
        ),
        (
            {"SLURM_CPU_BIND": ["cores", "map_cpu:0"]},
            Judged(dict.fromkeys(("threads", "cores", "shape"), "SLURM_CPU_BIND")),
        ),
        (
            {"SLURM_CPU_BIND": [None]},  # it may be any
            Judged(dict.fromkeys(("threads", "cores", "shape"), "SLURM_CPU_BIND")),
        ),
        ({"SLURM_DEPENDENCY": [None]}, Judged()),
        ({"SLURM_RESERVATION": [None]}, Judged({"node_type": "SLURM_RESERVATION"})),
    ],
)
def test_what_a_script_sets_for_its_steps(
    assigned: dict[str, list[str | None]], judged: Judged
) -> None:
    assert slurm_table.judge_script(assigned) == judged


@pytest.mark.parametrize(
    ("variables_", "program", "options", "binds"),
    [
        ({"SLURM_OVERCOMMIT": v}, "sbatch", {}, {"shape": "SLURM_OVERCOMMIT"} if on else {})
        for v, on in (
            ("", True),
            ("yes", True),
            ("2", True),
            ("+01", True),
            ("no", False),
            ("0", False),
            ("-3", True),
        )
    ]
    + [
        (
            {"SLURM_EXCLUSIVE": ""},
            "sbatch",
            {},
            {"threads": "SLURM_EXCLUSIVE", "cores": "SLURM_EXCLUSIVE"},
        ),
        # an option of srun wins over its variable; to sbatch it does for what it writes itself
        ({"SLURM_RESERVATION": "r"}, "srun", {"reservation": "q"}, {"node_type": "--reservation"}),
        (
            {"SLURM_RESERVATION": "r"},
            "sbatch",
            {"reservation": "q"},
            {"node_type": "--reservation"},
        ),
        ({"SLURM_HINT": "x"}, "srun", {"hint": "unset"}, {}),
        ({"SLURM_HINT": "x"}, "sbatch", {"hint": "unset"}, {"shape": "SLURM_HINT"}),
        ({"SBATCH_EXPORT": "NONE"}, "sbatch", {}, {}),
        ({"SBATCH_EXPORT": "OMP_NUM_THREADS=4"}, "sbatch", {}, {"threads": "SBATCH_EXPORT"}),
        ({"SRUN_EXPORT_ENV": "X=1"}, "sbatch", {}, {"threads": "SRUN_EXPORT_ENV"}),
        (
            {"SLURM_CPU_BIND": "map_cpu:1"},
            "sbatch",
            {},
            dict.fromkeys(("threads", "cores", "shape"), "SLURM_CPU_BIND"),
        ),
    ],
)
def test_which_variables_count(
    variables_: dict[str, str], program: str, options: dict[str, str], binds: dict[str, str]
) -> None:
    assert judge(options, variables_, program).binds == binds


def test_caps_in_variables() -> None:
    names = {
        "SLURM_CPU_FREQ_REQ": "1",
        "SBATCH_CPU_FREQ_REQ": "2",
        "SALLOC_CPU_FREQ_REQ": "3",
        "SLURM_NTASKS": "4",
        "OTHER": "5",
    }
    caps = slurm_table.frequency_variables(names, "sbatch")
    assert caps == {"SLURM_CPU_FREQ_REQ": "1", "SBATCH_CPU_FREQ_REQ": "2"}
    assert slurm_table.frequency_variables(dict.fromkeys(names, ""), "sbatch") == {}
    # another binding is named first: a site may vouch for the cap
    judged = judge({}, {"SLURM_CPU_FREQ_REQ": "1", "SLURM_POWER": "x"}, "sbatch")
    assert judged.binds == {"frequency": "SLURM_POWER"}


def test_two_judgements_keep_what_either_keeps() -> None:
    first = Judged({"all": "a", "cores": "a"}, ("x", "y"), True)
    second = Judged({"all": "b", "threads": "b"}, ("y", "z"), False)
    together = Judged({"all": "a", "cores": "a", "threads": "b"}, ("x", "y", "z"), True)
    assert slurm_table.both(first, second) == together
    assert slurm_table.both(second, first).held and not slurm_table.both(second, second).held
    assert judge({"hold": "set", "time": "1"}, {}, "sbatch").held


def test_a_beginning_of_a_name_means_an_option_where_only_one_begins_so() -> None:
    for word, program, name in (
        ("ntasks", "sbatch", "ntasks"),
        ("exc", "sbatch", None),
        ("exclusi", "sbatch", "exclusive"),
        ("excl", "sbatch", None),
        ("", "sbatch", None),
        ("multi", "srun", "multi-prog"),
        ("multi", "sbatch", None),
        ("array", "srun", None),
        ("x", "nothing", None),
    ):
        option = slurm_table.option_of(word, program)
        assert (option.name if option else None) == name, word
    for letter, program, name in (
        ("a", "sbatch", "array"),
        ("a", "srun", None),
        ("", "srun", None),
        ("W", "srun", "wait"),
        ("?", "sbatch", None),
    ):
        option = slurm_table.letter_of(letter, program)
        assert (option.name if option else None) == name, letter
