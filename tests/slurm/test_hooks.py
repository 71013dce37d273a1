"""The hooks on a real Slurm: what they ask, what they write into jobs, and that they come off."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hook_daemon import DECISION, STAMP, HookDaemon, answer, unchanged
from testbed import Submitted, Testbed
from testbed.daemons import wait_until

from advisor.core.stamp import read_stamp
from advisor.paths import share

ROOT = share("config").parent
CAP = "1200000-1800000"
SHOW = """\
env | grep -E '^(ADVISOR_|OMP_|SLURM_(NTASKS|NPROCS|CPUS_PER_TASK|CPU_FREQ_REQ)=|SRUN_)' | sort
"""


@dataclass
class Hooked:
    """A cluster with the hooks on, and a folder every user may enter for sockets and files."""

    testbed: Testbed
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    def advisor(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "advisor", *arguments], cwd=ROOT, capture_output=True,
            text=True, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    def hook(self, action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.advisor(
            "hook", action, "--scheduler", "slurm", "--dir", str(self.testbed.conf_dir),
            "--socket", str(self.socket), "--deadline", "5s", *arguments,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    def env(self, user: str | None = None) -> dict[str, str]:
        """Give a submission a runtime folder of its own: its circuit breaker is nobody else's."""
        runtime = Path(tempfile.mkdtemp(dir=self.folder))
        if user:
            shutil.chown(runtime, user)
        return {"XDG_RUNTIME_DIR": str(runtime)}

    def sbatch(
        self,
        *args: str,
        script: str | None = "srun true\n",
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        **other: Any,
    ) -> Submitted:
        """Submit a held job that must be accepted."""
        done = self.testbed.sbatch(
            "--hold", *args, script=script, user=user, env={**self.env(user), **(env or {})},
            **other,
        )  # fmt: skip
        assert done.job_id, done.stderr
        return done

    def job(self, done: Submitted) -> dict[str, str]:
        return self.testbed.scontrol_job(done.job_id)

    def run(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, **other: Any
    ) -> tuple[str, str]:
        """Run srun or salloc, which must succeed; return what it said."""
        done = self.testbed.run(command, env={**self.env(), **(env or {})}, **other)
        return done.stdout, done.stderr


@pytest.fixture(scope="module")
def hooked(testbed: Testbed) -> Iterator[Hooked]:
    with tempfile.TemporaryDirectory(prefix="hook-") as name:
        Path(name).chmod(0o755)
        site = Hooked(testbed, Path(name))
        site.hook("install")
        yield site
        site.hook("remove")
        testbed.reset()


@pytest.fixture
def daemon(hooked: Hooked) -> Iterator[HookDaemon]:
    with HookDaemon(hooked.socket) as listening:
        yield listening
    hooked.testbed.run(["scancel", "--quiet", "--state=PENDING"])


def test_the_filter_sends_what_the_user_set_and_nothing_else(
    hooked: Hooked, daemon: HookDaemon
) -> None:
    config = hooked.testbed.home() / ".config" / "advisor"
    config.mkdir(parents=True, exist_ok=True)
    (config / "choices.json").write_text('{"version": 1, "goal": "power"}')
    text = "#!/bin/bash\n#SBATCH -t 10\nsrun ./app $1\n"
    hooked.sbatch(
        "-n4", "--job-name=a b", script=text, script_args=["x y", 'q"t'],
        env={"OMP_NUM_THREADS": "7", "ADVISOR_GOAL": "power", "SECRET": "1"},
    )  # fmt: skip
    (config / "choices.json").unlink()
    [request] = daemon.asked()
    options = request.pop("options")
    argv = options.pop("argv")
    assert options == {"hold": "set", "job-name": "a b", "ntasks": "4", "time": "00:10:00"}
    assert argv == request["argv"] == [request["script_path"], "x y", 'q"t']
    assert Path(request["script_path"]).read_text() == request["script"] == text
    assert request["env"] == {"OMP_NUM_THREADS": "7", "ADVISOR_GOAL": "power"}
    assert json.loads(request["choices"]) == {"version": 1, "goal": "power"}
    assert request["cwd"] == str(hooked.testbed.home())
    for key, value in {
        "v": 1, "op": "decide", "scheduler": "slurm", "hook": "cli_filter", "type": "sbatch",
        "truncated": False, "het": False,
    }.items():  # fmt: skip
        assert request[key] == value


@pytest.mark.parametrize("user", [None, "nobody"])
def test_a_batch_job_is_rewritten_stamped_and_told(
    hooked: Hooked, daemon: HookDaemon, user: str | None
) -> None:
    daemon.reply = lambda _: answer(
        {"constraint": "skylake", "cpu-freq": CAP, "cpus-per-task": "10", "nodes": "2",
         "ntasks-per-node": "2", "ntasks": "4"},
        {"OMP_NUM_THREADS": "10", "SRUN_CPUS_PER_TASK": "10"},
        "advisor: stencil runs on skylake: energy \u221220 % expected; refuse with ADVISOR=off",
    )  # fmt: skip
    done = hooked.testbed.sbatch("-n1", script=SHOW, user=user, env=hooked.env(user))
    assert done.stderr.splitlines() == [
        "advisor: stencil runs on skylake: energy \u221220 % expected; refuse with ADVISOR=off"
    ]
    assert hooked.testbed.wait(done.job_id) == "COMPLETED"
    job = hooked.job(done)
    assert (job["Features"], job["NumNodes"], job["NumTasks"]) == ("skylake", "2", "4")
    assert (job["CPUs/Task"], job["NtasksPerN:B:S:C"].split(":")[0]) == ("10", "2")
    assert job["AdminComment"].split() == [STAMP]
    assert dict(line.split("=", 1) for line in hooked.testbed.output(done.job_id).splitlines()) == {
        "ADVISOR_DECISION": DECISION, "ADVISOR_STAMP": STAMP, "OMP_NUM_THREADS": "10",
        "SLURM_CPUS_PER_TASK": "10", "SLURM_CPU_FREQ_REQ": CAP, "SLURM_NPROCS": "4",
        "SLURM_NTASKS": "4", "SRUN_CPUS_PER_TASK": "10",
    }  # fmt: skip
    assert not daemon.asked("submitted")


def test_srun_is_rewritten_and_its_job_named_afterwards(hooked: Hooked, daemon: HookDaemon) -> None:
    daemon.reply = lambda r: (
        answer({"constraint": "skylake", "cpu-freq": CAP}, {"OMP_NUM_THREADS": "3"}, "advisor: x")
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
    daemon.reply = lambda _: answer(message="advisor: hello")
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
        return answer({} if het else {"nodes": "2"})

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


# -- job_submit ----------------------------------------------------------------------------------


@pytest.fixture
def past_the_filter(hooked: Hooked) -> Iterator[Callable[..., dict[str, str]]]:
    """Submit as a user whose own slurm.conf names no filter."""
    own = hooked.folder / "own"
    own.mkdir(exist_ok=True)
    text = (hooked.testbed.conf_dir / "slurm.conf").read_text()
    (own / "slurm.conf").write_text(re.sub("(?m)^CliFilterPlugins.*$", "", text))

    def submit(*args: str, hold: bool = True, **other: Any) -> dict[str, str]:
        env = {"SLURM_CONF": str(own / "slurm.conf"), **other.pop("env", {})}
        script = other.pop("script", "srun true\n")
        if hold:
            return hooked.job(hooked.sbatch(*args, script=script, env=env, **other))
        done = hooked.testbed.sbatch(*args, script=script, env=env, **other)
        assert hooked.testbed.wait(done.job_id) == "COMPLETED"
        return hooked.job(done)

    yield submit
    marker(hooked).unlink(missing_ok=True)


def marker(hooked: Hooked) -> Path:
    return hooked.socket.with_name("s.enforce")


def test_slurmctld_asks_nobody_unless_told_to(
    hooked: Hooked, daemon: HookDaemon, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    assert "AdminComment" not in past_the_filter()
    assert not daemon.requests


def test_enforce_rewrites_what_passed_by_the_filter(
    hooked: Hooked, daemon: HookDaemon, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    marker(hooked).touch()
    daemon.reply = lambda _: answer(
        {"constraint": "milan", "cpu-freq": "1500000-2000000", "cpus-per-task": "10",
         "nodes": "2", "ntasks-per-node": "2", "ntasks": "4"},
        {"OMP_NUM_THREADS": "10", "SRUN_CPUS_PER_TASK": "10"},
        "advisor: 100 % better",
    )  # fmt: skip
    job = past_the_filter(
        "-n1", "-c2", "--mem-per-cpu=60", "-t", "90", hold=False, user="nobody",
        script=SHOW + "srun sh -c 'echo step $SLURM_NTASKS $SLURM_CPUS_PER_TASK'\n",
    )  # fmt: skip
    assert (job["Features"], job["NumNodes"], job["NumTasks"]) == ("milan", "2", "4")
    assert (job["NumCPUs"], job["CPUs/Task"], job["MinCPUsNode"]) == ("40", "10", "20")
    assert job["AdminComment"] == STAMP
    shown = hooked.testbed.output(int(job["JobId"])).splitlines()
    assert [line for line in shown if "=" not in line] == ["step 4 10"] * 4
    assert dict(line.split("=", 1) for line in shown if "=" in line) == {
        "ADVISOR_DECISION": DECISION, "ADVISOR_STAMP": STAMP, "OMP_NUM_THREADS": "10",
        "SLURM_CPUS_PER_TASK": "10", "SLURM_CPU_FREQ_REQ": "1500000-2000000",
        "SLURM_NPROCS": "4", "SLURM_NTASKS": "4", "SRUN_CPUS_PER_TASK": "10",
    }  # fmt: skip
    [request] = daemon.asked()
    assert (request["hook"], request["uid"], request["stamp"]) == ("job_submit", 65534, "")
    assert request["options"] == {
        "job-name": Path(request["argv"][0]).name, "cpus-per-task": "2", "ntasks": "1",
        "mem-per-cpu": "60", "time": "90",
    }  # fmt: skip
    assert request["script"].startswith("#!/bin/bash\nenv | grep")


def test_enforce_leaves_a_job_its_daemon_has_seen(
    hooked: Hooked, daemon: HookDaemon, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    marker(hooked).touch()
    own = STAMP.replace("0123", "4567")
    daemon.reply = lambda r: answer(stamp=own) if r["hook"] == "cli_filter" else answer(stamp=None)
    assert hooked.job(hooked.sbatch())["AdminComment"] == own
    assert [(r["hook"], r.get("stamp")) for r in daemon.asked()] == [
        ("cli_filter", None), ("job_submit", own),
    ]  # fmt: skip
    assert "AdminComment" not in past_the_filter(env={"ADVISOR": "off"})
    assert len(daemon.requests) == 2


def test_a_forged_stamp_of_no_shape_is_left_out(
    hooked: Hooked, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    for forged in ("advisor:{}\nx", "hello", "advisor:{" + "x" * 2000 + "}"):
        assert "AdminComment" not in past_the_filter(env={"ADVISOR_STAMP": forged})


# -- the site's own scripts ------------------------------------------------------------------------

SITE_FILTER = """\
-- a site's own
GREETING = "site"
local function greet(text) io.stderr:write(GREETING, " ", text, "\\n") end
function slurm_cli_setup_defaults(options, early) greet("defaults") return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
  greet("pre")
  if options["job-name"] == "forbidden" then return slurm.ERROR end
  if options["job-name"] == "broken" then error("site's own error") end
  options["comment"] = "by site"
  return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job_id, step_id) greet("post") return slurm.SUCCESS end
return slurm.SUCCESS
"""
SITE_SUBMIT = """\
WORD = "site"
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "rejected" then slurm.log_user("no such jobs") return 2000 end
  job_desc.admin_comment = WORD .. " says so"
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm_job_submit(job_desc, part_list, modify_uid)
end
return slurm.SUCCESS
"""


@pytest.fixture
def with_site(hooked: Hooked, daemon: HookDaemon) -> Iterator[list[str]]:
    """The hooks installed over a site's own scripts; what these say alone of a job."""
    folder = hooked.testbed.conf_dir
    hooked.hook("remove")
    noop = {n: (folder / n).read_text() for n in ("cli_filter.lua", "job_submit.lua")}
    hooked.testbed.install_hook("cli_filter.lua", SITE_FILTER)
    hooked.testbed.install_hook("job_submit.lua", SITE_SUBMIT)
    alone = hooked.sbatch("-n1").stderr.splitlines()
    assert alone.count("site pre") == alone.count("site post") == 1
    hooked.hook("install")
    yield alone
    hooked.hook("remove")
    assert (folder / "cli_filter.lua").read_text() == SITE_FILTER
    assert (folder / "job_submit.lua").read_text() == SITE_SUBMIT
    for name, text in noop.items():
        hooked.testbed.install_hook(name, text)
    hooked.hook("install")


def test_a_sites_own_scripts_work_as_before(
    hooked: Hooked, daemon: HookDaemon, with_site: list[str]
) -> None:
    daemon.reply = lambda _: answer({"constraint": "milan"}, message="advisor: hello")
    done = hooked.sbatch("-n1")
    said = done.stderr.splitlines()
    said.remove("advisor: hello")
    assert said == with_site
    job = hooked.job(done)
    assert (job["Comment"], job["Features"]) == ("by site", "milan")
    assert job["AdminComment"] == f"site says so {STAMP}"
    update = ["scontrol", "update", f"JobId={done.job_id}", "TimeLimit=5"]
    hooked.testbed.run(update)
    assert hooked.job(done)["TimeLimit"] == "00:05:00"
    # its rejections are its own, and nobody is asked about such jobs
    count = len(daemon.requests)
    refused = hooked.testbed.sbatch("-Jforbidden", "--wrap=true", check=False, env=hooked.env())
    assert refused.job_id == 0
    assert len(daemon.requests) == count
    refused = hooked.testbed.sbatch("-Jrejected", "--wrap=true", check=False, env=hooked.env())
    assert refused.job_id == 0
    assert "no such jobs" in refused.stderr
    # its errors too: Slurm prints them and submits
    done = hooked.sbatch("-Jbroken")
    assert "site's own error" in done.stderr


def test_a_sites_script_broken_later_is_stood_in_for(
    hooked: Hooked, daemon: HookDaemon, with_site: list[str]
) -> None:
    folder = hooked.testbed.conf_dir
    (folder / "cli_filter.site.lua").write_text("function (")
    (folder / "job_submit.site.lua").write_text("error('at load')")
    later = (folder / "job_submit.lua").stat().st_mtime + 2
    os.utime(folder / "job_submit.lua", (later, later))
    done = hooked.sbatch()
    assert "the site's own script does not load" in done.stderr
    assert "site pre" in done.stderr
    assert hooked.job(done)["AdminComment"] == f"site says so {STAMP}"
    assert "its copy of the last install is used" in hooked.testbed.slurmctld_log()
    (folder / "cli_filter.site.lua").write_text(SITE_FILTER)
    (folder / "job_submit.site.lua").write_text(SITE_SUBMIT)


# -- with the real daemon -------------------------------------------------------------------------


def test_the_real_daemon_stamps_what_it_does_not_know(hooked: Hooked) -> None:
    log = hooked.folder / "serve.log"
    with log.open("w") as output:
        command = ["serve", "--socket", str(hooked.socket), "--db", str(hooked.folder / "a.db")]
        serving = subprocess.Popen(
            [sys.executable, "-m", "advisor", *command], cwd=ROOT, stderr=output
        )
        try:
            wait_until(lambda: "event=serving" in log.read_text(), 20, "the daemon")
            done = hooked.sbatch("-n2", "-Jsweep one", script="srun ./nobody-knows-me\n")
            stamp = read_stamp(hooked.job(done)["AdminComment"])
            srun = hooked.run(["srun", "-n1", "true"])
            assert srun[0] == ""
        finally:
            serving.terminate()
            assert serving.wait(20) == 0
    assert stamp is not None
    assert f"event=decision id={stamp['decision']} user=root" in log.read_text()
    assert "no-model" in stamp["reasons"]  # type: ignore[operator]
    assert "bad-request" not in log.read_text()
    job = str(done.job_id)
    hooked.testbed.run(["scancel", job])


# -- the command ---------------------------------------------------------------------------------


def test_status_says_how_it_is(hooked: Hooked, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: b'{"v":1,"pong":true,"version":"0"}\n'
    status = json.loads(hooked.hook("status", "--json").stdout)
    assert status["hooks"]["cli_filter.lua"]["state"] == "advisor"
    assert status["hooks"]["cli_filter.lua"]["calls"] == "cli_filter.site.lua"
    assert status["modules"] == "load (native)"
    assert status["inventory"] == "current"
    assert status["settings"]["socket"] == str(hooked.socket)
