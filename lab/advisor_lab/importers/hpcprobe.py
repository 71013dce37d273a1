"""Read HPCProbe's results summary (``summary.yml``): a YAML list of measured runs.

Each entry has ``parameters`` (what was run), ``objectives`` (what came out) and, with repeats,
``stats``. Source: Endrei 2019, appendix A.1.5 and the columns of A.2.1.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from advisor.core.observation import Observation
from advisor.errors import InputError, UsageError
from advisor.store.csvfile import RowProblem, RunsFile, Terms, listing, read_bytes
from advisor_lab.hpcprobe.sweeps import read_again, read_sweeps

__all__ = ["ENDINGS", "Objectives", "read_again", "read_runs", "read_summary", "read_sweeps"]

ENDINGS = (".yml", ".yaml")
TIME = ("totalTime", "time", "runTime", "wallTime", "elapsedTime", "execTime", "tt")
ESTIMATED = "estimatedEnergy"
"""What the advisor's own summaries call energy that no meter measured."""
ENERGY = ("totalEnergy", "nodeEnergy", "energy", "te", ESTIMATED)
FOM = ("appRate", "fom", "ar")
"""Names of objectives that are known to mean time (s), energy (J) and a rate."""
_NODES, _THREADS_PER_NODE, _FREQ = ("nodes", "nd"), ("tn",), ("cpuFrequency", "fq")
_READ = {"nodes", "nd", "tn", "threadCount", "cpuFrequency", "fq", "nodePEs", "totalPEs", "ppn"}
_FREQ_KHZ = (100_000, 10_000_000)
"""Lowest and highest frequency that is believed."""
_MOST = 100_000
"""Most runs that are read from one summary."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """Which objectives hold time, energy and the rate; "" for the usual names."""

    time: str = ""
    energy: str = ""
    fom: str = ""


def read_runs(path: Path, terms: Terms, args: argparse.Namespace) -> RunsFile:
    """Read a summary as the options of ``advisor import`` say. Raises InputError, UsageError."""
    only = dict(text.partition("=")[::2] for text in args.only)
    if any("=" not in text for text in args.only):
        raise UsageError("--only: write KEY=VALUE")
    return read_summary(path, terms, Objectives(args.time_key, args.energy_key, args.fom_key), only)


def read_summary(
    path: Path,
    terms: Terms,
    objectives: Objectives,
    only: Mapping[str, str],
    *,
    workloads: bool = False,
) -> RunsFile:
    """Read a results summary as runs; ``only`` keeps those with these parameters.

    Raises InputError that lists every mistake by line, or says which objective is which is not
    known; runs that differ in execParam are workloads of their own and refused together, unless
    several ``workloads`` are wanted.
    """
    content = read_bytes(path)
    entries = [e for e in _entries(path, content) if e.matches(only)]
    if not entries:
        what = " with " + ", ".join(f"{k}={v}" for k, v in only.items()) if only else ""
        raise InputError(f"{path}: there are no runs{what} in it")
    sizes = sorted({str(e.parameters.get("execParam", "")) for e in entries})
    if len(sizes) > 1 and not workloads:
        raise InputError(
            f"{path}: execParam is {', '.join(sizes[:5])}: these are several workloads",
            hint=f"import each alone: --only execParam={sizes[0]} --workload ...",
        )
    keys = [k for e in entries for k in e.objectives]
    names = list(dict.fromkeys(keys))
    time = _objective(path, "time", objectives.time, TIME, names)
    energy = _objective(path, "energy", objectives.energy, ENERGY, names)
    fom = _objective(path, "fom", objectives.fom, FOM, names)
    if not time:
        raise InputError(
            f"{path}: no objective is recognised as the time in seconds",
            hint=f"name it with --time-key; there are {', '.join(names) or 'none'}",
        )
    problems: list[RowProblem] = []
    if energy == ESTIMATED:
        terms = replace(terms, energy_quality="estimated")
    runs = [e.run(terms, time, energy, fom, problems) for e in entries]
    if problems:
        raise InputError(listing(path, problems))
    extra = tuple(dict.fromkeys(k for r in runs if r for k in r.extra))
    return RunsFile(tuple(r for r in runs if r), extra, hashlib.sha256(content).hexdigest())


def _objective(
    path: Path, what: str, objective: str, usual: Sequence[str], names: Sequence[str]
) -> str:
    objective = objective.removeprefix("objectives.")
    if objective and objective not in names:
        raise InputError(
            f"{path}: no run has the objective {objective}",
            hint=f"--{what}-key is one of {', '.join(names)}",
        )
    return objective or next((u for u in usual if u in names), "")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One result: its line, and the lines of its keys."""

    line: int
    parameters: Mapping[str, Any]
    objectives: Mapping[str, Any]
    lines: Mapping[str, int]
    stats: Mapping[str, Mapping[str, float]]

    def matches(self, only: Mapping[str, str]) -> bool:
        return all(str(self.parameters.get(k, "")) == v for k, v in only.items())

    def run(
        self, terms: Terms, time: str, energy: str, fom: str, problems: list[RowProblem]
    ) -> Observation | None:
        """Return the run, or None with what is wrong added to ``problems``."""
        problem_count = len(problems)

        def read(
            fields: Mapping[str, Any], keys: Sequence[str], parse: Callable[[Any], Any], need: bool
        ) -> Any:
            key = next((k for k in keys if fields.get(k) is not None), None)
            if key is None:
                if need:
                    problems.append(RowProblem(self.line, keys[0], "is missing"))
                return None
            try:
                return parse(fields[key])
            except ValueError as error:
                problems.append(RowProblem(self.lines.get(key, self.line), key, str(error)))
                return None

        p = self.parameters
        nodes = read(p, _NODES, _count, True) or 1
        ranks = read(p, ("nodePEs",), _count, False)
        total_ranks = read(p, ("totalPEs",), _count, False)
        threads = read(p, _THREADS_PER_NODE, _count, False)
        if threads is None:
            total = read(p, ("threadCount",), _count, True)
            threads, rest = divmod(total or nodes, nodes)
            if rest or not threads:
                problems.append(
                    RowProblem(
                        self.lines.get("threadCount", self.line),
                        "threadCount",
                        f"{total} threads do not spread evenly over {nodes} nodes",
                    )
                )
        freq = read(p, _FREQ, _freq, False) or 0
        time_s = read(self.objectives, (time,), _positive, True)
        energy_j = read(self.objectives, (energy,), _positive, False) if energy else None
        rate = read(self.objectives, (fom,), _positive, False) if fom else None
        ranks = ranks or max(1, (total_ranks or nodes) // nodes)
        if threads and threads < ranks:
            message = f"{threads} per node is less than the {ranks} ranks"
            problems.append(RowProblem(self.line, "threadCount", message))
        if len(problems) > problem_count:
            return None
        extra: dict[str, object] = {
            k: v for k, v in p.items() if k not in _READ and isinstance(v, str | int | float)
        }
        if self.stats:
            extra["stats"] = {name: dict(values) for name, values in self.stats.items()}
        return terms.run((nodes, ranks, threads, freq), time_s, energy_j, rate, extra)


def _entries(path: Path, content: bytes) -> Iterator[_Entry]:
    try:
        root = yaml.compose(content.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from None
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or "it is nested too deeply"
        raise InputError(f"{path}{where}: not YAML: {what}") from None
    if root is None:
        raise InputError(f"{path} is empty")
    if not isinstance(root, yaml.SequenceNode):
        raise InputError(
            f"{path}, line {root.start_mark.line + 1}: a results summary is a list of runs",
            hint="each with objectives and parameters",
        )
    if len(root.value) > _MOST:
        raise InputError(f"{path} has more than {_MOST} runs")
    for node in root.value:
        line = node.start_mark.line + 1
        parts = _mapping(path, node, "a run")
        lines: dict[str, int] = {}
        values: dict[str, dict[str, Any]] = {}
        for name in ("parameters", "objectives"):
            if name not in parts:
                present = ", ".join(parts) or "nothing"
                raise InputError(
                    f"{path}, line {line}: the run has no {name}, but {present}",
                    hint="summaries of the release of Endrei 2019 are read: each run has "
                    "objectives, parameters and perhaps stats",
                )
            inner = _mapping(path, parts[name], name)
            lines |= {k: v.start_mark.line + 1 for k, v in inner.items()}
            values[name] = {k: _scalar(v) for k, v in inner.items()}
        stats = _stats(path, parts["stats"]) if "stats" in parts else {}
        for name, statistics in stats.items():  # a file may leave the objective to its statistics
            if values["objectives"].get(name) is None and "median" in statistics:
                values["objectives"][name] = statistics["median"]
        yield _Entry(line, values["parameters"], values["objectives"], lines, stats)


def _stats(path: Path, node: yaml.Node) -> dict[str, dict[str, float]]:
    """Return the statistics of repeats by objective, nested or written ``OBJECTIVE.STATISTIC``."""
    by_objective: dict[str, dict[str, float]] = {}
    for name, value in _mapping(path, node, "stats").items():
        if isinstance(value, yaml.MappingNode):
            pairs = [(name, k, v) for k, v in _mapping(path, value, name).items()]
        else:
            objective, _, statistic = name.rpartition(".")
            pairs = [(objective or name, statistic if objective else "value", value)]
        for objective, statistic, statistic_node in pairs:
            number = _scalar(statistic_node)
            if isinstance(number, int | float) and not isinstance(number, bool):
                by_objective.setdefault(objective, {})[statistic] = float(number)
            elif number is not None:
                where = f"{path}, line {statistic_node.start_mark.line + 1}"
                raise InputError(f"{where}, stats of {objective}: {number!r} is not a number")
    return by_objective


def _mapping(path: Path, node: yaml.Node, what: str) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{path}, line {node.start_mark.line + 1}: {what} must be keys and values")
    return {str(k.value): v for k, v in node.value}


def _scalar(node: yaml.Node) -> Any:
    """Return a plain value; YAML 1.1 reads 1.2e6 as text, so numbers are tried first."""
    if not isinstance(node, yaml.ScalarNode):
        return [] if isinstance(node, yaml.SequenceNode) else {}
    text = str(node.value)
    if node.tag == "tag:yaml.org,2002:null":
        return None
    if node.style not in ("'", '"'):
        if text.lower() in (".nan", "nan"):  # HPCProbe's word for not measured
            return None
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _positive(value: Any) -> float:
    number = _number(value)
    if number <= 0:
        raise ValueError(f"{value!r} is not above 0")
    return number


def _count(value: Any) -> int:
    number = _number(value)
    if number != int(number) or not 1 <= number <= 10_000_000:
        raise ValueError(f"{value!r} is not a whole number from 1 up")
    return int(number)


def _freq(value: Any) -> int:
    number = _number(value)
    if number and not _FREQ_KHZ[0] <= number <= _FREQ_KHZ[1]:
        raise ValueError(f"{value!r} is not a frequency in kHz; 1.9 GHz is 1900000")
    return round(number)
