"""The words of qsub: its arguments, directives and amounts, and what its client passes on."""

from __future__ import annotations

import base64
import json
import random
import runpy
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.paths import share
from advisor.schedulers.pbs.chunks import Place, asked, parse_size_mb
from advisor.schedulers.pbs.qsub import (
    decode_arguments,
    directive_split,
    directive_words,
    read_arguments,
    read_directives,
    split_words,
    without,
    written,
)
from advisor.schedulers.pbs.translator import parse_request, read_client
from advisor.views.script import rewritten
from tests.unit.pbs_request import request


@pytest.fixture(scope="module")
def client() -> dict[str, Any]:
    """The program before qsub, which reads its words for itself."""
    return runpy.run_path(str(share("hooks/pbs/qsub.py")), run_name="client")


def test_words_of_qsub() -> None:
    options, rest = split_words(
        [
            "-lselect=2:ncpus=4,walltime=1:00",
            "-l",
            "place=excl",
            "-Nname",
            "-zV",
            "-v",
            "A=1,B=2",
            "-W",
            "block=true",
            "-q",
            "workq",
            "job.sh",
            "-l",
            "x=1",
        ]
    )
    assert options == {
        "select": "2:ncpus=4",
        "walltime": "1:00",
        "place": "excl",
        "job-name": "name",
        "quiet": "",
        "export-all": "",
        "variables": "A=1,B=2",
        "additional": "block=true",
        "queue": "workq",
    }
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
        "select": "1:ncpus=4",
        "job-name": "my job",
        "queue": "workq",
        "account": "climate",
    }
    assert directive_words("#PBS -N 'open\necho") == [["-N", "'open"]]


@pytest.mark.parametrize(
    ("script", "given", "options"),
    [
        ("#PBS -N 'a b' -l \"select=1:ncpus=4\"\n", {}, {"job-name": "a b", "select": "1:ncpus=4"}),
        ("#PBS -N a\\ b#c\n", {}, {"job-name": "a b#c"}),
        ("\t #PBS\t-hN x -lncpus=4\n", {}, {"hold": "", "job-name": "x", "ncpus": "4"}),
        ("#PBS -l ncpus=4,mem=1gb \\\n  -q w\n", {}, {"ncpus": "4", "mem": "1gb", "queue": "w"}),
        ("#PBS -N a\\\n  b\n", {}, {"job-name": "a"}),
        ("#PBS -N x\n: label\n#PBS -q w\n", {}, {"job-name": "x", "queue": "w"}),
        ("#PBS -N x # -q w\n#PBS -A acct\n", {}, {"job-name": "x", "account": "acct"}),
        (
            "#PBS -W group_list=g,umask=022 -S /bin/csh\n",
            {},
            {"additional": "group_list=g,umask=022", "shell": "/bin/csh"},
        ),
        ("#PBS -N x\n#QSUB -N y\n", {"prefix": "#QSUB"}, {"job-name": "y"}),
        ("#PBS -N x\n", {"prefix": ""}, {}),
        ("#PBS -N x\x0b-q w\n", {}, {"job-name": "x", "queue": "w"}),
    ],
)
def test_directives_as_qsub_reads_them(
    script: str, given: dict[str, str], options: dict[str, str]
) -> None:
    assert read_directives(script, given) == options


def test_the_prefix_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PBS_DPREFIX", "#JOB")
    assert read_directives("#PBS -N x\n#JOB -N y\n") == {"job-name": "y"}
    assert read_directives("#PBS -N x\n#JOB -N y\n", {"prefix": "#PBS"}) == {"job-name": "x"}


@given(
    parts=st.lists(
        st.sampled_from(
            ["a", "-l", "=", ",", "#", " ", "\t", "' a\"'", '"b \' "', "\\ ", "\\'", "''"]
        ),
        max_size=12,
    )
)
def test_the_client_before_qsub_splits_lines_in_the_same_way(
    client: dict[str, Any], parts: list[str]
) -> None:
    text = "".join(parts)
    assert client["split_words"](text) == directive_split(text)


def test_options_as_they_are_typed() -> None:
    assert written({"select": "1:ncpus=2", "ncpus": "", "queue": "w", "interactive": ""}) == [
        ("-l", "select=1:ncpus=2"),
        ("-q", "w"),
        ("-I",),
    ]
    lines = ["#!/bin/bash", "#PBS -l select=1:ncpus=4", "#PBS -q w", "./a"]
    assert rewritten(lines, {"select": "1:ncpus=2", "cpu_freq_mhz": "1900"}, "pbs") == [
        "#!/bin/bash",
        "#PBS -q w",
        "#PBS -l select=1:ncpus=2",
        "#PBS -l cpu_freq_mhz=1900",
        "./a",
    ]


def test_of_a_resource_in_two_lines_the_first_counts() -> None:
    """qsub appends a directive's resource only where none of that name is there yet."""
    script = "#PBS -l select=1:ncpus=4 -q a\n#PBS -l select=1:ncpus=8 -q b\n"
    assert read_directives(script) == {"select": "1:ncpus=4", "queue": "b"}


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("#PBS -l select=1:ncpus=4,walltime=1:00:00 -N x", "#PBS -l walltime=1:00:00 -N x"),
        ("#PBS -lwalltime=1:00,select=1:ncpus=4 # a note", "#PBS -lwalltime=1:00 # a note"),
        ('#PBS -l "select=1:ncpus=4,walltime=1:00"', '#PBS -l "walltime=1:00"'),
        ('#PBS -l software="a,b",select=1', '#PBS -l software="a,b"'),
        ("#PBS -N 'a b' -l select=1 -q w", "#PBS -N 'a b' -q w"),
        ("#PBS -l select=1", ""),
    ],
)
def test_a_line_keeps_what_else_it_holds(line: str, rest: str) -> None:
    """A line below that asks for the same resource again would not count."""
    assert without(line, {"select"}) == rest
    written_again = rewritten([line, "./a"], {"select": "1:ncpus=2"}, "pbs")
    assert written_again == [*filter(None, [rest]), "#PBS -l select=1:ncpus=2", "./a"]
    assert read_directives("\n".join(written_again))["select"] == "1:ncpus=2"


def test_a_comment_that_names_a_variable_sets_none() -> None:
    lines = ["#!/bin/sh", "# OMP_NUM_THREADS is left to the site", "./a"]
    done = rewritten(lines, {}, "slurm", {"OMP_NUM_THREADS": "8"})
    assert "export OMP_NUM_THREADS=8" in done


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


def test_lines_of_the_script_and_words_of_qsub_are_the_user_s_together() -> None:
    script = "#!/bin/bash\n#PBS -l select=1:ncpus=4\n./stencil\n"
    client = packed(script=script)
    assert request({"select": "1:ncpus=4"}, client=client).explicit == {"nodes", "threads"}
    typed = "<jsdl-hpcpa:Argument>-lselect=1:ncpus=4:kind=a</jsdl-hpcpa:Argument>"
    both = request({"select": "1:ncpus=4:kind=a"}, client=client, submit_arguments=typed)
    assert both.explicit == {"nodes", "threads", "node_type"}
    assert request({}, client=packed(), submit_arguments="").explicit == frozenset()


@pytest.mark.parametrize(
    ("options", "differ"),
    [
        ({"select": "1:ncpus=4", "walltime": "01:00:00", "queue": "workq", "gen": "2"}, {}),
        ({"select": "1:ncpus=4", "walltime": "3600", "queue": "workq@other"}, {"gen": "2"}),
        (
            {"select": "1:ncpus=8", "walltime": "02:00:00", "queue": "other", "place": "excl"},
            {
                "select": "1:ncpus=4",
                "walltime": "1:00:00",
                "queue": "workq@server",
                "place": "",
                "gen": "2",
            },
        ),
    ],
)
def test_what_a_script_says_otherwise_than_its_job_is_noted(
    options: dict[str, str], differ: dict[str, str]
) -> None:
    lines = "-l walltime=1:00:00 -l select=1:ncpus=4 -q workq@server -l gen=2"
    client = packed(script=f"#!/bin/bash\n#PBS {lines}\n./a\n")
    assert request(options, client=client, host_resources=["gen"]).script_options == differ


def test_choices_of_the_hook_go_before_those_of_the_client() -> None:
    client = packed(script="./a\n", choices='{"version": 1, "goal": "power"}')
    payload = {"options": {}, "client": client}
    job = parse_request(payload, user="ada", uid=1, choices={"goal": "edp"})
    assert job.choices == {"goal": "edp"}


@pytest.mark.parametrize("length", range(8))
def test_a_client_of_any_length_is_read(length: int) -> None:
    text = random.Random(length).randbytes(length).hex()
    assert read_client(packed(script=text))["script"] == text
    assert read_client(packed(script="a" * length))["script"] == "a" * length


@pytest.mark.parametrize("data", [{"v": 2}, {}, [1], "v", 1, None])
def test_a_client_of_another_form_counts_for_nothing(data: object) -> None:
    text = base64.urlsafe_b64encode(zlib.compress(json.dumps(data).encode())).decode()
    assert read_client(text) == {}


def test_a_whole_script_is_said_to_be_one() -> None:
    for whole in (True, False):
        job = request({"select": "1:ncpus=28"}, client=packed(script="./a\n", whole=whole))
        assert job.script_truncated is not whole
    assert not request({}).script_truncated and request({}, truncated=True).script_truncated


def test_a_command_without_arguments() -> None:
    assert request({}, executable="/opt/stencil").command == ("/opt/stencil",)
