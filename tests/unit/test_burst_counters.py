"""Counters of bursts, read inside of real programs: with the kernel's own, for want of others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.instruments.characterise_runs import timing_library
from advisor.phases.ring import EventRings
from advisor_lab.phases import burst_counters
from advisor_lab.phases.burst_counters import VARIABLE, BurstsBeside, wanted_of

Run = Callable[..., Any]
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

CLOCKS = (("instructions", 1, 1, 1.0), ("cycles", 1, 1, 1.0), ("bytes", 1, 2, 64.0))
"""The kernel's counts of a thread's ns, twice, and of its page faults: every machine has them."""

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#define OWN "what is mine stays mine, all of it, to the last byte of it all"
static volatile double sum;
static void work(int n) {
    #pragma omp parallel num_threads(1)
    for (int i = 0; i < n; i++) sum += i;
}
int main(int argc, char **argv) {
    const int steps = atoi(argv[1]), size = atoi(argv[2]);
    int ends[2], intact = 1;
    char text[64] = "";
    struct rlimit most;
    work(size);
    if (argc > 3 && !pipe(ends)) { /* all of its files closed, and others in all of their places */
        getrlimit(RLIMIT_NOFILE, &most);
        const int above = most.rlim_cur > 4096 ? 2048 : (int)most.rlim_cur / 2;
        for (int i = 5; i < above + 20; i++) close(i);
        for (int i = above; i < above + 8; i++) dup2(ends[0], i);
        if (write(ends[1], OWN, 63) < 0) return 3;
    }
    errno = 77;
    for (int i = 0; i < steps; i++) {
        work(20 * size);
        work(size);
    }
    intact = errno == 77;
    if (argc > 3) intact &= read(ends[0], text, 63) == 63 && !strncmp(text, "what is mine", 12);
    printf("%d\n", intact);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bursts")
    (folder / "p.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-fopenmp", folder / "p.c", "-o", folder / "p"], check=True)
    return folder / "p"


def counted() -> BurstsBeside:
    beside = BurstsBeside(wanted=CLOCKS)
    if not beside.choose():
        pytest.skip("no counters at all are permitted here")
    return beside


def watched(folder: Path, variable: str, *argv: object) -> EventRings:
    folder.mkdir()
    environment = {
        **os.environ,
        "ADVISOR_WATCH": str(folder),
        "LD_PRELOAD": str(timing_library()),
        VARIABLE: variable,
    }
    done = subprocess.run([*map(str, argv)], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    rings = EventRings(folder)
    rings.look()
    return rings


def test_a_burst_has_what_its_thread_counted_between_two_calls(
    program: Path, tmp_path: Path
) -> None:
    beside = counted()
    rings = watched(tmp_path / "rings", "1:1,1:1,1:2", program, 30, 600_000)
    beside.take(rings)
    beside.take(rings)  # nothing comes twice
    bursts = beside.table()
    assert (
        bursts is not None
        and bursts.size == 60
        and set(bursts.counters)
        == {
            "instructions",
            "cycles",
            "bytes",
        }
    )
    ns = bursts.counters["instructions"]
    assert (ns <= 1.05e9 * bursts.duration_s + 1e5).all()  # a thread's time is not more than passes
    assert np.median(ns[1::2]) > 5 * np.median(ns[::2])  # the first is what came before the loop


def test_without_the_variable_and_with_nonsense_nothing_is_counted(
    program: Path, tmp_path: Path
) -> None:
    for number, variable in enumerate(("", "x", "1:1;1:0", "ff:ff", "1:1," * 9)):
        rings = watched(tmp_path / str(number), variable, program, 3, 100)
        (process,) = rings.processes
        assert process.bursts() == [] and len(list(process.read())) == 7


def test_a_program_that_closes_all_files_keeps_its_data(program: Path, tmp_path: Path) -> None:
    rings = watched(tmp_path / "rings", "1:1,1:1", program, 10, 1000, "close")
    (process,) = rings.processes
    assert len(process.bursts()) <= 1 and len(list(process.read())) == 21


def test_of_many_bursts_some_are_drawn(program: Path, tmp_path: Path) -> None:
    counted()
    rings = watched(tmp_path / "rings", "1:1,1:1", program, 20_000, 1)
    (process,) = rings.processes
    assert process.events == 0 and len(process.bursts()) <= 128
    assert len(list(process.read())) <= 4096 and process.bursts() == []


def test_what_cannot_be_counted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    counted()
    beside = BurstsBeside(wanted=(*CLOCKS, ("loads", 250, 3, 1.0)))
    assert beside.choose() == "1:1,1:1,1:2"
    assert beside.notes[0].startswith("not counted of bursts: loads: ")
    none = BurstsBeside(wanted=(("instructions", 250, 1, 1.0), *CLOCKS[1:]))
    assert none.choose() == "" and none.table() is None
    assert none.notes[0].startswith("bursts have no counters: instructions: ")
    names = [w[0] for w in wanted_of("vendor_id : AuthenticAMD")]
    assert names[:2] == ["instructions", "cycles"] and "flops" in names and len(names) <= 7
    assert "flops" not in [w[0] for w in wanted_of("vendor_id : GenuineIntel")]


def test_bursts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burst_counters, "MOST_BURSTS", 50)
    beside = counted()
    for i in range(1000):
        beside._keep_burst((1.0, 0.1, 1e6 + i, 2e6, 1.0))
    bursts = beside.table()
    assert bursts is not None and bursts.size == 50
    assert bursts.counters["instructions"].max() > 1e6 + 500


def test_show_tells_the_kinds_of_bursts(
    program: Path, advisor: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted()
    monkeypatch.setattr(burst_counters, "wanted_of", lambda _: CLOCKS)
    shown = advisor("phases", "show", "--json", "--", program, 60, 600_000).json()
    kinds = shown["bursts"]
    assert 60 <= sum(k["bursts"] for k in kinds) <= 120
    assert sum(k["time_share"] for k in kinds) == pytest.approx(1)
    assert {"per_s", "per_instruction"} == set(kinds[-1]["counters"]["bytes"])
    monkeypatch.setattr(burst_counters, "wanted_of", lambda _: (("instructions", 250, 1, 1.0),))
    plain = advisor("phases", "show", "--", program, 10, 100).out
    assert "bursts have no counters: instructions" in plain and "IPC" not in plain
