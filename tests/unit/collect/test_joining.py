"""How a job gets its decision: stamps, links, arrays, the watermark."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from advisor.core.decision import Alternative, Effect
from advisor.core.stamp import make_stamp
from advisor.loop.collect import watermark
from advisor.loop.match import find
from advisor.store.writer import Writer
from tests.unit.collect.jobs import NOW, TO, decided, decision, job, model, run


def test_a_stamped_job_gets_its_outcome_and_is_kept_as_a_run(store: Writer) -> None:
    m = model(store)
    result = run(store, job(11, decided(store, decision(1, m.id))), job(12))
    assert (result.jobs, result.without, result.observations) == (2, 1, 1)
    found = store.outcome("11")
    assert found is not None
    assert (found.verdict, found.user, found.time_s, found.energy_j) == (
        "as-promised",
        "ann",
        102.0,
        9_000.0,
    )
    assert found.record["trust"] == "verified" and found.record["judged_model"] == m.id
    linked = store.decision_for_job("11")
    assert linked is not None and linked.id == found.decision_id
    (kept,) = store.observations("stencil", "n64")
    o = kept.observation
    assert (o.configuration, o.source, o.contributor, o.scope) == (TO, "job", "ann", "own")


@pytest.mark.parametrize(
    ("threads", "rewrite", "variables", "cpus", "method"),
    [
        (28, {"cpu-freq": "1200000-1900000"}, {}, 28, ""),
        (20, {}, {"OMP_NUM_THREADS": "20"}, 28, "variables"),
        (20, {"cpus-per-task": "20"}, {"OMP_NUM_THREADS": "20"}, 20, "request"),
    ],
)
def test_a_jobs_run_is_marked_with_how_it_got_its_threads(
    store: Writer,
    threads: int,
    rewrite: dict[str, str],
    variables: dict[str, str],
    cpus: int,
    method: str,
) -> None:
    d = decision(1, model(store).id)
    assert d.chosen is not None
    to = d.chosen._replace(configuration=replace(TO, threads_per_node=threads))
    stamp = decided(store, replace(d, chosen=to, rewrite=rewrite, environment=variables))
    finished = job(11, stamp, cpus=cpus)
    run(store, replace(finished, cpus=28, whole_nodes=True))
    (kept,) = store.observations("stencil", "n64")
    assert kept.observation.configuration.threads_per_node == threads
    assert kept.observation.method == method


def test_collecting_again_changes_nothing(store: Writer) -> None:
    jobs = [job(11, decided(store, decision(1, model(store).id)))]
    run(store, *jobs)
    before = store.outcomes()
    again = run(store, *jobs)
    assert (again.known, again.outcomes, again.observations) == (1, [], 0)
    assert store.outcomes() == before
    assert len(store.observations("stencil")) == 1


def test_energy_that_came_late_is_taken_over(store: Writer) -> None:
    stamp = decided(store, decision(1, model(store).id))
    run(store, job(11, stamp, energy_j=None))
    first = store.outcome("11")
    assert first is not None and first.verdict == "unknown"
    assert len(run(store, job(11, stamp)).outcomes) == 1
    second = store.outcome("11")
    assert second is not None and second.verdict == "as-promised"


def test_a_decision_from_a_login_node_is_taken_from_the_stamp(store: Writer) -> None:
    stamp = make_stamp(decision(1, model(store).id, user="somebody-else"))
    result = run(store, job(11, stamp, user="ann", account="proj"))
    assert result.decisions == 1
    found = store.decision(f"{1:016x}")
    assert found is not None
    assert (found.user, found.account, found.job_id) == ("ann", "proj", "11")
    rows = store.rows("SELECT changed FROM decisions")
    assert [row["changed"] for row in rows] == [1]
    outcome = store.outcome("11")
    assert outcome is not None and outcome.record["trust"] == "stamped"
    # what came by stamp does not become more than that by having been stored
    run(store, job(12, stamp, user="ann"))
    second = store.outcome("12")
    assert second is not None and second.record["trust"] == "unverified"


def test_another_users_stamp_counts_for_nothing(store: Writer) -> None:
    stamp = decided(store, decision(1, model(store).id, user="bob"))
    result = run(store, job(11, stamp, user="ann", time_s=400.0))
    found = store.outcome("11")
    assert found is not None
    assert (found.verdict, found.record["trust"]) == ("unknown", "unverified")
    assert "another user" in found.record["trust_why"]
    assert (result.observations, result.decisions, result.suspended) == (0, 0, [])
    untouched = store.decision(f"{1:016x}")
    assert untouched is not None and untouched.job_id == ""


@pytest.mark.parametrize(
    "forged",
    [
        {"baseline_time_s": 10.0},
        {"application": "other"},
        {"model_id": 99},
        {"holdout": True},
        {"rewrite": {}},
        {
            "chosen": Alternative(
                TO, 10.0, 900.0, Effect(-0.9, -0.91, -0.89), Effect(-0.9, -0.91, -0.89), True
            )
        },
    ],
)
def test_a_stamp_that_differs_from_the_decision_is_not_believed(
    store: Writer, forged: dict[str, object]
) -> None:
    real = decision(1, model(store).id)
    store.save_decision(real)
    fake = make_stamp(replace(real, **forged))  # type: ignore[arg-type]
    match = find(job(11, fake, time_s=400.0), store)
    assert match is not None
    if "baseline_time_s" in forged:  # not part of the promise: nothing to gain
        assert match.trust == "verified" and match.decision.baseline_time_s == 100.0
    else:
        assert match.trust == "unverified" and "differs" in match.why


def test_a_decision_serves_one_job_only(store: Writer) -> None:
    stamp = decided(store, decision(1, model(store).id))
    run(store, job(11, stamp), job(12, stamp, time_s=400.0))
    first, second = store.outcome("11"), store.outcome("12")
    assert first is not None and first.record["trust"] == "verified"
    assert second is not None and second.record["trust"] == "unverified"
    assert "job 11" in second.record["trust_why"]


def test_every_task_of_an_array_has_the_arrays_decision(store: Writer) -> None:
    stamp = decided(store, decision(1, model(store).id))
    run(store, *(job(i, stamp, job_id=f"40_{i}") for i in (1, 2, 3)))
    assert [o.verdict for o in store.outcomes()] == ["as-promised"] * 3
    assert len(store.observations("stencil")) == 3
    found = store.decision_for_job("40_2")
    assert found is not None and found.job_id == "40"


def test_a_link_made_at_submission_needs_no_stamp(store: Writer) -> None:
    decided(store, decision(1, model(store).id))
    store.link_job(f"{1:016x}", "11")
    run(store, job(11))
    found = store.outcome("11")
    assert found is not None and found.record["trust"] == "verified"


def test_a_link_to_another_users_job_is_ignored(store: Writer) -> None:
    decided(store, decision(1, model(store).id, user="bob"))
    store.link_job(f"{1:016x}", "11")
    stamp = decided(store, decision(2, None, user="ann", changed=False))
    match = find(job(11, stamp, user="ann"), store)
    assert match is not None and (match.decision.id, match.trust) == (f"{2:016x}", "verified")


def test_an_old_decision_does_not_fit_a_new_job(store: Writer) -> None:
    stamp = decided(store, decision(1, model(store).id, at=NOW - timedelta(days=3)))
    match = find(job(11, stamp), store)
    assert match is not None and match.trust == "unverified" and "another time" in match.why


@pytest.mark.parametrize(
    "text",
    [
        "advisor:{",
        'advisor:{"v":1}',
        'advisor:{"v":1,"id":"00000000000000zz"}',
        "advisor:[]",
        "advisor:{}" + "x" * 5000,
        'advisor:{"v":1,"id":"0000000000000001","app":"\\u001b[31m;rm -rf","wl":"\\n"}',
    ],
)
def test_nonsense_in_the_comment_breaks_nothing(store: Writer, text: str) -> None:
    run(store, job(11, text))
    found = store.outcome("11")
    assert found is None or str(found.record["application"]).isprintable()


def test_the_stamp_is_only_read_where_users_cannot_write(store: Writer) -> None:
    stamp = make_stamp(decision(1, model(store).id))
    assert find(replace(job(11), comment=stamp, name=stamp), store) is None


def test_the_next_collection_begins_where_the_last_one_ended(store: Writer) -> None:
    default = NOW - timedelta(days=7)
    assert watermark(store, "slurm", default) == default
    run(store, job(11, decided(store, decision(1, model(store).id))))
    mark = watermark(store, "slurm", default)
    assert default < mark < NOW - timedelta(hours=6)
    assert watermark(store, "pbs", default) == default


def test_numbers_stay_finite(store: Writer) -> None:
    run(store, job(11, decided(store, decision(1, model(store).id)), energy_j=math.nan))
    found = store.outcome("11")
    assert found is not None and found.energy_j is None
