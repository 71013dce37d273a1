"""Runs of a sweep that are ended early on PBS: a real OpenMP program, watched and metered."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from test_pbs_site import Site, site  # noqa: F401

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.instruments.characterise_runs import timing_library
from advisor.phases.complete import CompleteRun, load_complete
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob, WatchPlan
from advisor.schedulers.early import keep_complete, why_none
from advisor.schedulers.pbs import scheduler as backend

STEP_S, STEPS = 0.25, 240
PLACE = Configuration("bdw", 1, 1, 28, 0)
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv) { /* steps, seconds of one */
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (int i = 0; i < atoi(argv[1]); i++) {
        #pragma omp parallel num_threads(1)
        {
            const long long ns = next.tv_nsec + (long long)(atof(argv[2]) * 1e9);
            next.tv_sec += ns / 1000000000;
            next.tv_nsec = ns % 1000000000;
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
        }
    }
    puts("whole");
    return 0;
}
"""


@contextmanager
def metering(site: Site) -> Iterator[None]:  # noqa: F811
    """Move the node's meter all the time: 300 W."""
    over = threading.Event()
    zone = site.sys.root / "class/powercap/intel-rapl:0/energy_uj"
    (site.root / "metered").touch()

    def turn() -> None:
        spent, last = 0.0, time.monotonic()
        while not over.wait(0.02):
            now = time.monotonic()
            spent += 300 * (now - last) * 1e6
            last = now
            partial = zone.with_name("partial")
            partial.write_text(f"{spent:.0f}\n")
            partial.replace(zone)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_runs_on_pbs_end_once_their_time_and_energy_are_known(
    site: Site,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A complete run is kept as it was seen; beside a longer one of its kind another is ended.

    Its steps are in a process group of their own (timeout), and none of them is left.
    """
    monkeypatch.setattr(backend, "ASK_S", 1.0)
    (tmp_path / "steps.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-fopenmp", "steps.c", "-o", "steps"], cwd=tmp_path, check=True)
    library = tmp_path / "watch" / "watch.so"
    library.parent.mkdir()
    shutil.copyfile(timing_library(), library)
    script = tmp_path / "job.sh"
    job = SweepJob(
        f"t{time.time_ns()}",
        "design",
        tmp_path / "design",
        tmp_path,
        NodeType("bdw", cores=28),
        (PlannedRun(0, "baseline", PLACE),),
        script=script,
        options={"select": "1:ncpus=28:node_type=bdw"},
        attempts=1,
        watch=WatchPlan(library.parent, library, 0.1),
    )
    job.folder.mkdir()
    with metering(site):
        script.write_text(f"{tmp_path}/steps 4 0.01\n")
        whole = finished(site, job)
        assert whole.ok and whole.extrapolated is None, whole
        seen = load_complete(library.parent / "complete.json")
        assert seen is not None and seen.readings and seen.why == "it took less than 5 s"
        assert why_none(job) == seen.why
        first, site_name, *_, last = seen.sites
        assert len(seen.sites) == 6 and set(seen.sites[1:-1]) == {site_name}
        times = [i * STEP_S for i in range(STEPS + 1)]
        readings = [(t / 8, 200 * t / 8) for t in range(8 * int(times[-1]) + 1)]
        run = CompleteRun(times, [first, *[site_name] * (STEPS - 1), last], readings)
        run.save(library.parent / "complete.json")
        keep_complete(
            job, replace(whole, time_s=60.0, energy_j=20_000.0, energy_quality="measured")
        )
        script.write_text(
            f"timeout 100 {tmp_path}/steps {STEPS - 1} {STEP_S} || :\necho the script went on\n"
        )
        result = finished(site, replace(job, runs=(PlannedRun(1, "design", PLACE),)))
    assert result.ok and result.extrapolated is not None, result
    assert result.extrapolated["share"] < 1 and result.spent_s is not None
    assert result.time_s == pytest.approx(60, rel=0.12)
    assert result.energy_j == pytest.approx(30_000, rel=0.12)  # 300 W against 200 W
    assert result.energy_quality == "measured" and "known within 10 %" in result.detail
    text = job.output(1, 1).read_text()
    assert "whole" not in text and "the script went on" not in text
    gone = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert f"{tmp_path}/steps" not in gone.stdout


def finished(site: Site, job: SweepJob) -> RunResult:  # noqa: F811
    pbs = backend.Pbs(site.sys.root)
    handle = pbs.submit_sweep(job)
    deadline = time.monotonic() + 150
    while (status := pbs.poll(job, handle)).state != "ended":
        assert time.monotonic() < deadline, status
        time.sleep(0.1)
    return status.results[-1]
