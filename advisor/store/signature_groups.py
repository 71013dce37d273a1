"""Signatures of one workload together: whose jobs they advise, and what they are in the mean.

Standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from advisor.core.observation import Scope
from advisor.core.signature import Signature

RECENT = 10
"""So many of the newest runs make a signature."""

Named = tuple[str, str]
JobGroup = tuple[Scope, str]
WorkloadGroup = tuple[Named, JobGroup]
"""A workload, and whose jobs of it: scope and owner of the model that follows."""


def mean_signature(stored: Sequence[Signature]) -> dict[str, float] | None:
    """Return the mean measures of the newest runs at the newest one's configuration, if any."""
    if not stored:
        return None
    repeats = [s for s in stored if s.configuration == stored[0].configuration][:RECENT]
    values: defaultdict[str, list[float]] = defaultdict(list)
    for s in repeats:
        for name, value in s.measures().items():
            if name != "tpi" or s.release == tpi_release(repeats):
                values[name].append(value)
    return {name: sum(some) / len(some) for name, some in values.items()}


def tpi_release(stored: Sequence[Signature]) -> str | None:
    """Return whose TPI counts, the newest's: it is not on one scale between EAR's releases."""
    return next((s.release for s in stored if s.tpi is not None), None)


def group_of(signature: Signature) -> JobGroup:
    """Return whose jobs a signature advises: scope and owner of the model that follows from it."""
    owners = {"all": "", "account": signature.account, "own": signature.contributor}
    return signature.scope, owners[signature.scope]


def seen_by(whose: JobGroup, group: JobGroup) -> bool:
    """Tell whether what belongs to one group advises the jobs of another."""
    return whose[0] == "all" or whose == group
