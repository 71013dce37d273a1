"""Names of clusters, and the job ids that name one themselves. Standard library only.

A job's id is its cluster's own: Slurm's ClusterName, PBS's server. Whoever submits may name another
cluster (``sbatch -M``), so a name is data to be checked.
"""

from __future__ import annotations

import re

from advisor.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?")
_FEDERATED = 1 << 26
"""From here on a job id of Slurm holds its cluster in the bits above (slurm.h, federated jobs); no
other cluster's MaxJobId reaches so far."""


def cluster_name(text: object) -> str:
    """Return a cluster's name, "" for what can be none: several names, or another form."""
    name = str(text or "").strip()
    return name if _NAME.fullmatch(name) else ""


def read_cluster_name(text: str) -> str:
    """Return the name of a cluster that a user entered. Raises UsageError for what is none."""
    if name := cluster_name(text):
        return name
    raise UsageError(
        f"{text[:80]!r} is not a cluster's name",
        hint="like alpha: 1 to 64 letters, digits, dots, dashes and underscores, one name",
    )


def is_federated(job_id: str) -> bool:
    """Tell whether an id is a federated job's, which no other cluster of the federation gives."""
    number = re.match(r"\d{1,12}", job_id)
    return number is not None and int(number[0]) >= _FEDERATED


def same_cluster(one: str, other: str) -> bool:
    """Tell whether two names may be one cluster's; "" is of any."""
    return not (one and other) or one == other
