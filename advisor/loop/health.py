"""Check an installation: the store and what is in it. Each check says what to do."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from advisor.core.check import Check, CheckState, check_error, opening
from advisor.core.inventory import Inventory
from advisor.core.units import format_count, format_duration
from advisor.database import DatabaseAddress
from advisor.derive.transfers import unadvised
from advisor.errors import AdvisorError, install_command
from advisor.interpreter import this_python
from advisor.loop.backlog import Backlog, backlog
from advisor.loop.clock import form, now
from advisor.loop.spool import spool_folder, waiting_files
from advisor.paths import beside
from advisor.store.connection import OLD_S, age_of_copy, is_copy
from advisor.store.reader import Reader
from advisor.store.records import CLASS, SIZES, TRANSFER

_LOW, _TOO_LOW = 1 << 30, 64 << 20
"""Bytes free beside the store: below the first somebody is to look after it, below the second the
next collection may find no room."""
_LATE = timedelta(hours=6)
"""Models that follow from a change this old are late: each collection goes on with them."""
IMPORTED = {
    "numpy": "",
    "pydantic": "",
    "yaml": "",
    "rich": "",
    "shtab": "",
    "sqlite_utils": "",
    "textual": "",
    "threadpoolctl": "",
    "ClusterShell": "",
    "aiohttp": "aiohttp",
    "textual_serve": "textual-serve",
    "matplotlib": "matplotlib",
    "sklearn": "scikit-learn",
    "pynvml": "nvidia-ml-py",
    "psycopg": "psycopg",
    "cryptography": "cryptography",
    "dask": "dask",
    "dask_jobqueue": "dask-jobqueue",
    "distributed": "distributed",
    "duckdb": "duckdb",
}
"""What is imported, and the package to install for it, "" where the advisor cannot do without."""


def open_store(path: Path) -> tuple[Reader | None, list[Check]]:
    """Open the store and say how that went; the caller closes it."""
    try:
        reader = Reader(path)
    except AdvisorError as error:
        return None, [check_error("store", "fail", error)]
    try:
        damage = [row[0] for row in reader.rows("PRAGMA quick_check(3)")]
    except AdvisorError as error:
        reader.close()
        return None, [check_error("store", "fail", error)]
    if damage != ["ok"]:
        reader.close()
        todo = "advisor store restore a backup, or a published copy"
        return None, [Check("store", "fail", f"{path} is damaged: {damage[0]}", todo)]
    if isinstance(path, DatabaseAddress):
        return reader, [_database(reader, path), *_disk(beside(path))]
    return reader, [_access(path), *_disk(path.parent)]


def _database(reader: Reader, address: DatabaseAddress) -> Check:
    """Say how a store in PostgreSQL does; its server's own tools say more."""
    size, version = reader.rows(
        "SELECT pg_database_size(current_database()), current_setting('server_version')"
    )[0]
    return Check(
        "store", "ok", f"{address}: answers, PostgreSQL {version.split()[0]}, {size / 1e6:.1f} MB"
    )


def _access(path: Path) -> Check:
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    age_s = age_of_copy(path)
    if age_s is not None and not is_copy(path):
        text = f"{path}: a backup in the store's place, sound, {size}; the first write makes it the"
        return Check("store", "ok", f"{text} store")
    if age_s is not None:
        text = f"{path}: a published copy, {format_duration(age_s)} old, sound, {size}"
        if age_s < OLD_S:
            return Check("store", "ok", text)
        todo = (
            "on the store's host: is it up? advisor store publish must run there after each collect"
        )
        return Check("store", "warn", text, todo)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return Check(
            "store",
            "warn",
            f"{path}: sound, {size}, but you cannot write it or its folder",
            "run collect, fit and policy as its owner",
        )
    return Check("store", "ok", f"{path}: sound, WAL, {size}")


def _disk(folder: Path) -> Iterator[Check]:
    if not folder.is_dir():  # a database's: nothing was left beside it yet
        return
    free = shutil.disk_usage(folder).free
    state: CheckState = "ok" if free >= _LOW else "warn" if free >= _TOO_LOW else "fail"
    todo = "" if state == "ok" else f"free some space in {folder}"
    yield Check("disk", state, f"{free / 1e9:.1f} GB free beside the store", todo)


def check_inventory(inventory: Inventory) -> Iterator[Check]:
    """Check that the inventory can be used: node types, frequency steps, features."""
    types = list(inventory.node_types.values())
    if not types:
        yield Check(
            "inventory",
            "warn",
            "there are no node types, so no job is ever rewritten",
            "advisor site discover, then advisor site apply for what it cannot see",
        )
        return
    nodes = sum(len(t.nodes) for t in types)
    yield Check(
        "inventory", "ok", f"{format_count(len(types), 'node type')}, {format_count(nodes, 'node')}"
    )
    uncappable = sorted(t.name for t in types if not t.freq_khz)
    if uncappable:
        yield Check(
            "inventory",
            "warn",
            f"no frequency steps for {', '.join(uncappable)}: no cap is written",
            "list them in site.yaml: node_types: {NAME: {freq_khz: [...]}}",
        )
    with_gpus = [t for t in types if t.gpus.count]
    unset = sorted(t.name for t in with_gpus if not (t.gpus.freq_khz or t.gpus.power_w))
    if unset:
        yield Check(
            "gpus",
            "warn",
            f"no clocks or power limits of the GPUs of {', '.join(unset)}: they are kept",
            "advisor site discover --scheduler local --dry-run on such a node, then site.yaml",
        )
    elif with_gpus:
        counts = ", ".join(f"{t.name} {t.gpus.count}" for t in with_gpus)
        yield Check("gpus", "ok", f"clocks or limits are known; GPUs a node: {counts}")
    unnamed = sorted(t.name for t in types if not t.feature)
    if unnamed and len(types) > 1:
        yield Check(
            "inventory",
            "warn",
            f"no scheduler feature selects {', '.join(unnamed)}",
            "give these nodes a feature of their own in the scheduler's configuration, then "
            "advisor site discover",
        )


def check_models(reader: Reader) -> Iterator[Check]:
    """Check the models: how many, which are suspended, which know no energy."""
    rows = reader.rows(
        "SELECT m.id, w.application, w.name, m.node_type, m.state, m.state_reason,"
        " m.energy_quality, m.name AS model FROM models AS m"
        " JOIN workloads AS w ON w.id = m.workload_id WHERE m.state <> 'replaced' ORDER BY m.id"
    )
    if not rows:
        yield Check(
            "models",
            "warn",
            "there is no model, so no job is ever rewritten",
            "advisor train SCRIPT, or advisor import and advisor fit",
        )
        return
    fitted = [row for row in rows if row["model"] not in (TRANSFER, CLASS, SIZES)]
    classes, families = (sum(row["model"] == n for row in rows) for n in (CLASS, SIZES))
    quality = Counter(row["energy_quality"] for row in fitted)
    parts = [f"{count} with {name} energy" for name, count in sorted(quality.items())]
    if classes:
        parts.append(f"{classes} of applications never swept, estimated from others")
    if families:
        parts.append(f"{families} of sizes not swept, extrapolated from others")
    if transferred := len(rows) - len(fitted) - classes - families:
        parts.append(f"{transferred} estimated from microbenchmarks")
    yield Check("models", "ok", f"{format_count(len(rows), 'model')} ({', '.join(parts)})")
    for row in rows:
        if row["state"] == "suspended":
            yield Check(
                "models",
                "warn",
                f"model {row['id']} of {row['application']} ({row['name']}) on "
                f"{row['node_type']} is suspended: {row['state_reason']}",
                f"measure again, or advisor fit {shlex.quote(row['application'])}"
                if row["model"] not in (TRANSFER, CLASS, SIZES)
                else f"it was only estimated: advisor train it on {row['node_type']}",
            )
    late = reader.rows(
        "SELECT count(DISTINCT workload_id), min(since) FROM stale WHERE since < ?",
        (form(now() - _LATE),),
    )[0]
    if late[0]:
        yield Check(
            "models",
            "warn",
            f"models that follow from {format_count(late[0], 'workload')} are late, "
            f"since {late[1][:16]}Z",
            "advisor collect goes on with them; it names what fails",
        )
    for ranking, why in unadvised(reader):
        yield Check(
            "ranking",
            "warn",
            f"{ranking.application} ({ranking.workload}) on {ranking.estimate.node_type} is ranked "
            f"by {ranking.contributor}, but no job goes there: {why}",
            "state what is missing in site.yaml, or measure: advisor train, advisor lab bench",
        )


def _collected(waiting: Backlog) -> Check:
    last = f"last collected {form(waiting.last)}" if waiting.last else "never collected"
    text = f"{last}; without outcome: {format_count(waiting.decisions, 'decision')} of 30 days"
    if waiting.late:
        todo = "systemctl enable --now advisor-collect.timer, or run advisor collect"
        return Check("collect", "warn", text, todo)
    return Check("collect", "ok", text)


def check_loop(reader: Reader, store: Path) -> Iterator[Check]:
    """Check that decisions get their outcomes and users' runs get into the store."""
    waiting = backlog(reader)
    if reader.published and waiting.last is None:
        yield Check("collect", "ok", "the store's host collects; this copy holds no jobs")
    else:
        yield _collected(waiting)
    folder = spool_folder(store)
    files, bad = waiting_files(folder)
    if bad:
        yield Check(
            "spool",
            "warn",
            format_count(bad, "unreadable file"),
            f"look into {folder / 'bad'}",
        )
    if files:
        yield Check(
            "spool",
            "warn",
            f"users' measurements wait in {folder}: {format_count(files, 'file')}",
            "advisor collect --spool",
        )


def check_python() -> Iterator[Check]:
    """Check that what the advisor imports is installed, and that users can run it."""
    missing = [
        name for name, provider in IMPORTED.items() if not provider and find_spec(name) is None
    ]
    if missing:
        yield Check(
            "python", "fail", f"not installed: {', '.join(missing)}", "reinstall hpc-advisor"
        )
    optional = {
        provider: find_spec(name) is not None for name, provider in IMPORTED.items() if provider
    }
    have = [package for package, installed in optional.items() if installed]
    lack = [package for package, installed in optional.items() if not installed]
    text = f"optional packages: {', '.join(have) or 'none'}"
    if lack:
        text += f"; not installed: {', '.join(lack)} ({install_command(*lack)})"
    yield Check("python", "ok", text)
    if os.geteuid() == 0 and (command := opening([this_python(), Path(__file__)])):
        yield Check(
            "python",
            "warn",
            f"other users cannot run the advisor in {sys.prefix}",
            f"{command}; or install it where they may read",
        )
