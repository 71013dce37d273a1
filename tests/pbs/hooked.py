"""Run a PBS hook against the stand-in module, and daemons that behave as badly as they can."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import interpreters

ROOT = Path(__file__).resolve().parent.parent.parent
HOOKS = ROOT / "hooks" / "pbs"
Outcome = dict[str, Any]

DECISION = "0123456789abcdef"
STAMP = 'advisor:{"v":1,"id":"0123456789abcdef","app":"stencil","wl":"-n 1"}'


def run_hook(
    hook: str,
    events: list[dict[str, Any]],
    config: Mapping[str, object] | Path | None = None,
    *,
    folder: Path,
    python: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Run a hook for events one after the other in one fresh interpreter."""
    env = {"PATH": "/usr/bin:/bin", **(environment or {})}
    if config is not None:
        path = config if isinstance(config, Path) else folder / "hook.json"
        if not isinstance(config, Path):
            path.write_text(json.dumps(config))
        env["PBS_HOOK_CONFIG_FILE"] = str(path)
    given = HOOKS / hook, json.dumps(events), env, folder
    if python is None:
        interpreters.start()
        done = interpreters.run(*given)
    else:
        done = interpreters.run_new(*given, python)
    assert done.returncode == 0, done.stderr
    found: list[Outcome] = json.loads(done.stdout)
    return found


def job(
    resources: Mapping[str, str | int] | None = None,
    variables: Mapping[str, str] | None = None,
    **attributes: object,
) -> dict[str, Any]:
    """Return a queuejob event as qsub makes one."""
    return {
        "event": "QUEUEJOB",
        "user": "root",
        "job": {
            "id": "",
            "Job_Name": "job.sh",
            "queue": "",
            "Submit_arguments": "<jsdl-hpcpa:Argument>job.sh</jsdl-hpcpa:Argument>",
            "Resource_List": dict(resources or {}),
            "Variable_List": {
                "PBS_O_WORKDIR": "/home/alice",
                "PBS_O_HOME": "/home/alice",
                **(variables or {}),
            },
            **attributes,
        },
    }


def plan(rewrite: Mapping[str, str] | None = None, **other: object) -> bytes:
    """Return a daemon's answer line."""
    answer = {
        "v": 1,
        "decision": DECISION,
        "rewrite": dict(rewrite or {}),
        "env": {},
        "message": "",
        "stamp": STAMP,
        **other,
    }
    return json.dumps(answer).encode() + b"\n"


@contextmanager
def daemon(path: Path, behave: Callable[[socket.socket, bytes], None]) -> Iterator[list[bytes]]:
    """Serve at a socket; ``behave`` has each connection and the line it sent.

    Python's collector does not run meanwhile: over all that the tests hold it takes longer on a
    busy machine than hooks wait for an answer.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    asked: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    def talk(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            line = b""
            try:
                while not line.endswith(b"\n"):
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    line += piece
                asked.append(line)
                behave(connection, line)
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    gc.disable()
    try:
        yield asked
    finally:
        gc.enable()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@contextmanager
def full(path: Path) -> Iterator[socket.socket]:
    """Listen with as many waiting as may."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(str(path))
        listener.listen(0)
        waiting.connect(str(path))
        yield listener


def answering(line: bytes) -> Callable[[socket.socket, bytes], None]:
    """Answer a line at once."""
    return lambda connection, _: connection.sendall(line)


def dripping(line: bytes, seconds: float) -> Callable[[socket.socket, bytes], None]:
    """Answer a line a byte at a time."""

    def behave(connection: socket.socket, _: bytes) -> None:
        for byte in line:
            connection.sendall(bytes([byte]))
            time.sleep(seconds)

    return behave


def hanging(connection: socket.socket, _: bytes) -> None:
    """Take the line and say nothing."""
    time.sleep(5)
