"""The daemon as a real process: protocol, identity, faults, reload, shutdown."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.protocol import MAX_REQUEST
from advisor.store.publish import publish
from advisor.store.writer import Writer
from tests.unset import as_measured

Start = Callable[..., subprocess.Popen[str]]
_SO_SNDBUFFORCE = 32
"""Linux' own, which the socket module has no name for."""
DECIDE = {
    "v": 1,
    "op": "decide",
    "scheduler": "slurm",
    "hook": "cli_filter",
    "type": "sbatch",
    "options": {"nodes": "1", "exclusive": "exclusive"},
    "argv": ["/home/job.sh"],
    "script": "srun ./stencil\n",
    "script_path": "/home/job.sh",
}


def fill(path: Path, threads: int = 8) -> None:
    """A store with one model that says: ``threads`` of 16 cores are best."""
    node = NodeType(
        "bdw",
        feature="broadwell",
        partitions=("batch",),
        cores=16,
        nodes=("bdw1",),
        default_partition="batch",
    )
    options = [
        Option(
            Configuration("bdw", 1, 1, t, 0),
            10,
            9.99,
            10.01,
            e,
            e * 0.999,
            e * 1.001,
            True,
            True,
            True,
            True,
        )
        for t, e in ((16, 1000.0), (threads, 800.0))
    ]
    with Writer(path) as writer:
        writer.save_node_types([node], source="test")
        base = {"mode": "apply", "goal": "min_energy", "holdout": 0.0}
        writer.apply_config(
            "policy", path="p", text=str(threads), compiled={"base": base, "rules": []}, by="test"
        )
        writer.save_model(
            "stencil",
            "default",
            "bdw",
            scope="all",
            owner="",
            name="bspline",
            energy_quality="measured",
            n_train=12,
            stats=as_measured(options),
            options=options,
        )


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    folder = Path(f"/tmp/adv-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    with daemons_of(place) as starting:
        yield starting


@contextmanager
def daemons_of(place: Path) -> Iterator[Start]:
    """Start daemons that watch no scheduler, unless said otherwise, and end them."""
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str, db: Path | None = None, wait: bool = True) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "advisor",
            "serve",
            "--socket",
            str(place / "s"),
            "--db",
            str(db or place / "a.db"),
            "--refresh",
            "0.05",
            "--watch",
            "0",
            *arguments,
        ]
        process = subprocess.Popen(command, stderr=(place / "log").open("w"), text=True)
        processes.append(process)
        if wait:
            wait_for(lambda: ask(place, {"v": 1, "op": "ping"}).get("pong") is True)
        return process

    try:
        yield run
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """The folder of a daemon for all that one goes on answering after."""
    with short_folder() as folder, daemons_of(folder) as starting:
        fill(folder / "a.db")
        starting()
        yield folder


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.03)
    raise AssertionError("it never came true")


def exchange(place: Path, data: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(place / "s"))  # as hooks do: it waits where others stand before it
        client.settimeout(10)
        client.sendall(data)
        with client.makefile("rb") as lines:
            answer: dict[str, Any] = json.loads(lines.readline())
            return answer


def ask(place: Path, request: dict[str, Any]) -> dict[str, Any]:
    return exchange(place, json.dumps(request).encode() + b"\n")


def test_it_answers_records_and_stops_cleanly(place: Path, start: Start) -> None:
    fill(place / "a.db")
    daemon = start("--watch", "30")
    answer = ask(place, DECIDE)
    assert answer["v"] == 1
    assert answer["env"] == {"OMP_NUM_THREADS": "8"}
    assert answer["stamp"].startswith('advisor:{"v":1,"id":"' + answer["decision"])
    status = ask(place, {"v": 1, "op": "status"})
    assert (status["models"], status["decisions"], status["changed"]) == (1, 1, 1)
    daemon.terminate()
    assert daemon.wait(10) == 0
    assert not (place / "s").exists()
    with Writer(place / "a.db") as store:
        record = store.decision(answer["decision"])
    assert record is not None
    assert record.rewrite == answer["rewrite"]
    assert record.user == pwd.getpwuid(os.getuid()).pw_name


def test_a_reader_of_the_log_that_hangs_does_not_keep_it_from_ending(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As journald does, for minutes: no line of the log is read, and the pipe is full."""
    fill(place / "a.db")
    unread, log = os.pipe()
    os.set_blocking(log, False)
    with suppress(BlockingIOError):
        while True:
            os.write(log, b"x" * 4096)
    os.set_blocking(log, True)
    command = [sys.executable, "-m", "advisor", "serve", "--socket", str(place / "s")]
    daemon = subprocess.Popen(
        [*command, "--db", str(place / "a.db"), "--watch", "0"], stderr=log, text=True
    )
    try:
        wait_for(lambda: ask(place, {"v": 1, "op": "ping"}).get("pong") is True)
        answer = ask(place, DECIDE)
        daemon.terminate()
        assert daemon.wait(5) == 0
    finally:
        daemon.kill()
        daemon.wait()
        os.close(unread)
        os.close(log)
    assert not (place / "s").exists()
    with Writer(place / "a.db") as store:
        assert store.decision(answer["decision"]) is not None


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\n", "not JSON"),
        (b"hello\n", "not JSON"),
        (b"[1]\n", "not a JSON object"),
        (b'{"v":2,"op":"ping"}\n', "version"),
        (b'{"v":1}\n', "no op"),
        (b'{"v":1,"op":"dance"}\n', "unknown op"),
        (b'{"v":1,"op":"decide","scheduler":"lsf"}\n', "unknown scheduler"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b"x" * (MAX_REQUEST + 10), "bytes"),
        (b'{"v":1,"op":"submitted","decision":"0","job":"1"}\n', "not made for you"),
        (b'{"v":1,"op":"observe","observations":[{"time_s":1}]}\n', "configuration"),
    ],
)
def test_nonsense_is_answered_with_an_error(shared: Path, line: bytes, error: str) -> None:
    assert error in exchange(shared, line)["error"]
    assert ask(shared, DECIDE)["env"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have so much on its way")
def test_a_line_too_long_is_refused_where_its_end_comes_along(place: Path, start: Start) -> None:
    """The rest of it lies ready with its end when the daemon reads on, as on a busy host."""
    fill(place / "a.db")
    daemon = start()
    line = json.dumps({"v": 1, "op": "ping", "filler": "x" * (MAX_REQUEST + MAX_REQUEST // 2)})
    with socket.socket(socket.AF_UNIX) as client:
        client.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 8 * MAX_REQUEST)
        client.settimeout(30)
        client.connect(str(place / "s"))
        assert ask(place, DECIDE)["env"]
        daemon.send_signal(signal.SIGSTOP)
        client.sendall(line.encode() + b"\n")
        daemon.send_signal(signal.SIGCONT)
        with client.makefile("rb") as answers:
            assert "bytes" in json.loads(answers.readline())["error"]
    assert ask(place, DECIDE)["env"]


def test_half_a_line_and_silence_block_nobody(shared: Path) -> None:
    silent = []
    for _ in range(200):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(shared / "s"))
        client.sendall(b'{"v":1,')
        silent.append(client)
    assert ask(shared, DECIDE)["env"]
    for client in silent:
        client.close()


def test_several_lines_on_one_connection_come_back_in_order(shared: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(shared / "s"))
        client.sendall(b'{"v":1,"op":"ping"}\n' + json.dumps(DECIDE).encode() + b'\n{"v":')
        client.sendall(b'1,"op":"status"}\n')
        with client.makefile("rb") as lines:
            answers = [json.loads(lines.readline()) for _ in range(3)]
    assert "pong" in answers[0] and "rewrite" in answers[1] and "models" in answers[2]


def test_a_client_that_reads_late_gets_all_answers_in_order(shared: Path) -> None:
    """They are more than a socket holds, so that the daemon keeps some until they are taken."""
    lines = [{"v": 1, "op": op} for _ in range(120) for op in ("metrics", "ping")]
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(shared / "s"))
        client.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        time.sleep(0.3)
        client.shutdown(socket.SHUT_WR)
        answers = [json.loads(line) for line in client.makefile("rb")]
    assert ["metrics" if "metrics" in a else "ping" for a in answers] == [x["op"] for x in lines]
    assert sum(len(a.get("metrics", "")) for a in answers) > 250_000


def test_a_client_may_ask_again_at_once_or_later(shared: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(shared / "s"))
        with client.makefile("rb") as lines:
            for pause in (0.0, 0.0, 0.05, 0.05):
                time.sleep(pause)
                client.sendall(json.dumps(DECIDE).encode() + b"\n")
                assert json.loads(lines.readline())["env"]


def test_a_new_model_and_policy_are_noticed(place: Path, start: Start) -> None:
    fill(place / "a.db", threads=8)
    start()
    assert ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "8"}
    fill(place / "a.db", threads=4)
    wait_for(lambda: ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "4"})
    with Writer(place / "a.db") as store:
        store.apply_config(
            "policy", path="p", text="off", compiled={"base": {"mode": "off"}, "rules": []}, by="t"
        )
    wait_for(lambda: ask(place, DECIDE)["rewrite"] == {})


def test_a_replaced_published_copy_is_noticed(place: Path, start: Start) -> None:
    fill(place / "a.db", threads=8)
    publish(place / "a.db", place / "copy.db")
    start("--read-only", db=place / "copy.db")
    assert ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "8"}
    fill(place / "a.db", threads=4)
    publish(place / "a.db", place / "copy.db")
    wait_for(lambda: ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "4"})
    run = {"configuration": Configuration("bdw", 1, 1, 4, 0).to_dict(), "time_s": 1.0}
    refused = ask(
        place,
        {"v": 1, "op": "observe", "application": "a", "workload": "w", "observations": [run]},
    )
    assert "published copy" in refused["error"]


def test_a_store_broken_under_way_keeps_the_last_good_answers(place: Path, start: Start) -> None:
    fill(place / "a.db")
    daemon = start()
    for leftover in place.glob("a.db*"):
        leftover.unlink()
    (place / "a.db").write_bytes(b"this is no database" * 1000)
    daemon.send_signal(signal.SIGHUP)
    wait_for(lambda: ask(place, {"v": 1, "op": "status"})["store_error"] != "")
    assert ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "8"}
    (place / "a.db").unlink()
    fill(place / "a.db", threads=4)
    wait_for(lambda: ask(place, {"v": 1, "op": "status"})["store_error"] == "")
    wait_for(lambda: ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "4"})


def test_a_store_broken_from_the_start_changes_nothing_and_says_so(
    place: Path, start: Start
) -> None:
    (place / "a.db").write_bytes(b"garbage" * 5000)
    start()
    answer = ask(place, DECIDE)
    assert answer["rewrite"] == {} and answer["message"] == ""
    assert '"store-unreadable"' in answer["stamp"]
    assert "store-unreadable" in (place / "log").read_text()


def test_no_store_yet_is_an_empty_one(place: Path, start: Start) -> None:
    start(db=place / "new" / "a.db")
    assert '"no-model"' in ask(place, DECIDE)["stamp"]


def test_two_daemons_do_not_share_a_socket(place: Path, start: Start) -> None:
    fill(place / "a.db")
    start()
    second = start(wait=False)
    assert second.wait(10) == 1
    assert "another daemon" in (place / "log").read_text()
    assert ask(place, DECIDE)["env"]


def test_a_socket_left_behind_is_replaced(place: Path, start: Start) -> None:
    fill(place / "a.db")
    first = start()
    first.kill()
    first.wait()
    assert (place / "s").exists()
    start()
    assert ask(place, DECIDE)["env"]


def test_where_the_socket_is_visible_clients_are_accepted(place: Path, start: Start) -> None:
    """A daemon that restarts is never a socket that refuses: it listens before it is there."""
    fill(place / "a.db")
    start(wait=False)
    while True:  # as often as the machine lets us look
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(place / "s"))
        except FileNotFoundError:
            continue
        finally:
            client.close()
        break


def test_a_file_in_the_sockets_place_is_kept(place: Path, start: Start) -> None:
    fill(place / "a.db")
    (place / "s").write_text("mine\n")
    assert start(wait=False).wait(10) == 1
    assert f"{place / 's'}: is there and is not a socket" in (place / "log").read_text()
    assert (place / "s").read_text() == "mine\n"


def test_the_enforce_marker_follows_the_policy(place: Path, start: Start) -> None:
    fill(place / "a.db")
    daemon = start()
    marker = place / "s.enforce"
    assert not marker.exists()
    with Writer(place / "a.db") as store:
        base = {"mode": "apply", "enforce": True, "holdout": 0.0, "goal": "min_energy"}
        store.apply_config(
            "policy", path="p", text="e", compiled={"base": base, "rules": []}, by="t"
        )
    wait_for(marker.exists)
    answer = ask(place, DECIDE)
    again = {**DECIDE, "hook": "job_submit", "stamp": answer["stamp"], "uid": os.getuid()}
    assert ask(place, again)["rewrite"] == {}
    assert ask(place, {**again, "stamp": ""})["env"] == {"OMP_NUM_THREADS": "8"}
    daemon.terminate()
    daemon.wait(10)
    assert not marker.exists()


def test_a_socket_handed_over_by_systemd(place: Path) -> None:
    fill(place / "a.db")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place / "s"))
    listener.listen()
    code = (
        "import os, sys\nos.dup2(int(sys.argv[1]), 3)\nos.set_inheritable(3, True)\n"
        "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'advisor', 'serve', '--db', sys.argv[2]])"
    )
    command = [sys.executable, "-c", code, str(listener.fileno()), str(place / "a.db")]
    with subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=subprocess.PIPE) as daemon:
        try:
            assert ask(place, DECIDE)["env"] == {"OMP_NUM_THREADS": "8"}
        finally:
            daemon.terminate()
    assert (place / "s").exists()
    listener.close()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to ask as somebody else")
def test_a_uid_is_believed_only_from_root(place: Path, start: Start) -> None:
    fill(place / "a.db")
    start()
    nobody = pwd.getpwnam("nobody").pw_uid
    assert ask(place, {**DECIDE, "op": "explain", "uid": nobody})["user"] == "nobody"
    code = (
        "import socket, sys\nc = socket.socket(socket.AF_UNIX)\nc.connect(sys.argv[1])\n"
        "c.sendall(sys.argv[2].encode() + b'\\n')\nprint(c.makefile().readline())"
    )

    def as_nobody(request: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            ["/usr/bin/env", "python3", "-c", code, str(place / "s"), json.dumps(request)],
            capture_output=True,
            text=True,
            check=True,
            user=nobody,
            group=65534,
            env={"PATH": "/usr/bin:/bin"},
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    assert as_nobody({**DECIDE, "op": "explain", "uid": 0})["user"] == "nobody"
    mine = ask(place, DECIDE)["decision"]
    stolen = as_nobody({"v": 1, "op": "submitted", "decision": mine, "job": "77"})
    assert "not made for you" in stolen["error"]
    assert ask(place, {"v": 1, "op": "submitted", "decision": mine, "job": "77"}) == {
        "v": 1,
        "ok": True,
    }
