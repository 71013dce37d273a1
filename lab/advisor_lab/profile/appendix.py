"""Read the profiler's output (appendix A) into metrics; every mistake is one line: file and key."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from advisor.errors import InputError
from advisor_lab.profile.metrics import (
    GROUPS,
    ILP,
    KNOWN,
    MPI_CALLS,
    MPI_DATA,
    OPENMP,
    REUSE,
    MetricValue,
    instruction_cells,
)
from advisor_lab.profile.runs import ProfiledRun, ProfiledThread, ThreadId

FIELDS: dict[str, Any] = {
    "instructionMix": {},
    "openMPinstructionMix": {},
    "mpiInstructionMix": {},
    "ilp": [],
    "dataReuseDistribution": [],
    "instReuseDistribution": [],
    "memoryFootprint": {},
    "registerAccesses": {},
    "mpiDataExchanged": {},
    "mpiCommunicationVector": [],
    "externalLibraryCallCount": {},
}
"""Table 1's optional fields and what each is where it is missing."""
SUFFIXES = (".json", ".pisa", ".cnls")
_LISTED_OBJECTS = ("instructionMix", "mpiInstructionMix", "openMPinstructionMix")
"""Fields that the manual prints as objects and the profiler may write as a list of one."""


def read_places(
    places: Sequence[Path], scale: Mapping[str, float]
) -> tuple[list[tuple[Path, ProfiledRun]], list[str]]:
    """Return the runs of all profiles, files and those of folders, and what to warn of.

    ``scale`` stands for a missing ``appScale``. Raises InputError.
    """
    files: list[Path] = []
    endings = ", ".join(SUFFIXES)
    for place in places:
        if place.is_dir():
            inside = sorted(p for p in place.iterdir() if p.suffix in SUFFIXES and p.is_file())
            if not inside:
                raise InputError(
                    f"{place}: there is no profile in it", hint=f"they end in {endings}"
                )
            files += inside
        elif place.is_file():
            files.append(place)
        else:
            if any(sign in place.name for sign in "*?["):  # a shell leaves it where nothing matches
                raise InputError(
                    f"there is no file {place}",
                    hint=f"name a folder: its files that end in {endings} are read",
                )
            raise InputError(f"{place} does not exist")
    missing_fields: Counter[str] = Counter()
    first: dict[str, str] = {}
    runs = []
    for file in dict.fromkeys(files):
        run, absent = read_profile(file, scale)
        runs.append((file, run))
        for field in absent:
            first.setdefault(field, file.name)
        missing_fields.update(absent)
    warnings = [
        f"{field} is missing in {count} {'thread' if count == 1 else 'threads'}, first in "
        f"{first[field]}: {_default_text(field)}"
        for field, count in missing_fields.items()
    ]
    return runs, warnings


def _default_text(field: str) -> str:
    names = [name for name, kind in KNOWN.items() if kind.field == field]
    if field in REUSE or not names:
        return "taken as empty"
    shown = ", ".join(names[:4]) + (" and more" if len(names) > 4 else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'} 0 or empty"


def read_profile(path: Path, scale: Mapping[str, float]) -> tuple[ProfiledRun, list[str]]:
    """Return one run, and the missing fields, once for each thread. Raises InputError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return profile_of(raw, path, scale)


def profile_of(raw: bytes, path: Path, scale: Mapping[str, float]) -> tuple[ProfiledRun, list[str]]:
    """Return the run a file's bytes describe. Raises InputError."""
    try:
        data = json.loads(raw)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}: broken JSON: {error.msg} (column {error.colno})"
        ) from None
    except RecursionError:
        raise InputError(f"{path}: broken JSON: nested too deeply") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a profile is a JSON object with application and threads")
    return _ProfileReader(path).run(data, hashlib.sha256(raw).hexdigest(), scale)


class _ProfileReader:
    """Reads one file; knows its name for what it has to refuse."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.missing: list[str] = []
        self.key = ""

    def _refuse(self, key: str, what: str, hint: str = "") -> NoReturn:
        raise InputError(f"{self.path}: {key}: {what}", hint=hint)

    def run(
        self, data: dict[str, Any], digest: str, scale: Mapping[str, float]
    ) -> tuple[ProfiledRun, list[str]]:
        name = data.get("application")
        if not isinstance(name, str) or not name.strip():
            self._refuse("application", "is missing; it names the application")
        parameters = self._scale(data, scale)
        threads = data.get("threads")
        if not isinstance(threads, list) or not threads:
            self._refuse("threads", "is missing; it lists the profiles of the threads")
        ids: dict[ThreadId, dict[str, Any]] = {}
        for i, thread in enumerate(threads):
            if not isinstance(thread, dict):
                self._refuse(f"threads[{i}]", "is not an object")
            key = self._id(thread, i)
            if key in ids:
                self._refuse(
                    f"threads[{i}]",
                    f"processId {key[0]} and threadId {key[1]} stand there twice",
                    "keep one of the two",
                )
            ids[key] = thread
        stated = data.get("processes", 0)
        if isinstance(stated, bool) or not isinstance(stated, int) or stated < 0:
            self._refuse("processes", f"{stated!r} is not a number of processes")
        total = stated or len({process for process, _ in ids})
        profiled_threads = {}
        for i, (key, thread) in enumerate(ids.items()):
            self.key = f"threads[{i}]"
            profiled_threads[key] = self._thread(thread, key[0], total)
        run = ProfiledRun(
            name.strip(), parameters, profiled_threads, str(self.path.name), digest, total
        )
        return run, self.missing

    def _scale(self, data: dict[str, Any], default_scale: Mapping[str, float]) -> dict[str, float]:
        stated = data.get("appScale")
        if stated is None:
            if not default_scale:
                hint = "state it: --scale NPC=16,PROBLEMSIZE=24"
                self._refuse("appScale", "is missing; it lists the scaling parameters", hint)
            stated = default_scale
        if not isinstance(stated, Mapping) or not stated:
            self._refuse("appScale", "is not an object of scaling parameters")
        parameters = {}
        for name, value in sorted(stated.items()):
            try:
                number = float(value)
            except (TypeError, ValueError):
                number = math.nan
            if isinstance(value, bool) or not math.isfinite(number):
                self._refuse(f"appScale.{name}", f"{value!r} is not a number")
            if not name.isidentifier():
                self._refuse(f"appScale.{name}", "a parameter's name has letters, digits and _")
            parameters[str(name)] = number
        return parameters

    def _id(self, thread: dict[str, Any], i: int) -> ThreadId:
        numbers = []
        for name in ("processId", "threadId"):
            value = thread.get(name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                what = "is missing" if value is None else f"{value!r} is not a number from 0"
                self._refuse(f"threads[{i}].{name}", what)
            numbers.append(value)
        return numbers[0], numbers[1]

    # -- one thread --------------------------------------------------------------------------------

    def _thread(self, thread: dict[str, Any], process: int, total: int) -> ProfiledThread:
        fields = {}
        absent = set()
        for name, default in FIELDS.items():
            value = thread.get(name)
            if value is None:
                absent.add(name)
                value = default
            if name in _LISTED_OBJECTS and isinstance(value, list):
                value = {k: v for part in value if isinstance(part, dict) for k, v in part.items()}
            if not isinstance(value, type(default)):
                what = "an object" if isinstance(default, dict) else "a list"
                self._refuse(f"{self.key}.{name}", f"must be {what}")
            fields[name] = value
        self.missing += sorted(absent)
        self._check_numbers(fields, self.key)
        values: dict[str, MetricValue] = {}
        self._instructions(fields["instructionMix"], fields["registerAccesses"], values)
        self._parallelism(fields["ilp"], values)
        self._reuse(fields, values)
        self._calls(fields, values)
        values["MPIcommVector"] = self._messages(fields["mpiCommunicationVector"], process, total)
        footprint = fields["memoryFootprint"]
        values["footprint_bytes"] = float(
            footprint.get("total_distinct_addresses_byte_granularity", 0)
        )
        values |= self._own_metrics(thread.get("metrics"))
        stands = {name for name, kind in KNOWN.items() if kind.field in absent}
        count = thread.get("NThreads", 1)
        if isinstance(count, bool) or not isinstance(count, int | float) or not count >= 1:
            self._refuse(f"{self.key}.NThreads", f"{count!r} is not a number of threads")
        return ProfiledThread(values, frozenset(stands - set(thread.get("metrics") or ())), count)

    def _check_numbers(self, value: Any, key: str, depth: int = 0) -> None:
        """Refuse numbers below 0, NaN and infinities, wherever they stand."""
        if isinstance(value, dict):
            for name, item in value.items():
                self._check_numbers(item, f"{key}.{name}", depth + 1)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                self._check_numbers(item, f"{key}[{i}]", depth + 1)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(key, f"{value!r} is not a number")
        elif not (math.isfinite(value) and value >= 0):
            self._refuse(key, f"{value!r} cannot be: counts are from 0")

    def _instructions(
        self, mix: dict[str, Any], registers: dict[str, Any], values: dict[str, MetricValue]
    ) -> None:
        count = mix.get("instructions_analyzed", 0)
        if not isinstance(count, int | float):
            self._refuse(f"{self.key}.instructionMix.instructions_analyzed", "is not a number")
        values["LSys"] = float(count)
        try:
            for name, groups in GROUPS.items():
                cells = instruction_cells(mix, groups)
                values[name] = {k: v / count if count else 0.0 for k, v in cells.items()}
        except (TypeError, AttributeError, ValueError):
            key = f"{self.key}.instructionMix"
            self._refuse(key, f"the groups of {name} are not as the profiler writes them")
        for name, field in (("F0regreads", "reads"), ("F0regwrites", "writes")):
            values[name] = float(registers.get(field, 0)) / count if count else 0.0

    def _parallelism(self, ilp: list[Any], values: dict[str, MetricValue]) -> None:
        windows = [window for window in ilp if isinstance(window, dict)]
        best: dict[str, Any] = {}
        if windows:
            best = min(windows, key=lambda w: abs(w.get("windowSize", 0) - 54))
        statistics = best.get("statistics", {})
        if not isinstance(statistics, dict):
            self._refuse(f"{self.key}.ilp.statistics", "must be an object")
        for name, ending in ILP.items():
            values[name] = float(statistics.get(f"arithmetic_mean{ending}", 0.0))

    def _reuse(self, fields: dict[str, Any], values: dict[str, MetricValue]) -> None:
        for name, size in REUSE.items():
            rows = [r for r in fields["dataReuseDistribution"] if r.get("cacheLineSize") == size]
            key = f"{self.key}.dataReuseDistribution"
            values[name] = self._curve(rows[0] if rows else None, "dataCDF", key)
            if not rows and fields["dataReuseDistribution"]:
                self.missing.append(f"dataReuseDistribution of {size}-byte lines ({name})")
        rows = fields["instReuseDistribution"]
        key = f"{self.key}.instReuseDistribution"
        values["D0ireuse"] = self._curve(rows[0] if rows else None, "instructionsCDF", key)

    def _curve(self, row: Any, field: str, key: str) -> tuple[tuple[float, float], ...]:
        if row is None:
            return ()
        try:
            pairs = tuple((float(d), float(c)) for d, c in row["statistics"][field])
        except (KeyError, TypeError, ValueError):
            self._refuse(f"{key}.statistics.{field}", "must be a list of [distance, share]")
        for (d, c), (e, b) in pairwise(pairs):
            if e <= d or b < c:
                self._refuse(f"{key}.statistics.{field}", f"falls or repeats at distance {e:g}")
        if pairs and pairs[-1][1] > 1 + 1e-6:
            self._refuse(f"{key}.statistics.{field}", "a share is above 1")
        return pairs

    def _calls(self, fields: dict[str, Any], values: dict[str, MetricValue]) -> None:
        mpi = fields["mpiInstructionMix"]
        flat: dict[str, float] = {}
        for name, value in mpi.items():
            flat |= value if isinstance(value, dict) else {name: value}
        values["MPIinstructions"] = float(flat.get("MPI_instructions_analyzed", 0))
        for name, field in MPI_CALLS.items():
            values[name] = float(flat.get(field, 0))
        for name, field in MPI_DATA.items():
            values[name] = float(fields["mpiDataExchanged"].get(field, 0))
        openmp = fields["openMPinstructionMix"]
        for name, field in OPENMP.items():
            values[name] = float(openmp.get(field, 0))
        values["OpenMPtotal"] = float(sum(openmp.get(field, 0) for field in OPENMP.values()))

    def _messages(
        self, rows: list[Any], process: int, total: int
    ) -> tuple[tuple[int, float, float], ...]:
        """Return what is received, by the number that is added to the process for its source."""
        messages = {}
        for i, row in enumerate(rows):
            key = f"{self.key}.mpiCommunicationVector[{i}]"
            if not isinstance(row, dict) or not isinstance(row.get("source"), int):
                self._refuse(f"{key}.source", "is missing")
            if row["source"] >= total:
                self._refuse(f"{key}.source", f"{row['source']} is none of {total} processes")
            relative = (row["source"] - process) % total
            if relative in messages:
                self._refuse(f"{key}.source", f"{row['source']} is listed twice")
            size, count = row.get("received_bytes", 0), row.get("received_messages", 0)
            messages[relative] = (relative, float(size), float(count))
        return tuple(messages[r] for r in sorted(messages))

    def _own_metrics(self, metrics: Any) -> dict[str, MetricValue]:
        """Return a thread's own metrics, which stand in B.2's form in the field ``metrics``."""
        values: dict[str, MetricValue] = {}
        if metrics is None:
            return values
        if not isinstance(metrics, dict):
            self._refuse(f"{self.key}.metrics", "must be an object of metrics")
        self._check_numbers(metrics, f"{self.key}.metrics")
        for name, value in metrics.items():
            try:
                if isinstance(value, int | float):
                    values[name] = float(value)
                elif value and isinstance(value[0][1], list):
                    values[name] = {
                        (int(v), int(d)): float(c) for v, cells in value for d, c in cells
                    }
                else:
                    values[name] = tuple((float(d), float(c)) for d, c in value)
            except (TypeError, ValueError, IndexError):
                what = "must be a number, [[vector, [[bits, value]]]] or [[distance, share]]"
                self._refuse(f"{self.key}.metrics.{name}", what)
        return values
