"""What the watching child hands over to the daemon: the cluster's state as plain JSON.

Numbers may be Infinity, which Python's JSON reads and writes; nobody else sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from advisor.core.availability import (
    Availability,
    Bounds,
    JobLimits,
    PartitionState,
    Queue,
    Room,
)


def pack(state: Availability) -> dict[str, object]:
    """Return the JSON form of a state but for its limits."""
    return {
        "scheduler": state.scheduler,
        "rooms": [[*key, r.nodes, r.usable, r.idle] for key, r in sorted(state.rooms.items())],
        "partitions": {name: asdict(p) for name, p in sorted(state.partitions.items())},
        "queues": {
            name: {**asdict(q), "limited": sorted(q.limited)}
            for name, q in sorted(state.queues.items())
        },
        "settings": dict(state.settings),
    }


def unpack(data: Mapping[str, Any], limits: JobLimits | None) -> Availability:
    """Read :func:`pack`'s form. Raises ValueError, KeyError or TypeError for anything else."""
    return Availability(
        scheduler=str(data["scheduler"]),
        rooms={
            (str(kind), str(partition)): Room(
                int(nodes), int(usable), tuple((float(until), int(count)) for until, count in idle)
            )
            for kind, partition, nodes, usable, idle in data["rooms"]
        },
        partitions={
            str(name): PartitionState(**_tuples(p)) for name, p in data["partitions"].items()
        },
        queues={
            str(name): Queue(**{**_tuples(q), "limited": frozenset(q["limited"])})
            for name, q in data["queues"].items()
        },
        limits=limits,
        settings={str(name): str(value) for name, value in data["settings"].items()},
    )


def pack_limits(limits: JobLimits) -> dict[str, object]:
    """Return the JSON form of limits."""
    return asdict(limits)


def unpack_limits(data: Mapping[str, Any]) -> JobLimits:
    """Read :func:`pack_limits`'s form. Raises ValueError, KeyError or TypeError."""
    return JobLimits(
        {
            str(user): {str(account): Bounds(**_tuples(b)) for account, b in accounts.items()}
            for user, accounts in data["users"].items()
        },
        {str(name): Bounds(**_tuples(b)) for name, b in data["qos"].items()},
        bool(data["enforced"]),
        {str(user): str(account) for user, account in data["default_accounts"].items()},
    )


def _tuples(value: Any) -> Any:
    """Return JSON with tuples for its lists, however deep."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value
