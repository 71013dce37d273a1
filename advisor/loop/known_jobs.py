"""What the store knows of a batch of ended jobs, read for all of them at once.

It holds inside the transaction it was read in, where nobody else writes. What the collection itself
has written of a job since is read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from advisor.core.cluster_name import is_federated, same_cluster
from advisor.core.decision import Decision
from advisor.loop.clock import utc
from advisor.loop.match import stamp_of
from advisor.loop.outcomes import FACTS
from advisor.schedulers.base import JobRecord
from advisor.store import rows as _rows
from advisor.store.job_places import WhoseWorkload
from advisor.store.port import ResultRow
from advisor.store.reader import array_of
from advisor.store.transaction import marks
from advisor.store.writer import Writer

_OUTCOMES = (
    f"SELECT job_id, submitted_at, decision_id, {', '.join(FACTS)},"
    " CAST(json_extract(record, '$.ran.energy_gpu_j') AS REAL), CASE verdict WHEN 'worse' THEN"
    " CAST(json_extract(record, '$.judged_model') AS INTEGER) END FROM outcomes"
    " WHERE scheduler = ? AND cluster = ? AND job_id IN"
)
_DECISIONS = (
    f"SELECT user, cluster, {_rows.ALIKE_DECISION_COLUMNS} FROM decisions"
    " WHERE job_id <> '' AND job_id IN ({}) ORDER BY created_at DESC"
)


class KnownJobs:
    """Outcomes and decisions of a batch of jobs as the store has them.

    ``write`` puts into the store what the collection has yet to write.
    """

    def __init__(
        self,
        writer: Writer,
        scheduler: str,
        cluster: str,
        jobs: Sequence[JobRecord],
        write: Callable[[], None],
    ) -> None:
        self._write = write
        self._writer = writer
        self._scheduler, self._cluster = scheduler, cluster
        self._written: set[str] = set()
        self._outcomes = self._read_outcomes([job.job_id for job in jobs])
        self._fresh = {array_of(job.job_id) for job in jobs if not self.has_outcome(job)}
        self._decisions: dict[tuple[str, str], list[ResultRow]] | None = None
        self._jobs = jobs
        self._stamped: dict[str, Decision | None] | None = None
        self._stamps: dict[str, Decision] = {}

    def facts(self, job: JobRecord) -> tuple[object, ...]:
        """Return what is stored of a job with a decision: :data:`FACTS`, what its GPUs took, and
        the model that was judged where it came out worse; nothing where none is."""
        row = self._outcome(job)
        return row[1:] if row and row[0] else ()

    def has_outcome(self, job: JobRecord) -> bool:
        """Tell whether any outcome of a job is stored."""
        return self._outcome(job) is not None

    def _outcome(self, job: JobRecord) -> tuple[object, ...] | None:
        if job.job_id in self._written:
            self._write()
            self._written.remove(job.job_id)
            self._outcomes |= self._read_outcomes([job.job_id])
        return self._outcomes.get((job.job_id, utc(job.submitted_at)))

    def _read_outcomes(self, ids: Sequence[str]) -> dict[tuple[str, str], tuple[object, ...]]:
        rows = self._writer.rows(
            f"{_OUTCOMES} ({marks(ids)})", (self._scheduler, self._cluster, *ids)
        )
        return {(row[0], row[1]): tuple(row[2:]) for row in rows}

    def decisions_of(
        self, job_id: str, user: str, cluster: str = "", *, brief: bool = False
    ) -> list[Decision]:
        """Return the decisions linked to a job of a user, newest first; as the Reader does."""
        if not brief or job_id not in self._fresh:
            self._write()
            return self._writer.decisions_of(job_id, user, cluster, brief=brief)
        if self._decisions is None:
            self._decisions = self._read_decisions()
        return [_rows.decision_alike(row) for row in self._decisions.get((job_id, user), ())]

    def _read_decisions(self) -> dict[tuple[str, str], list[ResultRow]]:
        by_job = defaultdict(list)
        ids = list(self._fresh)
        for row in self._writer.rows(_DECISIONS.format(marks(ids)), ids):
            if not (same_cluster(row["cluster"], self._cluster) or is_federated(row["job_id"])):
                continue
            by_job[row["job_id"], row["user"]].append(row)
        return by_job

    def decision(self, id: str) -> Decision | None:
        """Return a decision, None when it is not known."""
        if self._stamped is None:
            self._stamped = self._read_stamped()
        if id not in self._stamped:
            self._write()
            return self._writer.decision(id)
        return self._stamped.pop(id)  # who asks has it linked to a job

    def _read_stamped(self) -> dict[str, Decision | None]:
        """Return the decisions that fresh jobs' stamps name, None for one that is not stored."""
        for job in self._jobs:
            if array_of(job.job_id) in self._fresh and (stamp := stamp_of(job)) is not None:
                self._stamps[job.job_id] = stamp
        stamped: dict[str, Decision | None] = {s.id: None for s in self._stamps.values()}
        sql = f"SELECT {_rows.DECISION_COLUMNS} FROM decisions WHERE id IN ({marks(stamped)})"
        rows = self._writer.rows(sql, list(stamped))
        return stamped | {row["id"]: _rows.decision(row) for row in rows}

    def whose(self) -> set[WhoseWorkload]:
        """Return the workloads and users of the jobs that are new, as far as that is known yet."""
        fresh = [job for job in self._jobs if array_of(job.job_id) in self._fresh]
        if not fresh:
            return set()
        if self._decisions is None:
            self._decisions = self._read_decisions()
        whose = set()
        for job in fresh:
            if rows := self._decisions.get((array_of(job.job_id), job.user)):
                decision: Decision | None = _rows.decision_alike(rows[0])
            else:
                decision = self._stamped_decision(job)
            if decision is not None:
                whose.add((decision.application, decision.workload, job.user))
        return whose

    def _stamped_decision(self, job: JobRecord) -> Decision | None:
        """Return the decision that a fresh job's stamp names, as it is stored if it is."""
        if self._stamped is None:
            self._stamped = self._read_stamped()
        stamp = self._stamps.get(job.job_id)
        return None if stamp is None else self._stamped.get(stamp.id) or stamp

    def written(self, job: JobRecord) -> None:
        """Note that something of a job was written: it is asked of the store again."""
        self._fresh.discard(array_of(job.job_id))
        self._written.add(job.job_id)
