"""Trials are shown apart from advice, and doctor names the classes where they stopped."""

from __future__ import annotations

import json

import pytest

from advisor.core.reasons import TRIAL
from advisor.loop.health_site import check_trials
from advisor.store.listing import ListPage
from advisor.store.trials import trials
from advisor.views.applications import page as applications_page
from advisor.views.jobs import page as jobs_page
from advisor.views.preview import Person
from tests.unit.never_swept import of
from tests.unit.trials.site import USER, Site


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
    rows = applications_page(site.store, person, ListPage("class:unkn"))
    assert [(r.application, r.class_name, r.state) for r in rows] == [
        ("new", "unknown", "confirmed")
    ]
    assert applications_page(site.store, person, ListPage("class:memory")) == []
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
