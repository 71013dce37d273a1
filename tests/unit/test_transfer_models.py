"""Models by transfer in the store, and what decisions make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.node_type_estimate import NodeTypeEstimate
from advisor.core.observation import Scope
from advisor.core.option import Option
from advisor.core.stamp import make_stamp, read_stamp
from advisor.derive.transfers import unadvised
from advisor.derive.worker import derive
from advisor.loop.comparable import model_promises
from advisor.loop.outcomes import judged_model, unmetered
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.translator import parse_request, read_arguments, read_directives
from advisor.service.decide import decide
from advisor.service.snapshot import StoreSource
from advisor.store.publish import publish
from advisor.store.rankings import promote_estimates, save_ranking
from advisor.store.records import StoredModel
from advisor.store.writer import Writer
from advisor.views.whatif import WhatIf, queues_words
from tests.unset import as_measured

FREQS = (1_200_000, 1_700_000, 2_200_000)
BDW = NodeType(
    "bdw",
    feature="broadwell",
    partitions=("batch", "bdw"),
    sockets=2,
    cores=28,
    freq_khz=FREQS,
    default_freq_khz=2_200_000,
    nodes=("bdw1", "bdw2"),
    default_partition="batch",
)
SKL = NodeType(
    "skl",
    feature="skylake",
    partitions=("batch",),
    sockets=2,
    cores=40,
    freq_khz=FREQS,
    default_freq_khz=2_200_000,
    nodes=("skl1", "skl2"),
    weight=10,
)
SCRIPT = "#!/bin/bash\nsrun ./stencil\n"


def response(node_type: str, threads: int, freq: int, factor: float = 1.0) -> Option:
    """Compute-bound: nothing to gain on the node type itself."""
    time_s = factor * 100 * 28 / threads * 2.2e6 / freq
    energy = time_s * (100 + 4 * threads)
    return Option(
        Configuration(node_type, 1, 1, threads, freq),
        time_s,
        time_s * 0.995,
        time_s * 1.005,
        energy,
        energy * 0.995,
        energy * 1.005,
        True,
        True,
    )


def grid(node_type: str = "bdw", cores: int = 28, factor: float = 1.0) -> list[Option]:
    threads = range(cores // 4, cores + 1, cores // 4)
    return [response(node_type, t, f, factor) for t in threads for f in FREQS]


def fitted(
    writer: Writer, node_type: str = "bdw", scope: Scope = "all", owner: str = "", **more: Any
) -> StoredModel:
    values: dict[str, Any] = {"energy_quality": "measured", "options": grid(), **more}
    return writer.save_model(
        "stencil",
        "default",
        node_type,
        scope=scope,
        owner=owner,
        name="bspline",
        n_train=12,
        stats={"error": 0.05, **as_measured(values["options"])},
        **values,
    )


def ranked(
    writer: Writer,
    ratio: float = 0.5,
    scope: Scope = "all",
    contributor: str = "root",
    base: str = "bdw",
    **more: Any,
) -> None:
    values: dict[str, Any] = {
        "error_pct": 4.0,
        "similarity": 110.0,
        "similarity_max": 125.0,
        "energy_ratio": ratio * 1.1,
        "energy_error_pct": 4.0,
        "energy_source": "profiles",
        **more,
    }
    save_ranking(
        writer,
        "stencil",
        "default",
        base,
        [
            NodeTypeEstimate(base, 100.0, 1.0, 0.0),
            NodeTypeEstimate("skl", 100 * ratio, ratio, **values),
        ],
        method="thesis",
        contributor=contributor,
        scope=scope,
    )


def there(writer: Writer) -> list[StoredModel]:
    assert derive(writer)
    return writer.find_models("stencil", "default", "skl")


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW, SKL], source="test")
        policy(writer)
        yield writer


def policy(writer: Writer, **settings: Any) -> None:
    base = {
        "mode": "apply",
        "goal": "min_energy",
        "holdout": 0.0,
        "node_type_change": "allow",
        "estimated_node_types": "accept",
        **settings,
    }
    writer.apply_config(
        "policy",
        path="p.yaml",
        text=repr(settings),
        compiled={"base": base, "rules": []},
        by="test",
    )


def ask(
    writer: Writer,
    arguments: str = "-N1 --exclusive --mem=2G",
    user: str = "ada",
    path: Path | None = None,
    **payload: Any,
) -> Decision:
    script = payload.pop("script", SCRIPT)
    options = {"time": "600"} | read_directives(script) | read_arguments(arguments.split())
    request = parse_request(
        {
            "type": "sbatch",
            "options": options,
            "script": script,
            "script_path": "/home/job.sh",
            "argv": ["/home/job.sh"],
            **payload,
        },
        user=user,
        uid=1000,
        choices=payload.get("picks") or {},
    )
    assert derive(writer)
    source = StoreSource(path or Path(writer.path))
    source.refresh()
    source.close()
    return decide(request, source.snapshot, chance=lambda: 1.0)


def codes(decision: Decision) -> set[str]:
    return {r.code for r in decision.reasons}


# -- the store -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ranking_first", [True, False])
def test_a_model_and_a_ranking_make_a_model(store: Writer, ranking_first: bool) -> None:
    for step in (ranked, fitted) if ranking_first else (fitted, ranked):
        assert there(store) == []
        step(store)
    (made,) = there(store)
    assert (made.name, made.energy_quality, made.n_train, made.scope) == (
        "transfer",
        "estimated",
        0,
        "all",
    )
    assert made.transferred and made.energy_basis == "measured"
    assert made.transfer["base"] == "bdw" and made.transfer["similarity"] == 110
    assert len(made.options()) == 12 and all(o.estimated for o in made.options())


def test_it_is_renewed_with_what_it_follows_from(store: Writer) -> None:
    fitted(store)
    ranked(store)
    (first,) = there(store)
    ranked(store)
    store.save_node_types([BDW, SKL], source="test")
    assert [m.id for m in there(store)] == [first.id]  # nothing new was said
    ranked(store, 0.4)
    (second,) = there(store)
    assert second.options()[0].time_s == pytest.approx(0.8 * first.options()[0].time_s)
    fitted(store, options=grid(factor=2.0))
    (third,) = there(store)
    assert third.options()[0].time_s == pytest.approx(2 * second.options()[0].time_s)
    store.save_node_types([replace(SKL, freq_khz=(), default_freq_khz=0)], source="test")
    (fourth,) = there(store)
    assert {o.configuration.freq_khz for o in fourth.options()} == {0}
    assert [m.version for m in (first, second, third, fourth)] == [1, 2, 3, 4]


def test_a_model_of_its_own_takes_its_place_at_once(store: Writer) -> None:
    fitted(store)
    ranked(store)
    fitted(store, "skl", options=grid("skl", 40))
    assert [m.name for m in there(store)] == ["bspline"]
    ranked(store, 0.3)
    assert [m.name for m in there(store)] == ["bspline"]
    store.set_model_state(there(store)[0].id, "replaced", "its runs are gone")
    assert [m.name for m in there(store)] == ["transfer"]


def test_an_own_model_of_one_user_leaves_everybody_elses_estimate(store: Writer) -> None:
    fitted(store)
    ranked(store)
    fitted(store, "skl", "own", "ada", options=grid("skl", 40))
    assert sorted((m.name, m.owner) for m in there(store)) == [("bspline", "ada"), ("transfer", "")]


def test_without_its_base_there_is_none(store: Writer) -> None:
    base = fitted(store)
    ranked(store)
    store.set_model_state(base.id, "suspended", "worse than promised")
    assert there(store) == []
    fitted(store)
    assert len(there(store)) == 1


def test_whose_jobs_it_advises(store: Writer) -> None:
    fitted(store)
    ranked(store, scope="own", contributor="ada")
    assert [(m.scope, m.owner) for m in there(store)] == [("own", "ada")]
    fitted(store, "bdw", "own", "bob")
    assert [(m.scope, m.owner) for m in there(store)] == [("own", "ada")]
    assert promote_estimates(store, "stencil", contributor="bob") == 0
    assert promote_estimates(store, "stencil", contributor="ada") == 2
    assert sorted((m.scope, m.owner) for m in there(store)) == [("all", ""), ("own", "bob")]
    # the surer of two rankings from different node types counts
    store.save_node_types([replace(BDW, name="old", feature="old")], source="other")
    fitted(store, "old", options=grid("old", factor=4.0))
    ranked(store, 0.2, base="old", error_pct=3.0)
    assert {m.transfer["base"] for m in there(store) if m.scope == "all"} == {"old"}


def test_a_suspended_one_rests_until_the_ranking_says_something_else(store: Writer) -> None:
    fitted(store)
    ranked(store)
    store.set_model_state(there(store)[0].id, "suspended", "worse than promised: job 7")
    fitted(store)
    ranked(store)
    assert [m.state for m in there(store)] == ["suspended"]
    ranked(store, 0.8)
    assert [m.state for m in there(store)] == ["fitted"]


def test_without_energy_there_is_none_and_why(store: Writer) -> None:
    fitted(store)
    unknown: dict[str, Any] = {
        "energy_ratio": None,
        "energy_error_pct": None,
        "energy_source": None,
    }
    ranked(store, **unknown)
    assert there(store) == []
    ((ranking, why),) = unadvised(store)
    assert ranking.estimate.node_type == "skl" and "base_power_w" in why
    store.save_node_types(
        [replace(t, base_power_w=100.0, core_power_w=5.0) for t in (BDW, SKL)], source="test"
    )
    assert len(there(store)) == 1 and unadvised(store) == []


# -- decisions -----------------------------------------------------------------------------------


@pytest.fixture
def estimated(store: Writer) -> Writer:
    fitted(store)
    ranked(store)
    return store


def test_a_job_goes_where_it_never_ran(estimated: Writer, tmp_path: Path) -> None:
    decision = ask(estimated)
    assert decision.rewrite["constraint"] == "skylake"
    assert decision.chosen is not None and decision.chosen.estimated
    assert not decision.chosen.confirmed and "confirmed" not in codes(decision)
    assert "skl is estimated from microbenchmarks, similarity 110/125" in [
        r.text for r in decision.reasons
    ]
    assert decision.energy_quality == "estimated" and "not measured there" in decision.message
    low, high = decision.chosen.energy.lo, decision.chosen.energy.hi
    assert high - low > 0.2  # the whole of the method's error is in the promise
    copy = tmp_path / "copy.db"
    publish(Path(estimated.path), copy)
    assert ask(estimated, path=copy).rewrite == decision.rewrite


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-N1 --exclusive -p bdw", "no-room"),
        ("-N1 --exclusive -C broadwell", "user-set"),
        ("-N1 --exclusive -c 28", "user-set"),
    ],
)
def test_what_the_job_fixed_holds(estimated: Writer, arguments: str, said: str) -> None:
    decision = ask(estimated, arguments)
    assert decision.rewrite == {} and said in codes(decision)


def test_a_policy_that_says_nothing_of_them_refuses(estimated: Writer) -> None:
    base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0, "node_type_change": "allow"}
    estimated.apply_config(
        "policy", path="p.yaml", text="", compiled={"base": base, "rules": []}, by="test"
    )
    refused = ask(estimated)
    assert refused.rewrite == {} and "estimates-refused" in codes(refused)


def test_the_policy_and_the_user_may_refuse(estimated: Writer) -> None:
    policy(estimated, estimated_node_types="refuse")
    refused = ask(estimated)
    assert refused.rewrite == {} and "estimates-refused" in codes(refused)
    wish = SCRIPT.replace("\n", "\n#ADVISOR estimated_node_types=accept\n", 1)
    assert "setting-refused" in codes(ask(estimated, script=wish))
    policy(estimated)
    careful = wish.replace("=accept", "=refuse")
    assert ask(estimated, script=careful).rewrite == {}
    variable = {"ADVISOR_ESTIMATED_NODE_TYPES": "refuse"}
    assert ask(estimated, env=variable).rewrite == {}
    picks = {"workloads": {"stencil/*": {"estimated_node_types": "refuse"}}}
    assert ask(estimated, picks=picks).rewrite == {}
    unknown = ask(estimated, env={"ADVISOR_ESTIMATED_NODE_TYPES": "maybe"})
    assert unknown.rewrite and "setting-refused" in codes(unknown)
    policy(estimated, axes={"node_type": "keep"})
    assert ask(estimated).rewrite == {}


def test_the_bounds_hold_over_the_wide_interval(store: Writer) -> None:
    fitted(store)
    ranked(store, 0.9, energy_ratio=0.8)  # better on average, but not surely
    unsure = ask(store)
    assert unsure.rewrite == {} and "slowdown" in codes(unsure)
    policy(store, confidence=0.5)
    assert ask(store).rewrite["constraint"] == "skylake"


def test_an_estimate_needs_a_confirmed_option(store: Writer) -> None:
    fitted(store, options=[replace(o, confirmed=False) for o in grid()])
    ranked(store)
    decision = ask(store)
    assert decision.rewrite == {} and "unconfirmed" in codes(decision)


def test_a_job_on_an_estimated_node_type_is_left_alone(estimated: Writer) -> None:
    decision = ask(estimated, "-N1 --exclusive -C skylake")
    assert decision.rewrite == {} and "no-model" in codes(decision)


def test_what_was_measured_goes_before_an_estimate_that_is_not_surely_better(
    store: Writer,
) -> None:
    saves = [
        replace(
            o,
            energy_j=o.energy_j * 0.7,
            energy_lo_j=o.energy_lo_j * 0.7,
            energy_hi_j=o.energy_hi_j * 0.7,
            time_s=o.time_s * 0.7,
            time_lo_s=o.time_lo_s * 0.7,
            time_hi_s=o.time_hi_s * 0.7,
        )
        if o.configuration.threads_per_node == 21 and o.configuration.freq_khz == 2_200_000
        else o
        for o in grid()
    ]
    fitted(store, options=saves)
    ranked(store, 0.6, energy_ratio=0.95)
    known = ask(store)
    assert known.chosen is not None and known.chosen.configuration.node_type == "bdw"
    ranked(store, 0.6, energy_ratio=1.05)  # now what was measured is best by itself
    assert ask(store).chosen == known.chosen
    ranked(store, 0.3, energy_ratio=0.3)
    surely = ask(store)
    assert surely.chosen is not None and surely.chosen.configuration.node_type == "skl"


def test_a_what_if_asks_only_for_jobs_where_they_were_measured(estimated: Writer) -> None:
    assert derive(estimated)
    what_if = WhatIf.load(estimated)
    (case,) = what_if.cases
    assert case.baseline.node_type == "bdw"
    assert case.now is not None and case.now.configuration.node_type == "skl"
    (change,) = what_if.under("min_energy", 0.1)
    assert queues_words([change]) == "; 1 change node type, queues permitting"
    assert queues_words([replace(change, then=None)]) == ""


def test_an_estimate_far_from_what_is_known_must_be_worth_it(store: Writer) -> None:
    """Half the cores for 2 % less energy there, but how that type scales is not known."""
    half = [
        replace(
            o,
            energy_j=o.energy_j * 0.665,
            energy_lo_j=o.energy_lo_j * 0.665,
            energy_hi_j=o.energy_hi_j * 0.665,
            time_s=o.time_s * 0.5,
            time_lo_s=o.time_lo_s * 0.5,
            time_hi_s=o.time_hi_s * 0.5,
        )
        if o.configuration.threads_per_node == 14 and o.configuration.freq_khz == 2_200_000
        else o
        for o in grid()
    ]
    fitted(
        store, options=[replace(o, confirmed=o.configuration.freq_khz == 2_200_000) for o in half]
    )
    ranked(store, 0.3, energy_ratio=0.3)
    decision = ask(store)
    assert decision.chosen is not None
    assert decision.chosen.configuration.to_dict()["threads_per_node"] == 40


def test_a_pin_on_an_estimate_is_told_as_such(estimated: Writer) -> None:
    pin: dict[str, Any] = {"node_type": "skl", "threads_per_node": 30, "freq_khz": 2_200_000}
    picks = {"workloads": {"stencil/*": {"pin": pin}}}
    pinned: Callable[[], Decision] = lambda: ask(estimated, picks=picks)  # noqa: E731
    assert {"pinned", "node-type-estimated"} <= codes(pinned())
    assert pinned().rewrite["constraint"] == "skylake"


def test_a_promise_is_held_against_the_estimate_that_made_it(estimated: Writer) -> None:
    decision = ask(estimated)
    job = JobRecord(job_id="7", name="job", user="ada", account="", state="COMPLETED")
    (base,) = estimated.find_models("stencil", "default", "bdw")
    (model,) = there(estimated)
    assert judged_model(decision, job, estimated) == model
    stamped = read_stamp(make_stamp(decision))
    assert stamped is not None and model_promises(stamped, model, base)
    assert not model_promises(stamped, base, base)
    assert not unmetered(decision) and unmetered(replace(decision, reasons=()))
    fitted(estimated, "skl", options=grid("skl", 40))
    assert judged_model(decision, job, estimated) is None


def test_what_was_measured_over_a_gpus_clock_is_not_carried(store: Writer) -> None:
    """Its time follows a GPU, and node types are ranked by what their processors do."""
    clocked = [
        replace(o, configuration=replace(o.configuration, extra=(("gpu_freq_khz", clock_khz),)))
        for o in grid()
        for clock_khz in (900_000, 1_400_000)
    ]
    fitted(store, options=clocked)
    ranked(store)
    assert there(store) == []
    ((_, why),) = unadvised(store)
    assert why == "it was measured over GPU clock: rankings are of processors"
