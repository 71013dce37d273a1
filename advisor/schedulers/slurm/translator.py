"""Slurm's submission options: read a request as the hooks send it, write a choice back.

The hooks send what the user set explicitly, by command line, ``#SBATCH`` line or environment
(``slurm.json_cli_options``): long option names with string values. Standard library only: the
daemon uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from advisor.core.availability import Availability
from advisor.core.axes import AxisWriting
from advisor.core.cluster_name import cluster_name
from advisor.core.configuration import Configuration
from advisor.core.cpu_freq import is_unclear, parse_cpu_freq
from advisor.core.gpus import GpusAsked
from advisor.core.inventory import NodeType
from advisor.core.nodelist import expand
from advisor.core.placement import cores_by_rank
from advisor.core.program import checked
from advisor.core.request import CannotWriteError, JobRequest
from advisor.core.requested_configuration import cap_asked_for
from advisor.core.script import read
from advisor.core.script_use import (
    THREAD_VARIABLES,
    ScriptUse,
    counts_threads,
    leaves_unbound,
)
from advisor.core.units import format_count, parse_memory_mb
from advisor.schedulers.slurm import table as slurm_table
from advisor.schedulers.slurm.sbatch import (
    PBS_LINES,
    SUBMIT,
    environment_options,
    read_arguments,
    read_directives,
    written,
)

__all__ = [
    "AXES",
    "CAPS_OWN_CORES",
    "DIRECTIVE",
    "FOLLOWS",
    "LEFT_ALONE",
    "NOT_SWEPT",
    "SETS_THREADS",
    "SETTINGS",
    "SITE_AXES",
    "SUBMIT",
    "TIME_LIMIT",
    "array_task",
    "asking_for",
    "axes_kept",
    "bound_ranks",
    "cap_obstacle",
    "caps_on_nodes",
    "environment_options",
    "fold",
    "launched",
    "limited",
    "parse_request",
    "plans_steps",
    "read_arguments",
    "read_directives",
    "render",
    "without",
    "written",
]
DIRECTIVE, TIME_LIMIT = "#SBATCH", "time"
_CONTROLLER = "job_submit"
"""The hook in slurmctld, which sees jobs that passed by the filter."""
_LIMITS = {
    "file": "tmp",
    "mem": "mem",
    "pmem": "mem-per-cpu",
    "pvmem": "mem-per-cpu",
    "vmem": "mem",
    "walltime": "time",
}
"""What PBS's limits are here."""
_SIZE = re.compile(r"(\d+)([kmgt]?)b?")
_KB = {"": 1 / 1024, "k": 1, "m": 1024, "g": 1024**2, "t": 1024**3}
LEFT_ALONE = "ADVISOR=off sbatch"
FOLLOWS = {"cpus-per-task": "SLURM_CPUS_PER_TASK"}
SETTINGS = ("SLURM_CONF",)
SETS_THREADS: tuple[str, ...] = ()
CAPS_OWN_CORES = True
AXES: Mapping[str, AxisWriting] = {"gpu_freq_khz": AxisWriting("gpu-freq", per=1000)}
"""Slurm's own option, in MHz: of the GPUs' memory it says nothing, which keeps its clock."""
SITE_AXES = True
_BOUND = {"cpu": "threads", "depth": "cores", "numa_node": "ldoms"}
"""What srun calls the words of aprun's ``--cc``."""
NOT_SWEPT = slurm_table.NOT_SWEPT | {PBS_LINES}
BINDING_SETTINGS = ("TaskPlugin", "TaskPluginParam")
"""What of Slurm's configuration says whether it binds steps to cores, and so whether it caps."""
CPUSET_SETTINGS = ("TaskPlugin", "ConstrainCores", "CgroupMountpoint")
"""What of it says whether each job has a cpuset, and so whether its own cores can be capped."""
PROLOG_SETTINGS = ("Prolog", "Epilog", "PrologFlags", "JobSubmitPlugins")
"""What of it says whether each node caps a whole job, not only the steps of srun."""
NODE_CAP = "advisor-node-cap"
"""The program of `hooks/slurm` that does so, as prolog and epilog."""
NODE_CORES = "advisor-node-cores"
"""The program that it leaves for a job's own cores, beside it."""
NODE_GPUS = "advisor-node-gpus"
"""The program that it starts for a job's GPUs, beside it."""
SETTERS = "/run/advisor-gpus"
"""Where that has a job's setter listen, as NODE.JOB."""
CGROUPS = "/sys/fs/cgroup"
_HET = re.compile(r"^#SBATCH[^\S\n]*(het|pack)job(?!\S)", re.MULTILINE | re.IGNORECASE)
_SETS = re.compile(r"(?<![$\w{])(?:SLURM_|SRUN_|SLURMD_)|\$\{(?:SLURM_|SRUN_)\w+:?=")
"""A script that may set a variable which srun reads: most only use them."""
_AFTER_FIRST = re.compile("[-,:km]")
"""What follows the first number of ``--nodes``: such a job is left alone (slurm_table.COUNTS)."""
_TASKS = ("ntasks", "ntasks-per-node")
_GPU_OPTIONS: Mapping[str, Literal["node", "task", "job"]] = {
    "gres": "node",
    "gpus": "job",
    "gpus-per-node": "node",
    "gpus-per-task": "task",
}
_KINDS = {"sbatch": "batch", "srun": "run", "salloc": "allocate"}


def without(line: str, names: Collection[str]) -> str:
    """Return the line as it is, "" where it holds nothing else: for sbatch the last line counts."""
    return "" if set(read_directives(line)) <= set(names) else line


def array_task(number: str) -> dict[str, str]:
    """Return the variables in which a task of a job array finds its number; "": it is none."""
    return {"SLURM_ARRAY_TASK_ID": number, "SLURM_ARRAY_TASK_COUNT": "1"} if number else {}


def bound_ranks(binding: str) -> dict[str, str]:
    """Return the variable by which srun binds ranks to cores; see the protocol.

    Raises ValueError for ``none``: srun then sets no frequency cap, as seen on a real Slurm.
    """
    if binding == "none":
        raise ValueError("srun sets no frequency cap without binding; leave it out, or numa_node")
    if binding in _BOUND:
        return {"SLURM_CPU_BIND": _BOUND[binding]}
    by_rank = cores_by_rank(binding)
    if len(by_rank) == 1:
        return {"SLURM_CPU_BIND": "map_cpu:" + ",".join(map(str, by_rank[0]))}
    # A set: a core that is named twice has one bit.
    masks = (hex(sum(1 << cpu for cpu in set(rank))) for rank in by_rank)
    return {"SLURM_CPU_BIND": "mask_cpu:" + ",".join(masks)}


def parse_request(
    payload: Mapping[str, object],
    *,
    user: str,
    uid: int,
    choices: Mapping[str, object],
) -> JobRequest:
    """Return the request a hook sent. Raises ValueError naming the option that makes no sense."""
    options = {
        k.replace("_", "-"): v.strip()
        for k, v in _mapping(payload.get("options")).items()
        if isinstance(v, str)
    }
    argv = tuple(str(a) for a in _sequence(payload.get("argv")))
    program = str(payload.get("type") or "sbatch")
    script = payload.get("script")
    if options.get("wrap"):
        # sbatch makes a script of these words itself; the job has no other.
        script, argv = options["wrap"], ()
    hook = str(payload.get("hook") or "")
    if hook == _CONTROLLER and isinstance(script, str):
        # Slurm's job_desc does not tell these options to the controller's hook.
        options |= {k: v for k, v in read_directives(script).items() if k in slurm_table.UNSEEN}

    cwd = str(payload.get("cwd") or "")
    environment = {str(k): str(v) for k, v in _mapping(payload.get("env")).items()}
    stated_options = {
        **dict.fromkeys(_mapping(payload.get("options")), ""),
        **options,
    }  # null is set, too
    judged = slurm_table.judge(stated_options, environment, program)
    assigned = _assigned_variables(script, argv) if isinstance(script, str) else {}
    if assigned:
        judged = slurm_table.both(judged, slurm_table.judge_script(assigned))

    def get(name: str) -> str:
        return options.get(name, "")

    def number(name: str) -> int | None:
        value = get(name)
        try:
            return int(_AFTER_FIRST.split(value)[0]) or None if value else None
        except ValueError:
            raise ValueError(f"--{name}={value} is not a number") from None

    caps = _caps(environment, program, get("cpu-freq"))
    freq_low_khz, freq_khz = parse_cpu_freq(get("cpu-freq") or next(iter({*caps.values()}), ""))
    # srun on its own takes --exclusive for its step, too: exactly what its tasks ask for
    one_each = (
        program == "srun" and "exclusive" in options and not options.keys().isdisjoint(_TASKS)
    )
    return JobRequest(
        scheduler="slurm",
        hook=hook,
        user=user,
        uid=uid,
        cluster=_cluster(get("clusters"), payload.get("cluster")),
        # Inside of a job srun is given the job's number, by the user or by SLURM_JOB_ID.
        kind="step" if "jobid" in options and program == "srun" else _KINDS.get(program, "batch"),
        account=get("account"),
        partition=get("partition"),
        qos=get("qos"),
        job_name=get("job-name"),
        script=script if isinstance(script, str) else None,
        options=options,
        script_path=str(payload.get("script_path") or ""),
        script_truncated=bool(payload.get("truncated")),
        cwd=cwd,
        program=checked(payload.get("program"), cwd),
        command=argv,
        launcher="srun" if program == "srun" else "",
        environment=environment,
        choices=choices,
        explicit=frozenset(slurm_table.AXES[n] for n in options if n in slurm_table.AXES),
        nodes=number("nodes") or _listed_nodes(get("nodelist")),
        ntasks=number("ntasks"),
        ntasks_per_node=number("ntasks-per-node"),
        cpus_per_task=number("cpus-per-task") or (1 if one_each else None),
        gpus=gpus_asked(options),
        constraint=get("constraint"),
        node_list=get("nodelist"),
        freq_khz=freq_khz,
        freq_low_khz=freq_low_khz,
        freq_variables=_freq_variables(environment, get("cpu-freq"), program),
        freq_unclear=_freq_unclear(caps, assigned),
        time_limit_s=_time(get("time")),
        signal_before_s=_signal_before_s(get("signal")),
        memory_per_node_mb=_memory("mem", get("mem")),
        memory_per_cpu_mb=_memory("mem-per-cpu", get("mem-per-cpu")),
        # With a word behind it, nodes are shared with jobs of the same user or label.
        exclusive="exclusive" in options and get("exclusive").lower() not in ("user", "mcs", "no"),
        environment_exported=_exports_all(get("export")),
        takes_plan=payload.get("plan") == 1 or hook == "explain",  # which asks as the filter would
        het=bool(payload.get("het")) or (isinstance(script, str) and _is_het(script)),
        array="array" in options,
        held=judged.held,
        binds={**judged.binds, **_bound_by_name(get("cpu-freq"))},
        not_understood=judged.not_understood,
    )


def _cluster(option: str, hooks_cluster: object) -> str:
    """Return the cluster that a job goes to: by ``--clusters``, which may name several, else the
    hook's own."""
    return cluster_name(option or hooks_cluster).lower()


def _assigned_variables(script: str, argv: Sequence[str]) -> Mapping[str, tuple[str | None, ...]]:
    """Return what a script sets, {} where it cannot be anything that srun reads."""
    return read(script, tuple(argv[1:])).assigned if _SETS.search(script) else {}


def _is_het(script: str) -> bool:
    return _HET.search(script) is not None


def _bound_by_name(cpu_freq: str) -> dict[str, str]:
    """Return what a frequency given by its name binds.

    ``high`` alone keeps the cores at their highest frequency. Where it is unclear, there is no
    baseline to compare with.
    """
    if is_unclear(cpu_freq):
        return {"all": "--cpu-freq"}
    return {"frequency": "--cpu-freq"} if cpu_freq.lower().startswith("high") else {}


def _caps(environment: Mapping[str, str], program: str, option: str) -> Mapping[str, str]:
    """Return the variables that cap the job's steps in place of its option, with their values."""
    return {} if option else slurm_table.frequency_variables(environment, program)


def _freq_unclear(caps: Mapping[str, str], assigned: Mapping[str, Sequence[str | None]]) -> str:
    """Return what sets the frequency of a job's steps to what is not known before it runs."""
    in_script = slurm_table.frequency_variables(dict.fromkeys(assigned, "set"), "srun")
    if in_script:
        return f"the script sets {next(iter(in_script))}"
    if len({*caps.values()}) > 1 or any(map(is_unclear, caps.values())):
        return f"{next(iter(caps))} sets it"
    return ""


def _freq_variables(environment: Mapping[str, str], option: str, program: str) -> dict[str, int]:
    """Return the variables that cap the job's steps, kHz; none where the job itself caps them."""
    caps = slurm_table.frequency_variables(environment, program)
    numbers = {name: khz for name, text in caps.items() if (khz := parse_cpu_freq(text)[1])}
    if len(numbers) < len(caps) or (option and {parse_cpu_freq(option)[1]} != {*numbers.values()}):
        return {}
    return numbers


def fold(request: JobRequest, availability: Availability | None) -> JobRequest:
    """Return the request with what Slurm adds after the filter: time limit, memory, sharing."""
    if availability is not None:
        request = replace(request, default_memory_mb=availability.default_memory_mb(request))
        if sharing := availability.shared_cores(request):  # --exclusive is no word against it
            request = replace(request, binds={**request.binds, "all": sharing})
    # Slurm shortens any limit by a deadline once it starts the job. In the controller nobody knows
    # whether the command line gave one, or a signal that comes before the limit.
    if "deadline" in request.options or request.hook == _CONTROLLER:
        return replace(request, time_limit_s=None)
    if request.time_limit_s is None and availability is not None:
        limit_s = availability.time_limit_s(request)
        if limit_s:
            # In a request 0 stands for no limit, None for one that is not known.
            limit_s = 0 if limit_s == math.inf else int(limit_s)
            request = replace(request, time_limit_s=limit_s)
    return request


def cap_obstacle(request: JobRequest, use: ScriptUse, settings: Mapping[str, str]) -> str:
    """Return why no frequency cap reaches a job's program: Slurm caps bound steps of srun only.

    Jobs of this machine are read here, too; there all that runs is capped.
    """
    if request.scheduler == "local":
        return ""
    assigned = _assigned_variables(request.script or "", request.command).get("SLURM_CPU_BIND", ())
    stated = (request.options.get("cpu-bind"), request.environment.get("SLURM_CPU_BIND"))
    bindings = [use.binding] if use.binding else [*filter(None, (*assigned, *stated))]
    if any(leaves_unbound(binding) for binding in bindings):
        return "without binding to cores, srun sets no cap"
    launcher = uncapped_launcher(use.launcher or request.launcher)
    return launcher or uncapped_by(settings, bound=bool(bindings))


def caps_on_nodes(request: JobRequest, settings: Mapping[str, str]) -> bool:
    """Tell whether the prolog on each node of a job applies the cap that the job's stamp names.

    Of a batch job alone, which has a stamp, and not of one that states a cap itself: that one stays
    where it is. Where its nodes are not its alone, of its own cores.
    """
    if request.kind != "batch" or _states_cap(request):
        return False
    return not (nodes_uncapped if request.exclusive else cores_uncapped)(settings)


def axes_kept(request: JobRequest, use: ScriptUse, settings: Mapping[str, str]) -> tuple[str, str]:
    """Return why --gpu-freq does not reach a job's GPUs, and why their nodes' prolog sets nothing.

    slurmstepd sets the clocks of a step's GPUs, for steps of srun only. The prolog reads the stamp,
    which batch jobs alone have.
    """
    by_nodes = nodes_uncapped(settings)
    if request.kind != "batch":
        by_nodes = "no stamp tells its nodes"
    return uncapped_launcher(use.launcher or request.launcher), by_nodes


def gpus_asked(options: Mapping[str, str]) -> GpusAsked | None:
    """Return the GPUs that a job asks for, None where it asks for none.

    ``--gpus=a100:4``, ``--gres=gpu:2,nvme:1``; the hook in the controller has ``gres:gpu:4``.
    GPUs that several jobs share (``shard``, ``mps``) are nobody's to set.
    """
    requests = []
    for option, per in _GPU_OPTIONS.items():
        for word in options.get(option, "").split(","):
            name, *rest = word.removeprefix("gres:").removeprefix("gres/").split(":")
            if name in ("shard", "mps"):
                return GpusAsked(unclear=f"--{option}={word} shares GPUs with other jobs")
            if option != "gres" and name != "gpu":  # what they count are GPUs
                rest = [name, *rest]
            elif name != "gpu":
                continue
            if any(rest) or word == "gpu":
                number = rest[-1] if rest and rest[-1].isdecimal() else "1"
                requests.append(GpusAsked(per, int(number[:6])))
    if len(requests) > 1:
        return GpusAsked(unclear="its options name GPUs more than once")
    return requests[0] if requests and requests[0].count else None


def plans_steps(request: JobRequest) -> bool:
    """Tell whether a job's steps look up where they start what the job's plan says of them.

    The filter does so, and gives the job its plan. Not where the job states a cap, which its steps
    would have on top.
    """
    if request.scheduler != "slurm" or not request.takes_plan or request.kind == "run":
        return False
    return not (request.het or _states_cap(request))


def _states_cap(request: JobRequest) -> bool:
    """Tell whether a job states a cap itself: that one stays where it is."""
    stated = request.freq_khz or request.freq_variables or request.freq_unclear
    return bool(stated) or "frequency" in request.explicit


def nodes_uncapped(settings: Mapping[str, str]) -> str:
    """Return what of Slurm's configuration keeps nodes from capping whole jobs, "" for nothing.

    Prolog and epilog are our program. The stamp that it reads is job_submit.lua's work. Without
    ``Alloc`` a node runs its prolog at its first step, which is none where ssh starts the ranks.
    """
    for key in ("Prolog", "Epilog"):
        if node_cap_program(settings.get(key, "")) is None:
            return f"{key} does not name {NODE_CAP}"
    flags = settings.get("PrologFlags", "").lower().split(",")
    # Contain and X11 imply Alloc.
    if {"alloc", "contain", "x11"}.isdisjoint(flags):
        return "PrologFlags is without Alloc"
    if "lua" not in settings.get("JobSubmitPlugins", "").split(","):
        return "JobSubmitPlugins is without lua, so that no job has a stamp"
    return ""


def cores_uncapped(settings: Mapping[str, str]) -> str:
    """Return what keeps nodes from capping the own cores of jobs that share them, "" for nothing.

    Which cores of a machine a job has is what Slurm bound it to, by a cpuset that our program finds
    where Linux has it. ``Contain`` makes it on each node as soon as the prolog is over, whatever
    starts the job's processes.
    """
    if why := nodes_uncapped(settings):
        return why
    if {"contain", "x11"}.isdisjoint(settings.get("PrologFlags", "").lower().split(",")):
        return "PrologFlags is without Contain"
    if "task/cgroup" not in settings.get("TaskPlugin", "").split(","):
        return "TaskPlugin is without task/cgroup"
    if settings.get("ConstrainCores", "").lower() != "yes":
        return "ConstrainCores is not yes"
    mounted = settings.get("CgroupMountpoint") or CGROUPS
    return "" if mounted == CGROUPS else f"CgroupMountpoint is not {CGROUPS}"


def node_cap_program(setting: str) -> Path | None:
    """Return our program if it is among the files that a setting names; None if not."""
    return next((Path(n) for n in setting.split(",") if n.rpartition("/")[2] == NODE_CAP), None)


def uncapped_by(settings: Mapping[str, str], *, bound: bool = False) -> str:
    """Return why Slurm caps no step, "" where it does, or no setting is known.

    ``bound``: the step states how it is bound to cores. As seen on a real Slurm.
    """
    plugins = settings.get("TaskPlugin")
    if plugins is not None and not ("affinity" in plugins or "cgroup" in plugins):
        return f"Slurm's TaskPlugin={plugins or 'none'} never applies --cpu-freq"
    if not bound and "none" in settings.get("TaskPluginParam", "").lower().split(","):
        return "Slurm's TaskPluginParam=none binds no step to cores, so that it sets no cap"
    return ""


def uncapped_launcher(launcher: str) -> str:
    """Return why what a launcher ("" for none) starts gets no cap, "" where it does."""
    if launcher == "srun":
        return ""
    how = f"{launcher}, and Slurm caps srun's steps only" if launcher else "no srun"
    return f"the script starts its program with {how}"


def render(
    baseline: Configuration,
    chosen: Configuration,
    node_type: NodeType,
    request: JobRequest,
    *,
    pin_node_type: bool,
    whole: bool = True,
    variables: tuple[str, ...] = THREAD_VARIABLES,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return (options to write, variables to set) that turn the request into ``chosen``.

    Only what differs is written. See :class:`~advisor.schedulers.translators.Translator`. Raises
    CannotWriteError for more threads than the request leaves a task, which the filter refuses: a
    step may have fewer tasks than its job, and these more CPUs each.
    """
    rewrite: dict[str, str] = {}
    environment: dict[str, str] = {}
    if pin_node_type:
        rewrite["constraint"] = node_type.feature
    if chosen.threads_per_node != baseline.threads_per_node:
        most = _cpus_per_task(request, node_type)
        if chosen.threads_per_rank > most:
            text = f"its request has {format_count(most, 'CPU')} for each of its tasks"
            raise CannotWriteError("threads", text, "the number of tasks")
        threads = str(chosen.threads_per_rank)
        if not whole:
            rewrite["cpus-per-task"] = threads
        counts = request.script_counts or counts_threads(request.script or "", variables)
        if whole or not counts:
            environment.update(dict.fromkeys(variables, threads))
    if cap_khz := cap_asked_for(request, chosen, node_type):
        # A range: a single number would keep the cores there, also while they rest.
        least = max(node_type.freq_khz[0], request.freq_low_khz or 0)
        rewrite["cpu-freq"] = f"{min(least, cap_khz)}-{cap_khz}"
    return rewrite, environment


def _cpus_per_task(request: JobRequest, node_type: NodeType) -> int:
    """Return how many CPUs a request leaves each of its tasks, as the filter's check has it."""
    if request.cpus_per_task:
        return request.cpus_per_task
    cpus, tasks = node_type.cores * node_type.threads_per_core, request.ntasks or 1
    tasks_per_node = request.ntasks_per_node
    if not tasks_per_node:
        tasks_per_node = math.ceil(tasks / request.nodes) if request.nodes else min(tasks, cpus)
    return max(1, cpus // tasks_per_node)


def asking_for(
    configuration: Configuration,
    node_type: NodeType,
    *,
    threads: bool = True,
    constraint: bool = True,
    memory_mb: float = 0.0,
    freq_khz: int = 0,
) -> dict[str, str]:
    """Return the options of a job that asks for a configuration; see the protocol."""
    least = node_type.freq_khz[0] if node_type.freq_khz else freq_khz
    options = {
        "nodes": str(configuration.nodes),
        "ntasks-per-node": str(configuration.ranks_per_node),
        "cpus-per-task": str(configuration.threads_per_rank) if threads else "",
        "partition": node_type.default_partition or next(iter(node_type.partitions), ""),
        "constraint": node_type.feature if constraint else "",
        "mem": f"{int(memory_mb)}M" if memory_mb else "",
        "cpu-freq": f"{least}-{freq_khz}" if freq_khz else "",
        "exclusive": "exclusive",
    }
    return {name: value for name, value in options.items() if value}


def launched(command: str, ranks: int) -> str:
    """Return the line of a script that starts a command on all ranks of its job."""
    return f"srun {command}"


def limited(limits: str, nodes: int, options: Mapping[str, str]) -> dict[str, str]:
    """Return a job's options with PBS's resource limits: ``mem=4gb`` becomes memory per node."""
    bounds: dict[str, str] = {}
    for word in limits.split(","):
        name, _, value = (part.strip() for part in word.partition("="))
        if name not in _LIMITS:
            raise ValueError(f"{name!r} is not known here; known: {', '.join(sorted(_LIMITS))}")
        option = _LIMITS[name]
        if option == "time":
            bounds[option] = value
            continue
        size = _SIZE.fullmatch(value.lower())
        if size is None:
            raise ValueError(f"{word.strip()!r}: write a size like 4gb")
        kb = int(size[1]) * _KB[size[2]] / (nodes if option == "mem" else 1)
        bounds[option] = f"{max(1, math.ceil(kb))}K"
    return {**bounds, **options}


def _listed_nodes(text: str) -> int | None:
    """Return how many nodes a node list names: a job that states no number gets them all."""
    try:
        return len(expand(text)) or None
    except ValueError:
        return None


def _exports_all(value: str) -> bool:
    return not value or value.upper().split(",")[0] == "ALL"


def _signal_before_s(text: str) -> int:
    """Return how long before its limit a job may get its signal: ``[{R|B}:]NUMBER[@SECONDS]``.

    Slurm may send it a minute earlier than asked for. The limit itself is one: 0 for no signal.
    """
    if not text:
        return 0
    seconds = text.partition("@")[2].strip()
    # Without @SECONDS Slurm sends it 60 s before the end.
    return 60 + (int(seconds) if seconds.isdecimal() else 60)


def _time(text: str) -> int | None:
    """Return a time limit in seconds, 0 for no limit, None where none is stated."""
    try:
        return (slurm_table.parse_limit(text) or 0) if text else None
    except ValueError:
        raise ValueError(f"--time={text} is not a time limit") from None


def _memory(name: str, text: str) -> float | None:
    try:
        return parse_memory_mb(text.rstrip("?")) or None if text else None
    except ValueError:
        raise ValueError(f"--{name}={text} is not an amount of memory") from None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
