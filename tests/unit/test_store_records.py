"""Policies, node types, decisions, outcomes and training come out of the store as they went in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.policy import PolicySet
from advisor.errors import InputError, StoreError
from advisor.store.records import Outcome, TrainingRequest, TrainingRun
from advisor.store.writer import Writer
from tests.unit.stored import C, decision


def apply(store: Writer, text: str, mode: str = "apply") -> int:
    compiled = {"base": {"mode": mode}, "rules": []}
    return store.apply_config("policy", path="p.yaml", text=text, compiled=compiled, by="root")


def test_policy_versions(store_path: Path) -> None:
    with Writer(store_path) as store:
        assert store.policy() == PolicySet()
        assert store.config("policy") is None
        assert apply(store, "one", "observe") == 1
        assert apply(store, "two") == 2
        assert apply(store, "two") == 2  # what is active is not stored twice
        assert (store.policy().base.mode, store.policy().version) == ("apply", 2)
        store.activate_config("policy", 1, "ann")
        assert (store.policy().base.mode, store.policy().version) == ("observe", 1)
        history = [(v.version, v.active, v.applied_by) for v in store.config_history("policy")]
        assert history == [(1, True, "ann"), (2, False, "root")]
        with pytest.raises(InputError, match=r"no policy version 7.*known: 1, 2"):
            store.activate_config("policy", 7, "ann")
        assert store.policy().version == 1
        second = store.config("policy", 2)
        assert second is not None and second.text == "two"
        assert store.site() == {}


def test_a_compiled_policy_that_cannot_be_used_is_one_clear_error(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.apply_config("policy", path="p", text="x", compiled={"base": {"no": 1}}, by="root")
        with pytest.raises(StoreError, match="policy version 1 cannot be used"):
            store.policy()


def test_inventory(store_path: Path) -> None:
    hsw = NodeType("hsw", partitions=("p",), cores=24, freq_khz=(1_200_000,), nodes=("n1",))
    with Writer(store_path) as store:
        store.save_node_types([hsw, NodeType("skl")], source="slurm")
        store.save_node_types([NodeType("knl")], source="site")
        assert store.inventory().node_types["hsw"] == hsw
        store.save_node_types([NodeType("skl", cores=40)], source="slurm", replace=True)
        assert sorted(store.inventory().node_types) == ["knl", "skl"]
        assert store.inventory().node_types["skl"].cores == 40
        store.save_node_types([], source="slurm", replace=True)
        assert sorted(store.inventory().node_types) == ["knl"]


def test_decisions(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_decision(decision("d1", message="full record"))
        store.save_decision(decision("d2", "2026-01-02T00:00:00Z", user="bob"), job_id="12")
        store.save_decision(decision("d3", "2026-01-03T00:00:00Z"), job_id="12")
        assert [d.id for d in store.decisions()] == ["d3", "d2", "d1"]
        assert [d.id for d in store.decisions(user="ann", limit=1)] == ["d3"]
        assert [d.id for d in store.decisions(offset=1, limit=1)] == ["d2"]
        assert [d.id for d in store.decisions_of("12", "bob")] == ["d2"]
        assert store.link_job("d1", "11") is True
        assert store.link_job("unknown", "11") is False
        assert store.decision_for_job("11") == decision("d1", message="full record", job_id="11")
        latest = store.decision_for_job("12_7")
        assert latest is not None and latest.id == "d3"
        assert store.decision_for_job("") is None
        assert store.decision_for_job("99") is None
        assert store.decision("d9") is None


def test_a_decision_that_comes_twice_keeps_the_fuller_record_and_the_job(store_path: Path) -> None:
    with Writer(store_path) as store:
        store.save_decision(decision("d1"), job_id="11")  # as stamped on the job
        store.save_decision(decision("d1", rewrite={"nodes": "1"}))  # as the daemon made it
        store.save_decision(decision("d1"))
        found = store.decision("d1")
        assert found is not None
        assert (found.rewrite, found.job_id) == ({"nodes": "1"}, "11")
        with pytest.raises(InputError):
            store.save_decision(decision(""))


def test_outcomes(store_path: Path) -> None:
    first = Outcome(
        "11",
        "slurm",
        "",
        "2026-01-01",
        "d1",
        "ann",
        "",
        "COMPLETED",
        2,
        "n[1-2]",
        10.0,
        None,
        "missing",
        None,
        2_400_000,
        "better",
        {"step": 1},
        "2026-01-02",
    )
    again = replace(first, submitted_at="2026-03-01", decision_id="")  # job ids start over
    with Writer(store_path) as store:
        store.save_outcome(first)
        store.save_outcome(replace(first, energy_j=5.0, energy_quality="measured"))
        assert [o.energy_j for o in store.outcomes()] == [5.0]
        store.save_outcome(again)
        assert store.outcome("11") == again
        assert len(store.outcomes()) == 2
        assert store.outcomes("submitted_at >= ?", ("2026-02-01",)) == [again]
        assert store.outcome("12") is None


def test_training(store_path: Path) -> None:
    request = TrainingRequest(
        "t1", "app", "default", "hsw", "ann", "slurm", "requested", "", {"runs": 13}, "", ""
    )
    with Writer(store_path) as store:
        store.save_training_request(request)
        [made] = store.training_requests()
        assert made.id == "t1" and made.plan == {"runs": 13} and made.created_at
        store.save_training_request(replace(made, state="running", detail="3 of 13"))
        [found] = store.training_requests(state="running")
        assert (found.application, found.created_at) == ("app", made.created_at)
        assert store.training_requests(state="failed") == []
        store.save_training_run(TrainingRun("t1", 1, "confirm", C, "planned"))
        store.save_training_run(TrainingRun("t1", 0, "design", C, "running", 1))
        [number] = store.add_observations("app", "default", [Observation(C, 1.0)])
        store.save_training_run(TrainingRun("t1", 0, "design", C, "done", 2, number))
        assert store.training_runs("t1") == [
            TrainingRun("t1", 0, "design", C, "done", 2, number),
            TrainingRun("t1", 1, "confirm", C, "planned"),
        ]
        with pytest.raises(StoreError, match="FOREIGN KEY"):
            store.save_training_run(TrainingRun("t9", 0, "design", C, "planned"))
        with pytest.raises(StoreError, match="CHECK"):
            store.save_training_run(replace(store.training_runs("t1")[0], state="no"))  # type: ignore[arg-type]
