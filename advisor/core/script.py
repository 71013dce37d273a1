"""Read a job script the way the advisor needs it: launcher line, threads, ``#ADVISOR`` lines.

This is reading, not running: simple assignments and positional arguments are expanded, anything
cleverer is left as it stands and simply not recognised.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

LAUNCHERS = frozenset(
    {"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "aprun", "ibrun", "jsrun"}
)
# Launcher options that take no value of their own.
_FLAGS = frozenset(
    """
    -E -h -H -I -K -l -O -Q -s -u -V -v -X -Z --exclusive --overlap --overcommit --label --quiet
    --verbose --unbuffered --no-kill --pty --multi-prog --oversubscribe --contiguous --immediate
    --kill-on-bad-exit --whole --exact --test-only --spread-job --use-min-nodes --hold
    --propagate --resv-ports --disable-status --preserve-env --no-allocate --bynode --bycore
    --report-bindings --allow-run-as-root --oversubscribe --tag-output --bind-to-core
    --display-map --nolocal --do-not-launch
    """.split()  # noqa: SIM905
)
_TWO_VALUES = frozenset({"-mca", "--mca", "-gmca", "--gmca", "-genv", "-env"})
_CPU_OPTIONS = ("-c", "--cpus-per-task", "--cpus-per-proc", "-d")
_INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|julia|Rscript|bash|sh|java|node)[\d.]*$")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_THREADS = re.compile(r"\b((?:OMP|MKL|OPENBLAS)_NUM_THREADS)=(\S*)")
_SKIP = frozenset(
    """
    cd echo export module ml source . set ulimit unset mkdir rm cp mv ln date sleep wait exit
    hostname cat printf test [ [[ true false : if then else elif fi for do done while case esac
    spack conda trap shift local declare readonly pwd ls touch chmod scontrol env
    """.split()  # noqa: SIM905
)
_CONTINUED = re.compile(r"\\\r?\n")
_HERE = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_REMEMBERED_LENGTH = 16384
_SPECIAL = re.compile(r"[\"'\\;&|()<>#`]")
_QUOTING = re.compile(r"[\"'\\#]")
_TOKEN = re.compile(r"[;&|()<>]+|[^\s;&|()<>]+")
_DESCRIPTOR = re.compile(r"(?<=\s)\d+(?=[<>])")
_ADVISOR_LINE = re.compile(r"^#ADVISOR\b[ \t]*(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """A command the script runs: launcher ("" if none) with its options, executable, arguments."""

    launcher: str
    launcher_options: tuple[str, ...]
    executable: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def advisor_lines(script: str) -> dict[str, str]:
    """Return the settings of all ``#ADVISOR key=value`` lines; a bare word counts as ``=on``."""
    settings: dict[str, str] = {}
    if "#ADVISOR" not in script:
        return settings
    for match in _ADVISOR_LINE.finditer(script):
        try:
            words = shlex.split(match[1], comments=True)
        except ValueError:
            words = match[1].split()
        for word in words:
            key, _, value = word.partition("=")
            settings[key.strip().lower().replace("-", "_")] = value.strip() or "on"
    return settings


def commands(script: str, arguments: tuple[str, ...] = ()) -> tuple[Command, ...]:
    """Return the commands of a shell script in order, variables expanded where that is simple."""
    return _read(script, tuple(arguments)).commands


def threads_of(script: str, arguments: tuple[str, ...] = ()) -> Threads:
    """Tell whether a script takes its threads from the scheduler.

    A literal ``OMP_NUM_THREADS`` (or MKL_, OPENBLAS_) or a CPU count on the launcher line means
    the script has its own mind; a value that mentions SLURM_CPUS_PER_TASK follows the request.
    """
    return _read(script, tuple(arguments)).threads


@dataclass(frozen=True, slots=True)
class _Reading:
    commands: tuple[Command, ...]
    threads: Threads


def _read(script: str, arguments: tuple[str, ...]) -> _Reading:
    """Read a script; the same ones are submitted again and again, so short ones are remembered."""
    known = len(script) <= _REMEMBERED_LENGTH
    return _remembered(script, arguments) if known else _parse(script, arguments)


@lru_cache(maxsize=8192)
def _remembered(script: str, arguments: tuple[str, ...]) -> _Reading:
    return _parse(script, arguments)


def _parse(script: str, arguments: tuple[str, ...]) -> _Reading:
    lines = list(_logical_lines(script))
    found = _commands(lines, arguments)
    return _Reading(found, _threads(lines, found))


def _commands(lines: Sequence[str], arguments: tuple[str, ...]) -> tuple[Command, ...]:
    variables = {str(i): value for i, value in enumerate(arguments, 1)}
    variables["@"] = variables["*"] = " ".join(arguments)
    found = []
    for line in lines:
        for words in _simple_commands(line):
            command = _command(words, variables)
            if command is not None:
                found.append(command)
    return tuple(found)


def main_command(script: str, arguments: Sequence[str] = ()) -> Command | None:
    """Return the command that names the application: first with a launcher, else the last."""
    found = commands(script, tuple(arguments))
    return next((c for c in found if c.launcher), found[-1] if found else None)


def command_of(argv: Sequence[str]) -> Command | None:
    """Return a command given as words, as after ``srun`` or ``sbatch --wrap``."""
    return _command(list(argv), {})


@dataclass(frozen=True, slots=True)
class Threads:
    """Where a script's threads come from: ``why`` is "" when they follow the scheduler."""

    why: str = ""
    count: int | None = None
    """The literal number of threads per rank, where the script states one."""
    from_scheduler: bool = False
    """The script reads SLURM_CPUS_PER_TASK (or PBS's NCPUS) somewhere."""


def _threads(lines: Sequence[str], found: Sequence[Command]) -> Threads:
    follows = any("SLURM_CPUS_" in line or "$NCPUS" in line for line in lines)
    for line in lines:
        if "_NUM_THREADS" not in line:
            continue
        for match in _THREADS.finditer(line):
            if "SLURM_CPUS_" not in match[2] and "NCPUS" not in match[2]:
                value = match[2].strip("\"'")
                count = int(value) if value.isascii() and value.isdecimal() else None
                return Threads(f"the script sets {match[1]} itself", count, follows)
    for command in found:
        for option in command.launcher_options:
            name, _, value = option.partition("=")
            if name.startswith("-c") and name[2:].isdecimal():
                name, value = "-c", name[2:]
            if name in _CPU_OPTIONS and "SLURM_CPUS_" not in value:
                count = int(value) if value.isascii() and value.isdecimal() else None
                return Threads(f"{command.launcher} {name} sets them", count, follows)
    return Threads("", None, follows)


def _logical_lines(script: str) -> Iterator[str]:
    text = _CONTINUED.sub(" ", script) if "\\" in script else script
    end: str | None = None
    for line in text.splitlines():
        if end is not None:
            if line.strip() == end:
                end = None
            continue
        here = _HERE.search(line) if "<<" in line and "<<<" not in line else None
        if here:
            end = here[2]
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield stripped


def _simple_commands(line: str) -> Iterator[list[str]]:
    if not _SPECIAL.search(line):
        yield line.split()
        return
    line = _DESCRIPTOR.sub("", line)
    tokens = _lexed(line) if _QUOTING.search(line) else _TOKEN.findall(line)
    words: list[str] = []
    redirected = False
    for token in tokens:
        if token and set(token) <= set(";&|()"):
            if words:
                yield words
            words, redirected = [], False
        elif token and set(token) <= set("<>&"):
            redirected = True
        elif redirected:
            redirected = False
        else:
            words.append(token)
    if words:
        yield words


def _lexed(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        return list(lexer)
    except ValueError:
        return line.split()


def _command(words: list[str], variables: dict[str, str]) -> Command | None:
    environment: dict[str, str] = {}
    if words and words[0] in ("export", "declare", "readonly"):
        for word in words[1:]:
            _assign(word, variables)
        return None
    while words and _assign(words[0], variables, environment):
        words = words[1:]
    words = [_expand(word, variables) for word in words]
    words = _unwrap(words, environment)
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1]
    launcher = ""
    options: list[str] = []
    if name in LAUNCHERS:
        launcher = name
        options, words = _split_options(words[1:])
        words = _unwrap(words, environment)
        if not words:
            return None
        name = words[0].rsplit("/", 1)[-1]
    elif name in _SKIP:
        return None
    if not name or name.startswith(("-", "$", "`")):
        return None
    if _INTERPRETERS.match(name):
        rest = [w for w in words[1:] if not w.startswith("-")]
        if rest and not ({"-c", "-m", "-e"} & set(words[1:])):
            start = words.index(rest[0], 1)
            words, name = words[start:], rest[0].rsplit("/", 1)[-1]
    return Command(launcher, tuple(options), name, tuple(words[1:]), environment)


def _assign(
    word: str, variables: dict[str, str], environment: dict[str, str] | None = None
) -> bool:
    match = _ASSIGNMENT.fullmatch(word)
    if not match:
        return False
    value = _expand(match[2], variables)
    variables[match[1]] = value
    if environment is not None:
        environment[match[1]] = value
    return True


def _expand(word: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        default = match[2]
        return variables.get(name, match[0] if default is None else default)

    return _VARIABLE.sub(value, word) if "$" in word else word


def _unwrap(words: list[str], environment: dict[str, str]) -> list[str]:
    """Strip ``time``, ``nice``, ``env A=1``, ``timeout 60``, ``numactl ...`` in front."""
    while words:
        name = words[0].rsplit("/", 1)[-1]
        if name in ("time", "exec", "nohup", "command", "stdbuf", "setsid", "then", "do", "!"):
            words = words[1:]
        elif name in ("nice", "numactl", "taskset", "timeout", "ionice", "env", "chrt"):
            positional = {"timeout": 1, "taskset": 1, "chrt": 1}.get(name, 0)
            words = words[1:]
            while words:
                match = _ASSIGNMENT.fullmatch(words[0])
                if words[0].startswith("-"):
                    takes_value = words[0] in ("-n", "-k", "-s", "-u", "-m", "-N", "-C", "-c")
                    words = words[2:] if takes_value else words[1:]
                elif match and name == "env":
                    environment[match[1]] = match[2]
                    words = words[1:]
                elif positional:
                    positional -= 1
                    words = words[1:]
                else:
                    break
        elif name in ("singularity", "apptainer") and words[1:2] == ["exec"]:
            image = next((i for i, w in enumerate(words) if ".sif" in w or "://" in w), None)
            words = words[image + 1 :] if image else []
        else:
            break
        while words and words[0].startswith("-"):
            words = words[1:]
    return words


def _split_options(words: list[str]) -> tuple[list[str], list[str]]:
    options: list[str] = []
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "-":
        word = words[i]
        if word == "--":
            i += 1
            break
        options.append(word)
        i += 1
        values = 0
        if word in _TWO_VALUES:
            values = 2
        elif word.startswith("--"):
            values = 0 if "=" in word or word in _FLAGS else 1
        elif word not in _FLAGS:
            short_with_glued_value = re.fullmatch(r"-[A-Za-z]\S+", word) and not re.fullmatch(
                r"-(np|hostfile|host|machinefile|map-by|bind-to|rank-by|ppn|x|wdir)", word
            )
            values = 0 if short_with_glued_value else 1
        for value in words[i : i + values]:
            options[-1] += f"={value}"
        i += values
    return options, words[i:]
