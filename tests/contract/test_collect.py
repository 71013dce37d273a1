"""``advisor collect``: what it says, and what it does when something is in its way."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision, Effect
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.reasons import reason
from advisor.core.stamp import make_stamp
from advisor.schedulers.slurm.accounting import FIELDS
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.unset import as_measured

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
BDW = NodeType(
    "bdw", "bdw", ("batch",), cores=28, freq_khz=(1_200_000, 1_800_000, 2_200_000), nodes=("n1",)
)


def row(job_id: str, stamp: str = "", **changes: str) -> str:
    """Return one record as sacct prints it."""
    end = AT + timedelta(minutes=5)
    values = {
        "JobID": job_id,
        "JobName": "job",
        "User": "ann",
        "Account": "proj",
        "Partition": "batch",
        "State": "COMPLETED",
        "Submit": AT.astimezone().strftime("%Y-%m-%dT%H:%M:%S"),
        "End": end.astimezone().strftime("%Y-%m-%dT%H:%M:%S"),
        "ElapsedRaw": "104",
        "NNodes": "1",
        "NCPUS": "28",
        "NodeList": "n1",
        "AdminComment": stamp,
        **changes,
    }
    return "".join(values.get(name, "") + MARK for name in FIELDS) + "\n"


def job(number: int, stamp: str, *, time_s: int = 102, energy_j: int = 9_000) -> str:
    step = row(
        f"{number}.0",
        NTasks="1",
        ElapsedRaw=str(time_s),
        ConsumedEnergyRaw=str(energy_j),
        ReqCPUFreqMax="1.80G",
        AveCPUFreq="1.79G",
    )
    return row(str(number), stamp, ElapsedRaw=str(time_s + 2)) + step


@pytest.fixture
def accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let ``sacct`` be a program that prints the given records."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def answer(*records: str) -> None:
        (programs / "records").write_text("".join(records))
        script = programs / "sacct"
        script.write_text(SACCT)
        script.chmod(0o755)

    answer()
    return answer


def decision(number: int, model_id: int) -> Decision:
    chosen = Alternative(
        TO, 102.0, 9_000.0, Effect(0.02, 0.0, 0.04), Effect(-0.1, -0.12, -0.08), True
    )
    return Decision(
        f"{number:016x}",
        AT.isoformat(),
        "slurm",
        "cli_filter",
        "ann",
        "proj",
        Policy(mode="apply"),
        "stencil",
        "n64",
        BASE,
        chosen,
        (chosen,),
        {"cpu-freq": "1200000-1800000"},
        {},
        (reason("chosen", "less"), reason("confirmed")),
        model_id=model_id,
        energy_quality="measured",
        baseline_time_s=100.0,
        baseline_energy_j=10_000.0,
    )


@pytest.fixture
def stamps(store_path: Path) -> list[str]:
    """A store with a model and two decisions; their stamps."""
    options = [
        Option(c, t, t / 1.02, t * 1.02, e, e / 1.02, e * 1.02, True, True)
        for c, t, e in ((BASE, 100.0, 10_000.0), (TO, 102.0, 9_000.0))
    ]
    with Writer(store_path) as writer:
        writer.save_node_types([BDW], source="test")
        model = writer.save_model(
            "stencil",
            "n64",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats=as_measured(options),
            options=options,
        )
        found = [decision(n, model.id) for n in (1, 2)]
        for d in found:
            writer.save_decision(d)
    return [make_stamp(d) for d in found]


def collect(advisor: Run, *more: object) -> Any:
    return advisor("collect", "--scheduler", "slurm", *more)


def test_what_came_out_is_said(advisor: Run, accounting: Run, stamps: list[str]) -> None:
    accounting(job(11, stamps[0]), row("12"))
    result = collect(advisor)
    assert result.code == 0 and result.err == ""
    assert "2 jobs ended" in result.out and "1 without a decision" in result.out
    assert "as-promised  1" in result.out and "1 job kept as measured runs" in result.out
    again = collect(advisor, "--json").json()
    assert again["schema"] == "advisor/collect/1"
    assert (again["new"], again["known"], again["without_decision"]) == (0, 1, 1)


def test_a_suspension_is_said_and_logged(
    advisor: Run,
    accounting: Run,
    stamps: list[str],
    store_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    accounting(job(11, stamps[0], time_s=130), job(12, stamps[1]))
    result = collect(advisor)
    assert "suspended: model 1 of stencil (n64) on bdw: worse than promised: job 11 (" in result.out
    assert "event=suspended model=1" in caplog.text
    with Reader(store_path) as reader:
        assert next(reader.models([1])).state == "suspended"


def test_nothing_new_is_fine_for_a_timer(advisor: Run, accounting: Run, store_path: Path) -> None:
    result = collect(advisor)
    assert result.code == 0 and "0 jobs ended" in result.out
    assert store_path.exists()


def test_a_lost_store_is_not_replaced_by_an_empty_one(
    advisor: Run, accounting: Run, stamps: list[str], store_path: Path
) -> None:
    assert collect(advisor).code == 0
    store_path.unlink()
    result = collect(advisor)
    assert result.code == 1 and result.err.count("\n") == 1
    assert "advisor store restore" in result.err
    assert not store_path.exists()


def test_spool_alone_asks_no_scheduler(
    advisor: Run, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    spool = store_path.with_name("spool")
    spool.mkdir()
    run = {"configuration": BASE.to_dict(), "time_s": 3.0, "source": "sweep"}
    data = {"application": "a", "workload": "w", "contributor": "u", "observations": [run]}
    (spool / "runs-1.json").write_text(json.dumps(data))
    (spool / "runs-2.json").write_text("{")
    result = advisor("collect", "--spool")
    assert result.code == 0
    assert "1 run from 1 file" in result.out
    assert "set aside in spool/bad: runs-2.json" in result.err
    assert sorted(p.name for p in spool.glob("**/*.json")) == ["runs-2.json"]
    data = advisor("collect", "--spool", "--json").json()
    assert data["spool"] == {
        "files": 0,
        "observations": 0,
        "characterisations": 0,
        "kernels": 0,
        "fits": [],
        "rankings": [],
        "bad": [],
        "waiting": 0,
    }


def test_users_runs_are_taken_although_the_accounting_is_down(
    advisor: Run, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    spool = store_path.with_name("spool")
    spool.mkdir()
    run = {"configuration": BASE.to_dict(), "time_s": 3.0}
    data = {"application": "a", "workload": "w", "contributor": "u", "observations": [run]}
    (spool / "runs-1.json").write_text(json.dumps(data))
    result = collect(advisor)
    assert result.code == 1 and result.err.count("\n") == 1 and "sacct" in result.err
    with Reader(store_path) as reader:
        assert len(reader.observations("a")) == 1


@pytest.mark.parametrize("since", ["yesterday", "7x", "-1d", ""])
def test_since_that_is_no_time(advisor: Run, accounting: Run, since: str) -> None:
    result = collect(advisor, f"--since={since}")
    if since:
        assert result.code == 2 and result.err.count("\n") == 1 and "--since" in result.err
    else:
        assert result.code == 0


def test_a_broken_store_is_one_line(advisor: Run, accounting: Run, store_path: Path) -> None:
    store_path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    result = collect(advisor)
    assert result.code == 1 and result.err.count("\n") == 1 and str(store_path) in result.err


def test_a_copy_that_the_daemon_only_reads_is_left_alone(
    advisor: Run, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_path.write_bytes(b"a published copy")
    status = {"takes_results": False, "store": str(store_path)}
    monkeypatch.setattr("advisor.paths._status", lambda _: status)
    result = collect(advisor)
    assert result.code == 3 and "published copy" in result.err and "store's host" in result.err
    assert store_path.read_bytes() == b"a published copy"


def test_unknown_scheduler(advisor: Run) -> None:
    result = advisor("collect", "--scheduler", "lsf")
    assert result.code == 2 and "lsf" in result.err and "slurm" in result.err


# -- GPUs ----------------------------------------------------------------------------------------

TWO_GPUS = "cpu=28,node=1,billing=28,gres/gpu=2,gres/gpu:a100=2"
TOLD = "advisor-gpus:n1:0/150/0/3000.5,1/150/0/2000.0"


@pytest.fixture
def metered_by(accounting: Run, tmp_path: Path) -> Callable[[str], None]:
    """Let ``scontrol show config`` say which plugin meters energy."""

    def answer(plugin: str) -> None:
        program = tmp_path / "bin" / "scontrol"
        line = f"AcctGatherEnergyType    = acct_gather_energy/{plugin}"
        program.write_text(f"#!/bin/sh\necho '{line}'\n")
        program.chmod(0o755)

    return answer


def on_gpus(number: int, stamp: str, told: str = "", energy_j: int = 9_000) -> str:
    """A job's records where the accounting knows its GPUs, and what its nodes told of them."""
    _, step = job(number, stamp, energy_j=energy_j).splitlines(keepends=True)
    return row(str(number), stamp, AllocTRES=TWO_GPUS, SystemComment=told) + step


def joules_by_device(advisor: Run) -> dict[str, float]:
    """What the metrics say of energy."""
    lines = [w.split() for w in advisor("metrics").out.splitlines() if "energy_joules{" in w]
    return {w[0].partition('device="')[2].rstrip('"}'): float(w[1]) for w in lines}


@pytest.mark.parametrize(
    ("plugin", "told", "gpu_j", "words"),
    [
        ("ipmi", TOLD, 5000.5, "that of the nodes, with them"),
        ("rapl", TOLD, 5000.5, "that of the processors, without them"),
        ("gpu", "", 9000.0, "theirs alone"),
        ("gpu", TOLD, 9000.0, "theirs alone"),
        ("none", TOLD, 5000.5, "GPUs         5000 J"),
        ("ipmi", "", None, "no node told what its GPUs took"),
        ("ipmi", TOLD.partition(",")[0], None, "its nodes told of 1 of its 2 GPUs"),
        ("ipmi", f"{TOLD.rpartition('/')[0]}/-", None, "GPU 1 on n1 counts no energy"),
        ("ipmi", TOLD.replace("2000.0", "900000000.0"), None, "GPU 1 on n1 counted what no GPU"),
    ],
)
def test_what_a_jobs_gpus_took_is_seen_wherever_its_energy_is(
    advisor: Run,
    accounting: Run,
    stamps: list[str],
    metered_by: Run,
    plugin: str,
    told: str,
    gpu_j: float | None,
    words: str,
) -> None:
    metered_by(plugin)
    accounting(on_gpus(11, stamps[0], told))
    collect(advisor)
    why = advisor("why", "11", "--json").json()
    assert why["energy_gpu_j"] == gpu_j and bool(why["energy_gpu_note"]) == (gpu_j is None)
    assert [use["device"] for use in why["gpus"]] == list(range(told.count("/150/")))
    text = advisor("why", "11").out
    assert words in text and (gpu_j is None) == ("GPUs         energy not known" in text)
    [application] = (report := advisor("report", "--json").json())["gpus"]
    assert application["application"] == "stencil"
    assert (application["jobs"], application["unknown"]) == ((0, 1) if gpu_j is None else (1, 0))
    assert report["gpu_kwh"] == (None if gpu_j is None else pytest.approx(gpu_j / 3.6e6))
    [listed] = advisor("jobs", "--everybody", "--json").json()["jobs"]
    assert listed["gpu_kwh"] == report["gpu_kwh"]
    head = advisor("jobs", "--everybody").out.splitlines()[0]
    assert ("GPUs" in head.split()) == (gpu_j is not None)
    known = {} if gpu_j is None else {"gpu": gpu_j}
    assert joules_by_device(advisor) == pytest.approx({"all": 9000.0, **known})
    assert ("GPUs" in advisor("report").out) and ("1 job " in advisor("report").out)


def test_what_gpus_took_may_come_after_the_jobs_end(
    advisor: Run, accounting: Run, stamps: list[str], metered_by: Run
) -> None:
    metered_by("ipmi")
    accounting(on_gpus(11, stamps[0]))
    collect(advisor)
    accounting(on_gpus(11, stamps[0], TOLD))
    assert collect(advisor, "--json").json()["new"] == 1
    assert collect(advisor, "--json").json()["new"] == 0
    accounting(on_gpus(11, stamps[0]))  # what was known stays
    assert collect(advisor, "--json").json()["new"] == 0
    assert advisor("why", "11", "--json").json()["energy_gpu_j"] == 5000.5
    assert advisor("report", "--json").json()["gpus"][0]["jobs"] == 1


def test_a_job_teaches_the_energy_of_its_gpus_only_where_its_own_has_them_in_it(
    advisor: Run, accounting: Run, stamps: list[str], metered_by: Run, store_path: Path
) -> None:
    for plugin, number in (("rapl", 11), ("ipmi", 12)):
        metered_by(plugin)
        accounting(on_gpus(number, stamps[number - 11], TOLD))
        collect(advisor)
    with Reader(store_path) as reader:
        rapl, ipmi = (s.observation.extra for s in reader.observations("stencil", "n64"))
    assert rapl["gpus"] == ipmi["gpus"] == 2
    assert "energy_gpu_j" not in rapl and ipmi["energy_gpu_j"] == 5000.5
