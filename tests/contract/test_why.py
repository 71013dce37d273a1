"""``advisor why``: from the store, from the accounting, and when nobody knows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.cli import bars
from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision, Effect
from advisor.core.gpus import GpusAsked
from advisor.core.inventory import NodeType
from advisor.core.policy import Policy
from advisor.core.reasons import reason
from advisor.core.request import JobRequest
from advisor.core.stamp import make_stamp
from advisor.core.step_plan import PlannedStep, StepPlan
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import JobSite, make_outcome
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.schedulers.slurm.accounting import FIELDS
from advisor.store.writer import Writer

Run = Callable[..., Any]

MARK = "@@"
SACCT = """\
#!/bin/sh
for word in "$@"; do
  case $word in
    --env-vars) exit 0 ;;
    --delimiter=*) between=${word#*=} ;;
  esac
done
awk -v between="$between" '{ gsub(/@@/, between); print }' "$(dirname "$0")/records"
"""
"""A program that prints the records beside it, fields separated as it is asked to."""
AT = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
BASE = Configuration("bdw", 1, 1, 28, 2_200_000)
TO = Configuration("bdw", 1, 1, 28, 1_800_000)
BDW = NodeType("bdw", "bdw", ("batch",), cores=28, freq_khz=(1_800_000, 2_200_000), nodes=("n1",))
CHOSEN = Alternative(TO, 102.0, 9_000.0, Effect(0.02, 0.0, 0.04), Effect(-0.1, -0.12, -0.08), True)
DECISION = Decision(
    f"{1:016x}",
    AT.isoformat(),
    "slurm",
    "cli_filter",
    "ann",
    "proj",
    Policy(mode="apply"),
    "stencil",
    "n64",
    BASE,
    CHOSEN,
    (CHOSEN,),
    {"cpu-freq": "1200000-1800000"},
    {},
    (reason("chosen", "energy −10 %"), reason("confirmed")),
    energy_quality="measured",
    baseline_time_s=100.0,
    baseline_energy_j=10_000.0,
)
LEFT = replace(DECISION, chosen=None, rewrite={}, reasons=(reason("no-model", "stencil"),))


def job(
    job_id: str = "11", *, time_s: float = 105.0, energy_j: float | None = 9_000.0
) -> JobRecord:
    step = StepRecord("0", "a", "COMPLETED", time_s, 1, 1, energy_j, TO.freq_khz, 1_790_000, 28)
    return JobRecord(
        job_id,
        "job",
        "ann",
        "proj",
        "COMPLETED",
        AT.isoformat(),
        time_s,
        1,
        "n1",
        energy_j,
        TO.freq_khz,
        1_790_000,
        cpus=28,
        partition="batch",
        steps=(step,),
    )


@pytest.fixture
def collected(store_path: Path) -> Callable[..., None]:
    """Store a decision and the outcome of its job."""

    def store(record: JobRecord, decision: Decision = DECISION) -> None:
        with Writer(store_path) as writer:
            writer.save_node_types([BDW], source="test")
            writer.save_decision(decision, job_id=record.job_id.partition("_")[0])
            outcome = make_outcome(
                record,
                MatchedJob(decision, "verified"),
                JobSite("slurm", writer.inventory(), writer.policy(), writer),
            )
            writer.save_outcome(outcome)

    return store


@pytest.fixture
def accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let ``sacct`` be a program that knows job 11 with the given admin comment, and a step."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def answer(comment: str) -> None:
        values = {
            "JobName": "job",
            "User": "ann",
            "Account": "proj",
            "Partition": "batch",
            "State": "COMPLETED",
            "Submit": AT.astimezone().strftime("%Y-%m-%dT%H:%M:%S"),
            "ElapsedRaw": "103",
            "NNodes": "1",
            "NCPUS": "28",
            "NodeList": "n1",
        }
        step = {"ConsumedEnergyRaw": "9100", "ReqCPUFreqMax": "1.80G", "NTasks": "1"}
        text = ""
        for row in ({"JobID": "11", "AdminComment": comment}, {"JobID": "11.0", **step}):
            text += "".join((values | row).get(name, "") + MARK for name in FIELDS) + "\n"
        (programs / "records").write_text(text)
        script = programs / "sacct"
        script.write_text(SACCT)
        script.chmod(0o755)

    return answer


@pytest.fixture
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


@pytest.mark.usefixtures("no_scheduler")
def test_promised_and_came_out(
    advisor: Run, collected: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected(job())
    result = advisor("why", "11")
    assert result.code == 0 and result.err == "" and "█" not in result.out
    with monkeypatch.context() as patch:
        patch.setattr(bars, "coloured", lambda: True)
        rows = [line.split() for line in advisor("why", "11").out.splitlines() if "█" in line]
    assert [row[0] for row in rows] == ["as", "promised", "measured"] * 2
    assert {row[-2] for row in rows[3:]} == {"100", "102", "105"}
    for part in (
        "11  COMPLETED",
        "application  stencil",
        "2.9 % slower than promised",
        "as promised",
        "at most 1.8 GHz requested, 1.79 GHz observed",
        "chosen: energy −10 %",
        "--cpu-freq=1200000-1800000",
        "ADVISOR=off",
        "worth        0.278 Wh, −0.00056 node-hours a run",
        "in 30 days: 1 run 0.278 Wh",
        "saved        0.278 Wh, −0.0014 node-hours against the prediction",
    ):
        assert part in result.out, part
    data = advisor("why", "11", "--json").json()
    assert data["schema"] == "advisor/why/1" and data["collected"] is True
    assert data["decision"]["decision"] == DECISION.id and data["trust"] == "verified"
    assert data["outcome"]["time_s"] == 105.0 and data["verdict"] == "as-promised"
    assert data["worth"]["kwh"] == pytest.approx(1000 / 3.6e6) and data["worth"]["all_runs"] == 1
    time = data["compared"]["time"]
    assert (time["promised"], time["measured"]) == (102.0, 105.0)
    assert (time["lo"], time["hi"]) == pytest.approx((100.0, 104.0))


@pytest.mark.usefixtures("no_scheduler")
def test_a_job_left_alone(advisor: Run, collected: Run) -> None:
    collected(job(), LEFT)
    result = advisor("why", "11")
    assert "nothing was promised" in result.out and "no model for stencil" in result.out
    assert "to turn the advisor off" not in result.out
    data = advisor("why", "11", "--json").json()
    assert data["verdict"] == "left-alone" and data["compared"] == {}


@pytest.mark.usefixtures("no_scheduler")
def test_gpus_that_the_accounting_does_not_count_are_not_passed_over(
    advisor: Run, collected: Run
) -> None:
    asked = JobRequest("slurm", "cli_filter", "ann", 1000, gpus=GpusAsked("node", 2))
    collected(job(), replace(LEFT, request=asked))
    line = "GPUs         energy not known: no node told what its GPUs took"
    assert line in advisor("why", "11").out
    data = advisor("why", "11", "--json").json()
    assert data["energy_gpu_j"] is None and data["energy_gpu_note"] in line


@pytest.mark.usefixtures("no_scheduler")
def test_energy_that_is_not_known_says_why(advisor: Run, collected: Run) -> None:
    collected(replace(job(), steps=(), energy_j=None))
    result = advisor("why", "11")
    assert "no step was started with srun" in result.out and "came out     not known" in result.out


def ran_at(observed_khz: int | None, requested_khz: int | None = TO.freq_khz) -> JobRecord:
    """Return the record of a job whose step ran at this frequency under this request."""
    record = job()
    (step,) = record.steps
    step = replace(step, freq_requested_khz=requested_khz, freq_observed_khz=observed_khz)
    return replace(
        record, freq_requested_khz=requested_khz, freq_observed_khz=observed_khz, steps=(step,)
    )


BATCH = StepRecord("batch", "batch", "COMPLETED", 105.0, 1, 1, None, None, 2_150_000, 28)
NOT_CAPPED = replace(job(), freq_requested_khz=None, freq_observed_khz=2_150_000, steps=(BATCH,))


@pytest.mark.parametrize(
    ("record", "decision", "frequency", "no_effect"),
    [
        (
            ran_at(2_150_000),
            DECISION,
            "at most 1.8 GHz requested, 2.15 GHz observed",
            "it ran at 2.15 GHz",
        ),
        (
            NOT_CAPPED,
            DECISION,
            "at most 1.8 GHz set, but no step had it, 2.15 GHz observed",
            "no step was started with srun",
        ),
        (ran_at(1_880_000), DECISION, "at most 1.8 GHz requested, 1.88 GHz observed", ""),
        (ran_at(2), DECISION, "at most 1.8 GHz requested, observed: not known", ""),
        (ran_at(None), DECISION, "at most 1.8 GHz requested, observed: not known", ""),
        (
            ran_at(2_150_000),
            LEFT,
            "at most 1.8 GHz requested, 2.15 GHz observed",
            "it ran at 2.15 GHz",
        ),
        (ran_at(2_150_000, None), LEFT, "no cap requested, 2.15 GHz observed", ""),
        (NOT_CAPPED, LEFT, "no cap requested, 2.15 GHz observed", ""),
        (ran_at(None, None), LEFT, "", ""),
    ],
)
@pytest.mark.usefixtures("no_scheduler")
def test_the_cap_is_held_against_the_frequency_that_was_observed(
    advisor: Run,
    collected: Run,
    record: JobRecord,
    decision: Decision,
    frequency: str,
    no_effect: str,
) -> None:
    collected(record, decision)
    out = advisor("why", "11").out
    lines = [line.split(None, 1)[1] for line in out.splitlines() if line.startswith("frequency ")]
    assert lines == [frequency] * bool(frequency)
    effects = [
        line.partition("the cap had no effect: ")[2]
        for line in out.splitlines()
        if line.strip().startswith("the cap had no effect: ")
    ]
    assert effects == [no_effect] * bool(no_effect)
    if decision.changed:  # a job whose cap did not land says nothing of the model
        assert ("came out     not known" in out) is bool(no_effect)


@pytest.mark.usefixtures("no_scheduler")
def test_tasks_of_an_array(advisor: Run, collected: Run) -> None:
    collected(job("40_1"))
    collected(job("40_12", time_s=150.0))
    assert "worse than promised" in advisor("why", "40_12").out
    result = advisor("why", "40")
    assert result.code == 0 and "40_1 " in result.out and "40_12" in result.out
    tasks = advisor("why", "40", "--json").json()["tasks"]
    assert [(t["job"], t["verdict"]) for t in tasks] == [
        ("40_1", "as-promised"),
        ("40_12", "worse"),
    ]


@pytest.mark.usefixtures("no_scheduler")
def test_decided_but_not_collected(advisor: Run, store_path: Path) -> None:
    with Writer(store_path) as writer:
        writer.save_decision(DECISION, job_id="11")
    result = advisor("why", "11")
    assert result.code == 0 and "sacct" in result.out and "chosen: energy −10 %" in result.out


def test_without_a_store_the_jobs_stamp_tells(
    advisor: Run, accounting: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_DB", "/nonexistent/advisor.db")
    accounting(make_stamp(DECISION))
    result = advisor("why", "11")
    assert result.code == 0 and "not collected yet" in result.out and "by its stamp" in result.out
    assert "chosen: …" in result.out and "as promised" in result.out
    accounting("")
    result = advisor("why", "11")
    assert result.code == 0 and "decision     not known" in result.out


def test_a_forged_stamp_prints_nothing_but_text(
    advisor: Run, accounting: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_DB", "/nonexistent/advisor.db")
    accounting(make_stamp(replace(DECISION, application="\x1b[31mred", workload="\u202ex\r")))
    result = advisor("why", "11")
    assert result.code == 0
    assert all(c.isprintable() or c == "\n" for c in result.out)


def test_a_broken_store_is_said_and_gone_round(
    advisor: Run, accounting: Run, store_path: Path
) -> None:
    store_path.write_text("no store at all" * 100)
    accounting(make_stamp(DECISION))
    result = advisor("why", "11")
    assert result.code == 0 and "by its stamp" in result.out
    assert "damaged" in result.err and result.err.count("\n") == 1
    result = advisor("why", "11", "--db", store_path)
    assert result.code == 1 and result.err.count("\n") == 1


def test_anothers_job_is_not_known_though_the_accounting_shows_it(
    advisor: Run, accounting: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_DB", "/nonexistent/advisor.db")
    accounting(make_stamp(DECISION))
    monkeypatch.setattr("advisor.cli.why.os.geteuid", lambda: 4711)
    for user, code in (("ann", 0), ("ben", 1)):
        monkeypatch.setattr("advisor.store.opening.caller", lambda user=user: user)
        result = advisor("why", "11")
        assert result.code == code
        assert ("by its stamp" in result.out) == (code == 0)
    assert result.out == "" and "job 11 is not known (others' jobs are not shown" in result.err


@pytest.mark.usefixtures("no_scheduler")
def test_a_job_nobody_knows(advisor: Run) -> None:
    result = advisor("why", "4711")
    assert result.code == 1 and result.out == ""
    assert result.err.count("\n") == 1 and "4711 is not known" in result.err


@pytest.mark.parametrize("name", ["", "job.sh", "1;ls", "../11", "11_", "-5", "11_[1-3]"])
def test_what_is_no_job_id(advisor: Run, name: str) -> None:
    result = advisor("why", name)
    assert result.code == 2 and "Traceback" not in result.err


def test_it_answers_at_once(store_path: Path) -> None:
    """Nothing heavy is loaded: people wait for this one."""
    with Writer(store_path) as writer:
        writer.save_decision(DECISION, job_id="11")
    code = (
        "import sys; from advisor.cli import main; main(['why', '11']);"
        "heavy = {'numpy', 'scipy', 'pandas', 'yaml', 'sqlite_utils', 'rich'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("no_scheduler")
def test_what_each_step_of_a_job_with_a_plan_got(advisor: Run, collected: Run) -> None:
    planned = PlannedStep(
        "stencil", "", "stencil", "default", 2, 14, True, 7, TO.freq_khz, time_pct=(1.0, 0.0, 2.0)
    )
    other = replace(planned, program="lbm", threads_new=7, cap_khz=0)
    plan = StepPlan(1000, 1, 28, (planned, other, replace(planned, program="train.py")))
    reasons = (reason("several-steps", "mesh, stencil"), reason("step-plan", "stencil, lbm"))
    decision = replace(LEFT, reasons=reasons, plan=plan)

    def step(number: int, name: str, ranks: int, cap_khz: int | None) -> StepRecord:
        return StepRecord(str(number), name, "COMPLETED", 25.0, 1, ranks, None, cap_khz, cpus=28)

    steps = (
        step(0, "mesh", 1, None),
        step(1, "stencil", 2, TO.freq_khz),
        step(2, "stencil", 2, None),
        step(3, "stencil", 4, None),
        step(4, "lbm", 2, None),
        step(5, "python", 2, TO.freq_khz),
        step(6, "apptainer", 2, TO.freq_khz),
        step(7, "apptainer", 2, None),
        step(8, "julia", 2, TO.freq_khz),
        step(9, "python3.11", 2, None),
        step(10, "stdbuf", 2, TO.freq_khz - 100_000),
    )
    collected(replace(job(), steps=steps, freq_requested_khz=None), decision)
    data = advisor("why", "11", "--json").json()
    assert data["verdict"] == "unknown" and data["compared"] == {}
    assert data["decision"]["plan"]["steps"][0]["program"] == "stencil"
    told = {s["step"]: (s["as_planned"], s["cap_khz"], s["threads_new"]) for s in data["steps"]}
    assert told == {
        "0": (None, 0, 0),
        "1": (True, TO.freq_khz, 7),
        "2": (False, 0, 0),
        "3": (None, 0, 0),
        "4": (None, 0, 7),
        "5": (True, TO.freq_khz, 7),
        "6": (True, TO.freq_khz, 7),
        "7": (None, 0, 0),
        "8": (None, TO.freq_khz, 0),
        "9": (False, 0, 0),
        "10": (None, TO.freq_khz - 100_000, 0),
    }
    shown = advisor("why", "11").out
    assert "its steps were planned, and no whole job promised" in shown
    rows = [line.split(maxsplit=3) for line in shown.splitlines()]
    got = {row[0]: row[3] for row in rows if row and row[0].isdecimal()}
    assert got["1"].startswith("at most 1.8 GHz, as planned; 7 threads a rank where it was")
    assert got["2"] == "no cap, not as planned" and got["0"] == "no cap"
    assert "each step of srun is looked up as it starts" in shown


@pytest.mark.usefixtures("no_scheduler")
def test_a_stamp_that_is_not_trusted_tells_nothing_of_steps(store_path: Path) -> None:
    plan = StepPlan(1000, 1, 28, (PlannedStep("a", "", "a", "default", 1, 28, True, 14),))
    forged = MatchedJob(replace(LEFT, plan=plan), "unverified", "forged")
    with Writer(store_path) as writer:
        outcome = make_outcome(
            job(),
            forged,
            JobSite("slurm", writer.inventory(), writer.policy(), writer),
        )
    assert "steps" not in outcome.record
