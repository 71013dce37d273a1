"""What ``sacct -P`` wrote into a file, as records: columns by name, in any order.

Needed are JobID, State, ElapsedRaw, NNodes, NCPUS and NodeList; steps (not ``-X``) hold tasks,
energy and frequency: NTasks, ConsumedEnergyRaw, ReqCPUFreqMax. Other columns of
:data:`~advisor.schedulers.slurm.accounting.FIELDS` are used where they are there.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from advisor.errors import InputError
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.accounting import FIELDS, again, parse
from advisor.schedulers.slurm.control import time_of

NEEDED = ("JobID", "State", "ElapsedRaw", "NNodes", "NCPUS", "NodeList")
_SEPARATOR = "\x1f"
_EXAMPLE = (
    "SLURM_TIME_FORMAT=%s sacct -P --format=JobID,JobName,User,Account,Partition,State,Submit,..."
)


def read_sacct(path: Path, text: str) -> tuple[list[JobRecord], int]:
    """Return the ended jobs of a file and how many of its lines were no row of it.

    Times without a zone are this host's; where its clock changes they may be told apart by
    seconds since 1970 alone (``SLURM_TIME_FORMAT=%s``).
    Raises InputError naming the columns that are missing, or for a file without any row.
    """
    head, *lines = text.splitlines() or [""]
    columns = head.strip().split("|")
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise InputError(
            f"{path}:1: there is no column {', '.join(missing)}", hint=f"write it with {_EXAMPLE}"
        )
    if not any(line.strip() for line in lines):
        raise InputError(
            f"{path} has no jobs, only the columns' names",
            hint="sacct with --state lists none without --endtime=now",
        )
    rows, bad = [], 0
    for line in lines:
        values = line.split("|")
        if len(values) != len(columns):
            bad += bool(line.strip())
            continue
        row = dict(zip(columns, values, strict=True))
        if any(_unreadable(row.get(name, "")) for name in ("Submit", "End")):
            bad += 1
            continue
        rows.append("".join(row.get(n, "").replace(_SEPARATOR, "") + _SEPARATOR for n in FIELDS))
    return [job for job in again(parse("".join(rows), _SEPARATOR)) if job.finished], bad


def _unreadable(text: str) -> bool:
    """Tell whether a time is neither seconds nor ISO 8601: another SLURM_TIME_FORMAT wrote it."""
    written = time_of(text)
    try:
        return bool(written) and not datetime.fromisoformat(written)
    except ValueError:
        return True
