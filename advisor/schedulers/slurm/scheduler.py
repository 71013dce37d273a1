"""Slurm, as the rest of the advisor asks it."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from advisor.core.inventory import NodeType
from advisor.errors import SchedulerError
from advisor.schedulers import slurm
from advisor.schedulers.accounting_lines import DamagedLines
from advisor.schedulers.base import (
    Health,
    HookRequest,
    Hooks,
    JobHere,
    JobRecord,
    JobUse,
    Scheduler,
    Watched,
)
from advisor.schedulers.cluster import Cluster
from advisor.schedulers.command import CommandProcess, session_environment, start
from advisor.schedulers.slurm import accounting as sacct
from advisor.schedulers.slurm import availability
from advisor.schedulers.slurm.accounting_file import YEAR_COMMAND, read_sacct, stream_sacct
from advisor.schedulers.slurm.control import (
    CLUSTERS,
    ask,
    config_value,
    gives_whole_nodes,
    queued_job,
    this_cluster,
)
from advisor.schedulers.slurm.inventory import read_cluster
from advisor.schedulers.slurm.sweeps import Sweeps
from advisor.schedulers.slurm.translator import BINDING_SETTINGS, uncapped_by, uncapped_launcher


class Slurm(Sweeps, Scheduler):
    """Slurm: its state, its accounting, its hooks, and sweeps on it."""

    NAME: ClassVar[str] = "slurm"
    LABEL: ClassVar[str] = "Slurm"
    DESCRIPTION: ClassVar[str] = "Slurm: one exclusive allocation, energy from its accounting"
    RANK: ClassVar[int] = slurm.RANK
    WITHOUT_FEATURE: ClassVar[str] = "are refused"
    POLL_S: ClassVar[float] = 0.5
    ACCOUNTING: ClassVar[str] = "sacct"
    YEAR_COMMAND: ClassVar[str] = YEAR_COMMAND
    ENERGY_ADVICE: ClassVar[Mapping[str, str]] = {
        "step": "start the program with srun, Slurm meters steps only",
        "shared": "they shared nodes; submit with --exclusive, or set OverSubscribe=EXCLUSIVE at "
        "PartitionName={partition} in slurm.conf",
        "meter": "set AcctGatherEnergyType= in slurm.conf to a meter these nodes have "
        "(advisor doctor shows what is set)",
    }

    def read_accounting(self, path: Path, text: str) -> tuple[list[JobRecord], int]:
        """Return the jobs of a file that ``sacct -P`` wrote."""
        return read_sacct(path, text)

    def writes_accounting(self, first_line: str) -> bool:
        """Tell whether a line holds sacct's columns."""
        return "|" in first_line and "JobID" in first_line.split("|")

    def stream_accounting(self, path: Path, damaged: DamagedLines) -> Iterator[JobUse]:
        """Yield the jobs of a file that ``sacct -P`` or ``-p`` wrote."""
        return stream_sacct(path, damaged)

    def installed(self) -> bool:
        """Tell whether Slurm's commands are here."""
        return slurm.installed()

    def job_here(self) -> JobHere | None:
        """Return the job of Slurm that this process runs in, or None."""
        return SlurmJobHere.find()

    def watched(self) -> Watched:
        """Return what reads nodes, partitions and limits."""
        return availability

    def health(self) -> Health:
        """Return what checks Slurm's settings and hooks."""
        # Doctor alone needs it, and each verb loads this module.
        from advisor.schedulers.slurm import health

        return health

    def on_a_node(
        self, node_type: NodeType, argv: Sequence[str], *, limit_s: float, name: str
    ) -> CommandProcess:
        """Start the srun that runs ``argv`` on a node of its own."""
        return on_a_node(node_type, argv, limit_s=limit_s, name=name)

    def hooks(self, request: HookRequest) -> Hooks:
        """Return the hooks of Slurm."""
        from advisor.schedulers.slurm.hook_side import SlurmHooks

        return SlurmHooks(request)

    def available(self) -> str | None:
        """Return why no job can be submitted from here, or None."""
        for program in ("sbatch", "squeue", "sacct", "scontrol"):
            if shutil.which(program) is None:
                return f"{program} is not in PATH"
        try:
            answer = ask("scontrol", "ping", timeout_s=15)
        except SchedulerError as error:
            return str(error)
        # With a backup controller there are two lines, of which one may be down.
        return None if " UP" in answer else f"the controller is down: {answer.strip()}"

    def cluster(self) -> Cluster:
        """Return the cluster's nodes and partitions."""
        return read_cluster()

    def cluster_name(self) -> str:
        """Return ClusterName, as the accounting has it."""
        return this_cluster()

    def of_cluster(self, name: str) -> None:
        """Have Slurm's commands ask another cluster of the same accounting database."""
        os.environ[CLUSTERS] = name

    def frequency_kept(self, node_type: NodeType, launcher: str) -> str:
        """Return why frequency cannot be capped: no srun, or a task plugin that never does it."""
        settings = {n: value for n in BINDING_SETTINGS if (value := config_value(n))}
        return uncapped_launcher(launcher) or uncapped_by(settings)

    def gives_whole_nodes(self, partition: str) -> bool:
        """Tell whether Slurm gives every job of a partition whole nodes."""
        return gives_whole_nodes(partition)

    def finished_jobs(self, since: str) -> list[JobRecord]:
        """Return the jobs that ended since a time, steps included."""
        return sacct.finished_jobs(since)

    def unfinished_jobs(self) -> list[JobRecord]:
        """Return the jobs in the queue: id, user, state and time of submission."""
        return sacct.unfinished_jobs()

    def job(self, job_id: str) -> JobRecord | None:
        """Return one job's record with the advisor's stamp, None when unknown.

        Of a job that has not ended the controller knows more than the accounting.
        """
        try:
            record = sacct.job(job_id)
        except SchedulerError:
            record = queued_job(job_id)
            if record is None:
                raise
            return record
        if record is not None and record.finished:
            return record
        queued = queued_job(job_id)
        if queued is None or record is None:
            return queued or record
        return replace(record, state=queued.state, admin_comment=queued.admin_comment)


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


_TIMEOUT_S = 30.0
"""Seconds that the controller may take to answer."""


@dataclass(frozen=True, slots=True)
class SlurmJobHere:
    """A job of Slurm by its id, seen from one of its nodes."""

    id: str

    @classmethod
    def find(cls) -> SlurmJobHere | None:
        """Return the job that the environment names, None outside of jobs."""
        name = os.environ.get("SLURM_JOB_ID", "")
        return cls(name) if name else None

    def nodes(self) -> int:
        """Return how many nodes it has; 1 where nothing says so."""
        stated = os.environ.get("SLURM_JOB_NUM_NODES", "")
        return int(stated) if stated.isdecimal() else 1

    def steps(self) -> list[str]:
        """Return the steps that srun runs now, as JOB.STEP; none where Slurm does not answer."""
        command = ["squeue", "--noheader", "--steps", f"--jobs={self.id}", "--format=%i"]
        try:
            listed = ask(*command, timeout_s=_TIMEOUT_S)
        except SchedulerError:
            return []
        return [step for step in listed.split() if step.rpartition(".")[2].isdecimal()]

    def signal(self, step: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a step; a step that is gone is no error."""
        command = ["scancel", f"--signal={number.name.removeprefix('SIG')}", step]
        with contextlib.suppress(SchedulerError):
            ask(*command, timeout_s=_TIMEOUT_S)
