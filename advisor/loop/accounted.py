"""What the accounting alone says of a job's run: its signature where nothing counted it.

How busy its processors were, mean power, disk, memory. Coarse, but every job has it.
"""

from __future__ import annotations

from dataclasses import replace

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory
from advisor.core.policy import PolicySet, scope_of
from advisor.core.signature import Signature
from advisor.loop.execution import Execution, ran
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import policy_of
from advisor.schedulers.base import JobRecord
from advisor.store.signatures import save_signatures
from advisor.store.writer import Writer

_COUNTED = (
    "SELECT 1 FROM signatures WHERE (job_id = ? OR substr(job_id, 1, ?) = ?)"
    " AND contributor = ? LIMIT 1"
)
SOURCE = "accounting"
COARSE = 0.25
"""Shares of time and mean power that are further off say nothing."""


def take_signature(
    writer: Writer, job: JobRecord, match: MatchedJob, inventory: Inventory, policies: PolicySet
) -> int:
    """Store a completed job's signature; return how many are new.

    None for a job that has one, from here or from something that counted it (EAR), for one too
    short for the accounting's whole seconds, and for one of which nothing but its time is known.
    """
    decision = match.decision
    if match.trust == "unverified" or not decision.application:
        return 0
    if job.state.split()[:1] != ["COMPLETED"]:
        return 0
    seen = ran(job, inventory)
    signature = _signature(job, seen, inventory)
    if signature is None:
        return 0
    dotted = f"{job.job_id}."
    values = (job.job_id, len(dotted), dotted, job.user)
    if writer.rows(_COUNTED, values):
        return 0
    trust = policy_of(decision, job, policies).training.trust
    made = replace(
        signature,
        contributor=job.user,
        account=job.account,
        scope=scope_of(trust, job.account),
        job_id=job.job_id,
    )
    return save_signatures(writer, decision.application, decision.workload, [made])


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
