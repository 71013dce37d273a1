"""What stands in front of a program in a script: ``time``, ``numactl``, containers, interpreters.

An option of a container that is not listed here hides where its program begins: the rest is not
understood. Of the others every unknown option is one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.core.shell_values import Doubtful, assignment, doubtful

_KEYWORDS = frozenset({"then", "do", "!"})


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How a command's own words end.

    ``values`` are options whose value is the next word, ``flags`` those without one, where these
    are all that are known. ``verb`` comes first, ``positional`` words come last.
    """

    values: frozenset[str]
    positional: int = 0
    verb: str = ""
    flags: frozenset[str] | None = None
    image: bool = False
    """The positional word names a container's image."""


def _wrapper(values: str = "", positional: int = 0) -> _Wrapper:
    return _Wrapper(frozenset(values.split()), positional)


_WRAPPERS: Mapping[str, _Wrapper] = {
    "time": _wrapper("-f --format -o --output"),
    "exec": _wrapper("-a"),
    "nohup": _wrapper(),
    "command": _wrapper(),
    "setsid": _wrapper(),
    "stdbuf": _wrapper("-i --input -o --output -e --error"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c --class -n --classdata -p --pid -P --pgid -u --uid"),
    "numactl": _wrapper(
        "-i --interleave -N --cpunodebind -C --physcpubind -c --cpubind -m --membind -p --preferred"
    ),
    "taskset": _wrapper("", 1),
    "timeout": _wrapper("-k --kill-after -s --signal", 1),
    "env": _wrapper("-u --unset -C --chdir -S --split-string"),
    "chrt": _wrapper("-T --sched-runtime -P --sched-period -D --sched-deadline", 1),
}
_SINGULARITY = _Wrapper(
    frozenset(
        """
        -B --bind -H --home -W --workdir -S --scratch -o --overlay --pwd --cwd --app --env
        --env-file --mount --fusemount --no-mount --hostname
        """.split()  # noqa: SIM905
    ),
    1,
    "exec",
    frozenset(
        """
        --nv --rocm --nvccli -e --cleanenv -c --contain -C --containall -f --fakeroot -w --writable
        --writable-tmpfs -u --userns -i --ipc -p --pid --no-home --no-init --no-privs --keep-privs
        --no-eval --disable-cache --compat --unsquash -q --quiet -s --silent -v --verbose -d --debug
        --nocolor
        """.split()  # noqa: SIM905
    ),
    image=True,
)
_CONDA = _Wrapper(
    frozenset({"-n", "--name", "-p", "--prefix", "--cwd"}),
    0,
    "run",
    frozenset({"-v", "--verbose", "-s", "--live-stream", "--no-capture-output"}),
)
_INSIDE: Mapping[str, _Wrapper] = {
    "singularity": _SINGULARITY,
    "apptainer": _SINGULARITY,
    "conda": _CONDA,
    "mamba": _CONDA,
    "shifter": _Wrapper(
        frozenset(
            """
            -i --image -V --volume -W --workdir -m --module -e --env --env-file
            """.split()  # noqa: SIM905
        ),
        flags=frozenset({"-v", "--verbose", "-E", "--clearenv"}),
    ),
}
"""What starts a program in a container, or in an environment."""
INSIDE = frozenset(_INSIDE)
"""What a program is not looked up behind: its file may be another one inside."""
_OF_CONTAINER = re.compile(r"-\w*[eC]\w*|--cleanenv|--containall|--compat|--env-file(?:=.*)?")
_CLEARING = {
    "env": re.compile(r"-|-\w*[iS]\S*|--ignore-environment|--split-string\S*"),
    "exec": re.compile(r"-\w*c\w*"),
    "singularity": _OF_CONTAINER,
    "apptainer": _OF_CONTAINER,
    "shifter": re.compile(r"-\w*[eE]\w*|--clearenv|--env(?:-file)?(?:=.*)?"),
}
"""Options that take variables away from the program, or give it some, which nobody names."""

INTERPRETERS = re.compile(r"(python|pypy|perl|ruby|julia|Rscript|bash|sh|java|node)[\d.]*$")
_VALUES = {
    "python": "-W -X -Q --check-hash-based-pycs",
    "pypy": "-W -X",
    "perl": "-I",
    "ruby": "-I -r -C",
    "julia": "-t --threads -p --procs -J --sysimage -L --load -C --cpu-target --machine-file",
    "Rscript": "",
    "bash": "-o -O +o +O --rcfile --init-file",
    "sh": "-o",
    "java": "-cp -classpath --class-path --module-path --add-modules --add-opens --add-exports",
    "node": "-r --require",
}
_CODE = {
    "python": "-c -m",
    "pypy": "-c -m",
    "perl": "-e -E",
    "ruby": "-e",
    "julia": "-e -E --eval",
    "Rscript": "-e",
    "bash": "-c",
    "sh": "-c",
    "java": "--module",
    "node": "-e --eval -p",
}
"""Options behind which stands no file: code, or the name of a module."""


@dataclass(slots=True)
class Unwrapped:
    """A command without what stands in front of it."""

    words: list[str]
    wrappers: list[str] = field(default_factory=list)
    """The words of ``numactl -C 0-13`` and the like."""
    environment: dict[str, str] = field(default_factory=dict)
    """What ``env A=1`` sets."""
    hidden: str = ""
    """What starts a program of which it is not known where it begins: ``singularity exec``."""


def unwrap(words: Sequence[str]) -> Unwrapped:
    """Take ``time``, ``env A=1``, ``timeout 60``, ``singularity exec IMAGE`` off a command."""
    environment: dict[str, str] = {}
    position, hidden = 0, ""
    while position < len(words) and not hidden:
        name = words[position].rsplit("/", 1)[-1]
        if name in _KEYWORDS:
            position += 1
        elif name == "command" and words[position + 1 : position + 2] in (["-v"], ["-V"]):
            position = len(words)  # it only says where a program is
        elif name in _WRAPPERS:
            position = _program_position(words, position + 1, _WRAPPERS[name])
            while name == "env" and position < len(words):
                if (a := assignment(words[position])) is not None:
                    environment[a[0]] = doubtful(a[2], getattr(words[position], "why", ""))
                elif words[position] != "-":
                    break
                position += 1
        elif name in _INSIDE and (
            start := _position_behind_verb(words, position + 1, _INSIDE[name])
        ):
            inside = _INSIDE[name]
            end = _program_position(words, start, inside)
            if not 0 < end < len(words) or (inside.image and not _is_image(words[end - 1])):
                hidden = f"{name} {inside.verb}".strip()
            else:
                position = end
        else:
            break
    return Unwrapped(list(words[position:]), list(words[:position]), environment, hidden)


def clearing(wrappers: Iterable[str]) -> str:
    """Return what of the words in front of a program takes variables away from it, or gives it
    some, that are not named: ``env -i``; "" for nothing."""
    name = ""
    for word in wrappers:
        base = word.rsplit("/", 1)[-1]
        verb = base == "exec" and _CLEARING.get(name) is _OF_CONTAINER
        if base in _CLEARING and not verb:
            name = base
        elif name and _CLEARING[name].fullmatch(word):
            return name
    return ""


def file_of(words: Sequence[str]) -> int:
    """Return where an interpreter's words name the file it runs, 0 where they name none."""
    match = INTERPRETERS.match(words[0].rsplit("/", 1)[-1])
    if match is None:
        return 0
    values, code = (frozenset(table[match[1]].split()) for table in (_VALUES, _CODE))
    position = 1
    for names, end in _options(words, 1, values):
        if not code.isdisjoint(names):
            return 0
        position = end
    return position if position < len(words) and words[position] != "-" else 0


def _position_behind_verb(words: Sequence[str], position: int, wrapper: _Wrapper) -> int:
    """Return where the words behind a command's verb begin, 0 for another verb."""
    if not wrapper.verb:
        return position
    while position < len(words) and words[position] in (wrapper.flags or ()):
        position += 1
    return position + 1 if words[position : position + 1] == [wrapper.verb] else 0


def _program_position(words: Sequence[str], position: int, wrapper: _Wrapper) -> int:
    """Return where the program begins; 0 where an option is not known."""
    for names, end in _options(words, position, wrapper.values):
        if wrapper.flags is not None and not wrapper.values | wrapper.flags >= set(names):
            return 0
        position = end
    return min(len(words), position + wrapper.positional)


def _options(
    words: Sequence[str], position: int, values: frozenset[str]
) -> Iterator[tuple[list[str], int]]:
    """Yield the options in each word from ``position`` on, and where the word behind them begins.

    Of several letters in one word the first that takes a value ends them: ``time -vo FILE``.
    """
    while (
        position < len(words)
        and words[position] != "-"
        and (words[position][:1] == "-" or words[position] in values)
    ):
        word, names = words[position], [words[position].partition("=")[0]]
        position += 1
        if word == "--":
            yield [], position
            return
        if word in values:
            position += 1
        elif not word.startswith("--"):
            letters = [f"-{letter}" for letter in word[1:]]
            first = next((i for i, letter in enumerate(letters) if letter in values), len(letters))
            names = letters[: first + 1]
            position += first == len(letters) - 1
        yield names, position


def _is_image(word: str) -> bool:
    """Tell whether a word is an image's name whatever its variables hold: it has a path, or ends
    as one. A variable alone may hold options."""
    if not isinstance(word, Doubtful):
        return True
    fixed_text = re.sub(r"\$\{[^}]*\}", "", word)
    return "/" in fixed_text or re.search(r"\.(sif|simg|img|sqsh)$", fixed_text) is not None
