"""Programs as they are watched: real ones, compiled here, under the real library."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.instruments.characterise_runs import timing_library
from advisor.phases import ring
from advisor.phases.complete import CompleteRun
from advisor.phases.ranks import ranks_apart
from advisor.phases.ring import SIZE, EventRings
from advisor_lab.phases.counted import CountedBeside
from advisor_lab.phases.inside import counted_periods, signals_inside
from advisor_lab.phases.watching import shape_of

Run = Callable[..., Any]
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

OPENMP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    const int steps = atoi(argv[1]);
    const char *then = argc > 2 ? argv[2] : "";
    double sum = 0;
    #pragma omp parallel num_threads(1)
    sum += 1;
    for (int i = 0; i < steps; i++) {
        #pragma omp parallel num_threads(1)
        {
            sum += 1;
            #pragma omp barrier
            #pragma omp single
            sum += 1;
        }
    }
    printf("%s %g\n", then, sum);
    fflush(stdout);
    if (!strcmp(then, "exec")) execl(argv[0], argv[0], "20", "again", NULL);
    if (!strcmp(then, "fork") && !fork()) execl(argv[0], argv[0], "20", "child", NULL);
    if (!strcmp(then, "hang")) pause();
    return 0;
}
"""
MPI = r"""
/* A library of MPI and Fortran's functions in it, which call its C ones. */
int MPI_Barrier(void *c) { return c != 0; }
int MPI_Sendrecv(void *a, int b, void *c, int d, int e, void *f, int g, void *h, int i, int j,
                 void *k, int *l) { *l = b + d + e + g + i + j; return 0; }
void mpi_barrier_(int *c, int *e) { *e = MPI_Barrier(0); (void)c; }
"""
RANKS = r"""
#include <stdio.h>
int MPI_Barrier(void *);
int MPI_Sendrecv(void *, int, void *, int, int, void *, int, void *, int, int, void *, int *);
void mpi_barrier_(int *, int *);
int main(void) {
    int wrong = 1, sum = 0;
    for (int i = 0; i < 12; i++) {
        MPI_Sendrecv(0, 1, 0, 2, 3, 0, 4, 0, 5, 6, 0, &sum);
        MPI_Barrier(0);
        mpi_barrier_(0, &wrong);
    }
    printf("sum %d %d\n", sum, wrong);
    return 0;
}
"""


def compiled(folder: Path, name: str, text: str, *flags: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run(["gcc", "-O1", str(source), "-o", str(folder / name), *flags], check=True)
    return folder / name


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    compiled(folder, "steps", OPENMP, "-fopenmp")
    compiled(folder, "libmpi.so.12", MPI, "-shared", "-fPIC")
    compiled(folder, "ranks", RANKS, str(folder / "libmpi.so.12"), f"-Wl,-rpath,{folder}")
    return folder


class Watched:
    """Runs programs under the library and reads what they leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.rings = EventRings(folder)
        self.environment = {
            **os.environ,
            "ADVISOR_WATCH": str(folder),
            "LD_PRELOAD": str(timing_library()),
        }

    def run(self, *argv: object, **more: str) -> list[str]:
        environment = {**self.environment, **more}
        done = subprocess.run(
            [*map(str, argv)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        self.printed = done.stdout
        return [site for _, site in self.rings.poll(ended=True)]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "rings")


def test_openmp_calls_are_events_with_the_same_sites_in_every_run(
    programs: Path, watched: Watched
) -> None:
    first = watched.run("sh", "-c", f"true; ls >/dev/null; {programs}/steps 30")
    assert len(first) == 1 + 30 * 3 and len(set(first)) == 4
    assert all(site.startswith("steps+0x") for site in first)
    (path,) = watched.folder.iterdir()  # shells and ls leave nothing
    assert path.stat().st_size == SIZE <= 64 * 1024
    (process,) = watched.rings.processes
    assert process.end_s and process.begin_s < process.last_s <= process.end_s
    assert process.last_s <= time.monotonic()
    assert watched.run(programs / "steps", 30) == first


def test_forks_and_execs_have_files_of_their_own(programs: Path, watched: Watched) -> None:
    watched.run(programs / "steps", 10, "exec")
    one, other = watched.rings.processes
    assert (one.pid, one.events, one.end_s) == (other.pid, 31, None)
    assert other.events == 61 and other.end_s is not None
    watched.run(programs / "steps", 5, "fork")
    deadline = time.monotonic() + 30
    while len([p for p in watched.rings.processes if p.end_s]) < 3:
        assert time.monotonic() < deadline
        watched.rings.poll()
    assert sorted(p.events for p in watched.rings.processes) == [16, 31, 61, 61]


def test_a_ring_can_be_read_after_a_kill(programs: Path, watched: Watched) -> None:
    child = subprocess.Popen(
        [str(programs / "steps"), "50", "hang"], env=watched.environment, stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert len(watched.rings.poll()) == 151
    (process,) = watched.rings.processes
    assert process.end_s is None and process.lost == 0


def test_what_comes_too_fast_is_counted(programs: Path, watched: Watched) -> None:
    events = watched.run(programs / "steps", 5000)
    (process,) = watched.rings.processes
    assert len(events) == process.events and process.events + process.lost == 15001
    assert watched.rings.lost == process.lost > 15001 - 4097


def test_mpi_is_watched_without_headers_and_no_call_counts_twice(
    programs: Path, watched: Watched
) -> None:
    sites = watched.run(programs / "ranks", PMI_RANK="3")
    assert watched.printed == "sum 21 0\n"  # twelve arguments arrive
    assert len(sites) == 36 and len(set(sites)) == 3
    assert [p.rank for p in watched.rings.leading()] == [3]
    watched.run(programs / "ranks", PMI_RANK="0")
    assert [p.rank for p in watched.rings.leading()] == [0]  # one rank tells of all


def test_ranks_that_do_not_iterate_together_are_named(tmp_path: Path) -> None:
    """Rank 2 is a worker that turns thrice as fast, rank 5 ends before it turns eight times."""
    for rank, step in ((0, 0.3), (1, 0.31), (2, 0.1)):
        write_ring(tmp_path / f"{rank}.0", rank, [i * step for i in range(int(12 / step))])
    assert ranks_apart(tmp_path) == "rank 2 takes 0.1 s for an iteration, rank 0 0.3 s"
    (tmp_path / "2.0").unlink()
    assert ranks_apart(tmp_path) == ""
    write_ring(tmp_path / "5.0", 5, [0.5, 1.0, 1.7])
    assert ranks_apart(tmp_path) == "rank 5 does not iterate as rank 0 does"
    (tmp_path / "0.0").unlink()
    assert "rank 5 does not iterate as rank 1" in ranks_apart(tmp_path)
    (tmp_path / "1.0").unlink()
    assert ranks_apart(tmp_path) == ""  # one alone


def test_a_rank_that_begins_first_does_not_stand_for_a_lower_one(tmp_path: Path) -> None:
    """Ranks begin one after the other: what a higher one does first is none of the run's events."""
    rings, times = EventRings(tmp_path), [i * 0.1 for i in range(20)]
    now = time.monotonic()
    write_ring(tmp_path / "1.0", 1, times[:1], begin_s=now + 3600)  # it has only just begun
    assert rings.poll() == []
    write_ring(tmp_path / "0.0", 0, times)
    assert len(rings.poll()) == 40 and [p.made for p in rings.processes] == [40, 2]
    alone = EventRings(tmp_path)
    (tmp_path / "0.0").unlink()
    assert alone.poll() == [] and len(alone.poll(ended=True)) == 2
    write_ring(tmp_path / "2.0", 2, times)  # in a second, a lower one would have come
    (tmp_path / "1.0").unlink()
    assert len(EventRings(tmp_path).poll()) == 40


def write_ring(path: Path, rank: int, times: list[float], *, begin_s: float = 1.0) -> None:
    """Write what the library leaves of a process with two call sites in turn."""
    head = len(times) * 2
    data = bytearray(ring.SIZE)
    fields = (ring._MAGIC, ring.SIZE, 1, rank + 1, int(begin_s * 1e9), 0, head, 2, 1, 0)
    ring._HEAD.pack_into(data, 0, *fields)
    data[ring._FILES_AT : ring._FILES_AT + 4] = b"prog"
    for site in range(2):
        struct.pack_into("<2Q", data, ring._SITES_AT + 16 * site, site + 1, 0)
    for i, t in enumerate(times):
        for site in range(2):
            word = round((t + site * 0.01) * 1e9) << 10 | site
            struct.pack_into("<Q", data, ring._RING_AT + 8 * (2 * i + site), word)
    path.write_bytes(data)


def test_without_room_a_program_goes_on_unwatched(programs: Path, watched: Watched) -> None:
    limited = f"ulimit -f 8; exec {programs}/steps 30"
    ignored = f"trap '' XFSZ; {limited}"
    assert watched.run("sh", "-c", ignored) == [] and "31" not in watched.printed
    assert list(watched.folder.iterdir()) == []
    assert watched.run(programs / "steps", 3, ADVISOR_WATCH=str(watched.folder / "gone")) == []


def test_show_says_that_the_disk_is_full(
    programs: Path, advisor: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = type("Usage", (), {"free": 0})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    shown = advisor("phases", "show", "--", "true").out
    assert "is full: a process that is watched takes 64 KB there" in shown
    assert "no call of OpenMP" not in shown


def test_show_watches_a_command_and_says_by_what(
    programs: Path, advisor: Run, watched: Watched
) -> None:
    shown = advisor("phases", "show", "--json", "--", programs / "steps", 40).json()
    assert (shown["source"], shown["events"]) == ("calls of OpenMP and MPI", 121)
    (phase,) = shown["phases"]
    assert (phase["iterations"], phase["period_events"]) == (40, 3)
    watched.run(programs / "steps", 12)
    assert "1 phase in" in advisor("phases", "show", watched.folder).out
    lines = "for i in 1 2 3 4 5 6 7 8 9; do echo step $i of 9; done"
    printed = advisor("phases", "show", "--", "sh", "-c", lines).out
    assert "by 9 lines on stdout" in printed and "no call of OpenMP or MPI was seen" in printed
    failed = advisor("phases", "show", "--json", "--", "sh", "-c", "exit 3")
    assert failed.code == 1 and failed.json()["source"] == "nothing that repeats"


def test_without_a_compiler_lines_are_left(
    advisor: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    done = advisor("phases", "show", "--", "/bin/sh", "-c", "echo 1; echo 2")
    assert done.code == 0 and "calls are not watched: no C compiler found" in done.out


def test_lines_that_differ_in_numbers_only_are_alike() -> None:
    assert shape_of("step 12: dt=1.5e-3  12,5%") == shape_of("step 7: dt=9 3%") == "step # dt=# #"


def test_nothing_that_was_watched_is_one_line(advisor: Run, tmp_path: Path) -> None:
    for argv in ((), ("gone",), (str(tmp_path),)):
        done = advisor("phases", "show", *argv)
        assert done.code in (2, 3) and done.err.count("\n") == 1


def test_counters_beside_a_run_show_what_is_inside_of_an_iteration() -> None:
    """An iteration of 0.5 s: 0.2 s at 3e9 instructions and 2e9 cycles, 0.3 s at 1e9 and 2e9."""
    marks = [i * 0.5 for i in range(81)]
    run = CompleteRun([0.0, *marks[1:-1], 40.0], ["begin", *["a"] * 79, "end"])
    at = [i * 0.07 for i in range(572)]  # slower than what is to be seen

    def total(t: float, first: float, then: float) -> float:
        whole, part = divmod(t, 0.5)
        each = 0.2 * first + 0.3 * then
        return whole * each + min(part, 0.2) * first + max(0.0, part - 0.2) * then

    counted = {
        "instructions": [(t, total(t, 3e9, 1e9)) for t in at],
        "cycles": [(t, 2e9 * t) for t in at],
        "cpu_s": [(t, 4 * t) for t in at],
    }
    ipc, mips, cores = signals_inside(run, counted)
    assert [(s.name, s.unit) for s in (ipc, mips, cores)] == [
        ("instructions per cycle", "IPC"),
        ("instructions", "MIPS"),
        ("cores in use", "cores"),
    ]
    assert ipc.folded.value[[20, 60, 80]] == pytest.approx([1.5, 0.5, 0.5], rel=0.03)
    assert mips.folded.value[[20, 80]] == pytest.approx([3000, 1000], rel=0.03)
    assert cores.folded.value == pytest.approx(4.0, rel=1e-3)
    assert ipc.folded.per_iteration == pytest.approx(0.9, rel=0.01)  # 0.9e9 of 1e9
    source, (stretch,) = counted_periods(counted)
    assert source == "instructions per second" and stretch.period_s == pytest.approx(0.5, rel=0.01)
    even = {"cpu_s": counted["cpu_s"], "instructions": counted["cycles"]}
    assert counted_periods(even) == ("", [])


def test_what_the_kernel_counts_of_a_command_is_read_while_it_runs() -> None:
    with CountedBeside() as counters:
        subprocess.run(["sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done"], check=True)
        counters.read()
    if "cpu_s" in counters.readings:  # a container may forbid all counters
        assert counters.readings["cpu_s"][-1][1] > 0
    assert "instructions" in counters.readings or counters.why_not
