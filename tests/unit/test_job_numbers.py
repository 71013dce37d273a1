"""Numbers of a job that its script works out; bash says what they come to."""

from __future__ import annotations

import random
import subprocess

import pytest

from advisor.core.job_numbers import job_number, number_of
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import UnclearError, shape
from advisor.core.script_use import use_of_script

_OPERANDS = (
    "2",
    "14",
    "3",
    "$N",
    "N",
    "${N}",
    "$PBS_NP",
    "PBS_NUM_NODES",
    "$((PBS_NP/2))",
    "0",
    "07",
)


def _drawn(luck: random.Random, depth: int) -> str:
    if depth == 0 or luck.random() < 0.3:
        return luck.choice(_OPERANDS[:-3] if luck.random() < 0.9 else _OPERANDS)
    sides = (_drawn(luck, depth - 1), _drawn(luck, depth - 1))
    text = luck.choice(("{} + {}", "{}*{}", "{} /{}", "{} % {}", "{}-{}")).format(*sides)
    return f"({text})" if luck.random() < 0.5 else text


def test_what_is_worked_out_is_what_bash_works_out() -> None:
    luck = random.Random(5)
    words = [f"$(({_drawn(luck, 3)}))" for _ in range(400)]
    lines = [f"(echo {word}) 2> /dev/null || echo none" for word in words]
    script = "\n".join(["N=6 PBS_NP=56 PBS_NUM_NODES=2", *lines])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    known = 0
    for word, said in zip(words, done.stdout.split(), strict=True):
        number = job_number(word, lambda name: "6" if name == "N" else "")
        found = number if number.isdecimal() else str(number_of(number, 56, 2) or "")
        known += bool(found)
        assert found in ("", said), word
    assert known > 150


@pytest.mark.parametrize(
    "word",
    ["$((N))", "$((M * 2))", "$((2 ** 3))", "$((N++))", "$((1 ? 2 : 3))", "$((08))", "$((", "28"],
)
def test_what_is_not_known_is_no_number(word: str) -> None:
    assert job_number(word, lambda name: None if name == "N" else "") == ""


def test_what_is_long_or_deep_is_not_followed() -> None:
    assert job_number(f"$(({'(' * 5000}1{')' * 5000}))", lambda _: "") == ""
    deep = "(" * 99 + "PBS_NP" + ")" * 95
    assert number_of(f"$(({deep}))", 1, 1) is None


NODES = "NNODES=`wc -l < $PBS_NODEFILE`\nNRANKS=4\n"


@pytest.mark.parametrize(
    ("script", "nodes", "tasks", "ranks"),
    [
        ("mpiexec -n $((2*14)) ./a", 1, 1, 28),
        ("mpiexec -n $[2*14] ./a", 1, 28, 28),
        ("mpiexec -n 56 -ppn 28 ./a", 2, 56, 28),
        ("mpiexec -n 56 --ppn 28 ./a", 2, 2, 28),
        ("mpiexec -n 56 --ppn 14 ./a", 2, 56, None),
        ("mpiexec -n 28 -ppn 28 ./a", 2, 56, None),
        ("mpiexec -ppn 28 ./a", 2, 56, None),
        ("mpirun -npernode 28 -np 56 ./a", 2, 56, 28),
        ("mpirun -N 28 -np 56 ./a", 2, 56, 28),
        ("mpirun -N 2 -np 56 ./a", 2, 56, None),
        ("aprun -n 16 -N 8 ./a", 2, 2, 8),
        ("aprun -n 16 -N 8 ./a", 2, 32, 8),
        ("aprun -n 16 -N 8 ./a", 4, 32, None),
        ("aprun -n 16 ./a", 2, 32, None),
        (f"{NODES}mpiexec -n $((NNODES*NRANKS)) --ppn $NRANKS ./a", 2, 2, 4),
        (
            f"{NODES}NTOT=$(( NNODES * NRANKS ))\nmpiexec -n ${{NTOT}} --ppn ${{NRANKS}} ./a",
            2,
            2,
            4,
        ),
        ("N=$(sort -u $PBS_NODEFILE | wc -l)\nmpirun -np $((N*7)) ./a", 2, 14, 7),
        ("N=$(sort -u $PBS_NODEFILE | wc -l)\nmpirun -np $((N*7)) ./a", 2, 28, None),
        ("mpirun -np $(wc -l < $PBS_NODEFILE) ./a", 2, 56, 28),
        ("mpirun -np $PBS_NP ./a", 2, 56, 28),
        ("mpirun -np $((PBS_NP/2)) ./a", 1, 56, 28),
        ("PBS_NP=$(cat mine)\nmpirun -np $((PBS_NP)) ./a", 1, 56, None),
        ("N=${N:-4}\nmpirun -np $((N)) ./a", 1, 56, None),
        ("read N < x\nmpirun -np $((N*2)) ./a", 1, 56, None),
        ("mpirun -np '$((4))' ./a", 1, 56, None),
        ("mpirun -c 4 ./a", 1, 56, 4),
        ("mpirun -np 4 -c 7 ./a", 1, 56, 4),
    ],
)
def test_ranks_of_a_node_by_the_launchers_line(
    script: str, nodes: int, tasks: int, ranks: int | None
) -> None:
    request = JobRequest(
        "pbs",
        "queuejob",
        "u",
        1,
        nodes=nodes,
        ntasks=tasks,
        ntasks_per_node=tasks // nodes,
        exclusive=True,
    )
    use = use_of_script(script)
    if ranks is None and use.obstacle[1]:
        assert "it is not known which options mpirun gets" in use.obstacle[1]
    elif ranks is None:
        with pytest.raises(UnclearError):
            shape(request, 28, use)
    else:
        assert use.obstacle == ("", "")
        assert shape(request, 28, use) == (nodes, ranks)


def test_a_list_grows_by_what_is_added_to_it() -> None:
    use = use_of_script('A=(-np 4)\nA+=(--ppn 4)\nA+=(--cpu-bind depth)\nmpiexec "${A[@]}" ./a')
    assert (use.obstacle, use.ranks, use.ranks_per_node) == (("", ""), 4, 4)
    assert use_of_script('A+=(-np 4)\nmpirun "${A[@]}" ./a').obstacle[0]


def test_pals_own_options_are_known() -> None:
    line = "mpiexec -n 4 --ppn 4 --depth=7 --cpu-bind depth --env A=1 -env B=2 --line-buffer ./a"
    use = use_of_script(line)
    assert (use.obstacle, use.ranks) == (("", ""), 4)
    assert use_of_script("mpiexec -n 4 --cpu-bind list:0:1:2:3 ./a").node_type


def test_what_fetches_files_is_no_program() -> None:
    lines = "trap 'clean_scratch' TERM EXIT\nwget -q http://x/data.tgz\nrsync -a x: .\nmpirun ./a\n"
    assert use_of_script(lines).obstacle == ("", "")
