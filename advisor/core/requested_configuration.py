"""What a job asks for: the node type it will land on, and its configuration there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory, NodeType
from advisor.core.job_numbers import number_of
from advisor.core.nodelist import expand
from advisor.core.request import JobRequest
from advisor.core.script import threads_of
from advisor.core.script_use import (
    NO_USE,
    PLACES_RANKS,
    STEP_CPUS,
    THREAD_VARIABLES,
    ScriptUse,
    binds_to_cores,
    use_of_command,
    use_of_script,
)
from advisor.core.thread_use import is_filled
from advisor.core.units import format_count


class UnclearError(ValueError):
    """What a job asks for is not known; the text says what of it."""


def use_of(
    request: JobRequest, variables: tuple[str, ...] = THREAD_VARIABLES, *, named: bool = False
) -> ScriptUse:
    """Return what a job's script or command does with the job's cores.

    ``named``: a site rule or the user vouches for a program that is a script itself.
    """
    if request.script is not None:
        if request.script_truncated:
            return ScriptUse(("script-not-understood", "only a part of it is known"))
        arguments = request.command[1:]
        use = use_of_script(request.script, arguments, variables, named=named)
        placing = next((n for n in request.environment if PLACES_RANKS.fullmatch(n)), "")
        if placing and use.launcher not in ("", "srun"):
            return ScriptUse(("script-not-understood", f"your environment sets {placing}"))
        if use.launcher == "srun" and STEP_CPUS in request.environment:
            return replace(use, threads_unclear=f"your environment sets {STEP_CPUS}")
        return use
    if request.kind == "run" and request.command:
        return use_of_command(request.command, variables, named=named, launcher=request.launcher)
    return ScriptUse(("no-script", ""))


def partitions_of(request: JobRequest, inventory: Inventory) -> tuple[str, ...]:
    """Return the partitions a job may go to: those it names, else the scheduler's default."""
    named = tuple(filter(None, request.partition.split(",")))
    return named or tuple(filter(None, (inventory.default_partition,)))


def partition_of(request: JobRequest, inventory: Inventory) -> str:
    """Return the partition a job goes to: what it names first, else the scheduler's default."""
    return request.partition.partition(",")[0] or next(iter(partitions_of(request, inventory)), "")


def possible_node_types(
    request: JobRequest, inventory: Inventory, preferred: Mapping[str, str]
) -> list[NodeType]:
    """Return the node types a job may land on, the likeliest first.

    ``preferred`` names the site's default node type of a partition. Empty when nothing fits: a
    constraint the inventory does not know, a partition without known nodes, a node list of
    several node types.
    """
    partitions = partitions_of(request, inventory)
    possible: list[NodeType] = []
    for partition in partitions:
        partition_types, first = inventory.in_partition(partition), preferred.get(partition)
        if first is not None:
            partition_types = (
                *(t for t in partition_types if t.name == first),
                *(t for t in partition_types if t.name != first),
            )
        possible += [t for t in partition_types if t not in possible]
    if not partitions and len(inventory.node_types) == 1:
        possible = list(inventory.node_types.values())
    if request.node_types is not None:
        possible = [t for t in possible if t.name in request.node_types]
    elif request.constraint:
        selected = {t.name for t in inventory.by_feature(request.constraint)}
        possible = [t for t in possible if t.name in selected]
    if request.node_list:
        try:
            names = set(expand(request.node_list))
        except ValueError:
            return []
        possible = [
            t for t in possible if all(any(_same_host(n, a) for n in t.nodes) for a in names)
        ]
    return possible


def _same_host(node: str, host: str) -> bool:
    # The vnodes of a PBS host are n1[0], n1[1].
    return node == host or node.startswith(f"{host}[")


def default_freq(node_type: NodeType) -> int:
    """Return the frequency a job gets without asking, kHz; 0 when the inventory has none."""
    return node_type.default_freq_khz or (node_type.freq_khz[-1] if node_type.freq_khz else 0)


def cap_asked_for(request: JobRequest, chosen: Configuration, node_type: NodeType) -> int:
    """Return the cap, kHz, that a job has to ask for to run at a configuration; 0 for none."""
    if not node_type.freq_khz or chosen.freq_khz == (request.freq_khz or default_freq(node_type)):
        return 0
    return chosen.freq_khz


def shape(request: JobRequest, cores: int, use: ScriptUse = NO_USE) -> tuple[int, int]:
    """Return (nodes, ranks per node) of a request on nodes with ``cores`` cores.

    Raises UnclearError where the scheduler or the launcher works the ranks out from what a node
    has, or the launcher's line says them in a way that reading does not follow.
    """
    per_node, ntasks, cpus = request.ntasks_per_node, request.ntasks, request.cpus_per_task
    stated = request.nodes is not None and (ntasks is not None or per_node is not None)
    stated |= ntasks == 1  # one task is on one node, however cores and GPUs are given to tasks
    if (binding := request.binds.get("tasks")) and not stated:
        raise UnclearError(
            f"how many tasks {binding} makes: the job does not state nodes and tasks"
        )
    if use.ranks_unclear:
        raise UnclearError(f"how many ranks {use.launcher} starts")
    ranks = use.ranks
    if use.ranks_of_job:
        tasks = ntasks or (per_node or 0) * (request.nodes or 0)
        ranks = number_of(use.ranks_of_job, tasks, request.nodes)
        if ranks is None:
            raise UnclearError(f"how many ranks {use.launcher} starts")
    if ranks is not None:
        ntasks, per_node = ranks, None
    elif request.exclusive and ntasks is None and per_node is None:
        if use.launcher not in ("", "srun"):
            raise UnclearError(f"how many ranks {use.launcher} starts: the job states no tasks")
        step_cpus = cpus if use.step_cpus is None else use.step_cpus or cpus or 0
        # Where two of its tasks fit onto a node, srun starts as many as fit.
        if use.launcher and step_cpus is not None and 2 * step_cpus <= cores:
            raise UnclearError("how many ranks srun starts: the job states no tasks")
    if request.nodes is not None:
        nodes = request.nodes
    elif ntasks is not None:
        fit = per_node or max(1, cores // (cpus or 1))
        nodes = math.ceil(ntasks / fit)
    else:
        nodes = 1
    if use.nodes is not None and use.nodes != nodes:
        raise UnclearError(f"{use.launcher} uses {use.nodes} of the job's {nodes} nodes")
    if ranks is not None and use.ranks_per_node and ranks != use.ranks_per_node * nodes:
        each = format_count(use.ranks_per_node, "rank")
        raise UnclearError(f"{use.launcher} does not start {each} on each node")
    placed = use.launcher == "srun" or (use.launcher == "aprun" and use.ranks_per_node)
    if ranks is not None and not placed and nodes > 1:
        # mpirun fills the tasks of a node before it goes on to the next node
        tasks = request.ntasks or (request.ntasks_per_node or 0) * nodes
        if not tasks and not request.exclusive:
            tasks = nodes
        if not tasks or ranks % tasks:
            raise UnclearError(f"how many of its {ranks} ranks {use.launcher} starts on a node")
    if per_node is None:
        per_node = math.ceil((ntasks or nodes) / nodes)
    return nodes, max(1, per_node)


def configuration_of(
    request: JobRequest, node_type: NodeType, use: ScriptUse = NO_USE
) -> Configuration:
    """Return the configuration a job asks for, at the default frequency unless it set one.

    Threads come from a literal OMP_NUM_THREADS in the script, else ``-c``, else the submitting
    environment's OMP_NUM_THREADS, else all cores of an exclusive job with at most one rank a
    socket, else one a rank. Raises UnclearError as :func:`shape` does, and where the script sets
    the threads, or the frequency of its steps, to what is not known before it runs.
    """
    nodes, ranks = shape(request, node_type.cores, use)
    if unclear := use.freq_unclear or request.freq_unclear:
        raise UnclearError(f"at which frequency it runs: {unclear}")
    if use.threads_unclear:
        raise UnclearError(f"how many threads a rank has: {use.threads_unclear}")
    if use.threads_of_node and (ranks > 1 or node_type.threads_per_core > 1):
        raise UnclearError("how many threads a rank has: the script counts the node's CPUs")
    threads = node_type.cores if use.threads_of_node else threads_stated(request)
    threads = threads or request.cpus_per_task
    if threads is None:
        stated = request.environment.get("OMP_NUM_THREADS", "")
        if stated.isdecimal() and stated.isascii() and int(stated) > 0:
            threads = int(stated)
        elif request.exclusive and ranks <= node_type.sockets:
            threads = max(1, node_type.cores // ranks)
        else:
            threads = 1
    freq = request.freq_khz or default_freq(node_type)
    return Configuration(node_type.name, nodes, ranks, ranks * threads, freq)


def threads_stated(request: JobRequest) -> int | None:
    """Return the threads of a rank that a job's script states, None where it states none."""
    if request.script is None and request.script_threads:
        return request.script_threads
    threads = threads_of(request.script or "", request.command[1:])
    if threads.without_request and request.cpus_per_task is None:
        return threads.without_request
    return threads.count


def threads_kept(
    request: JobRequest, use: ScriptUse, variables: tuple[str, ...] = THREAD_VARIABLES
) -> str:
    """Return why the variables that set a program's threads are not set, "" if they may be."""
    if binding := bound(request, "threads") or use.threads:
        return binding
    for name in variables:
        if request.environment.get(name):
            return f"your environment sets {name}"
    if pinned := binds_to_cores(request.environment):
        return f"your environment sets {pinned}"
    if not request.environment_exported:
        return "the job's environment is not exported"
    return ""


def unset_kept(variables: Sequence[str], configuration: Configuration, filled: object) -> str:
    """Return why variables that a job leaves unset stay so, "" where they may be set, or none is.

    What a program does without them is not known by its command line, nor by ``-c``: a pool of
    workers gives each one thread until somebody says otherwise. ``filled`` says where a measured
    run with them unset used all of its threads (see advisor.core.thread_use).
    """
    if not variables or is_filled(filled, configuration):
        return ""
    used = format_count(configuration.threads_per_rank, "thread")
    return f"{' and '.join(variables)} unset, and no run measured so used {used} a rank"


def states_what_it_has(
    request: JobRequest,
    configuration: Configuration,
    node_types: Sequence[NodeType],
    use: ScriptUse,
) -> bool:
    """Tell whether the cores a task that a job with whole nodes states are just all that it has.

    ``-c 28`` on nodes of 28 CPUs then says no more of the program's threads than no ``-c`` at all.
    Not where the script counts its cores itself, and not where srun starts the program: there its
    step tells how many threads it has (:mod:`advisor.core.step_plan`).
    """
    if request.kind != "batch" or use.launcher == "srun" or use.cores:
        return False
    cpus = {t.cores * t.threads_per_core for t in node_types}
    return cpus == {configuration.threads_per_node}


def bound(request: JobRequest, *axes: str) -> str:
    """Return what binds one of these axes whatever the policy says, "" if nothing does."""
    return next((f"{request.binds[a]} binds it" for a in axes if a in request.binds), "")


def cores_kept(request: JobRequest, use: ScriptUse) -> str:
    """Return why a request that shares its nodes cannot become smaller, "" if it can."""
    if not request.memory_per_node_mb:
        return "memory is per core, and fewer cores would mean less of it"
    # What the script does with its cores is in `use.cores`.
    threads_reason = threads_kept(replace(request, script=None), NO_USE)
    return bound(request, "cores", "gpus") or use.cores or threads_reason


def gpus_kept(request: JobRequest, node_type: NodeType, axis: str) -> str:
    """Return why a further axis of a job's GPUs stays as it is, "" if it can be lowered."""
    if request.gpus is None:
        return "the job asks for no GPUs"
    if request.gpus.unclear:
        return request.gpus.unclear
    if not node_type.gpus.steps(axis):
        return f"the inventory lists none for {node_type.name}"
    return bound(request, axis)


def fills_nodes(request: JobRequest, node_type: NodeType, use: ScriptUse) -> bool:
    """Tell whether a job's own request takes all cores of its nodes, wherever its tasks are put."""
    try:
        nodes, _ = shape(request, node_type.cores, use)
    except UnclearError:
        return False
    least = request.ntasks_per_node or request.tasks_together
    if request.nodes is not None and request.ntasks:
        least = request.ntasks // nodes
    return least * (request.cpus_per_task or 1) >= node_type.cores * node_type.threads_per_core
