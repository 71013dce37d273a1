"""What every collection asks of outcomes, of which there may be millions, reads only some."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from advisor.loop import collect as collecting
from advisor.loop.collect import watermark
from advisor.loop.reported_jobs import reported_jobs
from advisor.loop.suspend import judged_by
from advisor.store.job_places import JobPlaces, WorkloadNumbers
from advisor.store.pruning import prune
from advisor.store.writer import Writer
from tests.unit.collect.jobs import decided, decision, job, model, run


def test_old_and_judged_outcomes_are_found_by_an_index(store: Writer) -> None:
    m = model(store)
    asked: list[str] = []
    store._connection.set_trace_callback(asked.append)
    list(judged_by(store, m))
    list(reported_jobs(store, "2026-01-01T00:00:00Z"))
    prune(store, decisions_before="2026-01-01T00:00:00Z")
    store._connection.set_trace_callback(None)
    plans = [
        row["detail"]
        for sql in asked
        if "FROM outcomes WHERE" in sql and "json_extract(record, '$.application'" not in sql
        for row in store.rows(f"EXPLAIN QUERY PLAN {sql}")
    ]
    tables = [plan for plan in plans if "outcomes" in plan]
    assert len(tables) >= 3
    assert all("SEARCH outcomes USING" in plan for plan in tables), tables


def test_a_batch_of_many_workloads_asks_for_no_more_than_an_older_sqlite_takes(
    store: Writer,
) -> None:
    """Before 3.32 a statement had 999 values at most; a batch has up to 500 jobs."""
    store._connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
    named = [(f"app{number}", "w") for number in range(500)]
    numbers = WorkloadNumbers(store)
    with store.transaction():
        numbers.look(named)
        made = [numbers.number(workload) for workload in named]
    again = WorkloadNumbers(store)
    again.look(named)
    assert [again.number(workload) for workload in named] == made
    places = JobPlaces(store, "observations", "job")
    places.look([(*workload, "ann") for workload in named])
    assert places.at(("app499", "w", "ann", *[0] * 5)).rows == 0


def test_the_last_job_is_looked_for_among_those_stored_last(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = model(store)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    run(store, *(job(n, decided(store, decision(n, m.id))) for n in (1, 2, 3)))
    every = watermark(store, "slurm", long_ago)
    monkeypatch.setattr(collecting, "_NEWEST", 1)
    assert long_ago < watermark(store, "slurm", long_ago) <= every
    assert watermark(store, "pbs", long_ago) == long_ago
    assert watermark(store, "slurm", every + timedelta(days=1)) == every + timedelta(days=1)
