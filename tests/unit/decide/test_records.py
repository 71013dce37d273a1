"""Decisions come back from stamps, stores and JSON, whatever these hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.stamp import make_stamp, read_stamp
from advisor.schedulers.slurm.translator import parse_request
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot
from advisor.store.writer import Writer
from tests.unit.decide.site import ask


def test_a_stamp_brings_the_decision_back(store: Writer) -> None:
    decision = ask(store)
    record = read_stamp("site comment " + make_stamp(decision) + " more")
    full = decision.to_dict()
    assert record is not None
    stamped = record.to_dict()
    for key in (
        "decision",
        "application",
        "workload",
        "baseline",
        "reasons",
        "chosen",
        "model_id",
        "mode",
        "goal",
        "holdout",
        "policy_version",
        "changed",
        "program",
        "predicted",
    ):
        assert stamped[key] == full[key] or key == "predicted", key
    assert record.changed and not record.rewrite
    assert record.chosen is not None and decision.chosen is not None
    assert record.chosen.time == pytest.approx(decision.chosen.time, abs=5e-5)
    assert record.chosen.time_s == pytest.approx(decision.chosen.time_s, rel=1e-5)


def test_a_decision_comes_back_from_its_json_form(store: Writer) -> None:
    for decision in (
        ask(store),
        ask(store, script="srun ./fresh"),
        ask(store, env={"ADVISOR": "off"}),
    ):
        full = json.loads(json.dumps(decision.to_dict()))
        again = Decision.from_dict(full)
        assert again.to_dict() == full
        assert [r.text for r in again.reasons] == [r.text for r in decision.reasons]
        assert again.request is not None and decision.request is not None
        assert again.request.summary() == decision.request.summary()


OLD = {
    "decision": "00000000000000aa",
    "created_at": "2026-03-01T08:00:00+00:00",
    "scheduler": "slurm",
    "hook": "cli_filter",
    "user": "ada",
    "account": "",
    "mode": "apply",
    "goal": "min_energy",
    "application": "stencil",
    "workload": "default",
    "baseline": {
        "node_type": "bdw",
        "nodes": 1,
        "ranks_per_node": 1,
        "threads_per_node": 28,
        "threads_per_rank": 28,
        "freq_khz": 2_200_000,
        "time_s": 100.0,
        "energy_j": 9e3,
    },
    "rewrite": {"cpu-freq": "1900000"},
    "environment": {},
    "chosen": {
        "node_type": "bdw",
        "nodes": 1,
        "ranks_per_node": 1,
        "threads_per_node": 28,
        "threads_per_rank": 28,
        "freq_khz": 1_900_000,
    },
    "predicted": {
        "time_s": 102.0,
        "energy_j": 8.1e3,
        "time_pct": 2.0,
        "energy_pct": -10.0,
        "time_pct_interval": [1.0, 3.0],
        "energy_pct_interval": [-12.0, -8.0],
        "energy_quality": "measured",
    },
    "alternatives": [],
    "reasons": ["chosen"],
    "explanation": ["chosen: energy −10.0 %"],
    "message": "",
    "holdout": False,
    "model_id": 3,
    "policy_version": 2,
    "request": {"kind": "batch", "time_limit_s": 600, "explicit": ["nodes"]},
}
"""A decision as version 0.2 stored it, without ``changed`` and ``program``."""


OLD_STAMP = (
    'advisor:{"v":1,"id":"00000000000000aa","at":"2026-03-01T08:00:00+00:00","app":"stencil",'
    '"wl":"default","mode":"apply","goal":"min_energy","pol":2,"why":["chosen"],"chg":1,"ho":0,'
    '"m":3,"eq":"measured","base":["bdw",1,1,28,2200000,100.0,9000.0],"to":["bdw",1,1,28,1900000],'
    '"t":[102.0,2.0,1.0,3.0],"e":[8100.0,-10.0,-12.0,-8.0]}'
)


def test_decisions_and_stamps_of_earlier_versions_stay_readable() -> None:
    stored, stamped = Decision.from_dict(OLD), read_stamp(OLD_STAMP)
    assert stamped is not None
    assert {
        **stored.to_dict(),
        "request": OLD["request"],
    } == {**OLD, "changed": True, "program": {}}
    assert stored.request is not None and stored.request.time_limit_s == 600
    for decision in (stored, stamped):
        assert decision.changed and decision.configuration == Configuration(
            "bdw", 1, 1, 28, 1_900_000
        )
        assert (decision.baseline_time_s, decision.baseline_energy_j) == (100.0, 9000.0)
        assert decision.chosen is not None and decision.chosen.energy.hi == pytest.approx(-0.08)
    assert (stamped.model_id, stamped.codes, stamped.rewrite) == (3, ("chosen",), {})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*Decision.from_dict({}).to_dict(), "job_id"]), JSON_VALUES))
def test_no_record_breaks_reading_a_decision(data: dict[str, Any]) -> None:
    Decision.from_dict(data).to_dict()


@given(st.text(max_size=200))
def test_no_text_breaks_reading_a_stamp(text: str) -> None:
    read_stamp(text)
    read_stamp("advisor:{" + text)
    read_stamp('advisor:{"v":1,"id":"0123456789abcdef","base":' + text)


OPTION_TEXT = st.dictionaries(
    st.sampled_from(
        [
            "nodes",
            "ntasks",
            "cpus-per-task",
            "time",
            "mem",
            "cpu-freq",
            "constraint",
            "exclusive",
            "partition",
            "nodelist",
            "export",
            "wrap",
            "array",
        ]
    ),
    st.text(max_size=12),
)


@example({"cpu-freq": "\u00b2"}, "", {})  # a digit to Python, and no number
@given(OPTION_TEXT, st.text(max_size=60), st.dictionaries(st.text(max_size=8), st.text(max_size=8)))
def test_no_request_breaks_the_decision(
    options: dict[str, str], script: str, environment: dict[str, str]
) -> None:
    payload = {"options": options, "script": script, "env": environment}
    try:
        request = parse_request(payload, user="a", uid=1, choices={})
    except ValueError as error:
        assert str(error).startswith("--")
        return
    decision = decide(request, Snapshot())
    assert not decision.rewrite
    assert decision.reasons
    assert read_stamp(make_stamp(decision)) is not None
