"""What the advisor would do with a job that asks for a baseline: the daemon's own decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from advisor.core.availability import Availability, JobLimits, PartitionState, Queue, Room
from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import (
    configuration_of,
    default_freq,
    possible_node_types,
)
from advisor.schedulers.here import installed_name
from advisor.schedulers.translators import translator
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, site_of
from advisor.store.reader import Reader
from advisor.views.script import directives

_PROGRAM = "./program"


@dataclass(frozen=True, slots=True)
class Person:
    """Whose jobs are looked at, what they are submitted with, and what this person has chosen."""

    name: str
    uid: int = 0
    account: str = ""
    choices: Mapping[str, Any] = field(default_factory=dict)
    qos: str = ""
    job_name: str = ""


NOBODY = Person("")


class AskingJob(NamedTuple):
    """A person's job of a workload, which asks for a baseline."""

    application: str
    workload: str
    baseline: Configuration
    person: Person


def sample_job(snapshot: Snapshot, job: AskingJob) -> JobRequest | None:
    """Return the request of a job that asks for a baseline, as people write it.

    None on an unknown node type. It is the script of :func:`sample_script`, read as ``explain``
    reads one, with a time limit that is long enough for all.
    """
    baseline = job.baseline
    if snapshot.inventory.resolve(baseline.node_type) is None:
        return None
    subject = job.application, job.workload
    return _request(snapshot, sample_options(snapshot, baseline), baseline, subject, job.person)


def sample_options(snapshot: Snapshot, baseline: Configuration) -> dict[str, str]:
    """Return the options of a job that asks for a baseline, in the words of the scheduler here.

    Whole nodes, in the first partition of the node type. Its threads, its frequency and its node
    type are only named where a job that does not gets others. Where it may land on several node
    types, it states as much memory as each of them has: without, it could go to none but the
    fattest. Empty on an unknown node type.
    """
    node_type = snapshot.inventory.resolve(baseline.node_type)
    if node_type is None:
        return {}
    language = translator(_scheduler(snapshot))
    freq = baseline.freq_khz if baseline.freq_khz != default_freq(node_type) else 0

    def asked(*, threads: bool, constraint: bool, memory_mb: float = 0.0) -> dict[str, str]:
        return language.asking_for(
            baseline,
            node_type,
            threads=threads,
            constraint=constraint,
            memory_mb=memory_mb,
            freq_khz=freq,
        )

    plain = _request(snapshot, asked(threads=False, constraint=False), baseline)
    landing = possible_node_types(plain, snapshot.inventory, snapshot.default_node_types)
    lands_anywhere = len(landing) > 1
    constraint = bool(node_type.feature) and (
        landing[:1] != [node_type]
        or (lands_anywhere and snapshot.policy.base.axes.node_type == "keep")
    )
    least = 0.0
    if lands_anywhere and not constraint:
        least = min((t.memory_mb for t in landing if t.memory_mb), default=0.0)
    threads = configuration_of(plain, node_type).threads_per_node != baseline.threads_per_node
    return asked(threads=threads, constraint=constraint, memory_mb=least)


def sample_script(snapshot: Snapshot, options: Mapping[str, str], ranks: int) -> str:
    """Return the job script with these options, which starts one program on all its ranks."""
    scheduler = _scheduler(snapshot)
    lines = ("#!/bin/sh", *directives(options, scheduler))
    return "\n".join((*lines, translator(scheduler).launched(_PROGRAM, ranks), ""))


def _scheduler(snapshot: Snapshot) -> str:
    name: str = snapshot.choice("scheduler", installed_name)  # looked for once
    return name


def _request(
    snapshot: Snapshot,
    options: Mapping[str, str],
    baseline: Configuration,
    subject: tuple[str, str] = ("", ""),
    person: Person = NOBODY,
) -> JobRequest:
    language = translator(_scheduler(snapshot))
    request = language.parse_request(
        {
            "hook": "explain",
            "type": language.SUBMIT,
            "options": dict(options),
            "script": sample_script(snapshot, options, baseline.ranks_per_node),
            "env": dict(zip(("ADVISOR_APPLICATION", "ADVISOR_WORKLOAD"), subject, strict=True)),
        },
        user=person.name,
        uid=person.uid,
        choices=person.choices,
    )
    return replace(  # without a limit: which one holds is looked at when a job is submitted
        request, account=person.account, qos=person.qos, job_name=person.job_name, time_limit_s=0
    )


def site_for_preview(reader: Reader) -> Snapshot:
    """Return the site for a look ahead, as if all nodes were idle and no queue or account had
    limits of its own: those are looked at when a job is submitted."""
    snapshot = site_of(reader)
    snapshot.policy = snapshot.policy.with_idle_nodes()
    snapshot.availability = _open(snapshot.inventory, _scheduler(snapshot))
    return snapshot


def _open(inventory: Inventory, scheduler: str) -> Availability:
    rooms: dict[tuple[str, str], Room] = {}
    for node_type in inventory.node_types.values():
        for name in node_type.partitions:
            count = node_type.nodes_in(name)
            rooms[node_type.name, name] = Room(count, count, ((math.inf, count),))
    names = sorted({name for _, name in rooms})
    first = (inventory.default_partition,) if inventory.default_partition else ()
    return Availability(
        scheduler,
        rooms,
        {name: PartitionState() for name in names},
        {**{name: Queue(name) for name in names}, "": Queue("", destinations=first)},
        JobLimits(enforced=False),
    )


def reachable(snapshot: Snapshot, name: str) -> Snapshot | None:
    """Return the site as a job of a node type sees it; None on an unknown node type.

    A node type in no partition counts as a machine without a scheduler, as ``advisor run`` does.
    """
    node_type = snapshot.inventory.resolve(name)
    if node_type is None or node_type.partitions:
        return None if node_type is None else snapshot
    type_snapshot = replace(snapshot, inventory=Inventory.of([node_type]))
    type_snapshot.index()
    return type_snapshot


def preview(
    snapshot: Snapshot, job: AskingJob, *, luck: float = 1.0, request: JobRequest | None = None
) -> Decision | None:
    """Return the decision for a job; None on an unknown node type.

    ``snapshot`` is from :func:`site_for_preview`. ``luck`` is what is drawn for the holdout; 1 is
    never left alone. ``request`` is what :func:`sample_job` made of the others, if it is known: it
    is the same under every policy.
    """
    reachable_snapshot = reachable(snapshot, job.baseline.node_type)
    if reachable_snapshot is None:
        return None
    snapshot = reachable_snapshot
    request = request or sample_job(snapshot, job)
    return None if request is None else decide(request, snapshot, chance=lambda: luck)
