"""What a job script does with the job's cores, and what it would notice of a change.

Threads, cap, node type and the size of a request change only where the recognised program is the
only user of the job's cores, and where nothing in the script counts what would change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.core.cpu_freq import is_unclear, parse_cpu_freq
from advisor.core.job_numbers import NODES, TASKS, job_number
from advisor.core.launchers import (
    LAUNCHERS,
    NO_PROGRAMS,
    SUBMITS,
    VALUE_IS_A_NAME,
    option_keeps,
)
from advisor.core.remembered import Remembered
from advisor.core.script import Command, command_of, read
from advisor.core.script_limits import ends_after_s, has_watchdog, limits_processor_time
from advisor.core.shell import ShellCommand
from advisor.core.shell_words import TOO_SLOW
from advisor.core.signs import Signs
from advisor.core.wrappers import INTERPRETERS, clearing, starter_of

THREAD_VARIABLES = ("OMP_NUM_THREADS",)
"""What sets a program's threads, where no site rule says otherwise."""

CAP_VARIABLE = "ADV_SWEEP_CAP_KHZ"
"""In which a script finds the cap of each run of a sweep, in kHz; a job does not learn its own."""

SEVERAL_STEPS = "several-steps"
"""The reason's code of a script that runs more than one program, or one in different ways."""
MOST_IN_ORDER = 12
"""Programs of a script that are looked at one by one."""
_ONE_OF_SEVERAL = "the script runs several programs"

MAX_SCRIPT = 65536
"""A longer script is not looked through: nobody writes one by hand."""


LISTS = Signs(
    re.compile(r"(?:map|mask|rank)_(?:cpu|ldom)|\blist:\d|KMP_HW_SUBSET|OMP_THREAD_LIMIT"),
    ("_cpu", "_ldom", "list:", "KMP_HW_SUBSET", "OMP_THREAD_LIMIT"),
)
"""What always names cores, or bounds threads: fewer threads would meet the same list."""
BINDING = Signs(
    re.compile(
        r"(?:GOMP_CPU_AFFINITY|KMP_AFFINITY|OMP_PLACES|I_MPI_PIN\w{0,40}|MV2_CPU\w{0,40}"
        r"|OMP_PROC_BIND)="
    ),
    ("_AFFINITY=", "OMP_PLACES=", "I_MPI_PIN", "MV2_CPU", "OMP_PROC_BIND="),
)
"""What names cores where its value has a number; ``close`` and ``cores`` hold for any."""
_DIGIT = re.compile(r"\d")
COUNTS_THREADS = Signs(
    re.compile(
        r"\bnproc\b|(?:OMP|MKL|OPENBLAS|GOTO|BLIS|VECLIB|NUMEXPR)_NUM_THREADS|OMP_THREAD_LIMIT"
        r"|\bNCPUS\b"  # PBS's own word for a rank's threads
    ),
    ("nproc", "_NUM_THREADS", "OMP_THREAD_LIMIT", "NCPUS"),
)
"""What sets or reads a number of threads: the script means a certain one."""
COUNTS_CORES = Signs(
    re.compile(
        r"SLURM_CPUS_ON_NODE|SLURM_JOB_CPUS_PER_NODE|SLURM_TASKS_PER_NODE|\bnproc\b|\blscpu\b"
        r"|cpuinfo|_NPROCESSORS|\bNCPUS\b|PBS_NODEFILE|PBS_NP\b|PBS_NUM_PPN|\bnumactl\b"
        r"|\btaskset\b"
    ),
    (
        "_ON_NODE",
        "_PER_NODE",
        "nproc",
        "lscpu",
        "cpuinfo",
        "_NPROCESSORS",
        "NCPUS",
        "PBS_N",
        "numactl",
        "taskset",
    ),
)
"""What looks at the node's cores: on another node type it would see others."""
READS_CAP = Signs(
    re.compile(
        rf"SLURM_CPU_FREQ\w*|{CAP_VARIABLE}|\bcpu_freq_mhz|\bfrequency-set\b"
        r"|\blikwid-setFrequencies"
    ),
    ("SLURM_CPU_FREQ", CAP_VARIABLE, "cpu_freq_mhz", "frequency-set", "likwid-setFreq"),
)
"""What reads or sets the clock in a job: it would notice a cap, or take it off."""
_SETS_CAP = Signs(re.compile(r"--cpu[-_]freq\b"), ("--cpu-freq", "--cpu_freq"))
COUNTS_REQUEST = Signs(
    re.compile(r"SLURM_(?:JOB_)?(?:CPUS|TASKS|NTASKS|NPROCS|MEM)\w*|SLURM_TRES\w*"),
    ("_CPUS", "TASKS", "_NPROCS", "_MEM", "SLURM_TRES"),
)
"""What reads the request's own size, which a smaller request changes."""
_FOLLOWS = re.compile(
    r"\b[A-Z]+_NUM_THREADS=\$\{?SLURM_CPUS_PER_TASK(?::-\d+)?\}?(?=\s|$)"
    r"|(?:-c[\s=]?|--cpus-per-task[\s=])\$\{?SLURM_CPUS_PER_TASK\}?(?=\s|$)"
)
"""What follows a smaller request by itself: threads, or a step's CPUs, as many as it has then."""
_BINDS_TO_CORES = re.compile(r"-(?:C|N|c|-(?:phys)?cpubind|-cpunodebind)\b")
_TASKSET = re.compile(r"\btaskset\b")
_CPU_BIND = ("--cpu-bind", "--cpu_bind")
_ANYTHING = frozenset(
    """
    bash sh dash ksh csh tcsh zsh xargs parallel make gmake ninja cmake ctest snakemake nextflow ssh
    pdsh clush screen tmux expect watch flock su sudo dplace omplace
    """.split()  # noqa: SIM905
)
"""Programs that run others, which nobody sees."""
STEP_CPUS = "SRUN_CPUS_PER_TASK"
"""The variable that srun takes for its option ``-c``."""
PLACES_RANKS = re.compile(
    r"(?:OMPI|PRTE)_MCA_(?:orte_|prte_|opal_)?(?:rmaps|hwloc|ras|rds|default_hostfile|rankfile"
    r"|process_binding|cpu_set)\w*|OMPI_MCA_mpi_paffinity_alone|OMPI_MCA_orte_(?:num|host)\w*"
    r"|HYDRA_(?:HOST_?FILE|BIND|MAP|RMK|RANKS_PER|TOPO|DEFAULT_RMK)\w*"
    r"|I_MPI_(?:PERHOST|PROCESSES_PER|RANKS_PER|JOB_RESPECT_PROCESS_PLACEMENT|JOB_TIMEOUT"
    r"|HYDRA_(?:HOST_FILE|HOSTS|RMK|MACHINE)|MPIEXEC_TIMEOUT|HOST)\w*"
    r"|MPIEXEC_(?:TIMEOUT|PERHOST|PPN|HOST|NUM)\w*|IBRUN_TASKS\w*|PALS_(?:PPN|DEPTH|NRANKS|CPU|HOST)\w*"
    r"|MPI_(?:DSM|OPENMP)_\w+|MP_(?:PROCS|NODES|TASKS\w*|HOSTFILE|RMPOOL)|JSRUN_\w+"
)
"""Variables by which mpirun and its like start other ranks, or put them elsewhere, or end them."""
_SHEBANG = re.compile(r"#!\s*(?:/\S*/env\s+(?:-\S+\s+)*)?(?:/\S*/)?(\S+)")
# Not csh and tcsh: their syntax is another.
_SHELLS = frozenset({"bash", "sh", "dash", "ksh", "zsh"})
_THREAD_OPTION = re.compile(
    r"--?(?:n?t(?:omp|mpi|hreads?)?|n?threads?(?:[-_]?num)?|num[-_]?(?:threads?|procs|cpus?)|"
    r"omp[-_]?(?:num[-_]?)?threads?|n?cpus?|n?cores?|np|j|jobs|p|pk|package|procs|workers|cpus[-_]per\S*)"
    r"(?:=.*|\d+)?",
    re.IGNORECASE,
)
"""Arguments that many programs take their threads from; some refuse to run where
OMP_NUM_THREADS says another number."""
_SCRIPT = re.compile(r".*\.(sh|bash|csh|tcsh|ksh|zsh|cmd|job|slurm|sbatch|pbs)$")


@dataclass(frozen=True, slots=True)
class ScriptUse:
    """How far a job may change, by its script; every text says why not, "" where it may.

    ``obstacle`` is a reason's code and detail for which nothing changes at all. ``cores`` is about
    making a request smaller.
    """

    obstacle: tuple[str, str] = ("", "")
    threads: str = ""
    frequency: str = ""
    freq_khz: int | None = None
    """The frequency that the launcher's line states in place of the job's."""
    freq_unclear: str = ""
    """What on that line sets it to what is not known before it runs."""
    node_type: str = ""
    cores: str = ""
    ranks: int | None = None
    """Ranks of all nodes together that the launcher's line states."""
    ranks_of_job: str = ""
    """How they follow from the job's own numbers (:mod:`advisor.core.job_numbers`)."""
    ranks_per_node: int | None = None
    """Ranks of each node that the launcher's line states."""
    ranks_unclear: bool = False
    """The launcher's line says how many ranks in a way that reading does not follow."""
    threads_unclear: str = ""
    """What the script sets a rank's threads to, where reading does not follow that."""
    threads_of_node: bool = False
    """The script gives each rank as many threads as the node has CPUs: ``$(nproc)``."""
    step_cpus: int | None = None
    """CPUs a task that srun's line or variable states, 0 where it is not known how many: without a
    number of tasks srun then starts as many as fit. None where neither states any."""
    nodes: int | None = None
    """Nodes that the launcher's line states."""
    launcher: str = ""
    binding: str = ""
    """How the launcher's line binds ranks to cores: srun's ``--cpu-bind``."""
    ends_after_s: float = math.inf
    """The script ends its program after so long: ``timeout 1h``."""
    ends: str = ""
    """What in a script that is not understood may end a program after a time."""
    runs: int = 1
    """How often the script runs its program, each time with the same work as its lines have it."""


NO_USE = ScriptUse()
"""Of a script that says nothing."""
_ENDS_UNREAD = ScriptUse(
    ("script-not-understood", "it ends its program after a time that cannot be read")
)


def use_of_script(
    script: str,
    arguments: tuple[str, ...] = (),
    variables: tuple[str, ...] = THREAD_VARIABLES,
    *,
    named: bool = False,
) -> ScriptUse:
    """Return what a script does with the job's cores.

    ``variables`` set the program's threads; ``named``: a site rule or the user vouches for a
    program that is a script itself.
    """
    key = script, arguments, variables, named
    use = _KNOWN.get(key)
    if use is None:
        use = _use_of_script(script, arguments, variables, named=named)
        # What took too long is read again: the host may have been busy.
        if use.obstacle[1] != TOO_SLOW:
            _KNOWN.put(key, use, 1024 + 2 * len(script))
    return use


_KNOWN: Remembered[ScriptUse] = Remembered(8 << 20)


def _use_of_script(
    script: str, arguments: tuple[str, ...], variables: tuple[str, ...], *, named: bool
) -> ScriptUse:
    if len(script) > MAX_SCRIPT:
        return ScriptUse(("script-not-understood", "it is longer than 64 KB"))
    reading = read(script, arguments)
    shell, commands = reading.shell, reading.commands
    # Any word, not the first alone: it may stand behind env, ssh or xargs.
    submits = next((w for c in shell.commands for w in c.words if _base(w) in SUBMITS), "")
    if submits:
        return ScriptUse(("nested-submit", _base(submits)))
    written_in = _SHEBANG.match(script)
    if written_in and written_in[1] not in _SHELLS:
        return ScriptUse(("script-not-understood", f"it is written in {written_in[1]}"))
    if shell.problem:
        return ScriptUse(("script-not-understood", shell.problem))
    if reading.unresolved:
        detail = f"it is not known what {reading.unresolved[0]} runs"
        return ScriptUse(("script-not-understood", detail))
    if reading.renamed:
        detail = f"it gives {reading.renamed[0]} another meaning"
        return ScriptUse(("script-not-understood", detail))
    if not commands:
        return ScriptUse()
    main = next((c for c in commands if c.launcher), commands[-1])
    runs = len(commands)
    if runs > 1 and not _all_alike(commands):
        names = dict.fromkeys(c.executable for c in commands)
        return ScriptUse((SEVERAL_STEPS, ", ".join(names)))
    if main.place.loop:
        return ScriptUse(("loop-of-steps", ""))
    if main.place.background:
        return ScriptUse(("background-steps", ""))
    if main.place.function or main.place.substituted:
        where = "a shell function" if main.place.function else "$(...)"
        return ScriptUse(("script-not-understood", f"it runs its program inside {where}"))
    if main.launcher != "srun":
        # What srun reads is judged by Slurm's own table, together with the job's variables.
        placing = next((n for n in reading.assigned if PLACES_RANKS.fullmatch(n)), "")
        if placing:
            return ScriptUse(("script-not-understood", f"it sets {placing}, which places ranks"))
    if has_watchdog(shell):
        return _ENDS_UNREAD
    use = _use(main, shell.text, variables, named=named)
    if main.launcher == "srun" and use.step_cpus is None and STEP_CPUS in reading.assigned:
        # srun takes this variable for its -c; it does not read SLURM_CPUS_PER_TASK.
        use = replace(use, step_cpus=reading.threads.count or 0)
    if runs > 1:
        several = f"the script runs its program {runs} times"
        use = replace(
            use,
            runs=runs,
            threads=use.threads or several,
            node_type=use.node_type or several,
            cores=use.cores or several,
        )
    threads = reading.threads
    if threads.unclear or threads.all_cpus:
        return replace(use, threads_unclear=threads.unclear, threads_of_node=threads.all_cpus)
    return use


def _all_alike(commands: Sequence[Command]) -> bool:
    """Tell whether commands run one after the other, surely, with the same words but for names."""
    if not all(_surely_once(c.place) for c in commands):
        return False
    lines = {
        (
            c.launcher,
            tuple(o for o in c.launcher_options if o.partition("=")[0] not in VALUE_IS_A_NAME),
            c.word,
            c.arguments,
            c.wrappers,
            tuple(c.environment.items()),
        )
        for c in commands
    }
    return len(lines) == 1 and not any("$" in w or "`" in w for w in commands[0].arguments)


def _surely_once(place: ShellCommand) -> bool:
    """Tell whether what stands there runs once, and nothing beside it."""
    perhaps = place.loop or place.function or place.conditional or place.substituted
    return not (perhaps or place.background or place.piped or place.subshell)


def in_order(script: str, arguments: tuple[str, ...] = ()) -> tuple[tuple[Command, ...], str]:
    """Return the programs of a script of several where each runs once, one after the other, and
    the script's text without its comments.

    None where reading leaves open what runs or with which variables, or something ends a program;
    nor of what srun starts, whose steps are told apart where they start. The script is one whose
    :func:`use_of_script` says :data:`SEVERAL_STEPS`.
    """
    reading = read(script, arguments)
    shell, programs, threads = reading.shell, reading.commands, reading.threads
    unclear = shell.problem or threads.why or threads.unclear or has_watchdog(shell)
    if unclear or any(PLACES_RANKS.fullmatch(name) for name in reading.assigned):
        return (), ""
    if not 1 < len(programs) <= MOST_IN_ORDER:
        return (), ""
    for program in programs:
        starts_others = program.launcher == "srun" or program.executable in NO_PROGRAMS
        if starts_others or not _surely_once(program.place):
            return (), ""
    return programs, shell.text


def use_of_one(program: Command, text: str, variables: tuple[str, ...]) -> ScriptUse:
    """Return what one of several programs of a script does with the job's cores while it runs.

    ``text`` is the script's. Its threads alone may change: the others would feel another cap, node
    type or request as well.
    """
    use = _use(program, text, variables, named=False)
    return replace(
        use,
        frequency=use.frequency or _ONE_OF_SEVERAL,
        node_type=use.node_type or _ONE_OF_SEVERAL,
    )


def use_of_command(
    words: Sequence[str],
    variables: tuple[str, ...] = THREAD_VARIABLES,
    *,
    named: bool = False,
    launcher: str = "",
) -> ScriptUse:
    """Return the same of a job that is one command, as after ``srun``, its ``launcher``."""
    command = command_of(words)
    if command is None:
        return ScriptUse(("script-not-understood", "no program is recognised in it"))
    use = _use(command, " ".join(words), variables, named=named)
    if use.launcher and launcher:
        return ScriptUse(("script-not-understood", f"{use.launcher} inside {launcher}"))
    return use


def _step_cpus(main: Command) -> int | None:
    if main.launcher != "srun":
        return None
    for option in main.launcher_options:
        name, _, value = option.partition("=")
        if name.startswith("-c") and name[2:].isdecimal():
            name, value = "-c", name[2:]
        if name in ("-c", "--cpus-per-task"):
            return int(value[:6]) if value.isascii() and value.isdecimal() else 0
    return None


def _use(main: Command, text: str, variables: tuple[str, ...], *, named: bool) -> ScriptUse:
    if ({main.executable, *map(_base, main.wrappers)} & _ANYTHING) or (
        _SCRIPT.fullmatch(main.executable) and not named
    ):
        detail = f"its program {main.executable} is a script that may run anything"
        return ScriptUse(("script-not-understood", detail))
    program_words = (main.executable, *main.arguments)
    # `mpirun -n 1 ./a : -n 2 ./b` starts two programs.
    inner = next((w for w in program_words if w == ":" or _base(w) in LAUNCHERS), "")
    if inner:
        what = "several programs at once" if inner == ":" else f"{inner} inside a program"
        return ScriptUse(("script-not-understood", f"it runs {what}"))
    ending = ends_after_s(main.wrappers)
    if ending is None or limits_processor_time(text):
        return _ENDS_UNREAD
    if wrapper := clearing(main.wrappers):
        detail = f"{wrapper} takes variables out that are not known"
        return ScriptUse(("script-not-understood", detail))
    obstacles = {"threads": "", "frequency": "", "node_type": ""}
    binding = cpu_freq = ""
    for option in main.launcher_options:
        axis = option_keeps(main.launcher, option)
        if axis is None:
            detail = f"{main.launcher} {option.partition('=')[0]}"
            return ScriptUse(("script-not-understood", f"the advisor does not know {detail}"))
        if axis:
            obstacles[axis] = (
                obstacles[axis] or f"{main.launcher} {option.partition('=')[0]} sets it"
            )
        name, _, value = option.partition("=")
        binding = value if main.launcher == "srun" and name in _CPU_BIND else binding
        cpu_freq = value if axis == "frequency" else cpu_freq
    wrapped = " ".join(main.wrappers)
    ranks, ranks_of_job, unclear = _stated_number(main, _RANKS, TASKS)
    if main.launcher != "srun" and ranks is None and not (ranks_of_job or unclear):
        # Open MPI's -c is another name of its -n.
        ranks, ranks_of_job, unclear = _stated_number(main, ("-c",), TASKS)
    # Of all launchers only srun's -N is a number of nodes.
    of_nodes = main.launcher == "srun"
    nodes, nodes_of_job, unclear_nodes = _stated_number(main, _NODES if of_nodes else (), NODES)
    per_node, per_node_of_job, unclear_per_node = _stated_number(
        main, _PER_NODE if of_nodes else (*_PER_NODE, "-N"), ""
    )
    unclear = bool(
        unclear
        or unclear_nodes
        or nodes_of_job
        or unclear_per_node
        or per_node_of_job
        # Some launchers then start so many on each node, some one for each of the job's tasks.
        or (per_node and (of_nodes or not (ranks or ranks_of_job)))
    )
    if main.unclear and not unclear:  # without ranks nothing changes, either
        detail = f"it is not known which options {main.launcher} gets from {main.unclear}"
        return ScriptUse(("script-not-understood", detail))
    pinned = (
        lists_cores(text)
        or _TASKSET.search(wrapped)
        or _BINDS_TO_CORES.search(wrapped.partition("numactl ")[2])
    )
    threads = obstacles["threads"] or ("it binds threads to a list of cores" if pinned else "")
    counted = counts_threads(text, variables)
    if not threads and counted:
        threads = f"the script uses {counted} itself"
    language = next((i for i, w in enumerate(main.wrappers) if INTERPRETERS.match(_base(w))), None)
    options = () if language is None else main.wrappers[language:]  # julia -t 8
    options += main.arguments
    option = next((a for a in options if a[:1] == "-" and _THREAD_OPTION.fullmatch(a)), "")
    if not threads and option:
        threads = f"{main.executable} {option} may set them"
    # torchrun and its like divide the cores among processes of their own.
    starter = starter_of((*main.wrappers, main.executable))
    own_processes = f"{starter} starts processes of its own" if starter else ""
    threads = threads or own_processes
    node_type = obstacles["node_type"] or ("it binds threads to a list of cores" if pinned else "")
    node_type = node_type or own_processes
    if not node_type and (counting := _first_sign(COUNTS_CORES, text)):
        node_type = f"the script uses {counting}"
    following = _FOLLOWS.sub("", text) if "SLURM_CPUS_PER_TASK" in text else text
    cores = node_type
    if not cores and (counting := _first_sign(COUNTS_REQUEST, following)):
        cores = f"the script uses {counting}"
    if not cores and counts_threads(following, variables):
        cores = "the script sets its threads itself"
    for option in main.launcher_options:
        counts = option_keeps(main.launcher, option) or option.startswith(("-n", "-N", "--n"))
        if counts and not _FOLLOWS.search(option) and not cores:
            cores = f"{main.launcher} {option.partition('=')[0]} states what a step takes"
    return ScriptUse(
        threads=threads,
        frequency=obstacles["frequency"] or reads_cap(text),
        freq_khz=parse_cpu_freq(cpu_freq)[1],
        freq_unclear=obstacles["frequency"] if is_unclear(cpu_freq) else "",
        node_type=node_type,
        cores=cores,
        ranks=ranks,
        ranks_of_job=ranks_of_job,
        ranks_per_node=per_node,
        ranks_unclear=unclear,
        step_cpus=_step_cpus(main),
        nodes=nodes,
        launcher=main.launcher,
        binding=binding,
        ends_after_s=ending,
    )


def ranks_of_step(command: Command) -> tuple[int | None, bool]:
    """Return the ranks that a line of srun states for its step, None for the job's own number, and
    whether it states any that reading cannot follow."""
    if any(option.startswith("--ntasks-per-") for option in command.launcher_options):
        return None, True
    ranks, of_job, unclear = _stated_number(command, ("-n", "--ntasks"), TASKS)
    return ranks, unclear or bool(of_job)


_RANKS = ("-n", "--ntasks", "-np", "--np")
_NODES = ("-N", "--nodes")
_PER_NODE = (
    "--ntasks-per-node",
    "-ppn",
    "--ppn",
    "-npernode",
    "--npernode",
    "-perhost",
    "--perhost",
)


def _stated_number(main: Command, names: tuple[str, ...], own: str) -> tuple[int | None, str, bool]:
    """Return the number that an option states, or how it follows from the job's own numbers, and
    whether it states one that reading cannot follow.

    ``own`` is a number of the job itself: as if it were not stated.
    """
    for option in reversed(main.launcher_options):  # the last one counts
        name, _, value = option.partition("=")
        if name not in names and name[:2] in names and name[2:].isdecimal():
            name, value = name[:2], name[2:]
        if name not in names:
            continue
        if value.isascii() and value.isdecimal():
            return int(value), "", False
        number = job_number(value, lambda _: "")
        return None, "" if number == f"$(({own}))" else number, not number
    return None, "", False


def counts_threads(text: str, variables: tuple[str, ...]) -> str:
    """Return what in a text sets or reads the number of threads, "" for nothing."""
    return next((v for v in variables if v in text), "") or _first_sign(COUNTS_THREADS, text)


def reads_cap(text: str) -> str:
    """Return what of a cap a text reads or sets, "" for nothing: the job's own is then kept."""
    cap = _first_sign(READS_CAP, text) or _first_sign(_SETS_CAP, text)
    return f"the script uses {cap}" if cap else ""


def leaves_unbound(cpu_bind: str) -> bool:
    """Tell whether a value of srun's ``--cpu-bind`` binds no rank to cores."""
    return not {"none", "no"}.isdisjoint(cpu_bind.lower().split(","))


def binds_to_cores(environment: Mapping[str, str]) -> str:
    """Return the variable that binds threads to a list of cores, or bounds them; "" for none."""
    for name, value in environment.items():
        if value and lists_cores(f"{name}={value}"):
            return name
    return ""


def lists_cores(text: str) -> bool:
    """Tell whether a text binds threads to a list of cores, or bounds them.

    Word by word: one search for the whole would look at a long word again and again.
    """
    if LISTS.search(text):
        return True
    if not BINDING.search(text):
        return False
    bindings = ((word, BINDING.search(word)) for word in text.split())
    return any(match and _DIGIT.search(word, match.end()) for word, match in bindings)


def _first_sign(signs: Signs, text: str) -> str:
    match = signs.search(text)
    return match[0] if match else ""


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]
