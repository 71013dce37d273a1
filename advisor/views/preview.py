"""What the advisor would do with a job that asks for a baseline: the daemon's own decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.inventory import Inventory
from advisor.core.request import JobRequest
from advisor.core.requested_configuration import configuration_of, default_freq
from advisor.core.script import command_of
from advisor.schedulers.choose import installed
from advisor.schedulers.translators import translator
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, site_of
from advisor.store.reader import Reader

_SCRIPT = "#!/bin/sh\n"


@dataclass(frozen=True, slots=True)
class Person:
    """Whose jobs are looked at, what they are submitted with, and what this person has chosen."""

    name: str
    uid: int = 0
    account: str = ""
    choices: Mapping[str, Any] = field(default_factory=dict)
    qos: str = ""
    job_name: str = ""


def sample_job(
    snapshot: Snapshot, application: str, workload: str, baseline: Configuration, person: Person
) -> JobRequest | None:
    """Return a request that asks for a baseline and leaves every axis to the advisor.

    None on an unknown node type. Whole nodes, in the first partition of the node type; the
    frequency counts as asked for only where it is not the node type's default.
    """
    node_type = snapshot.inventory.resolve(baseline.node_type)
    if node_type is None:
        return None
    scheduler = snapshot.choice("scheduler", lambda: installed().NAME)  # looked for once
    asked_freq = baseline.freq_khz if baseline.freq_khz != default_freq(node_type) else None
    language = translator(scheduler)
    request = language.parse_request(
        {
            "hook": "explain",
            "type": language.SUBMIT,
            "options": language.asking_for(baseline, node_type),
            "script": _SCRIPT,
            "env": {"ADVISOR_APPLICATION": application, "ADVISOR_WORKLOAD": workload},
        },
        user=person.name, uid=person.uid, choices=person.choices,
    )  # fmt: skip
    started = command_of(language.launched("program", baseline.ranks_per_node).split())
    request = replace(
        request, account=person.account, qos=person.qos, job_name=person.job_name,
        freq_khz=asked_freq or None, explicit=frozenset(), binds={},
        launcher=started.launcher if started else "",
    )  # fmt: skip
    plain = replace(request, cpus_per_task=None)  # as people write it where that says the same
    same = configuration_of(plain, node_type).threads_per_node == baseline.threads_per_node
    return plain if same else request


def site_for_preview(reader: Reader) -> Snapshot:
    """Return the site for a look ahead, as if nodes of every type were idle."""
    snapshot = site_of(reader)
    snapshot.policy = snapshot.policy.with_idle_nodes()
    return snapshot


def preview(
    snapshot: Snapshot,
    application: str,
    workload: str,
    baseline: Configuration,
    person: Person,
    *,
    luck: float = 1.0,
    request: JobRequest | None = None,
) -> Decision | None:
    """Return the decision for a job that asks for ``baseline``; None on an unknown node type.

    ``snapshot`` is from :func:`site_for_preview`. ``luck`` is what is drawn for the holdout; 1 is
    never left alone. ``request`` is what :func:`sample_job` made of the others, if it is known: it
    is the same under every policy. A node type in no partition counts as a machine without a
    scheduler, as ``advisor run`` does.
    """
    node_type = snapshot.inventory.resolve(baseline.node_type)
    if node_type is None:
        return None
    if not node_type.partitions:
        snapshot = replace(snapshot, inventory=Inventory.of([node_type]))
        snapshot.index()
    request = request or sample_job(snapshot, application, workload, baseline, person)
    return None if request is None else decide(request, snapshot, chance=lambda: luck)
