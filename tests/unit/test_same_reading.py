"""What is read the quick way is what the plain way reads: signs, comments, room, predicted rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core import script_use
from advisor.core.configuration import Configuration
from advisor.core.option import Z90, Option, Row, estimated_rows, row_of
from advisor.core.parameters import parameters_of
from advisor.core.shell import read_shell
from advisor.core.signs import Signs
from advisor.service.handlers import _room

SIGNS = {n: s for n, s in vars(script_use).items() if isinstance(s, Signs)}
PIECES = (
    "map_cpu",
    "mask_ldom",
    "rank_",
    "_cpu",
    "KMP_HW_SUBSET",
    "OMP_THREAD_LIMIT",
    "KMP_AFFINITY=",
    "GOMP_CPU_AFFINITY",
    "OMP_PLACES=",
    "I_MPI_PIN_DOMAIN=",
    "I_MPI_PIN",
    "MV2_CPU_MAPPING=",
    "OMP_PROC_BIND=",
    "nproc",
    "OMP_NUM_THREADS",
    "VECLIB_NUM_THREADS",
    "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "lscpu",
    "/proc/cpuinfo",
    "_NPROCESSORS_ONLN",
    "NCPUS",
    "PBS_NODEFILE",
    "PBS_NP",
    "PBS_NUM_PPN",
    "numactl",
    "taskset",
    "SLURM_CPU_FREQ_REQ",
    "ADV_SWEEP_CAP_KHZ",
    "SLURM_JOB_NTASKS",
    "SLURM_NPROCS",
    "SLURM_MEM_PER_NODE",
    "SLURM_TRES_X",
    "SLURM_JOB_TASKS",
    "prlimit",
    "SLURM_",
    "JOB_",
    "=",
    " ",
    "1",
    "x",
    "é",
    "\n",
)


@pytest.mark.parametrize("name", sorted(SIGNS))
@given(text=st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_a_pattern_is_sought_wherever_it_can_match(name: str, text: str) -> None:
    signs = SIGNS[name]
    for part in ("", *PIECES):
        quick, plain = signs.search(part + text), signs.pattern.search(part + text)
        assert (quick and quick.span()) == (plain and plain.span())


def test_there_are_signs_at_all() -> None:
    assert len(SIGNS) >= 7


WORDS = (
    "a",
    "./app",
    "-n",
    "4",
    "e#f",
    "$X",
    "'q r'",
    '"d $X"',
    "A=1",
    "x\\\ny",
    "${Y}z",
    "$(b c)",
)
JOINTS = (" ", " ", "\n", "; ", " && ", " | ", " > ", " &\n")
lines = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(JOINTS)), max_size=12)


@given(lines)
def test_comments_change_nothing(pairs: list[tuple[str, str]]) -> None:
    plain = "".join(word + joint for word, joint in pairs)
    noted = "".join(word + joint.replace("\n", " # c d\n#x\n\t# y\n") for word, joint in pairs)
    bare, commented = read_shell(plain), read_shell(f"#!/bin/sh\n{noted}\n# end")
    assert commented.commands == bare.commands
    assert commented.text == bare.text
    assert bool(commented.problem) == bool(bare.problem)


def test_an_end_of_line_ends_chains_heads_and_lists() -> None:
    shell = read_shell("a &&\nb\nc & d\nfor i in 1 2\ndo e\ndone\ncat <<E\nf\nE\ng")
    conditional = {c.words[0]: c.conditional for c in shell.commands}
    assert conditional == {
        "a": False,
        "b": False,
        "c": False,
        "d": False,
        "e": True,
        "cat": False,
        "g": False,
    }
    assert [c.words[0] for c in shell.commands if c.background] == ["c"]


NO_NUMBER = ("in", "-n", "--size", "run/a", "=", "x=y", "-x", "a:b", "²", "mesh.dat")


@given(st.lists(st.sampled_from(NO_NUMBER), max_size=5), st.sampled_from(("7", "٣", "4M", "2x3")))
def test_words_without_a_digit_name_numbers_and_are_none(words: list[str], number: str) -> None:
    bare, line = parameters_of(" ".join(words)), parameters_of(" ".join([*words, number]))
    assert bare.values == ()
    assert bare.family == " ".join(words)
    last = words[-1] if words else ""
    options = ("-n", "--size", "-x")
    others = [i for i, w in enumerate(words) if w not in options and i and words[i - 1] in options]
    position = sum(w not in options for w in words) - len(others) + 1
    named = last.lstrip("-") if last in options else f"arg{position}"
    assert [name.partition(".")[0] for name, _ in line.values] == [named] * (1 + ("x" in number))


def left(value: Any, room: int, depth: int = 5) -> int:
    """Count as documented: characters, and four for each part of a list or an object."""
    if isinstance(value, str):
        return room - len(value)
    if not isinstance(value, dict | list):
        return room
    if not depth:
        return -(10**9)
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return room + sum(left(p, 0, depth - 1) - 4 for p in parts)


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
)


@given(values, st.integers(0, 60))
def test_room_is_what_all_parts_leave(value: Any, room: int) -> None:
    assert (_room(value, room) < 0) == (left(value, room) < 0)


def test_predicted_rows_are_the_logarithms_of_the_table() -> None:
    measured = [
        row_of(
            Option(
                Configuration("bdw", 2, 1, t, 2_000_000),
                5.0,
                4.0,
                6.0,
                7.0,
                6.0,
                8.0,
                confirmed=t == 4,
            )
        )
        for t in (4, 8)
    ]
    columns = ((1.0, 2.0), (0.1, 0.2), (3.0, 4.0), (0.3, 0.4))
    rows = estimated_rows(measured, 16, iter(columns), 0.05, 0.06)
    for row, was, t, sigma_t, e, sigma_e in zip(rows, measured, *columns, strict=True):
        half_t, half_e = Z90 * math.hypot(sigma_t, 0.05), Z90 * math.hypot(sigma_e, 0.06)
        expected = Row(
            16,
            1,
            was.threads_per_node,
            2_000_000,
            math.exp(t),
            math.exp(t) / math.exp(half_t),
            math.exp(t) * math.exp(half_t),
            math.exp(e),
            math.exp(e) / math.exp(half_e),
            math.exp(e) * math.exp(half_e),
            t,
            sigma_t,
            e,
            sigma_e,
            16 if was.confirmed else 0,
        )
        assert row == expected
        assert isinstance(row, Row)
    assert [r.nodes for r in estimated_rows(measured, 0, iter(columns), 0.05, 0.06)] == [2, 2]
