"""Runs ended early: what stands beside them, what is stored of them, and what they weigh."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.models.ended_runs import half_width, refuted, response_of, without_refuted
from advisor.models.fit import fit_options
from advisor.models.scatter import Z95, Scatter
from advisor.phases.complete import BASE, BEGIN, EARLIER, END, CompleteRun, load_complete
from advisor.phases.metered import Metered
from advisor.phases.pairing import Baseline, Pairing, RunEvents
from advisor.schedulers.base import PlannedRun, Role, RunResult, SweepJob, WatchPlan
from advisor.schedulers.early import (
    driver_lines,
    ended_early,
    keep_complete,
    role_of,
    was_ended,
    why_none,
    why_whole,
)
from advisor.schedulers.local.scheduler import Local
from advisor.training import beside as beside_module
from advisor.training.beside import Beside
from tests.plants import planted

Run = Callable[..., Any]
STOP = {
    "time_s": 30.0,
    "time_half_s": 0.6,
    "base_time_s": 20.0,
    "energy_j": 900.0,
    "energy_half_j": 18.0,
    "base_energy_j": 1000.0,
    "elapsed_s": 4.0,
    "spent_j": 120.0,
    "iterations": 9,
    "share": 4 / 30,
    "reason": "known within 3 % after 9 iterations",
}


def place(threads: int, freq_khz: int = 0) -> Configuration:
    return Configuration("t", 1, 1, threads, freq_khz)


@pytest.fixture
def job(tmp_path: Path) -> SweepJob:
    roles: tuple[Role, ...] = ("baseline", "design", "baseline", "confirm")
    runs = tuple(PlannedRun(i, role, place(1)) for i, role in enumerate(roles))
    watch = WatchPlan(tmp_path / "watch", tmp_path / "watch" / "watch.so", 0.03)
    (tmp_path / "watch" / "stops").mkdir(parents=True)
    return SweepJob("s", "design", tmp_path, tmp_path, NodeType("t"), runs, watch=watch)


def test_the_first_run_and_those_that_confirm_are_complete(job: SweepJob) -> None:
    assert [role_of(job, r) for r in job.runs] == ["complete", "paired", "", ""]
    in_one = replace(job, in_one=True)
    assert [role_of(in_one, r) for r in job.runs] == ["values", "values", "values", ""]
    alone = replace(job, watch=None)
    assert {role_of(alone, r) for r in job.runs} == {""} and not was_ended(alone, 1, 1)


def test_a_run_that_was_ended_has_the_whole_ones_time_and_energy(job: SweepJob) -> None:
    assert job.watch is not None
    stop = job.watch.folder / "stops" / "design-1-1"
    stop.write_text(json.dumps(STOP))
    cut = RunResult(1, 1, False, 4.3)
    assert was_ended(job, 1, 1) and not was_ended(job, 1, 2)
    lost = ended_early(job, cut)
    assert not lost.ok and "the complete run is lost" in lost.detail
    whole = RunResult(0, 1, True, 20.5, 2000.0, "measured", "slurm")
    keep_complete(job, replace(whole, seq=1, time_s=1.0))  # not the complete one
    keep_complete(job, whole)
    result = ended_early(job, cut)
    assert result.ok and result.time_s == 30.5  # starting and ending took half a second
    assert (result.energy_j, result.meter) == (1800.0, "slurm")  # 90 % of what Slurm says
    assert (result.spent_s, result.spent_j) == (4.3, 120.0)
    assert result.extrapolated == {
        "share": STOP["share"],
        "time": pytest.approx(0.6 / 30.5),
        "energy": 0.02,
    }
    stop.write_text(json.dumps({**STOP, "energy_j": None}))
    assert not ended_early(job, cut).ok  # Slurm's step energy alone says nothing
    keep_complete(job, replace(whole, energy_j=None, energy_quality="missing"))
    timed = ended_early(job, cut)
    assert timed.ok and timed.energy_j is None and "energy" not in (timed.extrapolated or {})


class Rings:
    """Rings that show what they are given, one look after the other."""

    def __init__(self, *looks: list[tuple[float, str]], lost: int = 0) -> None:
        self._looks, self.lost = list(looks), lost

    def poll(self, *, ended: bool = False) -> list[tuple[float, str]]:
        return self._looks.pop(0) if self._looks else []

    folder = Path("/nonexistent")

    def leading(self) -> list[Any]:
        process = type("Process", (), {"begin_s": 1.0, "end_s": 9.0})
        return [process]


class Counter:
    value = 0.0

    def so_far_j(self) -> float:
        self.value += 5.0
        return self.value


def test_the_complete_run_is_kept_from_begin_to_end(tmp_path: Path) -> None:
    beside = Beside(Rings([], [(2.0, "a"), (3.0, "b")], [(4.0, "a")]), Counter())  # type: ignore[arg-type]
    for _ in range(3):
        assert beside.look() is None
    run = beside.ended()
    run.save(tmp_path / "complete.json")
    kept = load_complete(tmp_path / "complete.json")
    assert kept is not None
    assert (kept.times, kept.sites) == ([0, 1, 2, 3, 8], [BEGIN, "a", "b", "a", END])
    assert kept.why == "" and kept.span_s == 8 and len(kept.readings) == 4
    (tmp_path / "complete.json").write_text('{"names": ["a"], "sites": [0, 7], "times": [2, 1]}')
    assert load_complete(tmp_path / "complete.json") is None


def test_what_the_meter_shows_first_after_a_standstill_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be what it was before: 0.7 s with 0.1 s of joules were taken for 22 W of 300."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda _: None)
    beside = Beside(Rings([(0.0, "a")]), Counter())  # type: ignore[arg-type]
    for clock[0] in (0.0, 0.05, 0.10, 0.80, 0.85, 1.60, 2.40, 3.10):
        beside.look()
    times = [t for t, _ in beside.run.readings]
    assert times == [0.0, 0.05, 0.10, 0.85, 2.40]  # who is always late reads at every second look
    clock[0] = 3.15
    assert [t for t, _ in beside.ended().readings] == [*times, 3.15]
    clock[0] = 9.0  # ... and the last one, after the run's end, is taken a moment later
    assert beside.ended().readings[-1][0] == 9.0


def test_the_meter_is_read_while_the_job_of_a_run_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in the readings would hide what the first iterations took."""
    readings, came = threading.Semaphore(0), []

    class Counted(Counter):
        def so_far_j(self) -> float:
            readings.release()
            return super().so_far_j()

    def look_up() -> None:
        came.append(all(readings.acquire(timeout=30) for _ in range(5)))
        os.kill(os.getpid(), signal.SIGTERM)  # as a scheduler does when the run has ended

    monkeypatch.setattr(beside_module, "job_of_run", look_up)
    monkeypatch.setattr(beside_module, "counter_of", lambda name, root: Counted())
    times = [0.0, *(1.0 + i / 10 for i in range(80)), 9.0]
    CompleteRun(times, [BEGIN, *["a"] * 80, END]).save(tmp_path / BASE)
    argv = ("paired", "--rings", tmp_path, "--folder", tmp_path, "--name", "1", "--metered")
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert beside_module.main([str(a) for a in argv]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [True]


def test_without_room_for_the_complete_run_all_go_to_their_end(job: SweepJob) -> None:
    assert job.watch is not None
    CompleteRun([0.0], [BEGIN]).save(job.watch.folder / "complete.json")
    (job.watch.folder / "whole.json").mkdir()  # as on a full disk: it cannot be written
    keep_complete(job, RunResult(0, 1, True, 20.5, 2000.0, "measured", "slurm"))
    assert not (job.watch.folder / "complete.json").exists()


def test_why_a_run_was_not_ended_is_known_at_its_end() -> None:
    """The event that its own end is counts: a run of all events has not ended before."""
    times = [0.0, *(1.0 + i / 10 for i in range(80)), 9.0]
    sites = [BEGIN, *["a"] * 80, END]
    meter = Metered()
    for i in range(181):
        meter.feed(i / 20, 3.0 * i)
    pairing = Pairing(Baseline(RunEvents(tuple(times), tuple(sites)), meter))
    looks = [(t, "a") for t in times[1:-1]]
    beside = Beside(Rings(looks), None, pairing)  # type: ignore[arg-type]
    beside.look()
    beside.ended()
    assert pairing.ended().reason.startswith("its meter's last reading came after")


def test_what_was_not_seen_whole_is_paired_with_nothing() -> None:
    lossy = Beside(Rings([(2.0, "a")], lost=7), None)  # type: ignore[arg-type]
    lossy.look()
    assert "(7 lost)" in lossy.ended().why
    assert "neither OpenMP nor MPI" in Beside(Rings(), None).ended().why  # type: ignore[arg-type]


def test_a_full_disk_is_named_where_nothing_could_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = Rings()
    rings.folder = tmp_path / "advisor-watch"
    rings.folder.mkdir()
    full = type("Usage", (), {"free": 24 * 1024})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    why = Beside(rings, None).ended().why  # type: ignore[arg-type]
    assert why == f"{tmp_path} is full: a process that is watched takes 64 KB there"
    monkeypatch.setattr(full, "free", 1 << 20)
    assert "neither OpenMP nor MPI" in Beside(rings, None).ended().why  # type: ignore[arg-type]


def test_why_a_run_went_to_its_end_is_known(job: SweepJob) -> None:
    assert job.watch is not None
    assert [why_whole(job, run, 1) for run in job.runs] == [""] * 4 and why_none(job) == ""
    CompleteRun([0.0], [BEGIN], [], "rank 2 does not iterate as rank 0 does").save(
        job.watch.folder / "complete.json"
    )
    (job.watch.folder / "whole").mkdir()
    (job.watch.folder / "whole" / "design-1-2").write_text("event 3 is 'x'")
    assert "rank 2 does not" in why_none(job)
    assert why_whole(job, job.runs[1], 1) == "" != why_whole(job, job.runs[1], 2)
    assert why_whole(replace(job, watch=None), job.runs[1], 2) == ""


def test_the_driver_runs_as_ever_where_nothing_is_watched(job: SweepJob, tmp_path: Path) -> None:
    script = 'watched "{role}" x sh -c "echo $ADVISOR_WATCH/$LD_PRELOAD; exit 3"; echo $?\nended x'
    for role, watched in (("paired", replace(job, watch=None)), ("", job)):
        text = "\n".join([*driver_lines(watched, metered=False), script.format(role=role)])
        done = subprocess.run(
            ["bash", "-c", text],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        assert (done.stdout, done.returncode) == ("/\n3\n", 1), done.stderr


def test_a_run_beside_which_nothing_can_stand_goes_to_its_end(
    job: SweepJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No library, no Python on the node: the run is as it would be."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    script = 'watched complete x sh -c "echo run; exit 3" 2>/dev/null; echo $?'
    text = "\n".join([*driver_lines(job, metered=True), script])
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "run\n3\n"


def test_what_stands_beside_a_run_imports_nothing_from_the_jobs_folder(job: SweepJob) -> None:
    """The scheduler starts it there, on the node, as the job's user."""
    script = "times=/dev/null; now() { t=1; }\nwatched complete x sleep 0.2; echo $?"
    text = "\n".join([*driver_lines(job, metered=False), script])
    with planted() as shared:
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=shared.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": ":."},
        )
        assert done.stdout == "0\n", done.stderr
        assert shared.ran() == ""


def test_what_stands_beside_a_run_is_no_time_of_it(
    job: SweepJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a second to be ready and another to end, however fast the machine is."""
    slow = tmp_path / "slow"
    slow.write_text(
        '#!/bin/bash\ntrap "sleep 1; exit" TERM\nwhile [ "$1" != --rings ]; do shift; done\n'
        'sleep 1; touch "$2/ready"; while :; do sleep 0.05; done\n'
    )
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    script = """
now() { t=${EPOCHREALTIME/,/.}; }
times=TIMES
now; begin=$t; first=$begin
watched complete x true
now; last=$t; timed_inside
echo $first $begin $t $last
""".replace("TIMES", str(tmp_path / "times"))
    text = "\n".join([*driver_lines(job, metered=True), script])
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    first, begin, end, last = map(float, done.stdout.split())
    assert begin - first >= 1 and last - end >= 1 and begin <= end, done.stderr
    assert not (tmp_path / "times").exists()


RUNS = [
    Observation(place(c, f), 400 / c + 8e6 / f, 900 + 30 * c * f / 1e6, contributor="ann")
    for c in (2, 4, 8, 16)
    for f in (1_200_000, 1_800_000, 2_400_000)
]
ENDED = {"extrapolated": {"share": 0.1, "time": 0.03, "energy": 0.05}}


def ended(run: Observation) -> Observation:
    return replace(run, source="sweep", extra=ENDED)


def test_an_ended_run_weighs_what_its_interval_leaves() -> None:
    run = ended(RUNS[0])
    assert (half_width(run, "time"), half_width(run, "energy")) == (0.03, 0.05)
    assert half_width(RUNS[0], "time") == 0
    sigma = 0.02 / Z95
    of = response_of([*RUNS[1:], run], "time", lambda o: o.time_s, Scatter(sigma))
    spread = math.log1p(0.03) / 1.6448536
    assert of.counts[run.configuration] == pytest.approx(sigma**2 / (sigma**2 + spread**2))
    assert of.confirming(run.configuration) is None
    assert of.confirming(RUNS[1].configuration) is not None
    beside = response_of([RUNS[0], run], "time", lambda o: o.time_s, Scatter(sigma))
    assert 1 < beside.counts[run.configuration] < 1.3


def test_a_model_of_ended_runs_is_less_sure_and_confirms_nothing_by_them() -> None:
    whole = fit_options(RUNS, model="polynomial")
    cut = fit_options([RUNS[-1], *map(ended, RUNS[:-1])], model="polynomial")
    assert any("ended early, weigh less: 11 of 12 runs" in n for n in cut.notes)
    here = [o for o in cut.options if o.measured]
    assert [o.configuration for o in here] == [RUNS[-1].configuration]
    assert len([o for o in whole.options if o.measured]) == 12
    for a, b in zip(whole.options, cut.options, strict=True):
        assert b.time_s == pytest.approx(a.time_s, rel=0.05)
        if not b.measured:
            assert b.time_hi_s / b.time_lo_s >= a.time_hi_s / a.time_lo_s


def test_runs_that_a_complete_one_refutes_count_in_no_fit() -> None:
    """Derived from the stored runs alone: whoever fits later leaves the same out."""
    mine = [replace(o, source="sweep", extra={**ENDED, "sweep": "s1"}) for o in RUNS[:-1]]
    whole = replace(RUNS[-1], source="sweep", extra={"sweep": "s1"})
    right = replace(mine[0], time_s=mine[0].time_s * 1.05, extra={"sweep": "s1"})
    # two launches differ by 1.645 sqrt(2) 0.02 / 1.96 = 2.37 %, with the 3 % that is 3.83 %, twice
    wrong = replace(right, time_s=mine[0].time_s * 1.08)
    assert not refuted(mine[0], replace(right, time_s=mine[0].time_s * 1.076))
    notes: list[str] = []
    assert len(without_refuted([*mine, whole, right], notes)) == 13 and not notes
    assert without_refuted([*mine, whole, wrong], notes) == [whole, wrong]
    assert notes[0].startswith("left out: 11 runs ended early")
    assert refuted(mine[0], wrong) == pytest.approx(0.08)
    dear = replace(right, energy_j=(right.energy_j or 0) * 1.2)
    assert refuted(mine[0], dear) == pytest.approx(0.2)
    others = replace(wrong, extra={"sweep": "s2"})  # another sweep's runs say nothing of these
    assert len(without_refuted([*mine, whole, others], [])) == 13
    three = [replace(o, extra={"sweep": "s1"}) for o in RUNS[-4:-1]]
    fit = fit_options([*mine, whole, wrong, *three], model="polynomial")
    assert fit.stats["runs"] == 5 and any(
        "complete runs of the same sweep differ" in n for n in fit.notes
    )


STEPS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static struct timespec now;  /* of the steps: whoever looks at the clock later sees it, too */
static int begun;
int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!begun || clock != CLOCK_MONOTONIC)
        return syscall(SYS_clock_gettime, clock, time);
    *time = now;
    return 0;
}
int main(int argc, char **argv) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    begun = 1;
    for (int i = 0; i < 60; i++) {
        #pragma omp parallel num_threads(1)
        {
            long ns = now.tv_nsec + atol(argv[1]) * 1000000L;
            struct timespec next = {now.tv_sec + ns / 1000000000L, ns % 1000000000L};
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL)) {}
            now = next;
        }
    }
    puts("whole");
    return 0;
}
"""


@pytest.fixture
def first() -> Iterator[None]:
    """Go before the tests around this one, as root can.

    A run whose steps they disturb is not known, rightly, and one of seconds is over before a
    process beside it that gets no processor has loaded what it needs.
    """
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    yield
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, own)


def test_what_packages_keep_of_a_stop_stands_in_it_and_none_can_break_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(watched: object) -> object:
        raise RuntimeError("a package is wrong")

    events = RunEvents(tuple(0.5 * i for i in range(64)), (BEGIN, *["solve"] * 62, END))
    pairing = Pairing(Baseline(events))
    for time_s, site in zip(events.times[:20], events.sites[:20], strict=True):
        pairing.feed(1.1 * time_s, site)
    beside: Any = SimpleNamespace(pairing=pairing)
    ratio, power_w, error_w = beside_module._plugin_facts(beside)["parts"]["solve"]  # type: ignore[index]
    assert (round(ratio, 6), power_w, error_w) == (1.1, None, 0.0)
    registered: dict[str, Callable[[Any], object]] = {
        "seen": lambda watched: len(watched.times),
        "bad": fail,
        "odd": lambda _: object,
    }
    monkeypatch.setattr("advisor.plugins.names", lambda kind: tuple(registered))
    monkeypatch.setattr("advisor.plugins.load", lambda kind, name: registered[name])
    assert beside_module._plugin_facts(beside) == {"seen": 20}
    pairing.feed(12.0, "another")
    assert beside_module._plugin_facts(beside) == (
        {} if pairing.watched() is None else {"seen": 21}
    )
    beside.pairing = None
    assert beside_module._plugin_facts(beside) == {}


@pytest.mark.usefixtures("first")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_run_on_this_machine_is_ended(job: SweepJob, tmp_path: Path) -> None:
    from advisor.instruments.characterise_runs import timing_library

    assert job.watch is not None
    source = tmp_path / "steps.c"
    source.write_text(STEPS)
    subprocess.run(["gcc", "-fopenmp", "-rdynamic", source, "-o", tmp_path / "steps"], check=True)
    shutil.copyfile(timing_library(), job.watch.preload)
    times = [float(i) / 8 for i in range(62)]  # a complete run of 60 steps of an eighth of a second
    (tmp_path / "sites").write_text("")
    earlier = job.watch.folder / EARLIER
    earlier.mkdir()
    run = CompleteRun(times, [BEGIN, *_sites(tmp_path, job)[:60], END])
    run.save(earlier / "complete.json")
    (earlier / "whole.json").write_text(
        '{"time_s": 8.0, "energy_j": null, "meter": "", "measured": false}'
    )
    c = Configuration("local", 1, 1, 1, 0)
    here = replace(
        job,
        runs=(PlannedRun(0, "baseline", c), PlannedRun(1, "design", c)),
        meter="none",
        command=(str(tmp_path / "steps"), "130"),
    )
    for _ in here.runs:
        status = Local().poll(here, "")
    for result in status.results:  # the first beside an earlier sweep's run, the next likewise
        assert result.ok and result.extrapolated is not None, result
        assert result.extrapolated["share"] < 1 and result.spent_s and result.time_s
        assert result.time_s == pytest.approx(8.2, rel=0.2) and result.spent_s < result.time_s
        assert "whole" not in here.output(result.seq, 1).read_text()
    assert load_complete(job.watch.folder / "complete.json") == run


def _sites(folder: Path, job: SweepJob) -> list[str]:
    """Return the call sites of the program, from a short run of it."""
    from advisor.phases.ring import EventRings

    assert job.watch is not None
    rings = folder / "rings"
    rings.mkdir()
    environment = {**os.environ, "ADVISOR_WATCH": str(rings), "LD_PRELOAD": str(job.watch.preload)}
    subprocess.run([folder / "steps", "0"], env=environment, check=True, capture_output=True)
    return [site for _, site in EventRings(rings).poll()]
