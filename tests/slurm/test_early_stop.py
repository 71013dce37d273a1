"""Runs that are ended early on a real Slurm: a real OpenMP program, watched and metered."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from test_training import POSED, TOP, configuration, finish, make_job, slurm  # noqa: F401
from testbed import Testbed

from advisor.lab.watching import watch_library
from advisor.schedulers.base import WatchPlan
from advisor.schedulers.slurm.scheduler import Slurm

PROGRAM = r"""
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
static double khz(void) {
    double found = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "r");
    if (file && fscanf(file, "%lf", &found) == 1) fclose(file);
    return found;
}
int main(int argc, char **argv) { /* steps, seconds of one at top, highest kHz, loads */
    const int steps = atoi(argv[1]);
    const double f = khz() / atof(argv[3]), step = atof(argv[2]) / (f * f);
    char path[400], draft[400];
    signal(SIGTERM, argc > 5 ? SIG_IGN : SIG_DFL);
    snprintf(path, sizeof path, "%s/%d.load", argv[4], (int)getpid());
    snprintf(draft, sizeof draft, "%s/.%d", argv[4], (int)getpid());
    FILE *load = fopen(draft, "w");
    clock_gettime(CLOCK_MONOTONIC, &now);
    begun = 1;
    const double begin = now.tv_sec + now.tv_nsec / 1e9;
    fprintf(load, "%.1f %.3f %.3f %d\n", 100 + 200 * f * f, begin, begin + 1e4, (int)getpid());
    fclose(load);
    rename(draft, path);
    for (int i = 0; i < steps; i++) {
        #pragma omp parallel num_threads(2)
        {
            #pragma omp master
            {
                const long long ns = now.tv_nsec + (long long)(step * 1e9);
                struct timespec next = {now.tv_sec + ns / 1000000000, ns % 1000000000};
                while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL)) {}
                now = next;
            }
            #pragma omp barrier
        }
    }
    puts("whole");
    return 0;
}
"""


def test_a_run_ends_once_its_time_and_energy_are_known(
    slurm: Slurm,  # noqa: F811
    testbed: Testbed,
    tmp_path: Path,
) -> None:
    source = tmp_path / "steps.c"
    source.write_text(PROGRAM)
    subprocess.run(
        ["gcc", "-O1", "-fopenmp", "-rdynamic", source, "-o", tmp_path / "steps"], check=True
    )
    (tmp_path / "watch").mkdir()
    library = tmp_path / "watch" / "watch.so"
    shutil.copyfile(watch_library(), library)
    job = make_job(
        tmp_path,
        "export OMP_WAIT_POLICY=passive\n"
        f"srun {tmp_path}/steps 70 0.1 {TOP} {testbed.directory}/nodes/$SLURMD_NODENAME/loads $@\n"
        "echo the script went on",
        *(configuration(28, f) for f in (TOP, POSED.frequencies_khz[0])),
        watch=WatchPlan(tmp_path / "watch", library, 0.1),
        attempts=1,
    )
    handle = slurm.submit_sweep(job)
    whole, *ended = finish(slurm, job, handle)
    assert whole.ok and whole.extrapolated is None and whole.energy_quality == "measured"
    assert whole.time_s is not None and whole.energy_j is not None
    for result in ended:
        f = job.runs[result.seq].configuration.freq_khz / TOP
        assert result.ok and result.extrapolated is not None, result
        assert result.extrapolated["share"] < 1 and result.spent_s is not None
        assert result.time_s is not None and result.energy_j is not None
        assert result.time_s / whole.time_s == pytest.approx(1 / f**2, rel=0.12)
        power = (100 + 200 * f * f) / 300
        assert result.energy_j / whole.energy_j == pytest.approx(power / f**2, rel=0.12)
        assert result.energy_quality == "measured" and "known within 10 %" in result.detail
        text = job.output(result.seq, 1).read_text()
        assert "whole" not in text and "the script went on" not in text
    record = slurm.job(handle)
    assert record is not None and len([s for s in record.steps if s.numbered]) == 2
