"""PBS's options: what a job asks for, in all the ways it may be said, and writing a choice back."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import configuration_of, fills_nodes
from advisor.core.script_use import NO_USE
from advisor.schedulers.pbs.chunks import Place, asked, parse_size_mb
from advisor.schedulers.pbs.qsub import (
    decode_arguments,
    directive_words,
    read_arguments,
    read_directives,
    split_words,
    written,
)
from advisor.schedulers.pbs.translator import parse_request, read_client, render
from advisor.views.script import rewritten

BDW = NodeType(
    "bdw", feature="node_type=bdw", partitions=("workq",), sockets=2, cores=28, memory_mb=64000,
    freq_khz=(1_200_000, 1_900_000, 2_200_000), default_freq_khz=2_200_000, nodes=("n1", "n2"),
)  # fmt: skip


def request(options: dict[str, str] | None = None, **payload: object) -> JobRequest:
    given_payload: dict[str, Any] = {"options": options or {}, "hook": "queuejob", **payload}
    return parse_request(given_payload, user="alice", uid=1000, choices={})


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


@pytest.mark.parametrize("names", [("MKL_NUM_THREADS",), ("OMP_NUM_THREADS", "MKL_NUM_THREADS")])
def test_variables_that_a_site_rule_names_are_set(names: tuple[str, ...]) -> None:
    job = request({"select": "1:ncpus=28", "place": "excl"})
    base, new = configuration_of(job, BDW), Configuration("bdw", 1, 1, 20, 2_200_000)
    rewrite, environment = render(base, new, BDW, job, pin_node_type=False, variables=names)
    assert environment == {"MKL_NUM_THREADS": "20"}
    assert rewrite == ({"select": "1:ncpus=28:ompthreads=20"} if len(names) > 1 else {})


def write(
    options: dict[str, str], nodes: int, ranks: int, threads: int, freq: int = 2_200_000,
    *, pin: bool = False,
) -> dict[str, str]:  # fmt: skip
    job = request(options)
    base = configuration_of(job, BDW)
    new = Configuration("bdw", nodes, ranks, threads, freq)
    whole = job.exclusive or fills_nodes(job, BDW, NO_USE)
    rewrite, environment = render(base, new, BDW, job, pin_node_type=pin, whole=whole)
    assert environment == {}
    return rewrite


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
            "select": "2:ncpus=28:mem=10gb:bigmem=t:node_type=bdw", "place": "scatter:excl",
            "walltime": "01:30:00", "cpu_freq_mhz": "1900", "queue": "workq@pbs1",
            "account": "climate", "job-name": "run", "array": "1-4",
        },
        env={"ADVISOR_GOAL": "power", "OMP_NUM_THREADS": "3"}, cwd="/home/alice",
        submit_arguments="<jsdl-hpcpa:Argument>-A</jsdl-hpcpa:Argument>"
        "<jsdl-hpcpa:Argument>climate</jsdl-hpcpa:Argument>"
        "<jsdl-hpcpa:Argument>a&amp;b.sh</jsdl-hpcpa:Argument>",
    )  # fmt: skip
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
        {"ncpus": "1"}, executable="/opt/stencil",
        argument_list="<jsdl-hpcpa:Argument>-n</jsdl-hpcpa:Argument>"
        "<jsdl-hpcpa:Argument>4</jsdl-hpcpa:Argument>",
    )  # fmt: skip
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


@pytest.mark.parametrize(
    ("options", "new", "rewrite"),
    [
        # nothing changes
        ({"select": "1:ncpus=28"}, (1, 1, 28), {}),
        # the cap, where the job has its nodes for itself
        ({"select": "1:ncpus=28"}, (1, 1, 28, 1_900_000), {"cpu_freq_mhz": "1900"}),
        ({"ncpus": "28"}, (1, 1, 28, 1_900_000), {"cpu_freq_mhz": "1900"}),
        ({"nodes": "2:ppn=28"}, (2, 28, 28, 1_900_000), {"cpu_freq_mhz": "1900"}),
        (
            {"select": "1:ncpus=4", "place": "excl"},
            (1, 1, 4, 1_900_000),
            {"cpu_freq_mhz": "1900"},
        ),
        # threads, inside the same cores
        ({"select": "1:ncpus=28"}, (1, 1, 20), {"select": "1:ncpus=28:ompthreads=20"}),
        (
            {"select": "1:ncpus=28:node_type=bdw:mem=4gb", "place": "exclhost"},
            (1, 1, 20),
            {"select": "1:ncpus=28:node_type=bdw:mem=4gb:ompthreads=20"},
        ),
        (
            {"select": "2:ompthreads=14:ncpus=28:mpiprocs=2", "place": "scatter"},
            (2, 2, 20),
            {"select": "2:ompthreads=10:ncpus=28:mpiprocs=2"},
        ),
        (
            {"select": "1:ncpus=28+ncpus=28", "place": "scatter"},
            (2, 1, 20, 1_900_000),
            {
                "select": "1:ncpus=28:ompthreads=20+ncpus=28:ompthreads=20",
                "cpu_freq_mhz": "1900",
            },
        ),
        ({"select": "4:ncpus=7", "place": "pack"}, (1, 4, 20),
         {"select": "4:ncpus=7:ompthreads=5"}),
        ({"ncpus": "28", "mem": "4gb"}, (1, 1, 20), {"ompthreads": "20"}),
        # a job that shares its node becomes smaller
        ({"select": "1:ncpus=14:mem=4gb"}, (1, 1, 10), {"select": "1:ncpus=10:mem=4gb"}),
        (
            {"select": "ncpus=14:mem=4gb:ompthreads=14"},
            (1, 1, 10),
            {"select": "ncpus=10:mem=4gb:ompthreads=10"},
        ),
    ],
)  # fmt: skip
def test_choices_are_written_back(
    options: dict[str, str], new: tuple[int, ...], rewrite: dict[str, str]
) -> None:
    assert write(options, *new) == rewrite


@pytest.mark.parametrize(
    ("options", "new", "why"),
    [
        ({"select": "1:ncpus=4"}, (1, 1, 4, 1_900_000), "nodes may be shared"),
        ({"ncpus": "4"}, (1, 1, 4, 1_900_000), "nodes may be shared"),
        ({"select": "4:ncpus=7"}, (1, 4, 28, 1_900_000), "nodes may be shared"),
        ({"select": "1:ncpus=14"}, (1, 1, 10), "no memory in the chunk"),
        ({"ncpus": "14", "mem": "4gb"}, (1, 1, 10), "without select"),
        ({"select": "2:ncpus=7:mem=4gb", "place": "pack"}, (1, 2, 10), "more than one chunk"),
        ({"select": "1:ncpus=14:mem=4gb", "place": "shared"}, (1, 1, 10), "place=shared"),
        ({"select": "1:ncpus=14:mem=4gb"}, (1, 1, 20), "not made larger"),
        ({"select": "1:ncpus=4", "place": "excl"}, (1, 1, 8), "4 cores each"),
        ({"nodes": "1:ppn=28"}, (1, 28, 56), "-l nodes binds it"),
        ({"select": "1:ncpus=28:mpiprocs=4"}, (1, 4, 20), "mpiprocs without ompthreads"),
        ({"select": "1:ncpus=28"}, (1, 2, 28), "not the advisor's to change"),
        ({"select": "1:ncpus=28", "cput": "1:00:00"}, (1, 1, 20), "cput=1:00:00 binds it"),
        ({"select": "1:ncpus=28:eoe=low"}, (1, 1, 28, 1_900_000), "eoe=low binds it"),
        ({"select": "1:ncpus=28", "mppwidth": "4"}, (1, 1, 20), "mppwidth=4 binds it"),
    ],
)
def test_what_cannot_be_written_says_why(
    options: dict[str, str], new: tuple[int, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        write(options, *new)


def test_a_node_type_is_pinned_by_its_resource() -> None:
    assert write({"select": "1:ncpus=28"}, 1, 1, 28, pin=True) == {
        "select": "1:ncpus=28:node_type=bdw",
    }  # fmt: skip
    for options in (
        {"ncpus": "2"}, {"nodes": "1"}, {"select": "1:ncpus=28:node_type=skl"},
        {"select": "1:ncpus=28:ngpus=1"}, {"select": "1:ncpus=28", "place": "group=rack"},
        {"select": "1:ncpus=28:vnode=n1"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="node_type is kept"):
            write(
                options, 1, 1, int(options.get("ncpus", 28 if "select" in options else 1)), pin=True
            )


@given(
    count=st.integers(1, 4), ranks=st.integers(1, 4), threads=st.integers(1, 7),
    place=st.sampled_from(["", "free", "pack", "scatter", "scatter:excl", "excl"]),
    new_threads=st.integers(1, 7), freq=st.sampled_from(BDW.freq_khz),
)  # fmt: skip
def test_what_is_written_asks_for_what_was_chosen(
    count: int, ranks: int, threads: int, place: str, new_threads: int, freq: int
) -> None:
    """Reading a rewritten job back gives the configuration it was rewritten to, and all else
    as it was written."""
    chunk = f"ncpus={ranks * threads}:mpiprocs={ranks}:ompthreads={threads}"
    options = {"select": f"{count}:{chunk}", "place": place}
    job = request(options)
    base = configuration_of(job, BDW)
    per_node = base.ranks_per_node * new_threads
    if base.threads_per_node > 28 or per_node > 28:
        return
    new = Configuration("bdw", base.nodes, base.ranks_per_node, per_node, freq)
    try:
        whole = job.exclusive or fills_nodes(job, BDW, NO_USE)
        rewrite, _ = render(base, new, BDW, job, pin_node_type=False, whole=whole)
    except ValueError:
        return
    after = {k: v for k, v in {**options, **rewrite}.items() if v}
    if job.nodes is not None:  # else it depends on what is idle
        assert configuration_of(request(after), BDW) == new
    assert set(rewrite) <= {"select", "cpu_freq_mhz"}
    kept = rewrite.get("select", options["select"]).replace(
        f"ompthreads={new_threads}", f"ompthreads={threads}"
    )
    assert kept == options["select"]


# -- the closed world ----------------------------------------------------------------------------


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


# -- qsub's words ------------------------------------------------------------------------------


def test_words_of_qsub() -> None:
    options, rest = split_words(
        ["-lselect=2:ncpus=4,walltime=1:00", "-l", "place=excl", "-Nname", "-zV", "-v", "A=1,B=2",
         "-W", "block=true", "-q", "workq", "job.sh", "-l", "x=1"]
    )  # fmt: skip
    assert options == {
        "select": "2:ncpus=4", "walltime": "1:00", "place": "excl", "job-name": "name",
        "quiet": "", "export-all": "", "variables": "A=1,B=2", "additional": "block=true",
        "queue": "workq",
    }  # fmt: skip
    assert rest == ["job.sh", "-l", "x=1"]
    assert split_words(["-N", "x", "--", "/bin/app", "-l", "y"])[1] == ["--", "/bin/app", "-l", "y"]
    assert split_words(["-q", "w", "-"])[1] == ["-"]
    assert split_words(["-l"]) == ({}, [])
    assert read_arguments(["-l", 'software="a,b",mem=1gb']) == {"software": "a,b", "mem": "1gb"}


def test_directives_end_at_the_first_command() -> None:
    script = (
        "#!/bin/bash\n#PBS -l select=1:ncpus=4 # so many\n  #PBS -N 'my job' \\\n-q workq\n"
        "# a comment\n\n#PBS -A climate\necho\n#PBS -q late\n"
    )
    assert read_directives(script) == {
        "select": "1:ncpus=4", "job-name": "my job", "queue": "workq", "account": "climate",
    }  # fmt: skip
    assert directive_words("#PBS -N 'open\necho") == [["-N", "'open"]]


def test_options_as_they_are_typed() -> None:
    assert written({"select": "1:ncpus=2", "ncpus": "", "queue": "w", "interactive": ""}) == [
        ("-l", "select=1:ncpus=2"), ("-q", "w"), ("-I",),
    ]  # fmt: skip
    lines = ["#!/bin/bash", "#PBS -l select=1:ncpus=4", "#PBS -q w", "./a"]
    assert rewritten(lines, {"select": "1:ncpus=2", "cpu_freq_mhz": "1900"}, "pbs") == [
        "#!/bin/bash", "#PBS -q w", "#PBS -l select=1:ncpus=2", "#PBS -l cpu_freq_mhz=1900", "./a",
    ]  # fmt: skip


def test_jsdl() -> None:
    words = ["a&b", "x y", "<'\">", ""]
    escape = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&apos;", '"': "&quot;"})
    text = "".join(
        f"<jsdl-hpcpa:Argument>{w.translate(escape)}</jsdl-hpcpa:Argument>" for w in words
    )
    assert decode_arguments(text) == words
    assert decode_arguments("plain") == []


@pytest.mark.parametrize(
    ("text", "mb"),
    [("10gb", 10240), ("1gw", 8192), ("4096", 4096 / 2**20), ("2048kb", 2), ("1.5GB", 1536)],
)
def test_sizes(text: str, mb: float) -> None:
    assert parse_size_mb(text) == mb


@given(st.text())
def test_no_text_breaks_the_readers(text: str) -> None:
    split_words(text.split())
    read_directives(text)
    decode_arguments(text)
    assert isinstance(read_client(text), dict)
    for read in (Place.parse, parse_size_mb, lambda t: asked({"select": t or "1"})):
        try:
            read(text)
        except ValueError as error:
            assert str(error)


# -- what the client passes on -------------------------------------------------------------------


def packed(**data: object) -> str:
    text = json.dumps({"v": 1, **data}).encode()
    return base64.urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


def test_with_the_client_defaults_of_the_site_are_not_the_user_s() -> None:
    script = "#!/bin/bash\n#PBS -l walltime=1:00\nmpirun ./stencil -n 4\n"
    client = packed(script=script, fingerprint="ab12", choices='{"version": 1, "goal": "power"}')
    job = request({"select": "1:ncpus=28", "place": "excl"}, client=client)
    assert job.explicit == frozenset()
    assert job.script == script
    assert job.script_truncated
    assert job.fingerprint == "ab12"
    assert job.choices == {"version": 1, "goal": "power"}
    typed = "<jsdl-hpcpa:Argument>-lncpus=4</jsdl-hpcpa:Argument>"
    assert request({"ncpus": "4"}, client=client, submit_arguments=typed).explicit == {"threads"}


@pytest.mark.parametrize(
    "text", ["x", "!!!!", packed()[:-4], base64.b64encode(b"x" * 9).decode(), "A" * 5000]
)
def test_a_client_that_was_tampered_with_counts_for_nothing(text: str) -> None:
    job = request({"select": "1:ncpus=28"}, client=text)
    assert job.script is None
    assert job.explicit == {"nodes", "threads"}


def test_a_client_that_would_fill_the_memory_is_cut() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(b" " * (64 << 20), 9)).decode()
    assert read_client(bomb) == {}
