"""The routine running: sampled beside real programs, folded, and told from active waiting."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.instruments.elf import RoutineNames
from advisor.phases.complete import CompleteRun
from advisor_lab.phases import sampled
from advisor_lab.phases.inside import counted_periods, routines_inside, signals_inside, usable
from advisor_lab.phases.routines import RunningCode, active_waiting, fold_routines, running_code
from advisor_lab.phases.sampled import CodePlaces, SampledBeside

Run = Callable[..., Any]
GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
static volatile int mine;
static void own(int number) { mine += number == SIGPROF; }
__attribute__((noinline)) double assemble(int n) {
    volatile double s = 0;
    for (int i = 0; i < n; i++) s += i * 0.5;
    return s;
}
__attribute__((noinline)) double solve(int n) {
    volatile double s = 0;
    for (int i = 0; i < n; i++) s += i * 0.25;
    return s;
}
int main(void) {
    double sum = 0;
    signal(SIGPROF, own); /* whoever watches must leave it alone */
    for (int step = 0; step < 40; step++) {
        #pragma omp parallel num_threads(1)
        sum += solve(9000000);
        #pragma omp parallel num_threads(1)
        sum += assemble(3000000);
    }
    printf("%.0f %d\n", sum, mine);
    return 0;
}
"""


def posed(waiting: float = 0.0, iterations: int = 40) -> tuple[RunningCode, CompleteRun]:
    """Iterations of 1 s: 0.6 s of a on two cores, 0.4 s of b on one while the other waits.

    ``waiting`` is the share of its time that the other does so actively.
    """
    times, which = [], []
    for i in range(iterations):
        for k in range(200):
            running = [0, 0] if k < 120 else [1, 2] if k % 10 < 10 * waiting else [1]
            times += [i + (k + 0.5) / 200] * len(running)
            which += running
    code = RunningCode(
        np.array(times),
        np.array(which),
        ("a", "b", "waiting in libgomp.so.1"),
        frozenset({"waiting in libgomp.so.1"}),
        0.005,
    )
    marks = [float(i) for i in range(iterations + 1)]
    return code, CompleteRun(marks, ["begin", *["x"] * (iterations - 1), "end"])


def test_routines_are_folded_into_the_iteration() -> None:
    code, run = posed(waiting=1.0)
    folded = fold_routines(code, np.array(run.times))
    assert folded is not None and folded.iterations == 40 and folded.samples == len(code.times)
    assert folded.stretches() == [(0.0, 0.6, "a"), (0.6, 1.0, "b")]
    a, b, waiting = folded.routines
    assert (a.name, b.name) == ("a", "b") and a.share == pytest.approx(0.6)
    assert a.cores[:24] == pytest.approx(2.0) and a.cores[24:] == pytest.approx(0.0)
    assert waiting.cores[24:] == pytest.approx(1.0) and (a.low <= a.cores).all()
    assert fold_routines(code, np.array(run.times[:5])) is None
    assert routines_inside(run, None) is None


def test_active_waiting_is_seen_and_what_it_spoils_is_not_used() -> None:
    even = {
        "instructions": [(0.02 * i, 1e7 * i) for i in range(2000)],
        "cpu_s": [(0.02 * i, 0.04 * i) for i in range(2000)],
    }
    code, run = posed(waiting=1.0)
    why = active_waiting(code, 2.0, {})
    assert code.spoilt and "20% of the processor time goes by waiting in libgomp.so.1" in why
    assert "OMP_WAIT_POLICY=passive" in why
    assert "OMP_WAIT_POLICY" not in active_waiting(code, 2.0, {"OMP_WAIT_POLICY": "PASSIVE"})
    left = usable(even, code, why)
    assert set(left) == {"at_work_s"}
    source, (stretch,) = counted_periods(left)
    assert source == "cores at work, waiting left out"
    assert stretch.period_s == pytest.approx(1.0, rel=0.01)
    (signal,) = signals_inside(run, left)
    assert signal.name == "cores at work"
    assert signal.folded.value[[30, 80]] == pytest.approx([2.0, 1.0], rel=0.1)
    assert usable(even, None, why) == {}
    calm, _ = posed(waiting=0.1)
    assert active_waiting(calm, 2.0, {}) == "" and usable(even, calm, "") is even


def test_where_nothing_was_sampled_several_cores_count_only_with_passive_waits() -> None:
    assert "was not seen" in active_waiting(None, 2.0, {})
    assert active_waiting(None, 1.0, {}) == ""
    for name, value in (("OMP_WAIT_POLICY", "passive"), ("GOMP_SPINCOUNT", "0")):
        assert active_waiting(None, 2.0, {name: value}) == ""


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("<IHH", kind, 0, 8 + len(body)) + body


def map_record(pid: int, start: int, length: int, offset: int, name: str, time_ns: int) -> bytes:
    text = name.encode() + b"\0"
    text += b"\0" * (-len(text) % 8)
    return record(
        1,
        struct.pack("<IIQQQ", pid, pid, start, length, offset)
        + text
        + struct.pack("<IIQ", pid, pid, time_ns),
    )


def sample(pid: int, address: int, time_ns: int) -> bytes:
    return record(9, struct.pack("<QIIQ", address, pid, pid, time_ns))


def fork(pid: int, parent: int, time_ns: int) -> bytes:
    return record(7, struct.pack("<IIIIQ", pid, parent, pid, parent, time_ns) + bytes(16))


def test_addresses_are_places_in_files_also_of_forks_and_after_an_exec() -> None:
    beside = SampledBeside()
    beside._read_records(
        map_record(7, 0x1000, 0x1000, 0x400, "/bin/one", 10)
        + sample(7, 0x1010, 20)
        + fork(8, 7, 30)
        + sample(8, 0x1020, 40)
        + map_record(7, 0x1000, 0x1000, 0, "/bin/two", 50)
        + sample(7, 0x1010, 60)
        + sample(8, 0x1010, 70)
        + sample(7, 0x9000, 80)
        + record(2, struct.pack("<QQ", 1, 5))
    )
    places = beside.places()
    assert beside.lost == 5
    assert [places.places[i] for i in places.at] == [
        ("/bin/one", 0x410),
        ("/bin/one", 0x420),
        ("/bin/two", 0x10),
        ("/bin/one", 0x410),
        ("", 0),
    ]
    assert places.times.tolist() == pytest.approx([2e-8, 4e-8, 6e-8, 7e-8, 8e-8])


def test_samples_are_bounded_and_what_is_left_stands_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampled, "MOST_SAMPLES", 1000)
    beside = SampledBeside()
    for i in range(10_000):
        beside._read_records(sample(7, 0x1010, 1_000_000 * i))
    places = beside.places()
    assert len(places.times) <= 1000
    assert len(places.times) * places.every_s == pytest.approx(10_000 * beside.every_s, rel=0.01)


def test_runtimes_wait_and_names_are_readable(tmp_path: Path) -> None:
    files = (
        "/x/libgomp.so.1.0.0",
        "/x/libmpi.so.40.30",
        "/x/openmpi3/mca_btl_vader.so",
        "/x/libmine.so",
        "[vdso]",
        "",
    )
    places = CodePlaces(np.arange(6.0), np.arange(6), tuple((f, 16) for f in files), 0.001)
    code = running_code(places)
    assert code.waits == {f"waiting in {Path(f).name}" for f in files[:3]}
    assert code.names[3:] == ("(libmine.so)", "(vdso)", "(no file)")
    assert code.waiting_share == pytest.approx(0.5)
    assert "OMP_WAIT_POLICY" in active_waiting(code, 2.0, {})
    mpi = CodePlaces(np.arange(5.0), np.arange(5), places.places[1:], 0.001)
    waiting = active_waiting(running_code(mpi), 2.0, {})  # no advice on OpenMP where it is MPI
    assert "40% of the processor time" in waiting and "OMP_WAIT_POLICY" not in waiting
    for text in (b"", b"\x7fELF\x02\x01", b"#!/bin/sh\n" * 20):
        path = tmp_path / "odd"
        path.write_bytes(text)
        assert RoutineNames(path).at(0) == ""


@pytest.mark.slow
@GCC
def test_the_routines_of_a_real_program_are_shown(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(PROGRAM)
    program = tmp_path / "p"
    subprocess.run(["gcc", "-O1", "-fopenmp", tmp_path / "p.c", "-o", program], check=True)
    alone = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    picture = tmp_path / "inside.svg"
    command = ("sh", "-c", f"{program} >{tmp_path}/printed; true")
    done = advisor("phases", "show", "--plot", picture, "--", *command)
    assert (tmp_path / "printed").read_text() == alone and alone.endswith(" 0\n")  # no SIGPROF came
    with SampledBeside() as beside:
        pass
    if beside.why_not:
        assert beside.why_not in done.out
        return
    assert "the routine running, from" in done.out and "solve" in picture.read_text()
    shown = advisor("phases", "show", "--json", "--", *command).json()
    routines = {r["name"]: r for r in shown["routines"]}
    assert routines["solve"]["share"] > routines["assemble"]["share"] > 0.05
    assert np.argmax(routines["solve"]["cores"]) < np.argmax(routines["assemble"]["cores"])
