"""The hooks' installed Lua files, called as Slurm calls them: what they ask, what they change."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hooked import daemon

from advisor.core.axes import AxisWriting
from advisor.schedulers.slurm.hook_files import (
    SlurmHookSettings,
    compiled_files,
    source_files,
    stub,
)
from tests.unit.hook_lua.modules import CLUSTER, LUA_OF

DECISION = "0123456789abcdef"
STAMP = 'advisor:{"v":1,"id":"0123456789abcdef"}'
STEPS = {"old": (1_200_000, 1_900_000), "new": (1_500_000, 2_000_000)}
LATE_S = 30.0
"""A deadline that a busy machine keeps as well."""
Reply = Callable[[dict[str, Any]], bytes]


def answer(
    rewrite: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None, **other: object
) -> bytes:
    """Return an answer line of the daemon; ``other`` keys replace, add or (None) remove."""
    data = {
        "v": 1,
        "decision": DECISION,
        "rewrite": dict(rewrite or {}),
        "env": dict(env or {}),
        "message": "",
        "to": "tty",
        "stamp": STAMP,
        **other,
    }
    data = {k: v for k, v in data.items() if v is not None}
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def lua(value: object) -> str:
    """Write texts, numbers, lists and mappings as Lua."""
    if value is None or isinstance(value, (bool, int, float)):
        return "nil" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"[{lua(k)}]={lua(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "{" + ",".join(map(lua, value)) + "}"
    return '"' + "".join(f"\\{byte:03d}" for byte in str(value).encode()) + '"'


def options_json(options: Mapping[str, str], argv: Sequence[str]) -> str:
    """Return what slurm.json_cli_options says of options that are all the user's."""
    return json.dumps({**options, "argv": list(argv)}, separators=(",", ":"))


def read(line: bytes) -> dict[str, Any]:
    """Return a request, {} for a line that is no JSON; the daemon reads no second one."""
    try:
        found: dict[str, Any] = json.loads(line.partition(b"\n")[0].decode("utf-8", "replace"))
    except ValueError:
        return {}
    return found


@dataclass
class Job:
    """A job after the hook, and what was said."""

    values: dict[str, str]
    """The options, or the fields of job_desc."""
    env: dict[str, str]
    """The environment; of job_submit the job's."""
    said: str
    """Standard error; of job_submit what Slurm's log and the user got."""
    requests: list[dict[str, Any]]
    log: list[str]
    """Lines in the system's log."""
    results: list[str]


STRICT = """\
setmetatable(_G, { __newindex = function(_, name, value)
  assert(name:find("^slurm_"), name .. " would be a site's own script's, too")
  rawset(_G, name, value)
end })
assert(dofile(STUB) == slurm.SUCCESS)
"""
"""Loads a stub, and lets nothing but Slurm's functions be global."""
FILTER = (
    """\
slurm = { SUCCESS = 0, ERROR = -1, json_cli_options = function() return EXPLICIT end }
"""
    + STRICT
    + """\
local options = setmetatable({}, { __index = OPTIONS, __newindex = function(_, name, value)
  if name == FAILS then FAILS = nil error("Slurm does not take it", 0) end
  OPTIONS[name] = value
end })
local results = {}
local function call(hook, ...)
  local ok, result = pcall(hook, ...)
  results[#results + 1] = (ok and "" or "error: ") .. tostring(result)
end
assert(slurm_cli_setup_defaults(options, true) == slurm.SUCCESS)
for _, offset in ipairs(OFFSETS) do call(slurm_cli_pre_submit, options, offset) end
for _, offset in ipairs(POSTS) do call(slurm_cli_post_submit, offset, 4294967200, 7) end
for name, value in pairs(OPTIONS) do
  if type(value) == "string" then io.write("o", name, "=", value, "\\0") end
end
for _, result in ipairs(results) do io.write("r", result, "\\0") end
io.flush()
os.execute("env -0")
"""
)
SUBMIT = (
    """\
local function note(kind) return function(...)
  io.stderr:write(kind, " ", string.format(...), "\\n")
end end
slurm = {
  SUCCESS = 0, ERROR = -1, log_info = note("info"), log_error = note("error"),
  user_msg = function(text) io.stderr:write("user ", text, "\\n") end,
}
"""
    + STRICT
    + """\
for number, job in ipairs(JOBS) do
  local ok, result = pcall(_G[FUNCTION], job, (unpack or table.unpack)(MORE))
  io.write("r", ok and "" or "error: ", tostring(result), "\\0")
  if number == #JOBS then
    for name, value in pairs(job) do
      if type(value) == "string" then io.write("o", name, "=", value, "\\0") end
    end
    for name, value in pairs(job.environment or {}) do io.write(name, "=", value, "\\0") end
  end
end
"""
)


class Installed:
    """The hooks in a folder of their own, as `advisor hook install` leaves them, by one Lua."""

    def __init__(
        self,
        home: Path,
        folder: Path,
        *,
        deadline_s: float = LATE_S,
        retry_s: int = 30,
        steps: Mapping[str, Sequence[int]] = STEPS,
        understood: Mapping[str, Sequence[str]] | None = None,
        axes: Mapping[str, AxisWriting] | None = None,
        axis_steps: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
        precompiled: bool = False,
    ) -> None:
        self.lua, self.folder, self.socket = LUA_OF[home], folder, folder / "s"
        self.reply: Reply = lambda _: answer()
        self.runtime = folder / "runtime"
        self.runtime.mkdir()
        modules = folder / "advisor" / "id"
        modules.mkdir(parents=True)
        settings = SlurmHookSettings(
            self.socket,
            deadline_s,
            retry_s,
            folder / "log",
            understood or {},
            frequency_steps=steps,
            axes=axes or {},
            axis_steps=axis_steps or {},
        )
        files = source_files(settings, CLUSTER, {})
        if precompiled:  # of the sources only what no bundle has
            sources = {n: data for n, data in files.items() if n == "log.lua" or n[-4:] != ".lua"}
            files = {**sources, **compiled_files(files)}
        for name, data in files.items():
            (modules / name).write_bytes(data)
        for hook in ("cli_filter.lua", "job_submit.lua"):
            (folder / hook).write_bytes(stub(hook, folder, "id", ""))
        self._log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._log.bind(str(folder / "log"))
        self._log.setblocking(False)

    def site(self, hook: str, text: str, copy: str = "") -> None:
        """Put a site's own script beside a hook, and its copy of the last install."""
        name = hook.replace(".lua", ".site.lua")
        (self.folder / name).write_text(text)
        (self.folder / "advisor" / "id" / name).write_text(copy or text)
        (self.folder / hook).write_bytes(stub(hook, self.folder, "id", name))

    def filter(
        self,
        options: Mapping[str, str] | None = None,
        *,
        kind: str = "sbatch",
        argv: Sequence[str] = ("job.sh",),
        explicit: str | None = None,
        more: Mapping[str, str] | None = None,
        words: Sequence[str] = (),
        fails: str = "",
        offsets: Sequence[int] = (0,),
        posts: Sequence[int] = (),
        **env: str,
    ) -> Job:
        """Let the filter see a submission; ``more`` options are set, but not by the user."""
        given = dict(options or {})
        explicit = options_json(given, argv) if explicit is None else explicit
        all_options = {"type": kind, "argv": list(argv), **given, **(more or {})}
        names = {
            "EXPLICIT": explicit,
            "FAILS": fails or None,
            "OFFSETS": list(offsets),
            "POSTS": list(posts),
            "OPTIONS": all_options,
        }
        return self._run("cli_filter.lua", FILTER, names, words, env)

    def submit(self, *jobs: Mapping[str, object]) -> Job:
        """Let slurmctld's plugin see jobs one after the other; return the last."""
        return self._job_submit("slurm_job_submit", jobs, {}, 1000)

    def modify(self, *jobs: Mapping[str, object]) -> Job:
        """Let slurmctld's plugin see changes of jobs (`scontrol update`); return the last."""
        return self._job_submit("slurm_job_modify", jobs, {}, {}, 1000)

    def _job_submit(
        self, function: str, jobs: Sequence[Mapping[str, object]], *more: object
    ) -> Job:
        names = {"FUNCTION": function, "JOBS": jobs, "MORE": more}
        return self._run("job_submit.lua", SUBMIT, names, (), {})

    def _run(
        self,
        hook: str,
        code: str,
        names: Mapping[str, object],
        words: Sequence[str],
        env: Mapping[str, str],
    ) -> Job:
        script = self.folder / "main.lua"
        lines = [f"{name} = {lua(value)}" for name, value in names.items()]
        script.write_text("\n".join([f"STUB = {lua(self.folder / hook)}", *lines, code]))
        with daemon(self.socket, lambda c, line: c.sendall(self.reply(read(line)))) as asked:
            done = subprocess.run(
                [self.lua, script, *words],
                cwd=self.folder,
                capture_output=True,
                check=False,
                timeout=60,
                env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.runtime), **env},
            )
            with socket.socket(socket.AF_UNIX) as last:  # after it nothing waits to be read
                last.connect(str(self.socket))
                last.shutdown(socket.SHUT_WR)
                last.recv(1)
        self.socket.unlink()
        assert done.returncode == 0, done.stderr
        log = []
        while True:
            try:
                log.append(self._log.recv(1000).decode())
            except BlockingIOError:
                break
        parts = done.stdout.decode().split("\0")[:-1]
        results = [part[1:] for part in parts if part.startswith("r") and "=" not in part]
        values = dict(part[1:].split("=", 1) for part in parts if part.startswith("o"))
        variables = dict(p.split("=", 1) for p in parts if "=" in p and p[0] not in "or")
        requests = [read(line) for line in asked]
        return Job(values, variables, done.stderr.decode(), requests, log, results)
