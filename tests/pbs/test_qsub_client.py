"""The program before qsub: what it tells the daemon, and that nobody could tell it is there."""

from __future__ import annotations

import array
import fcntl
import hashlib
import importlib.util
import json
import os
import pty
import random
import re
import resource
import select
import shutil
import signal
import socket
import string
import struct
import subprocess
import sys
import tempfile
import termios
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_qstat import folded
from hooked import HOOKS, answering, daemon, full, hanging
from hypothesis import given
from hypothesis import strategies as st

from advisor.core import program, protocol
from advisor.core.launchers import LAUNCHERS, NO_PROGRAMS, is_light
from advisor.core.recognise import recognise
from advisor.core.script import advisor_lines, threads_of
from advisor.schedulers.pbs import table as pbs_table
from advisor.schedulers.pbs.hooks import client_text
from advisor.schedulers.pbs.translator import parse_request, read_client
from advisor.service import script_reader
from tests.schemas import check_request

CLIENT = HOOKS / "qsub.py"
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
REAL = """#!/bin/sh
/bin/cat /proc/$$/environ > "$SEEN.env"
case " $* " in
    *" -I "*) ;;
    *) test -t 0 || /bin/cat > "$SEEN.stdin" ;;
esac
for word; do printf '%s\\0' "$word"; done > "$SEEN"
echo 123.pbs1
echo a warning >&2
exit ${CODE:-0}
"""
SCRIPT = """#!/bin/bash
#PBS -l select=2:ncpus=28
#PBS -N run -l walltime=1:00
#ADVISOR goal=power
module load gcc
TOKEN=s3cr3t
EXE=./stencil
SIZE=100
export OMP_NUM_THREADS=$NCPUS
cat > input <<EOF
mpirun ./not-this
EOF
mpirun -np 2 $EXE --size $SIZE \\
    --more
echo done
"""


@dataclass
class Seen:
    """What the real qsub was given, and what came back."""

    code: int
    out: str
    err: str
    argv: list[str]
    stdin: str | None
    env: dict[str, str]

    left: Path

    def packed(self) -> str:
        """Return what was left in the user's home by the key in the job's variables."""
        key = self.env.get("ADVISOR_QSUB", "")
        if not key:
            return ""
        assert re.fullmatch("[0-9a-f]{32}", key)
        file = self.left / key
        assert file.stat().st_mode & 0o7777 == 0o600
        return file.read_text()

    def client(self) -> dict[str, Any]:
        return read_client(self.packed())


class Qsub:
    """A login node: the client first in PATH, then a qsub that notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pbs").mkdir()
        (folder / "bin").mkdir()
        real = folder / "pbs" / "qsub"
        real.write_text(REAL)
        real.chmod(0o755)
        self.left = folder / ".cache" / "left"
        text = client_text("", folder / "socket").replace("/usr/bin/python3", PYTHON)
        assert 'FOLDER = ".cache/advisor/qsub"' in text
        text = text.replace('FOLDER = ".cache/advisor/qsub"', f"FOLDER = {str(self.left)!r}")
        (folder / "bin" / "qsub").write_text(text)
        self.serve("")
        (folder / "bin" / "qsub").chmod(0o755)
        (folder / "job.sh").write_text(SCRIPT)
        self.env = {
            "PATH": f"{folder}/bin:{folder}/pbs:/usr/bin:/bin",
            "HOME": str(folder),
            "SEEN": str(folder / "seen"),
        }

    def serve(self, default_arguments: str) -> None:
        """Let a server answer qstat -B, with what it gives every qsub that says nothing of it."""
        line = f"    default_qsub_arguments = {default_arguments}\n" if default_arguments else ""
        answer = self.folder / "answer"
        answer.write_text(f"Server: pbs1\n    server_state = Active\n{line}\n")
        qstat = self.folder / "pbs" / "qstat"
        qstat.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/asked; cat {answer}\n')
        qstat.chmod(0o755)
        self.forget()

    def forget(self) -> None:
        """Forget what the server said."""
        for noted in self.left.glob("server-*"):
            noted.unlink()

    def __call__(
        self,
        *words: str,
        stdin: bytes | int = subprocess.DEVNULL,
        program: str = "qsub",
        env: Mapping[str, str] | None = None,
        user: int | None = None,
    ) -> Seen:
        for left in self.folder.glob("seen*"):
            left.unlink()
        environment = {**self.env, **(env or {})}
        given_in: dict[str, Any] = (
            {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        )
        done = subprocess.run(
            [self.folder / "bin" / "qsub" if program == "qsub" else program, *words],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            check=False,
            user=user,
            **given_in,
        )
        argv, environ = (
            os.fsdecode((self.folder / name).read_bytes()).split("\0")[:-1]
            for name in ("seen", "seen.env")
        )
        script = self.folder / "seen.stdin"
        return Seen(
            done.returncode,
            done.stdout.decode(),
            done.stderr.decode(),
            argv,
            script.read_text("latin-1") if script.exists() else None,
            {name: value for name, _, value in (word.partition("=") for word in environ)},
            self.left,
        )


@pytest.fixture
def qsub(tmp_path: Path) -> Qsub:
    return Qsub(tmp_path)


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("qsub_client", CLIENT)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_script_s_telling_lines_go_along(qsub: Qsub) -> None:
    seen = qsub("-q", "workq", "job.sh")
    assert (seen.code, seen.out, seen.err) == (0, "123.pbs1\n", "a warning\n")
    assert seen.argv == ["-q", "workq", "-v", "ADVISOR_QSUB", "job.sh"]
    client = seen.client()
    sent = client["script"].splitlines()
    assert client["whole"] is True
    assert sent[:3] == [
        "#PBS -l select=2:ncpus=28",
        "#PBS -l walltime=1:00",
        "#ADVISOR goal=power",
    ]
    telling = {
        "EXE=./stencil",
        "SIZE=100",
        "export OMP_NUM_THREADS=$NCPUS",
        "mpirun -np 2 $EXE --size $SIZE      --more",
        "TOKEN=_",
    }
    assert telling <= set(sent)
    assert "s3cr3t" not in json.dumps(client)
    assert len(client["fingerprint"]) == 16
    assert "ADVISOR_QSUB_PREPARED" not in seen.env
    again = qsub("job.sh").client()["fingerprint"]
    (qsub.folder / "job.sh").write_text(SCRIPT + "\n")
    assert again == client["fingerprint"] != qsub("job.sh").client()["fingerprint"]


def test_a_script_on_stdin_reaches_qsub_as_it_was(qsub: Qsub) -> None:
    text = SCRIPT.encode() + b"\xff\xfe" + b"x" * 300_000
    for words in ((), ("-",), ("-N", "x"), ("-Nx",)):
        seen = qsub(*words, stdin=text)
        assert seen.stdin == text.decode("latin-1")
        assert "mpirun" in seen.client()["script"]
        assert seen.argv == [
            *(w for w in words if w != "-"),
            "-v",
            "ADVISOR_QSUB",
            *(w for w in words if w == "-"),
        ]
    with (qsub.folder / "job.sh").open("rb") as file:
        assert qsub(stdin=file.fileno()).stdin == SCRIPT
    assert qsub(stdin=b"").stdin == ""


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (["-v", "A=1,B"], "A=1,B,ADVISOR_QSUB"),
        (["-vA=1"], "A=1,ADVISOR_QSUB"),
        (["-v", "A=1", "-v", "C='x,y'"], "C='x,y',ADVISOR_QSUB"),
        (["-zVv", "A=1"], "A=1,ADVISOR_QSUB"),
        (["-v", "A=1, ADVISOR_GOAL=x"], "A=1, ADVISOR_GOAL=x,ADVISOR_QSUB"),
    ],
)
def test_the_user_s_own_variables_stay(qsub: Qsub, given: list[str], value: str) -> None:
    seen = qsub(*given, "job.sh")
    assert seen.argv == [*given, "-v", value, "job.sh"]


def test_a_key_of_the_user_s_own_stays(qsub: Qsub) -> None:
    assert qsub("-v", "ADVISOR_QSUB=x", "job.sh").argv == ["-v", "ADVISOR_QSUB=x", "job.sh"]
    assert not qsub.left.exists()


@pytest.mark.parametrize(
    ("lines", "words", "value"),
    [
        ("#PBS -v A=1\n", [], "A=1,ADVISOR_QSUB"),
        ("#PBS -v A=1\n#PBS -N x -v 'B=2 3'\n", [], "B=2 3,ADVISOR_QSUB"),
        ("#PBS -v \\\nA=1\n", [], "A=1,ADVISOR_QSUB"),
        ("#PBS -v A=1\n", ["-v", "C=3"], "C=3,ADVISOR_QSUB"),
        ("#PBS -v A=1\n", ["-C", "#QQ"], "ADVISOR_QSUB"),
        ("#QQ -v A=1\n", ["-C", "#QQ"], "A=1,ADVISOR_QSUB"),
        ("#PBS -v A=1\n", ["-C", ""], "ADVISOR_QSUB"),
        ("echo\n#PBS -v A=1\n", [], "ADVISOR_QSUB"),
        ("  #PBS -v A=1\n", [], "A=1,ADVISOR_QSUB"),
        ("\n#PBS -v A=1\n", [], "A=1,ADVISOR_QSUB"),
        ("#PBS -v A=1,\\\nB=2\n", [], "A=1,B=2,ADVISOR_QSUB"),
        ("-v A=1\n", ["-C", ""], "ADVISOR_QSUB"),
    ],
)
def test_variables_of_the_script_s_own_lines_stay(
    qsub: Qsub, lines: str, words: list[str], value: str
) -> None:
    """qsub takes -v from the command line alone, if it is there."""
    (qsub.folder / "job.sh").write_text(f"#!/bin/sh\n{lines}./a\n")
    seen = qsub(*words, "job.sh")
    assert seen.argv == [*words, "-v", value, "job.sh"]


def test_a_line_of_options_may_be_the_last_one(client: ModuleType) -> None:
    assert client.directives(["#PBS -v A=1\\"], "#PBS") == [["-v", "A=1"]]


def test_the_environment_says_what_a_script_s_own_lines_begin_with(qsub: Qsub) -> None:
    (qsub.folder / "job.sh").write_text("#!/bin/sh\n#QQ -v A=1\n#PBS -v B=1\n./a\n")
    seen = qsub("job.sh", env={"PBS_DPREFIX": "#QQ"})
    assert seen.argv == ["-v", "A=1,ADVISOR_QSUB", "job.sh"]


def test_the_environment_s_settings_go_along(qsub: Qsub) -> None:
    env = {
        "ADVISOR_GOAL": "power",
        "ADVISOR_APPLICATION": "a,b",
        "ADVISOR_STAMP": "x",
        "ADVISOR_SIZE_N": "4e6",
    }
    seen = qsub("-v", "ADVISOR_GOAL=min_time", "job.sh", env=env)
    assert seen.argv[3] == "ADVISOR_GOAL=min_time,ADVISOR_APPLICATION,ADVISOR_SIZE_N,ADVISOR_QSUB"
    seen = qsub("job.sh", env={"ADVISOR": "off"})
    assert seen.argv == ["-v", "ADVISOR", "job.sh"]
    assert "ADVISOR_QSUB" not in seen.env
    assert qsub("--", "/bin/app", "-v", "x", env={"ADVISOR": "off"}).argv[1] == "ADVISOR"


def test_sizes_go_along_by_names_that_are_variables_and_no_more_than_twenty(qsub: Qsub) -> None:
    sizes = {f"ADVISOR_SIZE_{number:02d}": "1" for number in range(21)}
    seen = qsub("job.sh", env={**sizes, "ADVISOR_SIZE_,LD_PRELOAD": "x", "ADVISOR_SIZE_": "x"})
    assert seen.argv[1].split(",") == [*sorted(sizes)[:20], "ADVISOR_QSUB"]


def test_what_came_from_the_job_it_is_submitted_from_is_forgotten(qsub: Qsub) -> None:
    seen = qsub("-I", env={"ADVISOR_QSUB": "old", "ADVISOR_DECISION": "old"})
    assert "ADVISOR_QSUB" not in seen.env
    assert "ADVISOR_DECISION" not in seen.env


def test_a_user_s_choices_go_along(qsub: Qsub) -> None:
    folder = qsub.folder / ".config" / "advisor"
    assert "choices" not in qsub("job.sh").client()
    folder.mkdir(parents=True)
    (folder / "choices.json").write_text('{"version": 1, "goal": "min_time"}')
    assert qsub("job.sh").client()["choices"] == '{"version": 1, "goal": "min_time"}'
    told = qsub("--", "/bin/app").client()
    assert told["choices"] and not told["script"] and not told.get("whole")
    (folder / "choices.json").write_text("x" * 4000)
    assert qsub("job.sh").client()["choices"] == "x" * 4000
    (folder / "choices.json").write_text("x" * 4001)
    assert "choices" not in qsub("job.sh").client()


def test_a_user_s_choices_are_where_the_environment_says(qsub: Qsub) -> None:
    for root in (".config", "theirs"):
        (qsub.folder / root / "advisor").mkdir(parents=True)
        (qsub.folder / root / "advisor" / "choices.json").write_text(root)
    env = {"XDG_CONFIG_HOME": str(qsub.folder / "theirs")}
    assert qsub("job.sh", env=env).client()["choices"] == "theirs"
    env = {"XDG_CONFIG_HOME": "theirs"}  # one that is relative counts for nothing
    assert qsub("job.sh", env=env).client()["choices"] == ".config"


@pytest.mark.parametrize(
    "words",
    [
        ["-I"],
        ["-I", "-l", "ncpus=1"],
        ["--version"],
        ["-l"],
        ["-Z", "x", "job.sh"],
        ["-~", "job.sh"],
        ["nosuch.sh"],
        ["."],
    ],
)
def test_what_it_cannot_help_with_is_qsub_s_alone(qsub: Qsub, words: list[str]) -> None:
    (qsub.folder / "-Z").write_text(SCRIPT)  # is an option, whatever is there
    assert qsub(*words).argv == words


def test_settings_go_along_where_the_script_is_not_read(qsub: Qsub) -> None:
    assert qsub(".", env={"ADVISOR_GOAL": "power"}).argv == ["-v", "ADVISOR_GOAL", "."]


@pytest.mark.parametrize(
    "words",
    [
        ["-W", "block=true", "job.sh"],
        ["-l", "select=1:ncpus=2+1:ncpus=4,place=scatter", "-N", "a b", "job.sh"],
        ["-J", "1-10%2", "-e", "/x", "-o", "/y", "-k", "oed", "-R", "eo", "job.sh"],
        ["-z", "-f", "-h", "-r", "n", "-p", "5", "-a", "1200", "-A", "x", "job.sh"],
        ["-m", "abe", "-M", "me@x", "-S", "/bin/sh", "-u", "me", "-c", "n", "-P", "p", "job.sh"],
        ["--", "/bin/app", "-v", "A=1", "--", "x y", "-I"],
    ],
)
@pytest.mark.parametrize("code", [0, 1, 17, 271 % 256])
def test_all_else_passes_as_it_is(qsub: Qsub, words: list[str], code: int) -> None:
    seen = qsub(*words, env={"CODE": str(code), "ADVISOR_GOAL": "power"})
    assert seen.code == code
    at = seen.argv.index("-v")
    assert [*seen.argv[:at], *seen.argv[at + 2 :]] == words


def test_signals_and_a_terminal_are_qsub_s(qsub: Qsub) -> None:
    (qsub.folder / "pbs" / "qsub").write_text("#!/bin/sh\nkill -TERM $$\n")
    done = subprocess.run(
        [qsub.folder / "bin" / "qsub", "job.sh"], env=qsub.env, cwd=qsub.folder, check=False
    )
    assert done.returncode == -signal.SIGTERM
    (qsub.folder / "pbs" / "qsub").write_text("#!/bin/sh\ngrep SigIgn /proc/$$/status\n")
    both = subprocess.run(
        ["/bin/sh", "-c", "bin/qsub job.sh; pbs/qsub"],
        env=qsub.env,
        cwd=qsub.folder,
        capture_output=True,
        text=True,
        check=False,
        restore_signals=True,
    )
    assert len(set(both.stdout.splitlines())) == 1, both
    (qsub.folder / "pbs" / "qsub").write_text("#!/bin/sh\ntest -t 0 && read x && echo got $x\n")
    parent, child = pty.openpty()
    with subprocess.Popen(
        [qsub.folder / "bin" / "qsub"], env=qsub.env, stdin=child, stdout=subprocess.PIPE
    ) as process:
        os.write(parent, b"a line\n")
        out, _ = process.communicate(timeout=10)
    os.close(parent)
    os.close(child)
    assert out == b"got a line\n"


def test_the_next_one_knows_itself_by_no_other_name(qsub: Qsub) -> None:
    """By which PBS's own begins what it has to say; here it is ls."""
    (qsub.folder / "pbs" / "qsub").unlink()
    (qsub.folder / "pbs" / "qsub").symlink_to("/bin/ls")
    done = subprocess.run(
        [qsub.folder / "bin" / "qsub", "--nosuch"],
        env=qsub.env,
        cwd=qsub.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("qsub: ")


def test_without_a_qsub_behind_it_that_is_said(qsub: Qsub) -> None:
    (qsub.folder / "pbs" / "qsub").unlink()
    done = subprocess.run(
        [qsub.folder / "bin" / "qsub", "job.sh"],
        env=qsub.env,
        cwd=qsub.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 127
    assert done.stderr == "qsub: /opt/pbs/bin/qsub: No such file or directory\n"


def test_an_interrupt_while_it_reads_a_script_submits_nothing(qsub: Qsub) -> None:
    with subprocess.Popen(
        [qsub.folder / "bin" / "qsub"], env=qsub.env, cwd=qsub.folder, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"#!/bin/sh\n")
        process.stdin.flush()
        unread = array.array("i", [1])
        while unread[0]:
            fcntl.ioctl(process.stdin, termios.FIONREAD, unread)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert not (qsub.folder / "seen").exists()


def test_where_memory_is_no_file_a_script_is_kept_on_disk(qsub: Qsub) -> None:
    path = qsub.folder / "bin" / "qsub"
    text = path.read_text()
    assert text.count('hasattr(os, "memfd_create")') == 1
    path.write_text(text.replace('hasattr(os, "memfd_create")', "False"))
    assert qsub(stdin=SCRIPT.encode()).stdin == SCRIPT


def test_a_script_that_nothing_can_hold_reaches_qsub_through_a_pipe(qsub: Qsub) -> None:
    (qsub.folder / "pbs" / "qsub").write_text("#!/bin/sh\nexec cat\n")
    room = 32 << 20
    text = SCRIPT.encode() + b"x" * room
    done = subprocess.run(
        [qsub.folder / "bin" / "qsub"],
        env=qsub.env,
        cwd=qsub.folder,
        input=text,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        check=True,
    )
    assert (done.stdout, done.stderr) == (text, b"")


def test_what_writes_such_a_script_ends_with_qsub_and_is_no_second_one(qsub: Qsub) -> None:
    """Where qsub refuses the job before it reads a script."""
    room, calls = 32 << 20, qsub.folder / "calls"
    (qsub.folder / "pbs" / "qsub").write_text(f"#!/bin/sh\necho call >> {calls}\nexit 3\n")
    done = subprocess.run(  # ends once nobody holds its output
        [qsub.folder / "bin" / "qsub"],
        env=qsub.env,
        cwd=qsub.folder,
        input=b"x" * (room + 1),
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (3, b"")
    assert calls.read_text() == "call\n"


def test_a_script_in_a_pipe_is_read_by_qsub_alone(qsub: Qsub) -> None:
    (qsub.folder / "pbs" / "qsub").write_text('#!/bin/sh\nexec cat "$1"\n')
    done = subprocess.run(
        ["bash", "-c", "qsub <(cat job.sh)"],
        env=qsub.env,
        cwd=qsub.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == SCRIPT
    assert not (qsub.folder / "asked").exists()  # there is nothing to be told


def test_of_a_long_script_the_beginning_tells_which_one_it_is(qsub: Qsub) -> None:
    text = SCRIPT.encode() + b"#" * (1 << 20)
    (qsub.folder / "job.sh").write_bytes(text)
    fingerprint = hashlib.sha256(text[: 1 << 20]).hexdigest()[:16]
    assert qsub("job.sh").client()["fingerprint"] == fingerprint
    assert qsub(stdin=text).client()["fingerprint"] == fingerprint


def test_a_client_that_breaks_is_not_in_the_way(qsub: Qsub) -> None:
    path = qsub.folder / "bin" / "qsub"
    path.write_text(path.read_text().replace("def excerpt(lines):", "def excerpt(lines):\n    1/0"))
    seen = qsub("job.sh")
    assert (seen.argv, seen.err) == (["job.sh"], "a warning\n")
    seen = qsub(stdin=SCRIPT.encode(), env={"ADVISOR_DEBUG": "1"})
    assert (seen.argv, seen.stdin) == ([], SCRIPT)
    assert "ZeroDivisionError" in seen.err


def test_older_pythons_run_it(qsub: Qsub) -> None:
    for python in sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3")):
        seen = qsub(
            "-I",
            "-S",
            str(qsub.folder / "bin" / "qsub"),
            "-q",
            "w",
            stdin=SCRIPT.encode(),
            program=str(python),
        )
        assert seen.argv == ["-q", "w", "-v", "ADVISOR_QSUB"], python
        assert seen.stdin == SCRIPT
        assert "mpirun" in seen.client()["script"]


# -- nothing of a script where others see it -------------------------------------------------------

SECRETS = """#!/bin/bash
#PBS -l select=1:ncpus=4
curl -H "Authorization: Bearer eyJhbGciOi" https://example.org/in > in
mysql -u ann -phunter2 <<< 'select 1'
export OMP_NUM_THREADS=4
./stencil --key=sesame in
"""
TOLD = ("eyJhbGciOi", "hunter2", "sesame", "stencil")


@pytest.mark.parametrize("words", [[], ["-V"], ["-v", "A=1"]])
def test_nothing_of_a_script_is_in_a_job_s_variables(qsub: Qsub, words: list[str]) -> None:
    (qsub.folder / "job.sh").write_text(SECRETS)
    (qsub.folder / "stencil").write_text("x")
    (qsub.folder / "stencil").chmod(0o755)
    seen = qsub(*words, "job.sh")
    key = seen.env["ADVISOR_QSUB"]
    shown = [*seen.argv, *(f"{k}={v}" for k, v in seen.env.items() if k not in qsub.env)]
    assert not [text for text in shown if any(word in text for word in TOLD)]
    packed = seen.packed()
    assert not [text for text in shown if packed[:20] in text]
    script = seen.client()["script"]
    assert all(word in script for word in TOLD)
    assert qsub(*words, "job.sh").env["ADVISOR_QSUB"] != key  # it tells nothing of the script
    assert seen.left.stat().st_mode & 0o7777 == 0o700


def test_a_daemon_that_the_hook_asks_gets_it_over_its_socket(qsub: Qsub) -> None:
    """Which does not hang up."""

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b'{"v":1,"ok":true,"asked":true}\n')
        select.select([connection], [], [], 10)

    with daemon(qsub.folder / "socket", answer) as asked:
        seen = qsub("job.sh")
    request = json.loads(asked[0])
    check_request(request)
    assert (request["op"], request["key"]) == ("script", seen.env["ADVISOR_QSUB"])
    assert read_client(request["client"])["script"]
    assert not (qsub.left / request["key"]).exists()


@pytest.mark.parametrize(
    "answer",
    [b'{"v":1,"ok":true,"asked":false}\n', b'{"v":1,"error":"unknown op \'script\'"}\n', b"x\n"],
)
def test_another_daemon_is_not_relied_on(qsub: Qsub, answer: bytes) -> None:
    """One of a login node answers from a copy; PBS's hook asks the one on the server's host."""
    with daemon(qsub.folder / "socket", answering(answer)):
        assert qsub("job.sh").client()["script"]


def test_a_daemon_is_where_the_environment_says(qsub: Qsub) -> None:
    answer = answering(b'{"v":1,"ok":true,"asked":true}\n')
    with daemon(qsub.folder / "theirs", answer) as asked:
        qsub("job.sh", env={"ADVISOR_SOCKET": str(qsub.folder / "theirs")})
    assert len(asked) == 1


@pytest.mark.parametrize("said", [b"", b"x" * 100])
def test_a_daemon_that_does_not_answer_in_time_is_left_alone(qsub: Qsub, said: bytes) -> None:
    """One that says a letter now and then, too: the time is that of all waiting."""
    took_s = []

    def watched(connection: socket.socket, _: bytes) -> None:
        begin = time.monotonic()
        for byte in said:
            connection.sendall(bytes([byte]))
            if select.select([connection], [], [], 0.05)[0]:
                break
        select.select([connection], [], [], 10)  # until it hangs up
        took_s.append(time.monotonic() - begin)

    with daemon(qsub.folder / "socket", watched):
        assert qsub("job.sh").client()["script"]
    assert took_s[0] < 1


@pytest.mark.parametrize(
    "took_s",
    [
        [9],  # to be let in
        [0.1, 0.03, 0.03, 9],  # to send parts of the line, too
        [0.05, *[0.01] * 6, 0.03, 0.03, 9],  # and to hear parts of an answer
        [0.1, 0.155, 9],  # the host stands still for a moment, in the end of the time
        [0.05, *[0.01] * 6, 0.145, 9],
    ],
)
def test_the_daemon_s_time_is_that_of_all_waiting(
    client: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_s: list[float]
) -> None:
    """By a posed clock: nothing may wait longer than what is left of a quarter of a second."""
    now_s, begun_s, noted, left_s = [1e9], 1e9, [], iter(took_s)

    class Posed:
        def __init__(self, *_: int) -> None:
            self.timeout_s = 1e9

        def settimeout(self, timeout_s: float) -> None:
            assert timeout_s >= 0
            self.timeout_s = timeout_s

        def wait(self) -> None:
            took = next(left_s)
            late = took > self.timeout_s + 0.006  # a moment late is in time
            now_s[0] += self.timeout_s if late else took
            if late:
                raise TimeoutError("timed out")

        def connect(self, _: str) -> None:
            self.wait()

        def send(self, line: memoryview) -> int:
            self.wait()
            return len(line) // 2 + 1

        def recv(self, _: int) -> bytes:
            self.wait()
            return b"x"

        def close(self) -> None:
            pass

    posed = SimpleNamespace(socket=Posed, AF_UNIX=1, SOCK_STREAM=1)
    monkeypatch.setitem(sys.modules, "_socket", posed)
    monkeypatch.setattr(client, "now", lambda: now_s[0])
    monkeypatch.setattr(client, "read_note", lambda *_: None)
    monkeypatch.setattr(client, "note", lambda *words: noted.append(words))
    monkeypatch.setenv("ADVISOR_SOCKET", str(tmp_path))
    assert client.send_text("0", "x") is False
    assert 0.249 < now_s[0] - begun_s < 0.257
    assert noted == [("daemon", "")]


def test_a_daemon_that_is_gone_is_no_daemon_that_hangs(qsub: Qsub) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(qsub.folder / "socket"))
    assert qsub("job.sh").client()["script"]
    assert not (qsub.left / "daemon").exists()


def test_a_daemon_that_lets_nobody_in_is_left_alone(qsub: Qsub) -> None:
    with full(qsub.folder / "socket"):
        assert qsub("job.sh").client()["script"]
    assert (qsub.left / "daemon").exists()


def test_a_daemon_that_says_too_much_is_not_heard_out(qsub: Qsub) -> None:
    def endless(connection: socket.socket, _: bytes) -> None:
        while True:
            connection.sendall(b"x" * 65536)

    with daemon(qsub.folder / "socket", endless):
        assert qsub("job.sh").client()["script"]
    assert not (qsub.left / "daemon").exists()  # it does not hang


def test_a_daemon_that_hangs_up_is_asked_again(qsub: Qsub) -> None:
    with daemon(qsub.folder / "socket", answering(b"")) as asked:
        for _ in range(2):
            assert qsub("job.sh").client()["script"]
    assert len(asked) == 2


def test_a_daemon_that_hangs_is_not_asked_again_for_a_while(qsub: Qsub) -> None:
    with daemon(qsub.folder / "socket", hanging) as asked:
        assert qsub("job.sh").client()["script"]
        assert len(asked) == 1
        assert qsub("job.sh").client()["script"]
        assert len(asked) == 1
        (qsub.left / "daemon").write_text(f"{int(time.time()) - 31} ")
        assert qsub("job.sh").client()["script"]
        assert len(asked) == 2


def test_what_no_daemon_takes_does_not_pile_up(qsub: Qsub) -> None:
    qsub("job.sh")
    old = qsub.left / ("a" * 32)
    old.write_text("x")
    os.utime(old, (1, 1))
    (qsub.left / ("c" * 32)).mkdir()  # whatever it is, it keeps nothing from its place
    os.utime(qsub.left / ("c" * 32), (1, 1))
    foreign = qsub.left / "notes"
    foreign.write_text("x")
    os.utime(foreign, (1, 1))
    for number in range(70):
        (qsub.left / f"{number:032x}").write_text("x")
    seen = qsub("job.sh")
    assert not old.exists()
    assert foreign.exists()
    assert len([path for path in qsub.left.glob("?" * 32) if path.is_file()]) == 64
    assert seen.client()["script"]


def test_what_is_taken_meanwhile_need_not_be_removed(
    client: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a" * 32, "b" * 32]
    (tmp_path / names[1]).write_text("x")
    monkeypatch.setattr(os, "listdir", lambda _: names)
    client.tidy(str(tmp_path), time.time() + 1000)
    assert not (tmp_path / names[1]).exists()


def test_what_no_daemon_takes_is_there_for_ten_minutes(qsub: Qsub) -> None:
    qsub("job.sh")
    for name, age_s in (("a" * 32, 590), ("b" * 32, 600.5)):
        (qsub.left / name).write_text("x")
        written = time.time() - age_s
        os.utime(qsub.left / name, (written, written))
    qsub("job.sh")
    assert [(qsub.left / (letter * 32)).exists() for letter in "ab"] == [True, False]


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o702])
def test_a_folder_that_is_not_the_user_s_alone_gets_nothing(qsub: Qsub, mode: int) -> None:
    qsub.left.mkdir(parents=True)
    qsub.left.chmod(mode)
    assert qsub("-v", "A=1", "job.sh").argv == ["-v", "A=1", "job.sh"]
    assert list(qsub.left.iterdir()) == []


def test_what_is_noted_is_the_user_s_alone(qsub: Qsub) -> None:
    with daemon(qsub.folder / "socket", hanging):
        qsub("job.sh")
    notes = [path for path in qsub.left.iterdir() if len(path.name) != 32]
    assert sorted(path.name.partition("-")[0] for path in notes) == ["daemon", "server"]
    assert {path.stat().st_mode & 0o7777 for path in notes} == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become a user without a name")
def test_a_user_without_a_name_has_no_home_to_leave_it_in() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        seen = Qsub(Path(name))("-v", "A=1", "job.sh", env={"ADVISOR": "on"}, user=54321)
        assert seen.argv == ["-v", "A=1", "-v", "A=1,ADVISOR", "job.sh"]
        assert not seen.env["ADVISOR_QSUB"]


def test_a_folder_that_others_may_enter_gets_nothing(qsub: Qsub) -> None:
    qsub.left.parent.mkdir()
    (qsub.folder / "theirs").mkdir(mode=0o777)
    qsub.left.symlink_to(qsub.folder / "theirs")
    assert qsub("job.sh").argv == ["job.sh"]
    assert list((qsub.folder / "theirs").iterdir()) == []
    qsub.left.unlink()
    qsub.left.mkdir(mode=0o755)
    assert qsub("job.sh").argv == ["job.sh"]
    said = qsub("job.sh", env={"ADVISOR": "on"}).err.splitlines()[0]
    assert said.startswith("advisor: ADVISOR not passed on: ")
    assert said.endswith(f"cannot be written ({qsub.left} is not the user's alone); use qsub -v")
    with daemon(qsub.folder / "socket", hanging):  # which cannot be noted either
        seen = qsub("-v", "A=1", "job.sh", env={"ADVISOR_GOAL": "power"})
    assert seen.argv == ["-v", "A=1", "-v", "A=1,ADVISOR_GOAL", "job.sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
def test_a_folder_of_another_user_gets_nothing(qsub: Qsub) -> None:
    qsub.left.mkdir(parents=True, mode=0o700)
    os.chown(qsub.left, 65534, 65534)
    assert qsub("-v", "A=1", "job.sh").argv == ["-v", "A=1", "job.sh"]
    assert list(qsub.left.iterdir()) == []


def test_a_script_that_says_off_needs_no_daemon(qsub: Qsub) -> None:
    (qsub.folder / "job.sh").write_text("#!/bin/sh\n#ADVISOR off\n./a\n")
    assert qsub("job.sh").argv == ["-v", "ADVISOR=off", "job.sh"]
    assert qsub("-v", "A", "job.sh", env={"ADVISOR": "on"}).argv[3] == "A,ADVISOR=off"
    assert qsub("-v", "ADVISOR=on", "job.sh").argv == ["-v", "ADVISOR=on", "job.sh"]
    assert "ADVISOR_QSUB" not in qsub("job.sh").env
    (qsub.folder / "pbs" / "qstat").unlink()
    qsub.forget()
    assert qsub("job.sh").err.startswith("advisor: ADVISOR not passed on: ")
    (qsub.folder / "job.sh").write_text("#!/bin/sh\n#ADVISOR workload=off\n./a\n")
    assert "ADVISOR_QSUB" in qsub("-v", "A", "job.sh").env


# -- what the server and the site do with qsub -----------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "script", "words", "value"),
    [
        ("-v X=1", "", [], "X=1,ADVISOR_QSUB"),
        ("-q w -v 'X=a b',Y -r n", "", [], "X=a b,Y,ADVISOR_QSUB"),
        ("-l place=free -V", "", [], "ADVISOR_QSUB"),
        ("-v X=1", "#PBS -v A=1", [], "A=1,ADVISOR_QSUB"),
        ("-v X=1", "", ["-v", "A=1"], "A=1,ADVISOR_QSUB"),
        ("-v X=1", "#PBS -v A=1", ["-v", "B"], "B,ADVISOR_QSUB"),
        (
            "-v " + ",".join(f"V{n}=1" for n in range(30)),
            "",
            [],
            ",".join(f"V{n}=1" for n in range(30)) + ",ADVISOR_QSUB",
        ),
    ],
)
def test_variables_that_the_server_gives_every_job_stay(
    qsub: Qsub, arguments: str, script: str, words: list[str], value: str
) -> None:
    """A -v in default_qsub_arguments counts only where no other one does."""
    qsub.serve(folded(f"default_qsub_arguments = {arguments}").partition(" = ")[2])
    (qsub.folder / "job.sh").write_text(f"#!/bin/sh\n{script}\n./a\n")
    assert qsub(*words, "job.sh").argv == [*words, "-v", value, "job.sh"]


@pytest.mark.parametrize(
    ("answer", "unknown"),
    [
        ("-v X=1 job.sh", False),
        ("-C '#X' -v X=1", False),
        ("-w", False),
        ("-? 3", False),
        ("echo Server: pbs1; exit 1", True),
        ("echo nothing", True),
    ],
)
def test_where_they_cannot_be_known_nothing_is_added(
    qsub: Qsub, answer: str, unknown: bool
) -> None:
    qsub.serve("" if unknown else answer)
    if unknown:
        (qsub.folder / "pbs" / "qstat").write_text(f"#!/bin/sh\n{answer}\n")
    seen = qsub("job.sh")
    assert (seen.argv, seen.err) == (["job.sh"], "a warning\n")
    assert list(qsub.left.glob("?" * 32)) == []
    seen = qsub("job.sh", env={"ADVISOR": "off", "ADVISOR_SIZE_N": "1"})
    assert seen.argv == ["job.sh"]
    said, warning = seen.err.splitlines()
    assert said.startswith("advisor: ADVISOR, ADVISOR_SIZE_N not passed on: the server")
    assert ("does not say" in said) == unknown
    assert said.endswith("use qsub -v") and warning == "a warning"
    assert qsub("-v", "A", "job.sh").argv == ["-v", "A", "-v", "A,ADVISOR_QSUB", "job.sh"]


def test_what_the_server_says_need_not_be_utf_8(qsub: Qsub) -> None:
    (qsub.folder / "answer").write_bytes(b"Server: pbs1\n    comment = caf\xe9\n")
    assert qsub("job.sh").argv == ["-v", "ADVISOR_QSUB", "job.sh"]


def test_the_server_is_asked_once_a_minute(qsub: Qsub) -> None:
    """Each question takes a privileged port of the login node."""
    for _ in range(3):
        qsub("job.sh")
    assert (qsub.folder / "asked").read_text() == "-B -f\n"
    qsub("-q", "q@other", "job.sh")
    assert (qsub.folder / "asked").read_text() == "-B -f\n-B -f other\n"
    [noted] = [f for f in qsub.left.glob("server-*") if f.read_text().split()[0].isdigit()][:1]
    for count, noted_s in ((3, 1), (4, int(time.time()) + 1000)):  # by a clock that was set back
        noted.write_text(f"{noted_s} ")
        qsub("job.sh")
        qsub("-q", "q@other", "job.sh")
        assert len((qsub.folder / "asked").read_text().splitlines()) == count


@pytest.mark.parametrize("name", ["PBS_SERVER", "PBS_DEFAULT", "PBS_CONF_FILE"])
def test_another_server_by_the_environment_is_asked_for_itself(qsub: Qsub, name: str) -> None:
    qsub("job.sh")
    with (qsub.folder / "answer").open("a") as answer:
        answer.write("    default_qsub_arguments = -v X=1\n")
    qsub("job.sh", env={name: "other"})
    assert qsub("job.sh", env={name: "other"}).argv[1] == "X=1,ADVISOR_QSUB"
    assert len((qsub.folder / "asked").read_text().splitlines()) == 2


def test_a_server_that_does_not_answer_delays_once_and_not_for_long(qsub: Qsub) -> None:
    """A site's own qstat, too, whose child hangs when it is ended; Python 3.6 waited for that."""
    (qsub.folder / "pbs" / "qstat").write_text("#!/bin/sh\nsleep 40\n")
    begin = time.monotonic()
    for _ in range(3):
        assert qsub("job.sh").argv == ["job.sh"]
    client = str(qsub.folder / "bin" / "qsub")
    for python in (Path.home() / ".pyenv" / "versions").glob("3.6.*/bin/python3"):
        qsub.forget()
        assert qsub("-IS", client, "job.sh", program=str(python)).argv == ["job.sh"]
    assert time.monotonic() - begin < 20


def test_a_qstat_of_the_folder_one_is_in_is_not_run(qsub: Qsub) -> None:
    plant = qsub.folder / "qstat"
    plant.write_text(f"#!/bin/sh\necho > {qsub.folder}/planted\n")
    plant.chmod(0o755)
    qsub.env["PATH"] = f"{qsub.folder}/bin::{qsub.folder}/pbs:/usr/bin:/bin"
    assert qsub("job.sh").argv == ["-v", "ADVISOR_QSUB", "job.sh"]
    (qsub.folder / "pbs" / "qstat").unlink()  # nor where there is no other
    assert qsub("job.sh", env={"PBS_SERVER": "other"}).argv == ["job.sh"]
    assert not (qsub.folder / "planted").exists()


def test_without_qstat_in_path_the_one_beside_pbs_s_own_qsub_is_asked(qsub: Qsub) -> None:
    installed(qsub)
    qsub.serve("-v X=1")
    qsub.env["PATH"] = f"{qsub.folder}/bin:/usr/bin:/bin"
    assert qsub("job.sh").argv == ["-v", "X=1,ADVISOR_QSUB", "job.sh"]


def wrapper(folder: Path, call: str) -> None:
    folder.mkdir()
    (folder / "qsub").write_text(f"#!/bin/sh\necho wrapped {folder.name} >&2\n{call}\n")
    (folder / "qsub").chmod(0o755)


def installed(qsub: Qsub) -> None:
    """Write PBS's own qsub into the program, as an installation does."""
    path = qsub.folder / "bin" / "qsub"
    path.write_text(path.read_text().replace("QSUB = ''", f"QSUB = '{qsub.folder}/pbs/qsub'"))


def test_a_site_s_own_qsub_behind_it_is_called(qsub: Qsub) -> None:
    wrapper(qsub.folder / "site", f'exec {qsub.folder}/pbs/qsub -l site=1 "$@"')
    qsub.env["PATH"] = f"{qsub.folder}/bin:{qsub.folder}/site:{qsub.folder}/pbs:/usr/bin:/bin"
    installed(qsub)
    seen = qsub("job.sh")
    assert seen.argv == ["-l", "site=1", "-v", "ADVISOR_QSUB", "job.sh"]
    assert seen.err == "wrapped site\na warning\n"


def test_a_site_s_own_qsub_in_front_of_it_calls_it(qsub: Qsub) -> None:
    wrapper(qsub.folder / "site", f'exec {qsub.folder}/bin/qsub -l site=1 "$@"')
    qsub.env["PATH"] = f"{qsub.folder}/site:{qsub.folder}/bin:{qsub.folder}/pbs:/usr/bin:/bin"
    installed(qsub)
    seen = qsub("job.sh", program=str(qsub.folder / "site" / "qsub"))
    assert seen.argv == ["-l", "site=1", "-v", "ADVISOR_QSUB", "job.sh"]
    assert seen.err == "wrapped site\na warning\n"


@pytest.mark.parametrize("call", ['exec qsub "$@"', 'qsub "$@"'])
def test_two_that_call_each_other_end_at_pbs_s_own(qsub: Qsub, call: str) -> None:
    calls = qsub.folder / "calls"
    ends = f"echo >> {calls}; [ $(wc -l < {calls}) -lt 5 ] || exit 9"
    wrapper(qsub.folder / "site", f"{ends}; {call}")
    qsub.env["PATH"] = f"{qsub.folder}/bin:{qsub.folder}/site:{qsub.folder}/pbs:/usr/bin:/bin"
    installed(qsub)
    seen = qsub("job.sh", env={"ADVISOR_GOAL": "power"})
    assert seen.argv == ["-v", "ADVISOR_GOAL,ADVISOR_QSUB", "job.sh"]
    assert seen.err == "wrapped site\na warning\n"
    assert seen.client()["script"]
    assert "ADVISOR_QSUB_PREPARED" not in seen.env


@pytest.mark.parametrize("path", ["", "{0}/bin::/usr/bin", "{0}/bin:{0}/folder:{0}/text:{0}/pbs"])
def test_the_next_qsub_of_path_is_a_program(qsub: Qsub, path: str) -> None:
    """An empty word of PATH is the folder one is in, as for a shell."""
    (qsub.folder / "folder" / "qsub").mkdir(parents=True)
    (qsub.folder / "text").mkdir()
    (qsub.folder / "text" / "qsub").write_text("#!/bin/sh\nexit 1\n")
    if path:
        (qsub.folder / "qsub").symlink_to(qsub.folder / "pbs" / "qsub")
        qsub.env["PATH"] = path.format(qsub.folder)
    else:
        installed(qsub)
        del qsub.env["PATH"]
    assert qsub("job.sh", program=str(qsub.folder / "bin" / "qsub")).err == "a warning\n"


@pytest.mark.parametrize("mark", ["x", "1", "", "99999999999"])
def test_what_a_job_s_variables_hold_of_an_earlier_qsub_counts_for_nothing(
    qsub: Qsub, mark: str
) -> None:
    """A job from inside of another, with -V: of an hour ago, or by a clock that was set back."""
    installed(qsub)
    mark = mark or str(int(time.time()) - 60)
    seen = qsub("job.sh", env={"ADVISOR_QSUB_PREPARED": mark})
    assert seen.argv == ["-v", "ADVISOR_QSUB", "job.sh"]
    assert "ADVISOR_QSUB_PREPARED" not in seen.env


def test_one_that_knows_no_qsub_of_pbs_s_own_calls_the_next(qsub: Qsub) -> None:
    """Whatever the environment says of an earlier one: then the job goes as it is."""
    mark = {"ADVISOR_QSUB_PREPARED": str(int(time.time()))}
    assert qsub("job.sh", env=mark).argv == ["job.sh"]


def test_called_by_its_path_alone_it_calls_pbs_s_own(qsub: Qsub) -> None:
    wrapper(qsub.folder / "site", f'exec {qsub.folder}/bin/qsub "$@"')
    qsub.env["PATH"] = f"{qsub.folder}/site:{qsub.folder}/pbs:/usr/bin:/bin"
    installed(qsub)
    assert qsub("job.sh").err == "a warning\n"


# -- the excerpt says what the script says -------------------------------------------------------


def test_both_sides_know_the_same_words() -> None:
    client = module()
    assert set(client.LAUNCHERS) == LAUNCHERS
    assert all(client.LAUNCH.search(f"{word} ./a") for word in LAUNCHERS)
    options = pbs_table.OPTIONS.values()
    assert sorted(client.FLAGS) == sorted(o.letter for o in options if not o.has_value)
    assert sorted(client.VALUED) == sorted(["l", *(o.letter for o in options if o.has_value)])
    assert set(client.PASSED) <= set(protocol.SETTINGS) and set(client.OFF) <= set(protocol.OFF)
    assert (client.QSUB, client.SOCKET) == ("", "/run/advisor/advisor.sock")
    assert (client.FOLDER, client.MAX_VALUE) == (script_reader.FOLDER, script_reader.MAX_TEXT)
    words = set(["if", "then", "else", "elif", "fi", "for", "do", "done", "while", "case", "esac"])
    assert [
        w for w in client.SKIP if w not in words and not is_light([w]) and w not in NO_PROGRAMS
    ] == ["declare"]


LINES = [
    "mpirun ./a -n $N",
    "srun -c 4 ./b",
    "./c x",
    "N=4",
    "export N=5",
    "echo hello",
    "cd /tmp",
    "export OMP_NUM_THREADS=8",
    "OMP_NUM_THREADS=$NCPUS ./d",
    "#ADVISOR workload=w",
    "# comment",
    "for i in 1 2; do",
    "done",
    "A=$N B=2 ./e $A",
    "time python run.py --fast",
    "X=mpi",
    "",
    "if [ -f x ]; then mpiexec -np 2 ./f; fi",
    "cat <<EOF",
    "EOF",
    "./g \\",
    "   more",
    "wait",
    "source env.sh",
    "M=${N:-3}",
    "/usr/bin/mpirun -np $M /opt/h $M",
]


@pytest.fixture(scope="module")
def client() -> ModuleType:
    return module()


@given(lines=st.lists(st.sampled_from(LINES), max_size=12))
def test_the_daemon_understands_the_excerpt_as_the_script(
    client: ModuleType, lines: Sequence[str]
) -> None:
    script = "\n".join(["#!/bin/bash", *lines, ""])
    short = "\n".join(client.excerpt(script.splitlines()))
    whole, part = recognise(script), recognise(short)
    assert (part.application, part.workload) == (whole.application, whole.workload)
    assert advisor_lines(short) == advisor_lines(script)
    assert threads_of(short).why == threads_of(script).why
    # An excerpt has no conditions; a job that is known by one only is never changed.
    if not threads_of(script).unclear:
        assert threads_of(short).count == threads_of(script).count


@pytest.mark.parametrize(
    "front",
    "! then do else time exec nohup command stdbuf setsid A=1".split(),  # noqa: SIM905
)
def test_a_word_before_a_command_does_not_hide_it(client: ModuleType, front: str) -> None:
    assert client.excerpt([f"{front} ./a"]) == [f"{front} ./a"]
    assert client.excerpt([f"{front} echo"]) == []


@given(text=st.text(max_size=200))
def test_no_script_breaks_it(client: ModuleType, text: str) -> None:
    lines = text.splitlines()
    client.excerpt(lines)
    options = client.directives(lines, "#PBS")
    assert read_client(client.client(text.encode("utf-8", "replace"), options, lines))["v"] == 1


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("TOKEN=s3cr3t", "TOKEN=_"),
        ("export TOKEN='s3 cr3t'", "export TOKEN=_"),
        ('TOKEN="s3cr3t"', "TOKEN=_"),
        ("export  A_1=", "export  A_1=_"),
        # what runs something, or depends on more, is told: nothing else says what a script does
        ("A=$(nproc)", None),
        ("A=x ./b", None),
        ("./b A=x", None),
        ("A=x; ./b", None),
        ('A="$B"', None),
        ("A=`nproc`", None),
    ],
)
def test_values_that_do_not_tell_stay_here(client: ModuleType, line: str, sent: str | None) -> None:
    assert client.outline([line, "mpirun ./a", "./c", "./d", "./e"])[0] == (sent or line)


def test_a_long_script_is_cut_rather_than_left_out(client: ModuleType) -> None:
    lines = [f"export V{i}_NUM_THREADS={'ab1' * i}" for i in range(400)] + ["mpirun ./a"]
    text = "\n".join(lines).encode()
    value = client.client(text, [], lines)
    assert len(value) <= client.MAX_VALUE
    job = parse_request({"options": {}, "client": value}, user="a", uid=1, choices={})
    assert job.fingerprint
    told = read_client(value)
    assert len(told["script"]) == 4000 and not told["whole"]


def test_a_script_that_is_told_whole_is_told_to_its_end(client: ModuleType) -> None:
    lines = [f"./a{number}" for number in range(1000)]
    told = read_client(client.client("\n".join(lines).encode(), [], lines))
    assert told["whole"] and told["script"].splitlines() == lines


def test_a_script_without_room_is_told_in_part(client: ModuleType, tmp_path: Path) -> None:
    """Its beginning and what it is known by, rather than nothing."""
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o755)
    letters = random.Random(1)
    words = ["".join(letters.choices(string.ascii_letters, k=70)) for _ in range(550)]
    lines = [*words, f"mpirun {tmp_path}/a"]
    assert client.outline(lines) is not None
    value = client.client("\n".join(lines).encode(), [["-l", "ncpus=4"]], lines)
    assert len(value) <= client.MAX_VALUE
    told = read_client(value)
    assert told["script"] == "\n".join(["#PBS -l ncpus=4", *client.excerpt(lines)])
    assert not told.get("whole") and not told.get("programs")


# -- the programs a script runs --------------------------------------------------------------------


def test_the_builds_of_the_script_s_programs_are_sent_along(qsub: Qsub) -> None:
    """Where they are found without a PATH, which is the job's own."""
    for name in ("stencil", "other", "data"):
        (qsub.folder / name).write_text(f"#!/bin/sh\n# {name}\n")
        (qsub.folder / name).chmod(0o644 if name == "data" else 0o755)
    lines = "mpirun -np 2 $EXE --input ./data $HOME/data\n"
    (qsub.folder / "job.sh").write_text(f"cd $PBS_O_WORKDIR || exit 1\nEXE=./stencil\n{lines}")
    client = qsub("job.sh").client()
    expected = program.find("./stencil", qsub.folder)
    assert client["programs"] == {"./stencil": expected}
    text = (qsub.folder / "stencil").read_bytes()
    assert expected["build"] == f"adler:{zlib.adler32(text):08x}:{len(text)}"
    payload = {
        "client": qsub("job.sh").packed(),
        "options": {"l.select": "1:ncpus=4"},
        "cwd": str(qsub.folder),
    }
    assert parse_request(payload, user="ann", uid=1, choices={}).program == expected


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("mpirun {here}/stencil", ["{here}/stencil"]),
        ("mpirun $PBS_O_WORKDIR/stencil", ["$PBS_O_WORKDIR/stencil"]),
        ("mpirun ~/stencil && mpirun ./other", ["~/stencil", "./other"]),  # jobs start at home
        ("E={here}\nmpirun ${{E}}/stencil", ["{here}/stencil"]),
        ("cd run\nmpirun ./stencil", []),
        ("cd $PBS_O_WORKDIR; cd run\nmpirun ./stencil", []),
        ("mpirun stencil", []),
        ("mpirun $SOMEWHERE/stencil", []),
        ("mpirun ./absent", []),
        ("mpirun -x/stencil", []),
        ("cd\nmpirun ./stencil", []),
        ("cd run\nmpirun {here}/stencil", ["{here}/stencil"]),
        ("E={here}\nmpirun E $E/stencil", ["{here}/stencil"]),
        ("mpirun $SOMEWHERE{here}/stencil", []),
    ],
)
def test_only_where_a_program_is_for_certain(qsub: Qsub, script: str, found: list[str]) -> None:
    for odd in ("-x", "$SOMEWHERE"):
        (qsub.folder / odd).mkdir()
    for name in ("stencil", "other", "-x/stencil", "$SOMEWHERE/stencil"):
        (qsub.folder / name).write_text("x")
        (qsub.folder / name).chmod(0o755)
    (qsub.folder / "job.sh").write_text(script.format(here=qsub.folder) + "\n")
    client = qsub("job.sh").client()
    assert list(client["programs"]) == [f.format(here=qsub.folder) for f in found]


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("mpirun ./stencil", "home"),  # where a job starts
        ("cd $PBS_O_WORKDIR\n(mpirun ./stencil)", "work"),
        ("cd $PBS_O_WORKDIR; mpirun ./stencil;date", "work"),
        ("mpirun $HOME/stencil", "home"),
        ("mpirun $PBS_O_WORKDIR/stencil", "work"),
        ("cd run\nmpirun ./bin/sh", ""),  # of another folder, and not of the root's
    ],
)
def test_the_program_of_the_folder_where_the_script_is_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, place: str
) -> None:
    """Another program of the same name must not pass for the one that was measured."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stencil").write_text(f"#!/bin/sh\n# {name}\n")
        (tmp_path / name / "stencil").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    lines = script.split("\n")
    found = [facts["build"] for facts in module().programs(lines[-1:], lines).values()]
    program_file = tmp_path / place / "stencil"
    expected = program.find(str(program_file), tmp_path) if place else None
    assert found == ([expected["build"]] if expected else [])


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("flag", ["-Wl,--build-id", "-Wl,--build-id=none"])
def test_the_client_reads_builds_as_everybody_does(tmp_path: Path, flag: str) -> None:
    (tmp_path / "a.c").write_text("int main(void){return 0;}")
    subprocess.run(["cc", "-o", tmp_path / "a", tmp_path / "a.c", flag], check=True)
    found = module().facts_of(str(tmp_path / "a"))
    assert found == program.find(str(tmp_path / "a"), tmp_path)
    assert found["build"].startswith("adler") == ("none" in flag)


def note(kind: int, name: bytes, text: bytes) -> bytes:
    """Return one note of an ELF file, padded as there."""
    head = struct.pack("<III", len(name), len(text), kind)
    return head + b"".join(part + b"\0" * (-len(part) % 4) for part in (name, text))


def elf(*segments: tuple[int, bytes], start: bytes = b"\x7fELF\x02\x01", length: int = 56) -> bytes:
    """Return a 64-bit little-endian ELF file with these segments, each its kind and content."""
    head = start.ljust(32, b"\0") + struct.pack("<QQIHHH", 64, 0, 0, 64, length, len(segments))
    table, content = b"", b""
    for kind, text in segments:
        place = 64 + length * len(segments) + len(content)
        table += struct.pack("<IIQQQQQQ", kind, 0, place, 0, 0, len(text), 0, 0).ljust(length)
        content += text
    return head.ljust(64, b"\0") + table + content


ID = note(3, b"GNU\0", b"0123456789abcdef")
ODD = note(3, b"GNU\0", b"12345")
PROPERTY = note(5, b"GNU\0", b"x" * 9)
LOAD = (1, b"code")


@pytest.mark.parametrize(
    ("file", "build"),
    [
        (elf((4, ID)), b"0123456789abcdef".hex()),
        (elf(LOAD, (4, PROPERTY), (4, note(1, b"longer\0", b"abc") + ID)), ID[16:].hex()),
        (elf((4, ID), length=64), ID[16:].hex()),
        (elf(*[LOAD] * 63, (4, ID)), ID[16:].hex()),
        (elf(*[LOAD] * 64, (4, ID)), "adler"),
        (elf((4, note(3, b"GNU\0", b"1234"))), b"1234".hex()),
        (elf((4, note(3, b"GNU\0", b"x" * 64))), (b"x" * 64).hex()),
        (elf((4, note(3, b"GNU\0", b"x" * 65))), "adler"),
        (elf((4, note(3, b"GNU\0", b"123"))), "adler"),
        (elf((4, note(3, b"GNU\0", b""))), "adler"),
        (elf((4, note(3, b"XXX\0", b"1234"))), "adler"),
        (elf((4, note(3, b"GNU\0\0", b"1234"))), "adler"),
        (elf((4, note(2, b"GNU\0", b"1234"))), "adler"),
        (elf((4, ID[:-1])), "adler"),
        (elf((4, ID[:11])), "adler"),
        (elf((4, PROPERTY + ID[:11]), (4, ID)), ID[16:].hex()),
        (elf((4, note(5, b"GNU\0", b"x" * 65500) + ODD)), "adler"),  # a byte beyond what is read
        (elf((4, note(5, b"GNU\0", b"x" * 65488) + ID)), ID[16:].hex()),  # all that is read
        (elf((4, note(1, b"abcd\0", b"x") + ID)), ID[16:].hex()),
        (elf((7, ID)), "adler"),
        (elf((4, PROPERTY), (7, ID)), "adler"),
        (elf((4, ID), start=b"\x7fELF\x01\x01"), "adler"),
        (elf((4, ID), start=b"\x7fELF\x02\x02"), "adler"),
        (elf((4, ID))[:100], "adler"),
        (elf((4, ID), length=0), "adler"),
        (b"\x7fELF\x02\x01", "adler"),
        (b"#!/bin/sh\n" + b"x" * 65526 + b"y", "adler"),
        (b"", "adler"),
    ],
)
def test_builds_of_odd_files_are_read_as_everybody_does(
    client: ModuleType, tmp_path: Path, file: bytes, build: str
) -> None:
    path = tmp_path / "a"
    path.write_bytes(file)
    path.chmod(0o755)
    facts = client.facts_of(str(path))
    assert facts == program.find(str(path), tmp_path)
    expected = f"adler:{zlib.adler32(file[:65536]):08x}:{len(file)}" if build == "adler" else build
    assert facts["build"] == expected


def test_what_is_no_program_is_not_waited_for(client: ModuleType, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o755)
    assert client.facts_of(str(tmp_path / "pipe")) is None
    assert client.facts_of(str(tmp_path)) is None


def test_of_many_programs_five_are_told(qsub: Qsub) -> None:
    for number in range(7):
        (qsub.folder / f"p{number}").write_text("x")
        (qsub.folder / f"p{number}").chmod(0o755)
    lines = "".join(f"mpirun {qsub.folder}/p{number}\n" for number in range(7))
    (qsub.folder / "job.sh").write_text(lines)
    assert len(qsub("job.sh").client()["programs"]) == 5


@pytest.mark.parametrize(
    ("script", "whole"),
    [
        ("./a\n" * 9_999 + "./aa", True),  # 40,000 characters
        ("./a\n" * 9_999 + "./aaa", False),
        ("cat <<E\n$A\nE\n./a", True),
        ("cat <<E\n$(date)\nE\n./a", False),
        ("cat <<E\n`date`\nE\n./a", False),
        ("A=$(date)\n./a", True),
    ],
)
def test_an_outline_is_whole_or_is_none(client: ModuleType, script: str, whole: bool) -> None:
    assert (client.outline(script.splitlines()) is not None) == whole


def test_an_outline_leaves_out_comments_and_here_documents(client: ModuleType) -> None:
    lines = ["# x", "  # y", "", "   ", "  ./a 1  ", "cat <<EOF", "./x", "  EOF", "./b"]
    lines += ["cat <<< EOF", "./c"]
    outline = [line.strip() for line in client.outline(lines)]
    assert outline == ["./a 1", "cat", "./b", "cat <<< EOF", "./c"]


def test_an_excerpt_has_all_that_its_lines_depend_on(client: ModuleType) -> None:
    lines = ["B=x", "A=$B", "mpirun ./a $A"]
    assert client.excerpt(["C=y", *lines]) == lines


def test_an_excerpt_has_the_first_five_launchers_and_the_last_three_commands(
    client: ModuleType,
) -> None:
    lines = [f"mpirun ./a{number}" for number in range(9)]
    assert client.excerpt(lines) == [*lines[:5], *lines[6:]]
    assert client.excerpt(["echo x; ./a"]) == ["echo x; ./a"]


@pytest.mark.parametrize("begin", ["#ADVISOR ", "./a "])
def test_of_a_long_line_the_beginning_is_told(client: ModuleType, begin: str) -> None:
    line = begin + "x" * 2000
    assert client.outline([line]) == [line[:1000]]


def test_a_backslash_at_the_end_is_a_character(client: ModuleType) -> None:
    """A line is cut at ``;``, before its words are read."""
    assert client.split_words("find . -exec ./a {} \\") == ["find", ".", "-exec", "./a", "{}", "\\"]
