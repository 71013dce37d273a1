"""Jobs in Parquet files: the same answers as from the store, and nothing lost or half-written."""

from __future__ import annotations

import fcntl
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from advisor_tui import demo

from advisor.errors import StoreError
from advisor.loop import history
from advisor.loop.day_sums import sum_days
from advisor.loop.history import write_history
from advisor.paths import share
from advisor.policy.load import check_text
from advisor.store import parquet
from advisor.store.pruning import prune
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.unit.stored import decision

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("example") / "advisor.db"
    demo.build(file, "ann")
    with Writer(file) as writer:
        sum_days(writer)
    return file


@pytest.fixture
def store(example: Path, store_path: Path) -> Path:
    with closing(sqlite3.connect(example)) as source, closing(sqlite3.connect(store_path)) as copy:
        source.backup(copy)
    return store_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history's"


def written(store: Path, folder: Path) -> history.WrittenHistory:
    with Reader(store) as reader:
        return write_history(reader, folder)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same(one: object, other: object) -> bool:
    """Tell whether two answers are the same, sums of numbers but for their last digits."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-9, abs=1e-12)
    return one == other


POLICY = share("config/policy.yaml").read_text(encoding="utf-8")
SINCE = (datetime.now(UTC) - timedelta(days=700)).strftime("%Y-%m-%d")
LATELY = (datetime.now(UTC) - timedelta(days=12)).strftime("%Y-%m-%d")
ASKED = (
    ("report", "--since", SINCE),
    ("report", "--since", LATELY),
    ("report", "--since", SINCE, "--user", "ann"),
    ("report", "--since", SINCE, "--application", "cg-solver"),
    ("policy", "simulate", "POLICY", "--since", SINCE),
    ("policy", "simulate", "POLICY", "--since", LATELY),
)


@pytest.mark.parametrize("verb", ASKED, ids=" ".join)
def test_a_history_answers_as_the_store_does(
    advisor: Run, store: Path, folder: Path, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    arguments = [str(tmp_path / "policy.yaml") if a == "POLICY" else a for a in verb]
    arguments += ["--db", str(store), "--json"]
    said = advisor("store", "history", "--to", folder, "--db", store, "--json")
    assert said.code == 0, said.err
    from_store = json.loads(advisor(*arguments).out)
    jobs = from_store.get("jobs", from_store.get("decisions"))
    assert jobs, from_store
    from_folder = json.loads(advisor(*arguments, "--history", folder).out)
    assert same(from_store, from_folder), (from_store, from_folder)


def test_what_was_pruned_stays_in_the_history(advisor: Run, store: Path, folder: Path) -> None:
    report = ("report", "--since", SINCE, "--json", "--db", store)
    before = json.loads(advisor(*report).out)
    arguments = ("store", "prune", "--older-than", "0d", "--yes", "--db", store, "--json")
    said = advisor(*arguments, "--history", folder)
    assert said.code == 0, said.err
    assert json.loads(said.out)["outcomes"]
    assert json.loads(advisor(*report).out)["jobs"] == 0
    assert same(json.loads(advisor(*report, "--history", folder).out), before)
    stored = contents(folder)
    assert advisor("store", "history", "--to", folder, "--db", store).code == 0
    assert contents(folder) == stored, "a month that the store no longer has is left"
    assert advisor("store", "prune", "--undo", "--db", store).code == 0
    written(store, folder)
    assert same(json.loads(advisor(*report, "--history", folder).out), before)


def month_ago(months: int) -> str:
    """Return a month, 2026-01, so many months ago."""
    today = datetime.now(UTC)
    count = today.year * 12 + today.month - 1 - months
    return f"{count // 12}-{count % 12 + 1:02}"


@pytest.fixture
def aged(advisor: Run, store: Path, folder: Path, tmp_path: Path) -> Path:
    """A store with jobs of two, three and four months ago, of which the policy keeps 90 days."""
    with closing(sqlite3.connect(store)) as db, db:
        for rest, months in enumerate((4, 3, 2)):
            at = f"{month_ago(months)}-15T12:00:00Z"
            where = f"WHERE rowid % 4 = {rest}"
            db.execute(f"UPDATE decisions SET created_at = ? {where}", (at,))
            db.execute(f"UPDATE outcomes SET submitted_at = ?, collected_at = ? {where}", (at, at))
    text = f'version: 1\nretention: {{decisions: 90d, history: "{folder}"}}\n'
    (tmp_path / "policy.yaml").write_text(text)
    said = advisor("policy", "apply", tmp_path / "policy.yaml", "--db", store)
    assert said.code == 0, said.err
    return store


def months_of(store: Path) -> set[str]:
    with Reader(store) as reader:
        sql = (
            "SELECT substr(created_at, 1, 7) FROM decisions"
            " UNION SELECT substr(submitted_at, 1, 7) FROM outcomes"
        )
        return {row[0] for row in reader.rows(sql)}


def test_a_collection_writes_the_history_before_it_prunes_whole_months(
    advisor: Run, aged: Path, folder: Path
) -> None:
    kept_from = (datetime.now(UTC) - timedelta(days=90)).strftime("%Y-%m")
    report = ("report", "--since", SINCE, "--json", "--db", aged)
    before, months = json.loads(advisor(*report).out), months_of(aged)
    assert min(months) < kept_from
    collect = ("collect", "--scheduler", "local", "--db", aged)
    spooled = advisor("collect", "--spool", "--db", aged)
    assert spooled.code == 0 and months_of(aged) == months, "the daemon's own takes no time for it"
    for _ in range(2):
        said = advisor(*collect)
        assert (said.code, said.err) == (0, "")
        assert months_of(aged) == {month for month in months if month >= kept_from}
        assert same(json.loads(advisor(*report, "--history", folder).out), before)
    assert json.loads(advisor(*report).out)["jobs"] < before["jobs"]


KILLED = """
import os, signal, sys
import advisor.cli.collect, advisor.cli.prune, duckdb, numpy
from advisor.cli import main
from advisor.loop import history
from advisor.store import pruning

left = 6

def counted(function):
    def step(*arguments):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return step

history._PART, pruning._STEP = 20, 4
history.synced, pruning._begin_part = counted(history.synced), counted(pruning._begin_part)
for _ in sys.stdin:
    child = os.fork()
    if not child:
        sys.stdout = open(os.devnull, "w")
        os._exit(main(sys.argv[1:]))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A program that is killed after six parts of what it writes and forgets: a fork for each line."""


def test_a_collection_that_is_killed_again_and_again_comes_to_its_end(
    advisor: Run, aged: Path, folder: Path
) -> None:
    """systemd ends one after a quarter of an hour: the next goes on where it was."""
    report = ("report", "--since", SINCE, "--json", "--db", aged)
    before, written_whole = json.loads(advisor(*report).out), dict[Path, bytes]()
    command = [sys.executable, "-c", KILLED, "collect", "--scheduler", "local", "--db", str(aged)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        for _ in range(100):
            print(file=program.stdin, flush=True)
            code = int(program.stdout.readline())
            if not written_whole and (folder / "pruning.json").exists():
                written_whole = contents(folder)
            if code == 0:
                break
            assert code == -signal.SIGKILL
        _, errors = program.communicate()
    assert code == 0 and not errors
    kept_from = (datetime.now(UTC) - timedelta(days=90)).strftime("%Y-%m")
    assert min(months_of(aged)) >= kept_from
    assert written_whole.keys() - contents(folder).keys() == {folder / "pruning.json"}
    assert not [path for path in contents(folder) if ".parts" in path.parts]
    for path, data in contents(folder).items():
        assert written_whole[path] == data, "what is written is not written again"
    assert same(json.loads(advisor(*report, "--history", folder).out), before)


def test_doctor_says_how_the_policys_history_does(advisor: Run, aged: Path, folder: Path) -> None:
    def said() -> tuple[str, str]:
        checks = advisor("doctor", "--db", aged, "--json").json()["checks"]
        (check,) = (c for c in checks if c["name"] == "history")
        return check["state"], check["text"]

    assert said() == (
        "warn",
        f"{folder}: whole months older than the policy keeps wait to be written",
    )
    assert advisor("collect", "--scheduler", "local", "--db", aged).code == 0
    state, text = said()
    assert state == "ok" and "written up to" in text
    for path in folder.iterdir():
        path.rename(folder.parent / f"{path.name}.moved")
    folder.rmdir()
    folder.write_text("a file")
    assert said()[0] == "warn" and "cannot be written there" in said()[1]


def test_a_collection_prunes_nothing_where_the_history_cannot_be_written(
    advisor: Run, aged: Path, folder: Path
) -> None:
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    months = months_of(aged)
    said = advisor("collect", "--scheduler", "local", "--db", aged, "--json")
    assert said.code == 0 and said.json()["schema"].startswith("advisor/collect/")
    assert said.err.count("\n") == 1 and said.err.startswith("advisor: nothing is forgotten")
    assert f"{folder}: this folder holds something else" in said.err
    assert months_of(aged) == months
    (folder / "thesis.tex").unlink()
    assert advisor("collect", "--scheduler", "local", "--db", aged).err == ""
    assert months_of(aged) < months


def test_pruning_by_hand_writes_the_policys_history(advisor: Run, aged: Path, folder: Path) -> None:
    report = ("report", "--since", SINCE, "--json", "--db", aged)
    before = json.loads(advisor(*report).out)
    assert advisor("store", "prune", "--older-than", "0d", "--yes", "--db", aged).code == 0
    assert not months_of(aged)
    assert same(json.loads(advisor(*report, "--history", folder).out), before)


@pytest.mark.parametrize(
    ("name", "said"), [("history", "does not begin with /"), ("/srv/all*", "none of *?[]{}")]
)
def test_a_policy_names_a_folder_that_a_history_can_have(name: str, said: str) -> None:
    text = f'version: 1\nretention: {{history: "{name}"}}\n'
    compiled, problems = check_text(text, "policy.yaml", "policy")
    assert compiled is None and said in str(problems[0])


def test_only_months_that_changed_are_written(store: Path, folder: Path) -> None:
    assert written(store, folder).months
    stored = contents(folder)
    assert written(store, folder).months == set()
    assert contents(folder) == stored
    with Writer(store) as writer:
        writer.save_decision(decision("a" * 16, "2024-02-03T04:05:06Z"))
    assert written(store, folder).months == {"2024-02"}
    changed = contents(folder)
    new = folder / "decisions/month=2024-02/rows.parquet"
    assert changed.keys() - stored.keys() == {new}
    assert {path: data for path, data in changed.items() if path != new} == stored
    with Reader(store) as reader, parquet.HistoryReader(store, folder) as kept:
        sql = "SELECT id, record, cluster FROM decisions ORDER BY id"
        assert list(map(tuple, kept.rows(sql))) == list(map(tuple, reader.rows(sql)))


def rows_of(folder: Path, table: str) -> list[tuple[object, ...]]:
    """Return what the files of a table hold, in the order of their numbers."""
    connection = parquet.connect(folder)
    files = parquet.read(list(parquet.month_files(folder, table).values()))
    rows = parquet.run(connection, folder, f"SELECT * FROM {files} ORDER BY rowid")
    connection.close()
    return rows


@pytest.mark.parametrize("part", [1, 7, 4096])
def test_a_month_that_the_store_has_lost_in_part_is_joined_in_order(
    store: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """However many rows are held at once."""
    tables = ("decisions", "outcomes", "observations")
    written(store, folder)
    whole = {table: rows_of(folder, table) for table in tables}
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("DELETE FROM outcomes WHERE rowid % 3 = 0")
        db.execute("DELETE FROM decisions WHERE rowid % 3 = 1")
    monkeypatch.setattr(history, "_PART", part)
    assert written(store, folder).months
    assert {table: rows_of(folder, table) for table in tables} == whole


def test_values_are_kept_as_the_store_has_them(store: Path, folder: Path) -> None:
    """Whole and broken numbers to their last digit, signs of all languages, and none at all."""
    values = {"time_s": 0.1 + 0.2, "energy_j": None, "account": "Zoë 😀", "node_list": "a\0b"}
    with closing(sqlite3.connect(store)) as db, db:
        db.execute(f"UPDATE outcomes SET {', '.join(f'{k} = :{k}' for k in values)}", values)
        db.execute("UPDATE outcomes SET freq_observed_khz = ? WHERE rowid % 2", (2**53 + 1,))
    written(store, folder)
    names = ", ".join(parquet.columns()["outcomes"])
    sql = f"SELECT {names} FROM outcomes ORDER BY submitted_at, rowid"
    with Reader(store) as reader, parquet.HistoryReader(store, folder) as kept:
        assert list(map(tuple, kept.rows(sql))) == list(map(tuple, reader.rows(sql)))


def test_what_comes_after_the_history_was_written_is_not_pruned(store: Path, folder: Path) -> None:
    last = written(store, folder).last
    late = decision("b" * 16, "2024-02-03T04:05:06Z")
    with Writer(store) as writer:
        writer.save_decision(late)
        prune(writer, decisions_before="9999", up_to=last)
        assert [d.id for d in writer.decisions()] == [late.id]
        assert not writer.outcomes()


@pytest.mark.parametrize("moment", range(0, 40, 3))
def test_whatever_stops_it_the_history_is_right_afterwards(
    advisor: Run,
    store: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: int,
) -> None:
    """As a full disk stops it: nothing is pruned, and what is there is whole."""
    steps = iter(range(1000))
    replace_file = Path.replace

    def stopping(path: Path, target: Path) -> Path:
        if path.name.endswith(".draft") and next(steps) == moment:
            raise OSError(28, "No space left on device", str(target))
        return replace_file(path, target)

    with Reader(store) as reader:
        outcomes = len(reader.outcomes())
    monkeypatch.setattr(Path, "replace", stopping)
    arguments = ("store", "prune", "--older-than", "0d", "--yes", "--db", store)
    said = advisor(*arguments, "--history", folder)
    monkeypatch.undo()
    if said.code == 0:
        assert next(steps) <= moment, "there are no so many steps"
    else:
        assert said.err.count("\n") == 1 and "No space left" in said.err
        with Reader(store) as reader:
            assert len(reader.outcomes()) == outcomes
    assert not [p for p in contents(folder) if p.name.endswith(".draft")]
    written(store, folder)
    report = json.loads(
        advisor("report", "--since", SINCE, "--json", "--db", store, "--history", folder).out
    )
    assert report["jobs"] == outcomes


def test_prospect_reads_a_history(advisor: Run, store: Path, folder: Path, tmp_path: Path) -> None:
    written(store, folder)
    with Reader(store) as reader:
        outcomes = [o for o in reader.outcomes() if o.nodes and o.record.get("elapsed_s")]
    said = advisor("prospect", folder, "--json")
    assert said.code == 0, said.err
    answer = json.loads(said.out)
    assert outcomes and answer["jobs"] == len(outcomes)
    hours = sum(o.nodes * o.record["elapsed_s"] / 3600 for o in outcomes)
    assert answer["node_hours"] == pytest.approx(hours, rel=0.01)
    applications = {str(o.record.get("application")) for o in outcomes}
    assert {a["application"] for a in answer["by_application"]} <= applications | {"(others)"}
    (tmp_path / "none").mkdir()
    wrong = advisor("prospect", tmp_path / "none")
    assert wrong.code == 1 and wrong.err.count("\n") == 1 and "no history is there" in wrong.err


def damaged(folder: Path) -> None:
    path = next((folder / "outcomes").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-20])


def pages_damaged(folder: Path) -> None:
    for path in (folder / "outcomes").rglob("*.parquet"):
        data = bytearray(path.read_bytes())
        data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
        path.write_bytes(data)
    for name in ("days", "day_sums"):
        for path in (folder / name).rglob("*.parquet"):
            path.unlink()


def another_version(folder: Path) -> None:
    (folder / parquet.MARK).write_text('{"schema": "advisor/history/2"}')


def other_columns(folder: Path) -> None:
    path = next((folder / "outcomes").rglob("*.parquet"))
    connection = parquet.connect(folder)
    connection.execute(f"COPY (SELECT 1 AS job_id) TO {parquet.quoted(path)} (FORMAT parquet)")
    connection.close()


def no_mark(folder: Path) -> None:
    (folder / parquet.MARK).unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (damaged, "rows.parquet"),
        (pages_damaged, "history cannot be used"),
        (another_version, "advisor/history/2"),
        (other_columns, "it lacks"),
        (no_mark, "no history is there"),
    ],
)
def test_a_folder_that_is_no_history_is_told_in_one_line(
    advisor: Run, store: Path, folder: Path, spoil: Callable[[Path], None], said: str
) -> None:
    written(store, folder)
    spoil(folder)
    answer = advisor("report", "--since", SINCE, "--db", store, "--history", folder)
    assert answer.code == 1 and answer.err.count("\n") == 1
    assert said in answer.err and str(folder) in answer.err


def test_nothing_is_written_among_other_files_or_beside_another_writer(
    advisor: Run, store: Path, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    said = advisor("store", "history", "--to", other, "--db", store)
    assert said.code == 1 and "something else" in said.err and len(contents(other)) == 1
    said = advisor("store", "history", "--to", other / "thesis.tex", "--db", store)
    assert said.code == 1 and said.err.count("\n") == 1
    said = advisor("store", "history", "--to", tmp_path / "all*", "--db", store)
    assert said.code == 1 and "none of" in said.err
    written(store, folder)
    with (folder / parquet.MARK).open() as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another advisor writes"):
            written(store, folder)


def test_without_duckdb_one_line_says_how_to_install_it(store: Path, folder: Path) -> None:
    code = (
        "import sys; sys.modules['duckdb'] = None; from advisor.cli import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["store", "history", "--to", str(folder), "--db", str(store)]
    said = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert said.returncode == 1 and said.stderr.count("\n") == 1
    assert "pip install 'hpc-advisor[history]'" in said.stderr


def test_no_other_verb_imports_duckdb(store: Path) -> None:
    code = (
        "import sys; from advisor.cli import main; main(sys.argv[1:]);"
        "sys.exit('duckdb' in sys.modules)"
    )
    arguments = ["report", "--db", str(store)]
    assert subprocess.run([sys.executable, "-c", code, *arguments]).returncode == 0
