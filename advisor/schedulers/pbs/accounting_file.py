"""PBS's accounting logs as records: the E record of each job that ended.

Format: the chapter on accounting of the Altair PBS Professional Administrator's Guide: a line
``date time;E;id;key=value key=value ...``, resources as ``Resource_List.NAME`` and
``resources_used.NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor.schedulers.accounting_lines import DamagedLines, numbered_lines
from advisor.schedulers.base import JobRecord
from advisor.schedulers.pbs.accounting import record_of

_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;(\w);([^;]*);(.*)")
_PAIR = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')
_NAMES = {
    "user": "Job_Owner",
    "account": "Account_Name",
    "jobname": "Job_Name",
    "queue": "queue",
    "ctime": "ctime",
    "end": "obittime",
    "exec_host": "exec_host",
    "Exit_status": "Exit_status",
    "run_count": "run_count",
}


def read_log(path: Path, text: str) -> tuple[list[JobRecord], int]:
    """Return the jobs of a log's E records and how many lines were no record.

    A job that ran again has several: the last one counts. Raises InputError for no log at all.
    """
    by_job: dict[str, JobRecord] = {}
    bad = record_count = 0
    for line in text.splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            bad += bool(line.strip())
            continue
        record_count += 1
        record = record_of(match[2], _attributes(match[3])) if match[1] == "E" else None
        if record is not None:
            by_job[record.job_id] = record
    if bad and not record_count:
        raise InputError(
            f"{path}: this is not an accounting log of PBS",
            hint="name a file of server_priv/accounting",
        )
    return list(by_job.values()), bad


def is_record(line: str) -> bool:
    """Tell whether a line is a record of a log."""
    return _LINE.fullmatch(line.rstrip()) is not None


def stream_log(path: Path, damaged: DamagedLines) -> Iterator[JobRecord]:
    """Yield the job of each E record. Raises InputError for what is no log at all."""
    record_count = 0
    for number, line in numbered_lines(path):
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            if line.strip():
                damaged.add(path, number, "no record of PBS's accounting")
            continue
        record_count += 1
        if match[1] != "E":
            continue
        try:
            record = record_of(match[2], _attributes(match[3]))
        except (ValueError, OverflowError):  # a number that is none, or beyond all
            record = None
        if record is None or not record.nodes or record.elapsed_s is None:
            damaged.add(path, number, "an E record without job, hosts or time")
        else:
            yield record
    if not record_count:
        raise InputError(
            f"{path}: this is not an accounting log of PBS",
            hint="name a file of server_priv/accounting",
        )


def _attributes(message: str) -> Mapping[str, Any]:
    """Return an E record's message in the form of qstat's JSON."""
    attributes: dict[str, Any] = {"job_state": "F", "Resource_List": {}, "resources_used": {}}
    for name, quoted in _PAIR.findall(message):
        value = quoted[1:-1].replace('\\"', '"') if quoted.startswith('"') else quoted
        kind, _, resource = name.partition(".")
        if resource and kind in ("Resource_List", "resources_used"):
            attributes[kind][resource] = value
        elif name in _NAMES:
            attributes[_NAMES[name]] = value
    return attributes
