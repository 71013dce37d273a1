"""What partitions by month would save in PostgreSQL: pruning a month, reading 30 days, inserting.

    python benchmarks/partitions.py [--jobs 1000000] [--json]

A private server, as the tests start it, gets a store of so many decisions and outcomes over a year
(those of `benchmarks/growth.py`, copied under other ids and times), in tables as they are. The
twelfth that is oldest is pruned as `advisor store prune` does it, with sums and all that can be had
back, and another twelfth by DELETE alone. The newest 90 days are copied into tables that are
partitioned by month, where a partition is dropped, 10,000 rows are inserted and 30 days are
reported and read, as from the tables without partitions. Seconds by the clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from growth import build

from advisor.database import DatabaseAddress
from advisor.loop.report import report
from advisor.store.dialect import tables
from advisor.store.move import move
from advisor.store.pruning import prune
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests import postgresql

TEMPLATES = 10_000
TIMES = {"decisions": "created_at", "outcomes": "submitted_at"}
_FORM = '\'YYYY-MM-DD"T"HH24:MI:SS"Z"\''
_ROWS = 10_000


@contextmanager
def timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    begin = time.monotonic()
    yield
    seconds[name] = round(time.monotonic() - begin, 2)
    print(f"{name}: {seconds[name]} s", file=sys.stderr, flush=True)


def copied(table: str, copies: str, source: str = "") -> str:
    """Return the SQL that copies a table's rows under other ids, each copy days before the last."""

    def earlier(name: str) -> str:
        back = f"({name}::timestamptz - k * interval '87 hours') AT TIME ZONE 'UTC'"
        return f"to_char({back}, {_FORM})"

    changed = {
        "id": "substr(md5(id || k), 1, 16)",
        "decision_id": "substr(md5(decision_id || k), 1, 16)",
        "job_id": "(job_id::bigint + k * 10000000)::text",
        **{name: earlier(name) for name in ("created_at", "submitted_at", "collected_at")},
    }
    columns = tables()[table].columns
    names = ", ".join(f'"{c}"' for c in columns)
    values = ", ".join(changed.get(c, f'"{c}"') for c in columns)
    return (
        f"INSERT INTO {table} ({names}) SELECT {values} FROM"
        f" (SELECT * FROM {source or table}) AS t, generate_series({copies}) AS k"
    )


def partitioned(table: str, since: datetime) -> str:
    """Return the SQL that makes a table like another in partitions by month, and fills it."""
    at = TIMES[table]
    key = ", ".join(dict.fromkeys((*tables()[table].key, at)))
    sql = [
        f"CREATE TABLE {table}_months (LIKE {table} INCLUDING DEFAULTS) PARTITION BY RANGE ({at})",
        f"CREATE SEQUENCE {table}_numbers START 1000000000",
        f"ALTER TABLE {table}_months ALTER rowid SET DEFAULT nextval('{table}_numbers')",
        f"ALTER TABLE {table}_months ADD PRIMARY KEY ({key})",
        f"CREATE INDEX ON {table}_months ({at})",
    ]
    month = since.replace(day=1)
    while month < datetime.now(UTC) + timedelta(days=32):
        after = (month + timedelta(days=32)).replace(day=1)
        sql.append(
            f"CREATE TABLE {table}_{month:%Y_%m} PARTITION OF {table}_months"
            f" FOR VALUES FROM ('{month:%Y-%m}') TO ('{after:%Y-%m}')"
        )
        month = after
    sql.append(f"INSERT INTO {table}_months SELECT * FROM {table} WHERE {at} >= '{since:%Y-%m-01}'")
    return "; ".join(sql)


def measured(jobs: int, server: postgresql.Server, file: Path) -> dict[str, float]:
    address = server.database()
    name = str(address).split("/")[3].split("?")[0]
    move(file, address)
    seconds: dict[str, float] = {}
    every = f"1, {jobs // TEMPLATES - 1}"

    def sql(text: str) -> str:
        return server.sql(f"SET search_path = advisor, pg_catalog; {text}", name)

    with timed("fill", seconds):
        for table in TIMES:  # without the triggers, which would take the days' sums away
            sql(f"SET session_replication_role = replica; {copied(table, every)}")
    for table in TIMES:
        server.sql(f"VACUUM ANALYZE advisor.{table}", name)
    since = datetime.now(UTC) - timedelta(days=60)
    _inserted(sql, seconds, "insert 10,000 of both, no partitions", "")
    _reported(address, seconds, "report of 30 days, no partitions")
    for table in TIMES:
        sql(partitioned(table, since))
    for table in TIMES:
        sql(f"ANALYZE {table}_months")
        sql(f"ALTER TABLE {table} RENAME TO {table}_whole")
        sql(f"ALTER TABLE {table}_months RENAME TO {table}")
    _inserted(sql, seconds, "insert 10,000 of both, by month", "_whole")
    _reported(address, seconds, "report of 30 days, by month")
    oldest = sql(f"SELECT count(*) FROM decisions_{since:%Y_%m}").strip()
    with timed(f"drop a month of {oldest}", seconds):
        for table in TIMES:
            sql(f"DROP TABLE {table}_{since:%Y_%m}")
    for table in TIMES:
        sql(f"ALTER TABLE {table} RENAME TO {table}_months")
        sql(f"ALTER TABLE {table}_whole RENAME TO {table}")
    twelfth = f"SELECT created_at FROM decisions ORDER BY created_at OFFSET {jobs // 12} LIMIT 1"
    with Writer(address) as writer, timed("prune a twelfth", seconds):
        pruned = prune(writer, decisions_before=sql(twelfth).strip())
    seconds["pruned decisions"], seconds["pruned outcomes"] = pruned.decisions, pruned.outcomes
    cutoff = sql(twelfth).strip()
    with timed("DELETE of a twelfth", seconds):
        for table, at in TIMES.items():
            sql(f"DELETE FROM {table} WHERE {at} < '{cutoff}'")
    return seconds


def _inserted(sql: Callable[[str], str], seconds: dict[str, float], name: str, source: str) -> None:
    with timed(name, seconds):
        for table in TIMES:
            newest = f"(SELECT * FROM {table}{source} ORDER BY {TIMES[table]} DESC LIMIT {_ROWS})"
            text = copied(table, "0, 0", f"{newest} AS newest")
            text = text.replace("|| k", f"|| 'x{source}'").replace(
                "k * 10000000", f"{9 + len(source)}000000000"
            )
            sql(f"SET session_replication_role = replica; {text}")


def _reported(address: DatabaseAddress, seconds: dict[str, float], name: str) -> None:
    since = (datetime.now(UTC) - timedelta(days=30)).isoformat(timespec="seconds")
    with Reader(address) as reader, timed(name, seconds):
        result = report(reader, since=since.replace("+00:00", "Z"))
        assert result.jobs
    with Reader(address) as reader, timed(name.replace("report", "jobs"), seconds):
        sql = "SELECT count(*), sum(length(record)) FROM outcomes WHERE submitted_at >= ?"
        reader.rows(sql, (since,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if why := postgresql.why_none():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as folder, postgresql.server() as server:
        file = Path(folder) / "advisor.db"
        build(file, TEMPLATES, 100)
        seconds = measured(args.jobs, server, file)
    if args.json:
        print(json.dumps(seconds))


if __name__ == "__main__":
    main()
