"""Trials: one job at a time tries a point; what comes of it confirms the point or rules it out."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pwd import getpwuid
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.special import stdtr

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.option import row_of
from advisor.core.policy import ColdStart, Policy
from advisor.core.reasons import TRIAL
from advisor.core.trial_points import TrialPoints
from advisor.loop.collect import Collected, collect
from advisor.loop.health_site import check_trials
from advisor.prior.fit import learn
from advisor.prior.predicted_options import options
from advisor.prior.surface import WorkloadSurface
from advisor.prior.trials import TrialBounds, expected_improvement, trial
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.service.handlers import Handlers
from advisor.service.peer import Peer
from advisor.service.snapshot import StoreSource
from advisor.store.forgetting import forget, remember
from advisor.store.journal import Journal
from advisor.store.signatures import save_signatures
from advisor.store.trials import take_place, trials, under_way
from advisor.store.writer import Writer
from advisor.views.applications import page as applications_page
from advisor.views.jobs import page as jobs_page
from advisor.views.preview import Person
from tests.unit.never_swept import (
    CORES,
    NODE_TYPE,
    OWN,
    SCRIPT,
    TOP,
    ask,
    law,
    of,
    policy,
    signature,
    sweep,
)  # fmt: skip

USER = getpwuid(os.getuid()).pw_name
HERE = Peer(os.getpid(), os.getuid(), os.getgid())


class Accounting:
    """A scheduler with the records it was given."""

    NAME: ClassVar[str] = "slurm"

    def __init__(self, *ended: JobRecord, queue: Sequence[JobRecord] = ()) -> None:
        self.ended, self.queue = list(ended), list(queue)

    def finished_jobs(self, since: str) -> list[JobRecord]:
        return self.ended

    def unfinished_jobs(self) -> list[JobRecord]:
        return list(self.queue)


class Site:
    """A store, its daemon's handlers, and jobs that run as decided by a law."""

    def __init__(self, writer: Writer) -> None:
        self.store = writer
        self.jobs = 100
        self.daemons = [self._daemon()]

    def _daemon(self) -> Handlers:
        path = Path(self.store.path)
        found = Handlers(StoreSource(path), journal=Journal(path))
        found.refresh()
        return found

    def ask(self, script: str = SCRIPT, daemon: int = 0, **more: Any) -> dict[str, Any]:
        """Ask the daemon as the filter does."""
        body = {
            "v": 1, "op": "decide", "scheduler": "slurm", "hook": "cli_filter", "type": "sbatch",
            "options": {"nodes": "1", "exclusive": "exclusive", "mem": "2G", **more},
            "argv": ["/home/job.sh"], "script": script, "script_path": "/home/job.sh",
            "truncated": False, "env": {}, "choices": "", "cwd": "/home", "het": False,
        }  # fmt: skip
        found: dict[str, Any] = json.loads(
            self.daemons[daemon].answer(json.dumps(body).encode(), HERE)
        )
        return found

    def submit(self, script: str = SCRIPT, daemon: int = 0, **more: Any) -> Decision:
        """Ask the daemon as the filter does; what it decided is in the store."""
        answer, handlers = self.ask(script, daemon, **more), self.daemons[daemon]
        handlers.settle()
        assert handlers.journal is not None
        waiting = list(handlers.journal._items)
        decision = next(i.decision for i in waiting if i.decision_id == answer["decision"])
        assert decision is not None
        self.store.save_decision(decision)
        return decision

    def job(self, decision: Decision, memory: float, **more: Any) -> JobRecord:
        """Return the accounting's record of a decision's job that ran by the law."""
        self.jobs += 1
        ran = decision.configuration
        assert ran is not None
        time_s, watts = law(memory, ran.threads_per_node, ran.freq_khz)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        values: dict[str, Any] = {
            "submitted_at": now, "ended_at": now, "elapsed_s": time_s, "nodes": 1,
            "node_list": "n1", "cpus": CORES, "energy_j": time_s * watts, "resolution_s": 0.01,
            "freq_requested_khz": ran.freq_khz, "partition": "batch",
        } | more  # fmt: skip
        self.store.link_job(decision.id, str(self.jobs))
        step = StepRecord("0", "new", "COMPLETED", time_s, 1, 1, time_s * watts, ran.freq_khz)
        record = JobRecord(str(self.jobs), "job", USER, "", values.pop("state", "COMPLETED"))
        return replace(record, steps=(step,) if values["node_list"] else (), **values)

    def collect(self, *ended: JobRecord, queue: Sequence[JobRecord] = ()) -> Collected:
        found = collect(self.store, Accounting(*ended, queue=queue), datetime.now(UTC))  # type: ignore[arg-type]
        for daemon in self.daemons:
            daemon.refresh()
        return found

    @property
    def states(self) -> list[str]:
        return [t.state for t in trials(self.store)]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("swept") / "advisor.db"
    with Writer(path) as writer:
        writer.save_node_types([NODE_TYPE], source="test")
        with writer.batch():
            for i in range(8):
                sweep(writer, f"app{i}", 0.1 + 0.1 * i)
        policy(writer, mode="apply", classes=["unknown"])
        save_signatures(writer, "new", "default", [signature(0.75)])
    return path


@pytest.fixture
def site(swept: Path, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "advisor.db").write_bytes(swept.read_bytes())
    with Writer(tmp_path / "advisor.db") as writer:
        made = Site(writer)
        yield made
        for daemon in made.daemons:
            daemon.close()


def test_a_trial_is_confirmed_and_used_from_then_on(site: Site) -> None:
    first = site.submit()
    assert TRIAL in first.codes
    assert first.changed
    assert first.chosen is not None
    assert first.chosen.estimated
    assert not first.chosen.confirmed
    assert first.cold_start["trial"] == {"number": 1, "of": 2}
    assert "trial" in first.message
    assert site.states == ["pending"]

    meanwhile = site.submit()  # the same line again, from the answers that were remembered
    assert TRIAL not in meanwhile.codes
    assert "trial-pending" in meanwhile.codes
    assert site.states == ["pending"]

    done = site.collect(site.job(first, 0.75))
    assert done.trials["confirmed"] == 1
    (model,) = of(site.store, "new")
    assert model.stats["confirmed"] == 1
    (tried,) = model.trials
    assert tried["state"] == "confirmed"
    assert tried["point"] == first.chosen.configuration.to_dict()
    option = next(o for o in model.options() if o.confirmed)
    time, power = law(0.75, option.configuration.threads_per_node, option.configuration.freq_khz)
    assert option.time_s == pytest.approx(time, rel=1e-6)
    assert option.energy_j == pytest.approx(time * power, rel=1e-6)
    assert not any(o.estimated for o in model.options())

    policy(site.store, mode="apply", classes=["unknown"], trials=1)
    site.daemons[0].refresh()
    later = site.submit()
    assert later.changed
    assert later.chosen is not None
    assert later.chosen.confirmed
    assert later.chosen.configuration == first.chosen.configuration
    assert "trial-confirmed" in later.codes
    assert TRIAL not in later.codes
    assert later.cold_start["trial"] is None
    assert site.collect(site.job(first, 0.75)).trials == {"freed": 0}  # collected twice


def test_its_outcome_conditions_the_prior(site: Site) -> None:
    before = {o.configuration: o for o in of(site.store, "new")[0].options()}
    first = site.submit()
    site.collect(site.job(first, 0.75))
    after = {o.configuration: o for o in of(site.store, "new")[0].options()}
    assert first.chosen is not None
    near = replace(first.chosen.configuration, freq_khz=first.chosen.configuration.freq_khz)
    others = [c for c in after if c not in (OWN, near)]
    narrower = [c for c in others if after[c].energy_sigma < before[c].energy_sigma]
    assert len(narrower) > 0.7 * len(others)


def test_a_refuted_point_leaves_the_job_as_it_was(site: Site) -> None:
    policy(site.store, mode="apply", classes=["unknown"], trials=1)
    site.daemons[0].refresh()
    first = site.submit()
    assert first.chosen is not None
    time_s, energy_j = first.baseline_time_s, first.baseline_energy_j
    assert time_s is not None and energy_j is not None
    out = site.job(first, 0.75, elapsed_s=1.05 * time_s, energy_j=0.99 * energy_j)
    out = replace(out, steps=(replace(out.steps[0], elapsed_s=1.05 * time_s),))
    assert site.collect(out).trials["refuted"] == 1
    later = site.submit()
    assert not later.changed
    assert later.chosen is None
    assert later.codes[0] == "class-estimated" or "trials-refuted" in later.codes
    assert not under_way(site.store).stopped


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({"state": "CANCELLED", "node_list": ""}, ""),
        ({"state": "CANCELLED"}, ""),
        ({"state": "NODE_FAIL"}, ""),
        ({"state": "FAILED"}, "unjudged"),
        ({"state": "OUT_OF_MEMORY"}, "unjudged"),
        ({"freq_requested_khz": TOP}, "unjudged"),
        ({"energy_j": None}, "unjudged"),
        ({"restarts": 1}, "unjudged"),
        ({"state": "TIMEOUT", "elapsed_s": 3000.0}, "bad"),
        ({"elapsed_s": 3000.0}, "bad"),
        ({"energy_j": 1e6}, "bad"),
    ],
)
def test_what_became_of_the_job(site: Site, more: dict[str, Any], state: str) -> None:
    first = site.submit()
    record = site.job(first, 0.75, **more)
    if "elapsed_s" in more:
        record = replace(record, steps=(replace(record.steps[0], elapsed_s=more["elapsed_s"]),))
    found = site.collect(record)
    assert site.states == [state or "freed"]
    assert found.trials[state or "freed"] == 1
    again = site.submit()
    if state:  # it was a trial, and its point is not tried again
        assert again.cold_start["trial"] in (None, {"number": 2, "of": 2})
        assert again.chosen is None or again.chosen.configuration != first.chosen.configuration  # type: ignore[union-attr]
    else:
        assert again.cold_start["trial"] == {"number": 1, "of": 2}


def test_a_submission_that_never_became_a_job_frees_its_place(site: Site) -> None:
    first = site.submit()
    assert site.collect().trials["freed"] == 0  # it may still come
    two_hours = datetime.now(UTC) - timedelta(hours=2)
    site.store.change("UPDATE trials SET created_at = ?", (two_hours.isoformat(),))
    waits = JobRecord("7", "", USER, "", "PENDING", submitted_at=two_hours.isoformat())
    assert site.collect(queue=[waits]).trials["freed"] == 0
    assert site.collect(queue=[replace(waits, user="eve")]).trials["freed"] == 1
    assert site.states == ["freed"]
    assert TRIAL in site.submit().codes
    late = site.collect(site.job(first, 0.75))  # it comes after all
    assert late.trials["confirmed"] == 1
    assert site.states == ["confirmed", "pending"]


def test_one_place_for_all_daemons(site: Site) -> None:
    site.daemons.append(site._daemon())
    assert TRIAL in site.submit(daemon=0).codes
    assert TRIAL not in site.submit(daemon=1).codes  # it has not seen the store since
    assert site.states == ["pending"]


def test_many_at_once_take_one_place(site: Site) -> None:
    decision = ask(site.store)
    assert TRIAL in decision.codes
    (model,) = of(site.store, "new")
    taken: list[bool] = []
    path = Path(site.store.path)
    threads = [
        threading.Thread(
            target=lambda i=i: taken.append(
                take_place(path, replace(decision, id=f"{i:016x}"), model)
            )
        )
        for i in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sum(taken) == 1
    assert not take_place(path.with_name("gone.db"), decision, model)


def test_a_store_that_cannot_be_written_means_no_trial(site: Site) -> None:
    with site.store.batch():  # another writer is at work
        answer = site.ask()
    assert TRIAL not in answer["stamp"]
    assert site.states == []
    assert TRIAL in site.ask()["stamp"]


def test_two_bad_trials_stop_the_class(site: Site) -> None:
    for name in ("other", "third"):
        save_signatures(site.store, name, "default", [signature(0.75)])
    site.daemons[0].refresh()
    for count, name in enumerate(("new", "other")):
        assert len(under_way(site.store).stopped) == 0
        first = site.submit(SCRIPT.replace("./new", f"./{name}"))
        assert TRIAL in first.codes, (count, first.codes)
        record = site.job(first, 0.75, energy_j=1e6)
        assert site.collect(record).trials["bad"] == 1
    assert under_way(site.store).stopped == {("cpu", "unknown")}
    third = site.submit(SCRIPT.replace("./new", "./third"))
    assert TRIAL not in third.codes
    assert "trials-stopped" in third.codes
    sweep(site.store, "other", 0.75)  # the prior has learned from it
    site.daemons[0].refresh()
    assert TRIAL in site.submit(SCRIPT.replace("./new", "./third")).codes


@pytest.mark.parametrize(
    "more",
    [{"array": "0-9"}, {"hold": "hold"}, {"begin": "now+1hour"}, {"cpu-freq": "1200000"}],
)
def test_no_trial_for_arrays_held_jobs_and_what_the_user_set(
    site: Site, more: dict[str, Any]
) -> None:
    decision = site.submit(**more)
    assert TRIAL not in decision.codes
    assert site.states == []


@pytest.mark.parametrize("line", ["cold_start=off", "mode=advise", "off", "max_slowdown=0.01%"])
def test_a_user_who_refuses_runs_none(site: Site, line: str) -> None:
    decision = site.submit(SCRIPT.replace("\n", f"\n#ADVISOR {line}\n", 1))
    assert TRIAL not in decision.codes
    assert not decision.changed
    assert site.states == []


def test_holdout_and_suspension_as_ever(site: Site) -> None:
    base = {"mode": "apply", "goal": "min_energy", "holdout": 1.0, "max_slowdown": 0.10}
    base["cold_start"] = {"mode": "apply", "classes": ["unknown"]}
    site.store.apply_config(
        "policy", path="p", text="holdout", compiled={"base": base, "rules": []}, by="test"
    )
    site.daemons[0].refresh()
    left = site.submit()
    assert left.holdout
    assert not left.changed
    assert site.states == []
    policy(site.store, mode="apply", classes=["unknown"])
    site.store.set_model_state(of(site.store, "new")[0].id, "suspended", "worse")
    site.daemons[0].refresh()
    assert "suspended" in site.submit().codes
    assert site.states == []


def test_what_is_forgotten_takes_its_trials_along(site: Site) -> None:
    site.collect(site.job(site.submit(), 0.75))
    forget(site.store, "new", by="test")
    assert site.states == []
    remember(site.store, "new")
    assert site.states == ["confirmed"]
    assert of(site.store, "new")[0].stats["confirmed"] == 1


def test_another_own_point_starts_without_what_was_tried(site: Site) -> None:
    site.collect(site.job(site.submit(), 0.75))
    fewer = Configuration("cpu", 1, 1, 12, TOP)
    time_s, power_w = law(0.75, 12, TOP)
    new = replace(signature(0.75), configuration=fewer, time_s=time_s, power_w=power_w)
    save_signatures(site.store, "new", "default", [new])
    (model,) = of(site.store, "new")
    assert model.stats["confirmed"] == 0
    assert len(model.trials) == 1  # but it has used one up


def test_the_looked_up_trial_is_the_one_the_prior_would_try() -> None:
    """Random priors and bounds: what the daemon finds is what advisor.prior.trials finds."""
    rng = np.random.default_rng(7)
    grid = np.array([(a, b) for a in np.log([0.25, 0.5, 0.75, 1]) for b in np.log([0.5, 0.75, 1])])
    checked = 0
    for _ in range(12):
        known = [
            WorkloadSurface(
                f"a{i}", {"gbs": float(m), "power_w": 200.0 + 10 * i}, grid,
                np.log((1 - m) / np.exp(grid.sum(axis=1)) + m),
                np.log(((1 - m) / np.exp(grid.sum(axis=1)) + m) * (1 + np.exp(grid.sum(axis=1)))),
            )
            for i, m in enumerate(rng.uniform(0.2, 1.0, 9))
        ]  # fmt: skip
        own = np.zeros(2)
        prior = learn(known, ("gbs", "power_w"), grid, own).prior({"gbs": 0.9, "power_w": 230.0})
        made = options(prior, OWN, NODE_TYPE, 100.0, 200.0)
        for slowdown, confidence, saving in rng.uniform((0, 0.5, 0), (0.4, 0.95, 0.1), (8, 3)):
            cold = ColdStart(confidence=round(float(confidence), 2))
            values = Policy(
                goal="min_energy", max_slowdown=float(slowdown), min_saving=float(saving),
                cold_start=cold,
            )  # fmt: skip
            bounds = TrialBounds(
                float(slowdown), float(saving), trial_confidence=cold.confidence, min_applications=1
            )
            rows = [row_of(o) for o in made.options]
            base = next(r for r in rows if r.configuration("cpu") == OWN)
            others = [r for r in rows if r is not base]
            points = TrialPoints.from_dict(made.trial_points.to_dict())
            assert points is not None
            found = points.best(rows, others, base, values)
            wanted = trial(
                prior, bounds, 0.0, [i for i, p in enumerate(prior.points) if not p.any()]
            )
            assert (found is None) == (wanted is None)
            if found is None or wanted is None:
                continue
            checked += 1
            place = np.log([found.threads_per_node / CORES, found.freq_khz / TOP])
            at = int(np.argmin(np.abs(prior.points - place).sum(axis=1)))
            gain = expected_improvement(prior.mean[1], prior.scale[1], prior.dof, 0.0)
            keeps = stdtr(prior.dof, (bounds.ln[0] - prior.mean[0]) / prior.scale[0])
            assert keeps[at] >= cold.confidence - 1e-3
            assert (gain * keeps)[at] >= 0.999 * (gain * keeps)[wanted]
    assert checked > 20


@pytest.mark.parametrize(
    "data", [None, {}, {"quantiles": [0.0], "by_option": ""}, {"by_option": "%"}, {"values": ""}, 7]
)
def test_torn_trial_points_mean_no_trial(data: object) -> None:
    assert TrialPoints.from_dict(data) is None


def test_a_users_own_model_counts_the_trials_of_that_for_all(site: Site) -> None:
    first = site.submit()
    own = replace(signature(0.75, scope="own", contributor=USER), job_id="5")
    save_signatures(site.store, "new", "default", [own])
    site.daemons[0].refresh()
    assert "trial-pending" in site.submit().codes
    site.collect(site.job(first, 0.75))
    for model in of(site.store, "new"):
        assert [t["state"] for t in model.trials] == ["confirmed"], model.scope
    assert site.submit().cold_start["trial"] in (None, {"number": 2, "of": 2})


# -- shown -----------------------------------------------------------------------------------------


def test_it_is_shown_apart(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    from advisor.cli import main

    def said(*arguments: str) -> str:
        main([*arguments, "--db", str(site.store.path)])
        return capsys.readouterr().out

    fewer = of(site.store, "new")[0]
    wide = said("options", "new", "--all")
    assert "never swept there; class unknown: estimated from 8 applications" in wide
    assert wide.count(" to ") > len(fewer.options())  # an interval for each change
    first = site.submit()
    job = site.job(first, 0.75)
    site.collect(job)
    after = said("options", "new", "--all")
    assert "trial confirmed: " in after
    assert "run, confirmed" in after

    later = site.submit()
    site.collect(site.job(later, 0.75))
    data = json.loads(said("report", "--json"))
    states = {t.state for t in trials(site.store)}
    assert sum(data["trials"]["unknown"].values()) == len(site.states)
    assert set(data["trials"]["unknown"]) == states
    tried = sum(TRIAL in d.codes for d in (first, later))
    assert data["advised"] == 2
    assert sum(data["verdicts"].values()) == 2 - tried
    text = said("report")
    assert "trials, unknown, counted apart: " in text

    jobs = jobs_page(site.store)
    assert [j.promised.startswith("trial: ") for j in jobs].count(True) == tried
    person = Person(USER)
    rows = applications_page(site.store, person, search="class:unkn")
    assert [(r.application, r.class_name, r.state) for r in rows] == [
        ("new", "unknown", "confirmed")
    ]
    assert applications_page(site.store, person, search="class:memory") == []
    checks = list(check_trials(site.store))
    assert [c.state for c in checks] == ["ok"]


def test_doctor_names_a_class_whose_trials_are_stopped(site: Site) -> None:
    assert list(check_trials(site.store)) == []
    first = site.submit()
    site.collect(site.job(first, 0.75, energy_j=1e6))
    sql = "SELECT * FROM trials"
    row = dict(site.store.rows(sql)[0])
    del row["id"]
    row |= {"decision_id": "another", "created_at": "2026-01-01"}
    columns = ", ".join(row)
    marks = ", ".join("?" * len(row))
    site.store.change(f"INSERT INTO trials ({columns}) VALUES ({marks})", tuple(row.values()))
    (check,) = check_trials(site.store)
    assert check.state == "warn"
    assert "no more trials of unknown jobs on cpu" in check.text
    assert "advisor train" in check.todo
