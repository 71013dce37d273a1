"""Whose models and settings count: scopes, workloads, pins, limits, rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.core.decision import Decision
from advisor.store.writer import Writer
from tests.unit.decide.site import BDW, FREQS, ask, codes, model, policy, response


def test_suspended_models_change_nothing(store: Writer) -> None:
    store.set_model_state(1, "suspended", "jobs 7 and 8 were slower than promised")
    decision = ask(store)
    assert not decision.rewrite
    assert "suspended" in codes(decision)
    assert "jobs 7 and 8" in decision.reasons[-1].text


def test_another_users_runs_advise_nobody_else(store: Writer) -> None:
    fake = [response("bdw", 1, 1, t, 1_200_000) for t in (4, 28)]
    model(store, "bdw", fake, scope="own", owner="mallory")
    assert ask(store, user="ada").environment["OMP_NUM_THREADS"] == "20"
    assert ask(store, user="ada").model_id == 1
    assert ask(store, user="mallory").model_id == 2


def test_a_model_may_name_the_node_type_by_feature_or_by_its_nodes(store: Writer) -> None:
    for number, name in enumerate(("broadwell", "bdw")):
        options = [response(name, 1, 1, t, f) for t in (20, 28) for f in FREQS]
        model(store, name, options, application=f"app{number}")
    assert ask(store, script="srun ./app0").environment["OMP_NUM_THREADS"] == "20"
    store.save_node_types(
        [replace(BDW, name="bw", nodes=("bdw1", "bdw2"))], source="test", replace=True
    )
    decision = ask(store, script="srun ./app1")
    assert decision.environment["OMP_NUM_THREADS"] == "20"
    assert decision.baseline is not None and decision.baseline.node_type == "bw"


def test_account_models_reach_the_account_only(store: Writer) -> None:
    mine = [response("bdw", 1, 1, t, f) for t in (16, 28) for f in FREQS]
    number = model(store, "bdw", mine, scope="account", owner="proj")
    assert ask(store, "-N1 --exclusive -A proj").model_id == number
    assert ask(store, "-N1 --exclusive -A other").model_id == 1


def test_unknown_workloads_fall_back_to_default_or_not(store: Writer) -> None:
    script = "srun ./stencil --size 9"
    decision = ask(store, script=script)
    assert decision.rewrite and "workload-fallback" in codes(decision)
    policy(store, unknown_workload="skip")
    assert "no-model" in codes(ask(store, script=script))


def test_estimated_energy_only_advises_unless_the_site_says_otherwise(store: Writer) -> None:
    options = [response("bdw", 1, 1, t, f) for t in (20, 28) for f in FREQS]
    model(store, "bdw", options, energy_quality="estimated")
    decision = ask(store)
    assert not decision.rewrite and {"energy-estimated", "mode-advise"} <= codes(decision)
    assert "(estimated)" in decision.message
    policy(store, estimated_energy="apply")
    assert ask(store).rewrite


def test_a_pin_is_taken_even_where_the_site_only_advises(store: Writer) -> None:
    policy(store, mode="advise")
    pin = {"threads_per_node": 12, "freq_khz": 1_500_000}
    choices = {"version": 1, "workloads": {"stencil/default": {"pin": pin}}}
    decision = ask(store, choices=choices)
    assert decision.rewrite == {"cpu-freq": "1200000-1500000"}
    assert decision.environment == {"OMP_NUM_THREADS": "12"}
    assert "pinned" in codes(decision)
    impossible = {"workloads": {"stencil/default": {"pin": {"freq_khz": 9}}}}
    assert "pin-impossible" in codes(ask(store, choices=impossible))
    nonsense = {"workloads": {"stencil/default": {"pin": {"freq_khz": "fast"}}}}
    assert "pin-impossible" in codes(ask(store, choices=nonsense))


def test_users_may_be_stricter_and_laxer_only_within_limits(store: Writer) -> None:
    policy(store, user_limits={"mode": "apply", "max_slowdown": 0.1})
    strict = ask(store, env={"ADVISOR_MAX_SLOWDOWN": "0%"})
    assert strict.policy.max_slowdown == 0
    lax = ask(store, env={"ADVISOR_MAX_SLOWDOWN": "50%"})
    assert lax.policy.max_slowdown == 0.05
    assert "setting-refused" in codes(lax)
    bad = ask(store, env={"ADVISOR_GOAL": "speed", "ADVISOR_MODE": "yes"})
    assert [r.code for r in bad.reasons].count("setting-refused") == 2
    policy(store, mode="off")
    assert "mode-off" in codes(ask(store, env={"ADVISOR_MODE": "apply"}))


def test_rules_match_the_job(store: Writer) -> None:
    rule = {"match": {"partition": ["batch"], "user": ["ada"]}, "set": {"mode": "off"}}
    policy(store, rules=[rule])
    assert "mode-off" in codes(ask(store))
    assert ask(store, user="bob").rewrite


def pinned(writer: Writer, pin: object, **more: Any) -> Decision:
    return ask(writer, choices={"workloads": {"stencil/default": {"pin": pin, **more}}})


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ({"freq_khz": 9}, "not among the options"),
        ({"threads_per_node": 13}, "not among the options"),
        ({"node_type": "skl"}, "not among the options"),
        ({"nodes": 2, "threads_per_node": 20}, "not among the options"),  # the job has one
        ({"freq_khz": "fast"}, "freq_khz='fast'"),
        ({"threads_per_node": -4}, "threads_per_node=-4"),
        ({"threads_per_node": 0}, "threads_per_node=0"),
        ({"threads": 16}, "threads: not known"),
        ({"node_type": 7}, "node_type=7"),
        ({}, "it names nothing"),
    ],
)
def test_a_pin_that_cannot_be_had_leaves_the_job_as_written(
    store: Writer, pin: dict[str, object], said: str
) -> None:
    """Nothing else is taken in its place."""
    decision = pinned(store, pin)
    assert not decision.changed and decision.chosen is None
    (why,) = [r for r in decision.reasons if r.code == "pin-impossible"]
    assert said in why.text and why.text.startswith("nothing changed")


def test_a_pin_is_for_jobs_of_its_nodes_and_ranks(store: Writer) -> None:
    decision = pinned(store, {"nodes": 1, "ranks_per_node": 1, "threads_per_node": 12})
    assert "pinned" in codes(decision) and decision.changed
    assert decision.chosen is not None and decision.chosen.configuration.threads_per_node == 12


def test_what_is_wrong_in_a_choices_file_is_ignored_and_named(store: Writer) -> None:
    usual = ask(store)
    for choices in (
        {"workloads": ["stencil"]},
        {"workloads": {"stencil/default": "off"}},
        {"pin": "16 cores"},
        {"version": 7, "off": True},
    ):
        decision = ask(store, choices=choices)
        assert "choices-bad" in codes(decision), choices
        assert decision.rewrite == usual.rewrite
    for more in ({"goal": "fast"}, {"max_slowdown": "nan%"}, {"max_slowdown": -1}):
        decision = ask(store, choices=more)
        assert "setting-refused" in codes(decision), more
        assert decision.rewrite == usual.rewrite
