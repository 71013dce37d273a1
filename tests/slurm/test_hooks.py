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
from testbed.daemons import go_first, wait_until

from advisor import __version__
from advisor.core.stamp import read_stamp
from advisor.paths import share
from advisor.schedulers.slurm.health import _options, unknown_options
from tests.schemas import check_request

ROOT = share("config").parent
CAP = "1200000-1800000"
SHOW = """\
env | grep -E '^(ADVISOR_|OMP_|MKL_|SLURM_(NTASKS|NPROCS|CPUS_PER_TASK|CPU_FREQ_REQ)=|SRUN_)' | sort
"""


@dataclass
class Hooked:
    """A cluster with the hooks on, and a folder every user may enter for sockets and files."""

    testbed: Testbed
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "s"

    def advisor(self, *arguments: str, conf: bool = False) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-m", "advisor", *arguments], cwd=ROOT, capture_output=True,
            text=True, check=False, env={**env, **self.testbed.env()} if conf else env,
        )  # fmt: skip

    def hook(self, action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        socket = () if action == "remove" else ("--socket", str(self.socket))
        done = self.advisor(
            "hook", action, "--scheduler", "slurm", "--dir", str(self.testbed.conf_dir),
            *socket, *arguments,
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
    check_request(request)
    options = request.pop("options")
    argv = options.pop("argv")
    assert options == {"hold": "set", "job-name": "a b", "ntasks": "4", "time": "00:10:00"}
    assert argv == request["argv"] == [request["script_path"], "x y", 'q"t']
    assert Path(request["script_path"]).read_text() == request["script"] == text
    slurm = {name: value for name, value in request["env"].items() if name.startswith("SLURM_")}
    assert slurm["SLURM_CONF"] == str(hooked.testbed.conf_dir / "slurm.conf")
    assert {k: v for k, v in request["env"].items() if k not in slurm} == {
        "OMP_NUM_THREADS": "7", "ADVISOR_GOAL": "power",
    }  # fmt: skip
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
        {"constraint": "skylake", "cpu-freq": CAP, "cpus-per-task": "10"},
        {"OMP_NUM_THREADS": "10", "MKL_NUM_THREADS": "5"},
        "advisor: stencil runs on skylake: energy \u221220 % expected; refuse with ADVISOR=off",
        to="always",
    )  # fmt: skip
    done = hooked.testbed.sbatch("-n1", script=SHOW, user=user, env=hooked.env(user))
    assert done.stderr.splitlines() == [
        "advisor: stencil runs on skylake: energy \u221220 % expected; refuse with ADVISOR=off"
    ]
    assert hooked.testbed.wait(done.job_id) == "COMPLETED"
    job = hooked.job(done)
    assert (job["Features"], job["NumNodes"], job["NumTasks"]) == ("skylake", "1", "1")
    assert (job["CPUs/Task"], job["NumCPUs"]) == ("10", "10")
    assert job["AdminComment"].split() == [STAMP]
    assert dict(line.split("=", 1) for line in hooked.testbed.output(done.job_id).splitlines()) == {
        "ADVISOR_DECISION": DECISION, "ADVISOR_STAMP": STAMP, "OMP_NUM_THREADS": "10",
        "ADVISOR_SET": "MKL_NUM_THREADS=5 OMP_NUM_THREADS=10 SLURM_CPUS_PER_TASK=10 "
        f"SLURM_CPU_FREQ_REQ={CAP}",
        "MKL_NUM_THREADS": "5", "SLURM_CPUS_PER_TASK": "10", "SLURM_CPU_FREQ_REQ": CAP,
        "SLURM_NPROCS": "1", "SLURM_NTASKS": "1",
    }  # fmt: skip
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


ENFORCED = answer(
    {"constraint": "milan", "cpu-freq": "1500000-2000000"}, {"OMP_NUM_THREADS": "10"},
    "advisor: 100 % better", to="always",
)  # fmt: skip


def test_enforce_writes_place_threads_and_cap_and_nothing_else(
    hooked: Hooked, daemon: HookDaemon, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    marker(hooked).touch()
    daemon.reply = lambda _: ENFORCED
    job = past_the_filter(
        "-n2", "-c2", "--mem=300", "-t", "90", hold=False, user="nobody",
        env={"OMP_NUM_THREADS": "2", "ADVISOR_ESTIMATED_NODE_TYPES": "refuse"},
        script=SHOW + "srun sh -c 'echo step $SLURM_NTASKS $OMP_NUM_THREADS $SLURM_CPU_FREQ_REQ'\n",
    )  # fmt: skip
    assert (job["Features"], job["NumNodes"], job["NumTasks"]) == ("milan", "1", "2")
    assert (job["NumCPUs"], job["CPUs/Task"], job["MinCPUsNode"]) == ("4", "2", "2")
    assert job["AdminComment"] == STAMP
    shown = hooked.testbed.output(int(job["JobId"])).splitlines()
    assert [line for line in shown if "=" not in line] == ["step 2 10 1500000-2000000"] * 2
    assert dict(line.split("=", 1) for line in shown if "=" in line) == {
        "ADVISOR_DECISION": DECISION, "ADVISOR_STAMP": STAMP, "OMP_NUM_THREADS": "10",
        "ADVISOR_ESTIMATED_NODE_TYPES": "refuse",
        "ADVISOR_SET": "OMP_NUM_THREADS=10<2 SLURM_CPU_FREQ_REQ=1500000-2000000",
        "SLURM_CPUS_PER_TASK": "2", "SLURM_CPU_FREQ_REQ": "1500000-2000000",
        "SLURM_NPROCS": "2", "SLURM_NTASKS": "2",
    }  # fmt: skip
    [request] = daemon.asked()
    assert (request["hook"], request["uid"], request["stamp"]) == ("job_submit", 65534, "")
    assert request["options"] == {
        "job-name": Path(request["argv"][0]).name, "cpus-per-task": "2", "ntasks": "2",
        "mem": "300", "time": "90",
    }  # fmt: skip
    assert request["env"] == {
        "OMP_NUM_THREADS": "2", "ADVISOR_ESTIMATED_NODE_TYPES": "refuse", "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2", "SLURM_CPUS_PER_TASK": "2",
    }  # fmt: skip
    assert request["script"].startswith("#!/bin/bash\nenv | grep")


UNASKED = "job_submit does not ask"
# What no plan may touch, and whether job_submit can see it; None: binds nothing.
BINDING = {
    "-x bdw1": True, "--nodelist=bdw1": True, "--switches=1": True, "--contiguous": True,
    "--prefer=broadwell": True, "--threads-per-core=1": True, "-B 2:14:1": True, "--tmp=1": True,
    "--time-min=1": True, "--oversubscribe": True, "--ntasks-per-socket=1": True,
    "--mem-per-cpu=10": True, "--mincpus=4": True, "--cpu-freq=1200000-1900000:Performance": True,
    "--hint=nomultithread": True, "--reservation=kept": True, "--gpus-per-task=0": True,
    "--core-spec=0": False, "--deadline=now+9days": False, "--distribution=plane=2": True,
    "--overcommit": False, "--spread-job": False, "SRUN_CPUS_PER_TASK=4": True,
    "SLURM_CPU_FREQ_REQ=1200000-1900000": True, "SLURM_HINT=nomultithread": True,
    "SLURM_CPU_BIND=map_cpu:0": True, "SLURM_NTASKS=28": True, "SLURM_NO_SUCH=1": False,
    "SBATCH_REQ_SWITCH=1": True, "SLURM_OVERCOMMIT=": True, "SLURM_EXPORT_ENV=NONE": UNASKED,
    "SBATCH_EXCLUSIVE=user": None, "SLURM_OVERCOMMIT=0": None, "SLURM_CLUSTER_NAME=x": None,
    "--comment=x": None, "--requeue": None, "--nice=5": None, "--begin=now+1hour": None,
    "--array=1-2": None, "--signal=USR1@60": None, "--mem=100": None, "--exclusive": None,
    "--cpu-freq=1200000-1900000": None, "--constraint=skylake": None, "-c2": None,
    "--open-mode=append": None, "--no-kill": None, "SLURM_NTASKS_HET_GROUP_1=3": None,
}  # fmt: skip
EVERYTHING = answer(
    {"constraint": "milan", "cpu-freq": "1500000-2000000"}, {"OMP_NUM_THREADS": "10"}
)


@pytest.fixture
def reservation(hooked: Hooked) -> Iterator[None]:
    create = "reservation=kept nodes=bdw1 users=root start=now duration=60 flags=ignore_jobs"
    hooked.testbed.run(["scontrol", "create", *create.split()])
    yield
    hooked.testbed.run(["scancel", "--quiet", "--state=PENDING"])
    hooked.testbed.run(["scontrol", "delete", "reservation=kept"])


@pytest.mark.parametrize("hook", ["filter", "enforce"])
@pytest.mark.usefixtures("reservation")
def test_what_binds_is_left_alone_by_both_hooks(
    hooked: Hooked,
    daemon: HookDaemon,
    past_the_filter: Callable[..., dict[str, str]],
    hook: str,
) -> None:
    daemon.reply = lambda _: EVERYTHING
    if hook == "enforce":
        marker(hooked).touch()
    wrong = []
    for what, seen in BINDING.items():
        name, _, value = what.partition("=")
        args, env = ((), {name: value}) if name[0] == "S" else (what.split(), {})
        asked = len(daemon.requests)
        if hook == "enforce":
            job = past_the_filter(*args, env=env)
        else:
            job = hooked.job(hooked.sbatch(*args, env=env))
        silent = hook == "enforce" and seen is UNASKED
        assert len(daemon.requests) == asked + (not silent), what
        plain = "skylake" if name == "--constraint" else "(null)"
        kept = seen is not None if hook == "filter" else seen
        if (job["Features"] == plain) != bool(kept):
            wrong.append((what, job["Features"]))
    assert not wrong


def test_enforce_takes_a_script_from_standard_input(
    hooked: Hooked, daemon: HookDaemon, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    past_the_filter()
    marker(hooked).touch()
    daemon.reply = lambda _: ENFORCED
    env = {"SLURM_CONF": str(hooked.folder / "own" / "slurm.conf"), **hooked.env()}
    text = "#!/bin/sh\nsrun true\n"
    done = hooked.testbed.run(["sbatch", "--hold", "--parsable"], input=text, env=env)
    job = hooked.testbed.scontrol_job(int(done.stdout))
    assert (job["AdminComment"], job["Features"]) == (STAMP, "milan")
    [request] = daemon.asked()
    assert (request["argv"], request["script_path"], request["script"]) == ([], "", text)


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


# -- jobs submitted from inside a job -------------------------------------------------------------

LOOK = "env | grep -E '^(ADVISOR|OMP_|SLURM_CPU_FREQ_REQ|SLURM_ADVISOR|SLURM_CPUS_PER_TASK)' | sort"
PARENT = f"""\
cat > child.sh <<'END'
#!/bin/sh
{LOOK}
END
submit() {{ echo "$1 $(sbatch --parsable -Jchild -o "$1" child.sh)"; }}
export PATH=/usr/bin:/bin
{LOOK}
submit plain
ADVISOR=off submit off
OMP_NUM_THREADS=5 submit changed
"""


def family(
    hooked: Hooked, daemon: HookDaemon, submit: Callable[[], int], advised: bytes
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Run a job that submits others, advised and not; return what it and each of them saw set."""
    seen = []
    for reply in (advised, answer()):

        def decide(request: dict[str, Any], reply: bytes = reply) -> bytes:
            return answer() if request["options"].get("job-name") == "child" else reply

        daemon.reply = decide
        found: dict[str, list[str]] = {"inside": []}
        for line in hooked.testbed.output(submit()).splitlines():
            name, _, number = line.partition(" ")
            if "=" in name:
                found["inside"].append(line)
            else:
                assert hooked.testbed.wait(int(number)) == "COMPLETED"
                found[name] = (hooked.testbed.home() / name).read_text().splitlines()
        ours = ("ADVISOR_DECISION=", "ADVISOR_STAMP=", "SLURM_ADVISOR_STAMP=")
        seen.append({k: [x for x in v if not x.startswith(ours)] for k, v in found.items()})
    assert [r["options"].get("job-name") for r in daemon.asked()[1:3]] == ["child", "child"]
    return seen[0], seen[1]


@pytest.mark.parametrize(("export", "own"), [("ALL", ""), ("ALL", "28"), ("NONE", "28")])
def test_a_job_from_inside_an_advised_one_is_as_from_any(
    hooked: Hooked, daemon: HookDaemon, export: str, own: str
) -> None:
    def submit() -> int:
        env = {**hooked.env(), **({"OMP_NUM_THREADS": own} if own else {})}
        args = [f"--export={export}", *(["--cpu-freq=1200000-2000000"] if own else [])]
        done = hooked.testbed.sbatch(*args, script=PARENT, env=env)
        assert hooked.testbed.wait(done.job_id) == "COMPLETED"
        return done.job_id

    plan = answer({"cpu-freq": CAP}, {"OMP_NUM_THREADS": "10"})
    advised, plain = family(hooked, daemon, submit, plan)
    inside = advised.pop("inside")
    assert {"OMP_NUM_THREADS=10", f"SLURM_CPU_FREQ_REQ={CAP}"} <= set(inside)
    assert any("ADVISOR_SET=" in line for line in inside)
    del plain["inside"]
    assert advised == plain
    assert "OMP_NUM_THREADS=5" in advised["changed"]
    sent = [r["env"] for r in daemon.asked()[1:3]]
    assert [e.get("SLURM_CPU_FREQ_REQ", "") for e in sent] == ["1200000-2000000" if own else ""] * 2
    assert [e.get("OMP_NUM_THREADS", "") for e in sent] == [own if export == "ALL" else "", "5"]


def test_a_job_from_inside_an_enforced_one_is_as_from_any(
    hooked: Hooked, daemon: HookDaemon, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    marker(hooked).touch()
    to_filter = f"export SLURM_CONF={hooked.testbed.conf_dir / 'slurm.conf'}\n"

    def submit() -> int:
        own = f"export XDG_RUNTIME_DIR={hooked.env()['XDG_RUNTIME_DIR']}\n"
        return int(past_the_filter(hold=False, script=to_filter + own + PARENT)["JobId"])

    plan = answer({"cpu-freq": CAP}, {"OMP_NUM_THREADS": "10"})
    advised, plain = family(hooked, daemon, submit, plan)
    assert f"ADVISOR_SET=OMP_NUM_THREADS=10 SLURM_CPU_FREQ_REQ={CAP}" in advised.pop("inside")
    del plain["inside"]
    assert advised == plain


# -- where the line goes --------------------------------------------------------------------------


def at_a_terminal(hooked: Hooked, command: str) -> str:
    """Run a shell command with a terminal; return all it said."""
    env = {**hooked.testbed.env(), **hooked.env()}
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], env=env, cwd=hooked.testbed.home(), text=True,
        stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
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
    daemon.reply = lambda _: answer({"constraint": "milan"}, message="advisor: hello", to="always")
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
        go_first(serving.pid)
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
    assert f"event=decision id={stamp.id} user=root" in log.read_text()
    assert "no-model" in stamp.codes
    assert "bad-request" not in log.read_text()
    job = str(done.job_id)
    hooked.testbed.run(["scancel", job])


# -- the command ---------------------------------------------------------------------------------


def test_all_options_of_this_slurm_are_known(hooked: Hooked, tmp_path: Path) -> None:
    found = hooked.run(["sbatch", "--help"])[0] + hooked.run(["srun", "--help"])[0]
    assert len(found) > 5000
    assert unknown_options(found + hooked.run(["salloc", "--help"])[0]) == []
    assert unknown_options(found + "  --new_way=x, -y,--other") == ["--new-way", "--other"]
    done = hooked.advisor("doctor", "--db", str(tmp_path / "a.db"), "--json", conf=True)
    said = {c["name"]: c["text"] for c in json.loads(done.stdout)["checks"]}
    assert said["options"] == "all options of this sbatch, srun and salloc are known"


def test_doctor_says_which_key_an_option_of_the_site_s_own_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "  --project-code=x  billed project\n  --new_way\n"
    monkeypatch.setattr("advisor.schedulers.slurm.health.run_command", lambda *_, **__: text)
    [check] = _options(())
    assert check.state == "warn" and "--new-way, --project-code" in check.text
    assert "understood_options: {new-way: harmless}" in check.todo
    [check] = _options({"new-way"})
    assert "--new-way" not in check.text and "{project-code: harmless}" in check.todo
    [check] = _options({"new-way", "project-code"})
    assert check.state == "ok" and check.text.endswith("--new-way, --project-code from site.yaml")


def test_doctor_names_what_users_cannot_read_and_hooks_of_another_advisor(
    hooked: Hooked, tmp_path: Path
) -> None:
    folder = hooked.testbed.conf_dir

    def hooks() -> list[dict[str, str]]:
        done = hooked.advisor("doctor", "--db", str(tmp_path / "a.db"), "--json", conf=True)
        return [c for c in json.loads(done.stdout)["checks"] if c["name"] == "hook"]

    def mended(path: Path, text: str) -> None:
        [check] = [c for c in hooks() if c["state"] == "fail"]
        assert check["text"].startswith(f"other users cannot read {path}: {text}")
        subprocess.run(["sh", "-c", check["todo"]], check=True)
        assert [c["state"] for c in hooks()] == ["ok", "ok"]

    assert [c["state"] for c in hooks()] == ["ok", "ok"]
    stub = folder / "cli_filter.lua"
    stub.chmod(0o600)
    refused = hooked.testbed.sbatch("--hold", script="true\n", user="nobody", check=False)
    assert refused.job_id == 0 and "cli_filter" in refused.stderr
    mended(stub, "each of their submissions fails")
    taken = hooked.testbed.sbatch("--hold", script="true\n", user="nobody")
    hooked.testbed.run(["scancel", str(taken.job_id)])
    [name] = re.findall(r'"/advisor/([^"]+)"', stub.read_text())
    modules = folder / "advisor" / name
    (modules / "rewrite.lua").chmod(0o640)
    mended(modules, "their jobs go through unchanged")
    modules.parent.chmod(0o700)
    mended(modules, "their jobs go through unchanged")
    source = (modules / "rewrite.lua").read_bytes()
    (modules / "rewrite.lua").write_bytes(source + b"-- another release\n")
    stub.write_text(stub.read_text().replace(f"advisor {__version__} (", "advisor 0.1.0 ("))
    found = hooks()
    assert [c["state"] for c in found] == ["warn", "warn"]
    assert f"{stub} (0.1.0) and its modules are not those of this advisor" in found[0]["text"]
    assert found[0]["todo"] == f"advisor hook install --scheduler slurm --dir {folder}"
    hooked.hook("install")
    assert [c["state"] for c in hooks()] == ["ok", "ok"]


def test_status_says_how_it_is(hooked: Hooked, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: b'{"v":1,"pong":true,"version":"0"}\n'
    status = json.loads(hooked.hook("status", "--json").stdout)
    assert status["hooks"]["cli_filter.lua"]["state"] == "advisor"
    assert status["hooks"]["cli_filter.lua"]["calls"] == "cli_filter.site.lua"
    assert status["modules"] == "load (native)"
    assert status["inventory"] == "current"
    assert status["settings"]["socket"] == str(hooked.socket)
