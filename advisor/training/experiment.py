"""Read HPCProbe's experiment file as a sweep: a job script, and the values to vary.

Source: Endrei 2019, appendix A.1.2 (the options) and listing A.1 (a whole file). What HPCProbe
leaves to its own batch mode is the sweep's here; an option without a counterpart is named.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.errors import InputError
from advisor.schedulers.translators import Translator, translator

SECTION = "Experiment"
_RANGE = {"threadCount", "cpuFrequency", "execParam"}
_COUNTS = {"nodes", "ppn", "nodePEs", "totalPEs", "peThreads", "repeatCount"}
_TEXTS = {"expName", "expExec", "workFolder", "walltime", "account", "queue", "env", "modules"}
_FLAGS = {"batch", "omp", "base2"}
_WITHOUT: dict[str, str] = {
    "outputFolder": "results go to the store",
    "postExec": "energy comes from the meter; there is no post-processing",
    "limits": "give scheduler options with --options",
    "cpuBinding": "threads are placed by the scheduler",
    "threadPlacement": "threads are placed by the scheduler",
    "nodePlacement": "every run fills the same nodes evenly",
    "nodeSockets": "the inventory knows the sockets",
    "socketRings": "core rings are not distinguished",
    "batchContinue": "advisor train --resume goes on with a sweep",
    "reget": "nothing is parsed again",
    "retries": "a failed run is tried again anyway",
    "accWaitLi": "no counters are read",
    "accCopyLi": "no counters are read",
    "execLoopLi": "no counters are read",
    "execRegion": "no counters are read",
    "runtime": "the scheduler starts the ranks",
}
_KNOWN = _RANGE | _COUNTS | _TEXTS | _FLAGS | set(_WITHOUT)
_DEFAULTS = {"threadPlacement": "S", "nodePlacement": "S", "batchContinue": "False",
             "reget": "False", "retries": "0"}  # fmt: skip
_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)\}|(\w+))")
_WALLTIME = re.compile(r"(\d+):[0-5]?\d:[0-5]?\d|\d+")
_MOST_VALUES = 10_000


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment: the job script that runs it once, and the grid to sweep.

    ``threads`` are cores per node, ``freqs_khz`` caps in kHz (empty: as the node type has them),
    ``notes`` name what has no counterpart.
    """

    name: str
    script: str
    nodes: int
    threads: tuple[int, ...]
    freqs_khz: tuple[int, ...]
    repeats: int
    notes: tuple[str, ...]

    def frequencies(self, node_type: NodeType) -> tuple[tuple[int, ...], list[str]]:
        """Return the frequency caps that a node type has, and a warning where it lacks some."""
        steps = tuple(f for f in self.freqs_khz if f in node_type.freq_khz)
        missing = len(self.freqs_khz) - len(steps)
        if not missing or not node_type.freq_khz:
            return steps, []
        return steps, [
            f"{missing} of the experiment's {len(self.freqs_khz)} frequency caps are not steps of "
            f"{node_type.name} and are left out"
        ]


@dataclass(slots=True)
class _File:
    path: Path
    values: dict[str, str]
    lines: dict[str, int]
    problems: list[tuple[int, str]] = field(default_factory=list)

    def wrong(self, key: str, message: str) -> None:
        line = self.lines.get(key, 0)
        self.problems.append((line, f"line {line}, {key}: {message}" if line else message))

    def get(self, key: str, parse: Callable[[str], object]) -> object | None:
        text = self.values.get(key)
        if text is None or not text.strip():
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            self.wrong(key, str(error))
            return None


def is_experiment(path: Path) -> bool:
    """Tell whether a file's name says that it is an experiment file."""
    return path.suffix.lower() == ".ini"


def read_experiment(path: Path, scheduler: str) -> Experiment:
    """Read an experiment file, for a scheduler by its name.

    Raises InputError that lists every mistake by line and key.
    """
    file = _read(path)
    notes = _without_counterpart(file)
    texts = {key: str(file.get(key, str) or "") for key in _TEXTS}
    counts = {key: _int(file.get(key, _count)) for key in _COUNTS}
    flags = {key: file.get(key, _flag) for key in _FLAGS}
    ranges = {key: _tuple(file.get(key, _values)) for key in _RANGE}
    if not texts["expExec"]:
        file.wrong("expExec", "expExec is missing: the executable and its options")
    nodes, ranks = counts["nodes"] or 1, _ranks(file, counts)
    threads = _threads(file, ranges["threadCount"], nodes, ranks, counts, bool(flags["base2"]))
    parameter = _parameter(file, ranges["execParam"])
    most = max(threads, default=counts["ppn"] or ranks)
    per_rank = max(1, (counts["ppn"] or most) // ranks)
    command = _command(file, texts["expExec"], parameter, per_rank, nodes * ranks)
    if texts["walltime"] and not _WALLTIME.fullmatch(texts["walltime"]):
        file.wrong("walltime", f"{texts['walltime']!r} is not hh:mm:ss or seconds")
    if flags["omp"] is False:
        notes.append("omp = False: OMP_NUM_THREADS is set all the same; MPI ranks do not mind")
    exports = _exports(file, texts["env"])
    if file.problems:
        count = "1 mistake" if len(file.problems) == 1 else f"{len(file.problems)} mistakes"
        lines = [f"  {message}" for _, message in sorted(file.problems)]
        raise InputError("\n".join([f"{path}: {count}, nothing is run", *lines]))
    script = _script(texts, (nodes, ranks, per_rank), exports, command, translator(scheduler))
    return Experiment(
        texts["expName"] or path.stem,
        script,
        nodes,
        threads,
        ranges["cpuFrequency"],
        counts["repeatCount"] or 1,
        tuple(notes),
    )


def _read(path: Path) -> _File:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from None
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys as they are written
    try:
        parser.read_string(text)
    except configparser.MissingSectionHeaderError as error:
        raise InputError(
            f"{path}, line {error.lineno}: no section yet", hint=f"begin with [{SECTION}]"
        ) from None
    except configparser.ParsingError as error:
        line = error.errors[0][0]
        raise InputError(f"{path}, line {line}: not KEY = VALUE") from None
    except (configparser.DuplicateOptionError, configparser.DuplicateSectionError) as error:
        what = getattr(error, "option", "") or f"[{error.section}]"
        raise InputError(f"{path}, line {error.lineno}: {what} is given twice") from None
    if SECTION not in parser:
        raise InputError(f"{path}: there is no section [{SECTION}]")
    lines: dict[str, int] = {}
    for number, row in enumerate(text.splitlines(), 1):
        option = re.match(r"([\w.]+)\s*[=:]", row)
        if option:
            lines.setdefault(option[1], number)
    file = _File(path, {k: " ".join(v.split()) for k, v in parser[SECTION].items()}, lines)
    for key in file.values:
        if key not in _KNOWN:
            near = next((k for k in sorted(_KNOWN) if k.lower() == key.lower()), "")
            file.wrong(key, f"is no option of an experiment{f'; is it {near}?' if near else ''}")
    return file


def _without_counterpart(file: _File) -> list[str]:
    return [
        f"{key} has no counterpart and is left out: {why}"
        for key, why in _WITHOUT.items()
        if file.values.get(key, "") not in ("", _DEFAULTS.get(key, ""))
    ]


def _int(value: object | None) -> int | None:
    return value if isinstance(value, int) else None


def _tuple(value: object | None) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else ()


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 10_000_000:
        raise ValueError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text == "True"


def _values(text: str) -> tuple[int, ...]:
    """Read ``VALUE`` or ``START,END,STEP``, the end included."""
    parts = [p.strip() for p in text.split(",")]
    if len(parts) not in (1, 3) or not all(p.isascii() and p.isdecimal() for p in parts):
        raise ValueError(f"{text!r} is neither a whole number nor start,end,step")
    numbers = [int(p) for p in parts]
    if len(numbers) == 1:
        return (numbers[0],)
    start, end, step = numbers
    if start == end:
        return (start,)
    if step < 1 or end < start:
        raise ValueError(f"{text!r} does not go from start up to end in steps")
    if (end - start) // step > _MOST_VALUES:
        raise ValueError(f"{text!r} has more than {_MOST_VALUES} values")
    return tuple(range(start, end + 1, step))


def _ranks(file: _File, counts: dict[str, int | None]) -> int:
    """Return the MPI ranks per node: stated, or out of the total over the nodes."""
    nodes, total = counts["nodes"] or 1, counts["totalPEs"]
    if counts["nodePEs"]:
        return counts["nodePEs"]
    if total and total % nodes:
        file.wrong("totalPEs", f"{total} ranks do not spread evenly over {nodes} nodes")
    return max(1, total // nodes) if total else 1


def _threads(
    file: _File,
    totals: tuple[int, ...],
    nodes: int,
    ranks: int,
    counts: dict[str, int | None],
    base2: bool,
) -> tuple[int, ...]:
    """Return the cores per node to try, out of totals over all nodes (or exponents of base 2)."""
    if base2 and totals:
        if not counts["ppn"]:
            file.wrong("base2", "needs ppn")
            return ()
        if len(totals) > 1:
            file.wrong("threadCount", "base2 varies the number of nodes: a sweep for each")
            return ()
        totals = (2 ** min(totals[0], 30) * counts["ppn"],)
    found = []
    for total in totals:
        per_node, rest = divmod(total, nodes)
        if rest or per_node % ranks or not per_node:
            file.wrong(
                "threadCount",
                f"{total} threads do not spread evenly over {nodes} nodes x {ranks} ranks",
            )
            return ()
        if counts["ppn"] and per_node > counts["ppn"]:
            file.wrong("threadCount", f"{per_node} threads per node, but ppn is {counts['ppn']}")
            return ()
        found.append(per_node)
    if counts["peThreads"] and found and set(found) != {counts["peThreads"] * ranks}:
        file.wrong("peThreads", "contradicts threadCount; leave one of them out")
    return tuple(found)


def _parameter(file: _File, values: tuple[int, ...]) -> str:
    if len(values) > 1:
        file.wrong(
            "execParam",
            f"{len(values)} values are {len(values)} workloads: run a sweep for each of them",
        )
    return str(values[0]) if values else ""


def _command(file: _File, text: str, parameter: str, threads: int, ranks: int) -> str:
    """Put the sweep's own values in place of ``$th`` and ``$p``; an escaped $ is a plain one."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        if name == "p":
            if not parameter:
                file.wrong("expExec", "has $p, but there is no execParam")
            return parameter
        if name == "th":
            return f"$((${{OMP_NUM_THREADS:-{threads}}} * {ranks}))"
        if name == "fq":
            file.wrong("expExec", "has $fq, but a run does not know its frequency cap")
        return match[0]

    return _VARIABLE.sub(value, text)


def _exports(file: _File, text: str) -> list[str]:
    """Return ``export`` lines of ``n1=v1,n2=v2``; a quoted value may hold commas."""
    if not text:
        return []
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = ",", True, ""
    try:
        words = [w.strip() for w in lexer]
    except ValueError:
        file.wrong("env", "a quote is not closed")
        return []
    for word in words:
        if not re.match(r"[A-Za-z_]\w*=", word):
            file.wrong("env", f"{word!r} is not NAME=VALUE")
            return []
    pairs = [word.partition("=") for word in words]
    return [f"export {name}={shlex.quote(value)}" for name, _, value in pairs]


def _script(
    texts: dict[str, str],
    sizes: tuple[int, int, int],
    exports: list[str],
    command: str,
    language: Translator,
) -> str:
    """Return the job script that runs the experiment once, as it is.

    ``sizes``: nodes, ranks of a node, threads of a rank.
    """
    nodes, ranks, threads = sizes
    node_type = NodeType("", cores=ranks * threads, default_partition=texts["queue"])
    options = {
        "job-name": re.sub(r"[^\w.+-]", "_", texts["expName"]),
        **language.asking_for(Configuration("", nodes, ranks, ranks * threads, 0), node_type),
        language.TIME_LIMIT: _time(texts["walltime"]),
        "account": texts["account"],
    }
    words = language.written({name: value for name, value in options.items() if value})
    modules = [m.strip() for m in texts["modules"].split(",") if m.strip()]
    return "\n".join(
        [
            "#!/bin/bash",
            *(" ".join((language.DIRECTIVE, *option)) for option in words),
            *(f"module {m}" for m in modules),
            *exports,
            *([f"cd {texts['workFolder']} || exit"] if texts["workFolder"] else []),
            language.launched(command, nodes * ranks),
            "",
        ]
    )


def _time(walltime: str) -> str:
    """Write seconds as h:mm:ss: a single number are seconds here, minutes for Slurm."""
    if not walltime.isdecimal():
        return walltime
    minutes, seconds = divmod(int(walltime), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
