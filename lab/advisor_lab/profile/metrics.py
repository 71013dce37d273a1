"""The metrics of a thread's profile (table 2), and where each stands in the profiler's output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

MetricShape = Literal["scalar", "mix", "curve", "messages"]
"""Appendix B.2's types: a number, a vectorised mix, a memory function, a communication vector."""
InstructionCells = dict[tuple[int, int], float]
"""A vectorised mix: values by vector length and data length (bits; 0 where a type has none)."""
ReuseCurve = tuple[tuple[float, float], ...]
"""A memory function: (reuse distance, share of references at most so far), by distance."""
Messages = tuple[tuple[int, float, float], ...]
"""A communication vector: (relative source, bytes, messages) received."""
MetricValue = float | InstructionCells | ReuseCurve | Messages


class MetricKind(NamedTuple):
    """One line of table 2."""

    shape: MetricShape
    required: bool
    field: str
    """The field of table 1 it is read from."""
    what: str


LENGTHS: dict[int, tuple[str, ...]] = {
    0: ("int_misc", "struct_type", "array_type", "pointer_type"),
    4: ("int_4bits",),
    8: ("int_8bits",),
    16: ("int_16bits", "float_16bits"),
    32: ("int_32bits", "float_32bits"),
    64: ("int_64bits", "float_64bits", "float_64bits_mmx"),
    128: ("float_80bits", "float_128bits", "float_128bits_powerpc"),
}
"""Data lengths in bits and the profiler's types of each (appendix B.2)."""
VECTORS = (1, 2, 4, 8, 16)
"""Elements of a vector instruction; 1 is a scalar."""

GROUPS: dict[str, tuple[str, ...]] = {
    "F0mem": ("load", "store"),
    "F0load": ("load",),
    "F0store": ("store",),
    "F0addr": ("address_arith",),
    "F0int": ("int_arith", "int_cmp", "bitwise", "conversion"),
    "F0intOnly": ("int_arith",),
    "F0intmul": ("int_arith_mul",),
    "F0intdiv": ("int_arith_udiv", "int_arith_sdiv", "int_arith_urem", "int_arith_srem"),
    "F0fp": ("fp_arith", "fp_cmp"),
    "F0fpmul": ("fp_arith_mul",),
    "F0fpdiv": ("fp_arith_div", "fp_arith_rem"),
    "F0control": ("control",),
    "F0vector": ("llvm_vector",),
    "F0other": ("atomic_memory", "phi", "sync", "aggregate_nonvector", "misc"),
}
"""Fractions of instructions, each the sum of some of the profiler's groups over all instructions.

A remainder is found by a division, so both count as one.
"""
_MIXES = {
    "F0mem": "memory instructions",
    "F0load": "loads",
    "F0store": "stores",
    "F0addr": "address computations",
    "F0int": "all instructions of the integer unit",
    "F0intOnly": "integer arithmetic",
    "F0intmul": "integer multiplications",
    "F0intdiv": "integer divisions",
    "F0fp": "floating point instructions",
    "F0fpmul": "floating point multiplications",
    "F0fpdiv": "floating point divisions",
    "F0control": "control flow",
    "F0vector": "vector management",
    "F0other": "all others",
}
ILP = {"ILP0": "", "ILP0mem": "_mem", "ILP0int": "_int", "ILP0control": "_ctrl", "ILP0fp": "_fp"}
"""Instruction-level parallelism and the ending of its field."""
MPI_CALLS = {
    "MPIisend": "MPI_Isend",
    "MPIirecv": "MPI_Irecv",
    "MPIsend": "MPI_Send",
    "MPIrecv": "MPI_Recv",
    "MPIbcast": "MPI_Bcast",
    "MPIbarrier": "MPI_Barrier",
    "MPIreduce": "MPI_Reduce",
}
MPI_DATA = {
    "MPIsentBytes": "sent_bytes",
    "MPIrecvBytes": "received_bytes",
    "MPIsentMessages": "sent_messages",
    "MPIrecvMessages": "received_messages",
}
OPENMP = {
    "OpenMPsynchronization": "openMP_synchronization",
    "OpenMPatomic": "openMP_atomic",
    "OpenMPstartupShutdown": "openMP_startup_shutdown",
    "OpenMPparallel": "openMP_parallel",
    "OpenMPthreadInfo": "openMP_thread_info",
    "OpenMPworkSharing": "openMP_work_sharing",
    "OpenMPthreadPrivateDataSupport": "openMP_thread_private_data_support",
    "OpenMPtaskingSupport": "openMP_tasking_support",
    "OpenMPothers": "openMP_others",
}
"""Totals of the kinds of calls; all others of their field are parts of these."""
REUSE = {"D0dreuse": 64, "D0dreuse128": 128}
"""Data reuse by the size of a cache line in bytes."""


def _table() -> dict[str, MetricKind]:
    kinds = {
        "NThreads": MetricKind("scalar", True, "", "threads of a class"),
        "LSys": MetricKind("scalar", True, "instructionMix", "instructions executed"),
    }
    for name, what in _MIXES.items():
        required = name != "F0intOnly"
        kinds[name] = MetricKind("mix", required, "instructionMix", f"fraction of {what}")
    data, inst = "dataReuseDistribution", "instReuseDistribution"
    kinds["D0dreuse"] = MetricKind("curve", True, data, "data reuse distance, lines of 64 bytes")
    kinds["D0dreuse128"] = MetricKind("curve", False, data, "the same of lines of 128 bytes")
    kinds["D0ireuse"] = MetricKind("curve", True, inst, "instruction reuse distance")
    kinds["F0bestMispredict"] = MetricKind("curve", True, "", "best-case misprediction")
    kinds["H0branch"] = MetricKind("scalar", True, "", "entropy of the control flow")
    for name in ILP:
        kinds[name] = MetricKind("scalar", True, "ilp", "instruction-level parallelism")
    for name, what in (("F0regreads", "read"), ("F0regwrites", "written")):
        text = f"registers {what} by an instruction"
        kinds[name] = MetricKind("scalar", True, "registerAccesses", text)
    for name in ("MPIinstructions", *MPI_CALLS):
        kinds[name] = MetricKind("scalar", False, "mpiInstructionMix", "calls of MPI")
    for name in MPI_DATA:
        kinds[name] = MetricKind("scalar", True, "mpiDataExchanged", "peer-to-peer data of MPI")
    vector = "mpiCommunicationVector"
    kinds["MPIcommVector"] = MetricKind("messages", False, vector, "sources of messages")
    for name in ("OpenMPtotal", *OPENMP):
        kinds[name] = MetricKind("scalar", False, "openMPinstructionMix", "calls of OpenMP")
    text = "bytes that the thread touches"
    kinds["footprint_bytes"] = MetricKind("scalar", False, "memoryFootprint", text)
    return kinds


KNOWN = _table()
"""Every metric the profiler's output has, table 2's and the footprint, in table 2's order."""
REQUIRED = tuple(name for name, kind in KNOWN.items() if kind.required)


def shape_of(value: MetricValue) -> MetricShape:
    """Return the type of a metric's value."""
    if isinstance(value, dict):
        return "mix"
    if isinstance(value, tuple):
        return "messages" if value and len(value[0]) == 3 else "curve"
    return "scalar"


def total(value: MetricValue) -> float:
    """Return a value as one number: a mix as its sum, a curve as its mean share."""
    if isinstance(value, dict):
        return sum(value.values())
    if isinstance(value, tuple):
        return sum(float(row[1]) for row in value) / len(value) if value else 0.0
    return value


def mean_cells(cells: Iterable[InstructionCells], weights: Iterable[float]) -> InstructionCells:
    """Return the weighted mean of mixes."""
    sums: InstructionCells = {}
    total_weight = 0.0
    for mix, weight in zip(cells, weights, strict=True):
        total_weight += weight
        for key, value in mix.items():
            sums[key] = sums.get(key, 0.0) + weight * value
    return {key: value / total_weight for key, value in sorted(sums.items())}


def share_at(curve: ReuseCurve, distance: float) -> float:
    """Return the share of references reused within a distance; 0 below the curve's first."""
    share = 0.0
    for reuse_distance, value in curve:
        if reuse_distance > distance:
            break
        share = value
    return share


def mean_curve(curves: list[ReuseCurve], weights: list[float]) -> ReuseCurve:
    """Return the weighted mean of memory functions, at every distance that any has."""
    weighted_curves = [(c, w) for c, w in zip(curves, weights, strict=True) if c]
    if not weighted_curves:
        return ()
    total_weight = sum(w for _, w in weighted_curves)
    distances = sorted({d for c, _ in weighted_curves for d, _ in c})
    return tuple(
        (d, sum(w * share_at(c, d) for c, w in weighted_curves) / total_weight) for d in distances
    )


def instruction_cells(mix: Mapping[str, Any], groups: Iterable[str]) -> InstructionCells:
    """Return the counts of some groups of the field ``instructionMix`` by lengths.

    What a group counts beyond its lists has no data length that the profiler knows: it goes to
    scalar instructions of 0 bits.
    """
    cells: InstructionCells = {(v, d): 0.0 for v in VECTORS for d in LENGTHS}
    for group in groups:
        name = f"{group}_instructions"
        group_total = mix.get(name)
        if isinstance(group_total, list):
            _add(cells, group_total)
            continue
        parts = [v for k, v in mix.items() if k.startswith(f"{group}_") and k != name]
        counted = 0.0
        for part in parts:
            if isinstance(part, list):
                counted += _add(cells, part)
            elif group != "atomic_memory":  # its parts are numbers, and so is their sum
                cells[1, 0] += part
                counted += part
        if group_total is not None:
            cells[1, 0] += group_total - counted
    return cells


def _add(cells: InstructionCells, rows: list[dict[str, Any]]) -> float:
    """Add the counts of one kind of instructions; return how many they are."""
    total_count = 0.0
    for row in rows:
        counted = 0.0
        for line in row.get("mix", []):
            vector = int(line.get("vector_size", 1))
            for length, names in LENGTHS.items():
                count = float(sum(line.get(name, 0) for name in names))
                counted += count
                if count:
                    cells[vector, length] = cells.get((vector, length), 0.0) + count
        stated = float(row.get("total_instructions", counted))
        cells[1, 0] += stated - counted
        total_count += stated
    return total_count
