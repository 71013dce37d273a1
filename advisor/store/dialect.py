"""Say the store's SQL, which is written as SQLite understands it, to PostgreSQL.

What both understand stays. Functions that only SQLite has are made in PostgreSQL under their names
(:data:`FUNCTIONS`); what is left are marks, a few words and the inserts that may meet a row.
Standard library only.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache, lru_cache
from typing import NamedTuple

from advisor.paths import share

FUNCTIONS = r"""
CREATE OR REPLACE FUNCTION json_valid(document text) RETURNS boolean LANGUAGE sql IMMUTABLE
    AS $$ SELECT document::json IS NOT NULL $$;

CREATE OR REPLACE FUNCTION json_path(path text) RETURNS text[] LANGUAGE sql IMMUTABLE
    AS $$ SELECT string_to_array(CASE strpos(path, '[') WHEN 0 THEN substr(path, 3)
        ELSE regexp_replace(substr(path, 3), '\[(\d+)\]', '.\1', 'g') END, '.') $$;

CREATE OR REPLACE FUNCTION json_extract(document text, path text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT document::json #>> json_path(path) $$;

CREATE OR REPLACE FUNCTION json_extract(document text, path text, VARIADIC more text[])
    RETURNS text LANGUAGE plpgsql IMMUTABLE
    AS $$ DECLARE parsed jsonb := document::jsonb;  -- once for all paths
    BEGIN
        RETURN (SELECT '[' || string_agg(
            coalesce((parsed #> json_path(p))::text, 'null'), ',' ORDER BY n) || ']'
            FROM unnest(path || more) WITH ORDINALITY AS paths (p, n));
    END $$;

CREATE OR REPLACE FUNCTION json_type(document text) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE json_typeof(document::json) WHEN 'string' THEN 'text' WHEN 'number'
        THEN 'real' WHEN 'boolean' THEN document ELSE json_typeof(document::json) END $$;

CREATE OR REPLACE FUNCTION json_array_length(document text, path text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE json_typeof(document::json #> json_path(path)) WHEN 'array'
        THEN json_array_length(document::json #> json_path(path)) ELSE 0 END $$;

CREATE OR REPLACE FUNCTION json_remove(document text, VARIADIC paths text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT coalesce('{' || string_agg(to_json(key)::text || ': ' || value, ', ') || '}', '{}')
        FROM pg_catalog.json_each(document::json) WHERE '$.' || key <> ALL (paths) $$;

CREATE OR REPLACE FUNCTION json_each(document text) RETURNS TABLE (value text)
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT json_array_elements_text(document::json) $$;

CREATE OR REPLACE FUNCTION is_number(one text, other bigint) RETURNS boolean LANGUAGE sql IMMUTABLE
    AS $$ SELECT one = other::text $$;

CREATE OR REPLACE FUNCTION is_number(one bigint, other text) RETURNS boolean LANGUAGE sql IMMUTABLE
    AS $$ SELECT one::text = other $$;

DO $$ BEGIN
    CREATE OPERATOR = (LEFTARG = text, RIGHTARG = bigint, FUNCTION = is_number);
    CREATE OPERATOR = (LEFTARG = bigint, RIGHTARG = text, FUNCTION = is_number);
EXCEPTION WHEN duplicate_function THEN NULL;  -- an operator cannot be replaced
END $$;

CREATE OR REPLACE FUNCTION joined(before text, value text) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$ SELECT coalesce(before || ',', '') || value $$;

CREATE OR REPLACE FUNCTION joined(before text, value bigint) RETURNS text LANGUAGE sql IMMUTABLE
    AS $$ SELECT coalesce(before || ',', '') || value $$;

CREATE OR REPLACE AGGREGATE group_concat(text) (SFUNC = joined, STYPE = text);
CREATE OR REPLACE AGGREGATE group_concat(bigint) (SFUNC = joined, STYPE = text);
CREATE OR REPLACE AGGREGATE total(double precision) (
    SFUNC = float8pl, STYPE = double precision, INITCOND = '0');

CREATE OR REPLACE FUNCTION counted(before bigint, value boolean) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN value IS NULL THEN before ELSE coalesce(before, 0) + value::int END $$;

CREATE OR REPLACE AGGREGATE sum(boolean) (SFUNC = counted, STYPE = bigint);

CREATE OR REPLACE FUNCTION strftime(form text, moment text, later text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $$ BEGIN
        RETURN to_char((moment::timestamptz + later::interval) AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS"Z"');  -- the one form that is asked for
    EXCEPTION WHEN data_exception THEN
        RETURN NULL;
    END $$;

CREATE OR REPLACE VIEW sqlite_master AS
    SELECT 'table' AS type, tablename::text AS name FROM pg_tables WHERE schemaname = 'advisor';

CREATE OR REPLACE FUNCTION random_mark() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 1, 12))::bit(48)::bigint
    $$;
"""
"""What SQLite has and PostgreSQL lacks. Of JSON, one path gives text and several a JSON array."""

STATEMENTS = {
    "BEGIN": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "PRAGMA synchronous = NORMAL": "SET synchronous_commit = off",
    "PRAGMA synchronous = FULL": "SET synchronous_commit = on",
    "PRAGMA data_version": "SELECT hashtext(pg_current_snapshot()::text)",
    "PRAGMA quick_check(3)": "SELECT 'ok'",
}
"""SQLite's own statements: reading of one moment, commits that wait for no disk, whether others
have written (any transaction that writes changes the snapshot), and a check of the file, which is
the server's business."""


class SchemaTable(NamedTuple):
    """A table of the schema: its columns and those that are its key.

    Its rows have a number: as their ``id`` where it is ``numbered``, as their ``rowid`` where it
    has ``rowids``, or none.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: bool
    rowids: bool

    @property
    def stored(self) -> tuple[str, ...]:
        """Every column, ``rowid`` included where rows have one."""
        return (*self.columns, "rowid") if self.rowids else self.columns


@cache
def tables() -> dict[str, SchemaTable]:
    """Return the tables of the schema in an order in which each follows those it refers to."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(share("db/schema.sql").read_text(encoding="utf-8"))
        return tables_of(db)


def tables_of(db: sqlite3.Connection) -> dict[str, SchemaTable]:
    """Return a file's tables in an order in which each follows those it refers to."""
    made = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    names = dict(db.execute(made).fetchall())
    unordered = {name: _table(db, name, sql) for name, sql in names.items()}
    targets = {
        name: {row[2] for row in db.execute(f"PRAGMA foreign_key_list({name})")} for name in names
    }
    ordered: dict[str, SchemaTable] = {}
    while len(ordered) < len(unordered):
        ordered |= {n: t for n, t in unordered.items() if targets[n] <= ordered.keys()}
    return ordered


def _table(db: sqlite3.Connection, name: str, sql: str) -> SchemaTable:
    info = db.execute(f"PRAGMA table_info({name})").fetchall()
    columns = tuple(row[1] for row in info)
    key = [row[1] for row in sorted(info, key=lambda row: int(row[5])) if row[5]]
    numbered = key == ["id"] and next(row[2] for row in info if row[1] == "id") == "INTEGER"
    if numbered:  # a row takes the place of another by what is unique besides
        indexes = db.execute(f"PRAGMA index_list({name})").fetchall()
        unique = next((row[1] for row in indexes if row[2] and row[3] == "u"), None)
        if unique is not None:
            key = [row[2] for row in db.execute(f"PRAGMA index_info({unique})")]
    return SchemaTable(columns, tuple(key), numbered, not numbered and "WITHOUT ROWID" not in sql)


_PARTS = re.compile(
    r"(?P<text>'(?:[^']|'')*')|(?P<quoted>\"[^\"]*\")|(?P<mark>\?(?P<number>\d*))"
    r"|:(?P<name>[A-Za-z_]\w*)|(?P<word>[A-Za-z_]\w*)|(?P<rest>::|\d+(?:\.\d+)?|\s+|.)",
    re.DOTALL,
)
_WORDS = {
    "user": '"user"',  # the name of whoever is connected, without quotes
    "INTEGER": "bigint",
    "REAL": "double precision",
    "BLOB": "bytea",
    "LIKE": "ILIKE",
}
_OR = re.compile(r"^\s*INSERT OR (IGNORE|REPLACE) INTO (\w+)\s*(?:\(([^)]*)\))?")
_TRUE = re.compile(r"\b(WHERE|AND|OR)(\s+)1(?=\s*(?:$|\)|AND\b|OR\b|ORDER\b|GROUP\b|LIMIT\b))")
_BY_NAME = re.compile(r"\b(WHERE|AND|OR)(\s+)\+(?=[a-z])")
_NONE = re.compile(r"[\w.]+ (NOT )?IN \(\s*\)")
_SAME = re.compile(r"\bIS (NOT )?(?=[?:])")


@lru_cache(1000)
def translated(sql: str) -> str:
    """Return a statement as PostgreSQL and psycopg understand it.

    ``?`` becomes ``%s``, ``?3`` ``%(p3)s`` and ``:name`` ``%(name)s``.
    """
    if sql in STATEMENTS:
        return STATEMENTS[sql]
    end = ""
    if inserted := _OR.match(sql):
        how, table, named = inserted.groups()
        sql = sql.replace(f"INSERT OR {how}", "INSERT", 1)
        end = " ON CONFLICT DO NOTHING"
        if how == "REPLACE":
            definition = tables()[table]
            columns = [c.strip() for c in named.split(",")] if named else definition.columns
            changes = ", ".join(
                f'"{c}" = excluded."{c}"' for c in columns if c not in definition.key
            )
            end = f" ON CONFLICT ({', '.join(definition.key)}) DO UPDATE SET {changes}"
    sql = _TRUE.sub(r"\1\2true", sql)
    sql = _NONE.sub(lambda m: "true" if m[1] else "false", sql)  # a list of nothing
    sql = _BY_NAME.sub(r"\1\2", sql)  # "+" keeps SQLite from an index
    sql = _SAME.sub(lambda m: "IS DISTINCT FROM " if m[1] else "IS NOT DISTINCT FROM ", sql)
    return "".join(map(_part, _PARTS.finditer(sql))) + end


def _part(part: re.Match[str]) -> str:
    if part["mark"]:
        return f"%(p{part['number']})s" if part["number"] else "%s"
    if part["name"]:
        return f"%({part['name']})s"
    if part["word"]:
        return _WORDS.get(part["word"], part["word"])
    return part[0].replace("%", "%%")


_ID = re.compile(r'("?id"?\s+)INTEGER PRIMARY KEY')
_TRIGGER = re.compile(r"CREATE TRIGGER (\w+) AFTER (\w+) ON (\w+) BEGIN\s+(.*?;)\s*END;", re.DOTALL)
_TEXT = re.compile(r"\bTEXT\b")


@cache
def schema() -> str:
    """Return the schema for PostgreSQL, from db/schema.sql, which the migrations come to."""
    text = share("db/schema.sql").read_text(encoding="utf-8")
    statements = re.split(r"\n\n(?=CREATE )", text.partition("\n")[2].strip())
    return "\n".join((FUNCTIONS, *map(definition, statements)))


def definition(statement: str) -> str:
    """Return a statement that makes or changes a part of the schema, as PostgreSQL understands it.

    Text sorts by its bytes as in SQLite, and a row without a number of its own gets a ``rowid``.
    """
    if trigger := _TRIGGER.match(statement):
        name, event, table, body = trigger.groups()
        return (
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
            f" AS $$ BEGIN {body} RETURN NULL; END $$;\nCREATE TRIGGER {name} AFTER {event}"
            f" ON {table} FOR EACH ROW EXECUTE FUNCTION {name}();"
        )
    if statement.startswith("CREATE TABLE "):
        bare = statement.replace(" WITHOUT ROWID", "")
        if bare == statement and not _ID.search(statement):
            bare = bare.rstrip().removesuffix(");").rstrip()
            bare += ", rowid bigint GENERATED BY DEFAULT AS IDENTITY UNIQUE);"
        statement = bare
    statement = _ID.sub(r"\1bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", statement)
    statement = _TEXT.sub('text COLLATE "C"', statement)
    statement = statement.replace("x''", "''").replace("(random())", "random_mark()")
    return "".join(map(_part, _PARTS.finditer(statement))).replace("%%", "%")
