"""What the filter asks, and what it writes into jobs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hook_daemon import DECISION, STAMP, HookDaemon, answer, unchanged
from hooked_cluster import CAP, SHOW, Hooked

from tests.schemas import check_request


def test_the_filter_sends_what_the_user_set_and_nothing_else(
    hooked: Hooked, daemon: HookDaemon
) -> None:
    config = hooked.testbed.home() / ".config" / "advisor"
    config.mkdir(parents=True, exist_ok=True)
    (config / "choices.json").write_text('{"version": 1, "goal": "power"}')
    text = "#!/bin/bash\n#SBATCH -t 10\nsrun ./app $1\n"
    hooked.sbatch(
        "-n4",
        "--job-name=a b",
        script=text,
        script_args=["x y", 'q"t'],
        env={"OMP_NUM_THREADS": "7", "ADVISOR_GOAL": "power", "SECRET": "1"},
    )
    (config / "choices.json").unlink()
    [request] = daemon.asked()
    check_request(request)
    options = request.pop("options")
    argv = options.pop("argv")
    assert options == {"hold": "set", "job-name": "a b", "ntasks": "4", "time": "00:10:00"}
    assert argv == request["argv"] == [request["script_path"], "x y", 'q"t']
    assert Path(request["script_path"]).read_text() == request["script"] == text
    slurm = {name: value for name, value in request["env"].items() if name.startswith("SLURM_")}
    assert slurm["SLURM_CONF"] == str(hooked.testbed.conf_dir / "slurm.conf")
    assert {k: v for k, v in request["env"].items() if k not in slurm} == {
        "OMP_NUM_THREADS": "7",
        "ADVISOR_GOAL": "power",
    }
    assert json.loads(request["choices"]) == {"version": 1, "goal": "power"}
    assert request["cwd"] == str(hooked.testbed.home())
    for key, value in {
        "v": 1,
        "op": "decide",
        "scheduler": "slurm",
        "hook": "cli_filter",
        "type": "sbatch",
        "truncated": False,
        "het": False,
    }.items():
        assert request[key] == value


@pytest.mark.parametrize("user", [None, "nobody"])
def test_a_batch_job_is_rewritten_stamped_and_told(
    hooked: Hooked, daemon: HookDaemon, user: str | None
) -> None:
    daemon.reply = lambda _: answer(
        {"constraint": "skylake", "cpu-freq": CAP, "cpus-per-task": "10"},
        {"OMP_NUM_THREADS": "10", "MKL_NUM_THREADS": "5"},
        "advisor: stencil runs on skylake: energy \u221220 % expected; refuse with ADVISOR=off",
        to="always",
    )
    done = hooked.testbed.sbatch("-n1", "-c14", script=SHOW, user=user, env=hooked.env(user))
    assert done.stderr.splitlines() == [
        "advisor: stencil runs on skylake: energy \u221220 % expected; refuse with ADVISOR=off"
    ]
    assert hooked.testbed.wait(done.job_id) == "COMPLETED"
    job = hooked.job(done)
    assert (job["Features"], job["NumNodes"], job["NumTasks"]) == ("skylake", "1", "1")
    assert (job["CPUs/Task"], job["NumCPUs"]) == ("10", "10")
    assert job["AdminComment"].split() == [STAMP]
    assert dict(line.split("=", 1) for line in hooked.testbed.output(done.job_id).splitlines()) == {
        "ADVISOR_DECISION": DECISION,
        "ADVISOR_STAMP": STAMP,
        "OMP_NUM_THREADS": "10",
        "ADVISOR_SET": "MKL_NUM_THREADS=5 OMP_NUM_THREADS=10 SLURM_CPUS_PER_TASK=10<14 "
        f"SLURM_CPU_FREQ_REQ={CAP}",
        "MKL_NUM_THREADS": "5",
        "SLURM_CPUS_PER_TASK": "10",
        "SLURM_CPU_FREQ_REQ": CAP,
        "SLURM_NPROCS": "1",
        "SLURM_NTASKS": "1",
    }
    assert not daemon.asked("submitted")


def test_srun_is_rewritten_and_its_job_named_afterwards(hooked: Hooked, daemon: HookDaemon) -> None:
    daemon.reply = lambda r: (
        answer(
            {"constraint": "skylake", "cpu-freq": CAP},
            {"OMP_NUM_THREADS": "3"},
            "advisor: x",
            to="always",
        )
        if r["op"] == "decide"
        else None
    )
    shown = 'echo "$SLURMD_NODENAME $OMP_NUM_THREADS $SLURM_CPU_FREQ_REQ $SLURM_JOB_ID"'
    out, err = hooked.run(["srun", "-n1", "sh", "-c", shown])
    node, threads, freq, job = out.split()
    assert (node[:3], threads, freq) == ("skl", "3", CAP)
    assert "advisor: x" in err.splitlines()
    assert daemon.wait_for("submitted") == [
        {"v": 1, "op": "submitted", "decision": DECISION, "job": job}
    ]
    [request] = daemon.asked()
    assert request["type"] == "srun"
    assert request["argv"] == ["sh", "-c", shown]
    assert request["script"] is None


def test_salloc_is_asked_once_and_its_steps_are_left_alone(
    hooked: Hooked, daemon: HookDaemon
) -> None:
    daemon.reply = lambda r: answer({"constraint": "milan"}) if r["op"] == "decide" else None
    out, _ = hooked.run(
        ["salloc", "-n1", "srun", "sh", "-c", "echo $SLURMD_NODENAME $ADVISOR_DECISION"]
    )
    node, decision = out.split()
    assert (node[:3], decision) == ("mil", DECISION)
    [submitted] = daemon.wait_for("submitted")
    assert submitted["decision"] == DECISION
    assert [r["type"] for r in daemon.asked()] == ["salloc"]


def test_a_step_inside_a_job_is_not_touched(hooked: Hooked, daemon: HookDaemon) -> None:
    done = hooked.testbed.sbatch(
        "-n1", script="srun sh -c 'echo $ADVISOR_STAMP'\nsrun true\n", env=hooked.env()
    )
    assert hooked.testbed.wait(done.job_id) == "COMPLETED"
    lines = hooked.testbed.output(done.job_id).splitlines()
    assert [line for line in lines if not line.startswith("srun: ")] == [STAMP]
    assert len(daemon.requests) == 1


def test_a_job_submitted_from_a_job_gets_no_stamp_of_the_outer_one(
    hooked: Hooked, daemon: HookDaemon
) -> None:
    daemon.reply = lambda _: answer(stamp=None)
    outer = {"ADVISOR_STAMP": STAMP, "ADVISOR_DECISION": "f" * 16, "SLURM_ADVISOR_STAMP": STAMP}
    assert "AdminComment" not in hooked.job(hooked.sbatch(env=outer))
    daemon.reply = unchanged
    forged = {"ADVISOR_STAMP": 'advisor:{"v":1,"id":"ffffffffffffffff"}'}
    assert hooked.job(hooked.sbatch(env=forged))["AdminComment"] == STAMP
    off = {"ADVISOR": "off", **outer}
    assert "AdminComment" not in hooked.job(hooked.sbatch(env=off))


@pytest.mark.parametrize("word", ["off", "0", "NO"])
def test_nothing_is_asked_for_who_opted_out(hooked: Hooked, daemon: HookDaemon, word: str) -> None:
    job = hooked.job(hooked.sbatch(env={"ADVISOR": word}))
    assert "AdminComment" not in job
    assert not daemon.requests


@pytest.mark.parametrize("export", ["NONE", "NIL", "PATH,HOME", "ALL,A=1", "ADVISOR_STAMP"])
def test_the_stamp_travels_whatever_is_exported(
    hooked: Hooked, daemon: HookDaemon, export: str
) -> None:
    job = hooked.job(hooked.sbatch(f"--export={export}"))
    assert job["AdminComment"] == STAMP


def test_quiet_means_no_line(hooked: Hooked, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: answer(message="advisor: hello", to="always")
    quiet = hooked.testbed.sbatch("--hold", "--quiet", "--wrap=true", env=hooked.env())
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert len(daemon.requests) == 1
    assert hooked.sbatch().stderr == "advisor: hello\n"


def test_an_array_is_one_decision(hooked: Hooked, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: answer({"constraint": "milan"})
    done = hooked.sbatch("--array=1-3")
    [job] = hooked.testbed.scontrol_jobs(done.job_id)
    assert (job["Features"], job["AdminComment"]) == ("milan", STAMP)
    assert len(daemon.requests) == 1


@pytest.mark.parametrize("kind", ["command", "script"])
def test_a_heterogeneous_job_is_known_as_one(hooked: Hooked, daemon: HookDaemon, kind: str) -> None:
    def reply(request: dict[str, Any]) -> bytes:
        het = request["het"] or "#SBATCH hetjob" in (request["script"] or "")
        return answer({} if het else {"constraint": "skylake"})

    daemon.reply = reply
    if kind == "command":
        done = hooked.sbatch("-N1", ":", "-N1", "-Cmilan")
    else:
        text = "#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1 -Cmilan\nsrun true\n"
        done = hooked.sbatch(script=text)
    jobs = hooked.testbed.scontrol_jobs(done.job_id)
    assert [(j["NumNodes"], j["Features"]) for j in jobs] == [("1-1", "(null)"), ("1-1", "milan")]
    assert [j.get("AdminComment") for j in jobs] == [STAMP, None]


def test_an_argument_of_a_colon_makes_no_heterogeneous_job(
    hooked: Hooked, daemon: HookDaemon
) -> None:
    daemon.reply = lambda _: answer({"constraint": "milan"})
    assert hooked.job(hooked.sbatch(script_args=[":"]))["Features"] == "milan"
    assert [r["het"] for r in daemon.asked()] == [False]


# -- where the line goes --------------------------------------------------------------------------


def at_a_terminal(hooked: Hooked, command: str) -> str:
    """Run a shell command with a terminal; return all it said."""
    env = {**hooked.testbed.env(), **hooked.env()}
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env=env,
        cwd=hooked.testbed.home(),
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.replace("\r\n", "\n")


@pytest.mark.parametrize("to", ["tty", "always", None])
def test_the_line_goes_where_nobody_parses_it(
    hooked: Hooked, daemon: HookDaemon, to: str | None
) -> None:
    extra = {"to": to} if to else {}
    daemon.reply = lambda _: answer(message="advisor: hello", **extra)
    submit = "sbatch --hold --parsable --wrap=true"
    parsed = hooked.run(["sh", "-c", f'jobid=$({submit} 2>&1); echo "[$jobid]"'])[0]
    assert bool(re.fullmatch(r"\[\d+\]\n", parsed)) == (to != "always")
    assert "advisor: hello" in at_a_terminal(hooked, f"{submit} > id")
    assert (hooked.testbed.home() / "id").read_text().strip().isdecimal()
    assert "hello" not in at_a_terminal(hooked, f"{submit} 2> id")
    assert len(daemon.requests) == 3
