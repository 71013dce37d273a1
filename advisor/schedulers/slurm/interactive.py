"""Start a command on one whole node of a type through Slurm."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence

from advisor.core.inventory import NodeType
from advisor.errors import SchedulerError
from advisor.schedulers.command import CommandProcess, session_environment, start

_PLACE = frozenset(
    {
        "SLURM_ACCOUNT",
        "SLURM_CLUSTERS",
        "SLURM_CONF",
        "SLURM_PARTITION",
        "SLURM_QOS",
        "SLURM_RESERVATION",
        "SLURM_WCKEY",
    }
)
"""What of srun's variables says where a job may run. Others change what it prints, how it is bound
or capped, and so what is measured; those of a job around it would make it a step."""


def on_a_node(
    node_type: NodeType, argv: Sequence[str], *, limit_s: float, name: str
) -> CommandProcess:
    """Start the srun that runs ``argv`` alone on a node of this type; the hook leaves it alone.

    It asks for all cores, one hardware thread each, for at most ``limit_s``. Raises
    SchedulerError without srun.
    """
    srun = shutil.which("srun")
    if srun is None:
        raise SchedulerError(
            "srun is not installed here", hint="run advisor lab bench --here on a node of this type"
        )
    where = []
    if node_type.feature:
        where.append(f"--constraint={node_type.feature}")
    if node_type.partitions and not node_type.default_partition:
        where.append(f"--partition={node_type.partitions[0]}")
    command = [
        srun,
        "--nodes=1",
        "--ntasks=1",
        "--exclusive",
        f"--cpus-per-task={node_type.cores}",
        "--hint=nomultithread",
        f"--time={math.ceil(limit_s / 60)}",
        f"--job-name={name}",
        "--quiet",
        *where,
        *argv,
    ]
    environment = {
        variable: value
        for variable, value in session_environment().items()
        if not variable.startswith(("SLURM_", "SRUN_")) or variable in _PLACE
    }
    return start(command, {**environment, "ADVISOR": "off"})
