"""Read a job script the way the advisor needs it: launcher line, threads, ``#ADVISOR`` lines.

This is reading, not running: simple assignments and positional arguments are expanded, anything
cleverer is left as it stands and simply not recognised.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import thread_time

from advisor.core.launchers import (
    LAUNCHERS,
    NO_PROGRAMS,
    SUBMITS,
    VALUE_IS_A_NAME,
    ends_at_once,
    is_light,
    split_options,
)
from advisor.core.remembered import Remembered
from advisor.core.shell import Shell, ShellCommand, read_shell
from advisor.core.shell_values import (
    ALTERS,
    Doubtful,
    ShellValues,
    assignment,
    run_builtin,
    unsettled_names,
)
from advisor.core.shell_words import TOO_SLOW, NotFollowedError, TooSlowError
from advisor.core.wrappers import file_of, unwrap

DEADLINE_S = 0.01
"""Reading one script may take so much of the processor; then nothing in it is recognised."""

_CPU_OPTIONS = ("-c", "--cpus-per-task", "--cpus-per-proc", "-d", "--depth")
_CUT = re.compile(r".*[\"'`]|[^{]*\}")
"""The end of a ``${...}`` with a path or quotes in it, which is no name of a program."""
_THREADS = re.compile(r"\b((?:OMP|MKL|OPENBLAS)_NUM_THREADS)=(.*)", re.DOTALL)
_AS_REQUESTED = re.compile(r"\$\{?(SLURM_CPUS_PER_TASK|NCPUS)(?:\}|:?\?[^}]*\})?|")
_REQUESTED_OR = re.compile(r"\$\{SLURM_CPUS_PER_TASK:?[-=](\d{1,4})\}")
_ALL_CPUS = re.compile(r"\$\{?SLURM_CPUS_ON_NODE\}?|\$\(nproc(?: --all)?\)|`nproc(?: --all)?`")
_LONG_VALUE = 60
"""Characters of a value that are shown."""
_REMEMBERED_LENGTH = 16384
"""Characters of the longest script whose reading is remembered."""
_LONG_EVALUATED = 4096
"""Characters of what ``eval`` gets, where that is read."""
_NOT_EVALUATED = ("$", "`", "<<", "\\", "{", "}")
"""What in it is not read: substitutions, here-documents, braces, and what ends behind a line."""
_NUMBER_OF_JOB = re.compile(
    r"\$(?:SLURM_(?:JOB_?ID|ARRAY_(?:TASK|JOB)_ID|N(?:TASKS|NODES|PROCS)|JOB_NUM_NODES"
    r"|NTASKS_PER_NODE|CPUS_PER_TASK|CPUS_ON_NODE)|PBS_(?:ARRAY_INDEX|NP))\b"
)
"""A variable of the scheduler's that holds a number, whatever its user named the job."""
_LONG_LINE, _MANY_LINES = 1024, 100
"""Characters of an ``#ADVISOR`` line, and how many lines: shlex is slow."""
_ADVISOR_LINE = re.compile(r"^#ADVISOR\b[ \t]*(.*)$", re.MULTILINE)


_SOURCED = re.compile(
    r"""^[ \t]*(?:source|\.)[ \t]+("[^\s"]+"|'[^\s']+'|[^\s'";&|<>()`]+)"""
    r"""(?:[ \t]+[\w./=:@%+,-]+)*[ \t]*(?:;[ \t]*)?(?:[ \t]#.*)?\r?$""",
    re.MULTILINE,
)
"""A line that sources one file, with plain words as its arguments."""


NOWHERE = ShellCommand(())


@dataclass(frozen=True, slots=True)
class Command:
    """A command the script runs: launcher ("" if none) with its options, executable, arguments."""

    launcher: str
    launcher_options: tuple[str, ...]
    executable: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    word: str = ""
    """The executable as it is written, variables expanded: ``./bin/app``."""
    wrappers: tuple[str, ...] = ()
    """Words of ``numactl -C 0-13`` and the like in front of the executable or the launcher."""
    place: ShellCommand = NOWHERE
    """Where it stands in the script."""
    unclear: str = ""
    """The variable or substitution that leaves open which options the launcher gets."""
    before_launcher: int = 0
    """So many of ``wrappers`` stand in front of the launcher: the program is not behind them."""


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """A script as read: what it runs, where its threads come from, and its shell."""

    commands: tuple[Command, ...]
    """All but the light ones (cd, echo, cp ...), which use no cores worth speaking of."""
    threads: Threads
    shell: Shell
    unresolved: tuple[str, ...] = ()
    """Commands that a variable names whose value is not known: ``$RUN``; and words that leave open
    which variables are set: ``export $NAME``."""
    renamed: tuple[str, ...] = ()
    """Names of commands that mean something else here, by ``alias`` or a function."""
    assigned: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """Variable -> the values it may be given in the script, "" where it is unset, None where a
    value is not known. The script's own environment is not here."""


def advisor_lines(script: str) -> dict[str, str]:
    """Return the settings of all ``#ADVISOR key=value`` lines; a bare word counts as ``=on``."""
    settings: dict[str, str] = {}
    if "#ADVISOR" not in script:
        return settings
    for number, match in enumerate(_ADVISOR_LINE.finditer(script)):
        try:
            if len(match[1]) > _LONG_LINE or number > _MANY_LINES:  # shlex is slow
                raise ValueError
            words = shlex.split(match[1], comments=True)
        except ValueError:
            words = match[1].split()
        for word in words:
            key, _, value = word.partition("=")
            settings[key.strip().lower().replace("-", "_")] = value.strip() or "on"
    return settings


def without_sourced(script: str, patterns: Sequence[str]) -> str:
    """Return a script that does not source the files of these patterns: ``/sw/env/*``.

    A file is compared as it is written. Where more stands on the line than its arguments, it stays.
    """
    if not patterns:
        return script
    any_of_them = re.compile("|".join(map(fnmatch.translate, patterns)))

    def light(line: re.Match[str]) -> str:
        return ":" if any_of_them.match(line[1].strip("\"'")) else line[0]

    return _SOURCED.sub(light, script)


def read(script: str, arguments: tuple[str, ...] = ()) -> ScriptReading:
    """Read a script; the same ones are submitted again and again, so short ones are remembered."""
    reading = _READ.get((script, arguments))
    if reading is None:
        reading = _parse(script, arguments)
        # A reading that took too long says how busy the host was, nothing of the script.
        if len(script) <= _REMEMBERED_LENGTH and reading.shell.problem != TOO_SLOW:
            _READ.put((script, arguments), reading, 4096 + 8 * len(script))
    return reading


def commands(script: str, arguments: tuple[str, ...] = ()) -> tuple[Command, ...]:
    """Return the commands of a shell script in order, variables expanded where that is simple."""
    return read(script, tuple(arguments)).commands


def threads_of(script: str, arguments: tuple[str, ...] = ()) -> Threads:
    """Tell whether a script takes its threads from the scheduler.

    An ``OMP_NUM_THREADS`` (or MKL_, OPENBLAS_) or a CPU count on the launcher line means the script
    has its own mind, unless the value is that of SLURM_CPUS_PER_TASK or NCPUS.
    """
    return read(script, tuple(arguments)).threads


def _parse(script: str, arguments: tuple[str, ...]) -> ScriptReading:
    until = thread_time() + DEADLINE_S
    shell = read_shell(script, until)
    places = [(place.words, place.function) for place in shell.commands]
    # Before the first command is looked at: a function's body may run at any time.
    unsettled = unsettled_names(places, shell.text) | shell.loop_variables
    variables = ShellValues(arguments, frozenset(unsettled), until)
    inner: ShellValues | None = None  # in (...), which keeps its assignments to itself
    commands_read = []
    unresolved: list[str] = []
    for name in unsettled:
        variables.note(name, (f"${name}",))
    for place in shell.commands:
        if thread_time() > until:
            return ScriptReading((), Threads(), Shell(problem=TOO_SLOW))
        inner = (inner or variables.copy()) if place.subshell else None
        outer = inner or variables
        # What it sets need not hold behind it, so that it works on a copy of the values.
        apart = place.conditional or place.substituted or place.function
        values = outer.copy() if apart else outer
        try:
            command = _command(place.words, values, shell.functions, unresolved, place)
        except TooSlowError:
            return ScriptReading((), Threads(), Shell(problem=TOO_SLOW))
        except NotFollowedError as error:
            shell = replace(shell, problem=shell.problem or str(error))
            break
        if command is not None:
            commands_read.append(command)
        if place.conditional:  # nobody knows whether it is assigned
            outer.forget_changes(values)
    return ScriptReading(
        tuple(commands_read),
        _threads(shell, commands_read, variables.assigned),
        shell,
        tuple(unresolved),
        _renamed_launchers(shell),
        variables.assigned,
    )


def _renamed_launchers(shell: Shell) -> tuple[str, ...]:
    """Return launchers that are functions, and aliases that the script uses."""
    names = sorted(shell.functions & LAUNCHERS)
    if any(c.words[0] == "alias" for c in shell.commands):
        used = {
            w.rsplit("/", 1)[-1] for c in shell.commands if c.words[0] != "alias" for w in c.words
        }
        aliases = {
            w.partition("=")[0]
            for c in shell.commands
            if c.words[0] == "alias"
            for w in c.words[1:]
            if "=" in w
        }
        names += sorted(n for n in aliases if n in used or "$" in n)
    return tuple(names)


def main_command(script: str, arguments: Sequence[str] = ()) -> Command | None:
    """Return the command that names the application: first with a launcher, else the last."""
    script_commands = commands(script, tuple(arguments))
    programs = [c for c in script_commands if c.executable not in NO_PROGRAMS]
    return next((c for c in script_commands if c.launcher), programs[-1] if programs else None)


def command_of(argv: Sequence[str]) -> Command | None:
    """Return a command given as words, as after ``srun`` or ``sbatch --wrap``."""
    try:
        return _command(argv, ShellValues())
    except NotFollowedError:
        return None


@dataclass(frozen=True, slots=True)
class Threads:
    """Where a script's threads come from: ``why`` is "" when they follow the scheduler."""

    why: str = ""
    count: int | None = None
    """The literal number of threads per rank, where the script states one."""
    without_request: int | None = None
    """The number where the request states no cores per task: ``${SLURM_CPUS_PER_TASK:-14}``."""
    all_cpus: bool = False
    """As many as the node has CPUs, whatever a rank has: ``$(nproc)``."""
    unclear: str = ""
    """The script sets them to what is not known before it runs; what to what, in words."""


_READ: Remembered[ScriptReading] = Remembered(16 << 20)


def _threads(
    shell: Shell, script_commands: Sequence[Command], values: Mapping[str, tuple[str | None, ...]]
) -> Threads:
    stated: dict[str, list[Threads]] = {}
    if "_NUM_THREADS" in shell.text:
        for place in shell.commands:
            for match in filter(None, map(_THREADS.search, place.words)):
                name, value = match[1], match[2].strip("\"'")
                threads = _count(name, value, values.get(name, ()))
                if place.conditional and threads.why:
                    threads = replace(threads, count=None, unclear=f"{name} is set on a condition")
                stated.setdefault(name, []).append(threads)
    for command in script_commands:
        for option in command.launcher_options:
            name, _, value = option.partition("=")
            if name.startswith("-c") and name[2:].isdecimal():
                name, value = "-c", name[2:]
            if name in _CPU_OPTIONS:
                name = f"{command.launcher} {name}"
                stated.setdefault(name, []).append(_count(name, value, ()))
    for value in values.get("SRUN_CPUS_PER_TASK", ()):
        name = "SRUN_CPUS_PER_TASK"
        stated.setdefault(name, []).append(_count(name, value or None, ()))
    if not stated:
        return Threads()
    name = "OMP_NUM_THREADS" if "OMP_NUM_THREADS" in stated else next(iter(stated))
    counts = stated[name]
    threads = counts[0]
    if any(count != threads for count in counts):
        threads = replace(threads, count=None, unclear=f"{name} is set more than once")
    why = next((t.why for several in stated.values() for t in several if t.why), "")
    return replace(threads, why=why)


def _count(name: str, value: str | None, resolved: Sequence[str | None]) -> Threads:
    """Read what a variable or an option sets a rank's threads to; None for what is not known."""
    why = f"{name} sets them" if " " in name else f"the script sets {name} itself"
    if value is None:
        return Threads(why, unclear=f"{name} is not known")
    if _AS_REQUESTED.fullmatch(value):
        return Threads()
    if default := _REQUESTED_OR.fullmatch(value):
        return Threads(without_request=int(default[1]))
    if len(set(resolved)) == 1 and resolved[0]:
        value = resolved[0]
    if value.isascii() and value.isdecimal():
        return Threads(why, int(value))
    if _ALL_CPUS.fullmatch(value):
        return Threads(why, all_cpus=True)
    # What a command in it may hold is the user's alone: decisions, which keep this, are not.
    shown = "what a command prints" if "$(" in value or "`" in value else value[:_LONG_VALUE]
    return Threads(why, unclear=f"{name} is {shown}")


def _command(
    raw_words: Sequence[str],
    variables: ShellValues,
    functions: frozenset[str] = frozenset(),
    unresolved: list[str] | None = None,
    place: ShellCommand = NOWHERE,
) -> Command | None:
    if not raw_words:
        return None
    environment: dict[str, str] = {}
    position = 0
    # those of a command with assignments in front last as long as it does
    command_variables = variables
    while position < len(raw_words) and (assigned := assignment(raw_words[position])):
        if not position and any(assignment(w) is None for w in raw_words):
            command_variables = variables.copy()
        name, kind, value = assigned
        items = getattr(raw_words[position], "items", None)
        if items is None:
            environment[name] = text = command_variables.text(value)
            command_variables.assign(name, (text,), kind)
        else:
            command_variables.assign(
                name,
                [w for item in items for w in command_variables.words(item)],
                kind,
                items=True,
            )
        position += 1
    if position < len(raw_words) and raw_words[position] in ALTERS:
        _builtin(raw_words[position:], variables, unresolved)
        return None
    words = [w for word in raw_words[position:] for w in variables.words(word)]
    if words and words[0] == "eval":
        words = _evaluated(words, variables, functions) or words
    words, maybe = _without_maybe(words)
    front = unwrap(words)
    words, wrappers, hidden = front.words, front.wrappers, front.hidden
    workload_words = front.workload_words
    environment |= front.environment
    for name, text in environment.items():
        command_variables.note(name, (text,))
    for name in _unset_variables(wrappers):
        command_variables.note(name, ())
    if not words:
        return None
    if words[0] in ALTERS:  # command export A=1
        _builtin(words, variables, unresolved)
        return None
    word, name = words[0], words[0].rsplit("/", 1)[-1]
    launcher = unclear = ""
    before_launcher = 0
    options: list[str] = []
    if name in LAUNCHERS:
        launcher = name
        options, rest = split_options(name, words[1:])
        unclear = _unclear(words[1 : len(words) - len(rest)])
        # Behind a launcher wrappers may stand again: `srun numactl -C 0-13 ./app`.
        front = unwrap(rest)
        words, hidden = front.words, hidden or front.hidden
        before_launcher = len(wrappers)
        wrappers += front.wrappers
        workload_words += front.workload_words
        environment |= front.environment
        if not words or (not hidden and ends_at_once(words)):
            return None  # srun hostname
        word, name = words[0], words[0].rsplit("/", 1)[-1]
        unclear = unclear or next((why for n, why in maybe if n >= len(words)), "")
    elif in_front := next((why for n, why in maybe if n >= len(words)), ""):
        # A word that may be empty stands first: whether it or the next one is the program is open.
        word = name = in_front
    elif not workload_words and (name in functions or is_light(words)):
        return None
    if not hidden and (start := file_of(words)):
        wrappers += words[:start]
        words, word, name = words[start:], words[start], _base(words[start])
    if hidden or not name or name.startswith(("-", "$", "`")) or _CUT.match(name):
        if unresolved is not None:
            unresolved.append(hidden or word)
        return None
    return Command(
        launcher,
        tuple(options),
        name,
        (*workload_words, *words[1:]),
        environment,
        word,
        tuple(wrappers),
        place,
        unclear,
        before_launcher,
    )


def _evaluated(
    words: Sequence[str], variables: ShellValues, functions: frozenset[str]
) -> list[str]:
    """Return the words of the one program that ``eval`` starts, none where it may do anything else.

    What it gets is read once more, as the shell does. So a value that is not known may be commands.
    """
    text = " ".join(words[1:])
    known = _NUMBER_OF_JOB.sub("", text)
    doubts = any(isinstance(w, Doubtful) and not _NUMBER_OF_JOB.search(w) for w in words)
    if doubts or len(text) > _LONG_EVALUATED or any(sign in known for sign in _NOT_EVALUATED):
        return []
    inner = read_shell(text, variables.until)
    raw_words = inner.commands[0].words if len(inner.commands) == 1 else ()
    if inner.problem or inner.functions or inner.commands != (ShellCommand(raw_words),):
        return []
    program_words = [w for word in raw_words for w in variables.words(word)]
    name = _base(program_words[0]) if program_words else ""
    changes_shell = (
        not name or assignment(program_words[0]) or program_words[0] in ALTERS or name in functions
    )
    if (
        changes_shell
        or is_light(program_words)
        or not SUBMITS.isdisjoint(map(_base, program_words))
    ):
        return []
    return program_words


def _without_maybe(words: Sequence[str]) -> tuple[list[str], list[tuple[int, str]]]:
    """Take out words that may be none; return the rest, and of each how many of these are behind
    it, and its variable."""
    sure_words = [w for w in words if w or not isinstance(w, Doubtful)]
    maybe, words_behind = [], len(sure_words)
    for word in words if len(sure_words) < len(words) else ():
        if not word and isinstance(word, Doubtful):
            maybe.append((words_behind, word.why))
        else:
            words_behind -= 1
    return sure_words, maybe


def _builtin(words: Sequence[str], variables: ShellValues, unresolved: list[str] | None) -> None:
    open_word = run_builtin(words, variables)
    if open_word and unresolved is not None:
        unresolved.append(open_word)


def _unset_variables(wrappers: Sequence[str]) -> list[str]:
    """Return the variables that ``env -u NAME`` takes out."""
    unset = [b for a, b in pairwise(wrappers) if a == "-u" and "env" in map(_base, wrappers)]
    return unset + [w.partition("=")[2] for w in wrappers if w.startswith("--unset=")]


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _unclear(words: Sequence[str]) -> str:
    """Return what is not known among a launcher's options, "" if that cannot matter: a file's name
    may be any."""
    previous = ""
    for word in words:
        name = word.partition("=")[0]
        is_name = previous in VALUE_IS_A_NAME or (name != word and name in VALUE_IS_A_NAME)
        if isinstance(word, Doubtful) and not is_name:
            return word.why
        previous = word
    return ""
