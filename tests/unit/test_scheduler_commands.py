"""What a scheduler's commands print in whatever environment.

That there is one way to run them is a rule of `make lint` (tests/lint/processes.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from advisor.core.inventory import NodeType
from advisor.loop.clock import utc
from advisor.schedulers.base import JobRecord
from advisor.schedulers.pbs import accounting as pbs_accounting
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.slurm import accounting, control
from advisor.schedulers.slurm.accounting import FIELDS
from advisor.schedulers.slurm.accounting_file import read_sacct
from advisor.schedulers.slurm.scheduler import Slurm

# -- the environment of a question -------------------------------------------------------------


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands that print their environment."""
    for name in ("sacct", "qstat"):
        (tmp_path / name).write_text("#!/bin/sh\nexec env\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


SHAPING = {
    "SLURM_TIME_FORMAT": "relative",
    "SACCT_FORMAT": "JobID",
    "SQUEUE_FORMAT": "%j",
    "SQUEUE_STATES": "PD",
    "SQUEUE_USERS": "nobody",
    "SINFO_FORMAT": "%n",
    "SCONTROL_ALL": "1",
    "SCANCEL_INTERACTIVE": "1",
    "SLURM_BITSTR_LEN": "3",
    "PBS_QSTAT_EXECONLY": "1",
    "TZ": "Europe/Berlin",
    "LC_ALL": "de_DE.UTF-8",
}
CHOOSING = {
    "SLURM_CONF": "/x/slurm.conf",
    "SLURM_CLUSTERS": "b",
    "PBS_CONF_FILE": "/x",
    "PBS_DEFAULT": "s",
    "PBS_SERVER": "s",
    "LD_LIBRARY_PATH": "/x/lib",
}


def test_formats_go_and_the_cluster_stays(printed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SHAPING, **CHOOSING}.items():
        monkeypatch.setenv(name, value)
    for text in (control.ask("sacct"), pbs_control.ask("qstat")):
        shown = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        assert (shown["TZ"], shown["LC_ALL"]) == ("UTC", "C")
        assert {k: shown.get(k) for k in CHOOSING} == CHOOSING
    slurm = control.ask("sacct").splitlines()
    assert "SLURM_TIME_FORMAT=%s" in slurm
    left = {line.partition("=")[0] for line in slurm} & set(SHAPING)
    assert left == {"SLURM_TIME_FORMAT", "TZ", "LC_ALL", "PBS_QSTAT_EXECONLY"}


def test_a_bench_on_a_node_runs_in_no_shaped_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What srun reads for its step would change what is printed and measured; a place stays."""
    place = {"SLURM_CONF": "/x/slurm.conf", "SLURM_ACCOUNT": "proj", "SLURM_PARTITION": "batch"}
    shaping = {
        "SLURM_LABELIO": "1",
        "SLURM_STDOUTMODE": "/x",
        "SLURM_CPU_FREQ_REQ": "1200000",
        "SLURM_CPU_BIND": "map_cpu:0",
        "SLURM_JOB_ID": "7",
        "SRUN_CPUS_PER_TASK": "1",
    }
    for name, value in {**place, **shaping}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "srun").write_text("#!/bin/sh\nexec env\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    node_type = NodeType("bdw", "broadwell", cores=28)
    process = Slurm().on_a_node(node_type, ["true"], limit_s=60.0, name="bench")
    out, _ = process.communicate()
    shown = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    assert {k: v for k, v in shown.items() if k.startswith(("SLURM_", "SRUN_"))} == place
    assert shown["ADVISOR"] == "off" and shown["PATH"] == os.environ["PATH"]


# -- times -------------------------------------------------------------------------------------

BEFORE = datetime(2026, 10, 25, 0, 50, tzinfo=UTC)  # 02:50 in Berlin, then the clock goes back
AFTER = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 there


@pytest.fixture(params=["Europe/Berlin", "UTC", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def row(**values: str) -> dict[str, str]:
    usual = {
        "State": "COMPLETED",
        "ElapsedRaw": "60",
        "NNodes": "1",
        "NCPUS": "4",
        "User": "ann",
        "JobName": "j",
        "JobID": "7",
        "Partition": "p",
    }
    return {name: {**usual, **values}.get(name, "") for name in FIELDS}


def test_a_requeue_over_a_change_of_the_clock_is_the_later_one(
    zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row(Submit=str(int(AFTER.timestamp())), End=str(int(AFTER.timestamp()) + 60), NCPUS="2"),
        row(Submit=str(int(BEFORE.timestamp())), End=str(int(AFTER.timestamp())), State="REQUEUED"),
    ]
    (tmp_path / "rows").write_text(json.dumps([list(r.values()) for r in rows]))
    (tmp_path / "sacct").write_text(
        "#!/usr/bin/env python3\nimport json, sys\n"
        "[end] = [a[12:] for a in sys.argv if a.startswith('--delimiter=')]\n"
        f"for row in json.load(open({str(tmp_path / 'rows')!r})):\n"
        "    print(''.join(value + end for value in row))\n"
    )
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    [job] = accounting.finished_jobs("2026-10-24T00:00:00+00:00")
    assert (job.state, job.cpus, job.restarts) == ("COMPLETED", 2, 1)
    assert (job.submitted_at, utc(job.submitted_at)) == ("2026-10-25T01:10:00Z",) * 2
    assert utc(job.ended_at) == "2026-10-25T01:11:00Z"


def test_since_is_asked_in_the_zone_of_the_question(zone: str) -> None:
    assert accounting._sacct_time("2026-07-01T12:00:00+00:00") == "2026-07-01T12:00:00"
    local = datetime(2026, 7, 1, 12).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert accounting._sacct_time("2026-07-01T12:00:00") == local


def test_pbs_s_times_are_read_as_they_are_asked(zone: str) -> None:
    def record(**times: object) -> JobRecord:
        found = pbs_accounting.record_of("7.pbs1", {"job_state": "F", **times})
        assert found is not None
        return found

    one = record(ctime="Sun Oct 25 00:50:00 2026", obittime="Sun Oct 25 01:10:00 2026")
    assert (one.submitted_at, one.ended_at) == ("2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z")
    two = record(ctime=int(BEFORE.timestamp()), history_timestamp=int(AFTER.timestamp()))
    assert (two.submitted_at, two.ended_at) == (one.submitted_at, one.ended_at)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1793000000", "2026-10-26T"),
        ("Unknown", ""),
        ("None", ""),
        ("", ""),
        ("9" * 30, ""),
        ("2026-10-25T02:50:00", "2026-10-25T02:50:00"),
    ],
)
def test_time_of(text: str, written: str) -> None:
    assert control.time_of(text).startswith(written)
    assert bool(control.time_of(text)) == bool(written)


def test_a_file_with_times_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """Written under another SLURM_TIME_FORMAT; such a job would be missing in a report."""
    head = "JobID|State|ElapsedRaw|NNodes|NCPUS|NodeList|Submit|End"
    good = "1|COMPLETED|60|1|4|n1|1793000000|1793000060"
    bad = "2|COMPLETED|60|1|4|n1|25 Oct 02:50|Sunday"
    jobs, lines = read_sacct(tmp_path, "\n".join([head, good, bad]))
    assert [job.job_id for job in jobs] == ["1"]
    assert lines == 1


def test_a_file_with_submit_lines_of_several_lines_has_no_bad_ones(tmp_path: Path) -> None:
    lines = [
        "JobID|State|ElapsedRaw|NNodes|NCPUS|NodeList|SubmitLine",
        "7|COMPLETED|100|2|56|n[1-2]|sbatch --wrap 'cd run",
        "",
        "srun a | tee out",
        "wait'",
        "7.0|COMPLETED|60|2|56|n[1-2]|srun bash -c 'a | b",
        "c'",
        "8|cut|COMPL",
        "9|COMPLETED|50|1|28|n1|sbatch x",
        "half a li",
    ]
    jobs, bad = read_sacct(tmp_path, "\n".join(lines))
    assert [(job.job_id, len(job.steps)) for job in jobs] == [("7", 1), ("9", 0)]
    assert bad == 1
