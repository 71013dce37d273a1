"""EAR's reports (``eacct -c``) as jobs: a row is one node of a job's step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from advisor.classes import ear
from advisor.core.power import is_possible
from advisor.errors import InputError
from advisor.schedulers.accounting_lines import DamagedLines, numbered_lines
from advisor.schedulers.base import JobRecord, StepRecord

EAR = "ear"
"""What ``--from`` calls it."""
COMMAND = "eacct -l -n all -c year.csv"
_MOST_S = 1e9
"""No step takes as long (s)."""


def stream_ear(path: Path, damaged: DamagedLines) -> Iterator[JobRecord]:
    """Yield the jobs of a file of any size; rows of a job that stand together are one.

    EAR counts whole nodes, so its jobs are taken to have had them alone. Raises InputError for
    a file without EAR's columns or without any job.
    """
    lines = numbered_lines(path)
    names = [name.strip() for name in next((line for _, line in lines), "").split(";")]
    place = {
        kind: next((names.index(name) for name in columns if name in names), -1)
        for kind, columns in (
            ("job", ear.JOB),
            ("step", ear.STEP),
            ("node", ear.NODE),
            ("name", ear.APPLICATION),
            ("user", ear.USER),
            ("account", ear.ACCOUNT),
            ("time", ear.TIME),
            ("power", ear.POWER),
            ("freq", ear.FREQ),
        )
    }
    lacking = [kind for kind in ("job", "step", "node", "time", "power") if place[kind] < 0]
    if lacking:
        raise InputError(
            f"{path}:1: no report of EAR: there is no column of its {lacking[0]}",
            hint=f"write it with {COMMAND}",
        )
    job: list[tuple[int, list[str]]] = []
    jobs = 0
    for number, line in lines:
        cells = [cell.strip() for cell in line.split(";")]
        if len(cells) < len(names):
            if line.strip():
                damaged.add(path, number, f"{len(cells)} columns, not {len(names)}")
            continue
        if _number(cells[place["time"]]) is None or not cells[place["job"]]:
            damaged.add(path, number, "no job's id, or a time that is no number")
            continue
        if job and job[0][1][place["job"]] != cells[place["job"]]:
            jobs += 1
            yield _job([cells for _, cells in job], place)
            job = []
        job.append((number, cells))
    if job:
        yield _job([cells for _, cells in job], place)
    elif not jobs:
        raise InputError(f"{path} has no jobs", hint=f"write it with {COMMAND}")


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < _MOST_S else None


def _job(rows: Sequence[Sequence[str]], place: dict[str, int]) -> JobRecord:
    """Join the rows of a job: its steps one after the other, each as long as its longest node."""
    steps: dict[str, list[Sequence[str]]] = {}
    for row in rows:
        steps.setdefault(row[place["step"]], []).append(row)
    records: list[StepRecord] = []
    for nodes in steps.values():
        times_s = [_number(row[place["time"]]) or 0.0 for row in nodes]
        powers_w = [_number(row[place["power"]]) or 0.0 for row in nodes]
        energy_j = sum(t * p for t, p in zip(times_s, powers_w, strict=True))
        possible = is_possible(energy_j, max(times_s), len(nodes))
        records.append(
            StepRecord(
                str(len(records)),
                "",
                "COMPLETED",
                max(times_s),
                len(nodes),
                0,
                energy_j if possible else None,
                energy_impossible=energy_j > 0 and not possible,
            )
        )

    def text(kind: str) -> str:
        return rows[0][place[kind]] if place[kind] >= 0 else ""

    energies = [step.energy_j for step in records]
    return JobRecord(
        text("job"),
        text("name"),
        text("user"),
        text("account"),
        "COMPLETED",
        elapsed_s=sum(step.elapsed_s or 0.0 for step in records),
        nodes=max(step.nodes for step in records),
        node_list=",".join(dict.fromkeys(row[place["node"]] for row in rows)),
        energy_j=None if None in energies else sum(e or 0.0 for e in energies),
        whole_nodes=True,
        steps=tuple(records),
    )
