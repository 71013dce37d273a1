"""No daemon, a slow or a broken one, no modules: the job is accepted as its user wrote it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_cluster import ASKED, Cluster, Serving
from hook_daemon import STAMP, HookDaemon, answer, unchanged
from testbed.daemons import wait_until

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
    "a frequency of no processor": answer({"cpu-freq": "1200000-999999999"}),
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
    daemon.reply = lambda _: answer({"cpus-per-task": "20"})
    job = cluster.job("--partition=debug", "--mem=2800", "-c28")
    assert job["CPUs/Task"] == "20"
    daemon.reply = lambda _: answer({"cpus-per-task": "28"})  # never a larger request
    cluster.unchanged("--partition=debug", "--mem=2800")
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
