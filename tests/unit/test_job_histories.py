"""Histories of jobs are derived after the commit, of jobs that say something, and age."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from advisor.core.inventory import Inventory
from advisor.core.job_history import MAX_AGE_DAYS, MOST_JOBS, JobHistory
from advisor.derive.worker import derive
from advisor.loop.execution import Execution, ran
from advisor.loop.outcomes import parts_of
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.store.histories import history_records, history_stamps
from advisor.store.records import Outcome
from advisor.store.stale_histories import save_histories, stale_histories, touch_histories
from advisor.store.writer import Writer
from tests.unit.collect.jobs import BDW

ONE = "0123456789abcdef01234567"
NOW = datetime.now(UTC).replace(microsecond=0)
PARTS = [{"program": "lbm", "ranks_per_node": 1, "cpus_per_node": 28, "steps": 1, "time_s": 90.0}]


@pytest.fixture
def store(store_path: Any) -> Any:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        yield writer


def outcome(number: int, *, days: float = 1, state: str = "COMPLETED", **more: Any) -> Outcome:
    submitted = NOW - timedelta(days=days) + timedelta(minutes=number)
    ran = Execution("bdw", 1, 1, 28, 0, True, 90.0, 1.0, 9000.0)
    record = {
        "identity": ONE,
        "trust": "verified",
        "changed": False,
        "elapsed_s": 100.0 + number,
        "ran": {**ran.to_dict(), **more.pop("ran", {})},
        "parts": PARTS,
        **more,
    }
    return Outcome(
        str(number),
        "slurm",
        "",
        submitted.isoformat(),
        f"d{number}",
        "ann",
        "",
        state,
        1,
        "bdw1",
        90.0,
        9000.0,
        "measured",
        None,
        None,
        "left-alone",
        record,
        "",
    )


def history(store: Writer, *outcomes: Outcome) -> JobHistory | None:
    with store.batch():
        for one in outcomes:
            store.save_outcome(one)
        touch_histories(store, [ONE])
    assert derive(store) and not stale_histories(store, 1)
    records = history_records(store, [ONE])
    return JobHistory.from_dict(json.loads(records[ONE][1])) if records else None


def test_the_latest_jobs_are_kept(store: Writer) -> None:
    known = history(store, *(outcome(n) for n in range(9)))
    assert known is not None and not known.worse
    assert [job.time_s for job in known.jobs] == [108.0, 107.0, 106.0, 105.0, 104.0]
    assert len(known.jobs) == MOST_JOBS and known.jobs[0].parts[0].program == "lbm"
    assert set(history_stamps(store)) == {ONE}


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "FAILED"},
        {"days": MAX_AGE_DAYS + 1},
        {"changed": True},
        {"trust": "stamped"},
        {"parts": []},
        {"parts": [{"program": 3}]},
        {"elapsed_s": None},
        {"ran": {"whole_nodes": False}},
        {"ran": {"whole_nodes": None}},
        {"ran": {"step_failed": True}},
        {"ran": {"freq_khz": 1_200_000}},
        {"ran": {"node_type": "gone"}},
        {"ran": {"resolution_s": 20.0}},
        {"parts": [{**PARTS[0], "time_s": 0.0}]},
        {"parts": [{**PARTS[0], "steps": 0}]},
        {"parts": "no list"},
        {"identity": "another"},
    ],
)
def test_jobs_that_say_nothing_are_none(store: Writer, wrong: dict[str, Any]) -> None:
    assert history(store, outcome(1, **wrong)) is None
    known = history(store, outcome(2), outcome(3, **wrong))
    assert known is not None and len(known.jobs) == 1


def test_a_mark_made_anew_stays(store: Writer) -> None:
    touch_histories(store, [ONE])
    (before,) = stale_histories(store, 9)
    touch_histories(store, [ONE])
    (after,) = stale_histories(store, 9)
    assert before.mark != after.mark
    save_histories(store, {before: JobHistory()}, "")
    assert stale_histories(store, 9) == [after]


def test_a_history_that_was_not_renewed_goes(store: Writer) -> None:
    assert history(store, outcome(1))
    long_ago = (NOW - timedelta(days=MAX_AGE_DAYS + 1)).isoformat()
    store.change_many("UPDATE job_histories SET updated_at = ?", [(long_ago,)])
    touch_histories(store, ["another"])
    assert derive(store) and not history_stamps(store)


@pytest.mark.parametrize(
    ("verdicts", "rests"),
    [
        (["worse", "worse"], True),
        (["worse", "as-promised", "worse"], True),
        (["worse", "as-promised", "better", "as-promised"], False),
        (["worse"], False),
    ],
)
def test_two_of_three_worse(store: Writer, verdicts: list[str], rests: bool) -> None:
    promised = [
        replace(outcome(n, changed=True, reasons=["whole-job"]), verdict=verdict)
        for n, verdict in enumerate(verdicts, 20)
    ]
    known = history(store, *(outcome(n) for n in range(3)), *promised)
    assert known is not None and bool(known.worse) is rests
    if rests:
        assert "job 20" in known.worse


STEP = StepRecord("0", "lbm", "COMPLETED", 40.0, 2, 8, 400.0, cpus=56)
JOB = JobRecord("1", "j", "ann", "", "COMPLETED", elapsed_s=100.0, nodes=2, steps=(STEP,))


def test_parts_of_steps() -> None:
    again = replace(STEP, step_id="1", elapsed_s=30.0, energy_j=300.0)
    other = replace(STEP, step_id="2", name="post", tasks=3, elapsed_s=5.0, energy_j=None)
    batch = replace(STEP, step_id="batch", elapsed_s=100.0)
    job = replace(JOB, steps=(STEP, again, other, batch))
    lbm, post = parts_of(job, ran(job, Inventory()))
    assert (lbm.program, lbm.ranks_per_node, lbm.cpus_per_node, lbm.steps) == ("lbm", 4, 28, 2)
    assert (lbm.time_s, lbm.energy_j, lbm.step_s) == (70.0, 700.0, 35.0)
    assert (post.program, post.ranks_per_node, post.energy_j) == ("post", 0, None)


@pytest.mark.parametrize(
    "job",
    [replace(JOB, steps=(replace(STEP, elapsed_s=None),)), replace(JOB, elapsed_s=None)],
)
def test_no_parts(job: JobRecord) -> None:
    assert parts_of(job, ran(job, Inventory())) == ()


@pytest.mark.parametrize(
    "steps", [(), (replace(STEP, elapsed_s=90.0), replace(STEP, elapsed_s=80.0, step_id="1"))]
)
def test_one_part_of_all_where_steps_do_not_tell(steps: tuple[StepRecord, ...]) -> None:
    job = replace(JOB, steps=steps, energy_j=800.0, whole_energy_j=9000.0)
    (part,) = parts_of(job, ran(job, Inventory()))
    assert (part.program, part.time_s, part.energy_j) == ("", 100.0, 9000.0)
