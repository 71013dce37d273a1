"""What the watching child hands over to the daemon: the cluster's state as plain JSON.

Numbers may be Infinity, which Python's JSON reads and writes; nobody else sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from advisor.core.availability import Availability, JobLimits, Room
from advisor.core.codec import load, to_plain


def pack(state: Availability) -> dict[str, Any]:
    """Return the JSON form of a state but for its limits; its rooms are a list."""
    rooms = [[*key, r.nodes, r.usable, r.idle] for key, r in sorted(state.rooms.items())]
    return {**to_plain(replace(state, rooms={}, limits=None)), "rooms": rooms}


def unpack(data: Mapping[str, Any], limits: JobLimits | None) -> Availability:
    """Read :func:`pack`'s form. Raises ValueError, KeyError or TypeError for anything else."""
    rooms = {
        (str(kind), str(partition)): Room(
            int(nodes), int(usable), tuple((float(until), int(count)) for until, count in idle)
        )
        for kind, partition, nodes, usable, idle in data["rooms"]
    }
    return replace(load(Availability, {**data, "rooms": {}}), rooms=rooms, limits=limits)


def pack_limits(limits: JobLimits) -> Any:
    """Return the JSON form of limits."""
    return to_plain(limits)


def unpack_limits(data: Mapping[str, Any]) -> JobLimits:
    """Read :func:`pack_limits`'s form. Raises FieldError."""
    return load(JobLimits, data)
