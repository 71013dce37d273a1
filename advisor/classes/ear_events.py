"""EAR's events (``eacct -x``): how long each phase of a step took, by EAR's own classification."""

from __future__ import annotations

import re
from pathlib import Path

from advisor.classes.base import BUSY, CPU, GPU, IO, MEMORY, MIXED, MPI
from advisor.classes.cells import FileLine, read_text
from advisor.errors import InputError

CLASS_OF_PHASE = {
    "CPU_BOUND": CPU,
    "MEM_BOUND": MEMORY,
    "MIX_COMP": MIXED,
    "CPU_BUSY_WAITING": BUSY,
    "MPI_PHASE": MPI,
    "IO_PHASE": IO,
    "CPU-GPU_PHASE": GPU,
}
"""Our class for each phase that EAR sums up; its COMP_PHASE is the sum of the first three."""
_TYPE, _JOB, _STEP, _VALUE = "EVENT_TYPE", "JOB_ID", "STEP_ID", "VALUE"

PhaseTimes = dict[tuple[str, str], dict[str, float]]
"""Seconds in each class, by job and step; those of the node that was longest in it."""


def read_events(path: Path) -> PhaseTimes:
    """Read a table of events; columns are found by name, whatever is between them.

    Events of other kinds are passed over. Raises InputError that names file, line and column.
    """
    rows = [
        (n, re.findall(r"[^\s;,|]+", row)) for n, row in enumerate(read_text(path).splitlines(), 1)
    ]
    (first, head), *rest = [row for row in rows if row[1]]
    names = [name.upper().replace("JOBID", _JOB).replace("STEPID", _STEP) for name in head]
    for column in (_TYPE, _JOB, _STEP, _VALUE):
        if column not in names:
            raise InputError(
                f"{path}, line {first}, {column}: the column is missing",
                hint="eacct -x JOB prints events below such a header",
            )
    phases: PhaseTimes = {}
    for number, cells in rest:
        event = next((cell for cell in cells if cell in CLASS_OF_PHASE), "")
        if not event:
            continue
        shift = cells.index(event) - names.index(_TYPE)  # a date before it may hold a blank
        line = FileLine(path, number, dict(zip(names, cells[max(shift, 0) :], strict=False)))
        milliseconds = line.number_of((_VALUE,))
        if milliseconds is None:
            raise line.bad(_VALUE, f"the row of {event} ends before it")
        seconds = phases.setdefault((line.text((_JOB,)), line.text((_STEP,))), {})
        name = CLASS_OF_PHASE[event]
        seconds[name] = max(seconds.get(name, 0.0), milliseconds / 1e3)
    return phases
