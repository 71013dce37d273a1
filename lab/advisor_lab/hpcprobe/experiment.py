"""Read HPCProbe's experiment file as sweeps: job scripts, and the values to vary.

One file is one sweep for each value of ``execParam`` and each number of nodes: these are workloads
and shapes of their own, each with a model of its own. Source: Endrei 2019, appendix A.1.2.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.placement import (
    BINDINGS,
    COMPACT,
    PLACEMENTS,
    RUNTIMES,
    SCATTER,
    WORDS,
    binding_variables,
    check_binding,
    thread_variables,
)
from advisor.core.script_use import CAP_VARIABLE
from advisor.core.units import format_count
from advisor.meters.events import named_event
from advisor.schedulers.translators import Translator, translator
from advisor.training.experiment import Experiment
from advisor_lab.hpcprobe.experiment_file import ExperimentFile, read_file
from advisor_lab.hpcprobe.extraction import NO_RULES, beside, read_rules
from advisor_lab.hpcprobe.postprocess import JOB_RESULTS, PostProcessing, placeholders
from advisor_lab.hpcprobe.summary import RUN_PARAMETERS

_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)\}|(\w+))")
_THREADS = re.compile(r"\$(?:\{(OMP_NUM_THREADS)\}|(OMP_NUM_THREADS)\b)")
_WALLTIME = re.compile(r"(\d+):[0-5]?\d:[0-5]?\d|\d+")
_METERED = re.compile(r"(?:PM_(?:ENERGY|POWER|CPU_|MEMORY_)|UNITS:|RAPL|\d+$)")
"""What CrayPAT meters of power, its units, and the numbers of its own groups of counters."""
_UNQUOTED = re.compile(r"[^\w.=+,-]+")
"""What a setting's value in a script cannot hold without quotes."""
_PERFCTR = "PAT_RT_PERFCTR"
_MOST_SWEEPS = 100
"""Sweeps of one experiment."""


@dataclass(frozen=True, slots=True)
class _SweepShape:
    """Number of nodes, ranks of each, and the cores per node to try (empty: as the job has it)."""

    nodes: int
    ranks: int
    threads: tuple[int, ...]
    threads_of_rank: int


def read_experiments(path: Path, scheduler: str) -> tuple[Experiment, ...]:
    """Read an experiment file, for a scheduler by its name: one sweep or several.

    Raises InputError that lists every mistake by line and key.
    """
    file = read_file(path)
    language = translator(scheduler)
    if not file.texts["expExec"]:
        file.wrong("expExec", "expExec is missing: the executable and its options")
    if file.texts["walltime"] and not _WALLTIME.fullmatch(file.texts["walltime"]):
        file.wrong("walltime", f"{file.texts['walltime']!r} is not hh:mm:ss or seconds")
    shapes = _shapes(file)
    exports = {**_placed(file, shapes, language), **_exports(file)}
    events = _counters(file, exports)
    post_processing = _post_processing(file)
    parameters: Sequence[int | None] = file.ranges["execParam"] or (None,)
    several = len(parameters) > 1
    if len(parameters) * len(shapes) > _MOST_SWEEPS:
        count = len(parameters) * len(shapes)
        file.wrong("execParam", f"{count} sweeps are more than {_MOST_SWEEPS}")
        parameters = parameters[:1]
    sweeps = []
    for parameter in parameters:
        for shape in shapes:
            label = _label(file, parameter if several else None)
            command = _command(file, shape, parameter)
            script = _script(file, shape, exports, (label, command), language)
            sweeps.append((shape, parameter, script))
    file.check()
    return tuple(
        Experiment(
            name=file.texts["expName"] or path.stem,
            script=script,
            nodes=shape.nodes,
            threads=() if _lists_cores(file) else shape.threads,
            freqs_khz=file.ranges["cpuFrequency"],
            repeats=file.counts["repeatCount"] or 1,
            attempts=0 if file.counts["retries"] is None else file.counts["retries"] + 1,
            go_on=bool(file.flags["batchContinue"]),
            reget=bool(file.flags["reget"]),
            node_sockets=file.counts["nodeSockets"] or 0,
            events=events,
            after=post_processing.for_run(
                nodes=shape.nodes, nodePEs=shape.ranks, execParam=parameter
            ).to_dict(),
            notes=tuple(_notes(file, shape)),
        )
        for shape, parameter, script in sweeps
    )


def _lists_cores(file: ExperimentFile) -> bool:
    """Tell whether the file binds ranks to cores by number, which fixes the threads of a run."""
    return file.texts["cpuBinding"] not in ("", *BINDINGS)


def _notes(file: ExperimentFile, shape: _SweepShape) -> list[str]:
    """Return what is done otherwise than HPCProbe does it."""
    notes = []
    if file.flags["omp"] is False:
        notes.append(
            "omp = False: runs on fewer threads set OMP_NUM_THREADS all the same; "
            "MPI ranks do not mind"
        )
    if file.texts["threadPlacement"] and shape.ranks > 1:
        notes.append(
            "threadPlacement places the threads of each rank on the cores of that rank; the "
            "scheduler places the ranks"
        )
    if "$th" in file.texts["expExec"] or "OMP_NUM_THREADS" in file.texts["expExec"]:
        notes.append(
            "its script passes the thread count on: a sweep varies it, no count is advised for the "
            "job; write the best one into it"
        )
    if "$fq" in file.texts["expExec"]:
        notes.append(
            "$fq is the cap of each run of the sweep; no cap is advised for the job, whose script "
            "does not know it"
        )
    return notes


def _shapes(file: ExperimentFile) -> list[_SweepShape]:
    """Return the numbers of nodes to sweep, each with its cores per node, the first at least."""
    counts = file.counts
    place = file.one_of("nodePlacement", (COMPACT, SCATTER), SCATTER)
    base2, ppn, totals = file.flags["base2"], counts["ppn"], file.ranges["threadCount"]
    if (base2 or place == COMPACT) and totals and not ppn:
        file.wrong("base2" if base2 else "nodePlacement", "needs ppn")
        totals = ()
    by_nodes: dict[int, list[int]] = {}
    if base2 and totals and ppn:
        for exponent in totals:
            # Bounded: a mistyped exponent would be a number of millions of digits.
            by_nodes.setdefault(2 ** min(exponent, 20), []).append(2 ** min(exponent, 20) * ppn)
    elif place == COMPACT and ppn:
        for total in totals:
            by_nodes.setdefault(_fewest(total, ppn, counts["nodePEs"] or 1), []).append(total)
    elif totals:
        by_nodes[counts["nodes"] or 1] = list(totals)
    most = counts["nodes"]
    if most and (too_many := [n for n in by_nodes if n > most]):
        file.wrong(
            "threadCount", f"needs {format_count(max(too_many), 'node')}, but nodes is {most}"
        )
    if not by_nodes:
        return [_shape(file, counts["nodes"] or 1, ())]
    return [_shape(file, nodes, values) for nodes, values in sorted(by_nodes.items())]


def _fewest(total: int, ppn: int, ranks: int) -> int:
    """Return the fewest nodes that hold so many threads, each the same number."""
    least = -(-total // ppn)
    even = (n for n in range(least, total + 1) if total % (n * ranks) == 0)
    return next(even, least)


def _shape(file: ExperimentFile, nodes: int, totals: Sequence[int]) -> _SweepShape:
    """Return the shape of a sweep; ``totals`` are threads of all its nodes together."""
    counts = file.counts
    ranks, all_ranks = counts["nodePEs"], counts["totalPEs"]
    if not ranks and all_ranks and all_ranks % nodes:
        file.wrong("totalPEs", f"{all_ranks} ranks do not spread evenly over {nodes} nodes")
    ranks = ranks or max(1, (all_ranks or 1) // nodes)
    threads: list[int] = []
    for total in totals:
        per_node, rest = divmod(total, nodes)
        if rest or per_node % ranks or not per_node:
            file.wrong(
                "threadCount",
                f"{format_count(total, 'thread')} do not spread evenly over "
                f"{format_count(nodes, 'node')} of {format_count(ranks, 'rank')} each",
            )
        elif counts["ppn"] and per_node > counts["ppn"]:
            file.wrong("threadCount", f"{per_node} threads per node, but ppn is {counts['ppn']}")
        else:
            threads.append(per_node)
    if counts["peThreads"] and threads and set(threads) != {counts["peThreads"] * ranks}:
        file.wrong("peThreads", "contradicts threadCount; leave one of them out")
    most = counts["ppn"] or max(threads, default=(counts["peThreads"] or 1) * ranks)
    return _SweepShape(nodes, ranks, tuple(threads), max(1, most // ranks))


def _placed(
    file: ExperimentFile, shapes: Sequence[_SweepShape], language: Translator
) -> dict[str, str]:
    """Return the variables of placement and binding, none where the file asks for none."""
    runtime = file.texts["runtime"]
    if runtime:
        runtime = file.one_of("runtime", RUNTIMES, RUNTIMES[0])
    variables: dict[str, str] = {}
    if file.texts["threadPlacement"]:
        variables |= thread_variables(file.one_of("threadPlacement", PLACEMENTS, SCATTER))
    if file.texts["cpuBinding"]:
        try:
            binding = check_binding(file.texts["cpuBinding"])
            if _lists_cores(file) and any(len(shape.threads) > 1 for shape in shapes):
                why = "threads are not varied where cpuBinding lists cores; leave one of them out"
                file.wrong("threadCount", why)
            binding_exports = language.bound_ranks(binding)
            if binding_exports is None:
                launcher = language.launched("x", 2).split()[0]
                binding_exports = binding_variables(binding, launcher, runtime)
            variables |= binding_exports
        except ValueError as error:
            file.wrong("cpuBinding", str(error))
    return variables


def _counters(file: ExperimentFile, exports: Mapping[str, str]) -> tuple[str, ...]:
    """Return the counters that the file asks CrayPAT for, without what is metered otherwise."""
    names = [n.strip() for n in exports.get(_PERFCTR, "").split(",") if n.strip()]
    counters = [n for n in names if not _METERED.match(n)]
    for name in counters:
        try:
            named_event(name)
        except ValueError as error:
            file.wrong("env", str(error))
    return tuple(counters)


def _limited(
    file: ExperimentFile, language: Translator, nodes: int, options: dict[str, str]
) -> dict[str, str]:
    """Return a job's options with the experiment's limits."""
    if not file.texts["limits"]:
        return options
    try:
        return language.limited(file.texts["limits"], nodes, options)
    except ValueError as error:
        file.wrong("limits", str(error))
        return options


def _post_processing(file: ExperimentFile) -> PostProcessing:
    """Return what is done with the output of each run."""
    rules, rules_file = NO_RULES, beside(file.path)
    if rules_file is not None:
        rules = read_rules(rules_file)
    command = file.texts["postExec"]
    for name in placeholders(command):
        placeholder_names = {
            JOB_RESULTS,
            "dataPath",
            *_parameters(file),
            *RUN_PARAMETERS,
            *rules.names("run"),
        }
        placeholder_names |= {"execParam"} if file.ranges["execParam"] else set()
        if name not in placeholder_names:
            listed = ", ".join(sorted(placeholder_names))
            file.wrong("postExec", f"%({name})s is not known; known: {listed}")
    return PostProcessing(
        experiment=file.texts["expName"] or file.path.stem,
        file=str(file.path.absolute()),
        rules=str(rules_file.absolute()) if rules_file is not None else "",
        post_exec=command,
        retries=file.counts["retries"] or 0,
        output_folder=file.texts["outputFolder"],
        parameters=_parameters(file),
    )


def _parameters(file: ExperimentFile) -> dict[str, object]:
    """Return the options that describe every run alike."""
    names = (
        "ppn",
        "peThreads",
        "nodeSockets",
        "socketRings",
        "accWaitLi",
        "accCopyLi",
        "execLoopLi",
        "execRegion",
    )
    parameters: dict[str, object] = {n: v for n in names if (v := file.counts[n])}
    for name in ("threadPlacement", "nodePlacement", "cpuBinding", "runtime"):
        if file.texts[name]:
            parameters[name] = file.texts[name]
    return parameters


def _label(file: ExperimentFile, parameter: int | None) -> str:
    """Return the workload's name where it must be stated: several, or a placement of its own."""
    placement = WORDS.get(file.texts["threadPlacement"], "")
    parts = ["" if parameter is None else str(parameter), placement]
    if placement and parameter is None:  # in place of the name that its arguments would give
        arguments = " ".join(file.texts["expExec"].split()[1:])
        parts[0] = ",".join(map(str, file.ranges["execParam"])) or _UNQUOTED.sub("_", arguments)
    return "-".join(part for part in parts if part)


def _command(file: ExperimentFile, shape: _SweepShape, parameter: int | None) -> str:
    """Put the sweep's own values in place of ``$th``, ``$fq`` and ``$p``; an escaped $ is plain."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        if name == "p":
            if parameter is None:
                file.wrong("expExec", "has $p, but there is no execParam")
            return "" if parameter is None else str(parameter)
        if name == "OMP_NUM_THREADS":  # not set where the job runs as it is
            return f"${{{name}:-{shape.threads_of_rank}}}"
        if name == "th":
            all_ranks = shape.nodes * shape.ranks
            return f"$((${{OMP_NUM_THREADS:-{shape.threads_of_rank}}} * {all_ranks}))"
        if name == "fq":
            highest_khz = max(file.ranges["cpuFrequency"], default=0)
            return f"${{{CAP_VARIABLE}:-{highest_khz}}}"
        return match[0]

    return _THREADS.sub(value, _VARIABLE.sub(value, file.texts["expExec"]))


def _exports(file: ExperimentFile) -> dict[str, str]:
    """Return the variables of ``n1=v1,n2=v2``; a quoted value may hold commas."""
    lexer = shlex.shlex(file.texts["env"], posix=True)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = ",", True, ""
    try:
        words = [w.strip() for w in lexer]
    except ValueError:
        file.wrong("env", "a quote is not closed")
        return {}
    for word in words:
        if not re.match(r"[A-Za-z_]\w*=", word):
            file.wrong("env", f"{word!r} is not NAME=VALUE")
            return {}
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _script(
    file: ExperimentFile,
    shape: _SweepShape,
    exports: Mapping[str, str],
    what: tuple[str, str],
    language: Translator,
) -> str:
    """Return the job script that runs the experiment once, as it is.

    ``exports`` are its variables, ``what`` the workload's name ("" for as recognised) and
    the command.
    """
    (label, command), texts = what, file.texts
    cores = shape.ranks * shape.threads_of_rank
    node_type = NodeType("", cores=cores, default_partition=texts["queue"])
    walltime = _time(texts["walltime"])
    options = {
        "job-name": re.sub(r"[^\w.+-]", "_", texts["expName"]),
        **language.asking_for(Configuration("", shape.nodes, shape.ranks, cores, 0), node_type),
        **({language.TIME_LIMIT: walltime} if walltime else {}),
        "account": texts["account"],
    }
    options = _limited(file, language, shape.nodes, options)
    words = language.written({name: value for name, value in options.items() if value})
    modules = [m.strip() for m in texts["modules"].split(",") if m.strip()]
    return "\n".join(
        [
            "#!/bin/bash",
            *(" ".join((language.DIRECTIVE, *option)) for option in words),
            *([f"#ADVISOR workload={label}"] if label else []),
            *(f"module {m}" for m in modules),
            *_export_lines(exports.items()),
            *([f"cd {texts['workFolder']} || exit"] if texts["workFolder"] else []),
            language.launched(command, shape.nodes * shape.ranks),
            "",
        ]
    )


def _export_lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in pairs]


def _time(walltime: str) -> str:
    """Write seconds as h:mm:ss: a single number are seconds here, minutes for Slurm."""
    if not walltime.isdecimal():
        return walltime
    minutes, seconds = divmod(int(walltime), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
