"""Logs in the Standard Workload Format, as jobs: what the Parallel Workloads Archive keeps.

A line has 18 numbers, -1 for what is not known: Feitelson, "The Standard Workload Format",
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. Names are numbers, energy there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from advisor.errors import InputError
from advisor.schedulers.accounting_lines import DamagedLines, numbered_lines
from advisor.schedulers.base import JobUse

SWF = "swf"
"""What ``--from`` calls it."""
COMMENT = ";"
"""How lines of the header begin."""
_FIELDS = 18
_JOB, _SUBMITTED, _WAIT, _TIME, _PROCESSORS = range(5)
_STATUS, _USER, _GROUP, _PROGRAM, _QUEUE, _PARTITION = range(10, 16)
_STATES = {-1: "COMPLETED", 0: "FAILED", 1: "COMPLETED", 5: "CANCELLED"}
"""The others are parts of a job that was checkpointed, which has a line of its own as well."""
_MOST = 1e12
"""No field is as large."""


def stream_swf(path: Path, damaged: DamagedLines, cores: int = 0) -> Iterator[JobUse]:
    """Yield the jobs of a file of any size. ``cores`` are of a node, 0 for what the header says.

    A job is taken to have whole nodes if its processors fill them. Raises InputError for a file
    without any job, and where neither ``cores`` nor the header tell a node's processors.
    """
    header: dict[str, int] = {}
    jobs = 0
    for number, line in numbered_lines(path):
        if line.lstrip().startswith(COMMENT):
            key, _, text = line.lstrip(f"{COMMENT} \t").partition(":")
            word = text.split()[0] if text.split() else ""
            if word.isascii() and word.isdecimal():
                header.setdefault(key.strip(), int(word[:18]))
            continue
        if not line.strip():
            continue
        values = _numbers(line.split())
        if values is None:
            damaged.add(path, number, f"not {_FIELDS} numbers")
            continue
        if not jobs:
            cores = cores or _cores(path, header)
        jobs += 1
        job = _record(values, cores, header.get("UnixStartTime", 0))
        if job is not None:
            yield job
    if not jobs:
        why = f", the first line that is none: {damaged.first}" if damaged.count else ""
        raise InputError(f"{path} has no jobs{why}", hint="a job is a line of 18 numbers")


def _cores(path: Path, header: dict[str, int]) -> int:
    """Return the processors of a node, by the header. Raises InputError where it has none."""
    nodes, processors = header.get("MaxNodes", 0), header.get("MaxProcs", 0)
    if 0 < nodes < processors:
        return max(1, processors // nodes)
    raise InputError(
        f"{path}: its header does not say how many processors a node has "
        f"(MaxNodes {nodes or 'missing'}, MaxProcs {processors or 'missing'})",
        hint="state the one node type of the log, with its cores, in --site FILE",
    )


def _numbers(words: list[str]) -> list[float] | None:
    if len(words) != _FIELDS:
        return None
    try:
        values = [float(word) for word in words]
    except ValueError:
        return None
    # a sum is finite only where all numbers are
    good = isfinite(sum(values)) and min(values) > -_MOST and max(values) < _MOST
    return values if good else None


def _record(values: list[float], cores: int, began_s: int) -> JobUse | None:
    state = _STATES.get(int(values[_STATUS]))
    if state is None:
        return None
    processors, program = max(0, int(values[_PROCESSORS])), int(values[_PROGRAM])
    ended_s = began_s + values[_SUBMITTED] + max(0.0, values[_WAIT]) + max(0.0, values[_TIME])
    return JobUse(
        str(int(values[_JOB])),
        f"executable_{program}" if program > 0 else "",
        f"user_{int(values[_USER])}",
        f"group_{int(values[_GROUP])}",
        _place(int(values[_PARTITION]), int(values[_QUEUE])),
        state,
        ended_at=str(int(ended_s)) if began_s and ended_s > 0 else "",
        elapsed_s=max(0.0, values[_TIME]),
        nodes=-(-processors // cores),
        cpus=processors,
        whole_nodes=processors % cores == 0,
    )


def _place(partition: int, queue: int) -> str:
    if partition > 0:
        return f"partition_{partition}"
    return f"queue_{queue}" if queue >= 0 else ""
