"""A daemon that answers the hooks as a test wants: well, badly, late or never."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from testbed.daemons import go_first

DECISION = "0123456789abcdef"
STAMP = 'advisor:{"v":1,"id":"0123456789abcdef","why":["chosen"]}'

Reply = Callable[[dict[str, Any]], "bytes | None"]


def answer(
    rewrite: object = None,
    env: object = None,
    message: str = "",
    **other: object,
) -> bytes:
    """Return an answer line of protocol version 1; ``other`` keys replace, add or (None) remove."""
    data = {
        "v": 1,
        "decision": DECISION,
        "rewrite": rewrite or {},
        "env": env or {},
        "message": message,
        "stamp": STAMP,
        **other,
    }
    data = {k: v for k, v in data.items() if v is not None}
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def unchanged(request: dict[str, Any]) -> bytes | None:
    """Reply that nothing changes."""
    return answer() if request["op"] == "decide" else None


class HookDaemon:
    """Listens on a socket every user may use; notes each request, sends what ``reply`` returns.

    ``reply`` may return None (hang up without an answer) or bytes; ``drip_s`` sends them one by
    one with that pause; ``silent`` never answers. Python's collector does not run meanwhile: over
    all that the tests hold it takes longer on a busy machine than the hooks wait for an answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reply: Reply = unchanged
        self.drip_s = 0.0
        self.silent = False
        self.requests: list[dict[str, Any]] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        self.path.unlink(missing_ok=True)
        self._listener.bind(str(self.path))
        self.path.chmod(0o666)
        self._listener.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()
        gc.disable()
        return self

    def __exit__(self, *_: object) -> None:
        gc.enable()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._held:
            connection.close()
        self.path.unlink(missing_ok=True)

    def asked(self, op: str = "decide") -> list[dict[str, Any]]:
        """Return the requests of one operation so far."""
        return [r for r in self.requests if r["op"] == op]

    def wait_for(self, op: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many requests of an operation have come; they may come unawaited."""
        deadline = time.monotonic() + 10
        while len(self.asked(op)) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.asked(op)

    def _serve(self) -> None:
        go_first(threading.get_native_id())
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"\n"):
            piece = connection.recv(65536)
            if not piece:
                break
            data += piece
        if data:
            self.requests.append(json.loads(data.decode("utf-8", "replace")))
        if self.silent:
            self._held.append(connection)
            return
        line = self.reply(self.requests[-1]) if data else None
        try:
            for start in range(0, len(line or b""), 1 if self.drip_s else 1 << 20):
                connection.sendall((line or b"")[start : start + (1 if self.drip_s else 1 << 20)])
                time.sleep(self.drip_s)
        except OSError:
            pass
        connection.close()
