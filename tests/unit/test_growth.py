"""What verbs do does not grow with the jobs of a store: steps of SQLite's machine, rows, bytes."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.loop import clock
from advisor.loop.day_sums import sum_days, whole_days
from advisor.loop.recommendations import notes
from advisor.loop.report import report
from advisor.loop.reported_jobs import reported_jobs
from advisor.loop.runs_of_jobs import RunsOfJobs
from advisor.loop.suspend import judged_by
from advisor.prior.fit import MOST, like_and_others
from advisor.prior.surface import WorkloadSurface
from advisor.store.pruning import prune, restore_pruned
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.visible import page
from advisor.store.writer import Writer
from advisor.views import recent
from tests.unit.collect.jobs import BDW, NOW, decided, decision, job, model, run

MADE, FEW, MANY = 40, 240, 2400
"""Jobs that collections make, and all of the two stores that are compared."""


def build(path: Path, jobs: int) -> None:
    """Fill a store with jobs of the last 20 days, as collections do; most are copies of others."""
    with Writer(path) as store:
        store.save_node_types([BDW], source="test")
        m = model(store)
        made = [
            job(n, decided(store, decision(n, m.id, user=f"u{n % 4}")), user=f"u{n % 4}")
            for n in range(1, MADE + 1)
        ]
        run(store, *made)
    with closing(sqlite3.connect(path)) as db, db:
        db.row_factory = sqlite3.Row
        for table, key, at in (
            ("decisions", "id", "created_at"),
            ("outcomes", "job_id", "submitted_at"),
        ):
            rows = [dict(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY {at}")]
            for number in range(MADE + 1, jobs + 1):
                row = rows[number % MADE]
                moment = NOW - timedelta(days=20) + timedelta(days=20) * number / jobs
                row |= {key: f"{number:016d}", at: clock.form(moment), "job_id": str(number)}
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {table} VALUES ({marks})", list(row.values()))
    with Writer(path) as store:
        while sum_days(store):
            pass


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("growth")
    for jobs in (FEW, MANY):
        build(folder / f"{jobs}.db", jobs)
    return folder / f"{FEW}.db", folder / f"{MANY}.db"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count what SQLite's machine does in all connections that are opened from now on."""
    counted = 0
    connect = sqlite3.connect

    def step() -> None:
        nonlocal counted
        counted += 1

    def counting(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_progress_handler(step, 10)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counting)
    return lambda: counted


def grows(
    steps: Callable[[], int], stores: Sequence[Path], work: Callable[[Path], object]
) -> float:
    """Return by what factor the steps of some work grow from the small to the large store."""
    taken = []
    for store in stores:
        before = steps()
        work(store)
        taken.append(steps() - before)
    return taken[1] / taken[0]


def test_a_copy_for_others_reads_and_writes_no_jobs(
    stores: tuple[Path, Path], steps: Callable[[], int], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    assert grows(steps, stores, lambda s: publish(s, copy, history=False)) < 1.05
    sizes = []
    for store in stores:
        publish(store, copy, history=False)
        sizes.append(copy.stat().st_size)
    assert sizes[0] == sizes[1]


def test_an_equal_copy_is_not_written_again_and_becomes_young(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    assert publish(stores[0], copy, history=False)
    before = copy.stat()
    assert not publish(stores[0], copy, history=False)
    assert copy.stat().st_ino == before.st_ino and copy.stat().st_mtime_ns > before.st_mtime_ns


def test_a_report_reads_days_and_not_jobs(
    stores: tuple[Path, Path], steps: Callable[[], int]
) -> None:
    since = clock.form(NOW - timedelta(days=30))

    def ask(store: Path) -> None:
        with Reader(store) as reader:
            assert notes(report(reader, since=since), reader)

    assert grows(steps, stores, ask) < 1.5


def ask_last_jobs(store: Path) -> None:
    with Reader(store) as reader:
        for user in ("u0", "u1"):
            assert recent.last_job(reader, user)


def ask_pages(store: Path) -> None:
    with Reader(store) as reader:
        for user, everybody in (("u0", False), ("root", True)):
            first = page(reader, {"op": "history"}, user, all_jobs=everybody)
            assert first["decisions"]
            if first["next"]:
                again = {"op": "history", "after": first["next"]}
                assert page(reader, again, user, all_jobs=everybody)["decisions"]


def ask_judged(store: Path) -> None:
    with Reader(store) as reader:
        (m,) = reader.models()
        assert len(list(judged_by(reader, m))) == 4


@pytest.mark.parametrize("ask", [ask_last_jobs, ask_judged])
def test_what_is_asked_of_the_last_jobs_does_not_read_those_before(
    stores: tuple[Path, Path], steps: Callable[[], int], ask: Callable[[Path], None]
) -> None:
    assert grows(steps, stores, ask) < 1.5


def test_a_page_of_the_history_is_read_alone(
    stores: tuple[Path, Path], steps: Callable[[], int]
) -> None:
    assert grows(steps, stores, ask_pages) < 1.5
    with Reader(stores[1]) as reader:
        pages: list[str] = []
        after = None
        while not pages or after:
            asked = {"op": "history", "after": after or 0}
            answer = page(reader, asked, "root", all_jobs=True)
            pages += [row["id"] for row in answer["decisions"]]
            after = answer["next"]
        sql = "SELECT id FROM decisions ORDER BY created_at DESC, rowid DESC"
        assert pages == [row[0] for row in reader.rows(sql)]


def test_a_collection_reads_as_much_whatever_there_is(
    stores: tuple[Path, Path], steps: Callable[[], int], tmp_path: Path
) -> None:
    def collect(store: Path) -> None:
        copy = tmp_path / store.name
        copy.write_bytes(store.read_bytes())
        with Writer(copy) as writer:
            (m,) = writer.models()
            new = [job(n, decided(writer, decision(n, m.id))) for n in range(90_001, 90_021)]
            assert len(run(writer, *new).outcomes) == 20

    assert grows(steps, stores, collect) < 1.5


def test_whether_a_jobs_run_is_stored_is_found_by_an_index(stores: tuple[Path, Path]) -> None:
    with Writer(stores[0]) as store:
        asked: list[str] = []
        store._connection.set_trace_callback(asked.append)
        run = Observation(Configuration("broadwell", 1, 1, 1, 0), 1.0, job_id="1", cluster="alpha")
        RunsOfJobs(store, "slurm", store.inventory(), store.policy())._is_stored(run, "")
        store._connection.set_trace_callback(None)
        (sql,) = (sql for sql in asked if "FROM observations" in sql)
        plan = [row["detail"] for row in store.rows(f"EXPLAIN QUERY PLAN {sql}")]
    assert plan == ["SEARCH observations USING INDEX observations_by_job (job_id=?)"]


# -- sums by day ----------------------------------------------------------------------------------


def plain(store: Reader, since: str, application: str = "") -> dict[str, Any]:
    """Return what a report says, as numbers that can be compared."""
    result = report(store, since=since, application=application)
    names = set(type(result).__slots__) - {"tariff", "suspended"}
    return {name: getattr(result, name) for name in sorted(names)}


def close(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-9, abs=1e-12)
    if hasattr(a, "__slots__") and type(a) is type(b):
        return all(close(getattr(a, n), getattr(b, n)) for n in type(a).__slots__)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b


def job_by_job(store: Writer, since: str, application: str = "") -> dict[str, Any]:
    with unsummed(store):
        return plain(store, since, application)


@contextmanager
def unsummed(store: Writer) -> Iterator[None]:
    """Have no day's sums, for a moment."""
    with store.transaction() as db:
        kept = db.execute("SELECT * FROM days").fetchall()
        db.execute("DELETE FROM days")
        yield
        db.executemany("INSERT INTO days VALUES (?, ?, ?)", [tuple(row) for row in kept])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Writer]:
    """A store of jobs of 6 days that came in any order, some of them twice or changed since."""
    draw = random.Random(5)
    with Writer(tmp_path / "advisor.db") as store:
        store.save_node_types([BDW], source="test")
        m = model(store)
        jobs = []
        for n in range(1, 120):
            at = NOW - timedelta(hours=draw.uniform(1, 140))
            user = f"u{n % 3}"
            changed = n % 3 > 0
            d = decision(n, m.id, user=user, at=at, changed=changed, holdout=not changed)
            energy = None if n % 17 == 0 else draw.gauss(9000, 300)
            state = "FAILED" if n % 13 == 0 else "COMPLETED"
            jobs.append(
                job(
                    n,
                    decided(store, d),
                    user=user,
                    at=at,
                    state=state,
                    time_s=round(draw.gauss(102, 3)),
                    energy_j=energy,
                )
            )
        draw.shuffle(jobs)
        for start in range(0, len(jobs), 20):
            run(store, *jobs[start : start + 25])
        late = [replace(j, energy_j=8000.0, steps=()) for j in jobs if j.job_id in {"3", "4"}]
        run(store, *(j for j in jobs if j.job_id in {"5", "6"}), *late)
        yield store


def moments() -> list[str]:
    start = datetime.fromisoformat(NOW.date().isoformat()).replace(tzinfo=UTC)
    return [clock.form(m) for m in (NOW - timedelta(days=30), start, NOW - timedelta(hours=71))]


def test_a_report_says_the_same_by_days_and_by_jobs(site: Writer) -> None:
    assert len(whole_days(site, "")) >= 6
    for since in moments():
        for application in ("", "stencil", "other"):
            by_days = plain(site, since, application)
            jobs = job_by_job(site, since, application)
            assert by_days.keys() == jobs.keys()
            assert all(close(by_days[name], jobs[name]) for name in jobs), since
    assert plain(site, moments()[0])["jobs"] == 119


def test_a_day_that_anybody_else_changes_is_read_job_by_job_until_it_is_summed_up(
    site: Writer,
) -> None:
    since = moments()[0]
    before = whole_days(site, "")
    site.change("UPDATE outcomes SET energy_j = 2 * energy_j WHERE job_id = '7'")
    site.change("DELETE FROM outcomes WHERE job_id = '8'")
    assert len(whole_days(site, "")) < len(before)
    assert all(map(close, plain(site, since).values(), job_by_job(site, since).values()))
    while sum_days(site):
        pass
    assert whole_days(site, "") == before
    assert all(map(close, plain(site, since).values(), job_by_job(site, since).values()))


def test_what_is_no_time_of_submission_hides_no_day(site: Writer) -> None:
    since, days = moments()[0], whole_days(site, "")
    site.change("UPDATE outcomes SET submitted_at = '2' WHERE job_id = '7'")
    site.change("UPDATE outcomes SET submitted_at = '' WHERE job_id = '8'")
    while sum_days(site):
        pass
    assert whole_days(site, "") == days
    assert plain(site, since)["jobs"] == 117
    assert all(map(close, plain(site, since).values(), job_by_job(site, since).values()))


def test_what_is_pruned_and_had_back_is_in_the_sums_as_in_the_store(site: Writer) -> None:
    since = moments()[0]
    jobs = plain(site, since)["jobs"]
    prune(site, decisions_before="9999")
    assert plain(site, since)["jobs"] == 0
    restore_pruned(site)
    assert plain(site, since)["jobs"] == jobs
    while sum_days(site):
        pass
    assert plain(site, since)["jobs"] == jobs
    assert all(map(close, plain(site, since).values(), job_by_job(site, since).values()))


def test_a_day_that_changes_while_it_is_summed_up_is_not_whole(
    site: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.change("UPDATE outcomes SET energy_j = 1 + energy_j WHERE job_id = '7'")

    def meanwhile(*args: Any, **kwargs: Any) -> Iterator[Any]:
        yield from reported_jobs(*args, **kwargs)
        with Writer(site.path) as other:
            other.change("UPDATE outcomes SET energy_j = 1 + energy_j WHERE job_id = '7'")

    whole = whole_days(site, "")
    monkeypatch.setattr("advisor.loop.day_sums.reported_jobs", meanwhile)
    assert sum_days(site) == 0
    assert whole_days(site, "") == whole


# -- the rest -------------------------------------------------------------------------------------


def test_of_very_many_jobs_the_latest_are_listed_and_it_is_said(
    stores: tuple[Path, Path], advisor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "MOST", 1000)
    terms = ("--everybody", "--since", "30d", "--db", stores[1])
    listed = advisor("jobs", *terms, "--json").json()
    assert len(listed["jobs"]) == 1000 and listed["complete"] is False
    assert "of the latest 1000 jobs" in advisor("jobs", *terms).out
    assert "the latest alone" in advisor("note", *terms).out
    assert advisor("note", *terms, "--json").json()["complete"] is False
    few = advisor("jobs", "--everybody", "--since", "30d", "--db", stores[0], "--json").json()
    assert few["complete"] is True and len(few["jobs"]) == FEW


def test_the_log_beside_a_store_gives_its_space_back(tmp_path: Path) -> None:
    path = tmp_path / "advisor.db"
    with Writer(path) as store:
        (limit,) = store.rows("PRAGMA journal_size_limit")[0]
        assert limit == 64 << 20


def test_of_very_many_applications_those_like_it_and_an_even_share_are_learned_from() -> None:
    import numpy as np

    none = np.zeros((1, 2)), np.zeros(1), np.zeros(1)
    known = [
        WorkloadSurface(f"app{n}", {"cpi": n / 100, "power_w": 200.0}, *none) for n in range(1000)
    ]
    signature = {"cpi": 5.0, "power_w": 200.0}
    names = {"cpi", "power_w"}
    assert like_and_others(known[:MOST], names, signature) == known[:MOST]
    some = like_and_others(known, names, signature)
    assert len({s.application for s in some}) == MOST
    nearest = {s.application for s in some} & {f"app{n}" for n in range(469, 531)}
    assert len(nearest) == 62
    off = [abs(s.signature["cpi"] - 5.0) for s in some]
    assert sum(o > 2.5 for o in off) >= MOST // 5


def test_counts_that_are_kept_come_back_whatever_they_are_split_by() -> None:
    from advisor.loop.job_sums import packed, unpacked

    counts = {("jobs",): 3, ("unknown_why", 'a "b"\n|\x1f'): 2, ("without_energy", "", "p", ""): 1}
    assert dict(unpacked(packed(counts))) == counts
    assert json.loads(packed({("jobs",): 0})) == []
