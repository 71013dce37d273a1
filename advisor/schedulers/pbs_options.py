"""PBS's submission options: read a request as the hook sends it, write a choice back.

The hook sends the job's resources (``#PBS`` lines merged in), its other attributes, and the
words of qsub; a client that goes before qsub adds what of the script tells its application
(:func:`read_client`). Standard library only: the daemon uses it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.core.asked import default_freq
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.program import sent
from advisor.core.request import JobRequest
from advisor.core.script import main_command
from advisor.core.script_use import THREAD_VARIABLES
from advisor.core.settings import parse_choices
from advisor.schedulers.pbs_qsub import (
    decode_arguments,
    environment_options,
    read_arguments,
    read_directives,
    script_of,
    split_words,
    written,
)
from advisor.schedulers.pbs_select import Asked, Place, asked

__all__ = [
    "DIRECTIVE", "SUBMIT", "environment_options", "parse_request", "read_arguments",
    "read_directives", "render", "written",
]  # fmt: skip

SUBMIT, DIRECTIVE = "qsub", "#PBS"
FREQ = "cpu_freq_mhz"
"""The resource of a frequency cap, which the execution hook applies."""
MAX_CLIENT = 65536
_TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.\d+)?")
_AXES = {
    "ncpus": ("threads",), "ompthreads": ("threads",), "mpiprocs": ("ranks",),
    "host": ("node_type",), "vnode": ("node_type",), FREQ: ("frequency",),
}  # fmt: skip


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
    explicit: Mapping[str, str] = options
    if client:
        script = client.get("script")
        explicit = {**read_directives(str(script or "")), **typed}
        choices = choices or parse_choices(str(client.get("choices") or ""))[0]
    path = path or script_of(rest, str(payload.get("cwd") or ""))
    if payload.get("executable"):
        arguments = decode_arguments(str(payload.get("argument_list") or ""))
        command, script, path = (str(payload["executable"]), *arguments), None, ""
    hosts = [str(name) for name in _sequence(payload.get("host_resources"))]
    job = asked(options, hosts)
    ranks = job.count * job.mpiprocs
    environment = {str(k): str(v) for k, v in _mapping(payload.get("env")).items()}
    kind = "batch"
    if "interactive" in options:
        kind = "allocate"
    elif payload.get("executable"):
        kind = "run"
    return JobRequest(
        scheduler="pbs",
        hook=str(payload.get("hook") or ""),
        user=user,
        uid=uid,
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
        program=_program(client),
        options=options,
        host_resources=tuple(hosts),
        environment=environment,
        choices=choices,
        explicit=_explicit(explicit, hosts),
        nodes=job.nodes,
        ntasks=ranks,
        ntasks_per_node=None if job.nodes is None else -(-ranks // job.nodes),
        cpus_per_task=job.threads_per_rank,
        constraint=":".join(f"{name}={value}" for name, value in job.selectors().items()),
        node_list=job.host,
        freq_khz=_freq_khz(options.get(FREQ, "")),
        time_limit_s=_time(options.get("walltime", "")),
        memory_per_node_mb=job.memory_mb * job.count / (job.nodes or job.count),
        exclusive=job.place.sharing in ("excl", "exclhost"),
        het=job.several,
        array="array" in options,
    )


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
        data = json.loads(unpacker.decompress(packed, MAX_CLIENT))
    except (ValueError, binascii.Error, zlib.error, RecursionError):
        return {}
    whole = unpacker.eof and isinstance(data, dict) and data.get("v") == 1
    return data if whole else {}


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

    Only what differs is written; "" takes a resource out. A job that fills its nodes keeps them
    for itself (``excl``). No variable is needed: PBS sets OMP_NUM_THREADS from the chunk. Raises
    ValueError where chunks that share nodes leave no way to write it.
    """
    job = asked(request.options, request.host_resources)
    moves = chosen.node_type != baseline.node_type or pin_node_type
    shape = (baseline.nodes, baseline.ranks_per_node, baseline.threads_per_node)
    reshaped = shape != (chosen.nodes, chosen.ranks_per_node, chosen.threads_per_node)
    rewrite: dict[str, str] = {}
    freq = request.freq_khz or default_freq(node_type)
    if node_type.freq_khz and chosen.freq_khz != freq:
        rewrite[FREQ] = str(chosen.freq_khz // 1000)
    if not (rewrite or moves or reshaped):
        return {}, {}
    fills = baseline.threads_per_node >= node_type.cores and not job.place.sharing
    if not (moves or reshaped or fills):
        return rewrite, {}
    resources = dict(job.resources)
    count = job.count
    place = job.place
    if reshaped:
        count, resources, place = _reshaped(job, baseline, chosen)
    if moves:
        name, _, value = node_type.feature.partition("=")
        resources[name] = value or "True"
    if fills:
        place = Place(place.arrangement, "excl", place.group)
    new = Asked(count, resources, place)
    if moves or reshaped or job.moved or not request.options.get("select"):
        rewrite["select"] = new.select()
    if str(place) != request.options.get("place", ""):
        rewrite["place"] = str(place) or "free"
    rewrite.update(dict.fromkeys(job.moved, ""))
    return rewrite, {}


def _reshaped(
    job: Asked, old: Configuration, new: Configuration
) -> tuple[int, dict[str, str], Place]:
    """Return count, resources and placement of the chunks for another shape."""
    per_node, odd = divmod(job.count, old.nodes)
    if odd or (per_node > 1 and (old.nodes > 1 or new.nodes != old.nodes)):
        raise ValueError("its chunks share nodes, so their cores are kept")
    ranks, odd_ranks = divmod(new.ranks_per_node, per_node)
    cores, odd_cores = divmod(new.threads_per_node, per_node)
    if odd_ranks or odd_cores:
        raise ValueError(
            f"its {per_node} chunks on a node cannot share {new.threads_per_node} cores"
        )
    resources = {**job.resources, "ncpus": str(cores)}
    if ranks > 1 or "mpiprocs" in resources:
        resources["mpiprocs"] = str(ranks)
    other_threads = new.threads_per_rank != old.threads_per_rank
    if "ompthreads" in resources or (ranks > 1 and other_threads):
        resources["ompthreads"] = str(new.threads_per_rank)
    place = job.place
    if place.arrangement in ("", "free", "pack") and (new.nodes > 1 or per_node > 1):
        place = Place("scatter" if per_node == 1 else "pack", place.sharing, place.group)
    return new.nodes * per_node, resources, place


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
    return (hours * 60 + minutes) * 60 + seconds


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
