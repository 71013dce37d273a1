"""Sampled addresses as routines: named by the symbols of their files, waiting apart from work."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from advisor.instruments.elf import RoutineNames, demangled
from advisor_lab.phases.routines import RunningCode
from advisor_lab.phases.sampled import CodePlaces

_RUNTIME_FILES = re.compile(
    r"(lib(gomp|omp5?|iomp5|mpi\w*|mpich\w*|open-pal|open-rte|pmi\w*|uc[pstm]|uct_\w+|psm2|fabric)"
    r"|(lib)?mca_\w+)([.-]|$)"
)
"""Libraries that wait or hand on messages, by their file's name; mca_* are Open MPI's."""

_RUNTIME_ROUTINES = re.compile(r"(gomp_|GOMP_|__kmp|kmp_|opal_|ompi_|mca_|MPID|MPII?R?_|ucp_|uct_)")
"""Their routines, where they are part of the program's own file."""

_REGION = re.compile(r"\._omp_fn\.(\d+)$")


def running_code(places: CodePlaces) -> RunningCode:
    """Return samples by routine; what OpenMP's and MPI's own code does is one routine a file."""
    files = {file: RoutineNames(Path(file)) for file, _ in places.places if file.startswith("/")}
    names, waits = [], set()
    for file, offset in places.places:
        routine = files[file].at(offset) if file in files else ""
        short = Path(file).name if file else "(no file)"
        if _RUNTIME_FILES.match(short) or _RUNTIME_ROUTINES.match(routine):
            name = f"waiting in {short}"
            waits.add(name)
        else:
            name = routine or f"({short.strip('[]')})" if file else short
        names.append(name)
    distinct = list(dict.fromkeys(names))
    number = {n: i for i, n in enumerate(distinct)}
    routine_of = np.array([number[n] for n in names], np.int64)
    routine_index = routine_of[places.at] if len(places.at) else places.at
    return RunningCode(
        places.times, routine_index, tuple(_readable(distinct)), frozenset(waits), places.every_s
    )


def _readable(names: list[str]) -> list[str]:
    """Return routines as people write them; a parallel region keeps its number in its function.

    Names that would become the same stay as they are.
    """
    regions = [_REGION.search(n) for n in names]
    pretty = [
        f"{name}, region {region[1]}" if region else name
        for name, region in zip(demangled(names), regions, strict=True)
    ]
    return [p if pretty.count(p) == 1 else n for n, p in zip(names, pretty, strict=True)]
