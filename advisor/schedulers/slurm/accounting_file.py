"""What ``sacct -P`` wrote into a file, as records: columns by name, in any order.

Needed are JobID, State, ElapsedRaw, NNodes, NCPUS and NodeList; steps (not ``-X``) hold tasks,
energy and frequency: NTasks, ConsumedEnergyRaw, ReqCPUFreqMax. Other columns of
:data:`~advisor.schedulers.slurm.accounting.FIELDS` are used where they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path

from advisor.errors import InputError
from advisor.schedulers.accounting_lines import DamagedLines, numbered_lines
from advisor.schedulers.base import JobRecord, JobUse, StepUse
from advisor.schedulers.slurm.accounting import (
    FIELDS,
    JOB_ID,
    JOB_USE,
    STEP_USE,
    again,
    count,
    job_use,
    parse,
    step_use,
)
from advisor.schedulers.slurm.control import time_of

NEEDED = ("JobID", "State", "ElapsedRaw", "NNodes", "NCPUS", "NodeList")
USE = (*dict.fromkeys((*JOB_USE[:-1], *STEP_USE)), JOB_USE[-1])
"""What tells of use. The submit line stands last: it may hold anything, separators too."""
YEAR_COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct -a -P -S 2025-01-01 -E 2025-12-31T23:59:59 "
    f"{' '.join('-o ' + ','.join(USE[i : i + 4]) for i in range(0, len(USE), 4))} > year.txt"
)
_UNUSED = (".batch", ".extern", ".interactive")
"""Steps that tell nothing of a job's use that its own row does not."""
_COUNTED = slice(JOB_USE.index("ElapsedRaw"), JOB_USE.index("NCPUS") + 1)
_COUNTS = JOB_USE[_COUNTED]
_ABSENT = ""
"""What stands behind a row's cells, for the columns that the file has not."""
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


def stream_sacct(path: Path, damaged: DamagedLines) -> Iterator[JobUse]:
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
    job_cells, step_cells = _cells(columns, JOB_USE), _cells(columns, STEP_USE)
    start, width, jobs = columns.index("JobID"), len(columns), 0
    splits = width - 1 if rest else -1
    job_id, job, steps = "", None, list[StepUse]()
    first, continues = start == 0, False
    for number, line in lines:
        if first and line.partition("|")[0].endswith(_UNUSED):
            continue  # a third of all lines
        values = (line[:-1] if ends else line).split("|", splits)
        if len(values) != width:
            if continues and _is_no_row(values, start):
                continue
            if line.strip():
                why = f"{len(values)} columns, not {width}"
                damaged.add(path, number, why)
            continue
        continues = rest and values[-1] != ""
        values.append(_ABSENT)
        name, dot, step_id = values[start].partition(".")
        if dot:
            step_id = step_id.partition("+")[0]
            if not (step_id.isalnum() and name):
                damaged.add(path, number, "no job's or step's id")
            elif step_id.isdecimal() and name == job_id:
                step = step_use(step_cells(values))
                if step is None:
                    damaged.add(path, number, "a step's counts are no numbers")
                else:
                    steps.append(step)
            continue
        if job and (ended := job_use(job, steps)) is not None:
            yield ended
        job, job_id, steps = job_cells(values), name, []
        why = _damage(job)
        if why:
            damaged.add(path, number, why)
            job, job_id = None, ""
        else:
            jobs += 1
    if job and (ended := job_use(job, steps)) is not None:
        yield ended
    if not jobs:
        raise InputError(
            f"{path} has no jobs" + (f" ({damaged.first})" if damaged.count else ""),
            hint=f"write it with {YEAR_COMMAND}",
        )


def _cells(columns: Sequence[str], names: Sequence[str]) -> Callable[[list[str]], Sequence[str]]:
    """Return what takes some columns of a row behind which :data:`_ABSENT` stands."""
    return itemgetter(*(columns.index(n) if n in columns else len(columns) for n in names))


def _is_no_row(values: Sequence[str], start: int) -> bool:
    """Tell whether a line has no job's id: a submit line goes on there, as after --wrap 'cd run."""
    return len(values) <= start or not JOB_ID.fullmatch(values[start].partition(".")[0])


def _damage(job: Sequence[str]) -> str:
    """Return why a job's row is none, "" where it is one."""
    if not JOB_ID.fullmatch(job[0]):
        return "no job's or step's id"
    for name, text in zip(_COUNTS, job[_COUNTED], strict=True):
        if count(text) is None:
            return f"{name} is no number"
    return ""


def _unreadable(text: str) -> bool:
    """Tell whether a time is neither seconds nor ISO 8601: another SLURM_TIME_FORMAT wrote it."""
    iso_time = time_of(text)
    try:
        return bool(iso_time) and not datetime.fromisoformat(iso_time)
    except ValueError:
        return True
