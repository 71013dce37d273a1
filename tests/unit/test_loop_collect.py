"""Accounting joined with decisions: whose decision it is, what is kept, which model suffers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision, Effect
from advisor.core.inventory import NodeType
from advisor.core.observation import Observation
from advisor.core.option import Option, row_of
from advisor.core.policy import Policy
from advisor.core.reasons import Reason, reason
from advisor.core.request import JobRequest
from advisor.core.select import weigh
from advisor.core.signature import Signature
from advisor.core.stamp import make_stamp
from advisor.loop.collect import Collected, collect, watermark
from advisor.loop.match import find
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.store.records import StoredModel
from advisor.store.signatures import save_signatures, signatures
from advisor.store.writer import Writer

NOW = datetime.now(UTC).replace(microsecond=0)
BDW = NodeType(
    "bdw", "broadwell", ("batch",), cores=28, freq_khz=(1_200_000, 1_900_000, 2_200_000),
    nodes=tuple(f"bdw{i}" for i in range(1, 9)),
)  # fmt: skip
BASE = Configuration("bdw", 1, 1, 28, 2_200_000)
TO = Configuration("bdw", 1, 1, 28, 1_900_000)


class Accounting:
    """A scheduler that answers with the records it was given."""

    NAME: ClassVar[str] = "slurm"

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        self.jobs = list(jobs)
        self.asked: list[str] = []

    def finished_jobs(self, since: str) -> list[JobRecord]:
        self.asked.append(since)
        return self.jobs


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        yield writer


def option(c: Configuration, time_s: float, energy_j: float) -> Option:
    return Option(
        c, time_s, time_s / 1.02, time_s * 1.02, energy_j, energy_j / 1.02, energy_j * 1.02,
        True, True,
    )  # fmt: skip


def model(store: Writer, scope: str = "all", owner: str = "") -> StoredModel:
    return store.save_model(
        "stencil", "n64", "bdw", scope=scope, owner=owner, name="bspline",  # type: ignore[arg-type]
        energy_quality="measured", n_train=12, stats={},
        options=[option(BASE, 100.0, 10_000.0), option(TO, 102.0, 9_000.0)],
    )  # fmt: skip


def decision(
    number: int,
    model_id: int | None,
    *,
    user: str = "ann",
    changed: bool = True,
    at: datetime = NOW - timedelta(hours=1),
    reasons: tuple[Reason, ...] = (),
    holdout: bool = False,
) -> Decision:
    chosen = Alternative(
        TO, 102.0, 9_000.0, Effect(0.02, 0.0, 0.04), Effect(-0.1, -0.12, -0.08), True
    )
    return Decision(
        id=f"{number:016x}",
        created_at=at.isoformat(timespec="seconds"),
        scheduler="slurm",
        hook="cli_filter",
        user=user,
        account="proj",
        policy=Policy(mode="apply"),
        application="stencil",
        workload="n64",
        baseline=BASE,
        chosen=chosen,
        alternatives=(chosen,),
        rewrite={"cpu-freq": "1200000-1900000"} if changed else {},
        environment={},
        reasons=reasons or (reason("chosen", "x"), reason("confirmed")),
        holdout=holdout,
        model_id=model_id,
        energy_quality="measured",
        policy_version=0,
        baseline_time_s=100.0,
        baseline_energy_j=10_000.0,
    )


def job(
    number: int,
    stamp: str = "",
    *,
    user: str = "ann",
    account: str = "proj",
    state: str = "COMPLETED",
    time_s: float = 102.0,
    energy_j: float | None = 9_000.0,
    freq: int | None = 1_900_000,
    cpus: int = 28,
    at: datetime = NOW - timedelta(hours=1),
    job_id: str = "",
) -> JobRecord:
    step = StepRecord("0", "stencil", "COMPLETED", time_s, 1, 1, energy_j, freq, freq, cpus)
    return JobRecord(
        job_id or str(number), "job", user, account, state, at.isoformat(), time_s + 2, 1,
        f"bdw{number % 8 + 1}", energy_j, freq, freq, admin_comment=stamp, partition="batch",
        ended_at=(at + timedelta(seconds=time_s)).isoformat(), cpus=cpus, steps=(step,),
    )  # fmt: skip


def run(store: Writer, *jobs: JobRecord) -> Collected:
    return collect(store, Accounting(jobs), NOW - timedelta(days=1))  # type: ignore[arg-type]


def decided(store: Writer, d: Decision) -> str:
    store.save_decision(d)
    return make_stamp(d)


# -- joining -------------------------------------------------------------------------------------


def test_a_stamped_job_gets_its_outcome_and_is_kept_as_a_run(store: Writer) -> None:
    m = model(store)
    result = run(store, job(11, decided(store, decision(1, m.id))), job(12))
    assert (result.jobs, result.without, result.observations) == (2, 1, 1)
    found = store.outcome("11")
    assert found is not None
    assert (found.verdict, found.user, found.time_s, found.energy_j) == (
        "as-promised", "ann", 102.0, 9_000.0,
    )  # fmt: skip
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
    store: Writer, threads: int, rewrite: dict[str, str], variables: dict[str, str], cpus: int,
    method: str,
) -> None:  # fmt: skip
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


# -- measured runs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "FAILED"},
        {"state": "TIMEOUT"},
        {"cpus": 14},
        {"freq": 1_200_000},
        {"freq": None},
        {"time_s": 40.0},  # whole seconds are too coarse for it
    ],
)
def test_only_whole_nodes_that_ran_as_decided_become_runs(
    store: Writer, changes: dict[str, object]
) -> None:
    stamp = decided(store, decision(1, model(store).id))
    assert run(store, job(11, stamp, **changes)).observations == 0  # type: ignore[arg-type]


def test_a_neighbouring_point_or_workload_is_not_what_ran(store: Writer) -> None:
    m = model(store)
    for number, code in ((1, "baseline-nearest"), (2, "workload-fallback")):
        why = (reason(code, *("x", "y")[: 1 if code == "workload-fallback" else 2]),)
        stamp = decided(store, decision(number, m.id, reasons=why))
        assert run(store, job(number, stamp)).observations == 0


def test_without_a_model_a_run_teaches_nothing(store: Writer) -> None:
    assert run(store, job(11, decided(store, decision(1, None)))).observations == 0


def test_where_a_figure_of_merit_counts_jobs_cannot_teach(store: Writer) -> None:
    m = model(store)
    run_with_fom = Observation(BASE, 10.0, 5.0, 3.0)
    store.add_observations("stencil", "n64", [run_with_fom])
    assert run(store, job(11, decided(store, decision(1, m.id)))).observations == 0


@pytest.mark.parametrize(
    ("trust", "scope"), [("own", "own"), ("account", "account"), ("all", "all")]
)
def test_policy_says_whom_a_run_may_advise(store: Writer, trust: str, scope: str) -> None:
    compiled = {"base": {"training": {"trust": trust}}, "rules": []}
    store.apply_config("policy", path="p", text="x", compiled=compiled, by="me")
    run(store, job(11, decided(store, decision(1, model(store).id))))
    assert [o.observation.scope for o in store.observations("stencil")] == [scope]


def test_a_job_left_alone_is_a_run_at_its_baseline(store: Writer) -> None:
    stamp = decided(store, decision(1, model(store).id, changed=False, holdout=True))
    run(store, job(11, stamp, freq=None, time_s=100.0, energy_j=10_000.0))
    (kept,) = store.observations("stencil")
    assert kept.observation.configuration == BASE
    outcome = store.outcome("11")
    assert outcome is not None and outcome.verdict == "left-alone" and outcome.record["holdout"]


def test_what_is_written_of_a_batch_counts_in_the_same_batch(store: Writer) -> None:
    stamp = decided(store, decision(1, model(store).id))
    tasks = [job(1, stamp, job_id="7_1"), job(1, job_id="7_2")]  # the first links the decision
    late = [job(1, stamp, job_id="7_3"), job(1, stamp, job_id="7_3", time_s=104.0)]
    result = run(store, *tasks, *late, late[-1])
    assert (len(result.outcomes), result.known, result.without) == (4, 1, 0)
    kept = {o.job_id: o for o in store.outcomes()}
    assert [kept[name].time_s for name in ("7_1", "7_2", "7_3")] == [102.0, 102.0, 104.0]
    assert {o.decision_id for o in kept.values()} == {f"{1:016x}"}
    assert {o.record["trust"] for o in kept.values()} == {"verified"}


# -- suspension ----------------------------------------------------------------------------------


def state(store: Writer, m: StoredModel) -> str:
    return next(iter(store.models([m.id]))).state


def worse(
    store: Writer, m: StoredModel, number: int, user: str = "ann", **changes: object
) -> JobRecord:
    stamp = decided(store, decision(number, m.id, user=user))
    return job(number, stamp, user=user, **{"energy_j": 10_500.0, **changes})  # type: ignore[arg-type]


def good(store: Writer, m: StoredModel, number: int, user: str = "ann") -> JobRecord:
    return job(number, decided(store, decision(number, m.id, user=user)), user=user)


def test_two_of_the_last_three_worse_suspend_a_model(store: Writer) -> None:
    m = model(store)
    first = [worse(store, m, 1), good(store, m, 2)]
    assert run(store, *first).suspended == []
    result = run(store, *first, worse(store, m, 3))
    assert [s.model.id for s in result.suspended] == [m.id]
    found = next(iter(store.models([m.id])))
    assert found.state == "suspended"
    assert "jobs 1 (" in found.state_reason and "3 (" in found.state_reason
    assert "energy +17 %" in found.state_reason


def test_old_worse_jobs_are_forgiven(store: Writer) -> None:
    m = model(store)
    jobs = [worse(store, m, 1), good(store, m, 2), good(store, m, 3), worse(store, m, 4)]
    run(store, *jobs)
    assert state(store, m) == "fitted"


def test_one_job_slower_by_far_is_enough(store: Writer) -> None:
    m = model(store)
    run(store, worse(store, m, 1, time_s=125.0))
    assert state(store, m) == "suspended"


def test_time_limits_count_and_failures_do_not(store: Writer) -> None:
    m = model(store)
    for number, what in ((1, "FAILED"), (2, "CANCELLED"), (3, "NODE_FAIL"), (4, "OUT_OF_MEMORY")):
        run(store, worse(store, m, number, state=what, time_s=900.0))
    assert state(store, m) == "fitted"
    run(store, worse(store, m, 5, state="TIMEOUT"), worse(store, m, 6, state="TIMEOUT"))
    assert state(store, m) == "suspended"
    assert "time limit" in next(iter(store.models([m.id]))).state_reason


def test_a_crash_between_outcome_and_review_is_made_good(store: Writer) -> None:
    m = model(store)
    jobs = [worse(store, m, 1, time_s=125.0)]
    run(store, *jobs)
    store.set_model_state(m.id, "fitted")
    assert [s.model.id for s in run(store, *jobs).suspended] == [m.id]


def test_a_new_fit_starts_anew(store: Writer) -> None:
    old = model(store)
    jobs = [worse(store, old, 1, time_s=125.0)]
    run(store, *jobs)
    new = model(store)
    run(store, *jobs)
    assert state(store, new) == "fitted"


@pytest.mark.parametrize("changes", [{"cpus": 14}, {"freq": 1_200_000}, {"freq": None}])
def test_a_job_that_did_not_run_as_decided_never_counts(
    store: Writer, changes: dict[str, object]
) -> None:
    m = model(store)
    run(store, *(worse(store, m, n, "ann", **{"time_s": 400.0, **changes}) for n in (1, 2, 3)))
    assert state(store, m) == "fitted"


def test_a_pinned_choice_is_the_users_own(store: Writer) -> None:
    m = model(store)
    for number in (1, 2, 3):
        d = decision(number, m.id, reasons=(reason("pinned"),))
        run(store, job(number, decided(store, d), time_s=400.0))
    assert state(store, m) == "fitted"


def test_forged_stamps_suspend_nothing_of_others(store: Writer) -> None:
    site, bobs = model(store), model(store, "own", "bob")
    jobs = []
    for number in range(1, 7):
        fake = make_stamp(decision(number, site.id if number % 2 else bobs.id, user="eve"))
        jobs.append(job(number, fake, user="eve", time_s=900.0))
    result = run(store, *jobs)
    assert result.suspended == [] and len(result.outcomes) == 6
    assert state(store, site) == state(store, bobs) == "fitted"
    assert all(o.observation.contributor == "eve" for o in store.observations("stencil"))
    assert all(o.observation.scope == "own" for o in store.observations("stencil"))


def by_model(number: int, m: StoredModel, user: str) -> Decision:
    """A decision whose promise is what the model says, as the daemon makes it."""
    base, to = (row_of(o) for o in m.options())
    said = weigh(("bdw", to), base, "balanced").alternative()
    return replace(decision(number, m.id, user=user), chosen=said)


def test_login_nodes_decisions_count_when_two_users_complain(store: Writer) -> None:
    m = model(store)
    first = job(1, make_stamp(by_model(1, m, "ann")), user="ann", time_s=900.0)
    assert run(store, first).suspended == []
    forged = job(2, make_stamp(decision(2, m.id, user="eve")), user="eve", time_s=900.0)
    assert run(store, first, forged).suspended == []
    second = job(3, make_stamp(by_model(3, m, "bob")), user="bob", time_s=900.0)
    assert [s.model.id for s in run(store, second).suspended] == [m.id]
    outcome = store.outcome("3")
    assert outcome is not None and outcome.record["trust"] == "stamped"


def test_one_users_wrong_work_does_not_suspend_what_serves_others(store: Writer) -> None:
    m = model(store)
    eve = [worse(store, m, n, "eve", time_s=900.0) for n in (1, 2, 3)]
    result = run(store, good(store, m, 4, "ann"), *eve)
    assert result.suspended == [] and [c.user for c in result.complaints] == ["eve"]
    assert state(store, m) == "fitted"
    result = run(store, *(worse(store, m, n, "bob") for n in (5, 6)))
    assert [s.model.id for s in result.suspended] == [m.id]


def test_a_users_own_model_is_judged_by_that_user_alone(store: Writer) -> None:
    own = model(store, "own", "ann")
    run(store, *(worse(store, own, n, "bob", time_s=900.0) for n in (1, 2)))
    assert state(store, own) == "fitted"
    # known by stamp alone is enough for what is one's own
    stamp = make_stamp(decision(3, own.id))
    run(store, job(3, stamp, time_s=900.0))
    assert state(store, own) == "suspended"


def test_an_accounts_model_is_judged_by_its_account(store: Writer) -> None:
    m = model(store, "account", "proj")
    run(store, worse(store, m, 1, time_s=900.0, account="other"))
    assert state(store, m) == "fitted"
    run(store, worse(store, m, 2, time_s=900.0, account="proj"))
    assert state(store, m) == "suspended"


def test_a_choice_on_another_node_type_is_that_models_promise(store: Writer) -> None:
    skl = NodeType("skl", "skylake", ("batch",), cores=28, nodes=("skl1",))
    store.save_node_types([skl], source="test")
    there = Configuration("skl", 1, 1, 28, 0)
    base, other = model(store), store.save_model(
        "stencil", "n64", "skl", scope="all", owner="", name="bspline",
        energy_quality="measured", n_train=12, stats={}, options=[option(there, 102.0, 9_000.0)],
    )  # fmt: skip
    d = decision(1, base.id)
    assert d.chosen is not None
    d = replace(d, chosen=d.chosen._replace(configuration=there), rewrite={"constraint": "skylake"})
    record = replace(job(1, decided(store, d), time_s=900.0, freq=None), node_list="skl1")
    run(store, record)
    assert (state(store, base), state(store, other)) == ("fitted", "suspended")


# -- watermark -----------------------------------------------------------------------------------


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


# -- altered, cancelled and requeued jobs ---------------------------------------------------------


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


# -- programs built again -------------------------------------------------------------------------

OLD = {"path": "/x/stencil", "size": 1, "mtime": 2, "build": "aa" * 20}
NEW = {"path": "/x/stencil", "size": 3, "mtime": 4, "build": "bb" * 20}


def rebuilt(store: Writer, number: int, m: StoredModel, code: str = "program-rebuilt") -> Decision:
    found = decision(number, m.id, changed=False, reasons=(reason(code, NEW["path"]),))
    return replace(found, program=NEW)


def measured(store: Writer, **stats: object) -> StoredModel:
    m = model(store)
    return store.save_model(
        "stencil", "n64", "bdw", scope="all", owner="", name="bspline",
        energy_quality="measured", n_train=12, stats={"program": [OLD], **stats},
        options=m.options(),
    )  # fmt: skip


def programs(store: Writer, m: StoredModel) -> object:
    return next(iter(store.models([m.id]))).stats["program"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_rebuilt_program_counts_once_it_came_out_as_predicted(
    store: Writer, stored: bool
) -> None:
    m = measured(store)
    d = rebuilt(store, 1, m)
    stamp = decided(store, d) if stored else make_stamp(d)
    result = run(store, job(11, stamp, freq=None, time_s=100.0, energy_j=10_000.0))
    assert result.programs == 1 and programs(store, m) == [OLD, NEW]
    assert next(iter(store.models([m.id]))).updated_at > m.updated_at
    assert [o.observation.extra["program"] for o in store.observations("stencil")] == [NEW]
    # a model fitted from what was measured, that run included, knows it as well
    again = run(store, job(11, stamp, freq=None, time_s=100.0, energy_j=10_000.0))
    assert (again.programs, again.known) == (0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"time_s": 120.0}, {"time_s": 80.0}, {"energy_j": 12_000.0}, {"energy_j": 8_000.0},
        {"state": "FAILED"}, {"cpus": 14}, {"user": "bob"}, {"freq": 1_200_000},
    ],
)  # fmt: skip
def test_a_rebuilt_program_that_runs_otherwise_does_not(
    store: Writer, changes: dict[str, object]
) -> None:
    m = measured(store)
    ran = {"freq": None, "time_s": 100.0, "energy_j": 10_000.0, **changes}
    result = run(store, job(11, decided(store, rebuilt(store, 1, m)), **ran))  # type: ignore[arg-type]
    assert result.programs == 0 and programs(store, m) == [OLD]
    assert store.observations("stencil") == []


def test_another_program_neither_counts_nor_teaches(store: Writer) -> None:
    m = measured(store)
    stamp = decided(store, rebuilt(store, 1, m, "other-program"))
    result = run(store, job(11, stamp, freq=None, time_s=100.0, energy_j=10_000.0))
    assert (result.programs, result.observations) == (0, 0)
    assert programs(store, m) == [OLD]


# -- signatures ----------------------------------------------------------------------------------


def test_the_accounting_alone_makes_a_signature(store: Writer) -> None:
    stamp = decided(store, decision(1, None))
    used = replace(job(11, stamp), cpu_s=1456.0, disk_mb=208.0, memory_mb=64.0)
    assert run(store, used).signatures == 1
    (stored,) = signatures(store, "stencil", "n64", "bdw")
    s = stored.signature
    assert s.cpu_util == pytest.approx(50.0) and s.cpus == 28  # of 104 s on 28 CPUs
    assert s.power_w == pytest.approx(9000 / 102) and s.time_s == 102.0
    assert (s.io_mbs, s.memory_mb) == (2.0, 64.0) and s.cpi is None
    assert (s.source, s.contributor, s.scope, s.job_id) == ("accounting", "ann", "own", "11")
    assert s.configuration is not None and s.configuration.threads_per_node == 28
    assert run(store, used).signatures == 0


def test_a_job_that_something_counted_needs_none_from_the_accounting(store: Writer) -> None:
    stamp = decided(store, decision(1, None))
    counted = Signature(cpi=0.5, configuration=BASE, source="ear", contributor="ann", job_id="11.0")
    save_signatures(store, "stencil", "n64", [counted])
    assert run(store, replace(job(11, stamp), cpu_s=1400.0)).signatures == 0
    assert [s.signature.source for s in signatures(store)] == ["ear"]


def test_what_the_accounting_did_not_gather_is_missing(store: Writer) -> None:
    stamp = decided(store, decision(1, None))
    assert run(store, job(11, stamp, energy_j=None)).signatures == 0  # nothing but its time
    failed = replace(job(12, decided(store, decision(2, None)), state="FAILED"), cpu_s=9.0)
    short = replace(job(13, decided(store, decision(3, None)), time_s=3.0), cpu_s=9.0)
    assert run(store, failed, short).signatures == 0
    only_power = job(14, decided(store, decision(4, None)))
    assert run(store, only_power).signatures == 1
    (stored,) = signatures(store)
    assert stored.signature.io_mbs is None and stored.signature.cpu_util is None
