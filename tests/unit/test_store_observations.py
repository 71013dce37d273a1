"""Observations come out of the store as they went in, to those whom their scope names."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.errors import InputError
from advisor.store.reader import Reader
from advisor.store.records import Workload
from advisor.store.writer import Writer
from tests.unit.stored import C

positive = st.floats(1e-6, 1e12, allow_nan=False)
name = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    ranks = draw(st.integers(1, 64))
    energy = draw(st.none() | positive)
    return Observation(
        Configuration(
            draw(name),
            draw(st.integers(1, 9999)),
            ranks,
            ranks * draw(st.integers(1, 8)),
            draw(st.integers(0, 5_000_000)),
        ),
        draw(positive),
        energy,
        draw(st.none() | positive),
        "missing" if energy is None else draw(st.sampled_from(["measured", "estimated"])),
        draw(st.text(max_size=10)),
        draw(st.sampled_from(["import", "sweep", "confirm", "job", "run"])),
        draw(name),
        draw(st.text(max_size=10)),
        draw(st.sampled_from(["own", "account", "all"])),
        draw(st.text("0123456789_", max_size=8)),
        draw(st.dictionaries(name, st.integers() | positive | st.text(max_size=8), max_size=3)),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(run=observations())
def test_observations_come_out_as_they_went_in(
    run: Observation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Writer(tmp_path_factory.getbasetemp() / "round" / "a.db") as store:
        [number] = store.add_observations("app", "default", [run])
        found = {o.id: o.observation for o in store.observations("app")}
    assert found[number] == run


@pytest.mark.parametrize(
    "changes",
    [
        {"time_s": 0.0},
        {"time_s": math.nan},
        {"time_s": math.inf},
        {"energy_j": -1.0},
        {"energy_j": 0.0},
        {"fom": math.nan},
        {"configuration": replace(C, threads_per_node=3)},
        {"configuration": replace(C, nodes=0)},
        {"configuration": replace(C, node_type="")},
    ],
)
def test_impossible_runs_are_refused_and_nothing_of_the_batch_stays(
    store_path: Path, changes: dict[str, object]
) -> None:
    good = Observation(C, 1.0)
    with Writer(store_path) as store:
        with pytest.raises(InputError):
            store.add_observations("app", "default", [good, replace(good, **changes)])  # type: ignore[arg-type]
        assert store.observations("app") == []
        assert store.workloads() == []


def test_a_run_without_energy_is_stored_as_missing(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations("app", "default", [Observation(C, 1.0, energy_quality="measured")])
        assert store.observations("app")[0].observation.energy_quality == "missing"


@pytest.mark.parametrize("bad", ["", "a\nb", "a\x1b[31m", " a", "a" * 201])
def test_names_that_cannot_be_printed_are_refused(store_path: Path, bad: str) -> None:
    with Writer(store_path) as store:
        with pytest.raises(InputError):
            store.add_observations(bad, "default", [Observation(C, 1.0)])
        with pytest.raises(InputError):
            store.add_observations("app", bad, [Observation(C, 1.0)])


def run_of(contributor: str, account: str, scope: str) -> Observation:
    return Observation(C, 1.0, contributor=contributor, account=account, scope=scope)  # type: ignore[arg-type]


def seen_by(store: Reader, user: str, account: str = "") -> set[str]:
    found = store.observations("app", user=user, account=account)
    return {o.observation.contributor for o in found}


def test_scope_says_whose_jobs_a_run_may_advise(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations(
            "app",
            "default",
            [
                run_of("ann", "climate", "own"),
                run_of("bob", "climate", "account"),
                run_of("cid", "", "account"),
                run_of("dan", "bio", "account"),
                run_of("eve", "", "all"),
            ],
        )
        assert len(store.observations("app")) == 5
        assert seen_by(store, "ann", "climate") == {"ann", "bob", "eve"}
        assert seen_by(store, "zoe", "climate") == {"bob", "eve"}
        assert seen_by(store, "zoe", "") == {"eve"}  # no account is nobody's account
        assert seen_by(store, "cid", "") == {"cid", "eve"}


def test_promote_only_widens(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations(
            "app", "default", [run_of("ann", "climate", "own"), run_of("bob", "", "own")]
        )
        store.add_observations("app", "big", [run_of("cid", "", "all")])
        store.add_observations("other", "default", [run_of("ann", "climate", "own")])
        assert store.promote("app", scope="account") == 1  # bob's run carries no account
        assert store.promote("app", "big", scope="account") == 0
        assert seen_by(store, "zoe", "climate") == {"ann", "cid"}
        assert store.promote("app", scope="all", contributor="bob") == 1
        assert seen_by(store, "zoe") == {"bob", "cid"}
        assert store.promote("app", scope="all") == 1
        assert store.observations("other", user="zoe", account="climate") == []


def test_filters_and_workloads(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.add_observations("b", "w2", [Observation(C, 1.0)])
        store.add_observations("b", "w1", [Observation(C, 2.0), Observation(C, 3.0)])
        store.add_observations("a", "w1", [Observation(replace(C, node_type="skl"), 4.0)])
        assert store.workloads() == [
            Workload(3, "a", "w1", 1),
            Workload(2, "b", "w1", 2),
            Workload(1, "b", "w2", 1),
        ]
        assert [w.name for w in store.workloads("b")] == ["w1", "w2"]
        assert [o.observation.time_s for o in store.observations("b")] == [1.0, 2.0, 3.0]
        assert [o.observation.time_s for o in store.observations("b", "w1")] == [2.0, 3.0]
        assert store.observations("a", "w1", "hsw") == []
        assert len(store.observations("a", "w1", "skl")) == 1
