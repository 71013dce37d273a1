"""Node types' profiles: what each microbenchmark takes there, and each kernel of a user's own.

Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.observation import Scope
from advisor.errors import InputError, RefusedError
from advisor.store import rows as _rows
from advisor.store.reader import Reader
from advisor.store.transaction import StoreTransaction

MOST_REQUESTS = 500
"""Microbenchmarks that may wait; who wants more gets the oldest of them run first."""

NEAR_MEMORY = 0.05
"""Nodes of one type may differ by so much in the memory their kernels leave them."""

_DROP_MEASURED = (
    "DELETE FROM bench_requests AS r WHERE EXISTS (SELECT 1 FROM profiles WHERE contributor = '')"
    " AND NOT EXISTS (SELECT 1 FROM"
    " (SELECT DISTINCT node_type FROM profiles WHERE contributor = '') AS t WHERE NOT EXISTS ("
    "  SELECT 1 FROM profiles AS p WHERE p.node_type = t.node_type"
    "  AND p.microbenchmark = r.microbenchmark AND p.streams = r.streams))"
)


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """One microbenchmark's result on one node type.

    ``streams`` are in the form of ``advisor.ranking.streams.Stream``; ``time_per_iter_us``
    microseconds per iteration of one thread; ``spread`` half of the mean's 95 % interval over
    it; ``energy_per_iter_nj`` nanojoules of the node, None without a meter. ``contributor`` is who
    brought the kernel, "" for the suite's own; ``scope`` says whose jobs it advises.
    """

    node_type: str
    microbenchmark: str
    streams: tuple[dict[str, Any], ...]
    threads: int
    time_per_iter_us: float
    spread: float
    repeats: int
    energy_per_iter_nj: float | None = None
    meter: str = ""
    contributor: str = ""
    scope: Scope = "all"


@dataclass(frozen=True, slots=True)
class Bench:
    """One go of the microbenchmarks: the machine's fingerprint, and its circumstances."""

    node_type: str
    machine: Mapping[str, Any]
    host: str
    kernel: str
    compiler: str
    measured_by: str
    measured_at: str = ""
    id: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A microbenchmark that waits to be run; ``wanted_for`` names application and phase."""

    microbenchmark: str
    streams: tuple[dict[str, Any], ...]
    wanted_for: str


def _streams(streams: Sequence[Mapping[str, Any]]) -> str:
    """Return the text by which equal streams are equal."""
    return json.dumps(
        [dict(sorted(s.items())) | {"size_kb": float(s["size_kb"])} for s in streams],
        sort_keys=True,
    )


def save_profiles(
    writer: StoreTransaction,
    bench: Bench,
    profiles: Sequence[StoredProfile],
    *,
    replace: bool = False,
) -> int:
    """Store one go's results in place of earlier ones of the same microbenchmarks; return its id.

    With ``replace`` all earlier profiles of the node type go; without it, RefusedError when they
    are of another machine. What waited and is now measured on every node type that has profiles
    waits no longer. Raises InputError on a name that cannot be stored, StoreError.
    """
    _rows.check_name("node type", bench.node_type)
    with writer.transaction() as db:
        if replace:
            db.execute("DELETE FROM profiles WHERE node_type = ?", (bench.node_type,))
            db.execute("DELETE FROM file_systems WHERE node_type = ?", (bench.node_type,))
            db.execute("DELETE FROM benches WHERE node_type = ?", (bench.node_type,))
        former = latest_bench(writer, bench.node_type)
        if former is not None and former.machine != dict(bench.machine):
            raise RefusedError(f"{bench.node_type} has profiles of another machine")
        values = (
            bench.node_type,
            _rows.to_json(dict(bench.machine)),
            *map(_rows.clean, (bench.host, bench.kernel, bench.compiler, bench.measured_by)),
            _rows.now(),
        )
        sql = (
            "INSERT INTO benches"
            " (node_type, machine, host, kernel, compiler, measured_by, measured_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        bench_id = db.execute(sql, values).lastrowid
        db.executemany(
            "INSERT OR REPLACE INTO profiles (node_type, microbenchmark, streams, threads,"
            " time_per_iter_us, spread, repeats, energy_per_iter_nj, meter, bench_id,"
            " contributor, scope) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    bench.node_type,
                    p.microbenchmark,
                    _streams(p.streams),
                    p.threads,
                    p.time_per_iter_us,
                    p.spread,
                    p.repeats,
                    p.energy_per_iter_nj,
                    p.meter,
                    bench_id,
                    _rows.clean(p.contributor),
                    p.scope,
                )
                for p in profiles
            ],
        )
        db.execute(_DROP_MEASURED)
    return bench_id or 0


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return in words how two fingerprints differ; empty for machines of one kind."""
    words = []
    for key in dict.fromkeys((*one, *other)):
        a, b = one.get(key), other.get(key)
        if key == "memory_mb" and a and b and abs(a - b) <= NEAR_MEMORY * max(a, b):
            continue
        if a != b:
            words.append(f"{key.removesuffix('_b').removesuffix('_mb')} {a} and {b}")
    return words


def save_kernels(
    writer: StoreTransaction, sent: Mapping[str, Any], *, contributor: str, scope: Scope
) -> None:
    """Store profiles of a user's own kernels in place of that user's earlier ones.

    ``sent`` has the form of ``advisor.ranking.kernels.SentProfiles``. Raises InputError where the
    node type has no profiles of the suite to stand beside, or those of another machine, StoreError.
    """
    name = str(sent["node_type"])
    former = latest_bench(writer, name)
    if former is None:
        raise InputError(
            f"{name} has no profiles of the suite yet, and kernels are compared beside those",
            hint="advisor lab bench makes them",
        )
    apart = differences(former.machine, sent["machine"])
    if apart:
        raise InputError(
            f"{name} has profiles of another machine ({'; '.join(apart)})",
            hint="measure on a node of that type",
        )
    host, kernel, compiler = (str(sent[key]) for key in ("host", "kernel", "compiler"))
    save_profiles(
        writer,
        Bench(name, former.machine, host, kernel, compiler, contributor),
        [
            StoredProfile(
                name,
                **{**p, "streams": tuple(p["streams"])},
                contributor=_rows.clean(contributor),
                scope=scope,
            )
            for p in sent["profiles"]
        ],
    )


def forget_kernel(
    writer: StoreTransaction, name: str, contributor: str, node_types: Sequence[str] = ()
) -> list[str]:
    """Delete the profiles of one kernel that a user brought; return the node types that had any.

    Without ``node_types`` those of all. The suite's own profiles have no contributor and stay.
    """
    types = []
    with writer.transaction() as db:
        for p in profiles(writer):
            if (p.microbenchmark, p.contributor) == (name, contributor) and contributor:
                types += [p.node_type] if p.node_type in (node_types or (p.node_type,)) else []
        types = list(dict.fromkeys(types))
        for node_type in types:
            db.execute(
                "DELETE FROM profiles WHERE node_type = ? AND microbenchmark = ?"
                " AND contributor = ?",
                (node_type, name, contributor),
            )
    return types


def latest_bench(reader: Reader, node_type: str) -> Bench | None:
    """Return the latest go on a node type, None when it has no profiles."""
    sql = (
        "SELECT node_type, machine, host, kernel, compiler, measured_by, measured_at, id"
        " FROM benches WHERE node_type = ? ORDER BY id DESC LIMIT 1"
    )
    for row in reader.rows(sql, [node_type]):
        fields = list(row)
        fields[1] = _rows.from_json(fields[1], f"bench {fields[7]}")
        return Bench(*fields)
    return None


def profiles(
    reader: Reader, node_type: str | None = None, *, user: str | None = None
) -> list[StoredProfile]:
    """Return all profiles, or one node type's.

    With ``user``, those that may advise that user's jobs: all but other users' own kernels.
    """
    parts = ["node_type = ?"] if node_type else []
    values = [node_type] if node_type else []
    if user is not None:
        parts.append("(scope = 'all' OR contributor = ?)")
        values.append(user)
    where = f"WHERE {' AND '.join(parts)}" if parts else ""
    sql = (
        "SELECT node_type, microbenchmark, streams, threads, time_per_iter_us, spread, repeats,"
        f" energy_per_iter_nj, meter, contributor, scope FROM profiles {where} ORDER BY id"
    )
    stored = []
    for row in reader.rows(sql, values):
        fields = list(row)
        fields[2] = tuple(json.loads(fields[2]))
        stored.append(StoredProfile(*fields))
    return stored


def profiled_types(reader: Reader) -> list[str]:
    """Return the node types that have profiles, of microbenchmarks or file systems."""
    sql = "SELECT node_type FROM profiles UNION SELECT node_type FROM file_systems"
    return [row[0] for row in reader.rows(sql, [])]


def want(writer: StoreTransaction, requests: Sequence[Wanted]) -> int:
    """Have microbenchmarks wait for the next bench; return how many of them wait now.

    Those that were measured on every node type with profiles do not.
    """
    with writer.transaction() as db:
        waiting_before = db.execute("SELECT count(*) FROM bench_requests").fetchone()[0]
        for request in requests[: max(0, MOST_REQUESTS - waiting_before)]:
            db.execute(
                "INSERT OR IGNORE INTO bench_requests"
                " (microbenchmark, streams, wanted_for, created_at) VALUES (?, ?, ?, ?)",
                (
                    request.microbenchmark,
                    _streams(request.streams),
                    _rows.clean(request.wanted_for),
                    _rows.now(),
                ),
            )
        db.execute(_DROP_MEASURED)
        waiting = {
            tuple(r)
            for r in db.execute("SELECT microbenchmark, streams FROM bench_requests").fetchall()
        }
    return len(
        waiting & {(request.microbenchmark, _streams(request.streams)) for request in requests}
    )


def wanted(reader: Reader) -> list[Wanted]:
    """Return the microbenchmarks that wait, the first first."""
    sql = "SELECT microbenchmark, streams, wanted_for FROM bench_requests ORDER BY id"
    return [Wanted(r[0], tuple(json.loads(r[1])), r[2]) for r in reader.rows(sql, [])]
