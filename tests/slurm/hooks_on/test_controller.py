"""The hook in the controller: enforced decisions, and jobs submitted from inside a job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hook_daemon import DECISION, STAMP, HookDaemon, answer
from hooked_cluster import CAP, SHOW, Hooked


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
    {"constraint": "milan", "cpu-freq": "1500000-2000000"},
    {"OMP_NUM_THREADS": "1"},
    "advisor: 100 % better",
    to="always",
)


def test_enforce_writes_place_threads_and_cap_and_nothing_else(
    hooked: Hooked, daemon: HookDaemon, past_the_filter: Callable[..., dict[str, str]]
) -> None:
    marker(hooked).touch()
    daemon.reply = lambda _: ENFORCED
    job = past_the_filter(
        "-n2",
        "-c2",
        "--mem=300",
        "-t",
        "90",
        hold=False,
        user="nobody",
        env={"OMP_NUM_THREADS": "2", "ADVISOR_ESTIMATED_NODE_TYPES": "refuse"},
        script=SHOW + "srun sh -c 'echo step $SLURM_NTASKS $OMP_NUM_THREADS $SLURM_CPU_FREQ_REQ'\n",
    )
    assert (job["Features"], job["NumNodes"], job["NumTasks"]) == ("milan", "1", "2")
    assert (job["NumCPUs"], job["CPUs/Task"], job["MinCPUsNode"]) == ("4", "2", "2")
    assert job["AdminComment"] == STAMP
    shown = hooked.testbed.output(int(job["JobId"])).splitlines()
    assert [line for line in shown if "=" not in line] == ["step 2 1 1500000-2000000"] * 2
    assert dict(line.split("=", 1) for line in shown if "=" in line) == {
        "ADVISOR_DECISION": DECISION,
        "ADVISOR_STAMP": STAMP,
        "OMP_NUM_THREADS": "1",
        "ADVISOR_ESTIMATED_NODE_TYPES": "refuse",
        "ADVISOR_SET": "OMP_NUM_THREADS=1<2 SLURM_CPU_FREQ_REQ=1500000-2000000",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_CPU_FREQ_REQ": "1500000-2000000",
        "SLURM_NPROCS": "2",
        "SLURM_NTASKS": "2",
    }
    [request] = daemon.asked()
    assert (request["hook"], request["uid"], request["stamp"]) == ("job_submit", 65534, "")
    assert request["options"] == {
        "job-name": Path(request["argv"][0]).name,
        "cpus-per-task": "2",
        "ntasks": "2",
        "mem": "300",
        "time": "90",
    }
    assert request["env"] == {
        "OMP_NUM_THREADS": "2",
        "ADVISOR_ESTIMATED_NODE_TYPES": "refuse",
        "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2",
        "SLURM_CPUS_PER_TASK": "2",
    }
    assert request["script"].startswith("#!/bin/bash\nenv | grep")


UNASKED = "job_submit does not ask"
# What no plan may touch, and whether job_submit can see it; None: binds nothing.
BINDING = {
    "-x bdw1": True,
    "--nodelist=bdw1": True,
    "--switches=1": True,
    "--contiguous": True,
    "--prefer=broadwell": True,
    "--threads-per-core=1": True,
    "-B 2:14:1": True,
    "--tmp=1": True,
    "--time-min=1": True,
    "--oversubscribe": True,
    "--ntasks-per-socket=1": True,
    "--mem-per-cpu=10": True,
    "--mincpus=4": True,
    "--cpu-freq=1200000-1900000:Performance": True,
    "--hint=nomultithread": True,
    "--reservation=kept": True,
    "--gpus-per-task=0": True,
    "--core-spec=0": False,
    "--deadline=now+9days": False,
    "--distribution=plane=2": True,
    "--overcommit": False,
    "--spread-job": False,
    "SRUN_CPUS_PER_TASK=4": True,
    "SLURM_CPU_FREQ_REQ=1200000-1900000": True,
    "SLURM_HINT=nomultithread": True,
    "SLURM_CPU_BIND=map_cpu:0": True,
    "SLURM_NTASKS=28": True,
    "SLURM_NO_SUCH=1": False,
    "SBATCH_REQ_SWITCH=1": True,
    "SLURM_OVERCOMMIT=": True,
    "SLURM_EXPORT_ENV=NONE": UNASKED,
    "SBATCH_EXCLUSIVE=user": None,
    "SLURM_OVERCOMMIT=0": None,
    "SLURM_CLUSTER_NAME=x": None,
    "--comment=x": None,
    "--requeue": None,
    "--nice=5": None,
    "--begin=now+1hour": None,
    "--array=1-2": None,
    "--signal=USR1@60": None,
    "--mem=100": None,
    "--exclusive": None,
    "--cpu-freq=1200000-1900000": None,
    "--constraint=skylake": None,
    "-c2": None,
    "--open-mode=append": None,
    "--no-kill": None,
    "SLURM_NTASKS_HET_GROUP_1=3": None,
}
EVERYTHING = answer(
    {"constraint": "milan", "cpu-freq": "1500000-2000000"}, {"OMP_NUM_THREADS": "2"}
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


BEYOND = {
    "fewer cores": (answer({"cpus-per-task": "10"}, {"OMP_NUM_THREADS": "10"}), ("-c14",)),
    "more cores": (answer({"cpus-per-task": "20"}), ("-c14",)),
    "more threads": (answer({"constraint": "milan"}, {"OMP_NUM_THREADS": "15"}), ("-c14",)),
    "more threads than a node has": (answer({}, {"OMP_NUM_THREADS": "99999"}), ()),
    "more threads than its user said": (answer({}, {"MKL_NUM_THREADS": "8"}), ()),
}


@pytest.mark.parametrize("what", BEYOND)
@pytest.mark.parametrize("hook", ["filter", "enforce"])
def test_neither_hook_gives_a_job_more_than_it_has_nor_does_the_controller_shrink_it(
    hooked: Hooked,
    daemon: HookDaemon,
    past_the_filter: Callable[..., dict[str, str]],
    hook: str,
    what: str,
) -> None:
    """Whatever the daemon says; only the filter may make a request smaller."""
    reply, args = BEYOND[what]
    daemon.reply = lambda _: reply
    env = {"MKL_NUM_THREADS": "7"}
    if hook == "enforce":
        marker(hooked).touch()
        job = past_the_filter(*args, env=env)
    else:
        job = hooked.job(hooked.sbatch(*args, env=env))
    assert len(daemon.requests) == 1
    shrunk = what == "fewer cores" and hook == "filter"
    assert job["Features"] == "(null)"
    assert job["NumCPUs"] == ("10" if shrunk else "14" if args else "1")
    assert ("AdminComment" in job) == shrunk  # of a plan that is refused nothing is written


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
        ("cli_filter", None),
        ("job_submit", own),
    ]
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
