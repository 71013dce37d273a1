"""Nothing that goes wrong with the daemon, its answer, the settings or the host touches a job."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hooked import (
    DECISION,
    HOOKS,
    STAMP,
    answering,
    daemon,
    dripping,
    full,
    hanging,
    job,
    plan,
    run_hook,
)
from queuejob.whole import HOOK, REWRITE, WHOLE, stamped, untouched

from advisor.core import protocol
from advisor.schedulers.pbs import hook_state, hooks
from tests.stopped import stop_peer

Behaviour = Callable[[socket.socket, bytes], None]


def padded(size: int) -> bytes:
    """Return an answer of so many bytes."""
    return plan(REWRITE, message="x" * (size - len(plan(REWRITE))))


@pytest.mark.parametrize("answer", [padded(65536), plan(REWRITE) + b"more\n"])
def test_an_answer_is_one_line_of_so_many_bytes(
    tmp_path: Path, path: Path, settings: dict[str, object], answer: bytes
) -> None:
    with daemon(path, answering(answer)):
        [done] = run_hook(HOOK, [job(WHOLE)], {**settings, "deadline_s": 5.0}, folder=tmp_path)
    assert done["resources"] == stamped(WHOLE, REWRITE), done["log"]


def test_no_daemon(tmp_path: Path, path: Path, settings: dict[str, object]) -> None:
    event = job(WHOLE)
    done, again = run_hook(HOOK, [event, event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert untouched(again, event)
    assert done["log"] == [
        f"advisor: job goes on unchanged: no daemon answers at {path}: No such file or directory"
    ]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))  # nobody listens
    [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    listener.close()
    assert untouched(done, event)
    assert "Connection refused" in done["log"][0]
    assert not (tmp_path / "breaker").exists()


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (hanging, "did not answer in time"),
        (dripping(plan(REWRITE), 0.05), "did not answer in time"),
        (answering(b"garbage\n"), "is not JSON"),
        (answering(b"\xff\xfe\n"), "is not JSON"),
        (answering(b"[" * 50_000 + b"\n"), "is not JSON"),
        (answering(b"[]\n"), "is not an object"),
        (answering(b"x" * 100_000), "too long"),
        (answering(plan(REWRITE, v=2)), "protocol version 1"),
        (answering(plan(REWRITE, decision="nope")), "no decision"),
        (answering(plan(REWRITE, decision=7)), "no decision"),
        (answering(plan(REWRITE, decision=DECISION + ",A=1")), "no decision"),
        (answering(plan(REWRITE, env={"PATH": "/x"})), "not a number of threads"),
        (answering(plan(REWRITE, env={"MKL_NUM_THREADS": "0"})), "not a number of threads"),
        (answering(plan(REWRITE, env={"MKL_NUM_THREADS": 4})), "not a number of threads"),
        (answering(plan(REWRITE, env={"MKL_NUM_THREADS": "4\n"})), "not a number of threads"),
        (answering(plan(REWRITE, env=["MKL_NUM_THREADS"])), "not one for PBS"),
        (answering(plan().replace(b"{}", b"[]", 1)), "not one for PBS"),
        (answering(plan(REWRITE, stamp="advisor:{'}")), "stamp is malformed"),
        (answering(plan(REWRITE, stamp="advisor:{}\nx")), "stamp is malformed"),
        (answering(plan(REWRITE, stamp=None)), "no stamp"),
        (answering(plan(REWRITE, stamp="advisor:{" + "x" * 1991 + "}")), "no stamp"),
        (answering(plan({"select": 4})), "is not valid"),  # type: ignore[dict-item]
        (answering(plan({"select": "1:ncpus=" + "1" * 4000})), "is not valid"),
        (answering(plan({"select": "1:ncpus=4 rm"})), "not one the advisor writes"),
        (answering(plan({"select": "1:ncpus=4:file='x'"})), "not one the advisor writes"),
        (answering(plan({"select": ""})), "not one the advisor writes"),
        (answering(plan({"select": "1:ncpus=4\n"})), "not one the advisor writes"),
        (answering(plan({"ompthreads": "4\n"})), "not one the advisor writes"),
        (answering(plan({"cpu_freq_mhz": "1900\n"})), "not one the advisor writes"),
        (answering(padded(65537)), "too long"),
        (answering(plan({"place; x": "free"})), "not one the advisor writes"),
        (answering(plan({"cpu_freq_mhz": "-1"})), "not one the advisor writes"),
        (answering(plan({"cpu_freq_mhz": "19e3"})), "not one the advisor writes"),
        (answering(plan({"walltime": "1:00"})), "not one the advisor writes"),
        (answering(plan({"executable": "/bin/rm"})), "not one the advisor writes"),
    ],
)
def test_a_daemon_that_misbehaves_is_asked_once(
    tmp_path: Path, path: Path, settings: dict[str, object], behave: Behaviour, said: str
) -> None:
    event = job(WHOLE)
    with daemon(path, behave) as asked:
        done, again = run_hook(HOOK, [event, event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert untouched(again, event)
    assert len(asked) == 1
    assert said in done["log"][0]
    assert done["log"][0].endswith("(not asked again for 30 s)")
    assert again["log"] == ["advisor: the daemon hung a moment ago and is not asked"]


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (lambda connection, _: None, "hung up"),
        (answering(b'{"v":1,"error":"no such user\\n\\u001b[2J"}\n'), "no such user"),
        (answering(plan({"bigmem": "x"})), "not the advisor's to write"),
        (answering(plan({"node_type": "x"})), "not the advisor's to write"),
        (answering(plan({"walltime": "x"})), "not the advisor's to write"),
        (answering(plan({"place": "excl"})), "not the advisor's to write"),
        (answering(plan({"ompthreads": "4"})), "not the advisor's to write"),
        (answering(plan({"nosuch": "x"})), "there is no resource nosuch"),
        (answering(plan(env={"LD_PRELOAD": "4"})), "not the advisor's to set"),
        (answering(plan(env={"OMP_NUM_THREADS": "4"})), "not the advisor's to set"),
        (answering(plan(env={"MKL_NUM_THREADS x": "4"})), "not the advisor's to set"),
        (answering(plan(REWRITE, env={"PBS_O_X": "4"})), "not the advisor's to set"),
        (answering(plan({"select": "1:ncpus=64:mpiprocs=1:node_type=bdw"})), "does not write"),
        (answering(plan({"select": "2:ncpus=28:mpiprocs=1:node_type=bdw"})), "does not write"),
        (answering(plan({"select": "1:ncpus=28:mpiprocs=2:node_type=bdw"})), "does not write"),
        (answering(plan({"select": "1:ncpus=28:mpiprocs=1:node_type=skl"})), "does not write"),
        (answering(plan({"select": "1:ncpus=28:node_type=bdw"})), "takes nothing out"),
        (answering(plan({"select": WHOLE["select"] + ":nosuch=1"})), "does not write"),
        (answering(plan({"select": WHOLE["select"] + "+1:ncpus=1"})), "does not make chunks"),
        (answering(plan({"select": WHOLE["select"] + ":ompthreads="})), "does not write"),
    ],
)
def test_a_plan_that_cannot_be_is_not_begun(
    tmp_path: Path, path: Path, settings: dict[str, object], behave: Behaviour, said: str
) -> None:
    event = job(WHOLE)
    with daemon(path, behave):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert done["written"] == []
    assert said in done["log"][0]
    assert "\x1b" not in done["log"][0]
    assert not (tmp_path / "breaker").exists()


@pytest.mark.parametrize(
    ("given", "rewrite", "said"),
    [
        ({"nodes": "1:ppn=4"}, {"ompthreads": "2"}, "not the advisor's to write"),
        ({"ncpus": "4", "ompthreads": "4"}, {"ompthreads": "2"}, "not the advisor's to write"),
        ({}, {"place": "excl"}, "not the advisor's to write"),
        ({"ncpus": "4"}, {"select": "1:ncpus=4"}, "does not make chunks"),
        (
            {"select": "1:ncpus=14:mem=4gb+1:ncpus=14"},
            {"select": "1:ncpus=10:mem=4gb+1:ncpus=14"},
            "does not write ncpus=10 for ncpus=14",
        ),
        ({"select": "2:ncpus=14"}, {"select": "2:ncpus=10"}, "does not write ncpus=10"),
        ({"select": "1:ncpus=14"}, {"select": "1:ncpus=0"}, "does not write ncpus=0"),
        ({"select": "1:ncpus=14"}, {"select": "1:ncpus=15"}, "does not write ncpus=15"),
        ({"select": "1:mpiprocs=14"}, {"select": "1:ncpus=1"}, "does not write ncpus=1"),
        ({"select": "1:ncpus=14"}, {"select": "1:mpiprocs=10"}, "does not write mpiprocs=10"),
        ({"select": "1:mem=14"}, {"select": "1:mem=13"}, "does not write mem=13 for mem=14"),
        (
            {"select": "1:ncpus=4:mem=4gb"},
            {"select": "1:ncpus=4:ompthreads=4"},
            "does not write ompthreads=4 for mem=4gb",
        ),
        ({"select": "1:ncpus=4"}, {"select": "1:ncpus=4:ompthreads=0"}, "does not write ompth"),
        (
            {"select": "1:ncpus=4:node_type=bdw"},
            {"select": "1:ncpus=4:node_type=skl"},
            "does not write node_type=skl for node_type=bdw",
        ),
        ({"select": "1:ncpus=4"}, {"select": "1:ncpus=4:mem=4gb"}, "for nothing"),
    ],
)
def test_a_plan_that_does_not_go_with_its_job_is_not_begun(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    given: dict[str, str | int],
    rewrite: dict[str, str],
    said: str,
) -> None:
    event = job(given)
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert said in done["log"][0]


def test_where_nobody_is_let_in_the_job_goes_on(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    with full(path):
        [done] = run_hook(HOOK, [job(WHOLE)], {**settings, "deadline_s": 1.0}, folder=tmp_path)
    assert untouched(done, job(WHOLE))
    assert "did not answer in time" in done["log"][0]
    assert done["took_s"] < 1.5


@pytest.mark.parametrize("more", [0, 1])
def test_what_a_job_asks_for_is_kept_up_to_four_thousand_characters(
    tmp_path: Path, path: Path, settings: dict[str, object], more: int
) -> None:
    """Behind its stamp, to be taken back where a later hook changes it."""
    rewrite = {"cpu_freq_mhz": "1900"}
    given = {"select": "+".join(["1:ncpus=28:node_type=bdw"] * 150) + ":mem=", "place": "excl"}
    length = len(stamped(given, rewrite)["advisor_stamp"]) - len(STAMP)
    given["select"] += "1".zfill(4000 + more - length)
    event = job(given)
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    if more:
        assert untouched(done, event)
        assert "what it asks for is too long to be kept" in done["log"][0]
    else:
        assert done["resources"] == stamped(given, rewrite), done["log"]


POSED_CLOCK = """
import pbs, select, socket, struct, sys, time, types
lets_in_s, stands_s, now_s = {lets_in_s}, {stands_s}, [100.0]
class Slow(socket.socket):
    def setsockopt(self, level, option, room):
        pbs.logmsg(pbs.EVENT_DEBUG, f"{{option}} {{struct.unpack('ll', room)}}")
    def connect(self, path):
        now_s[0] += lets_in_s
class Poll:
    def register(self, *_):
        pass
    def poll(self, wait_ms):
        now_s[0] += wait_ms / 1000 + stands_s
        pbs.logmsg(pbs.EVENT_DEBUG, f"waits {{wait_ms}} ms")
        return []
socket.socket, select.poll = Slow, Poll
sys.modules["time"] = types.SimpleNamespace(monotonic=lambda: now_s[0], time=time.time)
"""


@pytest.mark.parametrize(
    ("deadline_s", "room", "lets_in_s", "stands_s", "pieces"),
    [
        (0.255, (0, 127_500), 0, 0, 26),
        (0.255, (0, 127_500), 0.1, 0, 16),  # one deadline for all of it
        (0.255, (0, 127_500), 5, 0, 13),  # nobody waits as long to be let in: the host stood still
        (0.255, (0, 127_500), 0, 3, 26),  # it stands still in each piece of waiting
        (3.0625, (1, 531_250), 0, 0, 307),
        (0.0, (0, 1), 0, 0, 0),  # no time at all: 0 would be for ever
    ],
)
def test_the_deadline_is_that_of_all_waiting(
    tmp_path: Path,
    settings: dict[str, object],
    deadline_s: float,
    room: tuple[int, int],
    lets_in_s: float,
    stands_s: float,
    pieces: int,
) -> None:
    """By a posed clock: half of it to be let in, then each piece of 10 ms counts for itself."""
    hook = tmp_path / "posed.py"
    posed = POSED_CLOCK.format(lets_in_s=lets_in_s, stands_s=stands_s)
    text = (HOOKS / HOOK).read_text()
    hook.write_text(text.replace("import pbs\n", f"import pbs; exec({posed!r})\n", 1))
    known = {**settings, "deadline_s": deadline_s}
    [done] = run_hook(str(hook), [job(WHOLE)], known, folder=tmp_path)
    assert untouched(done, job(WHOLE))
    waits = ["waits 10.0 ms"] * pieces
    assert done["log"][:-1] == [f"{int(socket.SO_SNDTIMEO)} {room}", *waits]
    assert "did not answer in time" in done["log"][-1]


def test_who_is_let_in_late_is_answered(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    def serve(listener: socket.socket) -> None:
        time.sleep(0.3)
        with listener.accept()[0], listener.accept()[0] as connection:
            connection.recv(65536)
            time.sleep(1.2)  # longer than half of the deadline
            connection.sendall(plan(REWRITE))

    with full(path) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        [done] = run_hook(HOOK, [job(WHOLE)], {**settings, "deadline_s": 2.0}, folder=tmp_path)
        thread.join()
    assert done["resources"] == stamped(WHOLE, REWRITE), done["log"]


def test_a_host_that_stands_still_is_not_a_daemon_that_hangs(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """The answer comes long after the deadline, but the hook did not run meanwhile."""

    def stop(connection: socket.socket, line: bytes) -> None:
        stop_peer(connection, 1.5)
        answering(plan(REWRITE))(connection, line)

    with daemon(path, stop):
        [done] = run_hook(HOOK, [job(WHOLE)], {**settings, "deadline_s": 1.0}, folder=tmp_path)
    assert done["resources"] == stamped(WHOLE, REWRITE), done["log"]
    assert not (tmp_path / "breaker").exists()


def test_the_alarm_in_the_middle_of_it_lets_the_job_go(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    event = job(WHOLE)
    settings["deadline_s"] = 5.0

    def interrupt(connection: socket.socket, _: bytes) -> None:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        os.kill(struct.unpack("3i", peer)[0], signal.SIGINT)
        hanging(connection, _)

    with daemon(path, interrupt):
        [done] = run_hook(HOOK, [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert "KeyboardInterrupt" in done["log"][0]


def test_a_write_that_fails_takes_the_others_back(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    """The resource vanishes between the check and the write, as when an admin deletes it."""
    event = job({"ncpus": 28, "mem": "1gb"}, queue="bdw")
    hook = tmp_path / "broken.py"
    text = (HOOKS / HOOK).read_text()
    assert text.count('"ADVISOR_DECISION"') == 1
    hook.write_text(text.replace('"ADVISOR_DECISION"', '"PBS_O_X"'))
    rewrite = {"ompthreads": "2", "cpu_freq_mhz": "1900"}
    with daemon(path, answering(plan(rewrite))):
        [done] = run_hook(str(hook), [event], settings, folder=tmp_path)
    assert untouched(done, event)
    assert len(done["written"]) == 6
    assert "readonly" in done["log"][-1]


@pytest.mark.parametrize(
    ("stuck", "left", "written"),
    [
        ("(name, value) == (THREADS, None)", {"ompthreads": "2"}, 5),  # all are tried
        ("(name, value) == (FREQ, 1900)", {}, 2),  # what was not written is not taken out
    ],
)
def test_what_cannot_be_written_or_taken_back_keeps_nothing_else(
    tmp_path: Path,
    path: Path,
    settings: dict[str, object],
    stuck: str,
    left: dict[str, str],
    written: int,
) -> None:
    given = {"ncpus": "28", "mem": "1gb"}
    event = job(given, {"PBS_O_X": "the user's"}, queue="bdw")
    hook = tmp_path / "broken.py"
    text = (HOOKS / HOOK).read_text().replace('"ADVISOR_DECISION"', '"PBS_O_X"')
    begin = "    if value is not None:\n        where[name] = value\n"
    assert text.count(begin) == 1
    hook.write_text(text.replace(begin, f"    if {stuck}:\n        raise OSError\n{begin}"))
    with daemon(path, answering(plan({"ompthreads": "2", "cpu_freq_mhz": "1900"}))):
        [done] = run_hook(str(hook), [event], settings, folder=tmp_path)
    assert done["answer"] == ["accept", ""]
    assert done["resources"] == {**given, **left}
    assert len(done["written"]) == written
    assert done["variables"] == event["job"]["Variable_List"]
    assert ("advisor: ompthreads is not as it was: OSError()" in done["log"]) == bool(left)


def test_settings_are_where_pbs_says_and_may_be_a_part_of_them(tmp_path: Path, path: Path) -> None:
    """PBS names them in the environment, or in its module."""
    config, hook = tmp_path / "c.json", tmp_path / "hook.py"
    config.write_text(json.dumps({"socket": str(path)}))
    named = f"import pbs\npbs.hook_config_filename = {str(config)!r}\n"
    hook.write_text(named + (HOOKS / HOOK).read_text())
    other = {"ADVISOR_SOCKET": str(tmp_path / "nosuch")}  # only for where there are no settings
    with daemon(path, answering(plan())) as asked:
        run_hook(HOOK, [job(WHOLE)], config, folder=tmp_path, environment=other)
        run_hook(str(hook), [job(WHOLE)], folder=tmp_path)
    assert len(asked) == 2


@pytest.mark.parametrize("config", ["{", "[]", '{"deadline_s": "soon"}', '{"socket": null}'])
def test_broken_settings(tmp_path: Path, config: str) -> None:
    event = job(WHOLE)
    (tmp_path / "c.json").write_text(config)
    [done] = run_hook(HOOK, [event], tmp_path / "c.json", folder=tmp_path)
    assert untouched(done, event)
    assert len(done["log"]) == 1


def test_what_went_wrong_is_one_plain_line_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"deadline_s": "\u00e9~ " * 200}))
    [done] = run_hook(HOOK, [job(WHOLE)], tmp_path / "c.json", folder=tmp_path)
    words = "ValueError(\"could not convert string to float: '" + " ~ " * 200
    assert done["log"] == ["advisor: job goes on unchanged: " + words[:400]]


def test_settings_that_are_gone(tmp_path: Path) -> None:
    event = job(WHOLE)
    [done] = run_hook(HOOK, [event], tmp_path / "nosuch.json", folder=tmp_path)
    assert untouched(done, event)
    assert "No such file" in done["log"][0]


def test_without_settings_holds_what_an_installation_writes() -> None:
    """And what it does not write is where `advisor doctor` looks."""
    [own] = [
        ast.literal_eval(node.value)
        for node in ast.parse((HOOKS / HOOK).read_text()).body
        if isinstance(node, ast.Assign) and "DEFAULTS" in ast.dump(node.targets[0])
    ]
    socket_path = Path("/run/advisor/advisor.sock")
    written = hooks.queuejob_config(hooks.PbsHookSettings(socket_path), None)
    same = {"socket", "deadline_s", "retry_s", "host_resources", "inventory", "steps_mhz", "away"}
    assert {name: own[name] for name in same} == {name: written[name] for name in same}
    assert set(own["variables"]) <= set(protocol.SETTINGS)
    assert own.keys() - written.keys() == {"breaker", "altered"}
    assert (own["breaker"], own["altered"]) == (hook_state.BREAKER, hook_state.ALTERED)


def test_without_settings_the_server_s_environment_names_the_socket(
    tmp_path: Path, path: Path
) -> None:
    with daemon(path, answering(plan())):
        [done] = run_hook(
            HOOK, [job(WHOLE)], folder=tmp_path, environment={"ADVISOR_SOCKET": str(path)}
        )
    assert done["resources"]["advisor_stamp"] == STAMP
    with daemon(tmp_path / "t", answering(plan(REWRITE))):
        [done] = run_hook(
            HOOK, [job(WHOLE)], folder=tmp_path, environment={"ADVISOR_SOCKET": f"{tmp_path}/t"}
        )
    assert "does not know" in done["log"][0]  # what there is to know is installed with it


@pytest.mark.parametrize("ago_s", [31, -3600])
def test_a_daemon_that_hung_long_ago_is_asked_again(
    tmp_path: Path, path: Path, settings: dict[str, object], ago_s: int
) -> None:
    """Or by a clock that was set back since; and where it hangs again, that is noted again."""
    breaker = tmp_path / "breaker"
    breaker.touch()
    os.utime(breaker, (time.time() - ago_s,) * 2)
    with daemon(path, hanging) as asked:
        event = job(WHOLE)
        done = run_hook(HOOK, [event, event], settings, folder=tmp_path)
    assert len(asked) == 1
    assert all(untouched(one, event) for one in done)
    assert breaker.stat().st_mode & 0o7777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_breaker_file_of_another_user_is_not_believed(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    (tmp_path / "breaker").touch()
    os.chown(tmp_path / "breaker", 65534, 65534)
    with daemon(path, answering(plan(REWRITE))):
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert done["resources"]["cpu_freq_mhz"] == "1900", done["log"]


def test_a_breaker_file_of_somebody_else_is_not_believed(
    tmp_path: Path, path: Path, settings: dict[str, object]
) -> None:
    (tmp_path / "breaker").symlink_to(tmp_path / "elsewhere")
    with daemon(path, answering(plan(REWRITE))) as asked:
        [done] = run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert len(asked) == 1
    assert done["resources"]["cpu_freq_mhz"] == "1900"
    with daemon(tmp_path / "h", hanging):
        settings["socket"] = str(tmp_path / "h")
        run_hook(HOOK, [job(WHOLE)], settings, folder=tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "breaker").is_symlink()
