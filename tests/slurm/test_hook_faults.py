"""Whatever fails, the job is accepted as its user wrote it, and the reason is in the log."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hook_daemon import STAMP, HookDaemon, answer, unchanged
from testbed import Submitted, Testbed
from testbed.daemons import go_first, wait_until

from advisor.core.decision import Decision
from advisor.core.protocol import call
from advisor.core.stamp import read_stamp
from advisor.paths import share
from advisor.schedulers.slurm.hooks import read_hooks

ROOT = share("config").parent
PLAIN = "srun true\n"
ASKED = {"Features": "(null)", "NumNodes": "1-1", "NumTasks": "1", "CPUs/Task": "1"}


class Log:
    """The system log's socket: keeps what the filter sends there."""

    def __init__(self, path: Path) -> None:
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o666)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            self.lines.append(self._socket.recv(65536).decode())

    def wait(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.lines), 10, f"{text!r} in the log")


class Cluster:
    """A cluster with the hooks on and a short way to submit a job that must be accepted."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed = testbed
        self.folder = folder
        self.socket = folder / "s"
        self.log = Log(folder / "log")
        self.runtime = self.fresh_runtime()

    def fresh_runtime(self) -> Path:
        """Give submissions a folder of their own: no breaker is open there."""
        self.runtime = Path(tempfile.mkdtemp(dir=self.folder))
        self.runtime.chmod(0o755)
        return self.runtime

    @property
    def breaker(self) -> Path:
        return self.runtime / "advisor-breaker"

    def install(self) -> None:
        """Install the hooks, and let them log where the test reads."""
        command = ["hook", "install", "--dir", str(self.testbed.conf_dir), "--retry", "600"]
        command += ["--socket", str(self.socket)]
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *command],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for path in (self.testbed.conf_dir / "advisor").glob("*/filter-*.luac"):
            path.unlink()  # has its own copy of config.lua
        for path in (self.testbed.conf_dir / "advisor").glob("*/config.lua"):
            path.write_text(path.read_text().replace("/dev/log", str(self.folder / "log")))

    @property
    def modules(self) -> Path:
        folder = self.testbed.conf_dir
        return folder / "advisor" / read_hooks(folder)[0].folder_id

    def submit(self, *args: str, **other: Any) -> Submitted:
        env = {"XDG_RUNTIME_DIR": str(self.runtime), **other.pop("env", {})}
        if not any(a.startswith("--wrap") for a in args):
            other.setdefault("script", PLAIN)
        done = self.testbed.sbatch("--hold", *args, env=env, **other)
        assert done.job_id, done.stderr
        return done

    def job(self, *args: str, **other: Any) -> dict[str, str]:
        """Submit a job and return what it asks for."""
        done = self.submit(*args, **other)
        assert done.stderr == ""
        return self.testbed.scontrol_job(done.job_id)

    def stamp(self) -> Decision | None:
        """Submit a job and return what the real daemon stamped it with."""
        return read_stamp(self.testbed.scontrol_job(self.submit().job_id)["AdminComment"])

    def unchanged(self, *args: str, **other: Any) -> None:
        """Submit a job and assert that it asks for what its user wrote."""
        job = self.job("-N1", "-n1", *args, **other)
        assert {key: job[key] for key in ASKED} == ASKED
        assert "AdminComment" not in job


@pytest.fixture(scope="module")
def site(testbed: Testbed) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="hook-") as name:
        Path(name).chmod(0o755)
        cluster = Cluster(testbed, Path(name))
        cluster.install()
        yield cluster
        command = ["hook", "remove", "--dir", str(testbed.conf_dir)]
        subprocess.run([sys.executable, "-m", "advisor", *command], cwd=ROOT, check=True)
        testbed.reset()


@pytest.fixture
def cluster(site: Cluster) -> Iterator[Cluster]:
    site.fresh_runtime()
    site.log.lines.clear()
    yield site
    site.socket.unlink(missing_ok=True)
    site.testbed.run(["scancel", "--quiet", "--state=PENDING"])


@pytest.fixture
def daemon(cluster: Cluster) -> Iterator[HookDaemon]:
    with HookDaemon(cluster.socket) as listening:
        yield listening


class Serving:
    """The real daemon as a process of its own."""

    def __init__(self, cluster: Cluster, store: Path, *arguments: str) -> None:
        self.log = cluster.folder / "serve.log"
        self.socket = cluster.socket
        command = ["serve", "--socket", str(cluster.socket), "--db", str(store), *arguments]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "advisor", *command], cwd=ROOT, stderr=output
            )
        go_first(self.process.pid)
        wait_until(lambda: "event=serving" in self.log.read_text(), 30, "the daemon")

    def status(self) -> dict[str, Any]:
        return call(self.socket, {"v": 1, "op": "status"})

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def serve(cluster: Cluster) -> Iterator[Callable[..., Serving]]:
    running: list[Serving] = []

    def start(*arguments: str, store: str = "a.db") -> Serving:
        running.append(Serving(cluster, cluster.folder / store, *arguments))
        return running[-1]

    yield start
    for serving in running:
        serving.stop()


# -- the daemon ----------------------------------------------------------------------------------


def test_not_started(cluster: Cluster) -> None:
    cluster.unchanged()
    cluster.log.wait(f"{cluster.socket}: No such file or directory (is advisor serve running?)")
    assert not cluster.breaker.exists()


def test_its_socket_is_something_else(cluster: Cluster) -> None:
    cluster.socket.write_text("a file")
    cluster.unchanged()
    cluster.log.wait("Connection refused")


def test_its_socket_is_not_for_this_user(cluster: Cluster, daemon: HookDaemon) -> None:
    cluster.socket.chmod(0o600)
    cluster.unchanged(user="nobody")
    cluster.log.wait("Permission denied")
    assert not daemon.requests


def test_killed_while_it_answers(cluster: Cluster) -> None:
    ready = cluster.folder / "ready"
    code = (
        "import os, signal, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o666)\n"
        "s.listen(); open(sys.argv[2], 'w').close()\n"
        "s.accept()[0].recv(10); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, cluster.socket, ready]) as process:
        wait_until(ready.exists, 20, "the daemon")
        cluster.unchanged(script="#!/bin/sh\n" + "# filling\n" * 12_000)
    assert process.returncode == -signal.SIGKILL
    ready.unlink()
    cluster.log.wait("submitted unchanged")


def test_stopped(cluster: Cluster, serve: Callable[..., Serving]) -> None:
    serving = serve()
    serving.process.send_signal(signal.SIGSTOP)
    cluster.unchanged()
    assert cluster.breaker.is_file()
    for kind in (["sbatch", "--hold", "--wrap=true"], ["srun", "-n1", "true"]):
        cluster.testbed.run(kind, env={"XDG_RUNTIME_DIR": str(cluster.runtime)})
    cluster.unchanged("--wrap=true")
    serving.process.send_signal(signal.SIGCONT)
    wait_until(lambda: serving.status()["decisions"] == 1, 10, "the one question")
    cluster.unchanged()
    cluster.breaker.unlink()
    assert cluster.stamp() is not None
    assert serving.status()["decisions"] == 2
    cluster.log.wait("no answer in time (not asked again for 600 s)")


@pytest.mark.parametrize("what", ["link", "foreign", "folder"])
def test_a_breaker_that_is_not_the_users_own(
    cluster: Cluster, daemon: HookDaemon, what: str
) -> None:
    target = cluster.folder / "precious"
    target.write_text("precious")
    if what == "link":
        cluster.breaker.symlink_to(target)
    elif what == "foreign":
        cluster.breaker.touch()
        shutil.chown(cluster.breaker, "daemon")
    else:
        cluster.breaker.mkdir()
    assert cluster.job()["AdminComment"] == STAMP
    daemon.reply = lambda _: b"garbage\n"
    cluster.unchanged()
    assert target.read_text() == "precious"


GARBAGE = {
    "not JSON": b"hello\n",
    "nothing": b"\n",
    "half": b'{"v":1,"decision":"01234',
    "no object": b"[1,2]\n",
    "a number": b"17\n",
    "another version": answer(v=2),
    "no decision": answer(decision=None),
    "decision of no form": answer(decision="../../etc/passwd"),
    "rewrite is a list": answer(rewrite=[1]),
    "rewrite is text": answer(rewrite="nodes"),
    "a number as value": answer(rewrite={"cpus-per-task": 3}),
    "an object as value": answer(rewrite={"cpus-per-task": {}}),
    "an unknown option": answer({"cpus-per-task": "1", "uid": "0"}),
    "nodes": answer({"nodes": "2"}),
    "tasks": answer({"ntasks": "2"}),
    "tasks of a node": answer({"ntasks-per-node": "2"}),
    "the CPUs of every step": answer(env={"SRUN_CPUS_PER_TASK": "2"}),
    "an option of the user": answer({"wrap": "rm -rf /"}),
    "spaces": answer({"cpus-per-task": "2 "}),
    "nothing as value": answer({"constraint": ""}),
    "a shell": answer({"constraint": "$(reboot)"}),
    "an expression": answer({"constraint": "milan|skylake"}),
    "no cores": answer({"cpus-per-task": "0"}),
    "negative": answer({"cpus-per-task": "-4"}),
    "frequencies turned round": answer({"cpu-freq": "2000000-1000000"}),
    "a governor": answer({"cpu-freq": "1000000-2000000:Performance"}),
    "very long": answer({"cpus-per-task": "1" * 5000}),
    "an unknown variable": answer(env={"LD_PRELOAD": "/tmp/x.so"}),
    "a variable that only looks so": answer(env={"_NUM_THREADS": "4"}),
    "small letters": answer(env={"x_NUM_THREADS": "4"}),
    "a message for nobody": answer(message="hello", to="nobody"),
    "a message for a number": answer(message="hello", to=1),
    "a variable of no form": answer(env={"OMP_NUM_THREADS": "4;reboot"}),
    "a stamp of no form": answer(stamp="hello"),
    "a stamp with a newline": answer(stamp='advisor:{"v":1}\n{}'),
    "a stamp without end": answer(stamp="advisor:{" + "x" * 4000 + "}"),
    "two lines to say": answer(message="one\ntwo"),
    "a terminal's escape": answer(message="\x1b[2J"),
    "a message without end": answer(message="x" * 5000),
    "deep": b'{"v":' + b"[" * 5000 + b"\n",
    "a line without end": b"x" * 199_000,
    "an answer without end": answer(message="x" * 100_000),
    "binary": bytes(range(256)) * 20 + b"\n",
}
UNREADABLE = answer(to="always").replace(b'"message":""', b'"message":"ad\xff\xfevisor"')
IMPOSSIBLE = {
    "no such feature": {"constraint": "quantum"},
    "more cores than a node has": {"cpus-per-task": "65"},
    "more cores than that node has": {"cpus-per-task": "40", "constraint": "broadwell"},
}


def test_a_message_that_is_not_text_is_made_readable(cluster: Cluster, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: UNREADABLE
    done = cluster.submit("-N1", "-n1")
    assert done.returncode == 0
    assert done.stderr == "ad??visor\n"


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage(cluster: Cluster, daemon: HookDaemon, what: str) -> None:
    daemon.reply = lambda _: GARBAGE[what]
    cluster.unchanged()
    assert cluster.breaker.is_file()
    assert len(daemon.requests) == 1
    cluster.log.wait("not asked again")


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_the_cluster_does_not_have(cluster: Cluster, daemon: HookDaemon, what: str) -> None:
    daemon.reply = lambda _: answer(IMPOSSIBLE[what])
    cluster.unchanged()
    cluster.log.wait("partition batch has no")


def test_what_the_users_own_size_does_not_have(cluster: Cluster, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: answer({"constraint": "milan"})
    for args in (("-N3",), ("-n199", "-N2"), ("-N1", "--ntasks-per-node=99")):
        job = cluster.job(*args)
        assert job["Features"] == "(null)"
        assert "AdminComment" not in job
        cluster.log.wait("partition batch has no")
        cluster.log.lines.clear()


def test_what_the_users_own_partition_does_not_have(cluster: Cluster, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: answer({"constraint": "milan"})
    cluster.unchanged("--partition=debug")
    cluster.unchanged("--partition=batch,debug")
    daemon.reply = lambda _: answer({"cpus-per-task": "28"})
    job = cluster.job("--partition=debug", "--mem=2800")
    assert job["CPUs/Task"] == "28"
    cluster.unchanged("--partition=debug", "--mem-per-cpu=100")


def test_an_answer_in_drips(cluster: Cluster, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: answer({"constraint": "milan"})
    daemon.drip_s = 0.02
    cluster.unchanged()
    assert cluster.breaker.is_file()
    daemon.drip_s = 0
    cluster.unchanged()
    assert len(daemon.requests) == 1


def test_an_answer_that_is_an_error(cluster: Cluster, daemon: HookDaemon) -> None:
    daemon.reply = lambda _: b'{"v":1,"error":"internal error; see the daemon\'s log"}\n'
    cluster.unchanged()
    assert not cluster.breaker.exists()
    cluster.log.wait("the daemon says: internal error")


def test_nobody_takes_a_question(cluster: Cluster) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(cluster.socket))
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for peer in waiting:
            peer.setblocking(False)
            peer.connect_ex(str(cluster.socket))
        cluster.unchanged()
        assert cluster.breaker.is_file()
        for peer in waiting:
            peer.close()


# -- store and policy ----------------------------------------------------------------------------


def test_the_store_is_gone_or_broken_while_it_serves(
    cluster: Cluster, serve: Callable[..., Serving]
) -> None:
    serving = serve("--refresh", "0.1", store="b.db")
    store = cluster.folder / "b.db"
    assert cluster.stamp() is not None
    for name in ("b.db", "b.db-wal", "b.db-shm"):
        (cluster.folder / name).unlink(missing_ok=True)
    wait_until(lambda: "store-unreadable" in serving.log.read_text(), 20, "the fault")
    assert cluster.stamp() is not None
    store.write_bytes(b"SQLite format 3\0" + os.urandom(8000))
    wait_until(lambda: serving.log.read_text().count("store-unreadable") > 1, 20, "the other fault")
    assert cluster.stamp() is not None


def test_the_store_is_broken_from_the_start(
    cluster: Cluster, serve: Callable[..., Serving]
) -> None:
    (cluster.folder / "c.db").write_bytes(b"not a store")
    serving = serve(store="c.db")
    job = cluster.job("-N1", "-n1")
    assert {key: job[key] for key in ASKED} == ASKED
    assert "store-unreadable" in serving.log.read_text()


# -- the installed files -------------------------------------------------------------------------


@pytest.fixture
def broken_modules(cluster: Cluster) -> Iterator[Path]:
    yield cluster.modules
    shutil.rmtree(cluster.modules)
    cluster.install()


@pytest.mark.parametrize("how", ["gone", "syntax", "error", "folder gone"])
def test_a_module_is_missing_or_broken(
    cluster: Cluster, daemon: HookDaemon, broken_modules: Path, how: str
) -> None:
    for name in ("filter.lua", "submit.lua"):
        if how == "gone":
            (broken_modules / name).unlink()
        else:
            (broken_modules / name).write_text("function (" if how == "syntax" else "error('x')")
    if how == "folder gone":
        shutil.rmtree(broken_modules)
    cluster.unchanged()
    stub = cluster.testbed.conf_dir / "job_submit.lua"
    later = stub.stat().st_mtime + 2
    os.utime(stub, (later, later))
    cluster.unchanged()
    assert "advisor: jobs go on unchanged and without a stamp" in cluster.testbed.slurmctld_log()
    broken_modules.mkdir(exist_ok=True)


def test_the_controller_starts_without_modules(
    cluster: Cluster, daemon: HookDaemon, broken_modules: Path
) -> None:
    shutil.rmtree(broken_modules)
    cluster.testbed.restart_slurmctld()
    cluster.unchanged()
    broken_modules.mkdir()


@pytest.fixture
def portable(cluster: Cluster) -> Iterator[None]:
    """Only lua-posix, as where no C compiler was at install."""
    library, aside = cluster.modules / "native.so", cluster.folder / "native.so"
    shutil.move(library, aside)
    yield
    shutil.move(aside, library)


@pytest.mark.usefixtures("portable")
def test_neither_library_is_there(cluster: Cluster, daemon: HookDaemon) -> None:
    config = cluster.modules / "config.lua"
    before = config.read_text()
    try:
        config.write_text(before.replace("posix.so", "nowhere.so"))
        nowhere = {"LUA_CPATH": "/nowhere/?.so"}
        cluster.unchanged(env=nowhere)
        assert not daemon.requests
        debug = cluster.submit(env={**nowhere, "ADVISOR_DEBUG": "1"}).stderr
        assert "lua-posix is not installed for Lua 5.1" in debug
    finally:
        config.write_text(before)
    assert cluster.job()["AdminComment"] == STAMP


@pytest.mark.usefixtures("portable")
def test_the_worst_with_lua_posix_alone(cluster: Cluster, serve: Callable[..., Serving]) -> None:
    with HookDaemon(cluster.socket) as daemon:
        assert cluster.job()["AdminComment"] == STAMP
        for what in ("not JSON", "half", "a line without end", "nothing"):
            cluster.fresh_runtime()
            daemon.reply = lambda _, line=GARBAGE[what]: line  # type: ignore[misc]
            cluster.unchanged()
            assert cluster.breaker.is_file(), what
        cluster.fresh_runtime()
        daemon.reply, daemon.drip_s = unchanged, 0.02
        cluster.unchanged()
        daemon.drip_s = 0
        cluster.unchanged()
    cluster.fresh_runtime()
    cluster.unchanged()
    test_killed_while_it_answers(cluster)
    cluster.socket.unlink()
    test_stopped(cluster, serve)


# -- scripts and names ---------------------------------------------------------------------------


def test_scripts_of_every_kind(cluster: Cluster, daemon: HookDaemon) -> None:
    scripts = {
        "4 MB": b"#!/bin/sh\n" + b"# a line of a script\n" * 199_000,
        "not UTF-8": b"#!/bin/sh\n# \xff\xfe\x80 caf\xe9\nsrun true\n",
        "control characters": b"#!/bin/sh\n#" + bytes(range(1, 32)).replace(b"\r", b"") + b"\n",
        "one line": b"#!/bin/sh",
        "DOS in the middle": b'#!/bin/sh\ntrue # \\ " \x7f \xc2\x9b\n',
    }
    for name, data in scripts.items():
        path = cluster.folder / "script"
        path.write_bytes(data)
        job = cluster.job(str(path), script=None)
        assert job["AdminComment"] == STAMP, name
        request = daemon.requests[-1]
        assert request["script"] == data[:131072].decode("utf-8", "replace"), name
        assert request["truncated"] == (len(data) > 131072)


def test_scripts_that_slurm_itself_refuses_stay_refused_by_slurm(
    cluster: Cluster, daemon: HookDaemon
) -> None:
    for name, data in {"empty": b"", "binary": b"\x7fELF\0\1\2\3" * 100, "no #!": b"x\n"}.items():
        path = cluster.folder / "script"
        path.write_bytes(data)
        done = cluster.testbed.sbatch(str(path), check=False)
        alone = cluster.testbed.sbatch(str(path), check=False, env={"ADVISOR": "off"})
        assert (done.job_id, done.stderr) == (0, alone.stderr), name


def test_scripts_that_are_no_files(cluster: Cluster, daemon: HookDaemon) -> None:
    fifo = cluster.folder / "fifo"
    os.mkfifo(fifo)
    text = "#!/bin/sh\nsrun true\n"
    writer = threading.Thread(target=lambda: fifo.write_text(text))
    writer.start()
    assert cluster.job(str(fifo), script=None)["AdminComment"] == STAMP
    writer.join()
    assert daemon.requests[-1]["script"] is None
    env = {"XDG_RUNTIME_DIR": str(cluster.runtime)}
    done = cluster.testbed.run(["sbatch", "--hold", "--parsable"], input=text, env=env)
    assert cluster.testbed.scontrol_job(int(done.stdout))["AdminComment"] == STAMP
    assert (daemon.requests[-1]["script"], daemon.requests[-1]["argv"]) == (None, [])
    job = cluster.job("--wrap=srun ./app 'a b'; exit")
    assert job["AdminComment"] == STAMP
    assert daemon.requests[-1]["options"]["wrap"] == "srun ./app 'a b'; exit"


@pytest.mark.parametrize(
    "name",
    ["$(reboot) `id` ; | & > * ? ~", "a\nb\tc\x01\x1b[2Jd", '"quotes\' and \\ back', "%s %n %",
     "\u00fcml\u00e4ut \u2603", ":", '","argv":["x"]}'],
)  # fmt: skip
def test_names(cluster: Cluster, serve: Callable[..., Serving], name: str) -> None:
    serving = serve()
    done = cluster.submit(f"--job-name={name}")
    stamped = cluster.testbed.run(["scontrol", "show", "job", str(done.job_id)]).stdout
    assert read_stamp(stamped) is not None
    log = serving.log.read_text()
    assert "bad-request" not in log
    assert "internal-error" not in log
    assert "\x1b" not in log


def test_names_arrive_as_they_are(cluster: Cluster, daemon: HookDaemon) -> None:
    for name in ("a\nb\tc\x01\x1b[2Jd", "\"q' \\", '","argv":["x"]}', "$(x) `y` %s", "\u2603"):
        cluster.submit(f"--job-name={name}")
        assert daemon.requests[-1]["options"]["job-name"] == name
    cluster.submit("--job-name", os.fsdecode(b"\xff\xfe"))
    assert daemon.requests[-1]["options"]["job-name"] == "\ufffd\ufffd"


def test_a_users_choices_file_of_any_kind(cluster: Cluster, daemon: HookDaemon) -> None:
    config = cluster.runtime / "advisor"
    config.mkdir()
    choices = config / "choices.json"
    env = {"XDG_CONFIG_HOME": str(cluster.runtime)}
    for data, sent in (
        (b"\xff\0{", "\ufffd\0{"), (b"x" * 70_000, ""), (b"{}", "{}"),
    ):  # fmt: skip
        choices.write_bytes(data)
        assert cluster.job(env=env)["AdminComment"] == STAMP
        assert daemon.requests[-1]["choices"] == sent
    choices.unlink()
    os.mkfifo(choices)
    assert cluster.job(env=env)["AdminComment"] == STAMP


# -- inside slurmctld ----------------------------------------------------------------------------


@pytest.fixture
def enforcing(cluster: Cluster, daemon: HookDaemon) -> Iterator[HookDaemon]:
    marker = cluster.folder / "s.enforce"
    marker.touch()
    yield daemon
    marker.unlink()


def test_garbage_in_the_controller(cluster: Cluster, enforcing: HookDaemon) -> None:
    def reply(request: dict[str, Any]) -> bytes | None:
        if request["hook"] == "cli_filter":
            return unchanged(request)
        return answer({"constraint": "quantum"}) if tries else b"hello\n"

    tries = [1]
    enforcing.reply = reply
    stamped = {"AdminComment": STAMP, **ASKED}
    job = cluster.job("-N1", "-n1")
    assert {key: job[key] for key in stamped} == stamped
    tries.clear()
    job = cluster.job("-N1", "-n1")
    assert {key: job[key] for key in stamped} == stamped
    count = len(enforcing.requests)
    cluster.job("-N1", "-n1")
    assert [r["hook"] for r in enforcing.requests[count:]] == ["cli_filter"]
    log = cluster.testbed.slurmctld_log()
    assert "feature quantum" in log
    assert "not asked again for 600 s" in log
