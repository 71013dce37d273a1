"""What one run of an application did to its node: counters, power, utilisation.

Rates are of one node. What was not measured is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.core.codec import Record
from advisor.core.configuration import Configuration
from advisor.core.observation import Scope

MEASURES = (
    "cpi",
    "tpi",
    "gflops",
    "gbs",
    "io_mbs",
    "mpi_percent",
    "mpi_calls_s",
    "gpu_util",
    "cpu_util",
    "power_w",
    "memory_mb",
    "time_s",
)
"""The fields that are numbers measured in a run."""

LINE_B = 64
"""Bytes of a cache line, which one memory transaction moves (x86, most Arm)."""


@dataclass(frozen=True, slots=True)
class Signature(Record):
    """One run's signature.

    ``cpi`` cycles per instruction; ``tpi`` memory transactions per instruction, on the scale of
    its source's ``release`` and never to be mixed with another's; ``gflops`` GFLOP/s, ``gbs`` GB/s
    and ``io_mbs`` MB/s of one node; ``mpi_percent`` of the time in MPI, ``mpi_calls_s`` calls of
    one process per second; ``gpu_util`` and ``cpu_util`` in percent, the latter of ``cpus``;
    ``power_w`` mean power of one node; ``memory_mb`` the most that was resident at once, of a
    process or a node as the source counts it.
    ``configuration`` says where it ran; it is only None where it does not matter, and never in the
    store. ``job_id`` is the job of ``cluster``, or JOB.STEP; a later signature of the same one
    takes its place.
    """

    cpi: float | None = None
    tpi: float | None = None
    gflops: float | None = None
    gbs: float | None = None
    io_mbs: float | None = None
    mpi_percent: float | None = None
    mpi_calls_s: float | None = None
    gpu_util: float | None = None
    cpu_util: float | None = None
    power_w: float | None = None
    memory_mb: float | None = None
    time_s: float | None = None
    cpus: int | None = None
    configuration: Configuration | None = None
    source: str = ""
    release: str = ""
    contributor: str = ""
    account: str = ""
    scope: Scope = "own"
    job_id: str = ""
    cluster: str = ""

    def measures(self) -> dict[str, float]:
        """Return the measures there are, by name."""
        values = {name: getattr(self, name) for name in MEASURES}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def missing(self) -> tuple[str, ...]:
        """The measures there are not."""
        return tuple(name for name in MEASURES if getattr(self, name) is None)
