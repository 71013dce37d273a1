"""Runs that are ended early on a real Slurm: a real OpenMP program, watched and metered."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeping import POSED, TOP, configuration, finish, make_job
from testbed import Testbed

from advisor.core.configuration import Configuration
from advisor.instruments.characterise_runs import timing_library
from advisor.schedulers.base import RunResult, SweepJob, WatchPlan
from advisor.schedulers.slurm.scheduler import Slurm

LOWEST = configuration(28, POSED.frequencies_khz[0])
PROGRAM = r"""
#ifdef MPI
#include <mpi.h>
#endif
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static struct timespec now;  /* of the steps: who watches them looks at this clock, too, ... */
static int begun;            /* ... so that delays of the machine are none of a step */
int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!begun || clock != CLOCK_MONOTONIC) return syscall(SYS_clock_gettime, clock, time);
    *time = now;
    return 0;
}
static char notes[400];
static int rank, ranks = 1;
static void end(int number) { /* whoever is asked to end notes it, and waits until all were */
    static int asked; /* twice: with its step, and as a process of the run */
    if (__atomic_exchange_n(&asked, 1, __ATOMIC_RELAXED)) return;
    const int file = open(notes, O_CREAT | O_WRONLY | O_APPEND, 0600);
    struct stat now;
    if (write(file, "asked\n", 6) != 6) _exit(1);
    for (int i = 0; i < 80 && !fstat(file, &now) && now.st_size < 6 * ranks; i++) usleep(100000);
    _exit(128 + number);
}
static double khz(void) {
    double found = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "r");
    if (file && fscanf(file, "%lf", &found) == 1) fclose(file);
    return found;
}
static void go_on(double seconds) {
    const long long ns = now.tv_nsec + (long long)(seconds * 1e9);
    struct timespec next = {now.tv_sec + ns / 1000000000, ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL)) {}
    now = next;
}
int main(int argc, char **argv) { /* steps, seconds of one at top, highest kHz, loads, notes */
    const int steps = atoi(argv[1]);
    const double f = khz() / atof(argv[3]), step = atof(argv[2]) / (f * f);
    char path[400], draft[400];
#ifdef MPI
    double one = 1, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    snprintf(notes, sizeof notes, "%s", argv[5]);
    signal(SIGTERM, end);
    snprintf(path, sizeof path, "%s/%d.load", argv[4], (int)getpid());
    snprintf(draft, sizeof draft, "%s/.%d", argv[4], (int)getpid());
    clock_gettime(CLOCK_MONOTONIC, &now);
    begun = 1;
    const double begin = now.tv_sec + now.tv_nsec / 1e9;
    if (!rank) {
        FILE *load = fopen(draft, "w");
        fprintf(load, "%.1f %.3f %.3f %d\n", 100 + 200 * f * f, begin, begin + 1e4, (int)getpid());
        fclose(load);
        rename(draft, path);
    }
    go_on(4 * step); /* the meter, which counts a little ahead, has begun before the first step */
    for (int i = 0; i < steps; i++) {
        #pragma omp parallel num_threads(2)
        {
            #pragma omp master
            go_on(step);
            #pragma omp barrier
        }
#ifdef MPI
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
#endif
    }
    if (!rank) puts("whole");
#ifdef MPI
    MPI_Finalize();
#endif
    return 0;
}
"""


def watched_sweep(
    slurm: Slurm,
    folder: Path,
    text: str,
    *,
    second: Configuration = LOWEST,
    **more: Any,
) -> tuple[SweepJob, str, RunResult, RunResult]:
    """Return a sweep's job, its handle, its complete run and the second one."""
    (folder / "watch").mkdir()
    library = folder / "watch" / "watch.so"
    shutil.copyfile(timing_library(), library)
    job = make_job(
        folder,
        f"export OMP_WAIT_POLICY=passive\n{text}\necho the script went on",
        replace(second, threads_per_node=28, freq_khz=TOP),
        second,
        watch=WatchPlan(folder / "watch", library, 0.1),
        attempts=1,
        **more,
    )
    handle = slurm.submit_sweep(job)
    whole, ended = finish(slurm, job, handle)
    return job, handle, whole, ended


def check_ended(job: SweepJob, whole: RunResult, ended: RunResult) -> None:
    """Check that the second run was ended early and came out as the posed law says."""
    assert whole.ok and whole.extrapolated is None and whole.time_s is not None, whole
    f = job.runs[ended.seq].configuration.freq_khz / TOP
    reasons = [path.read_text() for path in (job.watch.folder / "whole").glob("*")]  # type: ignore[union-attr]
    assert ended.ok and ended.extrapolated is not None, (ended, reasons)
    assert ended.extrapolated["share"] < 1 and ended.spent_s is not None
    assert ended.time_s is not None
    assert ended.time_s / whole.time_s == pytest.approx(1 / f**2, rel=0.12)
    assert "known within 10 %" in ended.detail
    text = job.output(ended.seq, 1).read_text()
    assert "whole" not in text and "the script went on" not in text


def test_a_run_ends_once_its_time_and_energy_are_known(
    slurm: Slurm,
    testbed: Testbed,
    tmp_path: Path,
) -> None:
    source = tmp_path / "steps.c"
    source.write_text(PROGRAM)
    subprocess.run(
        ["gcc", "-O1", "-fopenmp", "-rdynamic", source, "-o", tmp_path / "steps"], check=True
    )
    loads = f"{testbed.directory}/nodes/$SLURMD_NODENAME/loads"
    command = f"srun {tmp_path}/steps 66 0.1 {TOP} {loads} {tmp_path}/notes"
    job, handle, whole, ended = watched_sweep(slurm, tmp_path, command)
    assert whole.energy_quality == "measured"
    check_ended(job, whole, ended)
    assert whole.energy_j is not None and ended.energy_j is not None
    f = job.runs[ended.seq].configuration.freq_khz / TOP
    power = (100 + 200 * f * f) / 300
    assert ended.energy_j / whole.energy_j == pytest.approx(power / f**2, rel=0.12)
    assert ended.energy_quality == "measured"
    assert (tmp_path / "notes").read_text() == "asked\n"  # by SIGTERM
    record = slurm.job(handle)
    assert record is not None and len([s for s in record.steps if s.numbered]) == 2
