"""``likwid-perfctr``: its CSV (-O) and its tables, of one node.

Several groups of one run complete each other; regions of the marker API are joined by their time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.classes.cells import FileLine, read_text
from advisor.core.signature import Signature
from advisor.errors import InputError

_RUNTIME = ("Runtime (RDTSC) [s]", "RDTSC Runtime [s]")
_MEMORY = ("Memory bandwidth [MBytes/s]", "Memory bandwidth (channels 0-7) [MBytes/s]")
_FLOPS = (
    ("DP [MFLOP/s]", "SP [MFLOP/s]"),
    ("DP MFLOP/s", "SP MFLOP/s"),
    ("MFLOP/s",),
    ("Flops [MFLOP/s]",),
)
_POWER = ("Power [W]", "Power PKG [W]")
_DRAM_POWER = ("Power DRAM [W]",)
_CYCLES = ("CPU_CLK_UNHALTED_CORE", "CPU_CLOCKS_UNHALTED", "ACTUAL_CPU_CLOCK", "CPU_CYCLES")
_INSTRUCTIONS = ("INSTR_RETIRED_ANY", "RETIRED_INSTRUCTIONS", "INST_RETIRED")
_CAS = re.compile(r"CAS_COUNT_(RD|WR)|DRAM_CHANNEL_\d+|DFC_.*DRAM|MBOX.*")
_NOTHING = {"", "-", "nil"}


@dataclass(slots=True)
class _Table:
    """Rows of one group in one region: values of the hardware threads, by name."""

    group: str
    region: str
    rows: dict[str, list[float]] = field(default_factory=dict)

    def total(self, names: Sequence[str]) -> float | None:
        """Return the sum over hardware threads of the first of some rows that there is."""
        return next((sum(self.rows[name]) for name in names if name in self.rows), None)


def read_counts(path: Path) -> Signature:
    """Read a file. Raises InputError that names file, line and row of the first mistake."""
    tables: list[_Table] = []
    region = group = ""
    width = skip = 0
    table: _Table | None = None
    for number, text in enumerate(read_text(path).splitlines(), 1):
        cells = _cells(text)
        for cell in cells:
            match = re.search(r"Region (\S[^,|]*?)(?:,|$)", cell + ",")
            region = match[1] if match and "Info" not in cell else region
        match = re.search(r"Group (\d+)(?::| Raw,| Metric,| \w+)?", text)
        if match:
            group, table = match[1], None
        if text.startswith(("TABLE", "STRUCT")):
            table = None
        if len(cells) < 2:
            table = None if cells and cells[0] else table
            continue
        if cells[0] in ("Event", "Metric", "Region Info"):
            table = None
            if "Sum" not in cells:
                skip = 2 if "Counter" in cells[1:2] else 1
                width = len(cells)
                table = _Table(group, region)
                tables.append(table)
        elif table is not None and (cells[0] in _USED or _CAS.match(cells[0])):
            _row(FileLine(path, number, {}), table, cells, width, skip)
    if not any(t.rows for t in tables):
        raise InputError(f"{path}: no table of likwid-perfctr with runtime, CPI or traffic in it")
    return _joined(tables)


_USED = {
    *_RUNTIME,
    *_MEMORY,
    *_POWER,
    *_DRAM_POWER,
    *_CYCLES,
    *_INSTRUCTIONS,
    "CPI",
    *(name for names in _FLOPS for name in names),
}


def _cells(text: str) -> list[str]:
    """Return a line's cells, of a table in text or of CSV."""
    text = text.strip()
    if text.startswith("|"):
        return [cell.strip() for cell in text.strip("|").split("|")]
    if text.startswith(("+", "-")):
        return []
    cells = [cell.strip() for cell in text.split(",")]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _row(line: FileLine, table: _Table, cells: list[str], width: int, skip: int) -> None:
    name = cells[0]
    if len(cells) < width:
        raise line.bad(name, f"{len(cells)} cells, but the table has {width} columns")
    values = []
    for cell in cells[skip:]:
        if cell in _NOTHING or (name == "CPI" and cell.lower() in ("nan", "-nan", "inf")):
            continue  # a thread that did nothing
        values.append(line.parse(name, cell))
    table.rows[name] = [*table.rows.get(name, []), *values]


def _joined(tables: Sequence[_Table]) -> Signature:
    """Return the signature of all groups and regions: sums, rates by the regions' time."""
    parts: dict[tuple[str, str], _Table] = {}
    for table in tables:
        part = parts.setdefault((table.group, table.region), _Table(table.group, table.region))
        part.rows.update(table.rows)
    times = {key: max(_values(part, _RUNTIME), default=0.0) for key, part in parts.items()}
    cycles = instructions = transactions = 0.0
    for key in _richest(parts, (*_CYCLES,)):
        cycles += parts[key].total(_CYCLES) or 0.0
        instructions += parts[key].total(_INSTRUCTIONS) or 0.0
    counted = 0.0
    for part in parts.values():
        rows = [sum(values) for name, values in part.rows.items() if _CAS.match(name)]
        instruction_count = part.total(_INSTRUCTIONS)
        if rows and instruction_count:
            transactions, counted = transactions + sum(rows), counted + instruction_count
    by_group: dict[str, float] = {}
    for (group, _), seconds in times.items():
        by_group[group] = by_group.get(group, 0.0) + seconds
    cpis = [v for part in parts.values() for v in _values(part, ("CPI",)) if v > 0]
    flops = [_rate(parts, times, names) for names in _FLOPS]
    gbs, power = _rate(parts, times, _MEMORY), _rate(parts, times, _POWER)
    dram = _rate(parts, times, _DRAM_POWER)
    gflops = next((value for value in flops if value is not None), None)
    if flops[0] is not None:
        rates = [_rate(parts, times, (name,)) for name in _FLOPS[0]]
        gflops = sum(value for value in rates if value is not None)
    cpi = cycles / instructions if cycles and instructions else None
    return Signature(
        cpi=cpi if cpi else (sum(cpis) / len(cpis) if cpis else None),
        tpi=transactions / counted if counted else None,
        gflops=None if gflops is None else gflops / 1e3,
        gbs=None if gbs is None else gbs / 1e3,
        power_w=None if power is None else power + (dram or 0.0),
        time_s=max(by_group.values(), default=0.0) or None,
        source="likwid",
    )


def _values(part: _Table, names: Sequence[str]) -> list[float]:
    return [value for name in names for value in part.rows.get(name, ())]


def _richest(parts: dict[tuple[str, str], _Table], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the parts of the one group that has these rows: groups repeat the same run."""
    groups = [key[0] for key, part in parts.items() if part.total(names) is not None]
    return [key for key in parts if groups and key[0] == groups[0]]


def _rate(
    parts: dict[tuple[str, str], _Table],
    times: dict[tuple[str, str], float],
    names: Sequence[str],
) -> float | None:
    """Return a rate of the node over all regions of one group, None where there is no such row."""
    total = seconds = 0.0
    rate = None
    for key in _richest(parts, names):
        value = parts[key].total(names)
        if value is not None:
            rate = value
            total, seconds = total + value * times[key], seconds + times[key]
    return total / seconds if seconds else rate
