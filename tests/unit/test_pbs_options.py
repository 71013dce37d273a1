"""PBS's options: what a job asks for, in all the ways it may be written."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.core.inventory import Inventory
from advisor.core.requested_configuration import configuration_of, fills_nodes
from advisor.core.script_use import NO_USE
from tests.unit.pbs_request import BDW, request


def asks(options: dict[str, str] | None = None) -> tuple[int, int, int]:
    c = configuration_of(request(options), BDW)
    return c.nodes, c.ranks_per_node, c.threads_per_node


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({"select": "4:ncpus=7"}, False),  # free: PBS may put them on nodes of others
        ({"select": "4:ncpus=7", "place": "free"}, False),
        ({"select": "4:ncpus=7", "place": "pack"}, True),
        ({"select": "4:ncpus=7", "place": "scatter"}, False),
        ({"select": "2:ncpus=28:mpiprocs=28:ompthreads=1"}, True),
        ({"select": "2:ncpus=28:mpiprocs=4:ompthreads=7"}, True),
        ({"select": "2:ncpus=28", "place": "scatter"}, True),
        ({"select": "2:ncpus=14:mpiprocs=14:ompthreads=1"}, False),
        ({"ncpus": "28"}, True),
        ({"nodes": "2:ppn=28"}, True),
    ],
)
def test_who_has_all_cores_of_its_nodes(options: dict[str, str], whole: bool) -> None:
    assert fills_nodes(request(options), BDW, NO_USE) is whole


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (1, 1, 1)),
        ({"ncpus": "4"}, (1, 1, 4)),
        ({"ncpus": "4", "mpiprocs": "2"}, (1, 2, 4)),
        ({"nodes": "2"}, (2, 1, 1)),
        ({"nodes": "2:ppn=14"}, (2, 14, 14)),
        ({"nodes": "1:ppn=2:cpp=4"}, (1, 2, 8)),
        ({"nodes": "2:ppn=14#excl"}, (2, 14, 14)),
        ({"select": "2"}, (1, 2, 2)),
        ({"select": "1:ncpus=28"}, (1, 1, 28)),
        ({"select": "2:ncpus=28"}, (2, 1, 28)),
        ({"select": "2:ncpus=28:mpiprocs=28"}, (2, 28, 28)),
        ({"select": "2:ncpus=28:mpiprocs=2:ompthreads=14"}, (2, 2, 28)),
        ({"select": "4:ncpus=7"}, (1, 4, 28)),
        ({"select": "4:ncpus=7", "place": "scatter"}, (4, 1, 7)),
        ({"select": "4:ncpus=7", "place": "pack:excl"}, (1, 4, 28)),
        ({"select": "1:ncpus=4+1:ncpus=4", "place": "scatter"}, (2, 1, 4)),
    ],
)
def test_shapes(options: dict[str, str], shape: tuple[int, int, int]) -> None:
    assert asks(options) == shape


@pytest.mark.parametrize(
    ("options", "explicit"),
    [
        ({}, set()),
        ({"walltime": "1:00:00"}, set()),
        ({"ncpus": "4"}, {"threads"}),
        ({"nodes": "2"}, {"nodes", "threads"}),
        ({"select": "2:ncpus=28:mpiprocs=4"}, {"nodes", "threads", "ranks"}),
        ({"select": "2"}, {"nodes"}),
        ({"select": "1:ncpus=4:node_type=bdw"}, {"nodes", "threads", "node_type"}),
        ({"select": "1:ncpus=4:ngpus=1"}, {"nodes", "threads", "node_type"}),
        ({"select": "1:ncpus=4:scratch=10gb"}, {"nodes", "threads"}),
        ({"cpu_freq_mhz": "1900"}, {"frequency"}),
    ],
)
def test_what_the_user_fixed(options: dict[str, str], explicit: set[str]) -> None:
    assert request(options).explicit == explicit


def test_the_other_words_of_a_job() -> None:
    job = request(
        {
            "select": "2:ncpus=28:mem=10gb:bigmem=t:node_type=bdw",
            "place": "scatter:excl",
            "walltime": "01:30:00",
            "cpu_freq_mhz": "1900",
            "queue": "workq@pbs1",
            "account": "climate",
            "job-name": "run",
            "array": "1-4",
        },
        env={"ADVISOR_GOAL": "power", "OMP_NUM_THREADS": "3"},
        cwd="/home/alice",
        submit_arguments="<jsdl-hpcpa:Argument>-A</jsdl-hpcpa:Argument>"
        "<jsdl-hpcpa:Argument>climate</jsdl-hpcpa:Argument>"
        "<jsdl-hpcpa:Argument>a&amp;b.sh</jsdl-hpcpa:Argument>",
    )
    assert (job.partition, job.account, job.job_name) == ("workq", "climate", "run")
    assert (job.time_limit_s, job.freq_khz, job.exclusive, job.array) == (
        5400,
        1_900_000,
        True,
        True,
    )
    assert job.memory_per_node_mb == 10240
    assert job.constraint == "bigmem=True:node_type=bdw"
    assert Inventory.of([BDW]).by_feature(job.constraint) == (BDW,)
    assert job.script_path == "/home/alice/a&b.sh"
    assert job.submit_line == "-A climate a&b.sh"
    assert job.environment == {"ADVISOR_GOAL": "power"}
    assert job.script is None


def test_a_command_instead_of_a_script() -> None:
    job = request(
        {"ncpus": "1"},
        executable="/opt/stencil",
        argument_list="<jsdl-hpcpa:Argument>-n</jsdl-hpcpa:Argument>"
        "<jsdl-hpcpa:Argument>4</jsdl-hpcpa:Argument>",
    )
    assert (job.kind, job.command) == ("run", ("/opt/stencil", "-n", "4"))
    assert request({"interactive": ""}).kind == "allocate"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"select": "ncpus"}, "select=ncpus is not understood"),
        ({"select": "0:ncpus=1"}, "has no chunk"),
        ({"select": "1:ncpus=many"}, "ncpus=many is not a number"),
        ({"select": "1:ncpus=1:mem=much"}, "mem=much is not an amount"),
        ({"place": "there"}, "place=there is not a placement"),
        ({"walltime": "soon"}, "walltime=soon is not a time limit"),
        ({"cpu_freq_mhz": "1.9"}, "cpu_freq_mhz=1.9 is not a frequency"),
        ({"nodes": "2:foo=3"}, "nodes=2:foo=3 is not understood"),
        ({"nodes": "2", "ncpus": "4"}, "not understood"),
    ],
)
def test_what_makes_no_sense_names_the_option(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        request(options)


def test_chunks_of_several_kinds_are_left_alone() -> None:
    assert request({"select": "1:ncpus=4+2:ncpus=28"}).het
    assert request({"nodes": "1:ppn=4+2:ppn=2"}).het
    assert not request({"select": "1:ncpus=4+2:ncpus=4"}).het


def test_what_is_not_in_the_table_is_named() -> None:
    options = {"select": "1:ncpus=4:scratch=10gb", "matlab": "1", "walltime": "1:00"}
    assert request(options).not_understood == ("matlab", "scratch")
    known = request({"select": "1:ncpus=4:kind=a:rack=r1"}, host_resources=["kind"])
    assert known.not_understood == ("rack",)
    assert known.binds["node_type"]
    assert request({}, attributes={"sched_hint": "x", "Priority": "3"}).not_understood == (
        "sched_hint",
    )


@pytest.mark.parametrize(
    "payload",
    [
        {"attributes": {"depend": "afterok:1.pbs1"}},
        {"attributes": {"Hold_Types": "u"}},
        {"attributes": {"Execution_Time": "1798761540"}},
        {"options": {"hold": ""}},
        {"options": {"after": "2359"}},
        {"options": {"additional": "umask=22,depend=afterok:1"}},
    ],
)
def test_a_job_that_starts_later_is_held(payload: dict[str, Any]) -> None:
    options = {"select": "1:ncpus=4", **payload.pop("options", {})}
    job = request(options, **payload)
    assert job.held
    assert job.not_understood == ()


def test_attributes_of_w() -> None:
    job = request({"additional": "stagein=a@h:b,c@h:d,tolerate_node_failures=all,nosuch=1"})
    assert job.not_understood == ("nosuch",)
    assert job.binds["all"] == "tolerate_node_failures"
    assert not request({}, attributes={"Hold_Types": "n"}).held


@pytest.mark.parametrize(
    ("lines", "bound"),
    [
        ("export PBS_NODEFILE=mine", "PBS_NODEFILE"),
        ("read NCPUS < f", "NCPUS"),
        ("unset PBS_NODEFILE", "PBS_NODEFILE"),
        ("env PBS_NP=4 true", "PBS_NP"),
        ("echo $PBS_NODEFILE $NCPUS; export PBS_O_PATH=/bin", None),
    ],
)
def test_a_script_that_sets_what_its_ranks_are_placed_by_is_left_alone(
    lines: str, bound: str | None
) -> None:
    job = request({"select": "1:ncpus=28"}, script=f"{lines}\nmpirun -n 4 ./app\n")
    assert job.binds.get("shape") == bound


def test_a_script_s_arguments_say_what_it_sets() -> None:
    job = request(
        {"select": "1:ncpus=28"},
        script="$1 PBS_NP=4\nmpirun -n 4 ./app\n",
        argv=["job.sh", "export", "x"],
    )
    assert job.binds["shape"] == "PBS_NP"


def test_an_option_that_binds_all_is_named_before_the_shape_of_the_request() -> None:
    options = {"select": "2:ncpus=28:mpiprocs=2:ompthreads=20", "place": "free"}
    assert request(options).binds["shape"].startswith("the placement of chunks")
    more = {**options, "additional": "tolerate_node_failures=all"}
    assert request(more).binds["all"] == "tolerate_node_failures"


@pytest.mark.parametrize(
    ("shell", "binds"),
    [
        ("/bin/bash", False),
        ("/bin/sh@front,/usr/bin/ksh", False),
        ("/bin/csh", True),
        ("/bin/bash,/bin/tcsh@n1", True),
        ("/usr/bin/python3", True),
    ],
)
def test_the_shell_of_minus_s_reads_the_script(shell: str, binds: bool) -> None:
    by_option = request({"select": "1:ncpus=28", "shell": shell})
    assert {"all", "shape"} & by_option.binds.keys() == ({"shape"} if binds else set())
    by_hook = request({"select": "1:ncpus=28"}, attributes={"Shell_Path_List": shell})
    assert {"all", "shape"} & by_hook.binds.keys() == ({"shape"} if binds else set())


@pytest.mark.parametrize(
    ("options", "axes"),
    [
        ({"select": "1:ncpus=28:mem=1gb"}, set()),
        ({"select": "1:ncpus=28:mem=1gb:site=abc"}, {"node_type"}),
        ({"select": "1:ncpus=28:mem=1gb:host=n1"}, {"node_type"}),
        ({"select": "1:ncpus=28:mem=1gb:vnode=n1"}, {"node_type"}),
        ({"select": "1:ncpus=28:mem=1gb:accelerator=True"}, {"node_type", "cores"}),
        ({"select": "1:ncpus=28:mem=1gb:ngpus=1"}, {"node_type", "cores"}),
        ({"select": "1:ncpus=28:mem=1gb", "place": "group=rack"}, {"node_type"}),
        ({"select": "1:ncpus=28:mem=1gb", "place": "excl"}, {"cores"}),
        ({"select": "1:ncpus=28"}, {"cores"}),
        ({"select": "2:ncpus=28:mem=1gb"}, {"cores"}),
        ({"select": "1:ncpus=28:mem=1gb:mpiprocs=1"}, set()),
        ({"select": "1:ncpus=28:mem=1gb:mpiprocs=2"}, {"cores", "threads"}),
        ({"select": "1:ncpus=28:mem=1gb:mpiprocs=2:ompthreads=14"}, {"cores"}),
        ({"ncpus": "28", "mem": "1gb"}, {"cores", "node_type"}),
        ({"nodes": "1:ppn=28"}, {"cores", "node_type", "threads"}),
        ({"select": "1:ncpus=28:mem=1gb", "mppwidth": "4"}, {"shape"}),
    ],
)
def test_what_a_request_binds(options: dict[str, str], axes: set[str]) -> None:
    assert set(request(options).binds) == axes


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [
        ("0", 1),
        ("1", 1),
        ("59", 59),
        ("1:00", 60),
        ("1:02:03", 3723),
        ("25:00:00", 90_000),
        ("10.9", 10),
        (" 1:00 ", 60),
        ("", None),
    ],
)
def test_limits_of_time(text: str, limit_s: int | None) -> None:
    assert request({"walltime": text}).time_limit_s == limit_s


def test_no_frequency_is_no_cap() -> None:
    assert request({"cpu_freq_mhz": "0"}).freq_khz is None
    assert request({"cpu_freq_mhz": "1"}).freq_khz == 1000
