"""Programs of a real MPI as they are watched, C and Fortran, started by its mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.instruments.characterise_runs import timing_library
from advisor.phases.ring import EventRings

Run = Callable[..., Any]
MPIS = [m for m in ("mpich", "openmpi") if shutil.which(f"mpicc.{m}")]
if not MPIS and shutil.which("mpicc"):
    MPIS = [""]
pytestmark = pytest.mark.skipif(not MPIS, reason="needs an MPI with its compiler wrapper (mpicc)")

STEPS = 12
CALLS_C = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    int rank, ranks, level, done;
    double sent = 1, got = 0, sum = 0, *shared;
    MPI_Request request[2];
    MPI_Status status[2];
    MPI_Win window;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Win_allocate(sizeof *shared, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
    const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < 12; i++) {
        MPI_Sendrecv(&sent, 1, MPI_DOUBLE, right, 1, &got, 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                     status);
        MPI_Irecv(&got, 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, request);
        MPI_Isend(&sent, 1, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, request + 1);
        for (done = 0; !done;) MPI_Testall(2, request, &done, status);
        MPI_Iallreduce(&got, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
        MPI_Wait(request, status);
        MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window);
        MPI_Put(&sent, 1, MPI_DOUBLE, right, 0, 1, MPI_DOUBLE, window);
        MPI_Win_unlock(right, window);
#pragma omp parallel num_threads(2)
        if (level == MPI_THREAD_MULTIPLE) { /* each thread with itself; one of them is watched */
            int tag = (int)((size_t)&tag >> 8 & 1023);
            MPI_Sendrecv_replace(&tag, 1, MPI_INT, rank, tag, rank, tag, MPI_COMM_WORLD,
                                 MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
    if (!rank) printf("sum %g of %d ranks\n", sum, ranks);
    fflush(stdout);
    if (argc > 1) MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Finalize();
    return 0;
}
"""
FORTRAN = """
program calls
  use %s
  implicit none
  integer :: i, rank, ranks, right, left, wrong
  %s
  real(8) :: sent(2) = 1, got(2), total(2)
  call MPI_Init(wrong)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, wrong)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, wrong)
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  do i = 1, 12
    wrong = 77
    call MPI_Sendrecv(sent, 2, MPI_DOUBLE_PRECISION, right, 1, got, 2, &
      MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, %s, wrong)
    if (wrong /= 0) stop 7
    call MPI_Irecv(got, 2, MPI_DOUBLE_PRECISION, left, 2, MPI_COMM_WORLD, request(1), wrong)
    call MPI_Isend(sent, 2, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, request(2), wrong)
    call MPI_Waitall(2, request, states, wrong)
    call MPI_Allreduce(got, total, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, wrong)
    call MPI_Barrier(MPI_COMM_WORLD, wrong)
  end do
  if (rank == 0) print '(a,i0)', 'sum ', nint(total(1))
  call MPI_Finalize(wrong)
end program
"""
MODULES = {
    "mpi": ("integer :: request(2), states(MPI_STATUS_SIZE, 2)", "states(:, 1)"),
    "mpi_f08": ("type(MPI_Request) :: request(2)\n  type(MPI_Status) :: states(2)", "states(1)"),
}
OUT_OF_SIGHT = r"""
#include <dlfcn.h>
int main(int argc, char **argv) { /* as Python loads a module */
    void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*work)(void) = module ? (int (*)(void))dlsym(module, "work") : 0;
    return work ? work() : 1;
}
"""
MODULE = r"""
#include <mpi.h>
int work(void) {
    MPI_Init(0, 0);
    for (int i = 0; i < 12; i++) MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
"""


class Mpi:
    """Builds and starts programs of one MPI."""

    def __init__(self, name: str, folder: Path) -> None:
        self.suffix, self.folder = f".{name}" if name else "", folder

    def build(self, text: str, *flags: str, wrapper: str = "mpicc", kind: str = "c") -> Path:
        source = self.folder / f"program.{kind}"
        source.write_text(text)
        program = self.folder / "program"
        command = [f"{wrapper}{self.suffix}", "-O1", *flags, str(source), "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return program

    def command(self, *argv: object, ranks: int = 2) -> list[str]:
        return [f"mpirun{self.suffix}", "-n", str(ranks), *map(str, argv)]

    def watched(self, *argv: object, ranks: int = 2) -> tuple[int, str, list[Counter[str]]]:
        """Return exit code, output, and the events of each rank by their site."""
        rings = self.folder / "rings"
        rings.mkdir()
        environment = {
            **os.environ,
            "ADVISOR_WATCH": str(rings),
            "LD_PRELOAD": str(timing_library()),
        }
        done = subprocess.run(
            self.command(*argv, ranks=ranks),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        found = EventRings(rings)
        found.look()
        by_rank = sorted(found.processes, key=lambda p: -1 if p.rank is None else p.rank)
        assert [p.rank for p in by_rank] == list(range(ranks)), done.stderr  # no launcher of it
        return done.returncode, done.stdout, [Counter(s for _, s in p.read()) for p in by_rank]


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mpi:
    for name in (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_rmaps_base_oversubscribe",
    ):
        monkeypatch.setenv(name, "1")
    return Mpi(request.param, tmp_path)


def test_every_call_is_one_event_of_its_site_on_every_rank(mpi: Mpi) -> None:
    program = mpi.build(CALLS_C, "-fopenmp")
    code, printed, ranks = mpi.watched(program)
    assert (code, printed) == (0, "sum 2 of 2 ranks\n")
    for events in ranks:
        assert all(site.startswith("program+0x") for site in events)
        # MPI_Init and MPI_Finalize; ten calls and a parallel region; MPI_Testall is none
        assert sorted(events.values()) == [1, 1, *[STEPS] * 11]
    assert ranks[0] == ranks[1]


def test_an_abort_leaves_what_was_seen(mpi: Mpi) -> None:
    code, _, ranks = mpi.watched(mpi.build(CALLS_C), "abort")
    assert code != 0 and all(sum(events.values()) >= 1 + STEPS * 9 for events in ranks)


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="needs gfortran")
@pytest.mark.parametrize("module", MODULES)
def test_fortran_calls_arrive_whole_and_count_once(mpi: Mpi, module: str) -> None:
    """MPI_Sendrecv has thirteen arguments in Fortran, of which the last says whether it worked."""
    text = FORTRAN % (module, *MODULES[module])
    code, printed, ranks = mpi.watched(mpi.build(text, wrapper="mpif90", kind="f90"))
    assert (code, printed) == (0, "sum 2\n")
    for events in ranks:
        assert all(site.startswith("program+0x") for site in events)
        assert sorted(events.values()) == [1, 1, *[STEPS] * 6]


def test_an_mpi_that_is_loaded_out_of_sight_still_serves(mpi: Mpi, tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    mpi.build(MODULE, "-shared", "-fPIC").rename(module)
    loader = tmp_path / "loader.c"
    loader.write_text(OUT_OF_SIGHT)
    subprocess.run(["gcc", loader, "-o", tmp_path / "loader", "-ldl"], check=True)
    code, _, ranks = mpi.watched(tmp_path / "loader", module)
    assert code == 0
    for events in ranks:
        assert sorted(events.values()) == [1, 1, STEPS]
        assert all(site.startswith("module.so+0x") for site in events)


def test_show_names_the_ranks_and_the_lowest_stands_for_all(mpi: Mpi, advisor: Run) -> None:
    shown = advisor(
        "phases", "show", "--json", "--", *mpi.command(mpi.build(CALLS_C), ranks=3)
    ).json()
    assert shown["source"] == "calls of OpenMP and MPI" and shown["events"] == 2 + STEPS * 10
    made = {p["rank"]: p["events"] for p in shown["processes"]}
    assert made == {rank: 2 + STEPS * 10 for rank in range(3)}
    assert [p["iterations"] for p in shown["phases"]] == [STEPS]
