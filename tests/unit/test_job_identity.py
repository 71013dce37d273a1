"""Which submissions are one job, seen again: by their commands, not by numbers and files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.job_identity import DIGEST_BYTES, job_identity
from advisor.core.request import JobRequest
from advisor.core.script_use import MAX_SCRIPT

SCRIPT = """#!/bin/bash
#SBATCH -N 2
# cavity flow, 2026-11-02
module load gcc/12.2
cd /scratch/ann/run_0017
srun ./prepare --grid 64 -s 1234 cavity.in
srun /home/ann/bin/lbm --steps=2000 -i cavity.h5 -o /scratch/ann/run_0017/out.h5 --mode fast
srun -n1 python post.py out.h5 --date 2026-11-02
"""
NOT_FOLLOWED = """#!/bin/bash
case $1 in
  a) RUN=./lbm ;;
esac
eval "$(./settings --case 17)"
for i in 1 2 3; do
  $RUN --steps=2000 cavity_$i.h5
done
"""
LOOP = "for i in 1 2 3; do\n srun ./lbm -s $i case_$i.in\ndone\n"


def request(script: str, *arguments: str, **more: Any) -> JobRequest:
    command = ("job.sh", *arguments)
    given = JobRequest("slurm", "cli_filter", "ann", 1000, job_name="lbm-17", script=script)
    return replace(given, command=command, **more)


def identity(script: str, *arguments: str, **more: Any) -> str:
    return job_identity(request(script, *arguments, **more))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cavity", "channel"),
        ("-s 1234", "-s 99"),
        ("--grid 64", "--grid 128"),
        ("--steps=2000", "--steps=1e6"),
        ("2026-11-02", "2027-01-31"),
        ("run_0017", "run_1234567"),
        ("/home/ann/bin/", "/opt/lbm/"),
        ("/scratch/ann", "$WORK"),
        ("-n1", "-n2"),
        ("# cavity flow", "# another comment"),
        ("gcc/12.2", "gcc/13"),
        ("out.h5 --date", "out.h5 more.h5 --date"),
    ],
)
def test_alike(old: str, new: str) -> None:
    assert old in SCRIPT
    assert identity(SCRIPT) == identity(SCRIPT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bin/lbm", "bin/lbm2d"),
        ("./prepare", "./prepare_fast"),
        ("post.py", "plot.py"),
        ("--mode fast", "--mode slow"),
        ("--mode fast", ""),
        ("--steps=", "--iterations="),
        ("-i cavity.h5", "-i cavity.nc"),
        ("srun ./prepare", "mpirun ./prepare"),
        ("srun ./prepare", "srun ./prepare &"),
    ],
)
def test_different(old: str, new: str) -> None:
    assert old in SCRIPT
    if new.endswith("&"):
        script = SCRIPT.replace("cavity.in", "cavity.in &")
    else:
        script = SCRIPT.replace(old, new)
    assert identity(SCRIPT) != identity(script)


def test_another_order_of_programs_is_another_job() -> None:
    lines = SCRIPT.splitlines()
    lines[5], lines[6] = lines[6], lines[5]
    assert identity(SCRIPT) != identity("\n".join(lines))


def test_alike_and_different_where_reading_does_not_follow() -> None:
    known = identity(NOT_FOLLOWED, "a")
    assert known
    for old, new in (("17", "18"), ("2000", "10"), ("1 2 3", "1 2 3 4"), ("cavity", "channel")):
        assert old in NOT_FOLLOWED
        assert identity(NOT_FOLLOWED.replace(old, new), "a") == known
    for old, new in (("./lbm", "./gmx"), ("./settings", "./others"), ("--steps", "--turns")):
        assert old in NOT_FOLLOWED
        assert identity(NOT_FOLLOWED.replace(old, new), "a") != known
    assert identity(NOT_FOLLOWED, "b") != known


def test_so_many_turns_of_a_loop_are_the_same_job() -> None:
    assert identity(LOOP) == identity(LOOP.replace("1 2 3", "1 2 3 4 5"))
    assert identity(LOOP) != identity("srun ./lbm -s 1 case_1.in\n")


def test_names_and_sizes_count() -> None:
    known = identity(SCRIPT)
    assert identity(SCRIPT, job_name="lbm-18") == known
    for more in (
        {"job_name": "other"},
        {"user": "bob"},
        {"account": "physics"},
        {"nodes": 4},
        {"ntasks": 8},
    ):
        assert identity(SCRIPT, **more) != known


def test_what_is_not_known_whole_has_none() -> None:
    assert identity("#!/bin/bash\n# nothing\n") == ""
    assert identity(SCRIPT, script_truncated=True) == ""
    assert identity(SCRIPT + "#" * MAX_SCRIPT) == ""
    assert job_identity(JobRequest("slurm", "cli_filter", "ann", 1000)) == ""


def test_a_command_without_a_script() -> None:
    def of(*words: str) -> str:
        return job_identity(
            JobRequest("slurm", "cli_filter", "ann", 1000, kind="run", command=words)
        )

    assert of("./lbm", "-s", "4", "a.in") == of("/opt/lbm", "-s", "5", "b.in") != of("./gmx")


@given(st.text(max_size=400), st.lists(st.text(max_size=30), max_size=3))
def test_any_text_has_one(text: str, arguments: list[str]) -> None:
    names = identity(text, *arguments), identity(text, *arguments)
    assert names[0] == names[1]
    assert len(names[0]) in (0, 2 * DIGEST_BYTES)


def test_a_reading_that_took_too_long_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    script = SCRIPT.replace("lbm", "slow")
    monkeypatch.setattr("advisor.core.script.DEADLINE_S", -1.0)
    assert identity(script) == ""
    monkeypatch.undo()
    assert identity(script)
