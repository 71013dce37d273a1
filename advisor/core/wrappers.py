"""What stands in front of a program in a script: ``time``, ``numactl``, containers, interpreters.

An option of a container that is not listed here hides where its program begins: the rest is not
understood. A profiler or a starter of processes with such an option is itself the program. Of the
others every unknown option is one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from advisor.core.launchers import LAUNCHERS, SUBMITS
from advisor.core.shell_values import Doubtful, assignment, doubtful

_KEYWORDS = frozenset({"then", "do", "!"})


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How a command's own words end.

    ``values`` are options whose value is the next word, ``flags`` those without one, where these
    are all that are known. One of ``verbs`` comes first, ``positional`` words come last.
    """

    values: frozenset[str]
    positional: int = 0
    verbs: tuple[str, ...] = ()
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
    ("exec",),
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
    ("run",),
    frozenset({"-v", "--verbose", "-s", "--live-stream", "--no-capture-output"}),
)
_MICROMAMBA = _Wrapper(
    frozenset({"-n", "--name", "-p", "--prefix", "-r", "--root-prefix", "--cwd", "--label"}),
    0,
    ("run",),
    frozenset({"-v", "--verbose", "-q", "--quiet"}),
)


_NOTHING = _Wrapper(frozenset())


def _strict(values: str, flags: str = "", verbs: tuple[str, ...] = ()) -> _Wrapper:
    return _Wrapper(frozenset(values.split()), 0, verbs, frozenset(flags.split()))


# An option that repeats, delays or ends the program is in none of these tables; nor is ``ncu``,
# under which a program's kernels run several times.
_PERF = _strict(
    """
    -e --event -o --output -I --interval-print -x --field-separator -F --freq -c --count
    --call-graph -m --mmap-pages --metrics -M --clockid -k
    """,
    "-d --detailed -v --verbose -B --big-num -S --sync -g -s --stat -n --no-samples -q --quiet -i",
    ("stat", "record"),
)
_NSYS = _strict(
    """
    -t --trace -o --output -s --sample -b --backtrace -f --force-overwrite --stats
    --cuda-memory-usage --cuda-graph-trace --cudabacktrace --gpu-metrics-device
    --gpu-metrics-devices --export --mpi-impl --nvtx-capture --osrt-threshold --python-sampling
    --samples-per-backtrace --sampling-frequency --trace-fork-before-exec -w --show-output --wait
    """,
    verbs=("profile",),
)
_TORCHRUN_VALUES = """
    nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval
    start-method role log-dir redirects tee local-ranks-filter node-rank master-addr master-port
    local-addr event-log-handler
""".split()  # noqa: SIM905
# torchrun takes each name with dashes and with underscores.
_TORCHRUN = _strict(
    " ".join(f"--{name} --{name.replace('-', '_')}" for name in _TORCHRUN_VALUES) + " -r -t",
    "--standalone --use-env --use_env",
)
_HIDES: Mapping[str, _Wrapper] = {
    "singularity": _SINGULARITY,
    "apptainer": _SINGULARITY,
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _MICROMAMBA,
    "shifter": _Wrapper(
        frozenset(
            """
            -i --image -V --volume -W --workdir -m --module -e --env --env-file
            """.split()  # noqa: SIM905
        ),
        flags=frozenset({"-v", "--verbose", "-E", "--clearenv"}),
    ),
}
"""What starts a program in a container, or in an environment, and hides it if not understood."""
_ENVIRONMENTS: Mapping[str, _Wrapper] = {
    "uv": _strict(
        """
        --with --with-editable --with-requirements -p --python --project --directory
        --extra --group --only-group --no-group --index --default-index --index-url
        --extra-index-url --find-links -f --cache-dir --config-file
        """,
        """
        --isolated --active --no-sync --frozen --locked --all-extras --all-groups --no-dev --dev
        --no-project --offline -q --quiet -v --verbose --no-progress --no-cache -n --exact
        --managed-python --no-managed-python --native-tls
        """,
        ("run",),
    ),
    "poetry": _strict("-C --directory -P --project", "-q --quiet -v -vv -vvv -n", ("run",)),
    "pipenv": _strict("", "-q --quiet -v --verbose", ("run",)),
    "pixi": _strict(
        "-e --environment --manifest-path", "--frozen --locked -q --quiet -v --verbose", ("run",)
    ),
}
"""The same of environments alone."""
_STARTERS: Mapping[str, _Wrapper] = {
    "torchrun": _TORCHRUN,
    "accelerate": _strict(
        """
        --config_file --num_processes --num_machines --machine_rank --main_process_ip
        --main_process_port --mixed_precision --dynamo_backend --gpu_ids --rdzv_backend --rdzv_conf
        --same_network --num_cpu_threads_per_process --zero_stage --deepspeed_config_file
        --gradient_accumulation_steps --deepspeed_multinode_launcher --max_restarts --role
        """,
        "--multi_gpu --cpu --use_deepspeed --use_fsdp --ipex --debug -q --quiet",
        ("launch",),
    ),
    "deepspeed": _strict(
        """
        -i --include -e --exclude --num_gpus --master_port --master_addr --node_rank
        --enable_each_rank_log
        """,
        "--no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid",
    ),
}
"""What starts processes of a program on its node, as many as told, and states their threads."""
_TORCH_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_PROFILERS: Mapping[str, _Wrapper] = {
    "perf": _PERF,
    "nsys": _NSYS,
    "xvfb-run": _strict(
        "-n --server-num -s --server-args -e --error-file -f --auth-file -p --xauth-protocol",
        "-a --auto-servernum -l --listen-tcp",
    ),
}
_SEEN_THROUGH = {**_ENVIRONMENTS, **_STARTERS, **_PROFILERS}
"""What is looked through only where each option is known; else it is the program itself."""
_ONE_COMMAND = re.compile(r"[A-Za-z0-9_./][\w./=:,+@%-]*(?: +[\w./=:,+@%-]+)*")
"""A shell's text that is one command of plain words: no variable, quote, list or redirection."""
_SHELLS = frozenset({"bash", "sh", "dash"})
INSIDE = frozenset({*_HIDES, *_ENVIRONMENTS})
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
    workload_words: list[str] = field(default_factory=list)
    """Those of them that make its run another one: ``torchrun --nproc_per_node=4``, a profiler."""
    hidden: str = ""
    """What starts a program of which it is not known where it begins: ``singularity exec``."""


def unwrap(words: Sequence[str]) -> Unwrapped:
    """Take ``time``, ``env A=1``, ``timeout 60``, ``singularity exec IMAGE`` off a command."""
    environment: dict[str, str] = {}
    workload_words: list[str] = []
    position, hidden = 0, ""
    seen_from: int | None = None
    while position < len(words) and not hidden:
        name = _base(words[position])
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
        elif name in _HIDES and (start := _position_behind_verb(words, position + 1, _HIDES[name])):
            inside = _HIDES[name]
            end = _program_position(words, start, inside)
            if not 0 < end < len(words) or (inside.image and not _is_image(words[end - 1])):
                hidden = " ".join([name, *inside.verbs])
            else:
                position = end
        elif end := _behind_strict(words, position):
            seen_from = position if seen_from is None else seen_from
            # Under a profiler or several times at once a program takes longer: another workload. An
            # environment or a display changes nothing of its run.
            if name not in _ENVIRONMENTS and name != "xvfb-run":
                workload_words += words[position:end]
            position = end
        elif inner := _one_command(name, words[position + 1 :]):
            # one word, as the program in front is no program that runs others here
            words = [*words[:position], f"{name} -c", *inner]
            position += 1
        else:
            break
    if seen_from is not None and position < len(words) and _base(words[position]) in LAUNCHERS:
        position, workload_words = seen_from, []  # ``perf stat srun ./app`` profiles srun
    front = list(words[:position])
    return Unwrapped(list(words[position:]), front, environment, workload_words, hidden)


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _behind_strict(words: Sequence[str], position: int) -> int:
    """Return where the program behind a starter, a profiler or an environment begins.

    0 for any other word, and where that is not sure: it is a program like others, then.
    """
    start, wrapper = _behind_torch_module(words, position), _TORCHRUN
    if not start:
        wrapper = _SEEN_THROUGH.get(_base(words[position]), _NOTHING)
        start = wrapper is not _NOTHING and _position_behind_verb(words, position + 1, wrapper)
    end = _program_position(words, start, wrapper) if start else 0
    if not 0 < end < len(words):
        return 0
    for preceding, word in pairwise(words[start - 1 : end + 1]):
        # a value may be any; where an option or the program may stand, a variable hides which
        if isinstance(word, Doubtful) and word[:1] != "-" and preceding not in wrapper.values:
            return 0
    return end


def _behind_torch_module(words: Sequence[str], position: int) -> int:
    """Return where the words behind ``python -m torch.distributed.run`` begin, 0 for others."""
    if not re.fullmatch(r"python[\d.]*", _base(words[position])):
        return 0
    end = position + 1
    while words[end : end + 1] in (["-u"], ["-s"], ["-E"]):
        end += 1
    is_module = words[end : end + 1] == ["-m"] and _TORCH_MODULES & {*words[end + 1 : end + 2]}
    return end + 2 if is_module else 0


def _one_command(shell: str, rest: Sequence[str]) -> list[str]:
    """Return the words of ``bash -c 'ONE COMMAND'``, none where the text is anything more."""
    if shell not in _SHELLS or len(rest) != 2 or rest[0] != "-c" or isinstance(rest[1], Doubtful):
        return []
    words = rest[1].split() if _ONE_COMMAND.fullmatch(rest[1]) else []
    # A name alone may be a word of the shell's own. Steps and jobs that a command starts are looked
    # for in the script's own words.
    if not words or not ("/" in words[0] or INTERPRETERS.match(words[0])):
        return []
    return [] if any(_base(word) in LAUNCHERS | SUBMITS for word in words) else words


def starter_of(wrappers: Iterable[str]) -> str:
    """Return what of the words in front of a program starts processes of it, "" for nothing."""
    names = (_base(word) for word in wrappers)
    return next((name for name in names if name in _STARTERS or name in _TORCH_MODULES), "")


def clearing(wrappers: Iterable[str]) -> str:
    """Return what of the words in front of a program takes variables away from it, or gives it
    some, that are not named: ``env -i``; "" for nothing."""
    name = ""
    for word in wrappers:
        base = _base(word)
        verb = base == "exec" and _CLEARING.get(name) is _OF_CONTAINER
        if base in _CLEARING and not verb:
            name = base
        elif name and _CLEARING[name].fullmatch(word):
            return name
    return ""


@dataclass(frozen=True, slots=True)
class FrontAtStep:
    """What a step's program may stand behind, as the hook reads it where the step starts.

    There the words themselves are known, so each option stands here, and none that takes variables
    away from the program, adds some, or says how many threads it has. Flags and the ``verb`` come
    first, then flags and ``values``, whose value is the next word, then an image.
    """

    verb: str = ""
    flags: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    image: bool = False
    inside: bool = False
    """Its program may be another file than the one of that name outside."""
    interpreter: bool = False
    """The program is the file that it runs: of the step's folder, if it names none."""


def _front_of(wrapper: _Wrapper, excluded: str) -> FrontAtStep:
    """Return a container or an environment without some of its options."""
    flags, values = (
        all_options - {*excluded.split()}
        for all_options in (wrapper.flags or frozenset(), wrapper.values)
    )
    return FrontAtStep("".join(wrapper.verbs), flags, values, wrapper.image, inside=True)


_CLEARING_OPTIONS = """
    --env --env-file --app -e --cleanenv -c --contain -C --containall --compat -E --clearenv
"""
FRONTS_AT_STEP: Mapping[str, FrontAtStep] = {
    "singularity": _front_of(_SINGULARITY, _CLEARING_OPTIONS),
    "apptainer": _front_of(_SINGULARITY, _CLEARING_OPTIONS),
    "shifter": _front_of(_HIDES["shifter"], _CLEARING_OPTIONS),
    "conda": _front_of(_CONDA, ""),
    "mamba": _front_of(_CONDA, ""),
    "micromamba": _front_of(_MICROMAMBA, ""),
    "stdbuf": FrontAtStep(values=frozenset({"-i", "-o", "-e", "--input", "--output", "--error"})),
    "python": FrontAtStep(
        flags=frozenset(f"-{letter}" for letter in "BEIOPsSuv"),
        values=frozenset({"-W", "-X"}),
        interpreter=True,
    ),
    "julia": FrontAtStep(
        flags=frozenset(
            {"--project", "--startup-file", "--check-bounds", "--optimize", "-O"}
            | {f"-O{level}" for level in range(4)}
        ),
        interpreter=True,
    ),
    "Rscript": FrontAtStep(
        flags=frozenset({"--vanilla", "--no-save", "--no-restore", "--slave", "--no-echo"}),
        interpreter=True,
    ),
}
"""By name; ``python3.11`` is ``python``."""


def front_at_step(word: str) -> str:
    """Return by which name :data:`FRONTS_AT_STEP` would have a word."""
    return re.sub(r"^python[\d.]+$", "python", _base(word))


def program_at_step(argv: Sequence[str]) -> int:
    """Return where in a step's words its program stands.

    ``hooks/slurm/advisor/step.lua`` reads them in the same way. What is not wholly read is itself
    the program.
    """
    start = 0
    while front := FRONTS_AT_STEP.get(front_at_step(argv[start])):
        end = _behind_front(argv, start + 1, front)
        if not end:
            break
        start = end
        if front.interpreter:
            break
    return start


def _behind_front(argv: Sequence[str], position: int, front: FrontAtStep) -> int:
    """Return where the words behind those of a container or an interpreter begin, 0 if unclear."""
    if front.verb:
        while argv[position : position + 1] and argv[position] in front.flags:
            position += 1
        if argv[position : position + 1] != [front.verb]:
            return 0
        position += 1
    while position < len(argv) and argv[position].startswith("-"):
        word = argv[position]
        long_name, equals, _ = word.partition("=")
        if word in front.values:
            position += 1
        elif not (
            word in front.flags
            or (equals and word.startswith("--") and long_name in front.flags | front.values)
            or (not word.startswith("--") and word[:2] in front.values)
            or (re.fullmatch(r"-[A-Za-z]+", word) and {f"-{c}" for c in word[1:]} <= front.flags)
        ):
            return 0
        position += 1
    position += front.image
    return position if position < len(argv) and argv[position][:1] not in ("", "-") else 0


def file_of(words: Sequence[str]) -> int:
    """Return where an interpreter's words name the file it runs, 0 where they name none."""
    match = INTERPRETERS.match(_base(words[0]))
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
    if not wrapper.verbs:
        return position
    while position < len(words) and words[position] in (wrapper.flags or ()):
        position += 1
    return position + 1 if {*words[position : position + 1]} & {*wrapper.verbs} else 0


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
