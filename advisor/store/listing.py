"""Lists for people who browse: a page at a time, so that ten thousand rows cost what one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor.store.connection import StoreConnection

if TYPE_CHECKING:  # the first names are on the screen before records are known
    from advisor.core.decision import Decision
    from advisor.store.reader import Reader
    from advisor.store.records import Outcome, StoredModel, Workload

Order = Literal["name", "runs", "newest"]
ORDERS: tuple[Order, ...] = ("name", "runs", "newest")

_COUNT = "(SELECT count(*) FROM observations AS o WHERE o.workload_id = w.id)"
_ORDER_BY: dict[Order, str] = {
    "name": "w.application, w.name",
    "runs": "runs DESC, w.application, w.name",
    "newest": "(SELECT max(m.updated_at) FROM models AS m WHERE m.workload_id = w.id"
    " AND m.state <> 'replaced') DESC NULLS LAST, w.application, w.name",
}


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some of the workloads that have all the words of ``search`` in their name, in an order."""

    search: str = ""
    order: Order = "name"
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Sweeping:
    """A sweep under way: runs made, runs planned so far."""

    workload_id: int
    done: int
    planned: int


def count_workloads(reader: StoreConnection, search: str = "") -> tuple[int, int]:
    """Return how many workloads, of how many applications, have all the words in their name."""
    where, values = _matching(search)
    sql = f"SELECT count(*), count(DISTINCT w.application) FROM workloads AS w {where}"
    counts = reader.rows(sql, values)[0]
    return int(counts[0]), int(counts[1])


def names_of_workloads(reader: StoreConnection, page: ListPage) -> list[tuple[int, str, str, int]]:
    """Return number, application, name and count of runs of some workloads."""
    where, values = _matching(page.search)
    sql = (
        f"SELECT w.id, w.application, w.name, {_COUNT} AS runs FROM workloads AS w {where}"
        f" ORDER BY {_ORDER_BY[page.order]} LIMIT ? OFFSET ?"
    )
    rows = reader.rows(sql, [*values, page.limit, page.offset])
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def page_of_workloads(reader: Reader, page: ListPage) -> list[Workload]:
    """Return what :func:`names_of_workloads` does, as records."""
    from advisor.store.records import Workload

    return [Workload(*row) for row in names_of_workloads(reader, page)]


def place_by_name(reader: Reader, application: str, workload: str) -> int:
    """Return how many workloads stand before one in the list by name."""
    sql = (
        "SELECT count(*) FROM workloads AS w WHERE w.hidden = 0"
        " AND (w.application, w.name) < (?, ?)"
    )
    return int(reader.rows(sql, (application, workload))[0][0])


_OF_CLASS = """EXISTS (SELECT 1 FROM models AS m WHERE m.workload_id = w.id
    AND m.state <> 'replaced' AND m.name = 'class'
    AND json_extract(m.stats, '$.cold_start.class') LIKE ? ESCAPE '\\')"""


def _matching(search: str) -> tuple[str, list[str]]:
    """Return the condition of a search: words in the name, ``class:WORD`` in the class."""
    words = search.split()
    named = [w for w in words if not w.startswith("class:")]
    classes = [w.removeprefix("class:") for w in words if w.startswith("class:")]
    patterns = [
        "%" + w.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
        for w in (*named, *classes)
    ]
    condition = r"w.application || ' ' || w.name LIKE ? ESCAPE '\'"
    conditions = [condition] * len(named) + [_OF_CLASS] * len(classes)
    return "WHERE " + " AND ".join(["w.hidden = 0", *conditions]), patterns


def models_of(reader: Reader, workloads: Sequence[Workload]) -> list[StoredModel]:
    """Return the current models of some workloads."""
    marks = ",".join("?" * len(workloads))
    ids = reader.rows(
        f"SELECT id FROM models WHERE workload_id IN ({marks}) AND state <> 'replaced'",
        [w.id for w in workloads],
    )
    return list(reader.models([row[0] for row in ids])) if ids else []


def sweeping(reader: Reader, since: str) -> list[Sweeping]:
    """Return the sweeps under way of which something was heard since a time (ISO 8601)."""
    sql = (
        "SELECT r.workload_id, (SELECT count(*) FROM training_runs AS t WHERE t.request_id = r.id"
        " AND t.state IN ('done', 'failed')),"
        " coalesce(json_array_length(r.plan, '$.runs.design'), 0)"
        " + coalesce(json_array_length(r.plan, '$.runs.confirm'), 0)"
        " FROM training_requests AS r WHERE r.state IN ('requested', 'running')"
        " AND r.updated_at > ? ORDER BY r.created_at"
    )
    return [Sweeping(*row) for row in reader.rows(sql, (since,))]


def outcomes_of(reader: Reader, decisions: Sequence[Decision]) -> dict[str, Outcome]:
    """Return the latest outcome of the job of each of some decisions that has one, by their id."""
    jobs = list({d.job_id for d in decisions if d.job_id})
    marks = ",".join("?" * len(jobs))
    return {o.decision_id: o for o in reader.outcomes(f"job_id IN ({marks})", jobs)}
