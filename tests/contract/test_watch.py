"""The daemon's child that reads the scheduler: what it brings, and all that can go wrong with it.

Its commands print what a real Slurm printed, hang, fail or print nonsense.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.inventory import NodeType
from advisor.core.protocol import call
from advisor.core.request import JobRequest
from advisor.service import watch as module
from advisor.service.answered import Answered
from advisor.service.snapshot import StoreSource
from advisor.service.watch import Watch
from advisor.store.writer import Writer
from tests.waiting import wait_for

RECORDED = Path(__file__).parent.parent / "unit" / "slurm_22_05" / "state"
STUB = """#!/bin/sh
cd {folder}
[ -e hang ] && exec sleep 1000
[ -e garbage ] && echo garbage && exit 0
[ -e fail ] && echo "Unable to contact slurm controller" >&2 && exit 1
[ "$1" = --version ] && exec echo slurm 22.05.8
what() {{ for last; do :; done; echo $last; }}
case "$0" in
*sacctmgr) case "$*" in *" assoc "*) exec cat assoc.txt;; *) exec cat qos.txt;; esac;;
*) exec cat "$(what "$@").txt";;
esac
"""
TYPES = [
    NodeType(
        "broadwell", "broadwell", ("batch",), cores=28, nodes=("bdw1", "bdw2", "bdw3", "bdw4")
    ),
    NodeType("skylake", "skylake", ("batch",), cores=28, nodes=("skl1", "skl2")),
]


class Slurm:
    """Commands in PATH that print a recorded cluster, until told otherwise by :meth:`now`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "slurm"
        self.folder.mkdir()
        for name in ("scontrol", "sacctmgr"):
            path = self.folder / name
            path.write_text(STUB.format(folder=self.folder))
            path.chmod(0o755)
        for file in RECORDED.glob("*.txt"):
            (self.folder / file.name).write_text(file.read_text())
        (self.folder / "reservation.txt").write_text("No reservations in the system\n")

    def now(self, *states: str) -> None:
        for name in ("hang", "garbage", "fail"):
            (self.folder / name).unlink(missing_ok=True)
        for name in states:
            (self.folder / name).touch()

    def say(self, name: str, before: str, after: str) -> None:
        path = self.folder / f"{name}.txt"
        text = path.read_text()
        assert before in text
        partial = path.with_suffix(".new")
        partial.write_text(text.replace(before, after))
        partial.replace(path)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    found = Slurm(tmp_path)
    monkeypatch.setenv("PATH", f"{found.folder}{os.pathsep}{os.environ['PATH']}")
    return found


@pytest.fixture
def source(store_path: Path) -> Iterator[StoreSource]:
    with Writer(store_path) as writer:
        writer.save_node_types(TYPES, source="test")
    found = StoreSource(store_path)
    found.refresh()
    yield found
    found.close()


def idle(source: StoreSource, name: str = "broadwell") -> int | None:
    state = source.snapshot.availability
    assert state is not None
    room = state.rooms.get((name, "batch"))
    return None if room is None else sum(count for _, count in room.idle)


def watching(source: StoreSource, test: Callable[[Watch], Any], every_s: float = 0.1) -> None:
    """Run a coroutine function of a watch while that watches."""

    async def run() -> None:
        watch = Watch(source, every_s)
        task = asyncio.ensure_future(watch.run())
        try:
            await test(watch)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def test_what_it_brings(slurm: Slurm, source: StoreSource) -> None:
    async def test(watch: Watch) -> None:
        assert idle(source) is None and not watch.status()["known"]
        await until(lambda: watch.status()["limits_known"])
        assert idle(source) == 1 and idle(source, "skylake") == 1
        status = watch.status()
        assert status["scheduler"] == "slurm" and status["error"] == "" and status["pid"]
        assert isinstance(status["age_s"], float) and status["age_s"] < 5
        state = source.snapshot.availability
        assert state is not None and state.limits is not None
        assert state.gives_whole_nodes("debug") and "daemon" in state.limits.users
        slurm.say("node", "State=ALLOCATED", "State=IDLE")
        await until(lambda: idle(source) == 2)

    watching(source, test)


def test_only_a_change_makes_answers_anew(slurm: Slurm, source: StoreSource) -> None:
    async def test(watch: Watch) -> None:
        await until(lambda: watch.status()["limits_known"])
        snapshot = source.snapshot
        key = (0, b"line")
        snapshot.remember(key, Answered(None, {}, 0, False))  # type: ignore[arg-type]
        before = watch._read_at
        await until(lambda: watch._read_at not in (before, None))
        await until(lambda: (watch.status()["age_s"] or 9) < 0.2)  # type: ignore[operator]
        assert snapshot.answered.get(key)
        slurm.say("node", "State=ALLOCATED", "State=IDLE")
        await until(lambda: not snapshot.answered.get(key))

    watching(source, test)


def test_a_promised_node_is_not_idle(
    slurm: Slurm, source: StoreSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROMISED_S", 1.0)
    request = JobRequest("slurm", "cli_filter", "daemon", 1, time_limit_s=60)
    bdw, skl = TYPES

    async def test(watch: Watch) -> None:
        def free() -> bool:
            state = source.snapshot.availability
            assert state is not None
            return not state.node_type_obstacle(request, bdw, skl, "batch", 1, "no-later")[0]

        await until(lambda: watch.status()["limits_known"])
        assert free()
        watch.promise("skylake", 1)
        assert not free()
        await until(free)

    watching(source, test)


def test_it_survives_a_new_snapshot(slurm: Slurm, source: StoreSource, store_path: Path) -> None:
    async def test(watch: Watch) -> None:
        await until(lambda: watch.status()["limits_known"])
        old = source.snapshot
        assert source.refresh(force=True) and source.snapshot is not old
        assert idle(source) == 1

    watching(source, test)


@pytest.mark.parametrize(
    ("fault", "error"),
    [("garbage", "something unexpected"), ("fail", "Unable to contact slurm controller")],
)
def test_commands_that_fail(
    slurm: Slurm, source: StoreSource, monkeypatch: pytest.MonkeyPatch, fault: str, error: str
) -> None:
    monkeypatch.setattr(module, "LASTS_S", 1.0)

    async def test(watch: Watch) -> None:
        await until(lambda: watch.status()["limits_known"])
        child = watch.status()["pid"]
        slurm.now(fault)
        await until(lambda: error in str(watch.status()["error"]))
        assert idle(source) == 1  # what was read last holds for a while
        await until(lambda: idle(source) is None)
        state = source.snapshot.availability
        assert state is not None
        code, why = state.node_type_obstacle(
            JobRequest("slurm", "x", "daemon", 1), TYPES[0], TYPES[1], "batch", 1, "no-later"
        )
        assert code == "node-type-later" and why.startswith(
            "nothing is known of the cluster's nodes"
        )
        slurm.now()
        await until(lambda: idle(source) == 1)
        assert watch.status()["error"] == "" and watch.status()["pid"] == child

    watching(source, test)


def test_limits_that_cannot_be_read(slurm: Slurm, source: StoreSource) -> None:
    (slurm.folder / "sacctmgr").write_text("#!/bin/sh\necho no access >&2; exit 1\n")

    async def test(watch: Watch) -> None:
        await until(lambda: watch.status()["limits_error"])
        status = watch.status()
        assert status["known"] and not status["limits_known"]
        assert status["limits_error"] == (
            "sacctmgr: no access; the daemon's user must be able to run sacctmgr show assoc for "
            "everybody"
        )

    watching(source, test)


def test_a_child_that_dies_is_started_again(
    slurm: Slurm, source: StoreSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", (0.1, 0.2))

    async def test(watch: Watch) -> None:
        await until(lambda: watch.status()["limits_known"])
        pid = watch.status()["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: watch.status()["error"])
        assert idle(source) == 1
        await until(lambda: watch.status()["error"] == "")
        assert watch.status()["children"] == 2 and watch.status()["pid"] != pid

    watching(source, test)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("echo garbage; exec sleep 1000", "not valid"),
        ("echo '{}'; exec sleep 1000", "not valid"),
        ("echo '[1]'; exec sleep 1000", "not valid"),
        ('echo \'{"at": 1, "state": {"rooms": 3}}\'; exec sleep 1000', "not valid"),
        ("exec sleep 1000", "sent nothing"),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_child_gone_mad(
    source: StoreSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    mad = tmp_path / "mad"
    mad.write_text(f"#!/bin/sh\n{program}\n")
    mad.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(mad))
    monkeypatch.setattr(module, "_SILENT_S", 0.3)
    monkeypatch.setattr(module, "_PAUSE_S", (0.4, 0.4))

    async def test(watch: Watch) -> None:
        await until(lambda: watch.status()["children"] == 1)
        pid = watch.status()["pid"]
        await until(lambda: why in str(watch.status()["error"]))
        assert idle(source) is None and watch.status()["children"] == 1  # a pause comes first
        assert pid is None or not Path(f"/proc/{pid}").exists()
        await until(lambda: watch.status()["children"] == 2)

    watching(source, test)


def test_no_scheduler_here(source: StoreSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("PBS_CONF_FILE", "/nonexistent")

    async def test(watch: Watch) -> None:
        await until(lambda: "no commands of Slurm or PBS" in str(watch.status()["error"]))
        assert "--watch 0" in str(watch.status()["hint"])

    watching(source, test)


# -- in a real daemon ----------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    found = Path(f"/tmp/advw-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    found.mkdir(mode=0o755)
    yield found
    subprocess.run(["rm", "-rf", str(found)], check=True)


def start(folder: Path, store: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "advisor",
        "serve",
        "--db",
        str(store),
        "--socket",
        str(folder / "s"),
        *arguments,
    ]
    return subprocess.Popen(command, stderr=(folder / "log").open("wb"))


def status(folder: Path) -> dict[str, Any]:
    try:
        found = call(folder / "s", {"op": "status"}, timeout_s=5)["availability"]
    except Exception:  # not yet there
        return {}
    assert isinstance(found, dict)
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_hanging_commands_delay_nobody_and_end_with_the_daemon(
    slurm: Slurm, source: StoreSource, folder: Path, number: signal.Signals
) -> None:
    slurm.now("hang")
    daemon = start(folder, source.path, "--watch", "0.5")
    try:
        wait_for(lambda: status(folder).get("pid"))
        child = int(status(folder)["pid"])
        wait_for(lambda: Path(f"/proc/{child}/task/{child}/children").read_text().split())
        hung = int(Path(f"/proc/{child}/task/{child}/children").read_text().split()[0])
        slowest = 0.0
        for _ in range(100):
            began = time.monotonic()
            assert call(folder / "s", {"op": "ping"}, timeout_s=5)["pong"] is True
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1.0
        if number == signal.SIGTERM:
            wait_for(lambda: "no answer within 10 s" in status(folder)["error"])
            hung = int(Path(f"/proc/{child}/task/{child}/children").read_text().split()[0])
    finally:
        daemon.send_signal(number)
        daemon.wait(15)
    wait_for(lambda: not alive(child) and not alive(hung), 10)


def test_a_daemon_that_does_not_watch(source: StoreSource, folder: Path) -> None:
    daemon = start(folder, source.path, "--watch", "0")
    try:
        wait_for((folder / "s").exists)
        assert call(folder / "s", {"op": "ping"}, timeout_s=5)["pong"]
        assert call(folder / "s", {"op": "status"}, timeout_s=5)["availability"] is None
    finally:
        daemon.terminate()
        daemon.wait(15)
    done = start(folder, source.path, "--watch", "31")
    assert done.wait(20) == 2 and "--watch takes 0 to 30" in (folder / "log").read_text()


def test_doctor_says_how_old_it_is(slurm: Slurm, source: StoreSource, folder: Path) -> None:
    def doctor() -> list[tuple[str, str, str]]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "advisor",
                "doctor",
                "--json",
                "--db",
                str(source.path),
                "--socket",
                str(folder / "s"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        checks = json.loads(done.stdout)["checks"]
        return [(c["state"], c["text"], c["todo"]) for c in checks if c["name"] == "watch"]

    daemon = start(folder, source.path, "--watch", "0.5")
    try:
        wait_for(lambda: status(folder).get("limits_known"))
        ((state, text, _),) = doctor()
        assert state == "ok" and text.startswith("Slurm's nodes and limits are known (last read")
        slurm.now("fail")
        wait_for(lambda: status(folder)["error"])
        ((state, text, todo),) = doctor()
        assert state == "warn" and "Unable to contact slurm controller" in text and todo
    finally:
        daemon.terminate()
        daemon.wait(15)
