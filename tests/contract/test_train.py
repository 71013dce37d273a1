"""``advisor train`` on this machine: consent, cost, progress, kill and resume, JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.cli import build_parser
from advisor.paths import share
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.waiting import wait_for

ROOT = share("config").parent
Run = Callable[..., Any]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job script that notes its runs; it is called kernel and works on input one."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    kernel = work / "kernel"
    # One thread is so much slower that no noise of a busy machine makes it worth a try.
    slow = '[ "$OMP_NUM_THREADS" = 1 ] && sleep 0.8\n'
    kernel.write_text(f'#!/bin/sh\necho "${{OMP_NUM_THREADS-unset}}" >> ran\n{slow}sleep 0.2\n')
    kernel.chmod(0o755)
    path = work / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH --exclusive -t 5\nsrun ./kernel one\n")
    return path


def ran(script: Path) -> list[str]:
    path = script.parent / "ran"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize(
    ("policy", "directives", "note"),
    [
        ("", "", ""),
        ("", " -c 2", "the job sets its own threads, and the policy says axes.threads: fill"),
        ("axes: {threads: cap}\n", " -c 2", ""),
        ("axes: {threads: keep}\n", "", "the policy says axes.threads: keep, so jobs keep"),
    ],
)
def test_values_that_no_job_gets_are_named_before_they_are_measured(
    advisor: Run, script: Path, tmp_path: Path, policy: str, directives: str, note: str
) -> None:
    if policy:
        path = tmp_path / "policy.yaml"
        path.write_text(f"version: 1\n{policy}")
        assert advisor("policy", "apply", path).code == 0
    script.write_text(f"#!/bin/bash\n#SBATCH --exclusive -t 5{directives}\nsrun ./kernel one\n")
    argv = ("--scheduler", "local", "--dry-run", "--meter", "none", "--threads", "1,2")
    done = advisor("train", script, *argv, "--json")
    notes = [n for n in done.json()["notes"] if "only measured" in n]
    assert (len(notes), note in "".join(notes)) == (bool(note), True), done.out


def test_dry_run_shows_the_plan_and_runs_nothing(advisor: Run, script: Path) -> None:
    argv = ("train", script, "--scheduler", "local", "--dry-run", "--meter", "none")
    done = advisor(*argv, "--json")
    assert done.code == 0, done.err
    plan = done.json()
    assert plan["schema"] == "advisor/train/1"
    assert (plan["application"], plan["workload"]) == ("kernel", "one")
    assert plan["runs"][0]["role"] == "baseline"
    assert plan["cost"]["basis"] == "the job's time limit"
    assert plan["cost"]["runs"] == len(plan["runs"]) + plan["confirm"]
    assert plan["energy"] == "no meter, as asked for"
    text = advisor(*argv).out
    assert "node-hours" in text and "pays back after" in text
    assert ran(script) == []


def test_every_design_can_be_planned(advisor: Run, script: Path) -> None:
    for design in ("uniform", "random", "lhs", "sequential"):
        argv = ("--design", design, "--samples", "6", "--estimate", "2s")
        plan = advisor("train", script, "--scheduler", "local", "--dry-run", "--json", *argv).json()
        assert plan["design"] == design
        assert 1 < len(plan["runs"]) <= plan["most_runs"] <= 6
        assert plan["cost"]["runs"] >= plan["most_runs"]


def test_the_budget_counts_all_runs_or_node_hours(advisor: Run, script: Path) -> None:
    argv = ("train", script, "--scheduler", "local", "--dry-run", "--json", "--estimate", "2s")
    plan = advisor(*argv, "--budget", "8", "--design", "uniform").json()
    assert plan["design"] == "uniform" and plan["most_runs"] + plan["confirm"] <= 8
    assert plan["cost"]["runs"] <= 8
    plan = advisor(*argv, "--budget", "8").json()
    if plan["design"] == "adaptive":  # this machine has enough configurations
        assert (plan["most_runs"], plan["confirm"], plan["cost"]["runs"]) == (8, 0, 8)
    else:
        assert len({(r["threads_per_node"], r["freq_khz"]) for r in plan["runs"]}) < 5
    done = advisor(*argv, "--budget", "0.0000001h")
    assert done.code == 3 and "node-hours" in done.err
    for wrong in ("4", "0h", "nanh", "many"):
        done = advisor(*argv, "--budget", wrong)
        assert done.code == 2 and f"--budget {wrong}" in done.err, done.err
    assert advisor(*argv, "--budget", "8", "--samples", "8").code == 2


def test_nothing_runs_without_consent(
    advisor: Run, script: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Path("/dev/null").open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        done = advisor("train", script, "--scheduler", "local")
    assert done.code == 3
    assert "--yes" in done.err
    assert ran(script) == []
    assert not (tmp_path / "state").exists()


def test_a_sweep_from_script_to_model(advisor: Run, script: Path, store_path: Path) -> None:
    done = advisor(
        "train",
        script,
        "--scheduler",
        "local",
        "--threads",
        "1",
        "--meter",
        "estimate",
        "--yes",
        "--json",
    )
    assert done.code == 0, done.err
    result = done.json()
    assert result["state"] == "fitted"  # one thread is five times slower
    assert result["recommended"] is None and result["attempts"] == []
    assert result["energy_quality"] == "estimated"
    assert len(ran(script)) == result["spent"]["runs"]
    assert {r["role"] for r in result["runs"]} >= {"baseline"}
    assert all(r["meter"] == "estimate (generic)" for r in result["runs"])
    assert result["confirmed"] is None
    # progress and plan went to stderr, line by line
    assert done.err.count("run ") >= len(ran(script))
    assert "estimated, not measured" in done.err
    with Reader(store_path) as reader:
        assert len(reader.observations("kernel", "one")) == len(ran(script))
        (model,) = reader.find_models("kernel")
        assert model.id == result["model_id"]
        assert model.node_type == "local" and model.scope == "own"
    again = advisor("train", "--resume", result["id"])
    assert again.code == 3 and "is finished" in again.err


def test_a_run_has_the_environment_of_the_session(
    advisor: Run, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What threadpoolctl sets in our process, when it is imported, would change the program."""
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")
    dump = ["sh", "-c", "env | grep ^KMP_ >> ran; sleep 0.2"]
    options = ("--scheduler", "local", "--threads", "1", "--samples", "1", "--meter", "none")
    done = advisor("train", "mine", *options, "--repeat-baseline", "0", "--yes", "--", *dump)
    assert done.code == 0 and ran(script) == []


def test_a_script_runs_in_the_folder_that_it_names(advisor: Run, script: Path) -> None:
    folder = script.parent / "data"
    folder.mkdir()
    (script.parent / "kernel").rename(folder / "kernel")
    directives = script.read_text().replace("#SBATCH", "#SBATCH -D data")
    script.write_text(directives)
    options = ("--scheduler", "local", "--threads", "1", "--samples", "1", "--meter", "none")
    done = advisor("train", script, *options, "--repeat-baseline", "0", "--yes")
    assert done.code == 0, done.err
    trained = (folder / "ran").read_text().split()
    assert len(trained) >= 2 and ran(script) == []
    assert advisor("run", script, "--meter", "none").code == 0
    assert len((folder / "ran").read_text().split()) == len(trained) + 1
    script.write_text(directives.replace("data", "nowhere"))
    failed = advisor("train", script, *options, "--yes")
    assert failed.code == 1 and f"cannot enter {script.parent}/nowhere: No such file" in failed.err


def test_a_command_is_trained_by_name(advisor: Run, script: Path, store_path: Path) -> None:
    done = advisor(
        "train",
        "mine",
        "--workload",
        "two",
        "--scheduler",
        "local",
        "--yes",
        "--json",
        "--threads",
        "1",
        "--meter",
        "none",
        "--",
        "./kernel",
        "--yes",
        "x y",
    )
    assert done.code == 0, done.err
    assert (done.json()["application"], done.json()["workload"]) == ("mine", "two")
    assert done.json()["recommended"] is None
    assert ran(script)


def spawn(script: Path, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "advisor", "train", *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_runs(script: Path, child: subprocess.Popen[str], count: int) -> None:
    while len(ran(script)) < count:
        assert child.poll() is None, child.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_stopped_and_resumed(
    advisor: Run, script: Path, store_path: Path, tmp_path: Path, number: signal.Signals
) -> None:
    child = spawn(
        script,
        str(script),
        "--scheduler",
        "local",
        "--threads",
        "1",
        "--yes",
        "--repeat-baseline",
        "3",
        "--meter",
        "none",
    )
    wait_for_runs(script, child, 3)
    child.send_signal(number)
    _, err = child.communicate(timeout=30)
    (folder,) = (tmp_path / "state" / "advisor" / "sweeps").iterdir()
    if number == signal.SIGINT:
        assert child.returncode == 130, err
        assert f"advisor train --resume {folder.name}" in err
        assert "Traceback" not in err
    planned = json.loads((folder / "sweep.json").read_text())["stages"]["design"]["runs"]
    done = advisor("train", "--resume")
    assert done.code == 0, done.err
    assert "made before: " in done.out
    assert len(ran(script)) - len(planned) in (0, 1)  # at most the run that was cut off
    with Reader(store_path) as reader:
        assert len(reader.observations("kernel", "one")) == len(planned)
        (request,) = reader.training_requests()
        assert request.id == folder.name and request.state == "fitted"
        assert {r.state for r in reader.training_runs(request.id)} == {"done"}
    # What counts its threads sees that it is gone, and ends, too.
    wait_for(lambda: not processes_with(folder), shown=lambda: processes_with(folder))


def processes_with(folder: Path) -> list[str]:
    """The command lines of running processes that name this folder."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_text(errors="replace").replace("\0", " "))
    return [line for line in lines if str(folder) in line]


def test_the_policys_budget_refuses_before_anything_runs(
    advisor: Run, script: Path, store_path: Path
) -> None:
    with Writer(store_path) as writer:
        compiled = {"base": {"training": {"budget_node_hours": 0.01}}, "rules": []}
        writer.apply_config("policy", path="p", text="x", compiled=compiled, by="root")
    done = advisor("train", script, "--scheduler", "local", "--yes")
    assert done.code == 3
    assert "training.budget_node_hours of 0.01" in done.err
    assert done.err.count("\n") == 1
    assert ran(script) == []


def test_a_policy_without_training_refuses(advisor: Run, script: Path, store_path: Path) -> None:
    with Writer(store_path) as writer:
        compiled = {
            "base": {},
            "rules": [{"match": {"application": ["ker*"]}, "set": {"training": {"mode": "off"}}}],
        }
        writer.apply_config("policy", path="p", text="x", compiled=compiled, by="root")
    done = advisor("train", script, "--scheduler", "local", "--yes")
    assert done.code == 3 and "training.mode is off" in done.err
    assert ran(script) == []


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ([], 2, "nothing to train"),
        (["./none.sh"], 1, "there is no script ./none.sh"),
        (["app"], 2, "and no command"),
        (["job.sh", "--threads", "x"], 2, "--threads"),
        (["job.sh", "--threads", "4096"], 1, "local has"),
        (
            ["job.sh", "--nodes", "1,2"],
            2,
            "a sweep keeps the number of nodes that the job asks for",
        ),
        (["job.sh", "--freqs", "fast"], 2, "--freqs"),
        (["job.sh", "--samples", "0"], 2, "--samples"),
        (["job.sh", "--estimate", "soon"], 2, "--estimate"),
        (["job.sh", "--limit", "0"], 2, "--limit"),
        (["job.sh", "--sbatch", "'"], 2, "--options"),
        (["job.sh", "--node-type", "knl"], 2, "not in the inventory"),
        (["job.sh", "--meter", "rapl2"], 2, "no meter"),
        (["job.sh", "--application", "\x01 "], 2, "not a name"),
        (["--resume", "no-such"], 3, "there is no sweep no-such"),
        (["--resume"], 3, "no unfinished sweep"),
        (["job.sh", "--scheduler", "lsf"], 2, "no scheduler"),
    ],
)
def test_mistakes_are_one_line(
    advisor: Run, script: Path, argv: list[str], code: int, message: str
) -> None:
    wish = [] if "--scheduler" in argv or "--resume" in argv else ["--scheduler", "local"]
    done = advisor("train", *argv, *wish)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert done.err.count("\n") == 1 and done.err.startswith("advisor: ")


def test_a_job_that_fails_as_written_is_one_line(advisor: Run, script: Path) -> None:
    script.write_text("#!/bin/bash\n./kernel one\nexit 4\n")
    done = advisor("train", script, "--scheduler", "local", "--yes", "--meter", "none")
    assert done.code == 1
    assert "does not run: exit code 4" in done.err
    assert len(ran(script)) == 3
    assert "Traceback" not in done.err


def test_a_script_of_the_users_is_never_evaluated(advisor: Run, script: Path) -> None:
    odd = script.with_name("odd $(touch pwned) 'name;x.sh")
    odd.write_text(script.read_text())
    done = advisor(
        "train",
        odd,
        "--scheduler",
        "local",
        "--yes",
        "--meter",
        "none",
        "--threads",
        "1",
        "--workload",
        "a$(touch pwned)b",
    )
    assert done.code == 0, done.err
    assert not (script.parent / "pwned").exists()


def test_an_experiment_file_is_swept(advisor: Run, script: Path, tmp_path: Path) -> None:
    """Two values of execParam are two sweeps; counters, postExec and summary follow each run."""
    work = script.parent
    kernel = work / "kernel"
    kernel.write_text(
        '#!/bin/sh\necho "$1 $OMP_NUM_THREADS $OMP_PROC_BIND" >> ran\necho "rate: $1"\nsleep 0.05\n'
    )
    (work / "hpcprobe.yml").write_text(
        "run:\n  all:\n    counters:\n    - {name: appRate, regex: 'rate: (.*)'}\n"
        "post:\n  all:\n    counters:\n    - {name: lines, regex: '(\\d+) ran'}\n"
    )
    experiment = work / "sweep.ini"
    text = (
        "[Experiment]\nexpExec = ./kernel $p\nexpName = my sweep\nexecParam = 7,8,1\nnodes = 1\n"
        "ppn = 1\nthreadCount = 1\npostExec = test -e tried || { touch tried; exit 1; }; "
        "wc -l ran\n"
        "retries = 1\nwalltime = 60\noutputFolder = out\nthreadPlacement = C\n"
        'env = PAT_RT_PERFCTR="page-faults,PAPI_FUL_CCY"\n'
    )
    experiment.write_text(text)
    argv = ("train", experiment, "--scheduler", "local", "--meter", "none", "--yes")
    done = advisor(*argv)
    assert done.code == 0, done.err
    assert "sweep.ini: 2 sweeps" in done.err
    assert "PAPI_FUL_CCY is not counted: only PAPI knows" in done.err
    assert ran(script) == ["7", "1", "close"] * 3 + ["8", "1", "close"] * 3
    (made, _) = sorted((tmp_path / "state").rglob("my_sweep-*.sh"))
    assert "srun ./kernel " in made.read_text()
    summary = work / "out" / "my sweep" / "summary.yml"
    entries = yaml.safe_load(summary.read_text())
    assert [e["objectives"]["appRate"] for e in entries] == [7.0, 8.0]
    assert [e["objectives"]["lines"] for e in entries] == [3.0, 6.0]  # read once a stage has ended
    assert all(e["stats"]["totalTime"]["samples"] == 3 for e in entries)
    assert all(e["objectives"]["page-faults"] > 0 for e in entries)
    taken = advisor(
        "import",
        summary,
        "--application",
        "k",
        "--workload",
        "7",
        "--node-type",
        "x",
        "--only",
        "execParam=7",
    )
    assert taken.code == 0, taken.err

    (work / "hpcprobe.yml").write_text(
        "run:\n  all:\n    counters:\n    - {name: other, regex: 'rate: (.*)'}\n"
    )
    experiment.write_text(text + "reget = True\n")
    again = advisor(*argv)
    assert again.code == 0 and "3 runs read again" in again.out, again.err
    assert yaml.safe_load(summary.read_text())[1]["objectives"]["other"] == 8.0
    experiment.write_text(text + "batchContinue = True\n")
    more = advisor(*argv)
    assert more.code == 0 and more.out.count("is finished already") == 2, more.err
    experiment.write_text(text.replace("nodes = 1", "nodes = none"))
    wrong = advisor("train", experiment, "--scheduler", "local", "--yes")
    assert wrong.code == 1
    assert "line 5, nodes" in wrong.err
    assert len(ran(script)) == 18
    # a script that passes its thread count on: the sweep varies what it reads
    experiment.write_text(
        "[Experiment]\nexpExec = ./kernel \\${OMP_NUM_THREADS}\nppn = 2\nthreadCount = 1,2,1\n"
    )
    plan = advisor(*argv[:-1], "--dry-run", "--json").json()
    assert plan["space"]["threads_per_node"] == [1, 2]


@pytest.mark.parametrize("name", ["--options", "--sbatch", "--qsub"])
@pytest.mark.parametrize("value", ["-N 1 -t 5", "--time=5", "-t5", "--exclusive", "-A climate"])
def test_the_jobs_own_options_may_begin_with_a_dash(name: str, value: str) -> None:
    parsed = build_parser("train").parse_args(["train", "job.sh", name, value, "--yes"])
    assert (parsed.options, parsed.subject, parsed.yes) == (value, "job.sh", True)
