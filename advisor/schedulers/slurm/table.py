"""What every option and input variable of sbatch, srun and salloc means to the advisor.

Read in Slurm 20.11 to 24.11. A job is only changed when all it asks for stands in here and
nothing of it binds what would change. Classes, one or several words each:

- ``harmless``: says nothing of where, how fast or with how many threads the job runs;
- ``axis:X``: the user's own word on an axis (frequency, threads, node_type, nodes, ranks);
- ``binds:X``: X is kept whatever the policy says (node_type, nodes, cores, memory, gpus,
  frequency, threads), or, of ``tasks``, is clear only where the job states nodes and tasks;
- ``binds:shape``: it changes, or leaves open, what a core or task is: nothing is changed but the
  cap of a job whose earlier ones tell what that does to all of it;
- ``all``: the same of nodes, of who shares them, and of when it ends: nothing is changed;
- ``held``: the job starts when nobody knows yet.

``advisor hook install`` writes the same table into the hooks. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# LETTER,NAME with ":" where a value must follow, "::" where "=VALUE" may, "!" for what a job's
# sweep does without, "?" for what Slurm does not give to job_submit, @programs.
_OPTIONS = {
    "harmless": """
        A,account: acctg-freq: argv:@ a,array:!@sbatch autocomplete: bcast::@srun
        bcast-exclude:@srun bell@salloc D,chdir:! comment:! compress::@srun context:
        debugger-test@srun X,disable-status@srun environment:@ epilog:@srun e,error:!@sbatch+srun
        exclusive:: export:@sbatch+srun h,help ignore-pbs!@sbatch i,input:!@sbatch+srun
        interactive@srun J,job-name:! K,kill-command::@salloc K,kill-on-bad-exit::@srun
        kill-on-invalid-dep:!@sbatch l,label@srun L,licenses: mail-type:! mail-user:! mcs-label:
        mpi:@srun msg-timeout:@srun network: nice:: no-bell@salloc k,no-kill:: no-requeue!@sbatch
        no-shell@salloc oom-kill-step:: open-mode:!@sbatch+srun o,output:!@sbatch+srun
        parsable!@sbatch p,partition: priority:! profile: prolog:@srun propagate::@sbatch+srun
        pty::@srun q,qos: Q,quiet! quit-on-interrupt@srun requeue!@sbatch resv-ports::
        send-libs::@srun signal:!? slurmd-debug:@srun stepmgr task-epilog:@srun
        test-only!@sbatch+srun T,threads:@srun t,time:! treewidth:@srun u,unbuffered@srun usage
        v,verbose! V,version W,wait!@sbatch W,wait:@srun wait-all-nodes:!@salloc+sbatch wckey:
        whole@srun wrap:!@sbatch x11::@salloc+srun
        """,
    "axis:frequency": "cpu-freq:",
    "axis:threads": "c,cpus-per-task:",
    "axis:node_type": "C,constraint:",
    "axis:nodes": "N,nodes:",
    "axis:ranks": "n,ntasks: ntasks-per-node: tasks-per-node:",
    # Named or excluded nodes, nodes of a kind a constraint does not tell, or nodes that must be
    # free now: on another node type the job could be refused or never start.
    "binds:node_type": """
        batch:@sbatch bb: bbf:? contiguous deadline:!? delay-boot:! x,exclude: extra:
        I,immediate::@salloc+srun F,nodefile: prefer: reboot reservation: segment: switches: tmp:
        """,
    "binds:node_type axis:node_type": "w,nodelist:",
    # Their number depends on the nodes the job gets.
    "binds:node_type binds:cores": "use-min-nodes?",
    "binds:node_type binds:cores axis:threads": "mincpus:",
    "binds:memory": "mem:",
    # A smaller request would have less memory; all cores of a larger node would need more.
    "binds:memory binds:cores binds:node_type": "mem-per-cpu:",
    "binds:gpus binds:cores binds:node_type": """
        accel-bind:@srun gpu-bind: gpus-per-node: gres-flags: mem-per-gpu: tres-bind:
        """,
    "binds:gpus binds:cores binds:node_type axis:node_type": "G,gpus: gres:",
    "binds:frequency": "power:?",
    "binds:gpu_freq_khz": "gpu-freq:",
    # The variables come from somewhere else and may hold a number of threads.
    "binds:threads": "export-file:?@sbatch get-user-env::!?@salloc+sbatch task-prolog:@srun",
    "binds:cores": "mem-bind:?",
    # Tasks bound to cores, maybe to one each, and a step that uses a part of what its job has.
    "binds:threads binds:cores": "cpu-bind:@srun m,distribution: exact@srun",
    # Which CPUs of its nodes a task gets, where the job itself says how many tasks there are.
    "binds:threads binds:cores binds:node_type binds:tasks axis:ranks": """
        ntasks-per-core: ntasks-per-socket:
        """,
    "binds:gpus binds:threads binds:cores binds:node_type binds:tasks": "gpus-per-task:",
    "held": "b,begin:! d,dependency:! H,hold!",
    # With a hint of any kind srun gives a task one core, whatever the job's -c or --exclusive say,
    # unless it has a -c of its own (Slurm 22.05).
    "binds:shape": """
        container: container-id: S,core-spec:? external-launcher::@srun B,extra-node-info:
        gpus-per-socket: hint: multi-prog@srun ntasks-per-gpu: ntasks-per-tres: O,overcommit?
        overlap::@srun E,preserve-env@srun r,relative:@srun spread-job? thread-spec:?
        threads-per-core: tres-per-task:
        """,
    "binds:shape axis:threads": "cores-per-socket: cpus-per-gpu: sockets-per-node:",
    "all": """
        cluster: cluster-constraint:? M,clusters: gid: het-group:@srun jobid:@srun
        Z,no-allocate@srun s,oversubscribe pack-group:@srun time-min:! uid:
        """,
}


@dataclass(frozen=True, slots=True)
class SlurmOption:
    """One option of sbatch, srun or salloc: all that is known of it stands here once."""

    name: str
    """The long name; Slurm takes any beginning that only one option of the program has."""
    letter: str
    """The short name, "" where there is none."""
    value: str
    """``no``, ``required`` (the next word if not behind "=" or the letter) or ``optional`` (only
    behind "=" or the letter)."""
    programs: frozenset[str]
    classes: str
    is_swept: bool
    """Whether it is part of what a job's sweep measures: not where output goes, when a job starts,
    how long it may take."""
    is_in_controller: bool
    """Whether Slurm gives it to job_submit; the others are known there from the script alone."""


_VALUE = {"": "no", ":": "required", "::": "optional"}
_RECORD = re.compile(r"(?:(\w),)?([\w-]+)(:{0,2})([!?]*)(?:@([\w+]*))?")


def _records() -> Iterable[SlurmOption]:
    for classes, words in _OPTIONS.items():
        for match in _RECORD.finditer(words):
            letter, name, value, marks, programs = match.groups()
            readers = ("sbatch", "srun", "salloc") if programs is None else programs.split("+")
            kind, programs_of_it = _VALUE[value], frozenset(readers)
            marked = "!" not in marks, "?" not in marks
            yield SlurmOption(name, letter or "", kind, programs_of_it, classes, *marked)


RECORDS = tuple(_records())
"""Every option; what is below follows from it. ``argv`` and ``environment`` are only listed by
Slurm to its filters. Of ``wait`` sbatch and srun have one each."""
OPTIONS: Mapping[str, str] = {o.name: o.classes for o in RECORDS}
"""Long option name -> its classes."""
SHORT: Mapping[str, str] = {o.letter: o.name for o in RECORDS if o.letter}
"""Short options of sbatch, srun and salloc."""
SAME = {"tasks-per-node": "ntasks-per-node"}
"""Other names of options, which Slurm lists by the first one."""
NOT_SWEPT = frozenset(o.name for o in RECORDS if not o.is_swept)
"""Options that a job's sweep does without."""
SHAPE = frozenset(
    """
    nodes ntasks ntasks-per-node ntasks-per-socket ntasks-per-core cpus-per-task mincpus
    use-min-nodes exclusive oversubscribe overcommit extra-node-info mem-per-cpu cpus-per-gpu
    """.split()  # noqa: SIM905
)
"""Options that say how large a job is: in a sweep, whole nodes stand in for a job that shares its
own."""
UNSEEN = frozenset(o.name for o in RECORDS if not o.is_in_controller)
"""Options that Slurm does not give to job_submit: only those in the script are known there."""
AXES: Mapping[str, str] = {
    o.name: axis
    for o in RECORDS
    for kind, _, axis in (word.partition(":") for word in o.classes.split())
    if kind == "axis" and o.name not in SAME
}
"""Option -> the axis on which it is the user's own word."""

LAUNCHER: Mapping[str, str] = {
    "exclusive": "binds:threads binds:cores",
    "time": "all",
    "constraint": "binds:node_type",
    "mem": "binds:memory binds:cores binds:node_type",
    "exclude": "all",
    "nodelist": "all",
    "nodefile": "all",
    "cpu-freq": "axis:frequency binds:frequency",
}
"""Options that mean more on a step's own line: part of the job's cores, nodes or time."""

VALUES: Mapping[str, Sequence[tuple[str, str]]] = {
    "cpu-bind": (("map_ mask_ rank", "binds:shape"),),
    "mem-bind": (("map_ mask_ rank", "binds:shape"),),
    "distribution": (("arbitrary plane", "binds:shape"),),
    "cpu-freq": (
        ("conservative ondemand performance powersave schedutil userspace", "binds:frequency"),
    ),
    "export": (("omp_ kmp_ gomp_ mkl_ openblas_ goto_ blis_ veclib_ numexpr_", "binds:threads"),),
    "priority": (("0", "held"),),
}
"""Option -> classes that come with a word of its value that begins so, small letters."""

COUNTS = frozenset({"nodes"})
"""Options that are ``all`` where their value is no single number: of a range (``1-4``) or a list,
nobody knows how many the job gets."""

FLAGS = frozenset(o.name for o in RECORDS if o.value == "no") | {"external-launcher", "overlap"}
"""Options without a value: as a variable they are set when empty, and not when 0 or no."""

_READ = {
    "SBATCH_": """
        account acctg-freq array-inx batch burst-buffer cluster-constraint clusters constraint
        container container-id core-spec cpu-freq-req cpus-per-gpu debug delay-boot distribution
        error exclusive export get-user-env gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
        gpus-per-task gres gres-flags hint ignore-pbs input job-name mem-bind mem-per-cpu
        mem-per-gpu mem-per-node network no-kill no-requeue open-mode output overcommit partition
        power profile qos req-switch requeue reservation signal spread-job thread-spec
        threads-per-core timelimit tres-bind tres-per-task use-min-nodes wait wait-all-nodes
        wait4switch wckey
        """,
    "SALLOC_": """
        account acctg-freq bell burst-buffer cluster-constraint clusters constraint container
        container-id core-spec cpu-freq-req cpus-per-gpu debug delay-boot exclusive gpu-bind
        gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint immediate
        kill-cmd mem-bind mem-per-cpu mem-per-gpu mem-per-node network no-bell no-kill overcommit
        partition power profile qos req-switch reservation signal spread-job thread-spec
        threads-per-core timelimit tres-bind tres-per-task use-min-nodes wait-all-nodes
        wait4switch wckey
        """,
    "SLURM_": """
        account acctg-freq bcast bcast-exclude burst-buffer cluster-constraint clusters compress
        constraint core-spec cpu-bind cpu-freq-req cpus-per-gpu cpus-per-task debug delay-boot
        dependency disable-status distribution epilog exact exclusive export-env external-launcher
        gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint
        immediate job-name kill-bad-exit labelio mem-bind mem-per-cpu mem-per-gpu mem-per-node
        mpi-type ncores-per-socket network no-kill nprocs nsockets-per-node ntasks ntasks-per-core
        ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres oom-kill-step oomkillstep
        open-mode overcommit overlap partition power profile prolog qos remote-cwd req-switch
        reservation resv-ports send-libs signal spread-job srun-multi stderrmode stdinmode
        stdoutmode task-epilog task-prolog thread-spec threads threads-per-core timelimit
        tres-bind tres-per-task unbufferedio use-min-nodes wait wait4switch wckey working-dir
        """,
    "SRUN_": """
        container container-id cpus-per-task error export-env input output
        """,
}
"""Variables that are options, by what follows the prefix: those of the command that submits, and
those that every srun in the job reads."""

_ALIAS = {
    "array-inx": "array",
    "burst-buffer": "bb",
    "cpu-freq-req": "cpu-freq",
    "debug": "verbose",
    "export-env": "export",
    "kill-bad-exit": "kill-on-bad-exit",
    "kill-cmd": "kill-command",
    "labelio": "label",
    "mem-per-node": "mem",
    "mpi-type": "mpi",
    "ncores-per-socket": "cores-per-socket",
    "nprocs": "ntasks",
    "nsockets-per-node": "sockets-per-node",
    "oomkillstep": "oom-kill-step",
    "remote-cwd": "chdir",
    "req-switch": "switches",
    "srun-multi": "multi-prog",
    "stderrmode": "error",
    "stdinmode": "input",
    "stdoutmode": "output",
    "timelimit": "time",
    "unbufferedio": "unbuffered",
    "wait4switch": "switches",
    "working-dir": "chdir",
}

_OTHERS = {
    "harmless": """
        SLURMD_DEBUG SLURMD_NODENAME SLURM_BITSTR_LEN SLURM_CLUSTER_NAME SLURM_CONF
        SLURM_CONFIG_FETCH SLURM_CONF_OUT SLURM_CONF_SERVER SLURM_CONTAINER SLURM_CONTAINER_ID
        SLURM_CPUS_ON_NODE
        SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_VERBOSE SLURM_DEBUG_FLAGS
        SLURM_EXIT_ERROR SLURM_EXIT_IMMEDIATE SLURM_GET_USER_ENV SLURM_GPUS_ON_NODE SLURM_GTIDS
        SLURM_JOBID SLURM_JWT SLURM_LAUNCH_NODE_IPADDR SLURM_LOCALID SLURM_MEM_BIND_LIST
        SLURM_MEM_BIND_PREFER SLURM_MEM_BIND_SORT SLURM_MEM_BIND_TYPE SLURM_MEM_BIND_VERBOSE
        SLURM_NNODES SLURM_NODEID SLURM_NODELIST SLURM_NODE_ALIASES SLURM_PRIO_PROCESS
        SLURM_PROCID SLURM_PTY_PORT SLURM_PTY_WIN_COL SLURM_PTY_WIN_ROW SLURM_RESTART_COUNT
        SLURM_SACK_JWKS SLURM_SACK_KEY SLURM_SCRIPT_CONTEXT SLURM_SHARDS_ON_NODE SLURM_STEPID
        SLURM_STEP_KILLED_MSG_NODE_ID SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURM_TASKS_PER_NODE
        SLURM_TASK_PID SLURM_TEST_EXEC SLURM_TIME_FORMAT SLURM_TOPO_LEN SLURM_TREE_WIDTH
        SLURM_UMASK SRUN_DEBUG SBATCH_MEM_BIND_LIST SBATCH_MEM_BIND_PREFER SBATCH_MEM_BIND_SORT
        SBATCH_MEM_BIND_TYPE SBATCH_MEM_BIND_VERBOSE SLURM_UID SLURM_WORKING_CLUSTER
        """,
    "binds:gpus binds:cores binds:node_type": "SLURM_STEP_GRES",
    # Tasks laid out by a list of nodes.
    "binds:shape": """
        SLURM_ARBITRARY_NODELIST SLURM_DIST_LLLP SLURM_DIST_PLANESIZE SLURM_HOSTFILE
        """,
    # The components of a heterogeneous job.
    "all": "SLURM_HET_SIZE SLURM_PACK_SIZE",
}
SET_IN_JOBS = frozenset(
    """
    SLURM_BITSTR_LEN SLURM_CLUSTER_NAME SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE SLURM_GTIDS
    SLURM_JOBID SLURM_LAUNCH_NODE_IPADDR SLURM_LOCALID SLURM_NNODES SLURM_NODEID SLURM_NODELIST
    SLURM_NODE_ALIASES SLURM_PROCID SLURM_SHARDS_ON_NODE SLURM_STEPID SLURM_TASKS_PER_NODE
    SLURM_TASK_PID SLURM_TOPO_LEN SLURM_WORKING_CLUSTER SLURM_CONTAINER SLURM_CONTAINER_ID
    """.split()  # noqa: SIM905
)
"""Of the harmless variables those by which a job's steps find their nodes and tasks."""
FAMILIES = (
    "SLURM_ADVISOR_",
    "SLURM_ARRAY_",
    "SLURM_HET_JOB_",
    "SLURM_JOB_",
    "SLURM_PACK_JOB_",
    "SLURM_PMI",
    "SLURM_RLIMIT_",
    "SLURM_SPANK_",
    "SLURM_SRUN_",
    "SLURM_STEP_",
    "SLURM_TOPOLOGY_",
)
"""How harmless variables begin that Slurm sets inside jobs, and those of PMI and of plugins."""

_PLACED_BY = (
    "SLURM_HET_",
    "SLURM_JOB_CPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM",
    "SLURM_PACK_",
    "SLURM_STEP_",
    "SLURM_SRUN_",
    "SLURM_TOPOLOGY_",
)
"""How the names of others begin by which launchers find a job's nodes and tasks."""

_STEP = {
    # What the job's steps read as their own: the number of tasks and the place of each.
    "ntasks": "binds:shape",
    "ntasks-per-node": "binds:shape",
    "cpus-per-task": "binds:threads binds:cores",
    "cpu-freq": "binds:frequency",
    "dependency": "harmless",
    "immediate": "harmless",
}


def _variables() -> tuple[dict[str, str], dict[str, str]]:
    """Return each variable's classes, and the option that it sets."""
    classes = {n: c for c, names in _OTHERS.items() for n in names.split()}
    options = {}
    for prefix, words in _READ.items():
        for suffix in words.split():
            name = prefix + suffix.upper().replace("-", "_")
            option = options[name] = _ALIAS.get(suffix, suffix)
            option_classes = OPTIONS[option]
            if prefix in ("SLURM_", "SRUN_"):
                option_classes = _STEP.get(option, LAUNCHER.get(option, option_classes))
            classes[name] = option_classes
    return classes, options


VARIABLES, SETS = _variables()
"""Variable -> its classes (what begins like one of FAMILIES is harmless besides); and the option
that it sets, where it sets one."""

UNKNOWN = "unknown"
NOT_SET = ("unset", "(null)")
"""Values of options that Slurm lists although nobody set them."""
OVERWRITTEN = frozenset({"ntasks", "ntasks-per-node", "cpus-per-task", "cpu-freq"})
"""Options whose SLURM_ variable sbatch and salloc write themselves when they are given."""
STEP = "step"
"""srun inside a job: its options say of the job's nodes and cores what it uses."""
READS = {
    "sbatch": ("SBATCH_", "SLURM_", "SRUN_", "SLURMD_"),
    "salloc": ("SALLOC_", "SLURM_", "SRUN_", "SLURMD_"),
    "srun": ("SLURM_", "SRUN_", "SLURMD_"),
    STEP: ("SLURM_", "SRUN_", "SLURMD_"),
}
PREFIXES = ("SBATCH_", "SALLOC_", "SLURM_", "SRUN_", "SLURMD_")
_COMPONENT = re.compile(r"_(?:HET|PACK)_GROUP_\d+$")
_NUMBER = re.compile(r"[+-]?0*[1-9]\d*")
_SINGLE = re.compile(r"(\d+)(-\1)?", re.ASCII)
_WORD = re.compile(r"[^\s,:;=@]+")


@dataclass(frozen=True, slots=True)
class Judged:
    """What a request's options and variables keep from changing.

    ``binds``: axis (``node_type``, ``nodes``, ``cores``, ``memory``, ``gpus``, ``frequency``,
    ``threads``, ``tasks``, ``all``) -> the option or variable as it is typed. ``not_understood``:
    what is in no table. ``held``: it starts when nobody knows yet.
    """

    binds: Mapping[str, str] = field(default_factory=dict)
    not_understood: tuple[str, ...] = ()
    held: bool = False


def classes_of(option: str, value: str, classes: str) -> tuple[str, ...]:
    """Return the classes of an option with this value, whose own are ``classes``."""
    class_names = classes.split()
    if option in COUNTS and not _SINGLE.fullmatch(value):
        class_names.append("all")
    special = VALUES.get(option, ())
    words = _WORD.findall(value.lower()) if special else []
    for beginnings, extra in special:
        starts = tuple(beginnings.split())
        if any(w.startswith(starts) for w in words):
            class_names += extra.split()
    return tuple(class_names)


def judge(options: Mapping[str, str], environment: Mapping[str, str], program: str) -> Judged:
    """Judge what a submission asks for.

    ``options`` by long name, with ``-`` or ``_``; ``environment`` as a hook sends it; ``program``
    is sbatch, srun, salloc or STEP.
    """
    names = {k.replace("_", "-"): v for k, v in options.items()}
    judged: list[tuple[str, tuple[str, ...]]] = []
    for name, value in names.items():
        option = OPTIONS.get(name)
        if program == STEP:
            option = LAUNCHER.get(name, option)
        if option is None:
            judged.append((f"--{name}", (UNKNOWN,)))
        elif value not in NOT_SET:
            judged.append((f"--{name}", classes_of(name, value, option)))
    reads = READS.get(program, PREFIXES)
    caps = frequency_variables(environment, program)  # last: a site may vouch for what they bind
    for name in [*(n for n in environment if n not in caps), *caps]:
        if name.startswith(reads):
            judged.append((name, _variable(name, environment[name], names, program)))
    return _gather_judged(judged)


def frequency_variables(environment: Mapping[str, str], program: str) -> dict[str, str]:
    """Return the variables that are ``--cpu-freq`` to a submission or to the steps of its job."""
    reads = READS.get(program, PREFIXES)
    return {
        name: value
        for name, value in environment.items()
        if value and SETS.get(name) == "cpu-freq" and name.startswith(reads)
    }


def _variable(name: str, value: str, options: Mapping[str, str], program: str) -> tuple[str, ...]:
    classes, option = VARIABLES.get(name), SETS.get(name)
    if classes is None:
        return ("harmless" if name.startswith(FAMILIES) or _COMPONENT.search(name) else UNKNOWN,)
    if option in FLAGS:
        is_set = value.lower() in ("", "yes") or _NUMBER.fullmatch(value) is not None
    else:
        is_set = bool(value) or option == "exclusive"
    # An option goes before its variable; those of OVERWRITTEN sbatch writes anew for the job's
    # steps.
    read_as_option = option in options and (
        program in ("srun", STEP) or (name.startswith("SLURM_") and option in OVERWRITTEN)
    )
    if not is_set or read_as_option:
        return ("harmless",)
    # Steps that get some variables only may not get those that set threads.
    if option == "export" and name.startswith(("SLURM_", "SRUN_")) and value.upper() != "ALL":
        return ("binds:threads",)
    return classes_of(option or "", value, classes)


def judge_script(assigned: Mapping[str, Sequence[str | None]]) -> Judged:
    """Judge the variables that a job's script sets, as srun reads them there.

    ``assigned``: name -> the values it may be given, "" where it is unset, None where a value is
    not known. What Slurm itself sets in each job says nothing of a submission that has it, but a
    script that changes it has a reason. No Slurm reads a name that is in no table: of what a site's
    plugins or a later release make of it, the cap alone is safe.
    """
    judged: list[tuple[str, tuple[str, ...]]] = []
    for name, values in assigned.items():
        if not name.startswith(READS["srun"]):
            continue
        classes, option = VARIABLES.get(name), SETS.get(name)
        if classes is None or (option is None and name in SET_IN_JOBS):
            judged.append((name, _set_by_script(name)))
            continue
        for value in values:
            if option == "export":
                exports_all = value is not None and value.upper() in ("", "ALL")
                judged.append((name, ("harmless" if exports_all else "binds:threads",)))
            elif value is None and (rules := VALUES.get(option or "")):
                special = [extra for _, extra in rules]
                judged.append((name, tuple(" ".join((classes, *special)).split())))
            else:
                judged.append((name, classes_of(option or "", value or "", classes)))
    return _gather_judged(judged)


def _set_by_script(name: str) -> tuple[str, ...]:
    """Return the classes of a variable that no srun reads as an option."""
    if name.startswith(("SLURM_SPANK_", "SLURM_PMI", "SLURM_ADVISOR_")):
        return ("harmless",)
    if name in SET_IN_JOBS or name.startswith(_PLACED_BY):
        return ("binds:shape",)
    return ("binds:threads", "binds:cores", "binds:node_type")


def both(first: Judged, second: Judged) -> Judged:
    """Return what two judgements keep together."""
    unknown = dict.fromkeys((*first.not_understood, *second.not_understood))
    binds = {**second.binds, **first.binds}
    return Judged(binds, tuple(unknown), first.held or second.held)


def _gather_judged(judged: Iterable[tuple[str, tuple[str, ...]]]) -> Judged:
    binds: dict[str, str] = {}
    unknown, is_held = [], False
    for shown, classes in judged:
        for word in classes:
            kind, _, axis = word.partition(":")
            if kind in ("binds", "all"):
                # The first that binds an axis is the one that is told.
                binds.setdefault(axis or "all", shown)
            elif kind == UNKNOWN:
                unknown.append(shown)
            is_held = is_held or kind == "held"
    return Judged(binds, tuple(dict.fromkeys(unknown)), is_held)


def option_of(word: str, program: str) -> SlurmOption | None:
    """Return the option that a long name or its beginning means to a program, as getopt does.

    None where no option begins so, or several do.
    """
    names = _BY_NAME.get(program, {})
    if word in names:
        return names[word]
    beginning = [option for name, option in names.items() if word and name.startswith(word)]
    return beginning[0] if len(beginning) == 1 else None


def letter_of(letter: str, program: str) -> SlurmOption | None:
    """Return the option that a letter means to a program, None for none."""
    return _BY_LETTER.get(program, {}).get(letter)


_PROGRAMS = ("sbatch", "srun", "salloc")
_BY_NAME = {p: {o.name: o for o in RECORDS if p in o.programs} for p in _PROGRAMS}
_BY_LETTER = {p: {o.letter: o for o in RECORDS if o.letter and p in o.programs} for p in _PROGRAMS}


def parse_limit(text: str) -> int | None:
    """Return a time limit (``90``, ``1:30:00``, ``2-12:00``) in seconds, None if unlimited.

    Formats as in sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours,
    days-hours:minutes, days-hours:minutes:seconds. Raises ValueError for anything else.
    """
    text = text.strip()
    if text.upper() in {"UNLIMITED", "INFINITE", "-1"}:
        return None
    days = 0
    has_days = "-" in text
    if has_days:
        head, text = text.split("-", 1)
        days = int(head)
    parts = [int(p) for p in text.split(":")]
    if len(parts) > 3 or any(p < 0 for p in parts):
        raise ValueError(f"not a time limit: {text!r}")
    if has_days:
        hours, minutes, seconds = ([*parts, 0, 0])[:3]
    elif len(parts) == 1:
        hours, minutes, seconds = 0, parts[0], 0
    elif len(parts) == 2:
        hours, minutes, seconds = 0, parts[0], parts[1]
    else:
        hours, minutes, seconds = parts
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
