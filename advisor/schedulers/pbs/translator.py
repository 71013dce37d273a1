"""PBS's submission options: read a request as the hook sends it, write a choice back.

The hook sends the job's resources (``#PBS`` lines merged in), its other attributes, and the
words of qsub; a client that goes before qsub adds what of the script tells its application
(:func:`read_client`). Standard library only: the daemon uses it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.core.axes import AxisWriting
from advisor.core.cluster_name import cluster_name
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.program import checked, sent
from advisor.core.request import CannotWriteError, JobRequest
from advisor.core.requested_configuration import cap_asked_for
from advisor.core.script import main_command, read
from advisor.core.script_use import THREAD_VARIABLES, ScriptUse
from advisor.core.settings import parse_choices
from advisor.schedulers.pbs.chunks import (
    CHUNK_RESOURCES,
    PART_OF_CORES,
    Asked,
    asked,
    edited,
    gpus_asked,
    parse_size_mb,
    resource_names,
    shape_of,
    uses_part_of_cores,
)
from advisor.schedulers.pbs.fold import fold
from advisor.schedulers.pbs.qsub import (
    attributes_of,
    decode_arguments,
    environment_options,
    read_arguments,
    read_directives,
    resources_of,
    script_of,
    split_words,
    without,
    written,
)
from advisor.schedulers.pbs.table import FREQ, NOT_SWEPT, OWN_VARIABLES, bound

__all__ = [
    "AXES",
    "CAPS_OWN_CORES",
    "DIRECTIVE",
    "FOLLOWS",
    "FREQ",
    "LEFT_ALONE",
    "NOT_SWEPT",
    "SETS_THREADS",
    "SETTINGS",
    "SITE_AXES",
    "SUBMIT",
    "array_task",
    "asking_for",
    "axes_kept",
    "bound_ranks",
    "cap_obstacle",
    "caps_on_nodes",
    "environment_options",
    "fold",
    "limited",
    "parse_request",
    "plans_steps",
    "read_arguments",
    "read_directives",
    "render",
    "without",
    "written",
]

SUBMIT, DIRECTIVE, TIME_LIMIT = "qsub", "#PBS", "walltime"
LEFT_ALONE = "qsub -v ADVISOR=off"
FOLLOWS: Mapping[str, str] = {}
SETTINGS = ("PBS_CONF_FILE",)
MAX_CLIENT = 65536
"""Bytes, unpacked, of what qsub's hook sends."""
_TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.\d+)?")
_OMP = "OMP_NUM_THREADS"
SETS_THREADS = (_OMP,)
CAPS_OWN_CORES = False
AXES: Mapping[str, AxisWriting] = {
    "gpu_freq_khz": AxisWriting("gpu_freq_mhz", per=1000),
    "gpu_power_w": AxisWriting("gpu_power_w"),
}
"""Resources of the advisor's own, which its execution hook sets on the job's GPUs."""
SITE_AXES = False
_AXES = {
    "ncpus": ("threads",),
    "ompthreads": ("threads",),
    "mpiprocs": ("ranks",),
    "host": ("node_type",),
    "vnode": ("node_type",),
    FREQ: ("frequency",),
}


def array_task(number: str) -> dict[str, str]:
    """Return the variable in which a task of a job array finds its number; "": it is none."""
    return {"PBS_ARRAY_INDEX": number} if number else {}


def bound_ranks(binding: str) -> None:
    """Return None: PBS has no launcher of its own, the MPI library binds ranks."""


def parse_request(
    payload: Mapping[str, object],
    *,
    user: str,
    uid: int,
    choices: Mapping[str, object],
) -> JobRequest:
    """Return the request a hook sent. Raises ValueError naming the option that makes no sense."""
    options = {k: v for k, v in _mapping(payload.get("options")).items() if isinstance(v, str)}
    words = decode_arguments(str(payload.get("submit_arguments") or ""))
    client = read_client(str(payload.get("client") or ""))
    typed, rest = split_words(words)
    script, path = payload.get("script"), str(payload.get("script_path") or "")
    command = tuple(str(a) for a in _sequence(payload.get("argv")))
    hosts = _kinds(payload)
    written_from = _recorded_names(options, hosts or ())
    script_options: Mapping[str, str] = {}
    explicit = {str(k): str(v) for k, v in _mapping(payload.get("explicit")).items()} or options
    if client:
        script = client.get("script")
        directives = read_directives(str(script or ""))
        script_options = {
            name: directives.get(name, "")
            for name in dict.fromkeys((*written_from, *_recorded_names(directives, hosts or ())))
            if _meaning(name, directives) != _meaning(name, options)
        }
        explicit = {**directives, **typed}
        choices = choices or parse_choices(str(client.get("choices") or ""))[0]
    cwd = str(payload.get("cwd") or "")
    path = path or script_of(rest, cwd)
    if payload.get("executable"):
        arguments = decode_arguments(str(payload.get("argument_list") or ""))
        command, script, path = (str(payload["executable"]), *arguments), None, ""
    environment = {
        str(k): str(v)
        for k, v in _mapping(payload.get("env")).items()
        if k != _OMP  # which PBS sets for each job, whatever a variable says
    }
    kind = "batch"
    if "interactive" in options:
        kind = "allocate"
    elif payload.get("executable"):
        kind = "run"
    hook_attributes = _mapping(payload.get("attributes"))
    attributes = attributes_of(options) | {str(k): str(v) for k, v in hook_attributes.items()}
    job = asked(options, hosts or ())
    request = JobRequest(
        scheduler="pbs",
        hook=str(payload.get("hook") or ""),
        user=user,
        uid=uid,
        cluster=cluster_name(payload.get("cluster")),
        kind=kind,
        account=options.get("account", ""),
        partition=options.get("queue", "").partition("@")[0],
        job_name=options.get("job-name", ""),
        script=script if isinstance(script, str) else None,
        script_path=path,
        script_truncated=bool(payload.get("truncated") or (client and not client.get("whole"))),
        command=command,
        submit_line=" ".join(words),
        fingerprint=str(client.get("fingerprint") or "")[:64],
        cwd=cwd,
        program=_program(client) or checked(payload.get("program"), cwd),
        options=options,
        written_from=written_from,
        script_options=script_options,
        host_resources=tuple(hosts or ()),
        environment=environment,
        choices=choices,
        explicit=_explicit(explicit, hosts or ()),
        gpus=gpus_asked(job),
        freq_khz=_freq_khz(options.get(FREQ, "")),
        time_limit_s=_time(options.get("walltime", "")),
        array="array" in options,
        **shape_of(options, hosts or ()),
    )
    bound_by = bound({**resources_of(options), **job.resources}, attributes, hosts)
    binds = {**bound_by.axes, **_binds(job)}
    binds |= {axis: bound_by.axes[axis] for axis in ("all", "shape") if axis in bound_by.axes}
    if request.script is not None and ("PBS_" in request.script or "NCPUS" in request.script):
        # Only such a script may set one of PBS's variables: most need not be read for it.
        assigned = read(request.script, command[1:]).assigned
        if own_variable := next((n for n in assigned if OWN_VARIABLES.fullmatch(n)), ""):
            binds["shape"] = own_variable
    return replace(request, binds=binds, not_understood=bound_by.unknown, held=bound_by.held)


def _binds(job: Asked) -> dict[str, str]:
    """Return what of the request itself binds an axis, whatever the site's limits are."""
    binds: dict[str, str] = {}
    if job.form == "nodes":
        binds = {"threads": "-l nodes"}
    elif job.mpiprocs > 1 and "ompthreads" not in job.resources:
        # PBS gives each rank as many threads as the chunk has cores: what it means is not known
        binds["threads"] = "mpiprocs without ompthreads"
    if uses_part_of_cores(job):
        binds["shape"] = PART_OF_CORES
    if job.form != "select":
        binds["node_type"] = "a request without select"
    if job.place.group:
        binds["node_type"] = job.place.group
    for name, value in job.selectors().items():
        binds["node_type"] = f"{name}={value}"
    if job.form != "select":
        binds["cores"] = "a request without select"
    elif job.count > 1 or job.mpiprocs > 1:
        binds["cores"] = "more than one chunk or rank"
    elif "mem" not in job.resources:
        binds["cores"] = "no memory in the chunk"
    elif job.place.sharing:
        binds["cores"] = f"place={job.place}"
    return binds


def _recorded_names(options: Mapping[str, str], hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the options that are kept with a decision."""
    return *resource_names(options, hosts), *(n for n in ("queue", TIME_LIMIT) if n in options)


def _meaning(name: str, options: Mapping[str, str]) -> object:
    """Return an option's value, the same for 1:00:00 and 01:00:00, for q and q@server."""
    value = options.get(name, "")
    if name == "queue":
        return value.partition("@")[0]
    return _TIME.fullmatch(value) and _time(value) if name == TIME_LIMIT else value


def _kinds(payload: Mapping[str, object]) -> list[str] | None:
    """Return the site's own resources of a host, None where the hook does not tell."""
    if "host_resources" not in payload:
        return None
    return [str(name) for name in _sequence(payload["host_resources"])]


def _explicit(options: Mapping[str, str], hosts: Sequence[str]) -> frozenset[str]:
    """Return the axes that these options fix."""
    job = asked(options, hosts)
    axes = {axis for name in job.resources for axis in _AXES.get(name, ())}
    axes.update(axis for name in options for axis in _AXES.get(name, ()))
    if "ncpus" not in options and not (options.get("select") or options.get("nodes")):
        axes.discard("threads")  # PBS's own default of one core
    if options.get("select") or options.get("nodes"):
        axes.add("nodes")
    if job.selectors() or job.devices:
        axes.add("node_type")
    return frozenset(axes)


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
    chunk = {"ncpus": str(node_type.cores), "mpiprocs": str(configuration.ranks_per_node)}
    if threads:
        chunk["ompthreads"] = str(configuration.threads_per_rank)
    if memory_mb:
        chunk["mem"] = f"{int(memory_mb)}mb"
    if constraint and node_type.feature:
        name, _, value = node_type.feature.partition("=")
        chunk[name] = value or "True"
    queue = node_type.default_partition or next(iter(node_type.partitions), "")
    words = ":".join(f"{name}={value}" for name, value in chunk.items())
    options = {
        "select": f"{configuration.nodes}:{words}",
        "place": "scatter:excl",
        "queue": queue,
        FREQ: str(freq_khz // 1000) if freq_khz else "",
    }
    return {name: value for name, value in options.items() if value}


def limited(limits: str, nodes: int, options: Mapping[str, str]) -> dict[str, str]:
    """Return a job's options with resource limits.

    PBS refuses a host's resources beside ``select``: they go into each chunk, memory shared by the
    nodes. All others are the job's.
    """
    bounds = read_arguments(["-l", limits])
    shape = next((n for n in ("select", "nodes", "ncpus", "place") if n in bounds), "")
    if shape:
        raise ValueError(f"{shape} is made of nodes, ppn, nodePEs and peThreads; leave it out")
    chunk = options.get("select", "")
    for name in [n for n in bounds if n in CHUNK_RESOURCES]:
        value = bounds.pop(name)
        if name in ("mem", "vmem"):
            share_kb = math.ceil(parse_size_mb(value) * 1024 / nodes)
            value = value if nodes == 1 else f"{share_kb}kb"
        chunk += f":{name}={value}"
    return {**bounds, **options, **({"select": chunk} if chunk else {})}


def launched(command: str, ranks: int) -> str:
    """Return the line of a script that starts a command on all ranks of its job."""
    return f"mpiexec -n {ranks} {command}" if ranks > 1 else command


def _program(client: Mapping[str, object]) -> dict[str, object]:
    """Return the facts of the program the script runs, where the client has looked."""
    if not client.get("programs"):
        return {}
    return sent(client["programs"], main_command(str(client.get("script") or "")))


def read_client(text: str) -> dict[str, Any]:
    """Return what the client before qsub passed on: the telling lines of the script, its
    fingerprint, the user's choices file. Empty for nothing, or for what was tampered with."""
    if not text:
        return {}
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        unpacker = zlib.decompressobj()
        # Bounded, since a few bytes of a user's may unpack into gigabytes.
        data = json.loads(unpacker.decompress(packed, MAX_CLIENT))
    except (ValueError, binascii.Error, zlib.error, RecursionError):
        return {}
    complete = unpacker.eof and isinstance(data, dict) and data.get("v") == 1
    return data if complete else {}


def cap_obstacle(request: JobRequest, use: ScriptUse, settings: Mapping[str, str]) -> str:
    """Return "": the hook on the nodes caps them for whatever the job runs there."""
    return ""


def caps_on_nodes(request: JobRequest, settings: Mapping[str, str]) -> bool:
    """Return False: the hook on the nodes reads the cap that the job asks for, not its stamp."""
    return False


def axes_kept(request: JobRequest, use: ScriptUse, settings: Mapping[str, str]) -> tuple[str, str]:
    """Return "" twice: the hook on the nodes sets a job's GPUs for whatever it runs there."""
    return "", ""


def plans_steps(request: JobRequest) -> bool:
    """Return False: no hook of PBS sees what a script starts."""
    return False


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
    """Return (resources to write, variables to set) that turn the request into ``chosen``.

    Only what differs is written: ``ompthreads`` and the node type's resource into the chunk, whose
    other words stay letter for letter, and the cap. PBS makes OMP_NUM_THREADS of ompthreads
    itself; other variables of threads are set. A job that shares its nodes gets a smaller ``ncpus``
    instead. A job without select gets ompthreads as a resource of its own, and PBS makes its chunk
    as ever. What the server fills in counts as asked for. Raises ValueError for what cannot be
    written so, CannotWriteError where that is one axis.
    """
    as_written = asked(request.options, request.host_resources)
    job = asked(request.completed or request.options, request.host_resources)
    if (baseline.nodes, baseline.ranks_per_node) != (chosen.nodes, chosen.ranks_per_node):
        raise ValueError("its nodes and ranks are not the advisor's to change")
    chunk: dict[str, str] = {}
    environment: dict[str, str] = {}
    if chosen.threads_per_node != baseline.threads_per_node:
        _check_unbound(request, "threads")
        if not whole:
            _check_unbound(request, "cores")
            if chosen.threads_per_node > job.ncpus:
                raise ValueError("a job that shares its nodes is not made larger")
            chunk["ncpus"] = str(chosen.threads_per_node)
        elif chosen.threads_per_rank * job.mpiprocs > job.ncpus:
            text = f"its chunks have {job.ncpus} cores each"
            raise CannotWriteError("threads", text, f"ncpus={job.ncpus}")
        threads = str(chosen.threads_per_rank)
        if (whole and _OMP in variables) or (not whole and "ompthreads" in job.resources):
            chunk["ompthreads"] = threads
        environment = {name: threads for name in variables if name != _OMP}
    if chosen.node_type != baseline.node_type or pin_node_type:
        _check_unbound(request, "node_type")
        name, _, value = node_type.feature.partition("=")
        if name in job.resources:
            resource_text = f"{name}={job.resources[name]}"
            raise CannotWriteError("node_type", f"{resource_text} is yours", resource_text)
        chunk[name] = value or "True"
    rewrite: dict[str, str] = {}
    if cap_khz := cap_asked_for(request, chosen, node_type):
        _check_unbound(request, "frequency")
        if not whole:
            text = "its nodes may be shared, so no cap is written"
            raise CannotWriteError("frequency", text, "sharing of its nodes")
        rewrite[FREQ] = str(cap_khz // 1000)
    if chunk and as_written.form == "select":
        rewrite["select"] = edited(request.options["select"], chunk)
    else:  # threads alone: the rest is bound
        rewrite.update(chunk)
    return rewrite, environment


def _check_unbound(request: JobRequest, axis: str) -> None:
    """Raise CannotWriteError where something binds an axis."""
    binding = request.binds.get(axis) or request.binds.get("all")
    if axis != "frequency":
        binding = binding or request.binds.get("shape")
    if binding:
        raise CannotWriteError(axis, f"{axis} is kept: {binding} binds it", binding)


def _freq_khz(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{FREQ}={text} is not a frequency in MHz")
    return int(text) * 1000 or None


def _time(text: str) -> int | None:
    """Return ``[[hours:]minutes:]seconds`` in seconds."""
    if not text:
        return None
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise ValueError(f"walltime={text} is not a time limit")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return max(1, (hours * 60 + minutes) * 60 + seconds)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
