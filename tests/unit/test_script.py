"""Reading job scripts: launcher lines, threads, #ADVISOR lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.recognise import ApplicationRule, clean_name, recognise
from advisor.core.script import advisor_lines, commands, main_command, threads_of

SCRIPT = """#!/bin/bash
#SBATCH -N 1
#ADVISOR goal=performance workload="big one"
module load gcc
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
EXE=./bin/stencil64
cd $SLURM_SUBMIT_DIR
time srun -n 4 --cpu-bind=cores -l numactl --interleave=all $EXE --size $1 \\
   --it 5 > out.txt 2>&1
echo done
"""


def test_a_launcher_line_with_everything_in_front_of_the_executable() -> None:
    command = main_command(SCRIPT, ("64",))
    assert command is not None
    assert command.launcher == "srun"
    assert command.executable == "stencil64"
    assert command.arguments == ("--size", "64", "--it", "5")
    assert "-n=4" in command.launcher_options


@pytest.mark.parametrize(
    ("script", "executable"),
    [
        ("mpirun -np 4 -mca btl self ./a.out x", "a.out"),
        ("python3 -u train.py --lr 1", "train.py"),
        ("if true; then srun ./x; fi", "x"),
        ("apptainer exec --nv img.sif ./lmp -in f", "lmp"),
        ("env A=1 ./app 3 & wait", "app"),
        ("cat <<EOF\nsrun bad\nEOF\n./good", "good"),
        ("timeout 60 ./app z", "app"),
        ("srun ./a 'unbalanced", "a"),
        ("./first\n./last", "last"),
        ("./first\nsrun ./launched\n./last", "launched"),
        ("srun --ntasks 3 --exclusive ./x", "x"),
        ("srun -n2 -c$SLURM_CPUS_PER_TASK ./x", "x"),
        ("# srun ./commented\n./real", "real"),
    ],
)
def test_executables(script: str, executable: str) -> None:
    command = main_command(script)
    assert command is not None
    assert command.executable == executable


@pytest.mark.parametrize("script", ["", "\n\n", "#!/bin/sh\n", "cd /tmp\necho hi", "srun $UNKNOWN"])
def test_nothing_to_recognise(script: str) -> None:
    assert main_command(script) is None
    assert recognise(script).application == ""


@pytest.mark.parametrize(
    ("script", "why", "count"),
    [
        ("srun ./a", "", None),
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./a", "", None),
        ("export OMP_NUM_THREADS=8\nsrun ./a", "OMP_NUM_THREADS", 8),
        ("OMP_NUM_THREADS='4' ./a", "OMP_NUM_THREADS", 4),
        ("srun -c 8 ./a", "-c", 8),
        ("srun -c8 ./a", "-c", 8),
        ("srun --cpus-per-task=8 ./a", "--cpus-per-task", 8),
        ("srun -c $SLURM_CPUS_PER_TASK ./a", "", None),
        ("env OMP_NUM_THREADS=2 ./a", "OMP_NUM_THREADS", 2),
        ("# OMP_NUM_THREADS=2\n./a", "", None),
    ],
)
def test_where_threads_come_from(script: str, why: str, count: int | None) -> None:
    threads = threads_of(script)
    assert (why in threads.why) if why else threads.why == ""
    assert threads.count == count


def test_advisor_lines_with_bare_words_and_quotes() -> None:
    assert advisor_lines(SCRIPT) == {"goal": "performance", "workload": "big one"}
    assert advisor_lines("#ADVISOR off") == {"off": "on"}
    assert advisor_lines("#ADVISOR goal='x") == {"goal": "'x"}
    assert advisor_lines("#ADVISORY no=1") == {}


def test_rules_come_before_the_launcher_line() -> None:
    rule = ApplicationRule.from_dict(
        {
            "name": "stencil",
            "executable": ["stencil*"],
            "arguments": [r"--size (?P<size>\d+)"],
            "workload": "n{size}",
            "threads_from": ["MKL_NUM_THREADS"],
        }
    )
    found = recognise(SCRIPT, script_arguments=("64",), rules=[rule])
    assert (found.application, found.workload) == ("stencil", "n64")
    assert found.threads_from == ("MKL_NUM_THREADS",)
    other = recognise("srun ./stencil2 --it 5", rules=[rule])
    assert (other.application, other.workload) == ("stencil2", "--it 5")


def test_what_the_user_states_comes_before_the_rules() -> None:
    found = recognise(
        SCRIPT, stated={"application": ("mine", "#ADVISOR line"), "workload": ("w", "there")}
    )
    assert (found.application, found.workload) == ("mine", "w")
    assert found.how[0].code == "application-stated"


def test_a_rule_on_the_job_name_alone() -> None:
    rule = ApplicationRule(name="nightly", job_name=("night*",))
    assert recognise("./x", job_name="night-3", rules=[rule]).application == "nightly"
    assert recognise("./x", job_name="day", rules=[rule]).application == "x"


@given(st.text(max_size=400))
def test_no_text_breaks_the_reader(text: str) -> None:
    commands(text, ("a", "b"))
    threads_of(text)
    advisor_lines(text)
    found = recognise(text)
    assert found.application == clean_name(found.application)
    assert found.workload.isprintable()


@given(st.text(alphabet="ab;$`'\"\n\t\x1b\x00|&<>(){}*%\\ ", max_size=80))
def test_names_are_safe_to_print_and_store(text: str) -> None:
    name = clean_name(text)
    assert name.isprintable()
    assert not set(name) & set(";$`'\"|&<>(){}*\\\x1b\n")
