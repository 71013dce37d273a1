"""When a model whose jobs came out worse is suspended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.core.option import row_of
from advisor.core.reasons import reason
from advisor.core.select import weigh
from advisor.core.stamp import make_stamp
from advisor.schedulers.base import JobRecord
from advisor.store.records import StoredModel
from advisor.store.writer import Writer
from tests.unit.collect.jobs import decided, decision, job, model, option, run, state, worse


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


def test_a_model_is_suspended_before_it_could_be_fitted_again(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new version of it, fitted with the very job, would not be suspended."""
    m = model(store)
    states: list[str] = []

    def refit(*_: object) -> str:
        states.append(state(store, m))
        return ""

    monkeypatch.setattr("advisor.loop.collect.refit_with_jobs", refit)
    run(store, worse(store, m, 1, time_s=125.0))
    assert states == ["suspended"]


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
    base, other = (
        model(store),
        store.save_model(
            "stencil",
            "n64",
            "skl",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats={},
            options=[option(there, 102.0, 9_000.0)],
        ),
    )
    d = decision(1, base.id)
    assert d.chosen is not None
    d = replace(d, chosen=d.chosen._replace(configuration=there), rewrite={"constraint": "skylake"})
    record = replace(job(1, decided(store, d), time_s=900.0, freq=None), node_list="skl1")
    run(store, record)
    assert (state(store, base), state(store, other)) == ("fitted", "suspended")
