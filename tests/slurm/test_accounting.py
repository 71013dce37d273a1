"""Jobs in the accounting of a real Slurm: whole, and with whatever their names hold."""

from __future__ import annotations

import time

from testbed import Testbed

from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.scheduler import Slurm


def test_a_brief_job_is_finished_once_its_record_is_whole(slurm: Slurm, testbed: Testbed) -> None:
    """Slurm's database takes in the end of such a job before its start, seconds apart."""
    for _ in range(3):
        submitted = testbed.sbatch("-N1", "-pbroadwell", "-t1", "-Jbrief", "--wrap=srun true")
        deadline = time.monotonic() + 60
        ended: list[JobRecord] = []
        while not ended:
            assert time.monotonic() < deadline
            everybody = slurm.finished_jobs("2020-01-01T00:00:00+00:00")
            ended = [r for r in everybody if r.job_id == str(submitted.job_id)]
        (record,) = ended
        assert (record.name, record.partition) == ("brief", "broadwell")
        assert record.submit_line.startswith("sbatch -N1 -pbroadwell")


def test_accounting_of_all_jobs(slurm: Slurm, testbed: Testbed) -> None:
    name = "odd|name\nwith\x1fmarks"
    submitted = testbed.sbatch(
        f"--job-name={name}", "--comment=a|b", "-N1", "--exclusive", "--wait",
        "--wrap=srun --cpu-freq=1200000-1600000 simapp --kernel stencil",
        env={"ADVISOR_DECISION": "d1"},
    )  # fmt: skip
    record = slurm.job(str(submitted.job_id))
    # the job's environment reaches the accounting last
    deadline = time.monotonic() + 60
    while record is None or not (record.finished and record.stamp):
        assert time.monotonic() < deadline, record
        time.sleep(0.5)
        record = slurm.job(str(submitted.job_id))
    assert (record.name, record.comment, record.user) == (name, "a|b", "root")
    assert record.freq_requested_khz == 1_600_000
    assert record.energy_j is not None and record.energy_j > 0
    assert record.stamp["ADVISOR_DECISION"] == "d1"
    found = slurm.finished_jobs("2020-01-01T00:00:00+00:00")
    assert str(submitted.job_id) in {r.job_id for r in found}
    assert slurm.job("99999999") is None
    slurm.finished_jobs("2100-01-01T00:00:00")  # another host's clock may be ahead
