"""Sums of the jobs submitted on one day (UTC), kept as their outcomes come, for reports.

A day's sums count while the store says that it is ``whole``. Whatever else writes or deletes an
outcome takes its day away (triggers of the store), and it is read job by job until a collection
sums it up again.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from advisor.loop.job_sums import COMPARED, JobSums, packed, unpacked
from advisor.loop.reported_jobs import END, ReportedJob, reported_jobs, reported_jobs_of
from advisor.store.reader import Reader
from advisor.store.rows import OutcomeKey
from advisor.store.transaction import StoreTransaction

PASS_S = 5.0
"""Seconds of processor time in which a collection sums days up; what it has begun then, it ends."""
_AT_ONCE = 100
"""Parts of a day that are asked for at once."""
_DAY = 10
"""Characters of a time that are its day."""
_SUMMED = ", ".join(f"total({name})" for name in COMPARED)
_ADD = (
    f"INSERT INTO day_sums (day, cluster, application, workload, counts, {', '.join(COMPARED)})"
    f" VALUES (?, ?, ?, ?, ?{', ?' * len(COMPARED)})"
    " ON CONFLICT (day, cluster, application, workload) DO UPDATE SET counts = excluded.counts, "
    + ", ".join(f"{name} = day_sums.{name} + excluded.{name}" for name in COMPARED)
)
_Summed = tuple[str, str, str]
"""Cluster, application and workload, by which a day is split."""
_WHOLE = "SELECT day FROM days WHERE whole = 1 AND day >= ?"
_OF_DAYS = f"day IN ({_WHOLE} AND day <= ?)"


def whole_days(reader: Reader, since: str) -> list[str]:
    """Return the days, in order, that begin at a moment or later and whose sums are kept."""
    days = [str(row[0]) for row in reader.rows(f"{_WHOLE} ORDER BY day", (since[:_DAY],))]
    return [day for day in days if day >= since]


def add_days(
    reader: Reader, sums: JobSums, days: Sequence[str], application: str = "", cluster: str = ""
) -> None:
    """Add what is kept of some :func:`whole_days`, of one application and cluster or all."""
    if not days:
        return
    named = (("application", application), ("cluster", cluster))
    some = "".join(f" AND {name} = ?" for name, value in named if value)
    span = (days[0], days[-1], *(value for _, value in named if value))
    if some:
        rows = reader.rows(f"SELECT counts FROM day_sums WHERE {_OF_DAYS}{some}", span)
    else:
        rows = reader.rows(f"SELECT counts FROM days WHERE {_OF_DAYS}", span)
    for row in rows:
        sums.merge(unpacked(row[0]))
    sql = (
        f"SELECT application, workload, {_SUMMED} FROM day_sums WHERE {_OF_DAYS}{some}"
        " GROUP BY application, workload"
    )
    for name, workload, *values in reader.rows(sql, span):
        compared = {n: v for n, v in zip(COMPARED, values, strict=True) if v}
        for key, value in compared.items():  # a Counter's own sum drops what is below 0
            sums.compared[name, workload][key] += value


def _summed(job: ReportedJob) -> _Summed:
    return job.cluster, *job.decision.key


@contextmanager
def kept_right(
    writer: StoreTransaction, jobs: Mapping[OutcomeKey, ReportedJob | None]
) -> Iterator[None]:
    """Keep the sums of days right whose outcomes are written inside, in the caller's transaction.

    ``jobs`` are what these outcomes become. A day without any outcome so far is whole from then on.
    """
    days = {key[-1][:_DAY] for key in jobs if len(key[-1]) > _DAY}
    counts = {day: former for day in days if (former := _day_counts(writer, day)) is not None}
    summed_keys = {key for key in jobs if key[-1][:_DAY] in counts}
    changes: defaultdict[str, defaultdict[_Summed, JobSums]] = defaultdict(
        lambda: defaultdict(JobSums)
    )

    def add(key: OutcomeKey, job: ReportedJob, times: int) -> None:
        changes[key[-1][:_DAY]][_summed(job)].add(job, times)

    # An outcome may be there already: what it was is taken off, what it has become is added.
    for key, job in reported_jobs_of(writer, summed_keys):
        add(key, job, -1)
    yield
    for key in summed_keys:
        if (fresh := jobs[key]) is not None:
            add(key, fresh, 1)
    for day, former_counts in counts.items():
        _store(writer, day, former_counts, changes[day])


def _day_counts(reader: Reader, day: str) -> Counter[tuple[str, ...]] | None:
    """Return the counts of a whole day, none for one without outcomes, None for any other."""
    for row in reader.rows("SELECT counts FROM days WHERE day = ? AND whole = 1", (day,)):
        return unpacked(row[0])
    sql = "SELECT 1 FROM outcomes WHERE submitted_at >= ? AND submitted_at < ? LIMIT 1"
    return None if reader.rows(sql, (day, day + END)) else Counter()


def _store(
    writer: StoreTransaction,
    day: str,
    counts: Counter[tuple[str, ...]],
    changes: Mapping[_Summed, JobSums],
) -> None:
    """Store what a day's sums become by changes, and that it is whole."""
    added = []
    former = _named_counts(writer, day, list(changes))
    for summed, sums in changes.items():
        named_counts = unpacked(former[summed]) if summed in former else Counter()
        for key, value in sums.counts.items():
            counts[key] += value
            named_counts[key] += value
        compared: Mapping[str, float] = sums.compared[summed[1:]]
        values = (compared.get(name, 0) for name in COMPARED)
        added.append((day, *summed, packed(named_counts), *values))
    with writer.transaction() as db:
        db.executemany(_ADD, added)
    writer.change("INSERT OR REPLACE INTO days VALUES (?, 1, ?)", (day, packed(counts)))


def _named_counts(reader: Reader, day: str, named: Sequence[_Summed]) -> dict[_Summed, str]:
    """Return the counts that are kept of a day's parts."""
    counts: dict[_Summed, str] = {}
    for start in range(0, len(named), _AT_ONCE):
        part = named[start : start + _AT_ONCE]
        marks = ", ".join(["(?, ?, ?)"] * len(part))
        rows = reader.rows(
            "SELECT cluster, application, workload, counts FROM day_sums WHERE day = ?"
            f" AND (cluster, application, workload) IN (VALUES {marks})",
            (day, *chain.from_iterable(part)),
        )
        counts |= {(row[0], row[1], row[2]): row[3] for row in rows}
    return counts


def sum_days(writer: StoreTransaction, budget_s: float = PASS_S) -> int:
    """Sum up days that are not whole, the latest first; return how many.

    Where jobs are pruned the oldest is left: it would change each time. Nothing is begun after
    ``budget_s`` seconds of processor time. A day that somebody changes meanwhile stays as it is.
    """
    until = time.thread_time() + budget_s
    complete_days = set(whole_days(writer, ""))
    for day in _distinct(writer, "day_sums", "day"):
        if day not in complete_days:
            writer.change("DELETE FROM day_sums WHERE day = ?", (day,))
    summed, pruned = 0, bool(writer.rows("SELECT 1 FROM summed LIMIT 1"))
    days = sorted(_distinct(writer, "outcomes", "submitted_at"), reverse=True)
    for day in days[:-1] if pruned else days:
        if time.thread_time() >= until:
            break
        if day not in complete_days:
            summed += _sum_up(writer, day)
    return summed


def _distinct(reader: Reader, table: str, column: str) -> Iterable[str]:
    """Yield the days of a table's column in order, one look-up in an index for each."""
    sql = f"SELECT min({column}) FROM {table} WHERE {column} > ?"
    last = ""
    while (first := reader.rows(sql, (last,))[0][0]) is not None:
        last = str(first)
        if len(last) >= _DAY:  # else it is no time
            yield (day := last[:_DAY])
            last = day + END


def _sum_up(writer: StoreTransaction, day: str) -> bool:
    """Sum a day up from its jobs; tell whether nobody changed it meanwhile."""
    writer.change("INSERT OR REPLACE INTO days VALUES (?, 0, '[]')", (day,))
    changes = _sums_of(writer, day)
    with writer.transaction():
        # A trigger takes the mark away where an outcome of the day was written meanwhile.
        if not writer.rows("SELECT 1 FROM days WHERE day = ? AND whole = 0", (day,)):
            return False
        writer.change("DELETE FROM day_sums WHERE day = ?", (day,))
        _store(writer, day, Counter(), changes)
    return True


def _sums_of(reader: Reader, day: str) -> defaultdict[_Summed, JobSums]:
    changes: defaultdict[_Summed, JobSums] = defaultdict(JobSums)
    for job in reported_jobs(reader, day, until=day + END):
        changes[_summed(job)].add(job)
    return changes


def rows_of_day(reader: Reader, day: str) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return what the tables ``days`` and ``day_sums`` hold of a day, worked out from its jobs."""
    counts: Counter[tuple[str, ...]] = Counter()
    rows: list[dict[str, object]] = []
    for (cluster, application, workload), sums in _sums_of(reader, day).items():
        for key, value in sums.counts.items():
            counts[key] += value
        compared: Mapping[str, float] = sums.compared[application, workload]
        rows.append(
            {
                "day": day,
                "cluster": cluster,
                "application": application,
                "workload": workload,
                "counts": packed(sums.counts),
                **{name: compared.get(name, 0) for name in COMPARED},
            }
        )
    return {"day": day, "whole": 1, "counts": packed(counts)}, rows
