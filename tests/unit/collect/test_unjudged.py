"""Jobs that were altered, cancelled or requeued are not judged."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from advisor.core.request import JobRequest
from advisor.core.stamp import make_stamp
from advisor.schedulers.base import JobRecord
from advisor.store.records import StoredModel
from advisor.store.writer import Writer
from tests.unit.collect.jobs import NOW, decided, decision, job, model, run, state, worse


def unjudged(store: Writer, m: StoredModel, *jobs: JobRecord) -> list[str]:
    """Collect jobs that came out badly; the notes of each, none of which may count."""
    run(store, *jobs)
    assert state(store, m) == "fitted"
    found = [store.outcome(j.job_id) for j in jobs]
    assert [o and o.verdict for o in found] == ["unknown"] * len(jobs)
    return [o.record["notes"][0] for o in found if o]


def test_a_job_cancelled_before_it_started_says_so(store: Writer) -> None:
    m = model(store)
    never = replace(
        worse(store, m, 1, state="CANCELLED"), node_list="", steps=(), elapsed_s=0.0, energy_j=None
    )
    assert unjudged(store, m, never) == ["it was cancelled before it started"]


def test_a_requeued_job_is_not_judged_and_teaches_nothing(store: Writer) -> None:
    m = model(store)
    jobs = [
        replace(worse(store, m, 1, time_s=900.0), restarts=1),
        replace(worse(store, m, 2, time_s=900.0), restarts=2),
    ]
    assert set(unjudged(store, m, *jobs)) == {"it was started more than once (requeued)"}
    assert store.observations("stencil") == []


def test_a_job_submitted_long_after_its_decision_was_requeued(store: Writer) -> None:
    m = model(store)
    decided(store, decision(1, m.id, at=NOW - timedelta(hours=5)))
    store.link_job(f"{1:016x}", "1")
    late = job(1, time_s=900.0, at=NOW - timedelta(hours=1))
    assert unjudged(store, m, late) == ["it was started more than once (requeued)"]


def test_an_altered_job_is_not_judged(store: Writer) -> None:
    m = model(store)
    more_nodes = replace(worse(store, m, 1, time_s=900.0), nodes=2, node_list="bdw[1-2]", cpus=56)
    tasks = worse(store, m, 2, time_s=900.0)
    tasks = replace(tasks, steps=(replace(tasks.steps[0], tasks=4),))
    fewer = worse(store, m, 3, time_s=900.0)
    fewer = replace(fewer, steps=(replace(fewer.steps[0], cpus=14),))
    assert unjudged(store, m, more_nodes, tasks, fewer) == [
        "it ran on 2 nodes, not 1",
        "it ran 4 ranks a node, not 1",
        "it had 14 cores a node, not 28",
    ]


def limited(
    store: Writer, m: StoredModel, number: int, limit_s: float, asked_s: int | None = None
) -> JobRecord:
    """A job whose limit struck, after the time it was promised or earlier."""
    d = decision(number, m.id)
    request = JobRequest("slurm", "cli_filter", "ann", 1, time_limit_s=asked_s)
    store.save_decision(replace(d, request=request))
    ended = job(number, make_stamp(d), state="TIMEOUT", time_s=limit_s - 1)
    return replace(ended, elapsed_s=limit_s, time_limit_s=limit_s)


def test_a_shortened_time_limit_is_not_the_model_s_doing(store: Writer) -> None:
    m = model(store)
    notes = unjudged(
        store,
        m,
        limited(store, m, 1, 180.0, 600),
        limited(store, m, 2, 60.0),
        limited(store, m, 3, 60.0, 60),
    )
    assert notes == [
        "its time limit was shortened after it was submitted, from 10.0 min to 3.00 min",
        "its time limit ended it before the promised time was over",
        "its time limit ended it before the promised time was over",
    ]


def test_a_time_limit_that_the_written_job_would_have_kept_counts(store: Writer) -> None:
    m = model(store)
    run(store, limited(store, m, 1, 180.0, 180), limited(store, m, 2, 180.0))
    assert state(store, m) == "suspended"
