"""Sweeps on a real Slurm: what really ran, what it was metered at, failures and refusals."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from sweeping import BDW, POSED, configuration, finish, make_job, printed
from testbed import predict

from advisor.errors import SchedulerError
from advisor.schedulers.slurm import accounting as sacct
from advisor.schedulers.slurm.scheduler import Slurm


def test_each_run_gets_its_configuration_and_its_own_energy(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(
        tmp_path,
        'echo "advisor=$ADVISOR omp=$OMP_NUM_THREADS mkl=$MKL_NUM_THREADS arg=$1"\n'
        "env | grep -E '^(SLURM_(JOB_)?(N|CPUS|TASKS|MEM)|SRUN_)' | sort > given.$OMP_NUM_THREADS\n"
        "srun simapp --kernel stencil --scale 0.4\n"
        "srun -J mine simapp --kernel nbody --scale 0.1",
        configuration(28, ranks=2, nodes=2),
        configuration(14, 1_500_000, ranks=2, nodes=2),
        arguments=("$(touch pwned); 'x'\ny",),
        options={"ntasks-per-node": "2", "cpus-per-task": "14"},
        threads_from=("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    )
    handle = slurm.submit_sweep(job)
    results = finish(slurm, job, handle)
    assert [(r.seq, r.ok, r.attempt) for r in results] == [(0, True, 1), (1, True, 1)]
    for result, run in zip(results, job.runs, strict=True):
        c = run.configuration
        for step in printed(job, result):
            assert step["nodes"] == str(c.nodes)
            assert step["ranks_per_node"] == str(c.ranks_per_node)
            assert step["threads_per_node"] == str(c.threads_per_node)
            assert step["freq_khz"] == str(c.freq_khz)
        assert len(printed(job, result)) == 2
        law = [
            predict(kernel, POSED, c.nodes, c.threads_per_node, c.freq_khz, scale)
            for kernel, scale in (("stencil", 0.4), ("nbody", 0.1))
        ]
        assert result.time_s is not None
        assert result.time_s >= sum(t for t, _ in law)
        assert (result.energy_quality, result.meter, result.job_id) == ("measured", "slurm", handle)
        assert result.account == "proj"
    # the energy is that of the run's own steps, found by number although one has its own name
    record = slurm.job(handle)
    assert record is not None
    steps = {s.step_id: s for s in record.steps if s.numbered}
    assert [s.name for s in steps.values()].count("mine") == 2
    assert results[0].energy_j == sacct.total_energy_j([steps["0"], steps["1"]])
    assert results[1].energy_j == sacct.total_energy_j([steps["2"], steps["3"]])
    assert [steps[i].freq_requested_khz for i in "0123"] == [None, None, 1_500_000, 1_500_000]
    assert {s.cpus for s in steps.values()} == {56}  # the allocation's, whatever the threads are
    text = (job.folder / "output" / "run-1-1.log").read_text()
    assert "advisor=off omp=7 mkl=7 arg=$(touch pwned); 'x'\ny" in text
    assert not (tmp_path / "pwned").exists()
    # the job as written sets nothing, and what Slurm tells a run of the allocation is the same
    assert "omp= mkl= arg" in (job.folder / "output" / "run-0-1.log").read_text()
    own = (tmp_path / "given.").read_text()
    assert "SLURM_NTASKS_PER_NODE=2" in own and (tmp_path / "given.7").read_text() == own


def test_smaller_requests_are_stood_in_for_on_whole_nodes(slurm: Slurm, tmp_path: Path) -> None:
    """A job that shares its node: every step gets the CPUs that the smaller job would have."""
    job = make_job(
        tmp_path,
        'echo "$SLURM_NTASKS $SLURM_CPUS_PER_TASK $OMP_NUM_THREADS $SLURM_CPUS_ON_NODE"\n'
        "srun simapp --kernel stencil --scale 0.4",
        configuration(12),
        configuration(4, 1_500_000),
        options={"cpus-per-task": "12"},
        method="request",
    )
    handle = slurm.submit_sweep(job)
    results = finish(slurm, job, handle)
    assert [r.ok for r in results] == [True, True]
    assert [printed(job, r)[0]["threads_per_node"] for r in results] == ["12", "4"]
    record = slurm.job(handle)
    assert record is not None and record.cpus == 28
    assert [s.cpus for s in record.steps if s.numbered] == [12, 4]
    assert {r.energy_quality for r in results} == {"measured"}
    text = (job.folder / "output" / "run-1-1.log").read_text()
    assert text.splitlines()[0] == "1 4 4 4"


def test_failed_attempts_are_made_again_and_a_run_that_never_works_is_left_out(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = make_job(
        tmp_path,
        "[ $OMP_NUM_THREADS = 20 ] && exit 3\n"
        "[ $OMP_NUM_THREADS = 24 ] && [ ! -e once ] && touch once && srun false\n"
        "[ $OMP_NUM_THREADS = 16 ] && exec sleep 60\n"
        "srun simapp --kernel nbody --scale 0.2",
        *(configuration(t) for t in (28, 20, 24, 16)),
        attempts=2,
        run_limit_s=4.0,
    )
    results = finish(slurm, job, slurm.submit_sweep(job))
    assert [(r.seq, r.attempt, r.ok) for r in results] == [
        (0, 1, True),
        (1, 1, False),
        (1, 2, False),
        (2, 1, False),
        (2, 2, True),
        (3, 1, False),
    ]
    assert "exit code 3" in results[1].detail
    assert "an srun ended with exit code 1" in results[3].detail
    assert "stopped after its limit of 4 s" in results[5].detail and results[5].final
    assert job.open_runs(results) == []


def test_an_srun_that_cannot_be_seen_is_said(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(
        tmp_path,
        '"$(type -P -a srun | tail -1)" simapp --kernel nbody --scale 0.1',
        configuration(),
        configuration(14),
        attempts=1,
    )
    (only,) = finish(slurm, job, slurm.submit_sweep(job))  # without a baseline nothing else
    assert not only.ok and "no srun of the script was seen" in only.detail


def test_a_script_without_srun_is_put_into_one_step(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(
        tmp_path,
        "PATH=/usr/bin:$PATH\nsimapp --kernel stencil --scale 0.5",
        configuration(28),
        configuration(12),
        launcher="",
    )
    assert "no srun" in slurm.frequency_kept(BDW, "")
    assert slurm.frequency_kept(BDW, "srun") == ""
    results = finish(slurm, job, slurm.submit_sweep(job))
    assert [r.ok for r in results] == [True, True]
    assert {r.energy_quality for r in results} == {"measured"}
    assert [printed(job, r)[0]["threads_per_node"] for r in results] == ["28", "12"]


def test_a_script_without_srun_runs_once_however_many_tasks_the_job_has(
    slurm: Slurm, tmp_path: Path
) -> None:
    """As in a batch job: who asks for four tasks for a program's four threads starts one."""
    job = make_job(
        tmp_path,
        'read -r line\necho "ran $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_CPUS_ON_NODE'
        ' omp=$OMP_NUM_THREADS $line"\nsleep 1',
        configuration(8, ranks=4),
        configuration(4, ranks=4),
        launcher="",
        method="request",
        options={"ntasks": "4", "cpus-per-task": "2", "input": "in put"},
    )
    (tmp_path / "in put").write_text("a line\n")
    results = finish(slurm, job, slurm.submit_sweep(job))
    assert [r.ok for r in results] == [True, True]
    assert {r.energy_quality for r in results} == {"measured"}
    texts = [(job.folder / "output" / f"run-{r.seq}-1.log").read_text() for r in results]
    ran = [[line for line in text.splitlines() if line.startswith("ran")] for text in texts]
    # the job as written sets no variables of threads; each run reads its standard input
    assert ran == [["ran 4 2 8 omp= a line"], ["ran 4 1 4 omp=1 a line"]]
    record = slurm.job(results[0].job_id)
    assert record is not None and [s.cpus for s in record.steps if s.numbered] == [8, 4]


def test_another_launcher_is_timed_whole_and_its_energy_estimated(
    slurm: Slurm, tmp_path: Path
) -> None:
    job = make_job(tmp_path, "sleep 1", configuration(), configuration(14), launcher="mpirun")
    job = replace(job, node_type=replace(BDW, base_power_w=100.0, core_power_w=2.0))
    assert "mpirun is not metered" in slurm.energy_source(job)
    results = finish(slurm, job, slurm.submit_sweep(job))
    assert [r.energy_quality for r in results] == ["estimated", "estimated"]
    for result, threads in zip(results, (28, 14), strict=True):
        assert result.time_s is not None and result.energy_j is not None
        assert result.energy_j == pytest.approx((100 + 2 * threads) * result.time_s)


def test_steps_that_overlap_have_no_energy_of_their_own(slurm: Slurm, tmp_path: Path) -> None:
    one = "srun -n1 -c4 --overlap simapp --kernel nbody --scale 0.1"
    job = make_job(tmp_path, f"{one} &\n{one} &\nwait", configuration(8))
    (result,) = finish(slurm, job, slurm.submit_sweep(job))
    assert result.ok and result.energy_j is None
    assert "overlap" in result.detail
    assert result.time_s is not None


def test_a_sweep_that_was_submitted_is_not_submitted_twice(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(tmp_path, "srun sleep 2", configuration())
    handle = slurm.submit_sweep(job)
    assert Slurm().submit_sweep(job) == handle
    slurm.cancel(job, handle)
    status = slurm.poll(job, handle)
    deadline = time.monotonic() + 30
    while status.state != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.5)
        status = slurm.poll(job, handle)
    assert "CANCELLED" in status.detail
    slurm.cancel(job, handle)  # of a job that has ended: no error
    slurm.cancel(job, "99999999")


def test_what_slurm_refuses_is_said_in_one_line(slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(tmp_path, "srun true", configuration(), options={"licenses": "no;such"})
    with pytest.raises(SchedulerError, match=r"sbatch refused the sweep: .*license") as caught:
        slurm.submit_sweep(job)
    assert "\n" not in str(caught.value)
