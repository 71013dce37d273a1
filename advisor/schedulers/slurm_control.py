"""Questions to Slurm's controller."""

from __future__ import annotations

import re

from advisor.core.units import parse_slurm_time
from advisor.errors import SchedulerError
from advisor.schedulers.sacct import run_command


def config_value(key: str) -> str:
    """Return a value of the controller's configuration, "" when it cannot be asked."""
    try:
        text = run_command(["scontrol", "show", "config"])
    except SchedulerError:
        return ""
    match = re.search(rf"^{re.escape(key)}\s*=\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def partition_minutes(partition: str) -> int | None:
    """Return a partition's MaxTime in minutes, None when it has none or cannot be asked."""
    if not partition:
        return None
    try:
        text = run_command(["scontrol", "show", "partition", partition])
    except SchedulerError:
        return None
    match = re.search(r"\bMaxTime=(\S+)", text)
    try:
        seconds = parse_slurm_time(match[1]) if match else None
    except ValueError:
        return None
    return None if seconds is None else seconds // 60
