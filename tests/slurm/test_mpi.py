"""Real MPI programs in sweeps on a real Slurm: watched, ended early on every rank, extrapolated."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from sweeping import POSED, TOP, configuration, finish, make_job
from test_early_stop import PROGRAM, check_ended, watched_sweep
from testbed import Testbed

from advisor.schedulers.slurm.scheduler import Slurm

STARTS = [
    (mpi, start)
    for mpi, start in (
        ("mpich", "srun --mpi=pmi2"),
        ("mpich", "mpirun.mpich -n 2"),
        ("openmpi", "srun --mpi=pmix"),
        ("openmpi", "mpirun.openmpi -n 2"),
    )
    if shutil.which(f"mpicc.{mpi}")
]
pytestmark = pytest.mark.skipif(
    not STARTS, reason="needs MPICH or Open MPI with its compiler wrapper (mpicc.mpich)"
)


@pytest.mark.parametrize(("mpi", "start"), STARTS)
def test_a_run_of_several_ranks_is_ended_on_all_of_them(
    slurm: Slurm,
    testbed: Testbed,
    tmp_path: Path,
    mpi: str,
    start: str,
) -> None:
    source = tmp_path / "steps.c"
    source.write_text(PROGRAM)
    flags = ["-DMPI", "-O1", "-fopenmp", "-rdynamic"]
    subprocess.run([f"mpicc.{mpi}", *flags, source, "-o", tmp_path / "steps"], check=True)
    loads = f"{testbed.directory}/nodes/$SLURMD_NODENAME/loads"
    by_srun = start.startswith("srun")  # else the job's own cap stays, and nothing is metered
    lowest = POSED.frequencies_khz[0]
    job, _, whole, ended = watched_sweep(
        slurm,
        tmp_path,
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
        f"{start} {tmp_path}/steps 50 0.1 {TOP} {loads} {tmp_path}/notes",
        second=configuration(14, lowest if by_srun else TOP, ranks=2),
        launcher="srun" if by_srun else "mpirun",
        options={"exclusive": "", "nodes": "1", "ntasks": "2"},
    )
    check_ended(job, whole, ended)
    assert (whole.energy_quality == "measured") == by_srun
    assert ended.extrapolated is not None and "by rank 0 of 2 on this node" in ended.detail
    assert (tmp_path / "notes").read_text() == "asked\n" * 2  # each rank, of the second run only


@pytest.mark.parametrize("mpi", sorted({mpi for mpi, _ in STARTS}))
def test_an_mpirun_that_nobody_sees_starts_its_ranks_within_the_one_step(
    slurm: Slurm,
    tmp_path: Path,
    mpi: str,
) -> None:
    """It starts its helpers by srun, which must not wait for the step that it is in."""
    (tmp_path / "hidden").write_text(f"mpirun.{mpi} -n 2 sleep 0.1 && echo through\n")
    export = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
    job = make_job(
        tmp_path,
        f"{export}bash {tmp_path}/hidden",
        configuration(28, ranks=2),
        launcher="",
        options={"exclusive": "", "nodes": "1", "ntasks": "2"},
    )
    (result,) = finish(slurm, job, slurm.submit_sweep(job))
    assert result.ok, result
    assert "through" in job.output(0, 1).read_text()
