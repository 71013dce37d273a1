"""What a finished job teaches: measured runs, programs built again, signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from advisor.core.decision import Decision
from advisor.core.observation import Observation
from advisor.core.reasons import reason
from advisor.core.signature import Signature
from advisor.core.stamp import make_stamp
from advisor.loop import accounted
from advisor.schedulers.base import JobRecord
from advisor.store.port import ResultRow
from advisor.store.records import StoredModel
from advisor.store.signatures import save_signatures, signatures
from advisor.store.writer import Writer
from tests.unit.collect.jobs import BASE, NOW, OLD, decided, decision, job, measured, model, run


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


NEW = {"path": "/x/stencil", "size": 3, "mtime": 4, "build": "bb" * 20}


def rebuilt(store: Writer, number: int, m: StoredModel, code: str = "program-rebuilt") -> Decision:
    found = decision(number, m.id, changed=False, reasons=(reason(code, NEW["path"]),))
    return replace(found, program=NEW)


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
        {"time_s": 120.0},
        {"time_s": 80.0},
        {"energy_j": 12_000.0},
        {"energy_j": 8_000.0},
        {"state": "FAILED"},
        {"cpus": 14},
        {"user": "bob"},
        {"freq": 1_200_000},
    ],
)
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


@pytest.mark.parametrize("linked", [True, False])
def test_a_job_whose_record_makes_no_sense_leaves_nothing_behind(
    store: Writer, linked: bool
) -> None:
    m = model(store)
    stamps = [decided(store, decision(n, m.id, user=f"u{n}")) for n in (1, 2, 3)]
    jobs = [job(10 + n, stamps[n - 1], user=f"u{n}") for n in (1, 2, 3)]
    if linked:
        for n in (1, 2, 3):
            store.link_job(f"{n:016x}", str(10 + n))
    result = run(store, jobs[0], replace(jobs[1], memory_mb=-1.0), jobs[2])
    assert result.failed == ["job 12: memory_mb of a signature cannot be -1.0"]
    assert [o.job_id for o in result.outcomes] == ["11", "13"] and result.observations == 2
    assert store.outcome("12") is None
    assert {o.observation.job_id for o in store.observations("stencil")} == {"11", "13"}
    assert {s.signature.job_id for s in signatures(store)} == {"11", "13"}
    link = store.rows("SELECT job_id FROM decisions WHERE id = ?", (f"{2:016x}",))[0][0]
    assert link == ("12" if linked else "")
    assert run(store, *jobs).failed == [] and store.outcome("12") is not None


def test_a_batch_asks_for_signatures_once_and_knows_its_own(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = [decided(store, decision(n, None)) for n in (1, 2, 3)]
    first = replace(job(11, stamps[0]), cpu_s=1400.0)
    again = replace(job(11, stamps[1], at=NOW - timedelta(minutes=50)), cpu_s=1400.0)
    asked: list[str] = []
    rows = Writer.rows

    def noted(self: Writer, sql: str, parameters: Sequence[object] = ()) -> list[ResultRow]:
        asked.append(sql)
        return rows(self, sql, parameters)

    monkeypatch.setattr(Writer, "rows", noted)
    assert run(store, first, again, replace(job(12, stamps[2]), cpu_s=1400.0)).signatures == 2
    assert sum("JOIN signatures" in q for q in asked) == 1
    assert sorted(s.signature.job_id for s in signatures(store)) == ["11", "12"]


def counted(store: Writer, number: int, user: str = "ann") -> JobRecord:
    stamp = decided(store, decision(number, None, user=user))
    store.link_job(f"{number:016x}", str(number))
    return replace(job(number, stamp, user=user), cpu_s=1400.0)


def test_what_a_batch_brings_is_written_together(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [counted(store, n, f"u{n}") for n in range(1, 6)]
    written: list[tuple[str, int]] = []
    write = Writer.change_many

    def noted(self: Writer, sql: str, rows: Sequence[Sequence[object]]) -> None:
        written.append((sql.split()[2], len(rows)))
        write(self, sql, rows)

    monkeypatch.setattr(Writer, "change_many", noted)
    result = run(store, *jobs)
    assert (len(result.outcomes), result.signatures) == (5, 5)
    assert written == [("signatures", 5), ("outcomes", 5), ("stale", 5)]
    assert len(list(store.outcomes())) == len(signatures(store)) == 5


def test_where_there_are_enough_one_a_day_replaces_the_oldest(
    store: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> list[int]:
        return sorted(int(s.signature.job_id) for s in signatures(store))

    assert run(store, *(counted(store, n) for n in range(101, 114))).signatures == accounted.ENOUGH
    assert kept() == list(range(101, 111))
    ago = (NOW - timedelta(days=2)).isoformat()
    store.change("UPDATE signatures SET created_at = ?", (ago,))
    assert run(store, *(counted(store, n) for n in range(114, 117))).signatures == 1
    assert kept() == [*range(102, 111), 114]
    # A clock that is set back makes every newest one doubtful.
    monkeypatch.setattr(accounted, "now", lambda: NOW - timedelta(hours=1))
    jobs = [counted(store, n, "bob") for n in range(120, 133)]
    assert run(store, *jobs).signatures == 13
    assert kept() == [*range(102, 111), 114, *range(123, 133)]
