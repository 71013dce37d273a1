"""Slurm's accounting rows: what Slurm 22.05 printed on the testbed, and what users may write."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import SchedulerError
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.schedulers.slurm import accounting
from advisor.schedulers.slurm.accounting import (
    FIELDS,
    START_S,
    finished_jobs,
    freq_khz,
    job,
    metered_j,
    total_energy_j,
)
from advisor.schedulers.slurm.accounting import parse as parse_with

SEPARATOR = "\x1f3a\x1f"


def parse(text: str) -> list[JobRecord]:
    return parse_with(text, SEPARATOR)


def row(**fields: str) -> str:
    values = {"State": "COMPLETED", "NNodes": "1", "ElapsedRaw": "10", **fields}
    return SEPARATOR.join(values.get(name, "") for name in FIELDS) + SEPARATOR + "\n"


def test_a_job_with_steps() -> None:
    text = (
        row(
            JobID="5",
            JobName="cfd",
            User="ann",
            Account="proj",
            Partition="batch",
            NNodes="2",
            NCPUS="56",
            NodeList="bdw[1-2]",
            ConsumedEnergyRaw="7997",
            ReqCPUFreqMax="Unknown",
            Submit="2026-11-21T01:01:07",
            End="2026-11-21T01:01:19",
            Constraints="broadwell",
            AdminComment='{"advisor":1}',
            SubmitLine="sbatch job.sh",
        )
        + row(JobID="5.batch", JobName="batch", ConsumedEnergyRaw="4991", AveCPUFreq="1.47G")
        + row(JobID="5.extern", JobName="extern", ConsumedEnergyRaw="9999")
        + row(
            JobID="5.0",
            JobName="a",
            ConsumedEnergyRaw="3499",
            ReqCPUFreqMin="1.20G",
            ReqCPUFreqMax="1.90G",
            AveCPUFreq="0",
            NTasks="4",
            ElapsedRaw="6",
        )
        + row(
            JobID="5.1",
            JobName="b",
            ConsumedEnergyRaw="3498",
            ReqCPUFreqMax="1.90G",
            AveCPUFreq="1850M",
            ElapsedRaw="4",
        )
    )
    (record,) = parse(text)
    assert (record.job_id, record.user, record.account, record.nodes) == ("5", "ann", "proj", 2)
    assert record.energy_j == 6997  # numbered steps only
    assert record.freq_requested_khz == 1_900_000
    assert record.freq_observed_khz == 1_850_000
    assert (record.elapsed_s, record.cpus, record.node_list) == (10, 56, "bdw[1-2]")
    assert record.admin_comment == '{"advisor":1}'
    assert [s.step_id for s in record.steps] == ["batch", "extern", "0", "1"]
    assert [s.numbered for s in record.steps] == [False, False, True, True]
    assert record.finished


@pytest.mark.parametrize(
    ("partition", "ago_s", "taken"),
    [("batch", 1.0, True), ("", 1.0, False), ("", 2 * START_S, True)],
)
def test_a_job_whose_start_is_not_recorded_yet_is_taken_later(
    partition: str, ago_s: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Slurm shows of a job of a second for some 3 s; a start that never comes ends no wait."""
    ended = (datetime.now() - timedelta(seconds=ago_s)).isoformat(timespec="seconds")
    printed = row(
        JobID="5",
        JobName="allocation",
        User="ann",
        Partition=partition,
        QOS="Unknown",
        Submit=ended,
        End=ended,
    )

    def sacct(*command: str) -> str:
        (between,) = (w.partition("=")[2] for w in command if w.startswith("--delimiter="))
        return printed.replace(SEPARATOR, between)

    monkeypatch.setattr(accounting, "ask", sacct)
    assert [record.job_id for record in finished_jobs(ended)] == ["5"] * taken


def test_what_a_job_used() -> None:
    text = (
        row(JobID="5", TotalCPU="1-01:02:03")
        + row(JobID="5.0", NTasks="4", MaxRSS="1000K", AveDiskRead="1.00M", AveDiskWrite="0")
        + row(JobID="5.1", NTasks="1", MaxRSS="2M", AveDiskRead="500000", AveDiskWrite="")
        + row(JobID="6", TotalCPU="00:00:00")
        + row(JobID="6.0", NTasks="1", AveDiskRead="0")
        + row(JobID="7", TotalCPU="02:03.250")
    )
    five, six, seven = parse(text)
    assert five.cpu_s == 90123 and five.memory_mb == pytest.approx(2.097152)
    assert five.disk_mb == pytest.approx(4 * 1.048576 + 0.5)
    assert (six.cpu_s, six.disk_mb, six.memory_mb) == (None, None, None)  # nothing was gathered
    assert seven.cpu_s == 123.25


def test_fields_may_hold_bars_line_breaks_and_equal_signs() -> None:
    text = row(JobID="1", JobName="x|y", Comment="a|b\nc=d\n2|3") + row(
        JobID="1.0", SubmitLine="srun bash -c 'echo\n4|bash|root'", ConsumedEnergyRaw="500"
    )
    (record,) = parse(text)
    assert (record.name, record.comment) == ("x|y", "a|b\nc=d\n2|3")
    assert record.energy_j == 500


def test_arrays_het_jobs_and_their_steps() -> None:
    text = "".join(
        row(JobID=name, ConsumedEnergyRaw=energy)
        for name, energy in [
            ("12_3", ""),
            ("12_3.0", "10"),
            ("12_[4-7%2]", ""),
            ("13+0", ""),
            ("13+0.0", "20"),
            ("13+1", ""),
            ("13+1.0", "30"),
            ("14", ""),
            ("14.interactive", "9"),
        ]
    )
    found = {r.job_id: r.energy_j for r in parse(text)}
    assert found == {"12_3": 10, "12_[4-7%2]": None, "13+0": 20, "13+1": 30, "14": None}


def test_a_reused_job_id_gives_two_records_with_their_own_steps() -> None:
    text = (
        row(JobID="7", Submit="2026-01-01T00:00:00")
        + row(JobID="7.0", ConsumedEnergyRaw="100")
        + row(JobID="7", Submit="2026-06-01T00:00:00")
        + row(JobID="7.0", ConsumedEnergyRaw="200")
    )
    assert [(r.submitted_at[:7], r.energy_j) for r in parse(text)] == [
        ("2026-01", 100.0),
        ("2026-06", 200.0),
    ]


def test_states_lose_their_tails() -> None:
    text = row(JobID="1", State="CANCELLED by 1000") + row(
        JobID="2", State="RUNNING", End="Unknown"
    )
    first, second = parse(text)
    assert (first.state, first.finished) == ("CANCELLED", True)
    assert (second.state, second.finished, second.ended_at) == ("RUNNING", False, "")


@pytest.mark.parametrize(
    ("text", "khz"),
    [
        ("1.20G", 1_200_000),
        ("2200M", 2_200_000),
        ("1200000K", 1_200_000),
        ("1900000", 1_900_000),
        ("", None),
        ("0", None),
        ("Unknown", None),
        ("High", None),
        ("OnDemand", None),
    ],
)
def test_frequencies(text: str, khz: int | None) -> None:
    assert freq_khz(text) == khz


@pytest.mark.parametrize(
    ("text", "joules"),
    [
        ("6998", 6998.0),
        ("", None),
        ("0", None),
        (" ", None),
        ("18446744073709551614", None),
        ("1.5K", None),
        ("-5", None),
    ],
)
def test_blank_zero_and_no_value_mean_missing(text: str, joules: float | None) -> None:
    assert metered_j(text, None, 1)[0] == joules


def test_a_long_step_without_energy_makes_the_sum_unknown() -> None:
    def step(energy: float | None, elapsed: float) -> StepRecord:
        return StepRecord("0", "n", "COMPLETED", elapsed, energy_j=energy)

    assert total_energy_j([step(10, 5), step(20, 5)]) == 30
    assert total_energy_j([step(10, 5), step(None, 5)]) is None
    assert total_energy_j([step(10, 5), step(None, 1)]) == 10
    assert total_energy_j([step(None, 0)]) is None
    assert total_energy_j([]) is None


def test_energy_that_no_node_could_run_on_is_not_known() -> None:
    step = {"JobID": "5.0", "NNodes": "2", "ElapsedRaw": "13"}
    (job,) = parse(row(JobID="5") + row(**step, ConsumedEnergyRaw="2"))
    assert (job.steps[0].energy_j, job.energy_j) == (None, None)
    (job,) = parse(row(JobID="5") + row(**step, ConsumedEnergyRaw="26"))
    assert (job.steps[0].energy_j, job.energy_j) == (26.0, 26.0)


def test_a_job_id_is_checked_before_it_is_passed_on() -> None:
    for name in ("1; rm -rf /", "--help", "1.0", "", "1,2"):
        with pytest.raises(SchedulerError, match="not a Slurm job id"):
            job(name)


@given(st.text(alphabet=st.sampled_from("0123456789._+[]-%batchK|G\n\x1f ")))
def test_no_output_breaks_the_parser(text: str) -> None:
    for record in parse(text):
        assert record.job_id


@given(st.lists(st.text().filter(lambda t: SEPARATOR not in t and t[-1:] != "\x1f"), max_size=3))
def test_any_comment_comes_back_as_it_was(comments: list[str]) -> None:
    text = "".join(row(JobID=str(i + 1), Comment=c) for i, c in enumerate(comments))
    assert [r.comment for r in parse(text)] == comments
