"""What the site says of where fits are worked out: key ``workers`` of site.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from advisor.core.codec import Record
from advisor.core.keys import Between, Written

LOCAL = "local"
"""The engine that works here, one task after the other."""


@dataclass(frozen=True, slots=True)
class WorkersSetup(Record):
    """Where fits are worked out, key ``workers``; without it here, one after the other."""

    engine: Annotated[
        str, Written.WORD, "`local`, `dask` with the extra dask, or what a package adds"
    ] = LOCAL
    scheduler: Annotated[
        str,
        Written.WORD,
        "of engine dask: the scheduler whose jobs the workers are, as dask-jobqueue names it; "
        "default: processes of this host",
    ] = ""
    jobs: Annotated[int, Between(1, 1000), "workers at once, one core each"] = 4
    partition: Annotated[str, Written.WORD, "where they run; default: the scheduler's"] = ""
    account: Annotated[str, Written.WORD, "what they are charged to"] = ""
    minutes: Annotated[int, Between(1, 10_080), "the time limit of each job"] = 30
    memory_mb: Annotated[int, Written.MEMORY, "memory of each worker"] = 2048
    folder: Annotated[
        str,
        Written.WORD,
        "a folder that the nodes see and only the advisor's user may write: certificates and logs",
    ] = ""
    interface: Annotated[
        str, Written.WORD, "the network interface by which nodes reach this host, like ib0"
    ] = ""
    waits_s: Annotated[int, Between(1, 86_400), "seconds until the first worker must be there"] = (
        300
    )
    task_s: Annotated[int, Between(1, 86_400), "seconds without a result until it gives up"] = 300

    @classmethod
    def of(cls, site: Mapping[str, object]) -> WorkersSetup:
        """Return what a compiled site file says."""
        return cls.from_dict(site.get("workers") or {})
