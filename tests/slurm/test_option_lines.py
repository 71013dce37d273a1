"""Options as sbatch itself reads them: drawn scripts and command lines, sbatch is the oracle.

No cluster is needed: a filter prints what sbatch read and ends the submission. What our reader
makes of the same words, written out in full on a command line, must read the same to sbatch.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from testbed import requirements

from advisor.schedulers.slurm import table as slurm_table
from advisor.schedulers.slurm.translator import read_arguments, read_directives, written

EXAMPLES = int(os.environ.get("ADVISOR_TEST_SBATCH_EXAMPLES", "150"))
FILTER = """\
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
  io.stdout:write(slurm.json_cli_options(options))
  return slurm.ERROR
end
function slurm_cli_post_submit(offset, job_id, step_id) return slurm.SUCCESS end
return slurm.SUCCESS
"""
CONF = """\
ClusterName=read
SlurmctldHost=localhost
CliFilterPlugins=lua
NodeName=n1 CPUs=64
PartitionName=p Nodes=n1
"""
VALUES = {
    "account": ["a", "two words", "it's"],
    "array": ["1-3"],
    "begin": ["2040-01-01T00:00:00"],
    "chdir": ["/tmp"],
    "comment": ["x", "a # b", "-N 3", "#", "back\\slash", "ends in -H"],
    "constraint": ["bdw", "bdw&big"],
    "cores-per-socket": ["2"],
    "cpu-freq": ["1200000-1900000"],
    "cpus-per-task": ["4"],
    "dependency": ["singleton"],
    "distribution": ["block"],
    "error": ["%j.err", "my log"],
    "exclude": ["n2"],
    "export": ["ALL", "ALL,A=1"],
    "extra-node-info": ["2:14"],
    "gpus": ["1"],
    "gres": ["none"],
    "hint": ["nomultithread"],
    "input": ["/dev/null"],
    "job-name": ["n", "a b", "x#y", "'"],
    "kill-on-invalid-dep": ["yes"],
    "licenses": ["l"],
    "mail-type": ["END"],
    "mail-user": ["a@b"],
    "mem": ["4G", "0"],
    "mem-per-cpu": ["100M"],
    "mincpus": ["2"],
    "nodelist": ["n1"],
    "nodes": ["2", "1-3"],
    "ntasks": ["4"],
    "ntasks-per-core": ["1"],
    "ntasks-per-node": ["2"],
    "open-mode": ["append"],
    "output": ["%j.out", "a=b"],
    "partition": ["p", "p,q"],
    "priority": ["5"],
    "qos": ["q"],
    "reservation": ["r"],
    "signal": ["B:USR1@60"],
    "sockets-per-node": ["1"],
    "switches": ["1"],
    "tasks-per-node": ["2"],
    "threads-per-core": ["1"],
    "time": ["90", "1:00:00"],
    "time-min": ["5"],
    "tmp": ["1G"],
    "wait-all-nodes": ["1"],
    "wckey": ["k"],
}
OPTIONAL = {
    "exclusive": ["user", "mcs"],
    "nice": ["100"],
    "no-kill": ["off"],
    "propagate": ["STACK", "NONE"],
    "get-user-env": ["10"],
}
FLAGS = [
    "contiguous",
    "hold",
    "no-requeue",
    "overcommit",
    "oversubscribe",
    "parsable",
    "quiet",
    "reboot",
    "requeue",
    "spread-job",
    "use-min-nodes",
    "verbose",
    "wait",
    "ignore-pbs",
]
LETTER = {o.name: o.letter for o in slurm_table.RECORDS if o.letter and "sbatch" in o.programs}


@dataclass(frozen=True)
class Sbatch:
    """The real sbatch with a filter that tells what it read."""

    folder: Path

    def reads(self, script: str, words: list[str]) -> dict[str, Any] | None:
        """Return the options that were set; None where sbatch refuses them itself."""
        path = self.folder / "job.sh"
        path.write_text(script, newline="")
        foreign = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        environment["SLURM_CONF"] = str(self.folder / "slurm.conf")
        done = subprocess.run(
            ["sbatch", *words, str(path)],
            env=environment,
            cwd=self.folder,
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )
        if not done.stdout.startswith("{"):
            return None
        options: dict[str, Any] = json.loads(done.stdout)
        del options["argv"]
        return options


@pytest.fixture(scope="module")
def sbatch() -> Iterator[Sbatch]:
    if reason := requirements():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="sbatch-") as name:
        folder = Path(name)
        (folder / "slurm.conf").write_text(CONF)
        (folder / "cli_filter.lua").write_text(FILTER)
        yield Sbatch(folder)


@st.composite
def option_words(draw: st.DrawFn) -> list[str]:
    """Draw the words of one option, as a shell would hand them over."""
    kind = draw(st.sampled_from(["required", "required", "required", "optional", "no", "bundle"]))
    if kind == "bundle":
        flags = draw(st.lists(st.sampled_from("HOsQvWk"), min_size=1, max_size=3))
        letters = "".join(flags)
        name = draw(st.sampled_from(["nodes", "ntasks", "time", "job-name"]))
        value = draw(st.sampled_from(VALUES[name]))
        if "k" in letters:  # takes all behind it as its value
            return [f"-{letters.replace('k', '')}k"]
        return draw(
            st.sampled_from(
                [
                    [f"-{letters}"],
                    [f"-{letters}{LETTER[name]}{value}"],
                    [f"-{letters}{LETTER[name]}", value],
                ]
            )
        )
    names = {"required": list(VALUES), "optional": list(OPTIONAL), "no": FLAGS}[kind]
    name = draw(st.sampled_from(names))
    if kind != "no" and name in LETTER and draw(st.booleans()):
        if kind == "optional":
            return [f"-{LETTER[name]}"]
        value = draw(st.sampled_from(VALUES[name]))
        return draw(st.sampled_from([[f"-{LETTER[name]}{value}"], [f"-{LETTER[name]}", value]]))
    short = name[: draw(st.integers(min(len(name), 3), len(name)))]
    option = slurm_table.option_of(short, "sbatch")
    typed = short if option is not None and option.name == name else name
    if kind == "no":
        return [f"--{typed}"]
    if kind == "optional":
        value = draw(st.sampled_from(["", *(f"={v}" for v in OPTIONAL[name])]))
        return [f"--{typed}{value}"]
    value = draw(st.sampled_from(VALUES[name]))
    return draw(st.sampled_from([[f"--{typed}={value}"], [f"--{typed}", value]]))


@st.composite
def quoted(draw: st.DrawFn, word: str) -> str:
    """Draw a way to write a word on a line of options."""
    ways = []
    if '"' not in word and "\\" not in word:
        ways.append(f'"{word}"')
    if "'" not in word and "\\" not in word:
        ways.append(f"'{word}'")
    if "=" in word and '"' not in word and "\\" not in word:
        name, _, value = word.partition("=")
        ways.append(f'{name}="{value}"')
    if not set(word) & set("#'\"\\ "):
        ways += [word] * 3
    if not set(word) & set("'\"\\"):
        ways.append(word.replace("#", "\\#").replace(" ", "\\ "))
    ways.append(word)  # sbatch makes of it what it makes
    return draw(st.sampled_from(ways))


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """Draw a job script: lines of options, of comments, and a command with more behind it."""
    blanks = st.sampled_from([" ", " ", " ", "  ", "\t", " \t "])
    lines = ["#!/bin/bash"]
    for _ in range(draw(st.integers(0, 5))):
        words = [w for part in draw(st.lists(option_words(), min_size=1, max_size=3)) for w in part]
        text = "#SBATCH" + draw(st.sampled_from([" ", " ", " ", "\t", "  ", ""]))
        for i, word in enumerate(words):
            text += (draw(blanks) if i else "") + draw(quoted(word))
        text += draw(
            st.sampled_from(
                ["", "", "", " ", "\t", "\r", " # -N 9 -J no", "# -N 9", "\t#", ' "" -N 9']
            )
        )
        lines.append(text)
        lines += draw(
            st.lists(
                st.sampled_from(
                    [
                        "",
                        "# text",
                        "##SBATCH -N 7",
                        " #SBATCH -N 7",
                        "#sbatch -N 7",
                        "\t",
                        "\f",
                        "#PBS -N named",
                        "#PBS -l walltime=2:00:00,mem=2gb",
                        "#PBS -l nodes=2:ppn=4",
                        "#PBS -q q -h",
                        "#PBS -j oe -m abe\t-A acct # no",
                    ]
                ),
                max_size=1,
            )
        )
    if draw(st.booleans()):
        lines += ["srun ./app", "#SBATCH -N 8 -J late"]
    return "\n".join([*lines, ""])


def same(read: dict[str, Any], again: dict[str, Any]) -> bool:
    """Tell whether they are the same options; how often -v or -Q stands there does not matter."""
    counted = {"quiet": "", "verbose": ""}
    return {k: counted.get(k, v) for k, v in read.items()} == {
        k: counted.get(k, v) for k, v in again.items()
    }


COUNTED = {"read": 0}


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
@given(script=scripts(), words=st.lists(option_words(), max_size=3))
def _compare_a_drawn_one(sbatch: Sbatch, script: str, words: list[list[str]]) -> None:
    line = [word for part in words for word in part]
    read = sbatch.reads(script, line)
    assume(read is not None)
    assert read is not None
    COUNTED["read"] += 1
    given = read_arguments(line)
    lines = read_directives(script, given)
    ours = {**{k: v for k, v in lines.items() if k not in given}, **given}
    again = sbatch.reads("#!/bin/sh\n", [w for part in written(ours) for w in part])
    assert again is not None, written(ours)
    assert same(read, again), (ours, read, again)


def test_our_reader_reads_what_sbatch_reads(sbatch: Sbatch) -> None:
    _compare_a_drawn_one(sbatch)
    assert COUNTED["read"] >= EXAMPLES // 5, "sbatch refused nearly all that was drawn"
