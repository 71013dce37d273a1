"""Jobs in the accounting of a real Slurm: whole, and with whatever their names hold."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from testbed import Testbed

from advisor.loop.clock import moment
from advisor.schedulers.base import JobRecord
from advisor.schedulers.slurm.control import queued_job
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
        f"--job-name={name}",
        "--comment=a|b",
        "-N1",
        "--exclusive",
        "--wait",
        "--wrap=srun --cpu-freq=1200000-1600000 simapp --kernel stencil",
        env={"ADVISOR_DECISION": "d1"},
    )
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


@pytest.mark.parametrize("form", ["%Y", "relative", "%c", "standard"])
def test_the_user_s_own_formats_change_no_record(
    slurm: Slurm, testbed: Testbed, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A submission time that cannot be read would leave a job out of the report."""
    begin = time.time()
    submitted = testbed.sbatch("-N1", "-pbroadwell", "-t1", "-Jtimed", "--wrap=true")
    waits = testbed.sbatch("-H", "-N1", "-pbroadwell", "-t1", "-Jheld", "--wrap=true")
    foreign = {
        "SLURM_TIME_FORMAT": form,
        "SQUEUE_FORMAT": "%j",
        "SQUEUE_STATES": "R",
        "SACCT_FORMAT": "JobName",
        "SLURM_BITSTR_LEN": "1",
        "TZ": "America/New_York",
    }
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    time.tzset()
    try:
        deadline = time.monotonic() + 60
        ended: list[JobRecord] = []
        while not ended:
            assert time.monotonic() < deadline
            since = datetime.fromtimestamp(begin - 60, UTC).isoformat()
            ended = [r for r in slurm.finished_jobs(since) if r.job_id == str(submitted.job_id)]
        queued = {r.job_id: r for r in slurm.unfinished_jobs()}[str(waits.job_id)]
        held = slurm.job(str(waits.job_id))
        assert held is not None
        for text in (
            ended[0].submitted_at,
            ended[0].ended_at,
            queued.submitted_at,
            held.submitted_at,
        ):
            at = moment(text)
            assert at is not None, text
            assert begin - 1 <= at.timestamp() <= time.time() + 1
        assert queued_job(str(waits.job_id)).submitted_at == queued.submitted_at  # type: ignore[union-attr]
    finally:
        testbed.run(["scancel", str(waits.job_id)])
        monkeypatch.undo()
        time.tzset()
