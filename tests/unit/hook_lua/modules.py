"""The hooks' Lua modules as hook install writes them, run by each Lua that is here."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from hypothesis import strategies as st

from advisor.schedulers.cluster import Cluster, Node, Partition
from tests.stopped import stop_peer

LUAS = [lua for v in ("5.1", "5.3", "5.4") if (lua := shutil.which(f"lua{v}"))]


LUA_OF: dict[Path, str] = {}
"""The Lua a modules' folder is tried with; the first one where nothing is noted."""


def _node(
    name: str,
    features: tuple[str, ...],
    cores: int,
    memory_mb: int,
    *partitions: str,
    threads_per_core: int = 1,
) -> Node:
    """Return a node of two sockets."""
    return Node(
        name,
        features,
        sockets=2,
        cores=cores,
        threads_per_core=threads_per_core,
        memory_mb=memory_mb,
        partitions=partitions,
    )


CLUSTER = Cluster(
    "22.05.8",
    (
        *(_node(f"a{i}", ("old", "big"), 28, 4000, "batch", "debug") for i in range(4)),
        *(_node(f"b{i}", ("new",), 40, 8000, "batch", threads_per_core=2) for i in range(2)),
    ),
    (Partition("batch", default=True), Partition("debug", max_nodes=2)),
    "alpha",
)


BEFORE = Path(__file__).resolve().parents[2] / "golden" / "hooks_0_2_0"


BROADWELL = Cluster(
    "22.05.8",
    (_node("bdw1", ("broadwell",), 28, 8000, "batch"),),
    (Partition("batch", default=True),),
)


PRELUDE = """\
local home = ...
slurm = { SUCCESS = 0 }
local loaded = { home = home }
local function use(name)
  if loaded[name] == nil then
    loaded[name] = assert(loadfile(home .. "/" .. name .. ".lua"))(use)
  end
  return loaded[name]
end
"""


def run(home: Path, code: str, stdin: bytes = b"", *arguments: object) -> bytes:
    """Run Lua code from a file: its standard input stays its own."""
    script = home / "main.lua"
    script.write_text(f"{PRELUDE}\n{code}")
    done = subprocess.run(
        [LUA_OF.get(home, LUAS[0]), script, str(home), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**50), 2**50)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


ECHO = """\
local json = use("json")
local function write(value)
  if type(value) == "table" and #value > 0 then
    local words = {}
    for i, v in ipairs(value) do words[i] = write(v) end
    return "[" .. table.concat(words, ",") .. "]"
  elseif type(value) == "table" then
    local words = {}
    for k, v in pairs(value) do words[#words + 1] = json.quote(k) .. ":" .. write(v) end
    return "{" .. table.concat(words, ",") .. "}"
  elseif type(value) == "string" then
    return json.quote(value)
  elseif type(value) == "number" then
    return ("%.17g"):format(value)
  end
  return tostring(value)
end
for line in io.lines() do
  local value, problem = json.decode(line)
  io.write(problem and "!" .. problem or write(value), "\\n")
end
"""


MESSAGE = 'local p = use("answer").read(io.read("*a")) io.write(p and p.message or "")'


def message(home: Path, text: str | bytes) -> str:
    """Return what the user would read of a message."""
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    answer = b'{"v":1,"decision":"0123456789abcdef","rewrite":{},"message":' + data + b"}"
    return run(home, MESSAGE, answer).decode()


class Peer:
    """The other end of a socket: sends pieces with a pause, or hangs up.

    With ``stops_s`` the process that asks is stopped for so long before the pieces are sent.
    """

    def __init__(
        self,
        path: Path,
        *pieces: bytes,
        pause_s: float = 0.0,
        read: bool = True,
        stops_s: float = 0.0,
    ) -> None:
        self.got, self._stops_s = b"", stops_s
        self._pieces, self._pause_s, self._read = pieces, pause_s, read
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            if self._read:
                self.got = connection.recv(65536)
            if self._stops_s:
                stop_peer(connection, self._stops_s)
            try:
                for piece in self._pieces:
                    connection.sendall(piece)
                    time.sleep(self._pause_s)
            except OSError:
                pass
