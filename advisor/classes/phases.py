"""What a job does before it computes: GPU, input and output, MPI, waiting; as EAR's sources ask."""

from __future__ import annotations

from advisor.classes.base import BUSY, GPU, IO, MPI, apart

IO_MBS, MPI_CALLS_S = 10.0, 20_000.0
BUSY_CPI, BUSY_GBS, BUSY_GFLOPS = 0.4, 3.0, 0.1
"""Waiting cores: below all of these, GB/s and GFLOP/s of one CPU."""


def phase_of(
    cpi: float | None,
    gflops: float | None,
    gbs: float | None,
    io_mbs: float | None,
    mpi_calls_s: float | None,
    gpu_util: float | None,
    cpus: int | None,
) -> str:
    """Return gpu, io-bound, busy-waiting or mpi-bound, "" for none of them.

    What was not measured is not asked, and cycles per instruction of 0 were not counted. A GPU that
    works beside waiting cores is busy-waiting.
    """
    waits = (
        cpi is not None
        and gbs is not None
        and gflops is not None
        and cpus is not None
        and 0 < cpi < BUSY_CPI
        and gbs / cpus < BUSY_GBS
        and gflops / cpus < BUSY_GFLOPS
    )
    if gpu_util and not waits:
        return GPU
    much_mpi = mpi_calls_s is not None and mpi_calls_s > MPI_CALLS_S
    if io_mbs is not None and io_mbs > IO_MBS and not much_mpi:
        return IO
    if waits:  # also within MPI, whose libraries wait actively
        return BUSY
    return MPI if much_mpi else ""


def steady(
    cpi: float | None,
    gflops: float | None,
    gbs: float | None,
    io_mbs: float | None,
    mpi_calls_s: float | None,
    cpus: int | None,
    share: float,
) -> bool:
    """Whether no change of the measures by less than ``share`` of each changes the phase."""
    return (
        apart(io_mbs, IO_MBS, share)
        and apart(mpi_calls_s, MPI_CALLS_S, share)
        and (
            cpus is None
            or (
                apart(cpi, BUSY_CPI, share)
                and apart(gbs, BUSY_GBS * cpus, share)
                and apart(gflops, BUSY_GFLOPS * cpus, share)
            )
        )
    )
