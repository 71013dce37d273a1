"""Whole sweeps on a posed machine: real processes, real store, posed cpufreq and energy files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import SearchSpace
from advisor.core.inventory import NodeType
from advisor.core.policy import Policy, Training
from advisor.errors import AdvisorError, InputError, RefusedError, SchedulerError
from advisor.meters.process import start_ticks
from advisor.models.adaptive import first_runs
from advisor.models.design import uniform
from advisor.schedulers.base import RunResult, SweepJob, SweepStatus
from advisor.schedulers.local.scheduler import Local
from advisor.schedulers.results import read_results
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from advisor.training import measuring
from advisor.training import state as states
from advisor.training.outcome import Event, SweepOutcome
from advisor.training.plan import planned
from advisor.training.result_store import (
    LocalResults,
)
from advisor.training.site_context import earlier_runs, load_known
from advisor.training.state import Stage, SweepSettings, SweepState
from advisor.training.sweep import Sweep
from advisor.training.training_job import TrainingSite, TrainingSubject, current_user, understand
from advisor.views.training import outcome_lines

FREQS = (1_000_000, 1_400_000, 1_800_000, 2_000_000)
NODE = NodeType("posed", cores=2, freq_khz=FREQS, default_freq_khz=2_000_000, nodes=("here",))
APPLICATION = """\
#!/bin/bash
# Memory-bound: a little slower at low frequency, far less power. Fails where told to. By itself it
# would take both CPUs.
echo "${OMP_NUM_THREADS:-2} $(cat SYS/devices/system/cpu/cpu0/cpufreq/scaling_max_freq)" >> ran
[ -e fail-${OMP_NUM_THREADS:-2} ] && exit 7
extra=0; [ -e trap ] && [ "$(wc -l < ran)" -gt "$(cat trap)" ] && extra=4000
read khz < SYS/devices/system/cpu/cpu0/cpufreq/scaling_max_freq
printf -v seconds '0.%07d' $((1000000 + (2000000 - khz) / 50))
sleep $seconds
read joules unit < SYS/cray/pm_counters/energy
used=$(((extra + 400 + khz / 1000 * khz / 1000000) / 20))
echo "$((joules + used)) J" > SYS/cray/pm_counters/energy.new
mv SYS/cray/pm_counters/energy.new SYS/cray/pm_counters/energy
: srun ./posed
"""


def pose(root: Path) -> Path:
    """A /sys with two CPUs that can be capped and a Cray's meter."""
    for cpu in (0, 1):
        folder = root / f"devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        steps = " ".join(map(str, FREQS))
        (folder / "scaling_available_frequencies").write_text(f"{steps}\n")
        (folder / "scaling_max_freq").write_text("2000000\n")
    counters = root / "cray" / "pm_counters"
    counters.mkdir(parents=True)
    (counters / "energy").write_text("1000 J\n")
    return root


class OwnClock(Local):
    """This machine by the application's own clock: what else it does makes no run longer."""

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        status = super().poll(job, handle)
        took = {r.seq: 0.1 + (FREQS[-1] - r.configuration.freq_khz) / 5e8 for r in job.runs}
        results = (replace(r, time_s=took[r.seq]) if r.ok else r for r in status.results)
        return replace(status, results=tuple(results))


class World:
    """A posed machine, a store and a script; makes sweeps of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sys = pose(folder / "sys")
        self.work = folder / "work"
        self.work.mkdir()
        self.script = folder / "job.sh"
        self.script.write_text(APPLICATION.replace("SYS", str(self.sys)))
        self.store = folder / "advisor.db"
        self.policy = Policy(goal="min_energy", max_slowdown=20.0, training=Training(trust="all"))
        self.events: list[Event] = []
        self.scheduler: Local = OwnClock(self.sys)

    def new(self, **settings: Any) -> SweepState:
        wanted = TrainingSubject(self.script, application="posed", workload="w", node_type="posed")
        subject = understand(wanted, scheduler="local", site=TrainingSite(), this_machine=NODE)
        threads = tuple((1, t) for t in range(1, min(2, os.cpu_count() or 1) + 1))
        space = SearchSpace("posed", (1,), threads, FREQS)
        count = settings.pop("samples", 8)
        design = uniform(space, count, must_include=subject.baseline)
        chosen = {"attempts": 2, "working_folder": str(self.work), **settings}
        state = states.new(
            self.folder / "sweeps",
            subject,
            space,
            SweepSettings("local", current_user(), **chosen),
            planned(design, subject.baseline),
        )
        states.begin(state)
        return state

    def run(self, state: SweepState) -> SweepOutcome:
        sink = LocalResults(Writer(self.store), user=current_user(), trust="all")
        try:
            sink.know(state.subject.node_type)
            sweep = Sweep(
                state, self.scheduler, sink, self.policy, TrainingSite(), self.events.append
            )
            return sweep.run()
        finally:
            sink.close()

    def ran(self) -> list[str]:
        path = self.work / "ran"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    return World(tmp_path)


def test_a_sweep_measures_fits_confirms_and_stores(world: World) -> None:
    state = world.new()
    outcome = world.run(state)
    assert len(world.ran()) == 9  # 8 of the design, 1 to confirm
    assert outcome.recommended is not None and outcome.confirmation is not None
    chosen = outcome.recommended.configuration
    assert chosen.freq_khz == 1_000_000
    assert world.ran()[-1] == f"{chosen.threads_per_node} {chosen.freq_khz}"
    assert outcome.recommended.energy_j < outcome.baseline.energy_j
    assert outcome.payback is not None and outcome.payback > 1
    assert (state.state, outcome.confirmation.holds) == ("confirmed", True)
    # caps are lifted again
    caps = world.sys.glob("devices/system/cpu/cpu*/cpufreq/scaling_max_freq")
    assert {c.read_text().strip() for c in caps} == {"2000000"}
    with Reader(world.store) as reader:
        found = [o.observation for o in reader.observations("posed", "w")]
        assert sorted(o.source for o in found) == ["confirm"] + ["sweep"] * 8
        assert {o.energy_quality for o in found} == {"measured"}
        assert {o.meter for o in found} == {"pm_counters"}
        assert {(o.scope, o.contributor) for o in found} == {("all", current_user())}
        (request,) = reader.training_requests()
        assert (request.id, request.state, request.scheduler) == (state.id, state.state, "local")
        runs = reader.training_runs(state.id)
        assert [r.state for r in runs] == ["done"] * 9
        assert all(r.observation_id for r in runs)
        (model,) = reader.find_models("posed")
        assert (model.scope, model.owner, model.energy_quality) == ("all", "", "measured")
        option = next(o for o in model.options() if o.configuration == chosen)
        assert option.confirmed
        assert "posed" in reader.inventory().node_types
    known = load_known(world.store)
    assert "posed" in known.site.inventory.node_types
    earlier = earlier_runs(world.store, state.subject)
    assert earlier is not None and earlier.runs == 1 and earlier.energy_j is not None


def test_a_finished_sweep_repeats_and_stores_nothing_when_run_again(world: World) -> None:
    state = world.new(confirm=0)
    world.run(state)
    again = states.load(state.folder)
    world.run(again)
    assert len(world.ran()) == 8
    with Reader(world.store) as reader:
        assert len(reader.observations("posed", "w")) == 8


def test_a_sweep_keeps_what_its_site_made_of_the_request(world: World) -> None:
    """Whole nodes of a partition, and that stated cores are no choice there."""
    state = world.new(confirm=0)
    request = replace(state.subject.request, exclusive=True, explicit=frozenset({"ranks"}))
    state.subject = replace(state.subject, request=request)
    state.save()
    again = states.load(state.folder).subject.request
    assert again.exclusive and again.explicit == request.explicit


def test_a_killed_sweep_goes_on_where_it_was(world: World) -> None:
    """SIGKILL in the middle of a run: that run is made again, no finished one is."""
    state = world.new(confirm=0)
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "from pathlib import Path\n"
        "from advisor.schedulers.local.scheduler import Local\n"
        "from advisor.training import state as s\n"
        "state = s.load(Path(sys.argv[3])); job = state.job('design')\n"
        "job.folder.mkdir(exist_ok=True); local = Local(Path(sys.argv[2]))\n"
        "state.stages['design'].handles.append(local.submit_sweep(job)); state.save()\n"
        "while local.poll(job, '').state != 'ended': pass\n"
    )
    root = Path(__file__).resolve().parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(root), str(world.sys), str(state.folder)]
    )
    while len(world.ran()) < 3:
        assert child.poll() is None
    child.kill()
    child.wait()
    finished = [r.seq for r in read_results(state.folder / "design" / "results.jsonl")]
    state = states.load(state.folder)
    world.run(state)
    results = read_results(state.folder / "design" / "results.jsonl")
    assert [r.seq for r in results] == sorted({r.seq for r in results}) == list(range(8))
    assert len(world.ran()) - 8 <= 1 and len(finished) >= 2
    said = [e.text for e in world.events if "made before" in e.text]
    assert said == [f"made before: {len(finished)} of 8 runs"]


def test_what_a_killed_sweep_left_running_or_capped_is_mended(world: World) -> None:
    state = world.new()
    job = state.job("design")
    world.scheduler.submit_sweep(job)
    orphan = subprocess.Popen(["sleep", "60"], start_new_session=True)
    note = {"pid": orphan.pid, "start": start_ticks(orphan.pid)}
    (job.folder / "running.json").write_text(json.dumps(note))
    cap = world.sys / "devices/system/cpu/cpu0/cpufreq"
    (job.folder / "cpufreq.json").write_text(json.dumps({str(cap): "2000000"}))
    (cap / "scaling_max_freq").write_text("1000000\n")
    world.scheduler.cancel(job, "")
    assert orphan.wait(10) == -signal.SIGKILL
    assert (cap / "scaling_max_freq").read_text() == "2000000\n"
    assert not (job.folder / "running.json").exists()


def test_a_pid_that_is_another_process_by_now_is_left_alone(world: World) -> None:
    job = world.new().job("design")
    world.scheduler.submit_sweep(job)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        (job.folder / "running.json").write_text(json.dumps({"pid": other.pid, "start": "1"}))
        world.scheduler.cancel(job, "")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_run_that_fails_is_tried_again_and_left_out(world: World) -> None:
    (world.work / "fail-1").touch()
    state = world.new(confirm=0)
    outcome = world.run(state)
    assert len(outcome.failed) == 4 and "exit code 7" in outcome.failed[0]
    assert len(outcome.results) == 4
    assert len(world.ran()) == 4 + 4 * 2
    with Reader(world.store) as reader:
        states_of = [r.state for r in reader.training_runs(state.id)]
        assert sorted(states_of) == ["done"] * 4 + ["failed"] * 4
    tried_again = [e for e in world.events if e.kind == "run" and "tried again" in e.text]
    assert len(tried_again) == 4


def test_a_job_that_does_not_run_as_written_ends_the_sweep(world: World) -> None:
    (world.work / "fail-2").touch()
    state = world.new()
    with pytest.raises(AdvisorError, match="does not run: exit code 7"):
        world.run(state)
    assert len(world.ran()) == 2
    assert states.load(state.folder).state == "failed"
    with Reader(world.store) as reader:
        assert reader.training_requests(state="failed")
        assert not reader.observations("posed", "w")


def test_a_job_as_written_that_ends_too_soon_ends_the_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "failed_fast", lambda runs: [0])  # the times are this machine's
    with pytest.raises(AdvisorError, match="far less than its other runs allow: it failed"):
        world.run(world.new(samples=4))


def test_a_run_over_its_limit_is_stopped_and_not_tried_again(world: World) -> None:
    world.script.write_text("#!/bin/bash\necho $OMP_NUM_THREADS >> ran\nsleep 60\n./posed\n")
    with pytest.raises(AdvisorError, match=r"stopped after 0\.3 s"):
        world.run(world.new(run_limit_s=0.3))
    assert len(world.ran()) == 1


def test_the_budget_holds_once_the_first_run_is_measured(world: World) -> None:
    usual = world.policy
    world.policy = replace(usual, training=Training(budget_node_hours=1e-9))
    state = world.new()
    with pytest.raises(RefusedError, match="policy allows 1e-09") as caught:
        world.run(state)
    assert "budget_node_hours" in caught.value.hint
    assert len(world.ran()) == 1
    assert states.load(state.folder).state == "stopped"
    world.policy = usual
    world.run(states.load(state.folder))
    assert len(world.ran()) >= 8


def test_interrupted_by_the_user(world: World) -> None:
    state = world.new()

    def interrupt(event: Event) -> None:
        if event.kind == "run":
            raise KeyboardInterrupt

    sink = LocalResults(Writer(world.store), user=current_user(), trust="own")
    with pytest.raises(KeyboardInterrupt):
        Sweep(state, world.scheduler, sink, world.policy, TrainingSite(), interrupt).run()
    assert sink._writer.training_requests(state="stopped")
    sink.close()
    found = states.latest(world.folder / "sweeps", "posed")
    assert found is not None and found.id == state.id
    assert states.latest(world.folder / "sweeps", "other") is None


def test_what_confirming_runs_do_not_bear_out_is_not_recommended(world: World) -> None:
    """From the sixth run on every run costs far more than before: three are tried, no more."""
    (world.work / "trap").write_text("5")
    state = world.new(samples=5)
    outcome = world.run(state)
    assert list(state.stages) == ["design", "confirm", "confirm-2", "confirm-3"]
    assert len(world.ran()) == 5 + 3
    tried = [a.configuration for a in outcome.attempts]
    assert len(set(tried)) == 3
    assert not any(a.chosen for a in outcome.attempts)
    assert all("energy" in a.reason for a in outcome.attempts if not a.holds)
    assert not outcome.attempts[0].holds
    for holds, why in ((False, "matched its prediction"), (True, "keeps the policy's bounds")):
        attempts = tuple(replace(a, holds=holds) for a in outcome.attempts)
        lines = outcome_lines(state, replace(outcome, attempts=attempts), world.policy)
        assert f"None of the 3 confirmation runs {why}; no change recommended." in lines
    # what was learnt on the way counts: the runs are in the model, and none of them is applied
    with Reader(world.store) as reader:
        (model,) = reader.find_models("posed")
        at = {o.configuration: o for o in model.options()}
        sources = [o.observation.source for o in reader.observations("posed", "w")]
    assert sources.count("confirm") == 3
    assert all(at[c].measured for c in tried)
    assert not any(o.confirmed for o in at.values())
    assert outcome.recommended is None
    assert state.state == "fitted"
    assert sum("not confirmed" in e.text for e in world.events) >= 1


def test_a_sequential_sweep_chooses_its_runs_and_resumes_where_it_was(world: World) -> None:
    state = world.new(samples=4, design="sequential", most_runs=8)

    def interrupt(event: Event) -> None:
        if event.kind == "run" and event.stage == "next-2":
            raise KeyboardInterrupt

    sink = LocalResults(Writer(world.store), user=current_user(), trust="all")
    with pytest.raises(KeyboardInterrupt):
        Sweep(state, world.scheduler, sink, world.policy, TrainingSite(), interrupt).run()
    sink.close()
    stopped = len(world.ran())
    assert stopped == 6
    again = states.load(state.folder)
    assert list(again.stages) == ["design", "next-1", "next-2"]
    outcome = world.run(again)
    made = [r for stage in again.stages.values() for r in stage.runs if r.role != "confirm"]
    assert len({r.configuration for r in made}) == len(made) <= 8
    assert [r.seq for stage in again.stages.values() for r in stage.runs] == list(
        range(len(world.ran()))
    )
    assert made[0].configuration == again.subject.baseline
    assert outcome.recommended is not None
    assert outcome.recommended.energy_j < outcome.baseline.energy_j
    lowest = min(made, key=lambda r: r.configuration.freq_khz)
    assert lowest.configuration.freq_khz == 1_000_000


def test_an_adaptive_sweep_confirms_in_pairs_and_resumes_where_it_was(world: World) -> None:
    state = world.new(design="adaptive", most_runs=8, confirm=0)
    subject = state.subject
    first = first_runs(state.space, 8, subject.baseline)
    state.stages["design"] = Stage(planned(first, subject.baseline, alone=False))
    state.save()

    def interrupt(event: Event) -> None:
        if event.kind == "run" and event.stage == "next-1":
            raise KeyboardInterrupt

    sink = LocalResults(Writer(world.store), user=current_user(), trust="all")
    with pytest.raises(KeyboardInterrupt):
        Sweep(state, world.scheduler, sink, world.policy, TrainingSite(), interrupt).run()
    sink.close()
    assert len(world.ran()) == 4
    again = states.load(state.folder)
    assert list(again.stages) == ["design", "next-1"]
    outcome = world.run(again)
    assert len(world.ran()) <= 8
    assert [r.seq for stage in again.stages.values() for r in stage.runs] == list(
        range(len(world.ran()))
    )
    pairs = [stage.runs for name, stage in again.stages.items() if name.startswith("confirm")]
    assert pairs
    for option, base in pairs:  # the job as written runs beside what is confirmed
        assert (option.role, base.role) == ("confirm", "baseline")
        assert base.configuration == subject.baseline != option.configuration
    assert outcome.recommended is not None
    assert outcome.recommended.configuration in [p[0].configuration for p in pairs]
    assert outcome.recommended.energy_j < outcome.baseline.energy_j
    with Reader(world.store) as reader:
        (model,) = reader.find_models("posed")
        confirmed = [o.configuration for o in model.options() if o.confirmed]
    # a quiet machine: what came out as predicted is confirmed without a pair of its own
    ran = {run.configuration for stage in again.stages.values() for run in stage.runs}
    assert outcome.recommended.configuration in confirmed
    assert set(confirmed) <= ran


class InOne(OwnClock):
    """One run goes through the values of a stage: what it tells of them is posed, or why not."""

    why = ""

    def submit_sweep(self, job: SweepJob) -> str:
        return "one" if job.in_one else super().submit_sweep(job)

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        if not job.in_one:
            return super().poll(job, handle)
        results = []
        for run in job.runs:
            khz = run.configuration.freq_khz
            known = RunResult(
                run.seq,
                1,
                True,
                0.1 + (FREQS[-1] - khz) / 5e8,
                (400 + khz // 1000 * khz // 1_000_000) // 20,
                "measured",
                "pm_counters",
                spent_s=0.02,
                extrapolated={"share": 0.2, "time": 0.01, "energy": 0.01},
            )
            lost = RunResult(run.seq, 1, False, 0.02, detail=self.why, final=True)
            results.append(lost if self.why else known)
        return SweepStatus("ended", tuple(results))


@pytest.mark.parametrize("why", ["", "nothing sets it as a job runs"])
def test_one_run_goes_through_the_values_or_each_gets_a_run(world: World, why: str) -> None:
    world.scheduler = InOne(world.sys)
    world.scheduler.why = why
    state = world.new(design="adaptive", most_runs=8, confirm=0)
    base = state.subject.baseline
    curve = tuple(replace(base, freq_khz=khz) for khz in reversed(FREQS[:-1]))
    state.settings = replace(state.settings, curve=curve)
    state.space = replace(state.space, threads=state.space.threads[-1:])
    state.stages["design"] = Stage(planned([base], base, alone=False))
    state.save()
    outcome = world.run(state)
    stages = {name: stage.runs for name, stage in state.stages.items()}
    assert [r.configuration for r in stages["curve"]] == [*curve]
    first = first_runs(state.space, 8, base)[1:]
    notes = [e.text for e in world.events if e.kind == "note" and e.stage == "curve"]
    if why:
        assert notes == [f"3 of 3 values not known in one run: {why}"]
        assert [r.configuration for r in stages["first"]] == first
        assert not outcome.failed  # another run of each was as good
    else:
        assert not notes and list(stages)[:3] == ["design", "curve", "confirm"]
        assert len(world.ran()) == sum(map(len, stages.values())) - len(curve)
    assert outcome.recommended is not None and outcome.confirmation is not None
    # what is recommended was borne out by a run of its own, however well the curve tells of it
    own = [r for name, runs in stages.items() if name != "curve" for r in runs]
    assert outcome.recommended.configuration in [r.configuration for r in own]
    if not why:
        assert outcome.spent.node_hours * 3600 < 0.11 * len(own) + 0.07
    again = states.load(state.folder)
    ran = len(world.ran())
    assert world.run(again).recommended == outcome.recommended and len(world.ran()) == ran


class SlowOnce(OwnClock):
    """The first run of the job as written takes half as long again, in time and energy alike."""

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        status = super().poll(job, handle)
        results = (
            replace(r, time_s=1.5 * r.time_s, energy_j=1.5 * r.energy_j)
            if r.seq == 0 and r.time_s and r.energy_j
            else r
            for r in status.results
        )
        return replace(status, results=tuple(results))


@pytest.mark.parametrize("design", ["uniform", "adaptive"])
def test_a_disturbed_run_of_the_job_as_written_is_made_again(world: World, design: str) -> None:
    world.scheduler = SlowOnce(world.sys)
    most = {"most_runs": 10, "confirm": 0} if design == "adaptive" else {}
    state = world.new(design=design, **most)
    outcome = world.run(state)
    base = state.subject.baseline
    again = [s.runs[0].configuration for n, s in state.stages.items() if n.startswith("again")]
    assert again and set(again) == {base}
    # two runs that differ so much promise nothing; a third says which of them is off
    true_s = 0.1
    assert outcome.baseline.time_lo_s < true_s < outcome.baseline.time_hi_s


def test_nothing_is_recommended_without_energy(world: World) -> None:
    outcome = world.run(world.new(meter="none"))
    assert outcome.recommended is None and outcome.confirmation is None
    assert outcome.fit.energy_quality == "missing"
    assert len(world.ran()) == 8


def test_a_sweep_belongs_to_one_process_at_a_time(world: World) -> None:
    state = world.new()
    with (
        states.locked(state),
        pytest.raises(InputError, match="another process"),
        states.locked(states.load(state.folder)),
    ):
        pass


def test_a_damaged_state_is_one_clear_error(world: World) -> None:
    state = world.new()
    path = state.folder / "sweep.json"
    for text in ("", "{", "[]", '{"version": 1}', '{"version": 99}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"damaged|another version"):
            states.load(state.folder)
    assert states.latest(world.folder / "sweeps") is None


def test_state_comes_back_as_it_was(world: World) -> None:
    state = world.new(run_limit_s=5.0, extra_options=("-A", "x"))
    again = states.load(state.folder)
    assert (again.settings, again.space, again.stages) == (
        state.settings,
        state.space,
        state.stages,
    )
    for name in ("application", "workload", "node_type", "baseline", "partition", "arguments"):
        assert getattr(again.subject, name) == getattr(state.subject, name)
    assert again.subject.script == state.folder / "script"


def test_a_backend_that_fails_says_how_to_go_on(world: World) -> None:
    state = world.new()

    class Broken(Local):
        def submit_sweep(self, job: SweepJob) -> str:
            raise SchedulerError("no")

    world.scheduler = Broken(world.sys)
    with pytest.raises(SchedulerError, match=f"--resume {state.id}"):
        world.run(state)
