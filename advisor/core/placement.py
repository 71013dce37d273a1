"""Where threads and ranks are placed: compact, scatter or ring, and the binding of ranks.

Source: Endrei 2019, 3.3.2 and appendix A.1.2: compact fills one socket before the next, scatter
takes from all sockets in turn, ring from all core rings of all sockets in turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

COMPACT, SCATTER, RING = "C", "S", "R"
PLACEMENTS = (COMPACT, SCATTER, RING)
WORDS = {COMPACT: "compact", SCATTER: "scatter", RING: "ring"}
_OPENMP: Mapping[str, Mapping[str, str]] = {
    COMPACT: {"OMP_PLACES": "cores", "OMP_PROC_BIND": "close"},
    SCATTER: {"OMP_PLACES": "cores", "OMP_PROC_BIND": "spread"},
    RING: {"OMP_PLACES": "numa_domains", "OMP_PROC_BIND": "spread"},
}
"""OpenMP 5.1's own words. A core ring of a processor in Cluster-on-Die mode is a NUMA domain."""
BINDINGS = ("cpu", "depth", "numa_node", "none")
"""Words of aprun's ``--cc``; a list of cores is the other form."""
RUNTIMES = ("cray_mpi", "intel_mpi", "open_mpi")
_BY_RUNTIME: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "cray_mpi": {
        "PALS_CPU_BIND": {"cpu": "thread", "depth": "depth", "numa_node": "numa", "none": "none"}
    },
    "intel_mpi": {
        "I_MPI_PIN_DOMAIN": {"cpu": "core", "depth": "omp", "numa_node": "numa"},
        "I_MPI_PIN": {"none": "no"},
    },
    "open_mpi": {  # the first up to release 4, the second from 5 on
        "OMPI_MCA_hwloc_base_binding_policy": {
            "cpu": "hwthread",
            "depth": "core",
            "numa_node": "numa",
            "none": "none",
        },
        "PRTE_MCA_hwloc_default_binding_policy": {
            "cpu": "hwthread",
            "depth": "core",
            "numa_node": "numa",
            "none": "none",
        },
    },
}
_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*(?::\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)*")
_MOST_CORE = 4095
"""Highest core number that is accepted."""


def thread_variables(placement: str) -> dict[str, str]:
    """Return the variables that place the threads of each rank on the cores that it has."""
    return dict(_OPENMP[placement])


def in_order(
    cpus: Sequence[tuple[int, int]], placement: str, sockets: int = 0, rings: int = 2
) -> list[int]:
    """Return one CPU of each core in the order in which threads take them.

    ``cpus`` are pairs (CPU, socket as the machine says). With ``sockets`` the cores are cut into
    that many equal runs instead; ``rings`` are those of one socket.
    """
    ordered = sorted(cpus, key=lambda pair: (pair[1], pair[0]))
    names = sorted({socket for _, socket in cpus})
    groups = [[cpu for cpu, socket in ordered if socket == name] for name in names]
    if sockets and sockets != len(groups):
        groups = _cut([cpu for cpu, _ in ordered], sockets)
    if placement == COMPACT:
        return list(chain.from_iterable(groups))
    if placement == RING:
        parts = [_cut(group, max(1, rings)) for group in groups]
        groups = [
            ring for socket_rings in zip_longest(*parts, fillvalue=[]) for ring in socket_rings
        ]
    turns = zip_longest(*groups)
    return [cpu for turn in turns for cpu in turn if cpu is not None]


def _cut(cpus: list[int], parts: int) -> list[list[int]]:
    size = -(-len(cpus) // parts)
    return [cpus[i * size : (i + 1) * size] for i in range(parts)]


def check_binding(binding: str) -> str:
    """Return ``binding``: one of BINDINGS, or cores by rank.

    ``0,2,4`` is one core for each rank, ``0-3:4-7`` several. Raises ValueError for anything else.
    """
    if binding not in BINDINGS and not _LIST.fullmatch(binding):
        choices = ", ".join(BINDINGS)
        raise ValueError(f"{binding!r} is neither a list of cores nor one of {choices}")
    return binding


def binding_variables(binding: str, launcher: str, runtime: str) -> dict[str, str]:
    """Return the variables by which an MPI library binds ranks to cores.

    ``runtime`` is one of RUNTIMES, "" for not known: then those of all. Raises ValueError for a
    list of cores, which ``launcher`` cannot take.
    """
    if binding not in BINDINGS:
        raise ValueError(f"{launcher} takes no list of cores; known here: {', '.join(BINDINGS)}")
    chosen = [runtime] if runtime else RUNTIMES
    return {
        name: words[binding]
        for library in chosen
        for name, words in _BY_RUNTIME[library].items()
        if binding in words
    }


def cores_by_rank(binding: str) -> list[list[int]]:
    """Return the cores of each rank in a list of cores. Raises ValueError for numbers too large."""
    return [_numbers(part) for part in binding.split(":")]


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if max(int(first), int(last or first)) > _MOST_CORE:
            raise ValueError(f"{part!r} is not a core: the last is {_MOST_CORE}")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
