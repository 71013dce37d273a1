"""What ``sacct -P`` wrote into a file, as records: columns by name, in any order.

Needed are JobID, State, ElapsedRaw, NNodes, NCPUS and NodeList; steps (not ``-X``) hold tasks,
energy and frequency: NTasks, ConsumedEnergyRaw, ReqCPUFreqMax. Other columns of
:data:`~advisor.schedulers.slurm.accounting.FIELDS` are used where they are there.
"""

from __future__ import annotations

from pathlib import Path

from advisor.errors import InputError
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.accounting import FIELDS, again, parse

NEEDED = ("JobID", "State", "ElapsedRaw", "NNodes", "NCPUS", "NodeList")
_SEPARATOR = "\x1f"
_EXAMPLE = "sacct -P --format=JobID,JobName,User,Account,Partition,State,Submit,End,..."


def read_sacct(path: Path, text: str) -> tuple[list[JobRecord], int]:
    """Return the ended jobs of a file and how many of its lines were no row of it.

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
        rows.append("".join(row.get(n, "").replace(_SEPARATOR, "") + _SEPARATOR for n in FIELDS))
    return [job for job in again(parse("".join(rows), _SEPARATOR)) if job.finished], bad
