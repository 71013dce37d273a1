"""What ``sacct -P`` wrote into a file, as records: columns by name, in any order.

Needed are JobID, State, ElapsedRaw, NNodes, NCPUS and NodeList; steps (not ``-X``) hold tasks,
energy and frequency: NTasks, ConsumedEnergyRaw, ReqCPUFreqMax. Other columns of
:data:`~advisor.schedulers.slurm.accounting.FIELDS` are used where they are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path

from advisor.errors import InputError
from advisor.schedulers.accounting_lines import DamagedLines, numbered_lines
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.schedulers.slurm.accounting import (
    FIELDS,
    JOB_ID,
    again,
    is_count,
    job_use,
    parse,
    step_use,
)
from advisor.schedulers.slurm.control import time_of

NEEDED = ("JobID", "State", "ElapsedRaw", "NNodes", "NCPUS", "NodeList")
USE = (
    "JobID",
    "JobName",
    "User",
    "Account",
    "Partition",
    "State",
    "End",
    "ElapsedRaw",
    "NNodes",
    "NCPUS",
    "NTasks",
    "NodeList",
    "ConsumedEnergyRaw",
    "ReqCPUFreqMax",
    "AveCPUFreq",
    "SubmitLine",
)
"""What tells of use. The submit line stands last: it may hold anything, separators too."""
YEAR_COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct -a -P -S 2025-01-01 -E 2025-12-31T23:59:59 "
    f"{' '.join('-o ' + ','.join(USE[i : i + 4]) for i in range(0, len(USE), 4))} > year.txt"
)
_UNUSED = (".batch", ".extern", ".interactive")
"""Steps that tell nothing of a job's use that its own row does not."""
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
    absent_columns = [name for name in NEEDED if name not in columns]
    if absent_columns:
        raise InputError(
            f"{path}:1: there is no column {', '.join(absent_columns)}",
            hint=f"write it with {_EXAMPLE}",
        )
    if not any(line.strip() for line in lines):
        raise InputError(
            f"{path} has no jobs, only the columns' names",
            hint="sacct with --state lists none without --endtime=now",
        )
    rows, bad = [], 0
    rest = columns[-1] == "SubmitLine"
    start, continues = columns.index("JobID"), False
    for line in lines:
        values = line.split("|", len(columns) - 1 if rest else -1)
        if len(values) != len(columns):
            bad += bool(line.strip()) and not (continues and _is_no_row(values, start))
            continue
        continues = rest and values[-1] != ""
        row = dict(zip(columns, values, strict=True))
        if any(_unreadable(row.get(name, "")) for name in ("Submit", "End")):
            bad += 1
            continue
        rows.append("".join(row.get(n, "").replace(_SEPARATOR, "") + _SEPARATOR for n in FIELDS))
    return [job for job in again(parse("".join(rows), _SEPARATOR)) if job.finished], bad


def stream_sacct(path: Path, damaged: DamagedLines) -> Iterator[JobRecord]:
    """Yield the ended jobs of a file of any size, each with the steps that follow it.

    Raises InputError naming the columns that are missing, or for a file without any job.
    """
    lines = numbered_lines(path)
    columns = next((line for _, line in lines), "").strip().split("|")
    ends = 1 if columns[-1] == "" else 0  # of -p each line ends in a separator
    del columns[len(columns) - ends :]
    absent_columns = [name for name in NEEDED if name not in columns and name != "NodeList"]
    if absent_columns:
        raise InputError(
            f"{path}:1: there is no column {', '.join(absent_columns)}",
            hint=f"write it with {YEAR_COMMAND}",
        )
    rest = columns[-1] == "SubmitLine"
    place = {name: columns.index(name) for name in FIELDS if name in columns}
    job_id, job_row, steps = "", dict[str, str](), list[StepRecord]()
    names, columns_of = tuple(place), itemgetter(*place.values())
    blank = dict.fromkeys(FIELDS, "")
    start, width, jobs = place["JobID"], len(columns), 0
    first, continues = start == 0, False
    for number, line in lines:
        if first and line.partition("|")[0].endswith(_UNUSED):
            continue  # a third of all lines
        values = (line[:-1] if ends else line).split("|", width - 1 if rest else -1)
        if len(values) != width:
            if continues and _is_no_row(values, start):
                continue
            if line.strip():
                why = f"{len(values)} columns, not {width}"
                damaged.add(path, number, why)
            continue
        continues = rest and values[-1] != ""
        name, dot, step_id = values[start].partition(".")
        if dot:
            step_id = step_id.partition("+")[0]
            if not (step_id.isalnum() and name):
                damaged.add(path, number, "no job's or step's id")
            elif step_id.isdecimal() and name == job_id:
                row = blank.copy()
                row.update(zip(names, columns_of(values), strict=True))
                step = step_use(step_id, row)
                if step is None:
                    damaged.add(path, number, "a step's counts are no numbers")
                else:
                    steps.append(step)
            continue
        if job_row and (job := job_use(job_row, steps)) is not None:
            yield job
        job_row, job_id = dict(zip(names, columns_of(values), strict=True)), name
        steps = []
        why = _damage(name, job_row)
        if why:
            damaged.add(path, number, why)
            job_row, job_id = {}, ""
        else:
            jobs += 1
    if job_row and (job := job_use(job_row, steps)) is not None:
        yield job
    if not jobs:
        raise InputError(
            f"{path} has no jobs" + (f" ({damaged.first})" if damaged.count else ""),
            hint=f"write it with {YEAR_COMMAND}",
        )


def _is_no_row(values: Sequence[str], start: int) -> bool:
    """Tell whether a line has no job's id: a submit line goes on there, as after --wrap 'cd run."""
    return len(values) <= start or not JOB_ID.fullmatch(values[start].partition(".")[0])


def _damage(job_id: str, row: dict[str, str]) -> str:
    """Return why a job's row is none, "" where it is one."""
    if not JOB_ID.fullmatch(job_id):
        return "no job's or step's id"
    for name in ("ElapsedRaw", "NNodes", "NCPUS"):
        if row[name] and not is_count(row[name]):
            return f"{name} is no number"
    return ""


def _unreadable(text: str) -> bool:
    """Tell whether a time is neither seconds nor ISO 8601: another SLURM_TIME_FORMAT wrote it."""
    iso_time = time_of(text)
    try:
        return bool(iso_time) and not datetime.fromisoformat(iso_time)
    except ValueError:
        return True
