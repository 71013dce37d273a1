"""Sweeps whose job as written is paired with the complete run of an earlier one."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.inventory import NodeType
from advisor.core.policy import Policy, Training
from advisor.core.request import JobRequest
from advisor.errors import InputError
from advisor.models.ended_runs import ended_early
from advisor.phases.complete import (
    BASE,
    BEGIN,
    END,
    MOST_READINGS,
    STOPS,
    WHOLE,
    CompleteRun,
    borrowed,
    load_complete,
    thinned,
)
from advisor.schedulers.base import PlannedRun, RunResult, SweepJob, SweepStatus
from advisor.schedulers.local.scheduler import Local
from advisor.store.writer import Writer
from advisor.training import state as states
from advisor.training.earlier_run import earlier_complete, lend
from advisor.training.outcome import Event, SweepOutcome
from advisor.training.plan import Cost, planned
from advisor.training.planning import PlannedSweep
from advisor.training.result_store import LocalResults
from advisor.training.state import CHECK, Stage, SweepState
from advisor.training.sweep import Sweep
from advisor.training.training_job import TrainingJob, TrainingSite
from advisor.views.training import plan_lines

FREQS = (1_200_000, 1_800_000, 2_400_000)
CELLS = [Configuration("t", 1, 1, n, f) for n in (2, 4, 8, 16) for f in FREQS]
RUN = CompleteRun([0.0, *(i / 4 for i in range(1, 41)), 11.0], [BEGIN, *["a", "b"] * 20, END])


def sweep_in(root: Path, *, command: str = "x", earlier: str = "", **named: object) -> SweepState:
    """A sweep that nothing was run of yet."""
    node = NodeType("t", cores=16, freq_khz=FREQS, default_freq_khz=FREQS[-1], nodes=("n1",))
    request = JobRequest("local", "train", "someone", 1, exclusive=True)
    subject = TrainingJob("app", "w", node, CELLS[-1], request, command=(command,))
    settings = states.SweepSettings(
        "local",
        "someone",
        model="polynomial",
        within=0.03,
        energy_from="energy: RAPL",
        earlier=earlier,
    )
    state = states.new(
        root,
        replace(subject, **named),  # type: ignore[arg-type]
        SearchSpace.of("t", CELLS),
        settings,
        planned([CELLS[-1], *CELLS[:-1]], CELLS[-1]),
    )
    states.begin(state)
    return state


def keep(state: SweepState, run: CompleteRun = RUN) -> Path:
    """Let a sweep have made its complete run; return the folder of it."""
    watch = state.folder / "watch"
    (watch / STOPS).mkdir(parents=True)
    run.save(watch / BASE)
    whole = {"time_s": 11.5, "energy_j": 900.0, "meter": "rapl", "measured": True}
    (watch / WHOLE).write_text(json.dumps(whole))
    return watch


def test_the_complete_run_of_the_same_work_is_lent(tmp_path: Path) -> None:
    new = sweep_in(tmp_path)
    assert earlier_complete(tmp_path, new) is None
    earlier = sweep_in(tmp_path)
    watch = keep(earlier)
    found = earlier_complete(tmp_path, new)
    assert found is not None and found.id == earlier.id
    lend(found, new)
    kept = borrowed(new.folder / "watch", metered=True)
    assert kept == load_complete(watch / BASE) == RUN
    assert borrowed(new.folder / "watch", metered=False) is None  # its energy goes another way
    assert not (new.folder / "watch" / BASE).exists()
    (watch / BASE).unlink()
    with pytest.raises(InputError, match=f"sweep {earlier.id} is not there: .*complete.json"):
        lend(found, sweep_in(tmp_path))


def test_what_is_another_run_is_not_lent(tmp_path: Path) -> None:
    new = sweep_in(tmp_path)
    earlier = sweep_in(tmp_path)
    watch = keep(earlier)
    other = replace(new, settings=replace(new.settings, energy_from="energy: pm_counters"))
    assert earlier_complete(tmp_path, other) is None  # joules of another meter
    for change in (
        {"command": "y"},
        {"workload": "v"},
        {"baseline": CELLS[0]},
        {"method": "request"},
        {"program": {"path": "/x", "size": 1, "mtime": 1, "build": "b"}},
    ):
        assert earlier_complete(tmp_path, sweep_in(tmp_path, **change)) is None, change
    replace_why = replace(RUN, why="it has more than a million events")
    replace_why.save(watch / BASE)
    assert earlier_complete(tmp_path, new) is None
    RUN.save(watch / BASE)
    second = sweep_in(tmp_path, earlier=earlier.id)  # it borrowed: its own was ended
    (keep(second) / STOPS / "design-0-1").write_text("{}")
    found = earlier_complete(tmp_path, new)
    assert found is not None and found.id == earlier.id
    second.stages[CHECK] = Stage((PlannedRun(9, "design", CELLS[0]),))
    second.save()  # what it extrapolated was in doubt, so the run it stood on is
    assert earlier_complete(tmp_path, new) is None


def test_readings_of_a_long_run_are_thinned_evenly() -> None:
    readings = thinned([(i / 20, float(i)) for i in range(MOST_READINGS + 1)])
    assert len(readings) == MOST_READINGS // 2 + 1
    assert (readings[0], readings[-1][1]) == ((0.0, 0.0), float(MOST_READINGS))


def test_the_plan_says_that_the_first_run_ends_early_too(tmp_path: Path) -> None:
    cost = Cost(13, 1.0, 3600.0, None, "your --estimate", 20.0)
    lines = {}
    for earlier in ("", "20260101-abc"):
        plan = PlannedSweep(sweep_in(tmp_path, earlier=earlier), Policy(), cost, (), "energy", ())
        lines[earlier] = "\n".join(plan_lines(plan))
    assert "the first and those that confirm" in lines[""]
    assert (
        "about 23 % of one with complete runs" in lines[""]
    )  # 2 whole, 18 at 15 %: 4.7 of 20, even
    assert "compared with the complete run of sweep 20260101-abc" in lines["20260101-abc"]
    assert "the first" not in lines["20260101-abc"]
    assert (
        "about 19 % of one with complete runs" in lines["20260101-abc"]
    )  # 1 + 19 * 0.15 = 3.85 of 20


@dataclass
class Stated(Local):
    """A scheduler whose runs come out by a law, ended early but for those that confirm."""

    NAME: ClassVar[str] = "stated"
    wrong: float = 1.0
    """What runs that were ended early are off by, all alike."""

    def __post_init__(self) -> None:
        super().__init__()

    def submit_sweep(self, job: SweepJob) -> str:
        return ""

    def poll(self, job: SweepJob, handle: str) -> SweepStatus:
        results = []
        for run in job.runs:
            c = run.configuration
            f = c.freq_khz / FREQS[-1]
            time_s = 200 / c.threads_per_node + 30 + 4 / f
            energy_j = time_s * (60 + 6 * c.threads_per_node * f**2.5)
            whole = job.stage == CHECK or run.role == "confirm"
            errors = None if whole else {"share": 0.1, "time": 0.02, "energy": 0.02}
            if not whole:
                time_s, energy_j = time_s * self.wrong, energy_j * self.wrong
            results.append(
                RunResult(
                    run.seq,
                    1,
                    True,
                    time_s,
                    energy_j,
                    "measured",
                    "m",
                    extrapolated=errors,
                    spent_s=None if whole else 0.1 * time_s,
                )
            )
        return SweepStatus("ended", tuple(results))


def swept(root: Path, wrong: float = 1.0) -> tuple[SweepOutcome, Sweep, list[Event]]:
    events: list[Event] = []
    sink = LocalResults(Writer(root / "db"), user="someone", trust="all")
    state = sweep_in(root / "sweeps", earlier="20260101-abc")
    policy = Policy(max_slowdown=0.3, training=Training(trust="all", budget_node_hours=1e9))
    sweep = Sweep(state, Stated(wrong=wrong), sink, policy, TrainingSite(), events.append)
    try:
        return sweep.run(), sweep, events
    finally:
        sink.close()


def test_a_sweep_needs_no_complete_run_but_the_one_that_confirms(tmp_path: Path) -> None:
    outcome, sweep, _ = swept(tmp_path)
    assert outcome.recommended is not None and outcome.recommended.confirmed
    assert [ended_early(o) for o in sweep.observations].count(False) == 1
    assert outcome.payback is not None and outcome.spent.energy_known
    spent = math.fsum(r.time_s or 0 for r in outcome.results.values())
    assert outcome.spent.node_hours * 3600 < 0.3 * spent


def test_a_borrowed_run_that_was_not_this_one_is_found_by_the_confirming_run(
    tmp_path: Path,
) -> None:
    """An input with fewer iterations looks like the earlier run until its end."""
    outcome, sweep, events = swept(tmp_path, wrong=1.5)
    assert [r.configuration for r in sweep.state.stages[CHECK].runs] == [CELLS[-1]]
    assert any("the job as written runs again" in e.text for e in events)
    assert outcome.baseline.time_s == pytest.approx(200 / 16 + 34, rel=0.01)  # as it is
    assert outcome.recommended is None  # and the next sweep begins with a run of its own
    assert earlier_complete(tmp_path / "sweeps", sweep_in(tmp_path / "sweeps")) is None
    assert any("left out: 12 runs ended early" in n for n in outcome.notes)
