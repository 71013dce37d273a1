"""Fresh interpreters for hooks: one is started for a process of tests, and forks for each run.

A fork begins where an interpreter begins that has loaded hook_run.py's modules and compiled the
hook; so it need do neither, which takes longer than all that a hook does.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

RUNNER = Path(__file__).with_name("hook_run.py")
OPTIONS = ("-I", "-S", "-OO")
"""Those of PBS: isolated, without site packages, without asserts and docstrings."""
TIMEOUT_S = 60
_forking: list[subprocess.Popen[bytes]] = []


def start() -> None:
    """Start the interpreter that forks; this process and its own forks use it from then on."""
    if not _forking:
        _forking.append(
            subprocess.Popen(
                [sys.executable, *OPTIONS, str(RUNNER)],
                stdin=subprocess.PIPE,
                env={"PATH": "/usr/bin:/bin"},
            )
        )
        atexit.register(stop)


def stop() -> None:
    """End it, if there is one."""
    for interpreter in _forking:
        interpreter.communicate()
    _forking.clear()


def run(
    hook: Path, events: str, environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run a hook for events, which are JSON, in a fork of the one interpreter or in a new one."""
    if not _forking:
        return run_new(hook, events, environment, folder)
    with tempfile.TemporaryDirectory(prefix="hook-run-") as name:
        call = Path(name)
        asked = {"hook": str(hook), "environment": dict(environment), "folder": str(folder)}
        (call / "asked").write_text(json.dumps(asked))
        (call / "in").write_text(events)
        os.mkfifo(call / "code")
        with os.fdopen(os.open(call / "code", os.O_RDONLY | os.O_NONBLOCK)) as code:
            line = f"{call}\n".encode()
            assert len(line) <= select.PIPE_BUF  # in one piece, whoever else is writing
            os.write(_pipe(), line)
            if not select.select([code], [], [], TIMEOUT_S)[0]:
                _forking.pop().kill()
                raise subprocess.TimeoutExpired(str(hook), TIMEOUT_S)
            exit_code = int(code.read())
        out, err = ((call / stream).read_text() for stream in ("out", "err"))
    return subprocess.CompletedProcess((), exit_code, out, err)


def run_new(
    hook: Path,
    events: str,
    environment: Mapping[str, str],
    folder: Path,
    python: str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Run a hook for events, which are JSON, in a new interpreter."""
    return subprocess.run(
        [python, *OPTIONS, str(RUNNER), str(hook)],
        input=events,
        capture_output=True,
        text=True,
        env=dict(environment),
        cwd=folder,
        timeout=TIMEOUT_S,
        check=False,
    )


def _pipe() -> int:
    pipe = _forking[0].stdin
    assert pipe is not None
    return pipe.fileno()
