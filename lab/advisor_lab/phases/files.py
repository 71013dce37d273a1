"""CSV files of bursts, events, signals, readings and marks; a mistake names file, line, column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.phases.arrays import Floats
from advisor.phases.pairing import RunEvents
from advisor_lab.phases.bursts import IPC, BurstTable, axes_by, axes_of

TIME, SITE, ENERGY = "time_s", "site", "energy_j"
_NOT_SIGNALS = frozenset({TIME, "truth"})


@dataclass(frozen=True, slots=True)
class SampledSignal:
    """A sampled signal: its column's name, times (s) and values."""

    name: str
    times: Floats
    values: Floats


class _Cells:
    """The rows of a CSV file, cell by cell; what is wrong is raised with its place."""

    def __init__(self, path: Path, required: Sequence[str]) -> None:
        self.path = path
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 text at byte {error.start}") from None
        self._rows = csv.reader(text.splitlines(keepends=True), strict=True)
        try:
            self.names = [name.strip() for name in next(self._rows, [])]
        except csv.Error as error:
            raise InputError(f"{path}, line 1: {error}") from None
        for name in required:
            if name not in self.names:
                raise InputError(
                    f"{path}, line 1: there is no column {name}",
                    hint=f"the columns are {', '.join(required)}",
                )
        twice = [n for n in self.names if self.names.count(n) > 1]
        if twice:
            raise InputError(f"{path}, line 1, column {twice[0]}: it is there twice")

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the line and its cells."""
        try:
            for row in self._rows:
                if not row:
                    continue
                line = self._rows.line_num
                if len(row) != len(self.names):
                    name = self.names[min(len(row), len(self.names) - 1)]
                    raise InputError(
                        f"{self.path}, line {line}, column {name}: "
                        f"{len(row)} cells, the header has {len(self.names)}"
                    )
                yield line, row
        except csv.Error as error:
            why = "a quote is not closed" if "end of data" in str(error) else error
            raise InputError(f"{self.path}, line {self._rows.line_num}: {why}") from None

    def number(self, line: int, name: str, cell: str, *, above: float = -math.inf) -> float:
        """Return a cell as a number above a limit."""
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        where = f"{self.path}, line {line}, column {name}"
        if not math.isfinite(value):
            raise InputError(f"{where}: {cell.strip()!r} is not a number")
        if value <= above:
            raise InputError(f"{where}: {cell.strip()} is not above {above:g}")
        return value

    def counted(self, line: int, name: str, cell: str) -> float:
        """Return a cell as what was counted: a number, 0 or more."""
        value = self.number(line, name, cell)
        if value < 0:
            raise InputError(f"{self.path}, line {line}, column {name}: {value:g} is below 0")
        return value

    def ascending(self, line: int, name: str, cell: str, earliest: float) -> float:
        """Return a cell as a time that is not before the one above it."""
        value = self.number(line, name, cell)
        if value < earliest:
            raise InputError(
                f"{self.path}, line {line}, column {name}: {value:g} is before the line above"
            )
        return value


def columns_of(path: Path) -> list[str]:
    """Return the names of a file's columns."""
    return _Cells(path, ()).names


_BURSTS = ("process", "duration_s", "instructions", "cycles")
COUNTED = ("bytes", "flops")
"""Counters of bursts that are read wherever a file has them: GB/s and flop/s come of them."""


def read_bursts(
    path: Path, *, axis_names: Sequence[str] = (), counters: Sequence[str] = ()
) -> BurstTable:
    """Return bursts: process, duration_s, instructions, cycles of each, and what else was counted.

    ``axis_names`` are the counters that are the axes, or ``ipc`` (nothing: log instructions and
    IPC); ``counters`` names more columns that are counters.
    """
    named_counters = [n for n in (*axis_names, *counters) if n != IPC and n not in _BURSTS]
    cells = _Cells(path, _BURSTS)
    lacking = [n for n in named_counters if n not in cells.names]
    if lacking:
        counted = [n for n in cells.names if n != _BURSTS[0]]
        raise InputError(
            f"{path}, line 1: there is no column {lacking[0]}",
            hint=f"it has {', '.join(counted)}; {IPC} is made of two of them",
        )
    names = list(dict.fromkeys((*named_counters, *(n for n in COUNTED if n in cells.names))))
    column_of = {n: cells.names.index(n) for n in (*_BURSTS, *names)}
    processes: dict[str, int] = {}
    rows = []
    for line, row in cells.rows():
        process = processes.setdefault(row[column_of["process"]].strip(), len(processes))
        burst_values = [cells.number(line, n, row[column_of[n]], above=0) for n in _BURSTS[1:]]
        more = [cells.counted(line, n, row[column_of[n]]) for n in names]
        rows.append((process, *burst_values, *more))
    if not rows:
        raise InputError(f"{path}: there are no bursts below the header")
    table = np.array(rows, float)
    columns = {n: table[:, i] for i, n in enumerate((*_BURSTS[2:], *names), 2)}
    if "process" in axis_names:
        raise InputError(f"{path}: process is not a counter to cluster by")
    axes = (
        axes_by({**columns, "duration_s": table[:, 1]}, axis_names)
        if axis_names
        else axes_of(columns["instructions"], columns["cycles"])
    )
    return BurstTable(table[:, 0].astype(np.int64), table[:, 1], axes, columns)


def read_events(path: Path) -> RunEvents:
    """Return a sequence of events: time_s and site of each, in the order of time."""
    cells = _Cells(path, (TIME, SITE))
    t, s = cells.names.index(TIME), cells.names.index(SITE)
    times: list[float] = []
    sites: list[str] = []
    time_s = -math.inf
    for line, row in cells.rows():
        time_s = cells.ascending(line, TIME, row[t], time_s)
        site = row[s].strip()
        if not site:
            raise InputError(f"{path}, line {line}, column {SITE}: it is blank")
        times.append(time_s)
        sites.append(site)
    if len(times) < 2:
        raise InputError(f"{path}: there are no two events below the header")
    return RunEvents(tuple(times), tuple(sites))


def read_signal(path: Path) -> SampledSignal:
    """Return a sampled signal: time_s and the first other column."""
    cells = _Cells(path, (TIME,))
    signal_names = [n for n in cells.names if n not in _NOT_SIGNALS]
    if not signal_names:
        raise InputError(f"{path}, line 1: there is no column beside {TIME}")
    times, values = _pairs(cells, signal_names[0])
    return SampledSignal(signal_names[0], times, values)


def read_readings(path: Path) -> SampledSignal:
    """Return a counter's readings: time_s and energy_j, or the first other column."""
    cells = _Cells(path, (TIME,))
    signal_names = [n for n in cells.names if n not in _NOT_SIGNALS]
    name = ENERGY if ENERGY in signal_names or not signal_names else signal_names[0]
    if not signal_names:
        raise InputError(f"{path}, line 1: there is no column {ENERGY}")
    times, values = _pairs(cells, name)
    return SampledSignal(name, times, values)


def read_marks(path: Path) -> Floats:
    """Return the begins of iterations: time_s of each, ascending, the last one's end included."""
    cells = _Cells(path, (TIME,))
    time_column = cells.names.index(TIME)
    times: list[float] = []
    earlier_s = -math.inf
    for line, row in cells.rows():
        value = cells.ascending(line, TIME, row[time_column], earlier_s)
        if value == earlier_s:
            raise InputError(f"{path}, line {line}, column {TIME}: an iteration takes no time")
        earlier_s = value
        times.append(value)
    if len(times) < 2:
        raise InputError(f"{path}: there are no two marks below the header")
    return np.array(times)


def read_caps(path: Path) -> dict[str, dict[int, tuple[float, float]]]:
    """Return seconds and joules of each phase by cap: phase, freq_khz, time_s, energy_j."""
    names = ("phase", "freq_khz", TIME, ENERGY)
    cells = _Cells(path, names)
    columns = [cells.names.index(n) for n in names]
    costs: dict[str, dict[int, tuple[float, float]]] = {}
    for line, row in cells.rows():
        name = row[columns[0]].strip()
        if not name:
            raise InputError(f"{path}, line {line}, column phase: it is blank")
        khz, time_s, energy_j = (
            cells.number(line, n, row[i], above=0)
            for n, i in zip(names[1:], columns[1:], strict=True)
        )
        if int(khz) in costs.setdefault(name, {}):
            raise InputError(f"{path}, line {line}, column freq_khz: {name} has {khz:g} twice")
        costs[name][int(khz)] = (time_s, energy_j)
    if not costs:
        raise InputError(f"{path}: there are no phases below the header")
    if not set.intersection(*(set(c) for c in costs.values())):
        raise InputError(f"{path}: its phases have no cap (freq_khz) in common")
    return costs


def _pairs(cells: _Cells, name: str) -> tuple[Floats, Floats]:
    t, v = cells.names.index(TIME), cells.names.index(name)
    times: list[float] = []
    values: list[float] = []
    time_s = -math.inf
    for line, row in cells.rows():
        time_s = cells.ascending(line, TIME, row[t], time_s)
        value = cells.number(line, name, row[v])
        if times and time_s == times[-1]:
            values[-1] = value
            continue
        times.append(time_s)
        values.append(value)
    if len(times) < 2:
        raise InputError(f"{cells.path}: there are no two readings below the header")
    return np.array(times), np.array(values)
