"""Sampled addresses as routines, and which of them runs in which part of an iteration.

Routines are named by the symbols of their files, waiting apart from work. As readings are
(``fold.py``), samples are scaled to the iteration they fall into, deviating ones left out: each
counts for the processor time it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.core.option import Z90
from advisor.instruments.elf import RoutineNames, demangled
from advisor.phases.arrays import Floats, Ints
from advisor_lab.phases.fold import deviating
from advisor_lab.phases.sampled import CodePlaces

PARTS = 40
"""Places inside of an iteration."""
_MOST = 6
"""Routines shown by name; what is left are all others."""
_LEAST_ITERATIONS = 8
"""Fewer iterations, as for a run that is ended early, say nothing of a mean one."""
_ONE_CORE = 1.1
"""Cores in use up to which no thread can wait for another."""
SPOILT = 0.05
"""Share of the processor time in OpenMP's and MPI's own code above which threads wait actively."""
_RUNTIME_FILES = re.compile(
    r"(lib(gomp|omp5?|iomp5|mpi\w*|mpich\w*|open-pal|open-rte|pmi\w*|uc[pstm]|uct_\w+|psm2|fabric)"
    r"|(lib)?mca_\w+)([.-]|$)"
)
"""Libraries that wait or hand on messages, by their file's name; mca_* are Open MPI's."""
_RUNTIME_ROUTINES = re.compile(r"(gomp_|GOMP_|__kmp|kmp_|opal_|ompi_|mca_|MPID|MPII?R?_|ucp_|uct_)")
"""Their routines, where they are part of the program's own file."""
_REGION = re.compile(r"\._omp_fn\.(\d+)$")


@dataclass(frozen=True, slots=True)
class RoutineInside:
    """A routine inside an iteration: the cores it keeps busy at places ``x``, with a 90 % band.

    ``share`` is its part of the processor time of all iterations that count.
    """

    name: str
    share: float
    cores: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class FoldedRoutines:
    """The routines of a mean iteration, the busiest first, at places ``x`` from 0 to 1."""

    x: Floats
    routines: tuple[RoutineInside, ...]
    samples: int
    iterations: int

    def stretches(self) -> list[tuple[float, float, str]]:
        """Return from where to where which routine has most of the processor time."""
        busiest = np.argmax([r.cores for r in self.routines], axis=0)
        edges = [0, *(np.flatnonzero(np.diff(busiest)) + 1).tolist(), len(self.x)]
        return [
            (a / len(self.x), b / len(self.x), self.routines[busiest[a]].name)
            for a, b in pairwise(edges)
        ]


@dataclass(frozen=True, slots=True)
class RunningCode:
    """Samples of where all threads of a program were, each worth ``every_s`` of processor time.

    ``times`` (s, ascending) and ``routine``, the index of ``names``; ``waits`` are the names of
    code that does nothing but wait or hand on messages: OpenMP's and MPI's own.
    """

    times: Floats
    routine: Ints
    names: tuple[str, ...]
    waits: frozenset[str]
    every_s: float

    @property
    def waiting_share(self) -> float:
        """Share of the processor time in code that waits; 0 where nothing was sampled."""
        return float(self._waiting().mean()) if len(self.times) else 0.0

    @property
    def spoilt(self) -> bool:
        """Whether active waiting spoils counts of instructions and of processor time."""
        return self.waiting_share > SPOILT

    def at_work(self, each_s: float = 0.02) -> list[tuple[float, float]]:
        """Return (s, processor time in s so far) without what waits, every ``each_s``."""
        if not len(self.times):
            return []
        busy = self.times[~self._waiting()]
        times = np.arange(self.times[0], self.times[-1], each_s)
        total = np.searchsorted(busy, times) * self.every_s
        return list(zip(times.tolist(), total.tolist(), strict=True))

    def _waiting(self) -> NDArray[np.bool_]:
        return np.array([n in self.waits for n in self.names], bool)[self.routine]


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


def fold_routines(code: RunningCode, marks: Floats) -> FoldedRoutines | None:
    """Fold samples by the iterations' begins; None where too few of either overlap.

    ``marks`` (s) are the iterations' begins and the last one's end.
    """
    times, names, every_s = code.times, code.names, code.every_s
    lengths = np.diff(marks)
    if len(lengths) < _LEAST_ITERATIONS:
        return None
    good = ~deviating(lengths)
    number = np.searchsorted(marks, times, side="right") - 1
    inside = (number >= 0) & (number < len(lengths))
    inside[inside] &= good[number[inside]]
    number, which = number[inside], code.routine[inside]
    count = len(number)
    if good.sum() < _LEAST_ITERATIONS or count < PARTS:
        return None
    place = (times[inside] - marks[number]) / lengths[number]
    part = np.minimum((place * PARTS).astype(np.int64), PARTS - 1)
    sample_counts = np.zeros((len(names), PARTS))
    np.add.at(sample_counts, (which, part), 1.0)
    busiest = np.argsort(-sample_counts.sum(axis=1), kind="stable")
    shown = [int(i) for i in busiest[:_MOST] if sample_counts[i].any()]
    rest = sample_counts.sum(axis=0) - sample_counts[shown].sum(axis=0)
    rows = [(names[i], sample_counts[i]) for i in shown]
    if rest.any():
        rows.append(("all others", rest))
    seconds = float(lengths[good].sum()) / PARTS
    routines = []
    for name, counts in rows:
        half = Z90 * np.sqrt(np.maximum(counts, 1.0))
        low, high = np.maximum(counts - half, 0.0), counts + half
        cores, below, above = (every_s * c / seconds for c in (counts, low, high))
        routines.append(RoutineInside(name, float(counts.sum()) / count, cores, below, above))
    centres = (np.arange(PARTS) + 0.5) / PARTS
    return FoldedRoutines(centres, tuple(routines), count, int(good.sum()))


def active_waiting(code: RunningCode | None, cores: float, environment: Mapping[str, str]) -> str:
    """Say why counts of instructions and of processor time tell nothing; "" where they do.

    Threads that wait actively count as if they worked. Where nothing was sampled, more than one
    core in use (``cores``) counts only if the environment has threads sleep while they wait.
    """
    passive = (
        environment.get("OMP_WAIT_POLICY", "").lower() == "passive"
        or environment.get("GOMP_SPINCOUNT") == "0"
        or environment.get("KMP_BLOCKTIME") == "0"
    )
    if code is not None and len(code.times):
        if not code.spoilt:
            return ""
        where = ", ".join(sorted(n for n in code.waits if n in code.names))
        share = f"{code.waiting_share:.0%} of the processor time goes by {where}"
        openmp = not passive and any(r in where for r in ("libgomp", "libomp", "libiomp"))
        how = "; OMP_WAIT_POLICY=passive has OpenMP's sleep meanwhile" if openmp else ""
        return (
            f"threads wait actively: {share}; what instructions and processor time would tell of "
            f"iterations is not used{how}"
        )
    if cores <= _ONE_CORE or passive:
        return ""
    return (
        "whether threads wait actively was not seen; what instructions and processor time would "
        "tell of iterations is not used unless OMP_WAIT_POLICY=passive has them sleep meanwhile"
    )
