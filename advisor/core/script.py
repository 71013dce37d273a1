"""Read a job script the way the advisor needs it: launcher line, threads, ``#ADVISOR`` lines.

This is reading, not running: simple assignments and positional arguments are expanded, anything
cleverer is left as it stands and simply not recognised.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import thread_time

from advisor.core.launchers import LAUNCHERS, NO_PROGRAMS, is_light, split_options
from advisor.core.remembered import Remembered
from advisor.core.shell import Shell, ShellCommand, read_shell
from advisor.core.shell_words import TOO_SLOW, NotFollowedError

DEADLINE_S = 0.01
"""Reading one script may take so much of the processor; then nothing in it is recognised."""

MAX_EXPANDED = 65536
"""Characters that the variables of one script may become in all: they can double in each line."""

_CPU_OPTIONS = ("-c", "--cpus-per-task", "--cpus-per-proc", "-d")
INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|julia|Rscript|bash|sh|java|node)[\d.]*$")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_DECLARES = frozenset({"export", "declare", "readonly", "local", "typeset"})
_PLAIN_WRAPPERS = frozenset(
    {"time", "exec", "nohup", "command", "stdbuf", "setsid", "then", "do", "!"}
)
_WRAPPERS = frozenset({"nice", "numactl", "taskset", "timeout", "ionice", "env", "chrt"})
_CONTAINERS = frozenset({"singularity", "apptainer"})
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_THREADS = re.compile(r"\b((?:OMP|MKL|OPENBLAS)_NUM_THREADS)=(\S*)")
_REMEMBERED_LENGTH = 16384
"""Characters of the longest script whose reading is remembered."""
_LONG_LINE, _MANY_LINES = 1024, 100
"""Characters of an ``#ADVISOR`` line, and how many lines: shlex is slow."""
_ADVISOR_LINE = re.compile(r"^#ADVISOR\b[ \t]*(.*)$", re.MULTILINE)


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


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """A script as read: what it runs, where its threads come from, and its shell."""

    commands: tuple[Command, ...]
    """All but the light ones (cd, echo, cp ...), which use no cores worth speaking of."""
    threads: Threads
    shell: Shell
    unresolved: tuple[str, ...] = ()
    """Commands that a variable names whose value is not known: ``$RUN``."""


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


def read(script: str, arguments: tuple[str, ...] = ()) -> ScriptReading:
    """Read a script; the same ones are submitted again and again, so short ones are remembered."""
    reading = _READ.get((script, arguments))
    if reading is None:
        reading = _parse(script, arguments)
        if len(script) <= _REMEMBERED_LENGTH and reading.shell.problem != TOO_SLOW:
            _READ.put((script, arguments), reading, 4096 + 8 * len(script))
    return reading


def commands(script: str, arguments: tuple[str, ...] = ()) -> tuple[Command, ...]:
    """Return the commands of a shell script in order, variables expanded where that is simple."""
    return read(script, tuple(arguments)).commands


def threads_of(script: str, arguments: tuple[str, ...] = ()) -> Threads:
    """Tell whether a script takes its threads from the scheduler.

    A literal ``OMP_NUM_THREADS`` (or MKL_, OPENBLAS_) or a CPU count on the launcher line means
    the script has its own mind; a value that mentions SLURM_CPUS_PER_TASK follows the request.
    """
    return read(script, tuple(arguments)).threads


def _parse(script: str, arguments: tuple[str, ...]) -> ScriptReading:
    until = thread_time() + DEADLINE_S
    shell = read_shell(script, until)
    variables = _Values({str(i): value for i, value in enumerate(arguments, 1)})
    variables["@"] = variables["*"] = " ".join(arguments)
    commands_read = []
    unresolved: list[str] = []
    for place in shell.commands:
        if thread_time() > until:
            return ScriptReading((), Threads(), Shell(problem=TOO_SLOW))
        values = variables.copy() if place.conditional else variables
        try:
            command = _command(place.words, values, shell.functions, unresolved, place)
        except NotFollowedError as error:
            shell = replace(shell, problem=shell.problem or str(error))
            break
        if command is not None:
            commands_read.append(command)
        if place.conditional:  # nobody knows whether it is assigned
            for name in [n for n in values if values[n] != variables.get(n)]:
                variables[name] = f"${name}"
    return ScriptReading(
        tuple(commands_read), _threads(shell, commands_read), shell, tuple(unresolved)
    )


def main_command(script: str, arguments: Sequence[str] = ()) -> Command | None:
    """Return the command that names the application: first with a launcher, else the last."""
    script_commands = commands(script, tuple(arguments))
    programs = [c for c in script_commands if c.executable not in NO_PROGRAMS]
    return next((c for c in script_commands if c.launcher), programs[-1] if programs else None)


def command_of(argv: Sequence[str]) -> Command | None:
    """Return a command given as words, as after ``srun`` or ``sbatch --wrap``."""
    try:
        return _command(argv, _Values())
    except NotFollowedError:
        return None


@dataclass(frozen=True, slots=True)
class Threads:
    """Where a script's threads come from: ``why`` is "" when they follow the scheduler."""

    why: str = ""
    count: int | None = None
    """The literal number of threads per rank, where the script states one."""
    from_scheduler: bool = False
    """The script reads SLURM_CPUS_PER_TASK (or PBS's NCPUS) somewhere."""


_READ: Remembered[ScriptReading] = Remembered(16 << 20)


class _Values(dict[str, str]):
    """Variables, and how many characters they may still become: copies share the rest."""

    __slots__ = ("room",)

    def __init__(self, values: Mapping[str, str] | None = None, room: list[int] | None = None):
        super().__init__(values or {})
        self.room = room if room is not None else [MAX_EXPANDED]

    def copy(self) -> _Values:
        return _Values(self, self.room)

    def expand(self, word: str) -> str:
        """Return a word with its variables' values. Raises NotFollowedError beyond the room."""
        return _VARIABLE.sub(self._value, word) if "$" in word else word

    def _value(self, match: re.Match[str]) -> str:
        default = match[2]
        value = self.get(match[1] or match[3], match[0] if default is None else default)
        self.room[0] -= len(value)
        if self.room[0] < 0:
            raise NotFollowedError(f"its variables become more than {MAX_EXPANDED} characters")
        return value


def _threads(shell: Shell, script_commands: Sequence[Command]) -> Threads:
    follows = "SLURM_CPUS_" in shell.text or "$NCPUS" in shell.text
    if "_NUM_THREADS" in shell.text:
        for place in shell.commands:
            for match in _THREADS.finditer(" ".join(place.words)):
                if "SLURM_CPUS_" not in match[2] and "NCPUS" not in match[2]:
                    value = match[2]
                    count = int(value) if value.isascii() and value.isdecimal() else None
                    return Threads(f"the script sets {match[1]} itself", count, follows)
    for command in script_commands:
        for option in command.launcher_options:
            name, _, value = option.partition("=")
            if name.startswith("-c") and name[2:].isdecimal():
                name, value = "-c", name[2:]
            if name in _CPU_OPTIONS and "SLURM_CPUS_" not in value:
                count = int(value) if value.isascii() and value.isdecimal() else None
                return Threads(f"{command.launcher} {name} sets them", count, follows)
    return Threads("", None, follows)


def _command(
    written: Sequence[str],
    variables: _Values,
    functions: frozenset[str] = frozenset(),
    unresolved: list[str] | None = None,
    place: ShellCommand = NOWHERE,
) -> Command | None:
    environment: dict[str, str] = {}
    if written and written[0] in _DECLARES:
        for word in written[1:]:
            _assign(word, variables)
        return None
    at = 0
    while at < len(written) and _assign(written[at], variables, environment):
        at += 1
    words = variables.expand(written[at]).split() if at < len(written) else []  # as the shell does
    words += [variables.expand(w) if "$" in w else w for w in written[at + 1 :]]
    wrappers: list[str] = []
    words = _unwrap(words, environment, wrappers)
    if not words:
        return None
    word, name = words[0], words[0].rsplit("/", 1)[-1]
    launcher = ""
    options: list[str] = []
    if name in LAUNCHERS:
        launcher = name
        options, words = split_options(words[1:])
        words = _unwrap(words, environment, wrappers)
        if not words:
            return None
        word, name = words[0], words[0].rsplit("/", 1)[-1]
    elif name in functions or is_light(words):
        return None
    if not name or name.startswith(("-", "$", "`")):
        if unresolved is not None:
            unresolved.append(word)
        return None
    if INTERPRETERS.match(name):
        rest = [w for w in words[1:] if not w.startswith("-")]
        if rest and not ({"-c", "-m", "-e"} & set(words[1:])):
            start = words.index(rest[0], 1)
            wrappers += words[:start]
            words, word, name = words[start:], rest[0], rest[0].rsplit("/", 1)[-1]
    return Command(
        launcher, tuple(options), name, tuple(words[1:]), environment, word, tuple(wrappers), place
    )


def _assign(word: str, variables: _Values, environment: dict[str, str] | None = None) -> bool:
    match = _ASSIGNMENT.fullmatch(word) if "=" in word else None
    if not match:
        return False
    value = variables.expand(match[2])
    variables[match[1]] = value
    if environment is not None:
        environment[match[1]] = value
    return True


def _unwrap(words: list[str], environment: dict[str, str], wrappers: list[str]) -> list[str]:
    """Strip ``time``, ``nice``, ``env A=1``, ``timeout 60``, ``numactl ...`` in front."""
    at, end = 0, len(words)
    while at < end:
        begun, name = at, words[at].rsplit("/", 1)[-1]
        if name in _PLAIN_WRAPPERS:
            at += 1
        elif name in _WRAPPERS:
            positional = {"timeout": 1, "taskset": 1, "chrt": 1}.get(name, 0)
            at += 1
            while at < end:
                match = _ASSIGNMENT.fullmatch(words[at])
                if words[at].startswith("-"):
                    takes_value = words[at] in ("-n", "-k", "-s", "-u", "-m", "-N", "-C", "-c")
                    at += 2 if takes_value else 1
                elif match and name == "env":
                    environment[match[1]] = match[2]
                    at += 1
                elif positional:
                    positional -= 1
                    at += 1
                else:
                    break
        elif name in _CONTAINERS and words[at + 1 : at + 2] == ["exec"]:
            images = (i for i in range(at + 1, end) if ".sif" in words[i] or "://" in words[i])
            at = next(images, end) + 1
        else:
            break
        while at < end and words[at].startswith("-"):
            at += 1
        wrappers += words[begun:at]
    return words[at:]
