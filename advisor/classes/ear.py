"""EAR's reports: CSV of ``eacct -c`` and of EAR's report plug-ins, releases 4 to 6.

Columns are found by name. A row is one node of a job's step; the nodes of a step are joined.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from advisor.classes.cells import FileLine, read_text
from advisor.errors import InputError

EnergyKind = Literal["measured", "clamped", "missing"]

NODE, JOB, STEP = ("NODENAME", "NODE_ID"), ("JOBID", "JOB_ID", "JID"), ("STEPID", "STEP_ID")
APPLICATION = ("JOBNAME", "APP_ID", "APPNAME")
USER, ACCOUNT = ("USERID", "USER_ID", "USERNAME"), ("ACCOUNTID", "USER_ACC")
POLICY, PROCESSES = ("POLICY",), ("JOB_NPROCS",)
TIME, LOOP_TIME = ("TIME_SEC", "TIME"), ("ITER_TIME_SEC",)
POWER = ("DC_NODE_POWER_W", "DC-NODE-POWER")
CPI, TPI, GBS = ("CPI",), ("TPI",), ("MEM_GBS", "GBS")
GFLOPS = ("CPU_GFLOPS", "CPU-GFLOPS", "GFLOPS")
IO_MBS, MPI, CPU_UTIL = ("IO_MBS",), ("PERC_MPI", "P.MPI"), ("CPU_UTIL",)
CYCLES, INSTRUCTIONS = ("CYCLES",), ("INSTRUCTIONS",)
FREQ = ("DEF_FREQ_KHZ", "DEF.FREQ")
MANAGER_TIME, MANAGER_POWER = ("NODEMGR_TIME_SEC",), ("NODEMGR_DC_NODE_POWER_W",)
_NEEDED = (NODE, JOB, STEP, CPI, GBS, POWER)
_LOOPS = {"ITER_TIME_SEC", "ITERATIONS", "FIRST_EVENT", "LOOPID"}
_GPU = re.compile(r"GPU\d+_(?:POWER|FREQ|MEM_FREQ|UTIL|MEM_UTIL|GFLOPS|TEMP|MEMTEMP)\w*")
_GPU_UTIL = re.compile(r"GPU(\d+)_UTIL(?:_PERC)?")
_GLUED = ("JOB_DEF_FREQEARL_ENABLED", "JOB_DEF_FREQ;EARL_ENABLED")
"""EAR 5.2.0 forgets a semicolon in its header."""
_MOST = 10_000_000
"""Processes, or kHz, that no job has more of."""
_ROUND_W = 50
"""A lone greatest power is a limit if it is a multiple of this (W) among values with decimals."""


@dataclass(frozen=True, slots=True)
class EarStep:
    """One step of a job, its nodes joined; None where EAR counted nothing.

    ``time_s`` is the longest node's, None in a file of loops; ``power_w`` the mean of its nodes.
    """

    job: str
    step: str
    application: str
    user: str
    account: str
    policy: str
    nodes: int
    processes: int | None
    freq_khz: int
    cpi: float | None
    tpi: float | None
    gflops: float | None
    gbs: float | None
    io_mbs: float | None
    mpi_percent: float | None
    gpu_util: float | None
    cpu_util: float | None
    power_w: float | None
    time_s: float | None
    energy_j: float | None
    energy: EnergyKind
    node_names: tuple[str, ...]

    @property
    def counted(self) -> bool:
        """Whether EAR counted anything but time and power."""
        measures = (self.cpi, self.gflops, self.gbs, self.gpu_util)
        return any(measure is not None for measure in measures)


@dataclass(frozen=True, slots=True)
class EarFile:
    """A file's steps in its order, EAR's release (whose scale TPI has), and whether of loops."""

    steps: tuple[EarStep, ...]
    release: str
    loops: bool


@dataclass(slots=True)
class _Node:
    """What the rows of one node of a step come to."""

    time_s: float = 0.0
    energy_j: float = 0.0
    cycles: float = 0.0
    instructions: float = 0.0
    transactions: float = 0.0
    traced: float = 0.0
    """Instructions of the rows that have transactions."""
    rates: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Per measure, each row's value and time."""

    def add(self, name: str, value: float | None, time_s: float) -> None:
        if value is not None:
            self.rates.setdefault(name, []).append((value, time_s))

    def mean(self, name: str) -> float | None:
        readings = self.rates.get(name, ())
        if len(readings) < 2:
            return readings[0][0] if readings else None
        return sum(value * seconds for value, seconds in readings) / sum(s for _, s in readings)


def read_ear(path: Path, *, nodes: Collection[str] = (), limit_w: float | None = None) -> EarFile:
    """Read a file.

    ``nodes`` are those of the node type, where they are known; ``limit_w`` the power that EAR cuts
    readings off at. Raises InputError that names file, line and column of the first mistake.
    """
    names, lines = _lines(path, read_text(path))
    loops = bool(_LOOPS & set(names))
    clamped = _limits([line.cells for line in lines], limit_w)
    steps: dict[tuple[str, str], dict[str, list[FileLine]]] = {}
    earlier_rows: set[tuple[str, ...]] = set()
    short = {node.partition(".")[0] for node in nodes}
    for line in lines:
        cells = tuple(line.cells.values())
        if cells in earlier_rows and not loops:
            continue  # a report that was appended twice
        earlier_rows.add(cells)
        node = line.text(NODE)
        if not node:
            raise line.bad(line.first(NODE) or NODE[0], "is blank")
        if short and node.partition(".")[0] not in short:
            node_names = ", ".join(sorted(nodes)[:4]) + (", ..." if len(nodes) > 4 else "")
            raise line.bad(
                line.first(NODE) or NODE[0],
                f"node {node!r} is not of this node type ({node_names})",
            )
        key = _number_text(line, JOB), _number_text(line, STEP)
        steps.setdefault(key, {}).setdefault(node, []).append(line)
    ear_steps = [
        _step(job, step, by_node, loops, clamped) for (job, step), by_node in steps.items()
    ]
    return EarFile(tuple(ear_steps), _release(names), loops)


def _lines(path: Path, text: str) -> tuple[list[str], list[FileLine]]:
    rows = [(n, row.split(";")) for n, row in enumerate(text.splitlines(), 1) if row.strip()]
    (number, head), *rest = rows
    head = ";".join(head).replace(*_GLUED).split(";")
    names = [name.strip() for name in head]
    place = f"{path}, line {number}"
    if len(names) == 1:
        for mark, word in ((",", "commas"), ("\t", "tabs"), ("|", "bars")):
            if mark in head[0]:
                raise InputError(f"{place}: columns are separated by {word}, not semicolons")
    if not {n for column in _NEEDED for n in column} & set(names):
        raise InputError(f"{place}: no header: the first line does not name EAR's columns")
    for column in (*_NEEDED, (*TIME, *LOOP_TIME)):
        if not set(column) & set(names):
            raise InputError(f"{place}, {column[0]}: the column is missing")
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"{place}, {twice}: the column is there twice")
    if not rest:
        raise InputError(f"{place}: there is only a header")
    lines = []
    for number, cells in rest:
        if len(cells) != len(names) and any(_GPU.fullmatch(n) for n in names[len(cells) :]):
            names_here = [n for n in names if not _GPU.fullmatch(n)]  # EAR's header may list GPUs
        else:  # that its rows do not have
            names_here = names
        if len(cells) != len(names_here):
            last = names[min(len(cells), len(names)) - 1]
            raise InputError(
                f"{path}, line {number}, {last}: the row ends here with {len(cells)} cells, but "
                f"the header has {len(names)} columns"
                if len(cells) < len(names)
                else f"{path}, line {number}: {len(cells)} cells, but the header has {len(names)}"
            )
        lines.append(FileLine(path, number, dict(zip(names_here, cells, strict=True))))
    return names, lines


def _release(names: Collection[str]) -> str:
    """Return EAR's release by the names of its columns."""
    if "DC-NODE-POWER" in names:
        return "4"
    return "6" if "STALLS_MEMORY" in names else "5"


def _number_text(line: FileLine, names: Sequence[str]) -> str:
    """Return a number of a job or step as it is written."""
    column, text = line.first(names) or names[0], line.text(names)
    if not text.isdecimal():
        batch = "the batch script's step, as eacct's table shows it"
        what = batch if text == "sb" else "not a number"
        raise line.bad(column, f"{text!r} is {what}")
    return text


def _limits(rows: Sequence[Mapping[str, str]], limit_w: float | None) -> frozenset[float]:
    """Return the powers that are limits of the meter: the greatest, where several rows have it.

    Two rows of the same power and no other are too few to tell. A lone round one among values with
    decimals is one, too: EAR writes what it cut off so.
    """
    texts = [row[name].strip() for row in rows for name in POWER if name in row]
    values = Counter()  # type: Counter[float]
    for text in texts:
        try:
            values[float(text)] += 1
        except ValueError:
            continue
    most = max(values, default=0.0)
    limits_w = set() if limit_w is None else {limit_w}
    lower_values = [v for v in values if v != most]
    odd = len(lower_values) >= 3 and all(round(v * 100) != v * 100 for v in lower_values)
    repeated = values[most] > (1 if lower_values else 2)
    if most and (repeated or (odd and most % _ROUND_W == 0)):
        limits_w.add(most)
    return frozenset(limits_w)


def _step(
    job: str,
    step: str,
    by_node: Mapping[str, list[FileLine]],
    loops: bool,
    limits: frozenset[float],
) -> EarStep:
    nodes, powers, clamped = [], [], False
    for lines in by_node.values():
        node = _Node()
        for line in lines:
            time_s, power_w = _time_and_power(line, loops)
            clamped |= power_w in limits
            node.time_s += time_s
            node.energy_j += time_s * (power_w or 0.0)
            node.add("power_w", power_w, time_s)
            _count(node, line, time_s)
        nodes.append(node)
        powers.append(node.mean("power_w"))
    first = next(iter(by_node.values()))[0]
    every = [line for lines in by_node.values() for line in lines]
    instructions = sum(n.instructions for n in nodes)
    traced = sum(n.traced for n in nodes)
    power_known = all(p is not None for p in powers)
    processes = _count_of(first, PROCESSES)
    return EarStep(
        job,
        step,
        first.text(APPLICATION),
        first.text(USER),
        first.text(ACCOUNT),
        first.text(POLICY),
        len(nodes),
        processes or None,
        max(_count_of(line, FREQ) for line in every),
        sum(n.cycles for n in nodes) / instructions if instructions else _mean(nodes, "cpi"),
        sum(n.transactions for n in nodes) / traced if traced else _mean(nodes, "tpi"),
        _mean(nodes, "gflops"),
        _mean(nodes, "gbs"),
        _mean(nodes, "io_mbs"),
        _mean(nodes, "mpi_percent"),
        _mean(nodes, "gpu_util"),
        _mean(nodes, "cpu_util"),
        _mean(nodes, "power_w"),
        None if loops else max(n.time_s for n in nodes),
        sum(n.energy_j for n in nodes) if power_known and not loops else None,
        "missing" if loops or not power_known else "clamped" if clamped else "measured",
        tuple(by_node),
    )


def _count_of(line: FileLine, names: Sequence[str]) -> int:
    """Return a whole number, 0 where there is no such column. Raises InputError."""
    value = line.number_of(names) or 0
    if value > _MOST:
        raise line.bad(line.first(names) or names[0], f"{value:g} is too large")
    return int(value)


def _mean(nodes: Sequence[_Node], name: str) -> float | None:
    values = [value for value in (node.mean(name) for node in nodes) if value is not None]
    return sum(values) / len(values) if values else None


def _time_and_power(line: FileLine, loops: bool) -> tuple[float, float | None]:
    """Return a row's time (s) and power (W); the node manager's where EAR's library was off."""
    columns = LOOP_TIME if loops and line.first(LOOP_TIME) else TIME
    time_s, power_w = line.number_of(columns), line.number_of(POWER)
    if not time_s and line.text(("EARL_ENABLED",)) == "0":
        columns = MANAGER_TIME
        time_s, power_w = line.number_of(MANAGER_TIME), line.number_of(MANAGER_POWER)
    if not time_s:
        raise line.bad(line.first(columns) or columns[0], "a time of 0")
    return time_s, power_w or None


def _count(node: _Node, line: FileLine, time_s: float) -> None:
    """Add a row's counters; zeros where EAR counted nothing are missing."""
    cpi, tpi, gbs, gflops = (line.number_of(names) for names in (CPI, TPI, GBS, GFLOPS))
    cycles, instructions = line.number_of(CYCLES), line.number_of(INSTRUCTIONS)
    node.add("gpu_util", _gpu_util(line), time_s)
    io_mbs, mpi, cpu = (line.number_of(names) for names in (IO_MBS, MPI, CPU_UTIL))
    if not cpi and not cycles:
        return
    if not gbs and not tpi:
        gbs = tpi = None  # the memory controllers were not read
    for name, value in (
        ("cpi", cpi or None),
        ("tpi", tpi),
        ("gbs", gbs),
        ("gflops", gflops),
        ("io_mbs", io_mbs),
        ("mpi_percent", mpi),
        ("cpu_util", cpu),
    ):
        node.add(name, value, time_s)
    if cycles and instructions:
        node.cycles += cycles
        node.instructions += instructions
        if tpi is not None:
            node.transactions += tpi * instructions
            node.traced += instructions


def _gpu_util(line: FileLine) -> float | None:
    """Return the mean utilisation of the GPUs there are: those with any power or frequency."""
    shares = []
    for name, text in line.cells.items():
        match = _GPU_UTIL.fullmatch(name)
        if match:
            gpu_columns = [n for n in line.cells if n.startswith(f"GPU{match[1]}_")]
            if any(line.parse(n, line.cells[n]) for n in gpu_columns):
                shares.append(line.parse(name, text))
    return sum(shares) / len(shares) if shares else None
