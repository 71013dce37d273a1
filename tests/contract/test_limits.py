"""One user against all: what a daemon takes of each, as a real process with two users."""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from advisor.core.delivery import DeliveryKind
from advisor.core.protocol import MAX_PARTS, ProtocolError, call, parse_request_line
from advisor.core.script import DEADLINE_S, read
from advisor.core.script_use import use_of_script
from advisor.core.shell_words import TOO_SLOW
from advisor.errors import AdvisorError
from advisor.service import untaken
from advisor.service.limits import BURST, CONNECTIONS, RECORDS, UNNAMED, Limits, Use
from advisor.service.peer import Users
from advisor.service.quiet import Quiet
from advisor.service.untaken import MAX_UNTAKEN, Untaken

DESCRIPTORS = 200
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="one user cannot be two")
RUN = {
    "configuration": {
        "node_type": "bdw",
        "nodes": 1,
        "ranks_per_node": 1,
        "threads_per_node": 4,
        "freq_khz": 0,
    },
    "time_s": 1.0,
}


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(f"/tmp/adl-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    folder.mkdir(mode=0o755)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def daemon(place: Path) -> Iterator[subprocess.Popen[str]]:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "advisor",
            "serve",
            "--socket",
            str(place / "s"),
            "--db",
            str(place / "a.db"),
            "--watch",
            "0",
        ],
        stderr=(place / "log").open("w"),
        text=True,
        preexec_fn=bound,
    )
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            call(place / "s", {"op": "ping"})
            break
        except AdvisorError:
            time.sleep(0.05)
    yield process
    process.terminate()
    process.wait(10)


def as_user(uid: int, code: str, *words: str) -> str:
    """Run Python as another user, whose own it can read: the system's, without the advisor."""
    done = subprocess.run(
        ["/usr/bin/env", "-i", "python3", "-c", f"import json, socket, sys, time\n{code}", *words],
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


ASK = """
def ask(request, path=sys.argv[1]):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        try:
            connection.sendall(json.dumps({"v": 1, **request}).encode() + b"\\n")
        except OSError:
            pass
        return json.loads(connection.makefile().readline())
"""


@needs_root
def test_idle_connections_keep_nobody_away(place: Path, daemon: subprocess.Popen[str]) -> None:
    held = subprocess.Popen(
        [
            "/usr/bin/env",
            "-i",
            "python3",
            "-c",
            "import socket, sys, time\nheld = []\nfor _ in range(400):\n"
            "    held.append(socket.socket(socket.AF_UNIX)); held[-1].connect(sys.argv[1])\n"
            "print('held', flush=True)\ntime.sleep(60)",
            str(place / "s"),
        ],
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        answer = as_user(1, ASK + "print(ask({'op': 'ping'})['pong'])", str(place / "s"))
        assert answer == "True\n"
        open_by_daemon = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
        assert CONNECTIONS < open_by_daemon < 64 + CONNECTIONS, "no longer the idle ones' turn"
        assert len((place / "log").read_text().splitlines()) < 50
    finally:
        held.kill()
        held.wait()


@needs_root
def test_a_flood_is_refused_and_the_others_are_answered(
    place: Path, daemon: subprocess.Popen[str]
) -> None:
    code = ASK + (
        "answers = [ask({'op': 'ping'}) for _ in range(3000)]\n"
        "print(sum('error' in a for a in answers), [a for a in answers if 'error' in a][-1])"
    )
    refused, _, error = as_user(65534, code, str(place / "s")).partition(" ")
    assert int(refused) > 500
    assert "short requests a second" in error
    assert as_user(1, ASK + "print(ask({'op': 'ping'})['pong'])", str(place / "s")) == "True\n"
    log = (place / "log").read_text()
    assert 0 < log.count("event=too-much uid=65534") <= 11
    assert call(place / "s", {"op": "status"})["refused"] >= int(refused)  # type: ignore[operator]


@needs_root
def test_what_one_user_leaves_untaken_is_bounded(place: Path) -> None:
    """Nobody takes it here: the one who does holds the spool's lock."""
    (place / "spool").mkdir()
    lock = (place / "spool" / ".lock").open("w")
    import fcntl

    fcntl.flock(lock, fcntl.LOCK_EX)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "advisor",
            "serve",
            "--socket",
            str(place / "s"),
            "--db",
            str(place / "a.db"),
            "--watch",
            "0",
        ],
        stderr=(place / "log").open("w"),
        text=True,
    )
    try:
        request: dict[str, Any] = {
            "op": "observe",
            "application": "a",
            "workload": "w",
            "observations": [RUN] * 1000,
        }
        code = ASK + (
            "request = json.loads(sys.argv[2])\nresults = []\nwhile len(results) < 11:\n"
            "    answer = ask(request)\n"
            "    if 'too many requests' in answer.get('error', ''): time.sleep(0.2); continue\n"
            "    results.append(answer)\nprint(json.dumps(results))"
        )
        end = time.monotonic() + 20
        while not (place / "s").exists() and time.monotonic() < end:
            time.sleep(0.05)
        found = json.loads(as_user(65534, code, str(place / "s"), json.dumps(request)))
        assert [a.get("stored") for a in found[:10]] == [1000] * 10
        assert str(MAX_UNTAKEN) in found[10]["error"]
        one = json.dumps({**request, "observations": [RUN]})
        other = as_user(1, ASK + "print(ask(json.loads(sys.argv[2])))", str(place / "s"), one)
        assert "'stored': 1" in other
    finally:
        lock.close()
        process.terminate()
        process.wait(15)


def test_what_waits_is_counted_again_after_a_restart_and_forgotten_when_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs-1-ab-u7-n9999.json").write_text("x" * 1000)
    (tmp_path / "runs-2-ab.json").write_text("of an older daemon")
    waiting = Untaken(tmp_path)
    waiting.check(7, 1, 1)
    with pytest.raises(AdvisorError, match="limit is 10000 runs and 8 MB"):
        waiting.check(7, 2, 1)
    waiting.check(8, 10_000, 8_000_000)
    (tmp_path / "runs-1-ab-u7-n9999.json").unlink()
    waiting.check(7, 10_000, 1)
    waiting.add("phases-3-ab-u7-n1.json", 7_999_999)
    (tmp_path / "phases-3-ab-u7-n1.json").touch()
    with pytest.raises(AdvisorError, match="8 MB"):
        waiting.check(7, 1, 2)
    assert untaken.MAX_UNTAKEN_BYTES == 8_000_000


@pytest.mark.parametrize(
    "script",
    [
        "A0=aaaaaaaaaaaaaaaa\n"
        + "".join(f"A{i + 1}={f'$A{i}' * 10}\n" for i in range(9))
        + "srun $A9\n",
        "export " + "A=$A$A " * 5000,
        "a;" * 30_000,
        "x " + "$aa" * 15_000 + "'",
        "(" * 60_000,
        "{ " * 900 + "a\n" * 900 + "}&\n" * 900,
        "nice " * 12_000 + "x",
        "env " + "A=1 " * 12_000 + "x",
        "x " + "OMP_PLACES=" * 5000,
        "x " + "I_MPI_PIN" * 6000,
        "x " + "ulimit -" * 7000,
        '"$(' * 20_000,
        "cat " + " ".join(f"<<A{i}" for i in range(9000)) + "\n",
        "if a; then A=1; fi\n" * 900 + "export " + "B=1 " * 5000,
    ],
)
def test_no_script_takes_long_to_read(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory too: a script of ten lines took 1.1 GB."""
    monkeypatch.setattr("advisor.core.script.DEADLINE_S", DEADLINE_S)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gc.disable()  # one pass over all that other tests left would be counted with it
    try:
        begun = time.thread_time()
        use_of_script(script)
        assert time.thread_time() - begun < 12 * DEADLINE_S
    finally:
        gc.enable()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000


@pytest.mark.parametrize(("part", "takes"), [("[]", 8_000), ("{}", 8_000), ("1", 150_000)])
def test_a_request_may_have_so_many_parts(part: str, takes: int) -> None:
    """Lists take long to make; the runs that a user leaves in one line are fewer."""

    def line(count: int) -> bytes:
        return f'{{"v": 1, "op": "observe", "x": [{",".join([part] * count)}]}}'.encode()

    assert parse_request_line(line(takes))["op"] == "observe"
    if part != "1":
        with pytest.raises(ProtocolError, match="more than 20000 lists and objects"):
            parse_request_line(line(MAX_PARTS))


def test_a_script_that_takes_too_long_is_not_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.core.script.DEADLINE_S", 0.0)
    reading = read("srun ./deadline_zero\n" * 50)
    assert (reading.commands, reading.shell.problem) == ((), TOO_SLOW)
    monkeypatch.undo()
    assert read("srun ./deadline_zero\n" * 50).commands  # it was not remembered


def named(*uids: int) -> Users:
    """Return users of these ids, whose names are known."""
    users = Users()
    users._names |= {uid: f"user{uid}" for uid in uids}
    return users


def test_a_user_gets_an_allowance_and_root_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("advisor.service.limits.time.monotonic", lambda: now[0])
    users = named(1, 2)
    limits = Limits(users)
    user, root = limits.of(1), limits.of(0)
    for _ in range(int(BURST)):
        assert not user.spent()
        user.charge(0.0)
        root.charge(1.0)
    assert user.spent()
    assert not root.spent()
    now[0] += 0.5
    assert not user.spent()
    user.charge(0.010)  # ten milliseconds count as two hundred
    assert user.spent()
    assert limits.of(2) is not user


def test_the_slow_decisions_after_a_start_are_no_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read for the first time takes 14 ms or so: an honest user's next jobs get advice."""
    now = [100.0]
    monkeypatch.setattr("advisor.service.limits.time.monotonic", lambda: now[0])
    user = Limits(named(1)).of(1)
    for _ in range(3):
        assert not user.spent()
        user.charge(0.014)
    answered = 0
    for _ in range(1000):  # and who goes on so is answered half a time a second
        now[0] += 0.01
        if not user.spent():
            user.charge(0.014)
            answered += 1
    assert 4 <= answered <= 6


def test_users_without_a_name_share_one_allowance() -> None:
    users = Users()
    limits = Limits(users)
    for uid in (3_000_001, 3_000_002):
        users.name(uid)
    assert limits.of(3_000_001) is limits.of(3_000_002)
    assert limits.of(3_000_003) is limits.of(3_000_001)  # also while nobody has looked
    assert limits.booked(3_000_001) == limits.booked(3_000_003) == UNNAMED
    not_looked_up, root = limits.of(1), limits.of(0)
    assert not_looked_up is limits.of(3_000_001)
    users.name(1)
    assert limits.of(1) is not limits.of(3_000_001) and limits.booked(1) == 1
    assert limits.of(0) is root and not root.bounded


@needs_root
@pytest.mark.usefixtures("daemon")
def test_a_hundred_ids_without_a_name_take_no_more_than_one_user(place: Path) -> None:
    """A range of /etc/subuid: together they get one user's allowance, and others are answered."""
    code = (
        "import os, socket, sys\n"
        f"for n in range({int(BURST) // 5}):\n"
        "    if not os.fork():\n"
        "        os.setresuid(*[3000000 + n % 100] * 3)\n"
        "        s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1])\n"
        '        try: s.sendall(b\'{"v": 1, "op": "ping"}\\n\' * 100); s.shutdown(1)\n'
        "        except OSError: pass\n"
        "        try: s.recv(65536)\n        finally: os._exit(0)\n"
        "    os.wait()\n"
    )
    flood = subprocess.Popen(
        [sys.executable, "-c", code, str(place / "s")], stderr=subprocess.PIPE, text=True
    )
    try:
        for _ in range(10):
            ping = as_user(1, ASK + "print(ask({'op': 'ping'})['pong'])", str(place / "s"))
            assert ping == "True\n"
    finally:
        _, said = flood.communicate(timeout=300)
    log = (place / "log").read_text()
    assert call(place / "s", {"op": "status"})["refused"], (said, log[-500:])
    assert f"event=too-much uid={UNNAMED}" in log and "uid=30000" not in log


def test_records_of_one_user_in_a_day_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("advisor.service.limits.time.monotonic", lambda: now[0])
    limits = Limits(named(1, 2))
    assert sum(limits.of(1).may_record() for _ in range(RECORDS + 500)) == RECORDS
    assert limits.of(2).may_record() and limits.of(0).may_record()
    now[0] += 86400 / 2
    assert sum(limits.of(1).may_record() for _ in range(RECORDS)) == RECORDS // 2
    assert all(limits.of(0).may_record() for _ in range(RECORDS + 1))


@pytest.mark.parametrize("kind", get_args(DeliveryKind))
def test_every_kind_of_delivery_counts(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"{kind}-1-ab-u7-n1.json").write_bytes(b"x" * 7_999_999)
    waiting = Untaken(tmp_path)
    assert waiting.waiting() == 1
    with pytest.raises(AdvisorError, match="8 MB"):
        waiting.check(7, 1, 2)


def test_the_oldest_connection_of_the_user_with_most_is_closed() -> None:
    limits = Limits(named(11, 12))
    limits.most = 5
    closed: list[int] = []
    many, few = limits.of(11), limits.of(12)
    limits.enter(few, "few", lambda: closed.append(-1))

    def enter(use: Use, number: int) -> None:
        limits.enter(use, number, lambda: closed.append(number))

    for number in range(6):
        enter(many, number)
    assert closed == [0, 1]
    limits.leave(many, 5)
    limits.leave(many, 5)
    assert limits.connections == 4


def test_the_same_warning_is_written_ten_times_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("advisor.service.quiet.time.monotonic", lambda: now[0])
    quiet = Quiet()

    def line(uid: int, level: int = logging.WARNING) -> logging.LogRecord:
        return logging.LogRecord("a", level, "p", 1, "event=bad uid=%d", (uid,), None)

    assert sum(quiet.filter(line(1)) for _ in range(500)) == 10
    assert quiet.filter(line(2))
    assert all(quiet.filter(line(1, logging.INFO)) for _ in range(50))
    now[0] = 61.0
    last = line(1)
    assert quiet.filter(last)
    assert last.getMessage() == "event=bad uid=1 held_back=490"


def test_a_client_that_finds_the_door_crowded_waits(tmp_path: Path) -> None:
    path = Path(f"/tmp/adl-{os.getpid()}.s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        try:
            listener.listen(0)
            first = socket.socket(socket.AF_UNIX)
            first.connect(str(path))
            with pytest.raises(AdvisorError, match="too many wait there"):
                call(path, {"op": "ping"}, timeout_s=0.1)
            first.close()
        finally:
            path.unlink()
