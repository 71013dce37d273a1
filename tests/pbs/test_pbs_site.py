"""A PBS site: discover, install, status, doctor, remove; then a job through the advisor whole."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import fake_pbs
import fake_qmgr
import fake_server
import interpreters
import pytest
from hooked import ROOT, answering, daemon, plan
from posed_sys import PosedSys

from advisor.core.protocol import call
from advisor.schedulers import command as scheduler_command
from advisor.schedulers.pbs import control
from advisor.schedulers.pbs import scheduler as backend
from advisor.schedulers.pbs.accounting import record_of
from advisor.schedulers.pbs.availability import hooks_before
from advisor.schedulers.pbs.qsub import default_variables
from advisor.store.reader import Reader
from tests.forked import forked
from tests.verdicts import verdict_of
from tests.waiting import wait_for

Run = Callable[..., Any]
ANSWER = scheduler_command.answer
NODES = {
    "n1": {"ncpus": 28, "mem": "65536000kb", "node_type": "bdw"},
    "n2": {"ncpus": 28, "mem": "65536000kb", "node_type": "bdw"},
    "k1": {"ncpus": 64, "mem": "256gb", "node_type": "skl"},
}


class Site:
    """A fake complex in PATH, with a posed /sys for its execution hosts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "pbs"
        interpreters.start()
        programs = fake_pbs.install(self.root, nodes=NODES)
        self.sys = PosedSys(self.root, cpus=28)
        self.sys.rapl({"intel-rapl:0": 0})
        (self.root / "home" / "sched_priv").mkdir(parents=True)
        self.schedule("ncpus, mem, arch, host, vnode, node_type")
        (self.root / "pbs.conf").write_text(
            f"PBS_HOME={self.root / 'home'}\nPBS_EXEC={self.root}\nPBS_SERVER=pbs1\n"
        )
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PBS_CONF_FILE", str(self.root / "pbs.conf"))
        for name in ("PBS_HOME", "PBS_EXEC"):
            monkeypatch.delenv(name, raising=False)
        for module in (scheduler_command, control):  # as one names the other's
            monkeypatch.setattr(module, "answer", self.answer)

    def answer(
        self, argv: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> scheduler_command.CommandAnswer:
        """Run a program of the complex as a fork of this process: it need load no interpreter.

        qmgr, which is asked a hundred times for one site and reads no environment, runs here. Of
        others, of the daemon's and of what tests start themselves, all is as ever.
        """
        program = Path(argv[0])
        text = fake_pbs.text_of(self.root, program.name)
        if program.parent != self.root / "bin" or program.read_text() != text:
            return ANSWER(argv, environment, timeout_s)
        if program.name == "qmgr":
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                code = fake_pbs.run(self.root, "qmgr", list(argv[1:]))
            return scheduler_command.CommandAnswer(code, out.getvalue(), err.getvalue())
        done = forked(lambda: fake_pbs.run(self.root, program.name, list(argv[1:])), environment)
        return scheduler_command.CommandAnswer(done.returncode, done.stdout, done.stderr)

    def schedule(self, resources: str) -> None:
        path = self.root / "home" / "sched_priv" / "sched_config"
        path.write_text(f'# a comment\nresources: "{resources}"\n')

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "server.json").read_text())
        return found

    def change(self, **server: str) -> None:
        state = self.state()
        state["server"].update(server)
        (self.root / "server.json").write_text(json.dumps(state))

    def log(self) -> str:
        return (self.root / "log").read_text()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


# -- install and remove --------------------------------------------------------------------------


def test_discover(site: Site, advisor: Run) -> None:
    done = advisor("site", "discover", "--scheduler", "pbs", "--json")
    assert done.code == 0, done.err
    found = {t["name"]: t for t in done.json()["node_types"]}
    assert found["bdw"]["feature"] == "node_type=bdw"
    assert found["bdw"]["nodes"] == ["n1", "n2"]
    assert found["skl"]["cores"] == 64
    assert found["skl"]["default_partition"] == "workq"


def test_install_says_what_it_does_and_does_it(site: Site, advisor: Run, tmp_path: Path) -> None:
    folder = tmp_path / "config" / "pbs"
    before = site.state()
    dry = advisor("hook", "install", "--scheduler", "pbs", "--dry-run")
    assert dry.code == 0, dry.err
    assert "would qmgr: create resource advisor_stamp type=string,flag=rm" in dry.out
    assert site.state() == before
    assert not folder.exists()
    done = advisor(
        "hook", "install", "--scheduler", "pbs", "--socket", "/run/x", "--deadline", "1s"
    )
    assert done.code == 0, done.err
    assert done.out.endswith("done\n")
    state = site.state()
    assert state["resources"]["cpu_freq_mhz"] == {"type": "long", "flag": "m"}
    hooks = state["hooks"]
    assert hooks["advisor"]["event"] == ["queuejob", "postqueuejob"]
    assert hooks["advisor"]["enabled"] == "true"
    assert int(hooks["advisor"]["alarm"]) > 1
    assert "execjob_epilogue" in hooks["advisor_exec"]["event"]
    assert "execjob_preresume" in hooks["advisor_exec"]["event"]
    assert hooks["advisor_exec"]["freq"] == "60"
    config = json.loads(hooks["advisor"]["config"])
    assert (config["socket"], config["deadline_s"]) == ("/run/x", 1.0)
    assert config["host_resources"] == ["node_type"]
    assert "workq" in json.loads(config["inventory"])["queues"]
    commands = (folder / "install.qmgr").read_text().splitlines()
    assert commands == [line[6:] for line in done.out.splitlines() if line.startswith("qmgr: ")]
    for hook, name in (("advisor", "advisor_queuejob.py"), ("advisor_exec", "advisor_execjob.py")):
        assert hooks[hook]["code"] == (ROOT / "hooks" / "pbs" / name).read_text()


def test_remove_takes_away_what_an_install_made_and_no_more(
    site: Site, advisor: Run, tmp_path: Path
) -> None:
    state = site.state()
    state["resources"]["energy_j"] = {"type": "long", "flag": "m"}  # the site's own
    (site.root / "server.json").write_text(json.dumps(state))
    before = site.state()
    for _ in range(2):
        assert advisor("hook", "install", "--scheduler", "pbs").code == 0
    state = site.state()
    state["jobs"]["1.pbs1"] = {"job_state": "F", "Resource_List": {"cpu_freq_mhz": 1900}}
    (site.root / "server.json").write_text(json.dumps(state))
    done = advisor("hook", "remove", "--scheduler", "pbs")
    assert (done.code, done.err) == (0, "")
    assert "note: cpu_freq_mhz stays for now, it is in use" in done.out
    assert set(site.state()["resources"]) == {"node_type", "energy_j", "cpu_freq_mhz"}
    state = site.state()
    state["jobs"] = {}
    (site.root / "server.json").write_text(json.dumps(state))
    assert advisor("hook", "remove", "--scheduler", "pbs").code == 0
    assert site.state() == before
    assert not (tmp_path / "config" / "pbs").exists()
    assert advisor("hook", "remove", "--scheduler", "pbs").out == "nothing to do\n"


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["create resource energy_j type=float,flag=m"], "resource energy_j is of type float"),
        (["create hook advisor"], None),
    ],
)
def test_what_is_in_the_way(
    site: Site, advisor: Run, commands: list[str], said: str | None, tmp_path: Path
) -> None:
    state = site.state()
    for command in commands:
        fake_qmgr.manage(fake_server.Complex(site.root), state, command)
    if said is None:
        state["hooks"]["advisor"]["code"] = "print('a site hook')"
        said = "the server has a hook advisor that is not the advisor's"
    (site.root / "server.json").write_text(json.dumps(state))
    done = advisor("hook", "install", "--scheduler", "pbs")
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") == 1
    assert site.state() == state
    assert not (tmp_path / "config" / "pbs").exists()


def test_notes_say_what_pbs_lacks(site: Site, advisor: Run) -> None:
    site.schedule("ncpus, mem")
    site.change(job_history_enable="False")
    notes = advisor("hook", "install", "--scheduler", "pbs", "--dry-run", "--json").json()["notes"]
    assert "sched_config's line `resources:` lacks node_type" in notes[0]
    assert "job_history_enable=True" in notes[1]


def test_a_release_of_pbs_without_the_later_events(site: Site, advisor: Run) -> None:
    """It has the others, and doctor says what goes without each."""
    state = site.state()
    known = [e for e in fake_qmgr.EVENTS if e not in ("postqueuejob", "execjob_preresume")]
    state["hook_events"] = known
    (site.root / "server.json").write_text(json.dumps(state))
    done = advisor("hook", "install", "--scheduler", "pbs", "--socket", "/run/x")
    assert done.code == 0, done.err
    hooks = site.state()["hooks"]
    assert hooks["advisor"]["event"] == ["queuejob"]
    execution = hooks["advisor_exec"]["event"]
    assert {"execjob_begin", "execjob_abort", "execjob_postsuspend"} < set(execution)
    assert "execjob_preresume" not in execution
    told = [c for c in advisor("doctor", "--json").json()["checks"] if c["name"] == "hook"]
    assert {c["state"] for c in told} == {"ok"}
    texts = "; ".join(c["text"] for c in told)
    assert "advisor has no postqueuejob: what a hook behind it changes" in texts
    assert "advisor_exec has no execjob_preresume: a job that was suspended" in texts
    state = site.state()
    state["hooks"]["advisor_exec"]["event"].remove("execjob_epilogue")
    (site.root / "server.json").write_text(json.dumps(state))
    told = [c for c in advisor("doctor", "--json").json()["checks"] if c["state"] == "warn"]
    assert "hook advisor_exec lacks execjob_epilogue" in [c["text"] for c in told]


LATER = """\
import pbs
job = pbs.event().job
job.Resource_List["select"] = pbs.select(str(job.Resource_List["select"]) + ":mpiprocs=28")
pbs.event().accept()
"""


def test_a_later_hook_that_adds_ranks_is_noticed_undone_and_told(
    site: Site, advisor: Run, tmp_path: Path
) -> None:
    """28 ranks of 20 threads would be 560 on 28 cores."""
    config, work, socket = tmp_path / "config", tmp_path / "work", tmp_path / "s"
    for folder in (config, work):
        folder.mkdir()
    (config / "site.yaml").write_text(SITE)
    for words in (("discover", "--scheduler", "pbs"), ("apply",)):
        assert advisor("site", *words).code == 0
    (work / "job.sh").write_text("#!/bin/sh\necho threads $OMP_NUM_THREADS\n")
    (work / "later.py").write_text(LATER)
    done = advisor("hook", "install", "--scheduler", "pbs", "--socket", socket)
    assert done.code == 0, done.err
    state = site.state()
    files = {"breaker": str(tmp_path / "breaker"), "altered": str(tmp_path / "altered")}
    text = json.dumps({**json.loads(state["hooks"]["advisor"]["config"]), **files})
    state["hooks"]["advisor"]["config"] = text
    (site.root / "home/server_priv/hooks/advisor.CF").write_text(text)
    (site.root / "server.json").write_text(json.dumps(state))
    asked = "1:ncpus=28:node_type=bdw"
    rewrite = {"select": f"{asked}:ompthreads=20", "cpu_freq_mhz": "1800"}
    qsub = ("-l", f"select={asked}", "-l", "place=excl", "job.sh")
    with daemon(socket, answering(plan(rewrite))):
        left = ended_job(submit(work, *qsub))
        for line in (
            "create hook later",
            "set hook later event = queuejob",
            "set hook later order = 900",
            f"import hook later application/x-python default {work}/later.py",
        ):
            subprocess.run(["qmgr", "-c", line], check=True, timeout=60)
        job_id = submit(work, *qsub)
        changed = ended_job(job_id)
    assert left["Resource_List"]["select"] == rewrite["select"]
    assert "+altered" not in left["Resource_List"]["advisor_stamp"]
    assert changed["Resource_List"]["select"] == changed["schedselect"] == f"{asked}:mpiprocs=28"
    assert changed["Resource_List"]["cpu_freq_mhz"] == 0
    assert (site.root / "spool" / f"{job_id}.out").read_text() == "threads 28\n"  # as written
    record = record_of(job_id, changed)
    assert record is not None and record.altered == "cpu_freq_mhz, select"
    told = [c for c in advisor("doctor", "--json").json()["checks"] if c["name"] == "hook"]
    (warned,) = (c for c in told if "behind the advisor's" in c["text"])
    assert (warned["state"], f"{job_id} last (select)" in warned["text"]) == ("warn", True)
    assert f"rm {tmp_path / 'altered'}" in warned["todo"]


def test_doctor_knows_old_steps_and_sharing(site: Site, advisor: Run, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "site.yaml").write_text(SITE)
    assert advisor("site", "discover", "--scheduler", "pbs").code == 0
    assert advisor("site", "apply").code == 0
    done = advisor("hook", "install", "--scheduler", "pbs", "--socket", "/run/x")
    assert done.code == 0 and "held to their steps" not in done.out
    installed = json.loads(site.state()["hooks"]["advisor"]["config"])
    assert installed["steps_mhz"]["node_type=bdw"] == [1200, 1800, 2200]
    (config / "site.yaml").write_text(SITE.replace("1.8 GHz", "1.9 GHz"))
    assert advisor("site", "apply").code == 0
    state = site.state()
    state["nodes"]["n1"]["sharing"] = "ignore_excl"
    (site.root / "server.json").write_text(json.dumps(state))
    told = {c["text"] for c in advisor("doctor", "--json").json()["checks"] if c["state"] == "warn"}
    assert any("other frequency steps than the store" in text for text in told)
    assert any("other hosts or sharing" in text for text in told)
    assert advisor("hook", "install", "--scheduler", "pbs", "--socket", "/run/x").code == 0
    execution = json.loads(site.state()["hooks"]["advisor_exec"]["config"])
    assert execution["sharings"] == {"n1": ["ignore_excl"]}


def test_status_and_doctor(site: Site, advisor: Run) -> None:
    status = advisor("hook", "status", "--scheduler", "pbs", "--json").json()
    assert status["hooks"]["advisor"]["state"] == "absent"
    assert status["resources"].startswith("not there: advisor_stamp")
    assert advisor("hook", "install", "--scheduler", "pbs", "--socket", "/run/x").code == 0
    status = advisor("hook", "status", "--scheduler", "pbs", "--json").json()
    assert status["hooks"]["advisor"]["enabled"] is True
    assert (status["resources"], status["inventory"], status["breaker"]) == (
        "there",
        "current",
        "closed",
    )
    assert "is `advisor serve` running?" in status["daemon"]
    state = site.state()
    state["nodes"]["n3"] = dict(NODES["n1"])
    state["hooks"]["advisor_exec"]["enabled"] = "false"
    (site.root / "server.json").write_text(json.dumps(state))
    lines = advisor("hook", "status", "--scheduler", "pbs").out
    assert "hook advisor_exec: advisor" in lines and "not enabled" in lines
    assert "inventory: old (run: advisor hook install)" in lines
    advisor("site", "discover", "--scheduler", "pbs")
    checks = advisor("doctor", "--json").json()["checks"]
    told = {(c["name"], c["state"]): c["text"] for c in checks}
    assert told["pbs", "ok"] == "PBS, server pbs1"
    assert "are there" in told["resources", "ok"]
    assert "advisor is installed" in told["hook", "ok"]
    assert any("advisor_exec is not enabled" in c["text"] for c in checks)
    assert "nodes as in the inventory" in told["cluster", "ok"]
    assert told["daemon", "fail"].startswith("no daemon answers at /run/x")


def test_doctor_says_what_is_wrong(site: Site, advisor: Run) -> None:
    site.schedule("ncpus, mem")
    site.change(job_history_enable="False")
    checks = advisor("doctor", "--json").json()["checks"]
    told = {(c["name"], c["state"]): c["text"] for c in checks}
    assert "forgets jobs" in told["accounting", "fail"]
    assert "there is no advisor_stamp" in told["resources", "warn"]
    assert "sched_config does not list node_type" in told["scheduler", "warn"]
    assert "there is no hook advisor" in next(c["text"] for c in checks if c["name"] == "hook")


def test_doctor_names_hooks_of_another_advisor(site: Site, advisor: Run) -> None:
    assert advisor("hook", "install", "--scheduler", "pbs", "--socket", "/run/x").code == 0
    kept = site.root / "home" / "server_priv" / "hooks"
    config = json.loads((kept / "advisor.CF").read_text())
    (kept / "advisor.CF").write_text(json.dumps({**config, "version": "0.1.0"}))
    with (kept / "advisor_exec.PY").open("a") as file:
        file.write("# one more line\n")
    checks = advisor("doctor", "--json").json()["checks"]
    hooks = [c for c in checks if c["name"] == "hook"]
    assert [c["state"] for c in hooks[:2]] == ["warn", "warn"]
    assert "hook advisor (0.1.0) is not that of this advisor" in hooks[0]["text"]
    assert "hook advisor_exec" in hooks[1]["text"]
    assert {c["todo"] for c in hooks[:2]} == {"advisor hook install --scheduler pbs"}
    assert any(c["name"] == "daemon" and c["state"] == "fail" for c in checks)  # it is still asked
    assert advisor("hook", "install", "--scheduler", "pbs", "--socket", "/run/x").code == 0
    checks = advisor("doctor", "--json").json()["checks"]
    assert [c["state"] for c in checks if c["name"] == "hook"] == ["ok", "ok"]


def test_looking_leaves_nothing_in_pbs_s_folders(site: Site, advisor: Run) -> None:
    assert advisor("hook", "install", "--scheduler", "pbs").code == 0
    advisor("doctor")
    advisor("hook", "status", "--scheduler", "pbs")
    assert list((site.root / "home/server_priv/hooks/tmp").iterdir()) == []
    assert "export hook" not in site.log()
    for path in (site.root / "home/server_priv/hooks").glob("advisor*"):
        path.unlink()  # a PBS that keeps them elsewhere is asked
    status = advisor("hook", "status", "--scheduler", "pbs", "--json").json()
    assert status["hooks"]["advisor"]["state"] == "advisor"
    assert "export hook" in site.log()


def test_the_login_nodes_side(site: Site, advisor: Run, tmp_path: Path) -> None:
    folder = tmp_path / "login"
    folder.mkdir()
    done = advisor("hook", "install", "--scheduler", "pbs", "--login", folder)
    assert done.code == 0, done.err
    assert f"write {folder}/qsub, which goes before {site.root}/bin/qsub" in done.out
    assert f"{folder} must come before" in done.out
    assert f"QSUB = '{site.root}/bin/qsub'" in (folder / "qsub").read_text()
    assert (folder / "qsub").stat().st_mode & 0o777 == 0o755
    status = advisor("hook", "status", "--scheduler", "pbs", "--login", folder)
    assert status.out == f"{folder}/qsub: goes before qsub\n"
    assert advisor("hook", "remove", "--scheduler", "pbs", "--login", folder).code == 0
    assert list(folder.iterdir()) == []
    (folder / "qsub").write_text("#!/bin/sh\n")
    done = advisor("hook", "install", "--scheduler", "pbs", "--login", folder)
    assert (done.code, "in the way" in done.err) == (1, True)
    advisor("hook", "remove", "--scheduler", "pbs", "--login", folder)
    assert (folder / "qsub").exists()


# -- a job through the advisor, end to end -------------------------------------------------------

POLICY = """\
version: 1
mode: apply
goal: min_energy
max_slowdown: 25%
min_saving: 1%
confidence: 60%
holdout: 0%
axes: {threads: cap}
"""
SITE = """\
version: 1
node_types:
  bdw: {freq_khz: [1.2 GHz, 1.8 GHz, 2.2 GHz]}
"""
STENCIL = """#!/bin/bash
#PBS -l select=1:ncpus=28:node_type=bdw
#PBS -l walltime=00:10:00
cd $PBS_O_WORKDIR
mpirun ./stencil
"""
PROGRAM = """#!/bin/sh
# as long from its process's start, however long a busy machine takes to come this far, and as many
# joules, which it adds to the node's meter itself
sys=SYS; cap=$(cat $sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq)
meter=$sys/class/powercap/intel-rapl:0/energy_uj
wanted=$(awk "BEGIN { print 2.4 + 9.6 / $OMP_NUM_THREADS + 0.4 * (2.2e6 / $cap - 1) }")
sleep $(awk "BEGIN {
    getline stat < \\"/proc/$$/stat\\"; getline up < \\"/proc/uptime\\"
    sub(/.*[)] /, \\"\\", stat); split(stat, of, \\" \\"); spent = up - of[20] / 100
    print spent < $wanted ? $wanted - spent : 0
}")
before=$(cat $meter)
awk "BEGIN { printf \\"%.0f\\", $before + 1e6 * $wanted * (200 + 224 * ($cap / 1e6) ^ 2) }" > $meter
echo threads $OMP_NUM_THREADS cap $cap
"""


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    log = folder / "serve.log"
    socket = Path(os.environ["ADVISOR_SOCKET"])
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "advisor", "serve", "--refresh", "0.1"], cwd=ROOT, stderr=output
        )
    try:
        deadline = time.monotonic() + 30
        while "event=serving" not in log.read_text():
            assert time.monotonic() < deadline and process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield socket
    finally:
        process.terminate()
        process.wait()


def submit(work: Path, *words: str) -> str:
    done = subprocess.run(
        ["qsub", *words],
        cwd=work,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def keep_in(client: Path, folder: Path) -> None:
    """Let the login node's part leave files in a folder of the test instead of the user's home."""
    text = client.read_text()
    assert 'FOLDER = ".cache/advisor/qsub"' in text
    client.write_text(text.replace('FOLDER = ".cache/advisor/qsub"', f"FOLDER = {str(folder)!r}"))


def ended_job(job_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(
            ["qstat", "-x", "-f", "-F", "json", job_id], capture_output=True, text=True, check=True
        )
        job: dict[str, Any] = json.loads(done.stdout)["Jobs"][job_id]
        if job["job_state"] == "F":
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.05)


@pytest.mark.slow
def test_a_job_is_trained_advised_capped_metered_and_judged(
    site: Site, advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_path: Path
) -> None:
    for name, seconds in (("ASK_S", 0.1), ("VANISH_S", 1.0)):
        monkeypatch.setattr(backend, name, seconds)
    monkeypatch.setattr(backend.Pbs, "POLL_S", 0.05)
    monkeypatch.setattr(backend.Pbs.__init__, "__defaults__", (site.sys.root,))
    config, work, login = tmp_path / "config", tmp_path / "work", tmp_path / "login"
    for folder in (config, work, login):
        folder.mkdir()
    (config / "site.yaml").write_text(SITE)
    (config / "policy.yaml").write_text(POLICY)
    (work / "stencil").write_text(PROGRAM.replace("SYS", str(site.sys.root)))
    (work / "mpirun").write_text('#!/bin/sh\nexec "$@"\n')
    for name in ("stencil", "mpirun"):
        (work / name).chmod(0o755)
    script = work / "stencil.sh"
    script.write_text(STENCIL.replace("mpirun", f"{work}/mpirun"))
    monkeypatch.chdir(work)
    state = site.state()
    del state["nodes"]["n2"]  # the posed /sys is that of one node
    (site.root / "metered").touch()
    (site.root / "server.json").write_text(json.dumps(state))
    # the site, as docs/pbs.md says
    for words in (
        ("site", "discover", "--scheduler", "pbs"),
        ("site", "apply"),
        ("policy", "apply"),
        ("hook", "install", "--scheduler", "pbs"),
        ("hook", "install", "--scheduler", "pbs", "--login", login),
    ):
        done = advisor(*words)
        assert done.code == 0, (words, done.err)
    exec_config = json.dumps(
        {
            "sys_root": str(site.sys.root),
            "boot_id": str(site.sys.boot),
            "max_power_w": 5000.0,
        }
    )
    keep_in(login / "qsub", tmp_path / "left")
    state = site.state()
    state["hooks"]["advisor_exec"]["config"] = exec_config
    (site.root / "server.json").write_text(json.dumps(state))
    monkeypatch.setenv("PATH", f"{login}{os.pathsep}{os.environ['PATH']}")
    with serving(tmp_path) as socket:
        # nobody has measured it yet: the job runs as it is written, and says so by its stamp
        first = ended_job(submit(work, "stencil.sh"))
        assert first["Resource_List"]["select"] == "1:ncpus=28:node_type=bdw"
        assert '"no-model","training-ask"' in first["Resource_List"]["advisor_stamp"]
        assert first["resources_used"]["energy_nodes"] == 1
        assert "ADVISOR_QSUB" not in first["Variable_List"]
        trained = advisor(
            "train",
            "stencil.sh",
            "--scheduler",
            "pbs",
            "--yes",
            "--json",
            "--design",
            "uniform",
            "--samples",
            "6",
            "--threads",
            "9,18,28",
            "--estimate",
            "5s",
        )
        assert trained.code == 0, trained.err
        outcome = trained.json()
        assert outcome["confirmed"] is True, json.dumps(outcome)
        sweeps = [j for j in site.state()["jobs"].values() if j["Job_Name"].startswith("adv-")]
        assert len(sweeps) == len(outcome["runs"]) >= 7
        assert {j["Resource_List"]["place"] for j in sweeps} == {"free"}  # the job's own
        assert all("advisor_stamp" not in j["Resource_List"] for j in sweeps)
        assert all("energy_j" in j["resources_used"] for j in sweeps)
        with Reader(store_path) as reader:
            newest = max(reader.model_stamps())
        wait_for(lambda: call(socket, {"op": "status"})["newest_model"] == newest)
        told = advisor("explain", "stencil.sh", "--json").json()
        assert told["rewrite"], told["explanation"]
        advised = ended_job(submit(work, "stencil.sh"))
    wants, chosen = advised["Resource_List"], told["chosen"]
    threads, khz = chosen["threads_per_node"], chosen["freq_khz"]
    written = f":ompthreads={threads}" if threads < 28 else ""
    both = f"explain: {told}, the job: {wants}"
    assert wants["select"] == "1:ncpus=28:node_type=bdw" + written, both
    assert wants.get("cpu_freq_mhz", 2200) == khz // 1000
    assert wants["place"] == "free"
    assert advised["Exit_status"] == 0
    output = (site.root / "spool" / f"{list(site.state()['jobs'])[-1]}.out").read_text()
    assert output.split() == ["threads", str(threads), "cap", str(khz)]
    assert site.sys.caps() == [2_200_000] * 28
    # afterwards
    collected = advisor("collect", "--scheduler", "pbs", "--json").json()
    assert collected["new"] == 2, collected
    job = list(site.state()["jobs"])[-1]
    why = advisor("why", job, "--json").json()
    assert why["state"] == "COMPLETED"
    assert why["trust"] == "verified"
    assert why["verdict"] == verdict_of(why) != "worse", why
    assert why["outcome"]["energy_j"] == advised["resources_used"]["energy_j"]
    text = advisor("why", job.removesuffix(".pbs1"), "--scheduler", "pbs").out
    assert "rewritten    -l " in text
    assert "qsub -v ADVISOR=off" in text
    with Reader(store_path) as reader:
        kept = reader.decision(why["decision"]["decision"])
        assert kept is not None and kept.scheduler == "pbs"
    # and refused, the kill switch, and the daemon gone
    refused = ended_job(submit(work, "-v", "ADVISOR=off", "stencil.sh"))
    gone = ended_job(submit(work, "stencil.sh"))
    for left in (refused, gone):
        assert left["Resource_List"]["select"] == "1:ncpus=28:node_type=bdw"
        assert "advisor_stamp" not in left["Resource_List"]
    assert "no daemon answers" in site.log()
    assert shutil.which("qsub") == str(login / "qsub")


PRIVATE = """#!/bin/bash
#PBS -l select=1:ncpus=1
#PBS -l walltime=00:01:00
true "Authorization: Bearer eyJhbGciOi"
true -phunter2
echo site $SITE own $OWN
"""


@pytest.mark.parametrize("switch", ["on", "disabled", "removed", "no daemon"])
def test_nobody_sees_what_a_script_says_whatever_is_switched_off(
    site: Site, advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    """And the server's own -v reaches the job as it does without the login node's part."""
    work, login = tmp_path / "work", tmp_path / "login"
    for folder in (work, login):
        folder.mkdir()
    (work / "job.sh").write_text(PRIVATE)
    site.change(default_qsub_arguments="-v SITE=7,OWN -r n")
    monkeypatch.setenv("OWN", "mine")
    assert advisor("hook", "install", "--scheduler", "pbs").code == 0
    assert advisor("hook", "install", "--scheduler", "pbs", "--login", login).code == 0
    keep_in(login / "qsub", tmp_path / "left")
    if switch == "disabled":
        state = site.state()
        state["hooks"]["advisor"]["enabled"] = "false"
        (site.root / "server.json").write_text(json.dumps(state))
    if switch == "removed":
        assert advisor("hook", "remove", "--scheduler", "pbs").code == 0
    monkeypatch.setenv("PATH", f"{login}{os.pathsep}{os.environ['PATH']}")

    def shown() -> tuple[str, dict[str, Any]]:
        ended = ended_job(job_id := submit(work, "job.sh"))
        words = ["qstat", "-x", "-f", job_id]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return text, ended

    if switch == "on":
        with serving(tmp_path) as socket:
            text, job = shown()
            assert call(socket, {"op": "status"})["scripts"] == {"found": 1, "missing": 0}
    else:
        text, job = shown()
    assert not [w for w in ("eyJhbGciOi", "hunter2", "Bearer", "eNp", "eNq") if w in text]
    variables = job["Variable_List"]
    assert (variables["SITE"], variables["OWN"]) == (7, "mine")
    ours = {k: v for k, v in variables.items() if k.startswith("ADVISOR")}
    if switch in ("on", "no daemon"):
        assert set(ours) <= {"ADVISOR_DECISION"}
    else:
        assert set(ours) == {"ADVISOR_QSUB"} and len(ours["ADVISOR_QSUB"]) == 32


def test_a_reinstall_keeps_what_the_site_set_of_a_hook(site: Site, advisor: Run) -> None:
    assert advisor("hook", "install", "--scheduler", "pbs").code == 0
    state = site.state()
    assert state["hooks"]["advisor"]["order"] == "500"
    state["hooks"]["advisor"] |= {"order": "7", "alarm": "20", "enabled": "false"}
    state["hooks"]["advisor_exec"] |= {"order": "9", "alarm": "45"}
    (site.root / "server.json").write_text(json.dumps(state))
    done = advisor("hook", "install", "--scheduler", "pbs", "--socket", "/run/y")
    assert done.code == 0, done.err
    hooks = site.state()["hooks"]
    assert {k: hooks["advisor"][k] for k in ("order", "alarm", "enabled")} == {
        "order": "7",
        "alarm": "20",
        "enabled": "false",
    }
    assert {k: hooks["advisor_exec"][k] for k in ("order", "alarm", "enabled")} == {
        "order": "9",
        "alarm": "45",
        "enabled": "true",
    }
    assert json.loads(hooks["advisor"]["config"])["socket"] == "/run/y"
    assert 'hook advisor stays disabled, as it was: qmgr -c "set hook advisor enabled=true"' in (
        done.out
    )
    # an alarm that would ring before the hook is done would reject jobs
    state = site.state()
    state["hooks"]["advisor"]["alarm"] = "1"
    (site.root / "server.json").write_text(json.dumps(state))
    done = advisor("hook", "install", "--scheduler", "pbs")
    assert site.state()["hooks"]["advisor"]["alarm"] == "2"
    assert "hook advisor: its alarm of 1 s was too short" in done.out


def test_doctor_names_default_arguments_that_are_not_understood(site: Site, advisor: Run) -> None:
    def told() -> list[str]:
        checks = advisor("doctor", "--json").json()["checks"]
        return [c["text"] for c in checks if c["name"] == "login"]

    site.change(default_qsub_arguments="-v X=1 -l place=free")
    assert told() == []
    site.change(default_qsub_arguments="-C '#X'")
    [text] = told()
    assert "default_qsub_arguments are not understood" in text


def test_the_runs_of_a_sweep_get_what_the_server_gives_every_job() -> None:
    assert default_variables({}) == ""
    assert default_variables({"default_qsub_arguments": "-q w -v 'A=1 2,B'"}) == "A=1 2,B"
    for bad in ("-v A job.sh", "-C X"):
        with pytest.raises(ValueError):
            default_variables({"default_qsub_arguments": bad})


SITE_HOOK = """
import pbs
e = pbs.event()
e.job.Resource_List["select"] = pbs.select("1:ncpus=14:node_type=bdw")
e.accept()
"""


def with_site_hook(site: Site, **attributes: str) -> None:
    """Let the site have a queuejob hook of its own, before the advisor's unless said otherwise."""
    state = site.state()
    state["hooks"]["advisor"]["order"] = "10"
    hook = {"name": "site", "code": SITE_HOOK, "config": "", "order": "1", "event": ["queuejob"]}
    state["hooks"] = {"site": {**state["hooks"]["advisor"], **hook, **attributes}, **state["hooks"]}
    (site.root / "server.json").write_text(json.dumps(state))


@pytest.fixture
def work(site: Site, advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, on a site that is installed whole."""
    config, work, login = tmp_path / "config", tmp_path / "work", tmp_path / "login"
    for folder in (config, work, login):
        folder.mkdir()
    (config / "site.yaml").write_text(SITE)
    (config / "policy.yaml").write_text(POLICY)
    (work / "stencil.sh").write_text(STENCIL)
    monkeypatch.chdir(work)
    for words in (
        ("site", "discover", "--scheduler", "pbs"),
        ("site", "apply"),
        ("policy", "apply"),
        ("hook", "install", "--scheduler", "pbs"),
        ("hook", "install", "--scheduler", "pbs", "--login", login),
    ):
        assert advisor(*words).code == 0, words
    keep_in(login / "qsub", tmp_path / "left")
    monkeypatch.setenv("PATH", f"{login}{os.pathsep}{os.environ['PATH']}")
    return work


def submitted(work: Path, store_path: Path, *words: str) -> None:
    """Submit a job and wait until its decision is in the store."""

    def decided() -> int:
        with Reader(store_path) as reader:
            return len(reader.decisions())

    before = decided()
    submit(work, *words)
    wait_for(lambda: decided() > before)


def test_explain_shows_what_a_sites_hook_changed_before_ours(
    site: Site, advisor: Run, tmp_path: Path, work: Path, store_path: Path
) -> None:
    with serving(tmp_path):
        submitted(work, store_path, "stencil.sh")
        told = advisor("explain", "stencil.sh", "--json").json()
        assert told["last_submission"] is None  # the hook saw what the script says
        with_site_hook(site)
        submitted(work, store_path, "stencil.sh")
        told = advisor("explain", "stencil.sh", "--json").json()
        text = advisor("explain", "stencil.sh").out
    assert told["last_submission"]["differing"]["select"] == {
        "here": "1:ncpus=28:node_type=bdw",
        "seen": "1:ncpus=14:node_type=bdw",
    }
    assert "select=1:ncpus=14:node_type=bdw, not 1:ncpus=28:node_type=bdw" in text
    assert "the site's own hooks" in text


def test_explain_decides_on_what_the_hook_saw_of_the_last_submission(
    site: Site, advisor: Run, tmp_path: Path, work: Path, store_path: Path
) -> None:
    """Unless the caller or the script says otherwise now."""
    script = work / "stencil.sh"

    def asked(*words: str) -> tuple[str, int, dict[str, str]]:
        done = advisor("explain", "stencil.sh", "--json", *words)
        assert done.code == 0, done.err
        told = done.json()
        request, last = told["request"], told["last_submission"]
        return request["options"]["select"], request["time_limit_s"], last["taken"]

    written, seen = "1:ncpus=28:node_type=bdw", "1:ncpus=14:node_type=bdw"
    with_site_hook(site)
    with serving(tmp_path):
        submitted(work, store_path, "-l", "walltime=0:20:00", "stencil.sh")
        assert asked() == (seen, 1200, {"select": seen, "walltime": "0:20:00"})
        told = advisor("explain", "stencil.sh").out
        assert asked("--as-written") == (written, 600, {})
        assert "--as-written" not in advisor("explain", "stencil.sh", "--as-written").out
        assert asked("--", "-l", "walltime=5:00") == (seen, 300, {"select": seen})
        other = "1:ncpus=20:node_type=bdw"
        assert asked("--", "-l", f"select={other}") == (other, 1200, {"walltime": "0:20:00"})
        # its place and its select are one request
        assert asked("--", "-l", "place=excl") == (written, 1200, {"walltime": "0:20:00"})
        script.write_text(script.read_text() + "echo more\n")
        assert asked() == (seen, 1200, {"select": seen, "walltime": "0:20:00"})
        script.write_text(script.read_text().replace("00:10:00", "00:15:00"))
        assert asked() == (seen, 900, {"select": seen})
        script.write_text(script.read_text().replace("ncpus=28", "ncpus=24"))
        assert asked() == ("1:ncpus=24:node_type=bdw", 900, {})
    assert "This answer takes select, walltime from that job; --as-written explains" in told
    assert "the site's own hooks or options of its command line" in told


def test_without_the_login_nodes_part_an_untouched_script_gets_what_it_got(
    site: Site,
    advisor: Run,
    tmp_path: Path,
    work: Path,
    store_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its lines of then are not known: only a file that is older says them still."""
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(os.pathsep)[2])
    with_site_hook(site)

    def taken() -> dict[str, str]:
        last: dict[str, Any] = advisor("explain", "stencil.sh", "--json").json()["last_submission"]
        assert set(last["differing"]) == {"select"}
        return dict(last["taken"])

    with serving(tmp_path):
        wait_for(lambda: time.time() // 1 > (work / "stencil.sh").stat().st_ctime)
        submitted(work, store_path, "stencil.sh")
        assert taken() == {"select": "1:ncpus=14:node_type=bdw"}
        with (work / "stencil.sh").open("a") as file:
            file.write("echo more\n")
        assert taken() == {}


def watches(socket: Path) -> bool:
    """Tell whether the daemon knows the site's state."""
    state = call(socket, {"op": "status"})["availability"]
    return isinstance(state, dict) and bool(state["known"])


def test_explain_names_the_sites_hooks_for_a_script_that_was_never_submitted(
    site: Site, advisor: Run, tmp_path: Path, work: Path, store_path: Path
) -> None:
    note = "note: this site's hook site sees jobs before the advisor and may change them"

    def hooks() -> list[str]:
        told: list[str] = advisor("explain", "stencil.sh", "--json").json()["earlier_hooks"]
        assert (note in " ".join(advisor("explain", "stencil.sh").out.split())) == (
            told == ["site"]
        )
        return told

    with_site_hook(site)
    with serving(tmp_path) as socket:
        wait_for(lambda: watches(socket))
        assert hooks() == ["site"]
        submitted(work, store_path, "stencil.sh")
        assert hooks() == []  # what they do to it is known
    assert (site.root / "log").read_text().splitlines().count("qmgr list hook") == 1


@pytest.mark.parametrize(
    "attributes", [{"enabled": "false"}, {"event": ["modifyjob"]}, {"order": "11"}]
)
def test_hooks_that_see_no_job_before_ours_are_not_named(
    site: Site, advisor: Run, tmp_path: Path, work: Path, attributes: dict[str, Any]
) -> None:
    with_site_hook(site, **attributes)
    with serving(tmp_path) as socket:
        wait_for(lambda: watches(socket))
        assert advisor("explain", "stencil.sh", "--json").json()["earlier_hooks"] == []


def test_where_qmgr_refuses_nothing_is_said_of_hooks(
    site: Site, advisor: Run, tmp_path: Path, work: Path
) -> None:
    """It shows hooks to root on the server's host alone."""
    with_site_hook(site)
    state = site.state()
    state["hooks_for"] = "another"
    (site.root / "server.json").write_text(json.dumps(state))
    with serving(tmp_path) as socket:
        wait_for(lambda: watches(socket))
        assert advisor("explain", "stencil.sh", "--json").json()["earlier_hooks"] == []
        assert "jobs before the advisor" not in advisor("explain", "stencil.sh").out


def test_a_list_of_hooks_is_read_strictly() -> None:
    block = "Hook {}\n    type = site\n    enabled = {}\n    event = {}\n    order = {}\n\n"
    ours = block.format("advisor", "true", "queuejob,\n\tpostqueuejob", 5)
    both = "movejob,\n\tqueuejob"
    assert hooks_before(ours + block.format("b", "true", both, 5)) == ("b",)
    assert hooks_before(block.format("b", "true", '"queuejob,runjob"', -7) + ours) == ("b",)
    many = "".join(block.format(f"h{n}", "True", "queuejob", 1) for n in range(40))
    assert len(hooks_before(ours + many)) == 12
    for name, enabled, event, order in (
        ("b\x1b[31m", "true", both, 1),
        ("b c", "true", both, 1),
        ("b" * 65, "true", both, 1),
        ("b", "maybe", both, 1),
        ("b", "true", "xqueuejob", 1),
        ("b", "true", both, "x"),
        ("b", "true", both, 6),
    ):
        assert hooks_before(ours + block.format(name, enabled, event, order)) == ()
    assert hooks_before(block.format("b", "true", both, 1)) == ()  # ours is not at work
    assert hooks_before("") == hooks_before("No Active Hooks\n") == ()
