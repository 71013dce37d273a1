"""The socket, files and variables, by both libraries of system calls."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.schedulers.slurm.hook_files import SlurmHookSettings, module_files, stub
from tests.schemas import check_request
from tests.unit.hook_lua.modules import BEFORE, BROADWELL, CLUSTER, LUA_OF, LUAS, PRELUDE, Peer, run

pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")


PORTABLE = 'local sys = use("portable")\n'


def library(home: Path, name: str) -> str:
    """Return how to get the system calls by ``native`` or ``portable``."""
    if name == "native":
        if not (home / "native.so").exists():
            pytest.skip("no C compiler here")
        return 'local sys = use("system") assert(sys ~= use("portable"))\n'
    if b"true" not in run(home, 'print(pcall(use("portable").hung, 1))'):
        pytest.skip("lua-posix is not installed for this Lua")
    return PORTABLE


@pytest.fixture(params=["native", "portable"])
def system(request: pytest.FixtureRequest, home: Path) -> str:
    """How to get the system calls by one library or the other."""
    return library(home, request.param)


SOON_S, LATE_S = 0.3, 30.0
"""A deadline that is meant to pass, and one that a busy machine keeps as well."""


def exchange(
    home: Path,
    system: str,
    path: Path,
    line: str = '"hello\\n"',
    more: str = "",
    within_s: float = LATE_S,
) -> str:
    code = f"""{system}
    local answer, word = sys.exchange(select(2, ...), {line}, {within_s}{more})
    print(answer, word)"""
    return run(home, code, b"", path).decode().strip()


FILTER = """\
slurm = { SUCCESS = 0, json_cli_options = function() return '{"exclusive":"","argv":["job"]}' end }
dofile(arg[1])
local options = { type = "sbatch", argv = { "job" } }
assert(slurm_cli_pre_submit(options, 0) == slurm.SUCCESS)
print(options["cpu-freq"])
io.stdout:flush()
os.execute("echo $OMP_NUM_THREADS $ADVISOR_DECISION")
"""


@pytest.mark.parametrize("precompiled", [True, False])
def test_the_installed_filter_changes_a_job(
    home: Path, system: str, path: Path, tmp_path: Path, precompiled: bool
) -> None:
    """Stub, modules and system calls together, in every Lua: native and lua-posix alike."""
    lua = LUA_OF[home]
    files = module_files(SlurmHookSettings(path), CLUSTER, {})
    version = Path(lua).name.removeprefix("lua")
    modules = tmp_path / "advisor" / "id"
    modules.mkdir(parents=True)
    for name, data in files.items():
        if name == "native.so" and system == PORTABLE:
            continue
        if name.endswith(".luac") and not precompiled:
            continue
        (modules / name).write_bytes(data)
    if precompiled:  # the sources are not looked at
        assert (modules / f"filter-{version}.luac").exists()
        for source in ("filter", "answer", "limits", "understood", "table"):
            (modules / f"{source}.lua").unlink()
    installed = tmp_path / "cli_filter.lua"
    installed.write_bytes(stub("cli_filter.lua", tmp_path, "id", ""))
    answer = {
        "v": 1,
        "decision": "0123456789abcdef",
        "rewrite": {"cpu-freq": "1200000-1900000"},
        "env": {"OMP_NUM_THREADS": "4"},
        "message": "",
        "stamp": "advisor:{}",
        "to": "tty",
    }
    peer = Peer(path, json.dumps(answer).encode() + b"\n")
    (tmp_path / "filter.lua").write_text(FILTER)
    done = subprocess.run(
        [lua, tmp_path / "filter.lua", installed],
        env={"PATH": os.environ["PATH"], **({} if precompiled else {"ADVISOR_DEBUG": "1"})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "1200000-1900000\n4 0123456789abcdef\n"
    request = json.loads(peer.got)
    check_request(request)
    assert (request["op"], request["options"]["argv"]) == ("decide", ["job"])


def test_an_answer_of_the_version_before_changes_a_job(
    home: Path, path: Path, tmp_path: Path
) -> None:
    """The daemon's host may be upgraded last: the hooks take what version 0.2.0 answered."""
    modules = tmp_path / "advisor" / "id"
    modules.mkdir(parents=True)
    for name, data in module_files(SlurmHookSettings(path, LATE_S), BROADWELL, {}).items():
        (modules / name).write_bytes(data)
    installed = tmp_path / "cli_filter.lua"
    installed.write_bytes(stub("cli_filter.lua", tmp_path, "id", ""))
    Peer(path, (BEFORE / "cli_filter.answer").read_bytes())
    (tmp_path / "filter.lua").write_text(FILTER)
    done = subprocess.run(
        [LUA_OF[home], tmp_path / "filter.lua", installed],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    answer = json.loads((BEFORE / "cli_filter.answer").read_bytes())
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1200000-2000000\n16 {answer['decision']}\n"


def test_a_line_goes_out_and_one_comes_back(home: Path, system: str, path: Path) -> None:
    peer = Peer(path, b"an answer\nand more")
    assert exchange(home, system, path) == "an answer\tnil"
    assert peer.got == b"hello\n"


def test_the_line_may_be_made_once_connected(home: Path, system: str, path: Path) -> None:
    peer = Peer(path, b"an answer\n")
    assert exchange(home, system, path, line='function() return "late\\n" end') == "an answer\tnil"
    assert peer.got == b"late\n"


@pytest.mark.parametrize("line", ['function() error("no idea", 0) end', "function() end"])
def test_a_line_that_cannot_be_made_is_an_error(
    home: Path, system: str, path: Path, line: str
) -> None:
    Peer(path, b"an answer\n")
    assert exchange(home, system, path, line=line).split() == ["nil", "error"]


def test_no_answer_is_waited_for_when_none_is_wanted(home: Path, system: str, path: Path) -> None:
    peer = Peer(path, pause_s=0)
    assert exchange(home, system, path, more=", true") == "nil"
    peer.thread.join(10)
    assert peer.got == b"hello\n"


def test_what_is_done_meanwhile_cannot_spoil_the_answer(
    home: Path, system: str, path: Path
) -> None:
    Peer(path, b"an answer\n")
    meanwhile = ', false, function() print("meanwhile") error("lost") end'
    said = exchange(home, system, path, more=meanwhile)
    assert said == "meanwhile\nan answer\tnil"


@pytest.mark.parametrize(
    ("pieces", "pause_s", "word"),
    [
        ((), 0.0, "closed"),
        ((b"half",), 0.0, "garbage"),
        ((b"x" * 20_000,), 0.0, "garbage"),
        ((b"",), 3.0, "timeout"),
    ],
)
def test_answers_that_are_none(
    home: Path, system: str, path: Path, pieces: tuple[bytes, ...], pause_s: float, word: str
) -> None:
    Peer(path, *pieces, pause_s=pause_s)
    within_s = SOON_S if word == "timeout" else LATE_S
    assert exchange(home, system, path, within_s=within_s).split()[:2] == ["nil", word]


def test_drips_come_to_nothing(home: Path, system: str, path: Path) -> None:
    Peer(path, *[b"x"] * 100, b"\n", pause_s=0.02)
    # lua-posix reads one piece only
    word, within_s = ("garbage", LATE_S) if system == PORTABLE else ("timeout", SOON_S)
    assert exchange(home, system, path, within_s=within_s).split()[1] == word


def test_time_spent_on_the_line_is_not_the_peer_s(home: Path, system: str, path: Path) -> None:
    Peer(path, b"an answer\n")
    line = 'function() os.execute("sleep 1.2") return "late\\n" end'
    meanwhile = ', false, function() os.execute("sleep 1.2") end'
    assert exchange(home, system, path, line, meanwhile, within_s=1.0) == "an answer\tnil"


def test_a_host_that_stands_still_is_not_a_peer_that_hangs(
    home: Path, system: str, path: Path
) -> None:
    """The answer comes long after the deadline, but this process did not run meanwhile."""
    peer = Peer(path, b"an answer\n", stops_s=1.5)
    assert exchange(home, system, path, within_s=1.0) == "an answer\tnil"
    assert peer.got == b"hello\n"


def test_a_peer_that_hangs_up_while_written_to_kills_nobody(
    home: Path, system: str, path: Path
) -> None:
    Peer(path, read=False)
    out = exchange(home, system, path, line='("x"):rep(1e6)')
    assert out.split()[1] == "closed"


def test_a_peer_that_does_not_read_is_not_waited_for(home: Path, system: str, path: Path) -> None:
    Peer(path, b"", pause_s=3.0, read=False)
    out = exchange(home, system, path, line='("x"):rep(4e6)', within_s=SOON_S)
    assert out.split()[:2] == ["nil", "timeout"]


def test_nobody_is_there(home: Path, system: str, path: Path) -> None:
    assert exchange(home, system, path).split()[:2] == ["nil", "absent"]
    path.write_text("a file")
    assert exchange(home, system, path).split()[:2] == ["nil", "absent"]
    assert exchange(home, system, path.parent / ("x" * 200)).split()[:2] == ["nil", "absent"]


def as_user(
    home: Path, code: str, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run Lua code in a folder with an environment."""
    script = home / "main.lua"
    script.write_text(f"{PRELUDE}\n{code}")
    return subprocess.run(
        [LUA_OF.get(home, LUAS[0]), script, home, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=True,
        timeout=60,
    )


REQUEST = """\
local line, env = sys.request('{"v":1', arg[2], arg[3], "A B_C LONG", "OMP_ SLURM_")
assert(line:find(',"env":' .. env .. ',"choices":', 1, true))
io.write(line)
"""


def asked(home: Path, system: str, folder: Path, *paths: str, **environment: str) -> dict[str, Any]:
    """Return the request as the daemon reads it."""
    out = as_user(home, f"{system} {REQUEST}", folder, *paths, **environment).stdout
    assert out.endswith(b"}\n")
    assert out.count(b"\n") == 1
    data: dict[str, Any] = json.loads(out.decode("utf-8", "replace"))
    return data


def test_a_request_holds_script_choices_and_variables(
    home: Path, system: str, tmp_path: Path
) -> None:
    (tmp_path / "job.sh").write_bytes(b'#!/bin/sh\n"\\\t\0\x7f\xff')
    (tmp_path / "choices").write_text("{}")
    environment = {
        "A": 'x"\n',
        "B_C": "y",
        "SECRET": "z",
        "LONG": "7" * 4097,
        "OMP_PLACES": "\t" * 300,
        "FOO_NUM_THREADS": "3",
        "SLURM_JWT": "key",
        "SLURM_JWT_": "",
        "SLURM_SACK_KEY": "key",
        "OMP": "no",
        "NUM_THREADS": "no",
    }
    assert asked(home, system, tmp_path, "job.sh", f"{tmp_path}/choices", **environment) == {
        "v": 1,
        "script": '#!/bin/sh\n"\\\t\0\x7f\ufffd',
        "truncated": False,
        "script_path": f"{tmp_path}/job.sh",
        "env": {
            "A": 'x"\n',
            "B_C": "y",
            "OMP_PLACES": "\t" * 256,
            "FOO_NUM_THREADS": "3",
            "SLURM_JWT_": "",
        },
        "choices": "{}",
        "cwd": str(tmp_path),
    }


def test_a_request_without_any_of_them(home: Path, system: str, tmp_path: Path) -> None:
    data = asked(home, system, tmp_path, "", "/nonexistent/choices")
    assert (data["script"], data["script_path"], data["choices"]) == (None, "", "")
    assert data["env"] == {}


@pytest.mark.parametrize("size", [131_071, 131_072, 131_073, 1_000_000])
def test_of_a_long_script_comes_the_beginning(
    home: Path, system: str, tmp_path: Path, size: int
) -> None:
    (tmp_path / "s").write_bytes((b"\x01x\n" * size)[:size])
    (tmp_path / "c").write_bytes(b"x" * (size - 131_072 + 65_536))
    data = asked(home, system, tmp_path, f"{tmp_path}/s", f"{tmp_path}/c")
    assert data["script"] == ("\x01x\n" * size)[: min(size, 131_072)]
    assert data["truncated"] == (size > 131_072)
    assert len(data["choices"]) == (0 if size > 131_072 else size - 65_536)


def test_what_is_no_file_is_not_read(home: Path, system: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero", tmp_path / "none"):
        data = asked(home, system, tmp_path, str(path), str(tmp_path / "fifo"))
        assert (data["script"], data["script_path"]) == (None, str(path))
    assert asked(home, system, tmp_path, f"{tmp_path}/link", "")["script"] == "x"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200), st.text(max_size=50).filter(lambda t: "\0" not in t))
def test_both_libraries_ask_the_same(home: Path, script: bytes, value: str) -> None:
    (home / "s").write_bytes(script)
    text = value.encode("utf-8", "replace").decode()
    environment = {"A": text, "OMP_X": text * 9, "SLURM_": text, f"{text.replace('=', '')}_": "1"}
    by_native, by_portable = (
        as_user(home, f"{library(home, name)} {REQUEST}", home, "s", "", **environment).stdout
        for name in ("native", "portable")
    )
    assert json.loads(by_native.decode("utf-8", "replace")) == json.loads(
        by_portable.decode("utf-8", "replace")
    )


BREAKER = """\
print(sys.hung(30))
sys.trip()
print(sys.hung(30))
"""


@pytest.mark.parametrize("where", ["runtime", "tmp"])
def test_the_breaker_opens_and_closes(home: Path, system: str, tmp_path: Path, where: str) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    path = tmp_path / "advisor-breaker"
    if where == "tmp":
        # a runtime folder that is a link is not the user's own: /tmp it is
        (tmp_path / "link").symlink_to(tmp_path)
        environment = {"XDG_RUNTIME_DIR": str(tmp_path / "link")}
        path = Path(f"/tmp/advisor-breaker-{os.geteuid()}")
        path.unlink(missing_ok=True)
    try:
        out = as_user(home, f"{system} {BREAKER}", tmp_path, **environment).stdout
        assert out.split() == [b"false", b"true"]
        assert path.stat().st_mode & 0o777 == 0o600
        os.utime(path, (1, 1))
        out = as_user(home, f"{system} {BREAKER}", tmp_path, **environment).stdout
        assert out.split() == [b"false", b"true"]
        later = time.time() + 1000
        os.utime(path, (later, later))
        out = as_user(home, f"{system} {BREAKER}", tmp_path, **environment).stdout
        assert out.split()[0] == b"false"
    finally:
        path.unlink(missing_ok=True)


def test_variables_are_set_and_taken_away(home: Path, system: str) -> None:
    code = f"""{system}
    print(sys.setenv("X_Y", "1"), os.getenv("X_Y"), sys.setenv("X_Y", nil), os.getenv("X_Y"))"""
    assert run(home, code).split() == [b"true", b"1", b"true", b"nil"]


def test_who_runs_it(home: Path, system: str) -> None:
    assert run(home, f'{system} io.write(("%d"):format(sys.uid()))') == str(os.geteuid()).encode()


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 65_536])
def test_a_checksum(home: Path, system: str, size: int) -> None:
    data = (bytes(range(256)) * 256)[:size] if size < 65_536 else b"\xff" * size
    said = run(home, f'{system} io.write(sys.adler32(io.read("*a")))', data)
    assert said == f"{zlib.adler32(data):08x}".encode()


def test_a_message_to_the_log_waits_for_nobody(home: Path, system: str, path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))
    code = f'{system} for i = 1, 20 do sys.datagram(select(2, ...), "line " .. i) end'
    run(home, code.replace("20", "1"), b"", path)
    assert listener.recv(100) == b"line 1"
    run(home, code, b"", path)  # nobody reads: the queue is full after some
    run(home, code.replace("20", "1"), b"", path.parent / "none")
