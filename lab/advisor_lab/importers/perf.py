"""``perf stat``: what ``-x,`` (any separator) and ``-j`` write, of one run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.classes.cells import FileLine, read_text
from advisor.classes.counts import Counts, plain_name
from advisor.core.signature import LINE_B
from advisor.errors import InputError

_SEPARATORS = (",", ";", "\t", "|", ":", "!")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "msec": 1e-3, "ms": 1e-3, "sec": 1.0, "s": 1.0, "": 1e-9}
_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "Bytes": 1, "bytes": 1}
_UNITS = {*_SECONDS, *_BYTES, "Joules", "W", "C", "%"}
_TRAFFIC = re.compile(
    r"unc_m_cas_count\.(rd|wr|all)|cas_count_(read|write|all)|data_(reads|writes)"
)
_NUMBER = re.compile(r"[+-]?\d[\d.]*(e[+-]?\d+)?|nan|[+-]?inf", re.IGNORECASE)
_NOT = re.compile(r"<not (counted|supported)>")


@dataclass(frozen=True, slots=True)
class _Event:
    """One line of perf's: a value, or None where it was not counted."""

    name: str
    value: float | None
    unit: str
    running: float
    metric: float | None
    metric_unit: str
    until_s: float | None = None
    """Where counts are printed in intervals (-I), the end of this one."""


def read_counts(path: Path) -> Counts:
    """Read a file; what perf did not count ran for 0 % of the time. Intervals are summed.

    Raises InputError that names file, line and column of the first mistake.
    """
    text = read_text(path)
    lines = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise InputError(f"{path}: no counts in it")
    as_json = lines[0][1].startswith("{")
    events = list(_from_json(path, lines) if as_json else _from_columns(path, lines))
    counts = Counts()
    for event in events:
        _add_event(counts, event)
    intervals = [event.until_s for event in events if event.until_s is not None]
    if intervals:
        counts.time_s = max(intervals)
    if counts.time_s is None:  # perf's own ratio, of three digits
        for event in events:
            if event.metric and event.metric_unit == "CPUs utilized" and counts.cpu_s:
                counts.time_s = counts.cpu_s / event.metric
    return counts


def _add_event(counts: Counts, event: _Event) -> None:
    name = plain_name(event.name)
    value, running = (0.0, 0.0) if event.value is None else (event.value, event.running)
    if name == "duration_time":
        counts.time_s = value * _SECONDS.get(event.unit, 1e-9)
    elif name in ("task-clock", "cpu-clock"):
        counts.cpu_s = (counts.cpu_s or 0.0) + value * _SECONDS.get(event.unit or "msec", 1.0)
    elif _TRAFFIC.search(name) and "free_running" not in name:
        unit_b = _BYTES.get(event.unit, LINE_B)
        counts.memory_b = (counts.memory_b or 0.0) + value * unit_b
        counts.memory_running = min(counts.memory_running, running)
    else:
        counts.add(event.name, value, running)


def _from_columns(path: Path, lines: list[tuple[int, str]]) -> Iterator[_Event]:
    number, first = lines[0]
    if not re.search(r"[\d>]", first):
        raise InputError(f"{path}, line {number}: not what perf stat -x, or -j writes")
    mark = max(_SEPARATORS, key=lambda c: min(first.count(c), 5))
    if first.count(mark) < 2:
        raise InputError(
            f"{path}, line {number}: not what perf stat -x, or -j writes",
            hint="columns are separated by the character after -x",
        )
    for number, text in lines:
        cells = [cell.strip() for cell in text.split(mark)]
        line = FileLine(path, number, {})
        column = _event_column(cells)
        if column is None:
            if len(cells) > 4 and not cells[0] and cells[-1]:
                continue  # a further metric of the line above
            raise line.bad("event", "there is no value, unit and event here; was the row cut off?")
        if column == 3 and cells[0].isdecimal():  # a time or a place would not be a whole number
            raise line.bad(cells[column], "a decimal comma; run perf with LC_ALL=C")
        value, unit, name = cells[column - 2 : column + 1]
        rest = [cell for cell in cells[column + 1 :] if not re.fullmatch(r"[\d.]+%", cell)]
        if len(rest) < 2:
            raise line.bad(name, "the row ends before the time it was counted")
        if re.search(r"\d,\d", value + rest[1]):
            raise line.bad(name, "a decimal comma; run perf with LC_ALL=C")
        running = line.parse(name, rest[1])
        count = None if _NOT.fullmatch(value) else line.parse(name, value)
        metric = rest[2] if len(rest) > 3 and _NUMBER.fullmatch(rest[2]) else ""
        yield _Event(
            name,
            count,
            unit,
            running,
            float(metric) if metric else None,
            rest[3] if metric else "",
            _interval(cells[0]) if column > 2 else None,
        )


def _event_column(cells: list[str]) -> int | None:
    """Return where the event's name stands: behind a value and a unit."""
    for column in range(2, len(cells)):
        value = cells[column - 2].replace(",", ".")
        if (
            (_NUMBER.fullmatch(value) or _NOT.fullmatch(value))
            and cells[column - 1] in _UNITS
            and re.match(r"[A-Za-z]", cells[column])
        ):
            return column
    return None


def _from_json(path: Path, lines: list[tuple[int, str]]) -> Iterator[_Event]:
    for number, text in lines:
        line = FileLine(path, number, {})
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: not JSON: {error}") from None
        if not isinstance(data, dict):
            raise InputError(f"{path}, line {number}: not an object of perf stat -j")
        if "event" not in data:
            if any(key.startswith("metric") for key in data):
                continue
            raise line.bad("event", "is missing")
        for key in ("counter-value", "pcnt-running"):
            if key not in data:
                raise line.bad(key, "is missing")
        name, value = str(data["event"]), str(data["counter-value"])
        metric = str(data.get("metric-value", ""))
        yield _Event(
            name,
            None if _NOT.fullmatch(value) else line.parse(name, value),
            str(data.get("unit", "")),
            line.parse("pcnt-running", str(data["pcnt-running"])),
            float(metric) if _NUMBER.fullmatch(metric) else None,
            str(data.get("metric-unit", "")),
            _interval(str(data.get("interval", ""))),
        )


def _interval(text: str) -> float | None:
    """Return the end of an interval; None for a place like S0 or CPU3."""
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else None
