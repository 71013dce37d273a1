"""The store in PostgreSQL and in a file: every verb answers the same, and nothing is ever half.

On a real server of its own, which is started once a session; skipped where there is none.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advisor_tui import demo

from advisor.core.configuration import Configuration
from advisor.core.observation import Observation
from advisor.database import DatabaseAddress
from advisor.derive.worker import derive
from advisor.errors import RefusedError, StoreError
from advisor.paths import beside
from advisor.service.changes import HEARD_S
from advisor.store import parquet
from advisor.store.cap_trials import give_up_cap_trial, pending_cap_trials, take_cap_trial
from advisor.store.clusters import take_in
from advisor.store.dialect import tables, translated
from advisor.store.journal import Journal
from advisor.store.move import move
from advisor.store.postgresql import MigratedDatabase, PostgresConnection
from advisor.store.reader import Reader
from advisor.store.stale import stale
from advisor.store.versions import MIGRATIONS
from advisor.store.writer import Writer, outcome_row
from advisor_lab.profile.store import ProfileFile, profile_files, save_profile_files
from tests import postgresql
from tests.contract.test_collect import accounting, job, row, stamps
from tests.contract.test_serve import DECIDE, ask, fill, place, start
from tests.profiled import grid_profile, write_runs
from tests.unit.stored import decision as stored_decision
from tests.unit.stored import save
from tests.waiting import wait_for

pytestmark = pytest.mark.postgresql
__all__ = ("accounting", "place", "stamps", "start")
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Server]:
    if why := postgresql.why_none():
        pytest.skip(why)
    with postgresql.server(durable=False) as started:
        yield started


@pytest.fixture
def address(server: postgresql.Server) -> DatabaseAddress:
    """An empty database."""
    return server.database()


@pytest.fixture(scope="session")
def example(
    server: postgresql.Server, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A store with something of most tables as a file, and the database that it was moved to."""
    file = tmp_path_factory.mktemp("example") / "advisor.db"
    demo.build(file, "ann")
    with Writer(file) as writer:
        run = writer.observations("cg-solver")[0].observation
        writer.add_observations("shared", "default", [replace(run, scope="own")])
        take_in(writer, "alpha", "slurm")
    database = server.database()
    move(file, database)
    return file, re.sub(r".*/(\w+)\?.*", r"\1", str(database))


@pytest.fixture
def both(
    example: tuple[Path, str], server: postgresql.Server, tmp_path: Path
) -> tuple[Path, DatabaseAddress]:
    """A copy of the example of either kind."""
    file, database = example
    shutil.copy(file, tmp_path / "advisor.db")
    return tmp_path / "advisor.db", server.database(database)


_OWN = re.compile(r"(?<=\"decision\": \")\w{16}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\dZ+:]*")
"""What differs between two calls of a verb: a new decision's id, and moments."""


def answer(advisor: Run, store: Path, *arguments: object) -> tuple[int, Any, str]:
    """Return what a verb says of a store, without the store's name and the moment."""
    result = advisor("--db", store, "--json", *arguments)
    out, err = (
        _OWN.sub("OWN", text).replace(str(store), "STORE") for text in (result.out, result.err)
    )
    return result.code, json.loads(out) if out else None, err


def some(file: Path) -> dict[str, str]:
    """Return ids to ask for: of a decision, and of the jobs of two."""
    with Reader(file) as reader:
        decisions = [d for d in reader.decisions() if d.job_id]
        return {"ID": decisions[0].id, "JOB": decisions[0].job_id, "OTHER": decisions[-1].job_id}


CALLS = {
    "options": ["options cg-solver", "options md-lattice --user ann", "options nosuch"],
    "explain": ["explain job.sh", "explain job.sh -- --nodes=2"],
    "why": ["why JOB", "why JOB OTHER", "why", "why 4711"],
    "jobs": ["jobs", "jobs --everybody --changed", "jobs --user ann"],
    "report": ["report", "report --user ann", "report --application cg-solver"],
    "metrics": ["metrics"],
    "fit": ["fit cg-solver", "options cg-solver", "fit nosuch"],
    "choose": ["choose cg-solver --goal edp", "choose", "choose --off", "choose --on"],
    "import": [
        "import grid.csv --application fresh --node-type broadwell",
        "import grid.csv --application fresh --node-type broadwell",
        "fit fresh",
        "options fresh",
    ],
    "policy": ["policy show", "policy apply policy.yaml", "policy show"],
    "simulate": ["policy simulate policy.yaml", "policy simulate policy.yaml --since 400d"],
    "site": ["site show", "site apply site.yaml", "site show"],
    "promote": ["store promote shared --scope all", "store promote shared --scope all"],
    "forget": [
        "store forget cg-solver --yes",
        "options cg-solver",
        "store forget cg-solver --undo",
        "options cg-solver",
    ],
    "prune": [
        "store prune --older-than 0d --yes",
        "report",
        "jobs --everybody",
        "store prune --undo",
        "jobs --everybody",
        "report",
    ],
    "collect": ["collect --scheduler local", "collect --spool"],
    "train": ["train cg-solver --threads 4 --dry-run -- true"],
    "profile": [
        "lab profile show grid",
        "lab profile import runs",
        "lab profile classify grid --method communication",
        "lab profile fit grid --setup setup.yaml",
        "lab profile show grid",
        "lab profile adjust grid --exclude NPC=16,SIZE=24",
        "lab profile extrapolate grid --at NPC=64 --at SIZE=96 --output predicted",
        "lab profile history grid",
        "lab profile redo grid 2",
    ],
}


GRIDS = ((3, 3), (4, 4), (5, 5), (6, 6))
PROFILES = """
complexity: {NThreads: [sqrt(NPC), NPC], default: {SIZE: [x, x^2], NPC: [x]}}
metrics: {NThreads: {}, LSys: {}}
"""


@pytest.mark.parametrize("verb", CALLS)
def test_every_verb_answers_the_same_of_both(
    verb: str,
    both: tuple[Path, DatabaseAddress],
    advisor: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f"1,1,{t},{f},{1e8 / t / f + 5:.4f},{t * 3 + f / 1e5:.3f}\n"
        for t in (1, 2, 4, 8)
        for f in (1_200_000, 1_500_000, 1_800_000, 2_100_000)
    )
    header = "nodes,ranks_per_node,threads_per_node,freq_khz,time_s,energy_j\n"
    Path("grid.csv").write_text(header + rows)
    Path("job.sh").write_text("#!/bin/sh\n#SBATCH --nodes=1\nsrun ./cg-solver\n")
    Path("policy.yaml").write_text("version: 1\nmode: observe\n")
    Path("site.yaml").write_text("version: 1\ndefault_partition: batch\n")
    Path("setup.yaml").write_text(PROFILES)
    profiled = [grid_profile(lengths, size) for lengths in GRIDS for size in (24, 48, 72)]
    write_runs(Path("runs"), profiled)
    names = some(both[0])
    for call in CALLS[verb]:
        words = [names.get(word, word) for word in call.split()]
        said = []
        for store, own in zip(both, ("file", "database"), strict=True):
            monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / own))  # of choices
            code, out, err = answer(advisor, store, *words)
            said.append((code, json.dumps(out).replace(f"/{own}/", "/OWN/"), err))
        assert said[0] == said[1], call
        assert "--help says more" not in said[0][2], f"{call} is no call at all"


def test_what_is_collected_is_the_same_in_both(
    advisor: Run,
    accounting: Run,
    stamps: list[str],
    store_path: Path,
    address: DatabaseAddress,
) -> None:
    move(store_path, address)
    accounting(job(11, stamps[0], time_s=130), job(12, stamps[1]), row("13"))
    calls = ("collect --scheduler slurm", "collect --scheduler slurm", "report", "why 11", "jobs")
    for call in calls:
        of_file, of_database = (answer(advisor, s, *call.split()) for s in (store_path, address))
        assert of_database == of_file, call
    with Reader(address) as reader, Reader(store_path) as file:
        for name, table in tables().items():
            if name != "_sqlite_migrations" and name not in ("stale", "models"):
                sql = f"SELECT count(*) FROM {name}"
                assert reader.rows(sql)[0][0] == file.rows(sql)[0][0], (name, table)


def test_a_sweep_is_kept_in_a_database(
    address: DatabaseAddress, advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = ("train", "app", "--yes", "--threads", "1,2", "--scheduler", "local", "--json")
    trained = advisor("--db", address, *sweep, "--", "sleep", "0.05")
    assert trained.code == 0, trained.err
    with Reader(address) as reader:
        (request,) = reader.training_requests()
        assert request.application == "app" and reader.training_runs(request.id)
        assert reader.observations("app")


def test_a_move_and_back_changes_nothing(
    both: tuple[Path, DatabaseAddress], tmp_path: Path
) -> None:
    file, database = both
    moved = move(database, tmp_path / "back.db")
    assert moved.rows["decisions"] > 0
    with Reader(file) as one, Reader(tmp_path / "back.db") as other:
        for name, table in tables().items():
            if name != "_sqlite_migrations":
                columns = ", ".join(f'"{c}"' for c in table.stored)
                sql = f"SELECT {columns} FROM {name} ORDER BY {', '.join(table.key)}"
                assert [*map(tuple, one.rows(sql))] == [*map(tuple, other.rows(sql))], name


def test_what_packages_added_is_moved_along(
    both: tuple[Path, DatabaseAddress],
    server: postgresql.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the package is installed; else its tables stay, and that is said."""
    file, back, run = both[0], tmp_path / "back.db", ProfileFile("train", {"n": 1.0}, "f", "d", b"")
    with Writer(file) as writer:
        save_profile_files(writer, "app", [run], by="ann")
    database = server.database()
    assert move(file, database).rows["profiled_runs"] == 1
    with Writer(database) as writer:
        save_profile_files(writer, "app", [replace(run, digest="other")], by="ann")
    assert move(database, back).rows["profiled_runs"] == 2
    with Reader(back) as reader:
        assert profile_files(reader, "app") == [run, replace(run, digest="other")]
    for source, target in ((file, server.database()), (database, tmp_path / "without.db")):
        monkeypatch.setattr("advisor.store.move.added_tables", dict)
        moved = move(source, target)
        assert "profiled_runs" not in moved.rows
        assert moved.left == ("profile_steps", "profiled_runs")


def test_a_step_of_a_package_that_postgresql_cannot_take_is_named(
    both: tuple[Path, DatabaseAddress],
) -> None:
    with (
        pytest.raises(StoreError, match="a step asks for table mine as sqlite-utils has it"),
        Writer(both[1]) as writer,
        writer.transaction() as db,
    ):
        assert isinstance(db, PostgresConnection)
        MigratedDatabase(db)["mine"].exists()


def test_a_move_replaces_no_store(both: tuple[Path, DatabaseAddress]) -> None:
    file, database = both
    with pytest.raises(RefusedError, match="there is a store already"):
        move(file, database)
    with pytest.raises(RefusedError, match="there is a file already"):
        move(database, file)
    with pytest.raises(RefusedError, match="stores of one kind"):
        move(file, file.with_name("other.db"))


def test_a_move_that_fails_leaves_nothing(
    both: tuple[Path, DatabaseAddress], server: postgresql.Server, tmp_path: Path
) -> None:
    file, _ = both
    target = server.database()
    with Writer(file) as writer:
        writer.change("UPDATE outcomes SET nodes = 'many' WHERE rowid = 1")
    with pytest.raises(StoreError, match="refuses a value"):
        move(file, target)
    with pytest.raises(StoreError, match="lacks the advisor's tables"):
        Reader(target)


@pytest.mark.parametrize("pause_s", [0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1])
def test_a_mover_that_is_killed_leaves_all_or_nothing(
    pause_s: float, both: tuple[Path, DatabaseAddress], server: postgresql.Server
) -> None:
    file, target = both[0], server.database()
    command = [sys.executable, "-m", "advisor", "store", "move", "--copy", "--to", str(target)]
    mover = subprocess.Popen([*command, "--db", str(file)], stdout=subprocess.DEVNULL)
    with suppress(subprocess.TimeoutExpired):
        mover.wait(pause_s)
    mover.kill()
    mover.wait()
    with suppress(RefusedError):  # it was done
        move(file, target)
    with Reader(file) as one, Reader(target) as other:
        assert one.decisions() == other.decisions() and one.decisions()
        assert one.model_stamps() == other.model_stamps()


def test_a_copy_is_published_from_a_database(
    both: tuple[Path, DatabaseAddress], advisor: Run, tmp_path: Path
) -> None:
    copies = []
    for store, name in zip(both, ("file", "database"), strict=True):
        copy = tmp_path / f"{name}.copy"
        said = advisor("--db", store, "store", "publish", copy, "--json").json()
        assert said["replaced"] and not said["history"]
        again = advisor("--db", store, "store", "publish", copy, "--json").json()
        assert not again["replaced"], "the same rows are the same file"
        copies.append((said["models"], said["workloads"], copy))
    assert copies[0][:2] == copies[1][:2] and copies[0][0] > 0
    with Reader(copies[0][2]) as one, Reader(copies[1][2]) as other:
        assert other.published
        for name, table in tables().items():
            columns = ", ".join(f'"{c}"' for c in table.stored if name != "_sqlite_migrations")
            sql = f"SELECT {columns or 'name'} FROM {name} ORDER BY 1"
            assert [*map(tuple, one.rows(sql))] == [*map(tuple, other.rows(sql))], name
        assert not other.decisions()


HISTORY = ("decisions", "outcomes", "observations", "day_sums", "days")


def files_of(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of a history's files by their table."""
    connection = parquet.connect(folder)
    tables = {
        table: parquet.run(
            connection,
            folder,
            f"SELECT * FROM {parquet.read([*parquet.month_files(folder, table).values()])}"
            " ORDER BY rowid",
        )
        for table in HISTORY
    }
    connection.close()
    return tables


def test_a_history_is_written_from_a_database(
    both: tuple[Path, DatabaseAddress], advisor: Run, tmp_path: Path
) -> None:
    folders = [tmp_path / "file", tmp_path / "database"]
    for store, folder in zip(both, folders, strict=True):
        said = advisor("--db", store, "store", "history", "--to", folder, "--json")
        assert said.code == 0, said.err
        assert said.json()["outcomes"] and said.json()["observations"]
        again = advisor("--db", store, "store", "history", "--to", folder)
        assert (again.code, again.out) == (0, f"{folder}: nothing has changed\n"), again.err
    of_file, of_database = map(files_of, folders)
    assert of_file == of_database
    for call in ("report --since 700d", "report --user ann", "policy simulate policy.yaml"):
        (tmp_path / "policy.yaml").write_text("version: 1\nmode: observe\n")
        words = call.replace("policy.yaml", str(tmp_path / "policy.yaml")).split()
        kept = [
            answer(advisor, store, *words, "--history", folder)
            for store, folder in zip(both, folders, strict=True)
        ]
        assert kept[0] == kept[1] and kept[0][0] == 0, call


def test_a_database_is_pruned_after_its_history_is_written(
    both: tuple[Path, DatabaseAddress], advisor: Run, tmp_path: Path
) -> None:
    database, folder = both[1], tmp_path / "history"
    report = ("report", "--since", "700d", "--history", folder)
    said = advisor("--db", database, "store", "history", "--to", folder)
    assert said.code == 0, said.err
    before, whole = answer(advisor, database, *report), files_of(folder)
    prune = ("store", "prune", "--yes", "--history", folder)
    for span in ("5d", "0d"):  # at first a month is there in part
        said = advisor("--db", database, *prune, "--older-than", span, "--json")
        assert said.code == 0 and said.json()["decisions"], said.err
        assert advisor("--db", database, "store", "history", "--to", folder).code == 0
        assert files_of(folder) == whole
        assert answer(advisor, database, *report) == before
    assert advisor("--db", database, "report", "--json").json()["jobs"] == 0
    said = advisor("--db", database, "store", "prune", "--undo")
    assert said.code == 0, said.err
    assert advisor("--db", database, "store", "history", "--to", folder).code == 0
    assert answer(advisor, database, *report)[1]["jobs"] == before[1]["jobs"]


def test_a_collection_writes_the_history_of_a_database_before_it_prunes(
    both: tuple[Path, DatabaseAddress], advisor: Run, tmp_path: Path
) -> None:
    database, folder, at = both[1], tmp_path / "history", "2020-01-02T03:04:05Z"
    with Writer(database) as writer:
        decisions = writer.change("UPDATE decisions SET created_at = ?", (at,))
        outcomes = writer.change("UPDATE outcomes SET submitted_at = ?, collected_at = ?", (at, at))
    text = f'version: 1\nretention: {{decisions: 400d, history: "{folder}"}}\n'
    (tmp_path / "policy.yaml").write_text(text)
    assert advisor("--db", database, "policy", "apply", tmp_path / "policy.yaml").code == 0
    said = advisor("--db", database, "collect", "--scheduler", "local")
    assert (said.code, said.err) == (0, "")
    with Reader(database) as reader:
        assert not reader.decisions() and not reader.outcomes()
    kept = files_of(folder)
    assert (len(kept["decisions"]), len(kept["outcomes"])) == (decisions, outcomes)


def test_a_writer_tells_the_daemon(
    address: DatabaseAddress, server: postgresql.Server, place: Path, start: Run
) -> None:
    fill(address)
    start("--refresh", "0.2s", db=address)

    def decides(threads: int) -> bool:
        answer: dict[str, Any] = ask(place, DECIDE)
        return bool(answer["env"] == {"OMP_NUM_THREADS": str(threads)})

    assert decides(8)
    listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    wait_for(lambda: server.sql(listening) == "1\n")
    fill(address, threads=4)
    wait_for(lambda: decides(4), HEARD_S / 2)
    server.kill()  # who listens hears no more, and looks again once it is back
    server.start()
    fill(address, threads=2)
    wait_for(lambda: decides(2), HEARD_S / 2)


def test_what_follows_is_worked_out_in_a_database(
    both: tuple[Path, DatabaseAddress], caplog: pytest.LogCaptureFixture
) -> None:
    left = []
    for store in both:
        with Writer(store) as writer:
            writer.touch_ranked()
            for workload in writer.workloads():
                writer.touch(workload.application, workload.name)
                writer.touch_groups([((workload.application, workload.name), ("all", ""))])
            assert derive(writer, budget_s=600)
            left.append([tuple(row) for row in writer.rows("SELECT * FROM stale")])
    assert left == [[], []]
    assert "not-derived" not in caplog.text and "derived-later" not in caplog.text


def test_one_at_a_time_works_out_what_follows(both: tuple[Path, DatabaseAddress]) -> None:
    database = both[1]
    with Writer(database) as one, Writer(database) as other:
        (named, *_) = [(w.application, w.name) for w in one.workloads() if w.name == "default"]
        one.touch(*named)
        with one.deriving() as alone:
            assert alone and not derive(other, budget_s=600)
            assert stale(other), "it is the other's"
            assert derive(other, budget_s=600, first=named[0]) and not stale(other)
        one.touch(*named)
        assert derive(other, budget_s=600) and not stale(one)


def test_records_say_the_same_to_both(both: tuple[Path, DatabaseAddress]) -> None:
    """What JSON holds: numbers of any form, text of all languages, what is not there."""
    records = (
        '{"a": {"b": [1.50, 1e-7, -2, 123456789012345678]}, "c": "x\\\\u0000y", "d": null}',
        '{"a": {"b": [true, "\\ud83d\\ude00", "Zo\\u00eb"]}, "c": "two words", "e": {"f": {}}}',
        '{"a": {"b": []}, "c": 1.0}',
    )
    sql = (
        "SELECT json_extract(record, '$.a.b[0]', '$.c', '$.d', '$.e.f', '$.a')"
        " FROM outcomes WHERE node_list = ? ORDER BY job_id"
    )
    said = []
    for store in both:
        with Writer(store) as writer:
            numbers = [
                r[0] for r in writer.rows("SELECT rowid FROM outcomes ORDER BY rowid LIMIT 3")
            ]
            for number, record in zip(numbers, records, strict=True):
                change = "UPDATE outcomes SET record = ?, node_list = ? WHERE rowid = ?"
                writer.change(change, (record, "here", number))
            rows = [row[0] for row in writer.rows(sql, ("here",))]
            assert writer.rows_of_each(sql, [("here",), ("nowhere",)])[1] == []
            assert [row[0] for row in writer.rows_of_each(sql, [("here",)])[0]] == rows
            said.append([json.loads(row) for row in rows])
    assert said[0] == said[1] and len(said[0]) == 3


def test_a_record_that_postgresql_cannot_hold_keeps_no_other_out(
    both: tuple[Path, DatabaseAddress],
) -> None:
    """A job's name may be any bytes."""
    with Reader(both[0]) as reader:
        outcomes = [replace(o, job_id=f"9{o.job_id}") for o in reader.outcomes()[:3]]
    for outcome, name in zip(outcomes, ("nul\0", "half\udcff", "fine\U0001f600"), strict=True):
        outcome.record["name"] = name
    with Writer(both[1]) as writer:
        writer.save_outcomes([outcome_row(outcome) for outcome in outcomes])
        sql = "SELECT json_extract(record, '$.name') FROM outcomes WHERE job_id = ?"
        names = [writer.rows(sql, (o.job_id,))[0][0] for o in outcomes]
    assert names == ["nul?", "half?", "fine\U0001f600"]


def test_the_verb_moves(both: tuple[Path, DatabaseAddress], advisor: Run, tmp_path: Path) -> None:
    result = advisor("--db", both[1], "store", "move", "--to", tmp_path / "new.db", "--json")
    assert result.code == 0 and result.json()["rows"]["decisions"] > 0
    assert advisor("--db", tmp_path / "new.db", "jobs", "--everybody", "--json").code == 0


# -- several writers, and a server that goes ---------------------------------------------------


def test_two_writers_at_once_lose_nothing(address: DatabaseAddress) -> None:
    Writer(address).close()
    failed: list[BaseException] = []

    def write(name: str) -> None:
        run = Observation(Configuration("bdw", 1, 1, 8, 0), 1.0, 1.0)
        try:
            with Writer(address, timeout_s=60) as writer:
                for _ in range(25):
                    writer.add_observations("stencil", "n64", [run])
                    save(writer, "stencil")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with Reader(address) as reader:
        assert len(reader.observations("stencil")) == 100
        versions = [row[0] for row in reader.rows("SELECT version FROM models ORDER BY version")]
        assert versions == [*range(1, 101)]


def test_a_writer_waits_so_long_for_another_and_says_so(address: DatabaseAddress) -> None:
    with Writer(address) as one, Writer(address, timeout_s=0.05) as other:
        with one.batch(), pytest.raises(StoreError, match="another writer holds the store"):
            other.apply_config("site", path="s", text="s", compiled={}, by="test")
        other.apply_config("site", path="s", text="s", compiled={}, by="test")
        assert one.changed() and one.site() == {}


def test_decisions_wait_for_no_writer(address: DatabaseAddress) -> None:
    with Writer(address) as writer, writer.batch():
        journal = Journal(address)
        journal.start()
        journal.put(stored_decision("a" * 16), "11")
        wait_for(lambda: journal.written == 1, shown=lambda: journal.trouble)
        assert journal.close() == 0
    with Reader(address) as reader:
        assert [d.job_id for d in reader.decisions()] == ["11"]


def test_a_refused_decision_takes_no_other_with_it(address: DatabaseAddress) -> None:
    Writer(address).close()
    journal = Journal(address)
    journal.put(replace(stored_decision("a" * 16), policy_version=2**70), "11")
    journal.put(replace(stored_decision("b" * 16), user="nul\0\udcff"), "12")
    journal.start()
    wait_for(lambda: journal.written == 1 and journal.dropped == 1, shown=lambda: journal.trouble)
    journal.close()
    with Reader(address) as reader:
        assert [d.job_id for d in reader.decisions()] == ["12"]


def test_kill_9_of_the_server_leaves_nothing_half_written(
    server: postgresql.Server, address: DatabaseAddress
) -> None:
    run = Observation(Configuration("bdw", 1, 1, 8, 0), 1.0, 1.0)
    with Writer(address) as writer:
        writer.add_observations("stencil", "kept", [run])
        journal = Journal(address)
        journal.start()
        with pytest.raises(StoreError, match="does not answer") as caught, writer.batch():
            writer.add_observations("stencil", "half", [run] * 100)
            server.kill()
            journal.put(stored_decision("a" * 16), "11")
            writer.add_observations("stencil", "half", [run])
        assert "\n" not in str(caught.value)
        with pytest.raises(StoreError, match="does not answer"):
            Reader(address)
        wait_for(lambda: journal.trouble)
        assert journal.waiting == 1 and journal.dropped == 0
        server.start()
        wait_for(lambda: journal.written == 1, shown=lambda: journal.trouble)
        assert journal.close() == 0
    with Reader(address) as reader:
        assert [w.name for w in reader.workloads("stencil")] == ["kept"]
        assert len(reader.observations("stencil")) == 1
        assert [d.job_id for d in reader.decisions()] == ["11"]


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_of_the_server_loses_no_decision_that_was_written(
    seed: int, server: postgresql.Server, address: DatabaseAddress
) -> None:
    draw = random.Random(seed)
    Writer(address).close()
    journal = Journal(address)
    journal.start()
    ids = [f"{number:016x}" for number in range(600)]
    kill_at = {draw.randrange(600) for _ in range(2)}
    for number, name in enumerate(ids):
        journal.put(stored_decision(name), str(number))
        time.sleep(0.004)
        if number in kill_at:
            written = journal.written
            while journal.written == written:
                pass
            server.kill()  # what is said to be written is on the disk
            server.start()
    wait_for(lambda: journal.waiting == 0, shown=lambda: journal.trouble)
    assert journal.close() == 0 and journal.dropped == 0
    with Reader(address) as reader:
        assert sorted(d.id for d in reader.decisions(limit=1000)) == ids


def test_a_reader_goes_on_when_the_server_is_back(
    server: postgresql.Server, address: DatabaseAddress
) -> None:
    Writer(address).close()
    with Reader(address) as reader:
        assert reader.workloads() == []
        server.stop()
        with pytest.raises(StoreError, match="does not answer"):
            reader.workloads()
        server.start()
        assert reader.workloads() == []


def test_the_daemon_answers_from_memory_while_the_database_is_gone(
    server: postgresql.Server, address: DatabaseAddress, place: Path, start: Run
) -> None:
    fill(address)
    start(db=address)

    def decide() -> dict[str, Any]:
        return ask(place, DECIDE)

    assert decide()["env"] == {"OMP_NUM_THREADS": "8"}
    server.stop()
    during = [decide() for _ in range(3)]
    assert all(d["env"] == {"OMP_NUM_THREADS": "8"} for d in during)
    server.start()
    ids = {d["decision"] for d in during}

    def all_there() -> bool:
        with Reader(address) as reader:
            return ids <= {d.id for d in reader.decisions()}

    wait_for(all_there)
    fill(address, threads=4)  # a new model is noticed again
    wait_for(lambda: decide()["env"] == {"OMP_NUM_THREADS": "4"})


def test_the_daemon_answers_while_the_database_hangs(
    server: postgresql.Server, address: DatabaseAddress, place: Path, start: Run
) -> None:
    fill(address)
    start(db=address)
    assert ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "8"}
    server.signal(signal.SIGSTOP)
    try:
        during = [ask(place, DECIDE) for _ in range(5)]
    finally:
        server.signal(signal.SIGCONT)
    assert all(d["env"] == {"OMP_NUM_THREADS": "8"} for d in during)

    def all_there() -> bool:
        with Reader(address) as reader:
            return {d["decision"] for d in during} <= {d.id for d in reader.decisions()}

    wait_for(all_there)


def test_a_place_for_a_trial_is_taken_once_and_never_waited_for(
    server: postgresql.Server, address: DatabaseAddress
) -> None:
    Writer(address).close()
    one, other = (replace(stored_decision(c * 16), identity="job") for c in "ab")
    wait_for(lambda: take_cap_trial(address, one))  # the first one may only connect
    assert not take_cap_trial(address, other)
    server.signal(signal.SIGSTOP)
    try:
        give_up_cap_trial(address, one.id)
    finally:
        server.signal(signal.SIGCONT)
    with Reader(address) as reader:
        assert [t.decision_id for t in pending_cap_trials(reader)] == [one.id]
    server.stop()
    assert not take_cap_trial(address, other)
    server.start()

    def is_taken() -> bool:
        give_up_cap_trial(address, one.id)
        return take_cap_trial(address, other)

    wait_for(is_taken)


# -- one clear line ----------------------------------------------------------------------------


def line(advisor: Run, store: object) -> str:
    """Return the one line that a verb says of a store that it cannot read."""
    result = advisor("--db", store, "jobs")
    assert result.code and not result.out and result.err.count("\n") == 1
    return str(result.err)


def test_what_is_wrong_is_said_in_one_line(
    server: postgresql.Server, address: DatabaseAddress, advisor: Run, tmp_path: Path
) -> None:
    assert "does not answer" in line(advisor, f"postgresql:///x?host={tmp_path}")
    assert "does not answer" in line(advisor, f"postgresql://nobody@/x?host={server.folder}")
    assert "lacks the advisor's tables" in line(advisor, address)
    assert "PGPASSFILE" in line(advisor, "postgresql://ann:secret@host/advisor")
    assert "secret" not in line(advisor, "postgresql://host/advisor?password=secret")
    assert "does not answer" in line(advisor, "postgresql:///?service=nosuchservice")
    with Writer(address) as writer:
        writer.change("UPDATE _sqlite_migrations SET name = 'm9999_later' WHERE id = 1")
    assert "written by a newer advisor (it has m9999_later)" in line(advisor, address)
    with Writer(server.database()) as writer:
        writer.change("DELETE FROM _sqlite_migrations WHERE name = ?", (MIGRATIONS[-1],))
        assert "of an older version" in line(advisor, writer.path)


def test_a_role_that_only_reads_is_told_so(
    server: postgresql.Server, address: DatabaseAddress, advisor: Run
) -> None:
    Writer(address).close()
    name = re.sub(r".*/(\w+)\?.*", r"\1", str(address))
    server.sql(
        "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA advisor TO reader;"
        " GRANT SELECT ON ALL TABLES IN SCHEMA advisor TO reader",
        name,
    )
    with Reader(server.address(name, "reader")) as reader:
        assert reader.workloads() == []
    refused = pytest.raises(StoreError, match="cannot be written or read so")
    with Writer(server.address(name, "reader")) as writer, refused:
        writer.apply_config("site", path="s", text="s", compiled={}, by="test")


def test_passwords_come_from_libpqs_own_files(
    server: postgresql.Server, address: DatabaseAddress, tmp_path: Path
) -> None:
    Writer(address).close()
    service = tmp_path / "services"
    name = re.sub(r".*/(\w+)\?.*", r"\1", str(address))
    service.write_text(f"[advisor]\nhost={server.folder}\ndbname={name}\nuser=advisor\n")
    program = (
        "from advisor.store.reader import Reader\n"
        "print(Reader('postgresql://?service=advisor').workloads())"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PGSERVICEFILE": str(service)},
        capture_output=True,
        text=True,
    )
    assert said.stdout == "[]\n", said.stderr


def test_without_the_extra_a_line_names_it(address: DatabaseAddress) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from advisor.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "--db", str(address), "jobs"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 1 and "hpc-advisor[postgresql]" in said.stderr
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("store", "backup", "b.db"), ("store", "restore", "d")])
def test_what_is_a_files_own_names_postgresqls_tools(
    words: tuple[str, ...], address: DatabaseAddress, advisor: Run, tmp_path: Path
) -> None:
    Writer(address).close()
    result = advisor("--db", address, *words[:2], tmp_path / words[2])
    assert result.code and "pg_dump" in result.err and result.err.count("\n") == 1


def test_doctor_looks_at_a_database(address: DatabaseAddress, advisor: Run) -> None:
    Writer(address).close()
    checks = advisor("--db", address, "doctor", "--json").json()["checks"]
    (store,) = (c for c in checks if c["name"] == "store")
    assert store["state"] == "ok" and "answers, PostgreSQL" in store["text"]
    assert beside(address).name.startswith("postgresql-")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT user FROM t WHERE a LIKE '50%?' AND 1", "%%?' AND true"),
        (
            "SELECT ':no' FROM t WHERE b = :yes AND c IS ?",
            "':no' FROM t WHERE b = %(yes)s AND c IS NOT DISTINCT FROM %s",
        ),
        (
            "INSERT OR REPLACE INTO count_laws VALUES (?, ?, ?)",
            "ON CONFLICT (application) DO UPDATE",
        ),
        ("INSERT OR IGNORE INTO clusters (name) VALUES (?)", "ON CONFLICT DO NOTHING"),
    ],
)
def test_a_statement_is_said_to_postgresql(sql: str, said: str) -> None:
    assert said in translated(sql)
