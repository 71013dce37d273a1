"""What the accounting alone says of a job's run: its signature where nothing counted it.

How busy its processors were, mean power, disk, memory. Coarse, but every job has it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.policy import PolicySet, scope_of
from advisor.core.signature import Signature
from advisor.loop.clock import moment, now
from advisor.loop.execution import Execution
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import policy_of
from advisor.schedulers.base import JobRecord
from advisor.store import rows as _rows
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer

_COUNTED = (
    "SELECT 1 FROM signatures WHERE job_id >= ?1 AND job_id < ?1 || '/' AND job_id <> ''"
    " AND (job_id = ?1 OR job_id > ?1 || '.') AND contributor = ?2 LIMIT 1"
)
"""Of a job or one of its steps, ``JOB.STEP``: a slash comes after the dot."""
SOURCE = "accounting"
COARSE = 0.25
"""Shares of time and mean power that are further off say nothing."""
ENOUGH = 10
"""So many signatures of a user's jobs at one configuration are kept."""
ANOTHER = timedelta(days=1)
"""Where there are enough, one is replaced so often: programs change."""


class RoomForSignatures:
    """How many signatures of a user's jobs at one configuration there are, asked once for each."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._kept: dict[tuple[object, ...], tuple[int, int | None, str]] = {}

    def make(self, decision: Decision, signature: Signature, user: str) -> bool:
        """Tell whether one more is wanted; the oldest makes room where there are enough."""
        key = self._key(decision, signature, user)
        if key not in self._kept:
            row = self._writer.rows(_KEPT, key)[0]
            self._kept[key] = row[0], row[1], str(row[2] or "")
        count, oldest, newest = self._kept[key]
        if count < ENOUGH:
            return True
        at = moment(newest)
        if at is not None and now() - ANOTHER < at <= now():
            return False
        self._writer.change("DELETE FROM signatures WHERE id = ?", (oldest,))
        del self._kept[key]
        return True

    def took(self, decision: Decision, signature: Signature, user: str) -> None:
        """Count one that was stored."""
        key = self._key(decision, signature, user)
        if key in self._kept and self._kept[key][0]:
            count, oldest, _ = self._kept[key]
            self._kept[key] = count + 1, oldest, _rows.now()
        else:
            self._kept.pop(key, None)

    def _key(self, decision: Decision, signature: Signature, user: str) -> tuple[object, ...]:
        place = (getattr(signature.configuration, name) for name in Configuration.__slots__)
        return decision.application, decision.workload, SOURCE, user, *place


_KEPT = (
    "SELECT count(*), min(id), max(created_at) FROM signatures WHERE workload_id ="
    " (SELECT id FROM workloads WHERE application = ? AND name = ?) AND source = ?"
    f" AND contributor = ? AND {' AND '.join(f'{name} = ?' for name in Configuration.__slots__)}"
)


def take_signature(
    writer: Writer,
    room: RoomForSignatures,
    job: JobRecord,
    match: MatchedJob,
    seen: Execution,
    inventory: Inventory,
    policies: PolicySet,
) -> Signature | None:
    """Store a completed job's signature and return it; what follows from it is not renewed.

    None for a job that has one, from here or from something that counted it (EAR), for one too
    short for the accounting's whole seconds, for one of which nothing but its time is known, and
    where there are enough.
    """
    decision = match.decision
    if match.trust == "unverified" or not decision.application:
        return None
    if job.state.split()[:1] != ["COMPLETED"]:
        return None
    signature = _signature(job, seen, inventory)
    if signature is None:
        return None
    if writer.rows(_COUNTED, (job.job_id, job.user)):
        return None
    if not room.make(decision, signature, job.user):
        return None
    trust = policy_of(decision, job, policies).training.trust
    made = replace(
        signature,
        contributor=job.user,
        account=job.account,
        scope=scope_of(trust, job.account),
        job_id=job.job_id,
    )
    new = save_signatures(writer, decision.application, decision.workload, [made], touch=False)
    if not new:
        return None
    room.took(decision, made, job.user)
    return made


def _signature(job: JobRecord, seen: Execution, inventory: Inventory) -> Signature | None:
    node = inventory.node_types.get(seen.node_type)
    elapsed = job.elapsed_s
    if node is None or not job.nodes or not elapsed or not seen.time_s:
        return None
    if seen.resolution_s > COARSE * seen.time_s:
        return None
    cpus = job.cpus // job.nodes or node.cores
    ranks = max(1, seen.ranks_per_node)
    threads = max(ranks, seen.threads_per_node or min(cpus, node.cores))
    cpu_util = 100 * job.cpu_s / (elapsed * job.cpus) if job.cpu_s and job.cpus else None
    power_w = seen.energy_j / seen.time_s / job.nodes if seen.energy_j else None
    disk_mbs = None if job.disk_mb is None else job.disk_mb / elapsed / job.nodes
    if cpu_util is None and power_w is None:
        return None
    return Signature(
        cpu_util=cpu_util,
        power_w=power_w,
        io_mbs=disk_mbs,
        memory_mb=job.memory_mb,
        time_s=seen.time_s,
        cpus=cpus,
        configuration=Configuration(
            node.name, job.nodes, ranks, threads, seen.freq_khz or node.default_freq_khz
        ),
        source=SOURCE,
    )
