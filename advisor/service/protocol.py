"""Protocol version 1: one JSON line each way over a UNIX socket.

Requests carry ``{"v": 1, "op": ...}``; answers carry ``"v": 1`` and either the operation's keys
or ``"error"``. Operations: ``decide``, ``explain`` (the full record), ``submitted`` (a job id
for a decision), ``observe`` (measured runs of the peer's own), ``characterise`` (an application's
phases, as the peer found them), ``status``, ``ping``.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from advisor.errors import AdvisorError

VERSION = 1
MAX_REQUEST = 1 << 20
"""Bytes of one request line; longer ones are answered with an error and the line closed."""


_encode = json.JSONEncoder(separators=(",", ":")).encode


class ProtocolError(AdvisorError):
    """A request that is not a line of protocol version 1."""


def parse_request_line(line: bytes) -> dict[str, object]:
    """Return a request. Raises ProtocolError; bytes that are not UTF-8 are replaced."""
    try:
        data = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ProtocolError("not a JSON object")
    if data.get("v") != VERSION:
        raise ProtocolError(f"protocol version {data.get('v')!r} is not {VERSION}")
    if not isinstance(data.get("op"), str):
        raise ProtocolError("no op")
    return data


def answer_line(answer: dict[str, object]) -> bytes:
    """Return an answer as one line."""
    return _encode({"v": VERSION, **answer}).encode() + b"\n"


def call(path: Path, request: dict[str, object], timeout_s: float = 5.0) -> dict[str, object]:
    """Send one request to a daemon and return its answer.

    Raises AdvisorError when no daemon answers in time or the answer is an error.
    """
    hint = "is `advisor serve` running?"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(answer_line(request))
            chunks: list[bytes] = []
            while not chunks or not chunks[-1].endswith(b"\n"):
                chunk = connection.recv(65536)
                if not chunk:
                    break
                chunks.append(chunk)
        data = json.loads(b"".join(chunks))
    except (OSError, ValueError) as error:
        raise AdvisorError(f"no answer from {path}: {error}", hint=hint) from None
    if not isinstance(data, dict):
        raise AdvisorError(f"{path} answered something else than an object", hint=hint)
    if "error" in data:
        raise AdvisorError(f"the daemon at {path} says: {data['error']}")
    return data
