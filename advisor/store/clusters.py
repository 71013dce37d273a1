"""The clusters whose jobs a store holds. Standard library only.

A store that knew no clusters holds the jobs of one for each scheduler: the first that is collected
takes them over, so that its jobs are not stored twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from advisor.core.axes import AxisWriting, writings_of
from advisor.core.cluster_name import read_cluster_name
from advisor.core.inventory import Inventory
from advisor.errors import AdvisorError
from advisor.store import rows as _rows
from advisor.store.reader import Reader, inventory_of
from advisor.store.transaction import StoreTransaction

_STEP = 5000
"""Rows named in one transaction, which others who write wait for."""
_JOBS = ("decisions", "outcomes", "cap_trials")
"""Tables of jobs that say which scheduler's they are."""


class StoredCluster(NamedTuple):
    """A cluster, its scheduler, and since when the store knows it."""

    name: str
    scheduler: str
    since: str


def clusters(reader: Reader) -> list[StoredCluster]:
    """Return the clusters that were collected, by name."""
    sql = "SELECT name, scheduler, since FROM clusters ORDER BY name, scheduler"
    return [StoredCluster(*row) for row in map(tuple, reader.rows(sql))]


def inventory_here(reader: Reader, name_here: Callable[[], str]) -> Inventory:
    """Return the node types of this host's cluster, whose name is asked for only where the store
    has those of several."""
    inventories = reader.inventories()
    return inventory_of(inventories, name_here() if sum(map(bool, inventories)) > 1 else "")


def take_in(store: StoreTransaction, name: str, scheduler: str) -> None:
    """Make a cluster known. Of the first one of its scheduler are all jobs that name none.

    What is killed half-way goes on the next time. Raises UsageError for what is no name.
    """
    read_cluster_name(name)
    known = [c.name for c in clusters(store) if c.scheduler == scheduler]
    if name in known:
        return
    if not known:
        for table in _JOBS:
            _name_jobs(store, table, name, scheduler)
    sql = "INSERT OR IGNORE INTO clusters (name, scheduler, since) VALUES (?, ?, ?)"
    store.change(sql, (name, scheduler, _rows.now()))


def _name_jobs(store: StoreTransaction, table: str, name: str, scheduler: str) -> None:
    key = "decision_id" if table == "cap_trials" else "rowid"
    unnamed = f"SELECT {key} FROM {table} WHERE cluster = '' AND scheduler = ? LIMIT {_STEP}"
    sql = f"UPDATE {table} SET cluster = ? WHERE {key} IN ({unnamed})"
    while store.change(sql, (name, scheduler)) == _STEP:
        pass


def axes_written(
    path: Path, name_here: Callable[[], str]
) -> tuple[dict[str, AxisWriting], dict[str, dict[str, tuple[int, ...]]]]:
    """Return how a store's site file has axes written, and :meth:`Inventory.axis_steps` of this
    host's cluster; nothing without a store."""
    try:
        with Reader(path) as reader:
            return writings_of(reader.site()), inventory_here(reader, name_here).axis_steps()
    except AdvisorError:
        return {}, {}


def frequency_steps(path: Path, name_here: Callable[[], str]) -> dict[str, tuple[int, ...]]:
    """Return the caps that the node types of this host's cluster can have, by feature; nothing
    without a store."""
    try:
        with Reader(path) as reader:
            return inventory_here(reader, name_here).frequency_steps()
    except AdvisorError:
        return {}
