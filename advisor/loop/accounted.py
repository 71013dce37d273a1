"""What the accounting alone says of a job's run: its signature where nothing counted it.

How busy its processors were, mean power, disk, memory. Coarse, but every job has it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from operator import attrgetter

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.observation import Scope
from advisor.core.policy import PolicySet, scope_of
from advisor.core.reasons import SEVERAL_PROGRAMS, SEVERAL_RUNS, WHOLE_JOB
from advisor.core.signature import Signature
from advisor.loop.clock import moment, now
from advisor.loop.execution import Execution
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import policy_of
from advisor.schedulers.base import JobRecord
from advisor.store import rows as _rows
from advisor.store.job_places import (
    JobPlaces,
    JobsThere,
    PlaceOfJobs,
    WhoseWorkload,
    WorkloadNumbers,
)
from advisor.store.signatures import add_signatures
from advisor.store.writer import Writer

_COUNTED = (
    "SELECT j.value, s.contributor, s.cluster FROM json_each(?) AS j CROSS JOIN signatures AS s"
    " WHERE s.job_id >= j.value AND s.job_id < j.value || '/' AND s.job_id <> ''"
    " AND (s.job_id = j.value OR s.job_id > j.value || '.')"
)
"""Of jobs or one of their steps, ``JOB.STEP``: a slash comes after the dot."""
SOURCE = "accounting"
COARSE = 0.25
"""Shares of time and mean power that are further off say nothing."""
ENOUGH = 10
"""So many signatures of a user's jobs at one configuration are kept."""
ANOTHER = timedelta(days=1)
"""Where there are enough, one is replaced so often: programs change."""


class RoomForSignatures:
    """Stores jobs' signatures where there is room.

    How many of a user's jobs at one configuration there are is asked once for each, which jobs
    have one already once for a batch of jobs. What is stored waits for :meth:`write`.
    """

    def __init__(self, writer: Writer, numbers: WorkloadNumbers) -> None:
        self._writer, self._numbers = writer, numbers
        self._kept = JobPlaces(writer, "signatures", SOURCE)
        self._batch: Sequence[JobRecord] = ()
        self._signed: set[tuple[str, ...]] | None = None
        self._at = ""
        self._waiting: list[tuple[object, ...]] = []

    def look(self, jobs: Sequence[JobRecord], whose: Collection[WhoseWorkload]) -> None:
        """Begin a batch of jobs, inside the transaction that stores their signatures.

        ``whose`` are the workloads that they are known to be of.
        """
        self._batch, self._signed, self._at = jobs, None, _rows.now()
        self._kept.look(whose)

    def write(self) -> None:
        """Put what waits into the store, in the transaction of its batch."""
        rows, self._waiting = self._waiting, []
        add_signatures(self._writer, rows)

    def drop(self) -> None:
        """Forget what waits: the part of a job that it came from is undone."""
        self._waiting.clear()

    def take(
        self, job: JobRecord, decision: Decision, signature: Signature, row: Sequence[object]
    ) -> bool:
        """Store the signature of a job of the batch; tell whether it was wanted.

        None is of a job that has one, from here or from something that counted it (EAR), nor where
        there are enough. What follows from it is not renewed.
        """
        names = decision.application, decision.workload
        place = (*names, job.user, *_POINT(signature.configuration))
        if not self._has_room(place) or self._is_signed(job):
            return False
        self._make_room(place)
        self._waiting.append((*row, self._at, self._numbers.number(names)))
        self._count_stored(place, job)
        return True

    def _is_signed(self, job: JobRecord) -> bool:
        """Tell whether a job or a step of it has a signature of its user's."""
        if self._signed is None:
            ids = json.dumps([job.job_id for job in self._batch])
            self._signed = {tuple(row) for row in self._writer.rows(_COUNTED, (ids,))}
        named = (job.job_id, job.user)
        return any((*named, cluster) in self._signed for cluster in ("", job.cluster))

    def _has_room(self, place: PlaceOfJobs) -> bool:
        """Tell whether one more is wanted, if only in the place of the oldest."""
        count, _, newest = self._kept.at(place)
        if count < ENOUGH:
            return True
        newest_at = moment(newest)
        return newest_at is None or not now() - ANOTHER < newest_at <= now()

    def _make_room(self, place: PlaceOfJobs) -> None:
        """Make room where one more is wanted; where there are enough, the oldest goes."""
        count, oldest, _ = self._kept.at(place)
        if count >= ENOUGH:
            if oldest is None:  # it was stored by this collection
                self._look_again(place)
                oldest = self._kept.at(place).oldest
            self._writer.change("DELETE FROM signatures WHERE id = ?", (oldest,))
            self._look_again(place)

    def _count_stored(self, place: PlaceOfJobs, job: JobRecord) -> None:
        """Count a job's one that was stored."""
        if self._signed is not None:
            self._signed.add((job.job_id, job.user, job.cluster))
        count, oldest, _ = self._kept.at(place)
        self._kept.put(place, JobsThere(count + 1, oldest, self._at))

    def _look_again(self, place: PlaceOfJobs) -> None:
        """Have what is at a place asked of the store anew."""
        self.write()
        self._kept.forget(place)


def signature_of(
    job: JobRecord,
    match: MatchedJob,
    execution: Execution,
    inventory: Inventory,
    policies: PolicySet,
) -> Signature | None:
    """Return the signature of a completed job.

    None for one too short for the accounting's whole seconds, for one of which nothing but its
    time is known, and for a whole job of several programs.
    """
    decision = match.decision
    if match.trust == "unverified" or not decision.application or WHOLE_JOB in decision.codes:
        return None
    # its time is that of all of them
    if not {SEVERAL_RUNS, SEVERAL_PROGRAMS}.isdisjoint(decision.codes):
        return None
    if job.state.split()[:1] != ["COMPLETED"]:
        return None
    trust = policy_of(decision, job, policies).training.trust
    return _signature(job, execution, inventory, scope_of(trust, job.account))


_POINT = attrgetter(*_rows.PLACE)


def _signature(
    job: JobRecord, execution: Execution, inventory: Inventory, scope: Scope
) -> Signature | None:
    node = inventory.node_types.get(execution.node_type)
    elapsed = job.elapsed_s
    if node is None or not job.nodes or not elapsed or not execution.time_s:
        return None
    if execution.resolution_s > COARSE * execution.time_s:
        return None
    cpus = job.cpus // job.nodes or node.cores
    ranks = max(1, execution.ranks_per_node)
    threads = max(ranks, execution.threads_per_node or min(cpus, node.cores))
    cpu_util = 100 * job.cpu_s / (elapsed * job.cpus) if job.cpu_s and job.cpus else None
    power_w = execution.energy_j / execution.time_s / job.nodes if execution.energy_j else None
    disk_mbs = None if job.disk_mb is None else job.disk_mb / elapsed / job.nodes
    if cpu_util is None and power_w is None:
        return None
    return Signature(
        cpu_util=cpu_util,
        power_w=power_w,
        io_mbs=disk_mbs,
        memory_mb=job.memory_mb,
        time_s=execution.time_s,
        cpus=cpus,
        configuration=Configuration(
            node.name, job.nodes, ranks, threads, execution.cap_khz or node.default_freq_khz
        ),
        source=SOURCE,
        contributor=job.user,
        account=job.account,
        scope=scope,
        job_id=job.job_id,
        cluster=job.cluster,
    )
