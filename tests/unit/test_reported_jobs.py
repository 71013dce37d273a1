"""What reports take of an outcome is what its record says, whatever that is, to the last bit."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.reasons import KINDS
from advisor.errors import StoreError
from advisor.loop.reported_jobs import reported_jobs
from advisor.store.records import Outcome
from advisor.store.writer import Writer

_NUMBER = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 10**6) | st.none()
_TEXT = st.text(max_size=5) | st.none()
_POINT = st.none() | st.just(
    {"node_type": "n", "nodes": 1, "ranks_per_node": 1, "threads_per_node": 8, "freq_khz": 0}
)


def _some(keys: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


_RECORD = _some(
    {
        "application": _TEXT,
        "workload": _TEXT,
        "trust": _TEXT,
        "partition": _TEXT,
        "mismatch": _TEXT,
        "changed": st.booleans(),
        "holdout": st.booleans(),
        "elapsed_s": _NUMBER,
        "notes": st.lists(st.text(max_size=5), max_size=2),
        "reasons": st.none() | st.lists(st.sampled_from(sorted(KINDS)), max_size=4),
        "chosen": _POINT,
        "baseline": st.none() | _some({"time_s": _NUMBER, "energy_j": _NUMBER}),
        "promised": st.none()
        | _some(
            {
                "time_s": st.none() | st.lists(_NUMBER, min_size=3, max_size=3),
                "energy_quality": _TEXT,
            }
        ),
        "ran": _some(
            {
                "whole_nodes": st.none() | st.booleans(),
                "step_failed": st.booleans(),
                "resolution_s": st.floats(0, 10),
                "energy_note": _TEXT,
            }
        ),
        "cold_start": _some({"class": _TEXT}),
    }
)


def _outcome(number: int, record: dict[str, Any]) -> Outcome:
    at = "2026-11-01T00:00:00Z"
    return Outcome(
        str(number),
        "slurm",
        "",
        at,
        "d",
        "u",
        "",
        "COMPLETED",
        2,
        "n1",
        10.5,
        99.9,
        "measured",
        None,
        None,
        "unknown",
        record,
        at,
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(_RECORD, min_size=1, max_size=8))
def test_a_report_reads_records_as_python_does(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("store") / "advisor.db"
    with Writer(path) as writer:
        for number, record in enumerate(records):
            writer.save_outcome(_outcome(number, record))
        jobs = list(reported_jobs(writer, ""))
    assert len(jobs) == len(records)
    for job, record in zip(jobs, records, strict=True):
        ran, cost = record.get("ran") or {}, record.get("baseline") or {}
        assert (job.elapsed_s, job.partition, job.mismatch) == (
            record.get("elapsed_s") or 0.0,
            record.get("partition"),
            record.get("mismatch"),
        )
        assert job.note == next(iter(record.get("notes") or [None]))
        assert [job.energy_note, job.whole_nodes, job.step_failed, job.resolution_s] == [
            ran.get(n) for n in ("energy_note", "whole_nodes", "step_failed", "resolution_s")
        ]
        d = job.decision
        assert (d.application, d.trust) == (record.get("application"), record.get("trust"))
        assert d.key == (record.get("application") or "", record.get("workload") or "")
        assert (d.changed, d.holdout) == (
            record.get("changed", False),
            record.get("holdout", False),
        )
        assert (d.base_time_s, d.base_energy_j) == (cost.get("time_s"), cost.get("energy_j"))
        assert d.chosen == (record.get("chosen") is not None)
        assert d.pinned == bool({"pinned", "baseline-nearest"} & set(record.get("reasons") or ()))
        cold = record.get("cold_start")
        assert d.class_name == (str(cold.get("class")) if cold else None)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    with Writer(tmp_path / "advisor.db") as writer:
        writer.save_outcome(_outcome(4711, {}))
        with sqlite3.connect(tmp_path / "advisor.db") as db:
            db.execute("UPDATE outcomes SET record = ?", (json.dumps([1]),))
        with pytest.raises(StoreError, match="outcome of job 4711: the stored record is damaged"):
            list(reported_jobs(writer, ""))
