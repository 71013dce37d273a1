"""One job at a time tries a point, and jobs that must stay as written never do."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.core.reasons import TRIAL
from advisor.schedulers.base import JobRecord
from advisor.store.signatures import save_signatures
from advisor.store.trials import take_place, under_way
from tests.unit.never_swept import SCRIPT, ask, of, policy, signature, sweep
from tests.unit.trials.site import USER, Site


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


def test_submissions_that_never_became_jobs_use_up_no_trial(site: Site) -> None:
    """The policy's two trials are those that took place."""
    for _ in range(3):
        assert TRIAL in site.submit().codes
        two_hours = datetime.now(UTC) - timedelta(hours=2)
        site.store.change("UPDATE trials SET created_at = ?", (two_hours.isoformat(),))
        assert site.collect().trials["freed"] == 1
    assert site.states == ["freed"] * 3


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
