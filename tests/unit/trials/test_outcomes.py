"""What comes of a trial confirms its point or rules it out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.reasons import TRIAL
from advisor.derive.worker import derive
from advisor.store.forgetting import forget, remember
from advisor.store.signatures import save_signatures
from advisor.store.trials import under_way
from tests.unit.never_swept import OWN, TOP, law, of, policy, signature
from tests.unit.trials.site import USER, Site


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


def test_no_other_trial_before_the_model_knows_of_it(site: Site) -> None:
    """Whoever collected may have died before it derived: the same point is not tried again."""
    first = site.submit()
    time_s, energy_j = first.baseline_time_s, first.baseline_energy_j
    assert TRIAL in first.codes and time_s is not None and energy_j is not None
    out = site.job(first, 0.75, elapsed_s=1.05 * time_s, energy_j=0.99 * energy_j)
    out = replace(out, steps=(replace(out.steps[0], elapsed_s=1.05 * time_s),))
    assert site.collect(out, then_derive=False).trials["refuted"] == 1
    again = site.submit()
    assert TRIAL not in again.codes and not again.changed
    assert site.states == ["refuted"]
    assert derive(site.store)
    (model,) = of(site.store, "new")
    assert [t["state"] for t in model.trials] == ["refuted"]


def test_a_bad_trial_rules_its_point_out_and_suspends_nothing(site: Site) -> None:
    first = site.submit()
    assert first.baseline_time_s is not None
    took_s = 2 * first.baseline_time_s
    out = site.job(first, 0.75, elapsed_s=took_s)
    done = site.collect(replace(out, steps=(replace(out.steps[0], elapsed_s=took_s),)))
    assert done.trials["bad"] == 1 and done.suspended == []
    assert [o.verdict for o in done.outcomes] == ["worse"]
    (model,) = of(site.store, "new")
    assert model.state == "fitted"
    assert [t["state"] for t in model.trials] == ["bad"]


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
