"""Questions to Slurm: its commands, and what its controller says."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from advisor.core.cluster_name import cluster_name
from advisor.errors import SchedulerError
from advisor.schedulers.command import Shaping, run_command
from advisor.schedulers.slurm.table import parse_limit

if TYPE_CHECKING:  # whoever decides asks here whether Slurm is installed, and needs no more
    from advisor.schedulers.base import JobRecord

UNFINISHED = frozenset(
    {
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "COMPLETING",
        "CONFIGURING",
        "REQUEUED",
        "RESIZING",
        "STOPPED",
        "SIGNALING",
        "STAGE_OUT",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "RESV_DEL_HOLD",
    }
)
"""States of a job that may still run."""
CLUSTERS = "SLURM_CLUSTERS"
"""The variable by which Slurm's commands ask another cluster than this host's."""
_SHAPING = Shaping(
    ("SACCT_", "SACCTMGR_", "SCANCEL_", "SCONTROL_", "SINFO_", "SQUEUE_"),
    # It cuts the list of an array's tasks that squeue prints.
    frozenset({"SLURM_BITSTR_LEN"}),
    {"SLURM_TIME_FORMAT": "%s"},
)
"""Times are seconds since 1970, so that no change of the clock sorts them wrongly."""


def ask(*argv: str, timeout_s: float = 60.0) -> str:
    """Run a command of Slurm and return its stdout, without the user's own formats and filters.

    Raises SchedulerError with its stderr.
    """
    return run_command(argv, _SHAPING, timeout_s=timeout_s)


def time_of(text: str) -> str:
    """Return a time that Slurm printed as ISO 8601, "" for none (Unknown, None).

    Seconds since 1970 become UTC; another text, out of somebody's file, stays as it is.
    """
    text = text.strip()
    if text in ("Unknown", "None", "N/A", "(null)"):
        return ""
    if not text.isdecimal():
        return text
    try:
        return datetime.fromtimestamp(int(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def config_value(key: str) -> str:
    """Return a value of the controller's configuration, "" when it cannot be asked."""
    try:
        text = ask("scontrol", "show", "config")
    except SchedulerError:
        return ""
    match = re.search(rf"^{re.escape(key)}\s*=\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def energy_plugin() -> str:
    """Return the plugin that meters Slurm's steps, "" for none."""
    plugin = config_value("AcctGatherEnergyType").removeprefix("acct_gather_energy/")
    return "" if plugin in ("none", "(null)") else plugin


def this_cluster() -> str:
    """Return the cluster that is asked, as Slurm's accounting names it; "" where nobody says."""
    named = cluster_name(os.environ.get(CLUSTERS))
    return (named or cluster_name(config_value("ClusterName"))).lower()


def partition_minutes(partition: str) -> int | None:
    """Return a partition's MaxTime in minutes, None when it has none or cannot be asked."""
    if not partition:
        return None
    try:
        text = ask("scontrol", "show", "partition", partition)
    except SchedulerError:
        return None
    match = re.search(r"\bMaxTime=(\S+)", text)
    try:
        seconds = parse_limit(match[1]) if match else None
    except ValueError:
        return None
    return None if seconds is None else seconds // 60


def gives_whole_nodes(partition: str) -> bool:
    """Tell whether a partition gives every job whole nodes; no when it cannot be asked."""
    # This plugin hands out nothing but whole nodes.
    if config_value("SelectType") == "select/linear":
        return True
    if not partition:
        return False
    try:
        text = ask("scontrol", "show", "partition", partition)
    except SchedulerError:
        return False
    return "OverSubscribe=EXCLUSIVE" in text.split()


def queued_job(job_id: str) -> JobRecord | None:
    """Return a job as the controller has it now, None when it has none such.

    The accounting learns the admin comment only when a job ends; the controller knows it before.
    """
    from advisor.schedulers.base import JobRecord

    try:
        text = ask("scontrol", "show", "job", job_id)
    except SchedulerError:
        return None

    def value(key: str) -> str:
        match = re.search(rf"^(?:.*\s)?{key}=(\S*)", text, re.MULTILINE)
        return "" if match is None or match[1] in ("(null)", "Unknown", "N/A") else match[1]

    comment = re.search(r"^ +AdminComment=(.*)$", text, re.MULTILINE)
    first = text.splitlines()[0] if text else ""
    if not first.startswith("JobId="):
        return None
    # Of a job that waits it may be a range.
    nodes = value("NumNodes").split("-")[0]
    return JobRecord(
        job_id=job_id,
        name=first.partition("JobName=")[2].strip(),
        user=value("UserId").partition("(")[0],
        account=value("Account"),
        state=value("JobState"),
        finished=value("JobState") not in UNFINISHED,
        submitted_at=time_of(value("SubmitTime")),
        nodes=int(nodes) if nodes.isdecimal() else 0,
        node_list=value("NodeList"),
        partition=value("Partition"),
        admin_comment=comment[1].strip() if comment else "",
    )
