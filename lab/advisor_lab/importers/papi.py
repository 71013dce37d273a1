"""PAPI's high-level interface: the JSON file of a rank, or the folder of all of a node's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from advisor.classes.cells import FileLine, read_text
from advisor.classes.counts import Counts
from advisor.errors import InputError

_NO_EVENTS = {"name", "parent_region_id", "region_count", "cycles", "real_time_nsec"}


def read_counts(path: Path) -> Counts:
    """Read a file, or all of a folder; the regions at the top of each thread are summed.

    Raises InputError that names file, thread, region and event of the first mistake.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no .json files of PAPI's")
    counts = Counts()
    longest = 0.0
    for file in files:
        for seconds in _threads(file, counts):
            longest = max(longest, seconds)
    counts.time_s = longest or None
    return counts


def _threads(file: Path, counts: Counts) -> Iterator[float]:
    try:
        data = json.loads(read_text(file))
    except json.JSONDecodeError as error:
        where = f"{file}, line {error.lineno}, column {error.colno}"
        raise InputError(f"{where}: not JSON: {error.msg}") from None
    threads = data.get("threads") if isinstance(data, Mapping) else None
    if not isinstance(threads, Mapping | list) or not threads:
        raise InputError(f"{file}: there are no threads in it: not PAPI's high-level output")
    pairs = threads.items() if isinstance(threads, Mapping) else enumerate(threads)
    for number, thread in pairs:
        regions = thread.get("regions") if isinstance(thread, Mapping) else None
        if not isinstance(regions, Mapping | list):
            raise InputError(f"{file}, thread {number}: there are no regions in it")
        seconds = 0.0
        for name, region in _regions(regions):
            if str(region.get("parent_region_id", "-1")) != "-1":
                continue  # its parent counted it too
            line = FileLine(file, 1, {})
            place = f"thread {number}, region {name}"
            nanoseconds = region.get("real_time_nsec")
            if nanoseconds is not None:
                seconds += _number(line, f"{place}, real_time_nsec", nanoseconds) * 1e-9
            for event, value in region.items():
                if event not in _NO_EVENTS:
                    counts.add(event, _number(line, f"{place}, {event}", value))
        yield seconds


def _regions(regions: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return a thread's regions, also in the form of PAPI 6: a list of objects by name."""
    if isinstance(regions, Mapping):
        pairs = list(regions.items())
    else:
        pairs = [pair for entry in regions if isinstance(entry, Mapping) for pair in entry.items()]
    for key, region in pairs:
        if isinstance(region, Mapping):
            yield str(region.get("name", key)), region


def _number(line: FileLine, column: str, value: Any) -> float:
    """Return a count; of events that were read on the way, their sum."""
    if isinstance(value, Mapping):
        return sum(_number(line, column, v) for k, v in value.items() if str(k).startswith("read"))
    return line.parse(column, str(value))
