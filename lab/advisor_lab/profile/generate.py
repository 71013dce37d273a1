"""Profiles of scales that never ran, in the profiler's form (chapter 9 and appendix A)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from advisor.drafts import write_whole
from advisor.errors import AdvisorError, InputError
from advisor_lab.profile.groups import CommunicationGroup, communication_groups
from advisor_lab.profile.metrics import (
    ILP,
    MPI_CALLS,
    MPI_DATA,
    OPENMP,
    REUSE,
    InstructionCells,
    MetricValue,
    total,
)
from advisor_lab.profile.models import ClassModels, ClassRuns, ThreadCounts, scale_columns
from advisor_lab.profile.placement import ClassPlaces
from advisor_lab.profile.regression import EXACT
from advisor_lab.profile.trends import GroupTrend, group_trend, predicted_groups

MOST_PROCESSES = 100_000
"""Threads a file with one per process may have; more are gigabytes."""


@dataclass(frozen=True, slots=True)
class PredictedClass:
    """One class at a scale: how many threads, their metrics, and its group where it is known.

    ``each`` of its threads are in one process, after those of the classes ``beside`` it.
    """

    name: str
    threads: float
    values: Mapping[str, MetricValue]
    group: CommunicationGroup | None = None
    each: int = 1
    beside: tuple[str, ...] = ()

    @property
    def processes(self) -> int:
        """How many processes have threads of it."""
        return max(1, round(self.threads / self.each))


def trends_of(classes: Sequence[ClassRuns], *, by_communication: bool) -> list[GroupTrend | None]:
    """Return how the communication groups of classes grow; nothing unless that made the classes."""
    if not by_communication:
        return [None for _ in classes]
    trends = []
    for class_runs in classes:
        runs = [run for run, _ in class_runs.train]
        groups = [communication_groups(run, (members,))[0] for run, members in class_runs.train]
        values = scale_columns(runs)
        total_processes = np.array([float(run.processes) for run in runs])
        if not any(np.array_equal(total_processes, v) for v in values.values()):
            values["processes"] = total_processes
        trends.append(group_trend(values, groups, [run.processes for run in runs]))
    return trends


def predict_classes(
    models: ClassModels,
    threads: ThreadCounts,
    trends: Sequence[GroupTrend | None],
    places: Mapping[str, ClassPlaces],
    scale: Mapping[str, float],
) -> tuple[list[PredictedClass], list[str]]:
    """Return every class at a scale, and what to say of it."""
    scale_values = {n: np.array([v]) for n, v in scale.items()}
    values = threads.values(scale_values)
    counts = {
        name: total(class_models["NThreads"].predict(values)[0])
        for name, class_models in models.items()
    }
    threads_per_process = {name: places[name].threads_each(scale) for name in models}
    place = dict(scale)
    if any("processes" in _names(t) for t in trends if t is not None):
        place["processes"] = float(
            round(
                sum(n / threads_per_process[c] for c, n in counts.items() if not places[c].beside)
            )
        )
    groups = predicted_groups(trends, place) if all(t is not None for t in trends) else None
    notes = []
    if groups is None and any(t is not None for t in trends):
        at_text = ", ".join(f"{n}={v:.12g}" for n, v in scale.items())
        notes.append(
            f"{at_text}: the communication groups have no whole numbers of processes there"
        )
    classes = []
    for i, (name, class_models) in enumerate(models.items()):
        metrics = {
            metric: model.predict(values)[0]
            for metric, model in class_models.items()
            if metric != "NThreads"
        }
        group = groups[i] if groups is not None else None
        count = (
            float(len(group.ranks()) * threads_per_process[name])
            if group is not None
            else counts[name]
        )
        if group is not None and abs(count - counts[name]) > 0.02 * count:
            notes.append(
                f"class {name}: its model has {counts[name]:.6g} threads, its communication group "
                f"{count:.6g}: the group's are written"
            )
        classes.append(
            PredictedClass(
                name, count, metrics, group, threads_per_process[name], places[name].beside
            )
        )
    return classes, notes


def _names(trend: GroupTrend) -> set[str]:
    parts = [
        trend.start,
        *(t for d in trend.dimensions for t in d),
        *(t for v in trend.vector for t in v),
    ]
    return {n for part in parts for term in part.terms for n in term.names}


def profile_json(
    application: str,
    scale: Mapping[str, float],
    classes: Sequence[PredictedClass],
    *,
    per_process: bool,
) -> dict[str, Any]:
    """Return a whole profile. Raises InputError where it would have too many threads."""
    thread_count = sum(c.processes * c.each for c in classes)
    if per_process and thread_count > MOST_PROCESSES:
        raise InputError(
            f"{thread_count} threads are too many for a file with each", hint="--threads class"
        )
    ranks_of = _ranks(classes)
    processes = len({rank for ranks in ranks_of.values() for rank in ranks})
    exact = all(c.group is not None for c in classes)
    threads: list[dict[str, Any]] = []
    next_number: dict[int, int] = {}
    for predicted_class in sorted(classes, key=lambda c: len(c.beside) > 0):
        for rank in (
            ranks_of[predicted_class.name] if per_process else ranks_of[predicted_class.name][:1]
        ):
            for _ in range(predicted_class.each if per_process else 1):
                number = next_number.get(rank, 0)
                next_number[rank] = number + 1
                thread: dict[str, Any] = {
                    "threadId": number,
                    "processId": rank,
                    "class": predicted_class.name,
                }
                if not per_process:
                    count = predicted_class.processes * predicted_class.each
                    near = exact or abs(predicted_class.threads - count) < EXACT * count
                    thread["NThreads"] = count if near else predicted_class.threads
                threads.append({**thread, **_fields(predicted_class, rank, processes)})
    threads.sort(key=lambda t: (t["processId"], t["threadId"]))
    return {
        "application": application,
        "appScale": {n: int(v) if v == int(v) else v for n, v in sorted(scale.items())},
        "processes": processes,
        "threads": threads,
    }


def _ranks(classes: Sequence[PredictedClass]) -> dict[str, Sequence[int]]:
    """Return the processes of each class: its group's, those of the classes beside it, or the next.

    A class beside others that has more processes than they begins at their first one.
    """
    ranks: dict[str, Sequence[int]] = {}
    following = 0
    # Those that stand alone first: classes beside them are in their processes.
    for predicted_class in sorted(classes, key=lambda c: len(c.beside) > 0):
        if predicted_class.group is not None:
            ranks[predicted_class.name] = predicted_class.group.ranks()
        elif predicted_class.beside:
            host_ranks = sorted(rank for name in predicted_class.beside for rank in ranks[name])
            more = range(following, following + max(0, predicted_class.processes - len(host_ranks)))
            ranks[predicted_class.name] = [*host_ranks, *more][: predicted_class.processes]
            following += len(more)
        else:
            ranks[predicted_class.name] = range(following, following + predicted_class.processes)
            following += predicted_class.processes
    return ranks


def _fields(predicted_class: PredictedClass, rank: int, processes: int) -> dict[str, Any]:
    """Return table 1's fields from a class's metrics."""
    values = dict(predicted_class.values)
    count = total(values.pop("LSys", 0.0))
    fields: dict[str, Any] = {"instructionMix": _mix(values, count)}
    for name, key in (("F0regreads", "reads"), ("F0regwrites", "writes")):
        if name in values:
            accesses = fields.setdefault("registerAccesses", {})
            accesses[key] = total(values.pop(name)) * count
    parallel = {ending: total(values.pop(n)) for n, ending in ILP.items() if n in values}
    if parallel:
        statistics: dict[str, float] = {f"arithmetic_mean{e}": v for e, v in parallel.items()}
        if parallel.get(""):
            statistics["span"] = count / parallel[""]
        fields["ilp"] = [{"windowSize": 54, "statistics": statistics}]
    references = total(predicted_class.values.get("F0mem", 0.0)) * count
    for name, size in REUSE.items():
        if name in values:
            curve = _curve(values.pop(name))
            rows = fields.setdefault("dataReuseDistribution", [])
            statistic = {"data": _events(curve, references), "dataCDF": curve}
            rows.append({"cacheLineSize": size, "statistics": statistic})
    if "D0ireuse" in values:
        curve = _curve(values.pop("D0ireuse"))
        statistic = {"instructions": _events(curve, count), "instructionsCDF": curve}
        fields["instReuseDistribution"] = [{"statistics": statistic}]
    fields |= _calls(values)
    if "footprint_bytes" in values:
        touched = total(values.pop("footprint_bytes"))
        fields["memoryFootprint"] = {"total_distinct_addresses_byte_granularity": touched}
    if predicted_class.group is not None:
        fields["mpiCommunicationVector"] = [
            {
                "source": (rank + int(v["relativeSrc"])) % processes,
                "received_bytes": v["meanSize"],
                "received_messages": v["meanMsgs"],
            }
            for v in predicted_class.group.vector
        ]
    if values:
        fields["metrics"] = {name: _plain(value) for name, value in sorted(values.items())}
    return fields


def _calls(values: dict[str, MetricValue]) -> dict[str, Any]:
    """Return the fields of calls and data; what is used is taken out of ``values``."""
    fields: dict[str, Any] = {}
    calls = {field: total(values.pop(n)) for n, field in MPI_CALLS.items() if n in values}
    if "MPIinstructions" in values or calls:
        analysed = total(values.pop("MPIinstructions", float(sum(calls.values()))))
        fields["mpiInstructionMix"] = [
            {"MPI_instructions_analyzed": analysed, "p2pCommunicationRoutines": calls}
        ]
    data = {field: total(values.pop(n)) for n, field in MPI_DATA.items() if n in values}
    if data:
        fields["mpiDataExchanged"] = data
    openmp = {field: total(values.pop(n)) for n, field in OPENMP.items() if n in values}
    values.pop("OpenMPtotal", None)
    if openmp:
        fields["openMPinstructionMix"] = openmp
    return fields


_PLAIN_GROUPS = {
    "F0load": "load",
    "F0store": "store",
    "F0addr": "address_arith",
    "F0control": "control",
    "F0vector": "llvm_vector",
    "F0other": "misc",
}


def _mix(values: dict[str, MetricValue], count: float) -> dict[str, Any]:
    """Return the field instructionMix; fractions that are used are taken out of ``values``."""
    mix: dict[str, Any] = {"instructions_analyzed": count}
    fractions = {
        n: v for n in list(values) if n.startswith("F0") and isinstance(v := values[n], dict)
    }
    for name in fractions:
        values.pop(name)
    for name, group in _PLAIN_GROUPS.items():
        if name in fractions:
            mix[f"{group}_instructions"] = _lines(fractions[name], count)
    if "F0load" not in fractions and "F0store" not in fractions and "F0mem" in fractions:
        mix["load_instructions"] = _lines(fractions["F0mem"], count)
    for metric, parts, base in (
        ("F0int", {"F0intmul": "int_arith_mul", "F0intdiv": "int_arith_sdiv"}, "int_arith"),
        ("F0fp", {"F0fpmul": "fp_arith_mul", "F0fpdiv": "fp_arith_div"}, "fp_arith"),
    ):
        arithmetic = (
            fractions.get("F0intOnly", {}) if metric == "F0int" else fractions.get(metric, {})
        )
        arithmetic = arithmetic or fractions.get(metric, {})
        if not arithmetic:
            continue
        rest = dict(arithmetic)
        for name, group in parts.items():
            cells = fractions.get(name, {})
            mix[f"{group}_instructions"] = _lines(cells, count)
            rest = {k: max(0.0, v - cells.get(k, 0.0)) for k, v in rest.items()}
        mix[f"{base}_add_instructions"] = _lines(rest, count)
        bitwise = {
            k: max(0.0, v - arithmetic.get(k, 0.0)) for k, v in fractions.get(metric, {}).items()
        }
        if any(bitwise.values()):
            mix["bitwise_instructions"] = _lines(bitwise, count)
    return mix


def _lines(cells: InstructionCells, count: float) -> list[dict[str, Any]]:
    """Return a group as the profiler writes it: a list of one object with a line per vector."""
    kinds = {
        0: "int_misc",
        4: "int_4bits",
        8: "int_8bits",
        16: "int_16bits",
        32: "int_32bits",
        64: "int_64bits",
        128: "float_128bits",
    }
    lines = []
    for vector in sorted({v for v, _ in cells}):
        counts_by_kind = {
            kinds[d]: share * count for (v, d), share in cells.items() if v == vector and share
        }
        if counts_by_kind:
            lines.append(
                {
                    "vector_size": vector,
                    **counts_by_kind,
                    "instructions": sum(counts_by_kind.values()),
                }
            )
    instruction_count = sum(line["instructions"] for line in lines)
    scalar = sum(line["instructions"] for line in lines if line["vector_size"] == 1)
    return [
        {
            "total_instructions": instruction_count,
            "mix": lines,
            "scalar_instructions": scalar,
            "vector_instructions": instruction_count - scalar,
            "misc_instructions": 0,
        }
    ]


def _curve(value: MetricValue) -> list[list[float]]:
    return [[row[0], row[1]] for row in value] if isinstance(value, tuple) else []


def _events(curve: Sequence[Sequence[float]], references: float) -> list[list[float]]:
    events, share_below = [], 0.0
    for distance, share in curve:
        events.append([distance, (share - share_below) * references])
        share_below = share
    return events


def _plain(value: MetricValue) -> Any:
    """Return a metric in B.2's form."""
    if isinstance(value, dict):
        vectors = sorted({v for v, _ in value})
        return [[v, [[d, x] for (w, d), x in sorted(value.items()) if w == v]] for v in vectors]
    return _curve(value) if isinstance(value, tuple) else value


def file_name(application: str, scale: Mapping[str, float]) -> str:
    """Return the name of a profile's file."""
    parts = [application, *(f"{n}{v:.12g}" for n, v in sorted(scale.items()))]
    return re.sub(r"[^\w.-]", "_", "_".join(parts)) + ".json"


def write_profile(folder: Path, name: str, data: Mapping[str, Any]) -> Path:
    """Write a profile in one step; return its path. Raises AdvisorError."""
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(data) + "\n")
    except OSError as error:
        raise AdvisorError(f"{path} cannot be written: {error.strerror or error}") from None
    return path
