"""The hooks' Lua by itself: JSON, answers, limits, and the system calls by either library."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.protocol import answer_line
from advisor.schedulers.cluster import Cluster, Node, Partition
from advisor.schedulers.slurm import table as slurm_table
from advisor.schedulers.slurm.hook_files import SlurmHookSettings, module_files, stub

LUAS = [lua for v in ("5.1", "5.3", "5.4") if (lua := shutil.which(f"lua{v}"))]
LUA_OF: dict[Path, str] = {}
"""The Lua a modules' folder is tried with; the first one where nothing is noted."""
pytestmark = pytest.mark.skipif(not LUAS, reason="lua5.1 is not installed")
CLUSTER = Cluster(
    "22.05.8",
    (
        *(Node(f"a{i}", ("old", "big"), 2, 28, 1, 4000, 1, ("batch", "debug")) for i in range(4)),
        *(Node(f"b{i}", ("new",), 2, 40, 2, 8000, 1, ("batch",)) for i in range(2)),
    ),
    (Partition("batch", default=True), Partition("debug", max_nodes=2)),
)
BEFORE = Path(__file__).resolve().parents[1] / "golden" / "hooks_0_2_0"
BROADWELL = Cluster(
    "22.05.8",
    (Node("bdw1", ("broadwell",), 2, 28, 1, 8000, 1, ("batch",)),),
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


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return module_files(SlurmHookSettings(Path("/nowhere")), CLUSTER, {})


@pytest.fixture(scope="module", params=LUAS, ids=lambda path: Path(path).name)
def home(
    request: pytest.FixtureRequest,
    files: dict[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The installed modules, tried with every Lua that Slurm may be built with."""
    folder = tmp_path_factory.mktemp("modules")
    LUA_OF[folder] = request.param
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def run(home: Path, code: str, stdin: bytes = b"", *arguments: object) -> bytes:
    """Run Lua code from a file: its standard input stays its own."""
    script = home / "main.lua"
    script.write_text(f"{PRELUDE}\n{code}")
    done = subprocess.run(
        [LUA_OF.get(home, LUAS[0]), script, str(home), *map(str, arguments)],
        input=stdin, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- JSON ----------------------------------------------------------------------------------------

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


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUES, min_size=1, max_size=40), st.booleans())
def test_json_comes_back_as_it_went(home: Path, values: list[Any], ascii_only: bool) -> None:
    lines = [json.dumps(v, ensure_ascii=ascii_only) for v in values]
    out = run(home, ECHO, "\n".join(lines).encode() + b"\n")
    assert [json.loads(line) for line in out.decode().split("\n")[:-1]] == values


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", '{"a" 1}', '{"a":1,}', "{a:1}", "01x", "-", "nul", "tru", "[1 2]", '"a',
     '"\\x"', '"\\u12"', "1 2", '{"a":1}}', "[" * 99 + "]" * 99, '"\x01"'],
)  # fmt: skip
def test_json_that_is_none_is_said_to_be_none(home: Path, text: str) -> None:
    assert run(home, ECHO, text.encode() + b"\n").startswith(b"!")


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_can_be_quoted(home: Path, data: bytes) -> None:
    out = run(home, 'io.write(use("json").quote(io.read("*a")))', data)
    assert json.loads(out.decode("utf-8", "replace")) == data.decode("utf-8", "replace")


# -- answers and limits --------------------------------------------------------------------------

LIMITS = """\
local json = use("json")
local plan = json.decode(io.read("*a"))
print(use("limits").refused({ options = plan[1] }, plan[2], use("inventory")))
"""


def refused(home: Path, plan: dict[str, str], **wanted: str) -> str:
    given_ = {k.replace("_", "-"): v for k, v in wanted.items()}
    return run(home, LIMITS, json.dumps([plan or {"": ""}, given_]).encode()).decode().strip()


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        ({}, {"nodes": "6"}),
        ({"constraint": "new", "cpus-per-task": "80"}, {"nodes": "2-4"}),
        ({"cpus-per-task": "14"}, {"partition": "debug", "ntasks_per_node": "2"}),
        ({"cpus-per-task": "28"}, {"mem_per_cpu": "100"}),
        ({"constraint": "big"}, {"mem": "3.5G", "partition": "batch,debug"}),
        ({"cpu-freq": "1-2"}, {"constraint": "old&big|(new)"}),
        ({"constraint": "old"}, {"ntasks": "56", "nodes": "2"}),
        ({"constraint": "old"}, {"ntasks": "2", "cpus_per_task": "28"}),  # on two nodes
        ({"constraint": "old"}, {"ntasks": "4", "cpus_per_task": "14"}),
        ({"constraint": "old"}, {"ntasks": "4", "cpus_per_task": "14", "ntasks_per_node": "2"}),
        # where they fit does not change: Slurm's to judge
        ({"cpu-freq": "1-2"}, {"nodes": "7"}),
        ({"cpu-freq": "1-2"}, {"partition": "batch,debug", "constraint": "new"}),
    ],
)
def test_what_the_cluster_has(home: Path, plan: dict[str, str], wanted: dict[str, str]) -> None:
    assert refused(home, plan, **wanted) == ""


@pytest.mark.parametrize(
    ("plan", "wanted", "why"),
    [
        ({"nodes": "7"}, {}, "partition batch has no 7 nodes with 1 cores, 0 MB"),
        ({"constraint": "none"}, {}, "and feature none"),
        ({"constraint": "new"}, {"partition": "debug"}, "partition debug has no 1 nodes"),
        ({"constraint": "new"}, {"partition": "batch,debug"}, "partition debug has no"),
        ({"nodes": "3"}, {"partition": "debug"}, "partition debug has no 3 nodes"),
        ({"constraint": "old"}, {"partition": "gone"}, "partition gone is not in the inventory"),
        ({"cpus-per-task": "81"}, {}, "81 cores"),
        ({"cpus-per-task": "29"}, {"constraint": "old"}, "29 cores"),
        ({"cpus-per-task": "20"}, {"ntasks_per_node": "5"}, "100 cores"),
        ({"constraint": "old"}, {"ntasks": "57", "nodes": "2"}, "29 cores"),
        ({"constraint": "old"}, {"ntasks": "200"}, "no 200 places with 1 cores"),
        ({"constraint": "old"}, {"ntasks": "9", "cpus_per_task": "28"}, "no 9 places with 28"),
        ({"cpus-per-task": "28"}, {"mem_per_cpu": "1G"}, "28672 MB"),
        ({"constraint": "old"}, {"mem": "5000"}, "5000 MB and feature old"),
    ],
)
def test_what_the_cluster_does_not_have(
    home: Path, plan: dict[str, str], wanted: dict[str, str], why: str
) -> None:
    assert why in refused(home, plan, **wanted)


def test_nothing_is_known_of_the_cluster(home: Path, tmp_path: Path) -> None:
    for name, data in module_files(SlurmHookSettings(Path("/nowhere")), None, {}).items():
        (tmp_path / name).write_bytes(data)
    assert "there is no inventory" in refused(tmp_path, {"constraint": "old"})


UNDERSTOOD = """\
local json = use("json")
for line in io.lines() do
  local case = json.decode(line)
  local plan = { options = case.plan, env = case.env }
  print(use("understood").refused(plan, case.options, case.variables, case.program))
end
"""
VALUES_SET = [
    "1", "", "0", "no", "yes", "unset", "ALL", "ALL,OMP_NUM_THREADS=4", "map_cpu:1,2", "cores",
    "quiet,mask_cpu:0x1", "block:cyclic", "plane=4", "1200000-1900000", "1-2:Performance", "high",
    "1-4", "2-2", "1,3,5", "1-9:2", "4-", "2k",
]  # fmt: skip
CHANGED = {"constraint": "node_type", "cpu-freq": "frequency", "cpus-per-task": "cores"}
PLANS: list[tuple[dict[str, str], dict[str, str]]] = [({name: "1"}, {}) for name in CHANGED] + [
    ({}, {"OMP_NUM_THREADS": "4"})
]


def assert_judged_alike(home: Path, cases: list[dict[str, Any]]) -> None:
    """Judge each case for plans of one axis each: in Lua and in Python."""
    lines = [json.dumps({**c, "plan": plan, "env": env}) for c in cases for plan, env in PLANS]
    said = run(home, UNDERSTOOD, "\n".join(lines).encode() + b"\n").decode().splitlines()
    assert len(said) == len(lines)
    for case in cases:
        judged = slurm_table.judge(case["options"], case["variables"], case["program"])
        for plan, _ in PLANS:
            axis = CHANGED[next(iter(plan))] if plan else "threads"
            bound = axis in judged.binds or "all" in judged.binds or judged.not_understood
            assert (said.pop(0) != "nil") == bool(bound), (case, axis)


@pytest.mark.parametrize("program", ["sbatch", "srun", "salloc"])
def test_the_hooks_judge_everything_as_the_daemon_does(home: Path, program: str) -> None:
    options = [*slurm_table.OPTIONS, "no-such", "spank:x", "cpu_freq"]
    more = "SLURM_NEW SBATCH_NEW SRUN_NEW SLURM_JOB_ID OMP_PLACES SLURM_ SLURM ADVISOR"
    variables = [*slurm_table.VARIABLES, *more.split(), "SLURM_NTASKS_HET_GROUP_0"]
    cases = [
        {"program": program, "options": {o: value}, "variables": {}}
        for o in options for value in VALUES_SET
    ] + [
        {"program": program, "options": {}, "variables": {v: value}}
        for v in variables for value in VALUES_SET
    ] + [
        {"program": program, "options": {option: "1"}, "variables": {v: "2"}}
        for v in variables for option in [slurm_table.SETS.get(v, "mem")]
    ]  # fmt: skip
    assert_judged_alike(home, cases)


def test_the_hooks_know_what_the_site_says_of_its_own_options(home: Path, tmp_path: Path) -> None:
    site = {
        "project-code": (),
        "SLURM-SITE": ("threads",),
        "power-mode": ("frequency", "node_type"),
    }
    settings_ = SlurmHookSettings(Path("/nowhere"), understood=site)
    for name, data in module_files(settings_, None, {}).items():
        (tmp_path / name).write_bytes(data)
    for options, variables, bound in [
        ({"project_code": "1"}, {}, set()),
        ({"spank:x:project-code": "1"}, {}, set()),
        ({"spank:power_mode": "1"}, {}, {"node_type", "frequency"}),
        ({}, {"SLURM_SITE": "1"}, {"threads"}),
        ({"other": "1"}, {}, {"node_type", "frequency", "cores", "threads"}),
    ]:
        case = {"program": "sbatch", "options": options, "variables": variables}
        lines = [json.dumps({**case, "plan": plan, "env": env}) for plan, env in PLANS]
        said = run(tmp_path, UNDERSTOOD, "\n".join(lines).encode() + b"\n").decode().splitlines()
        axes = [CHANGED[next(iter(plan))] if plan else "threads" for plan, _ in PLANS]
        assert {a for a, text in zip(axes, said, strict=True) if text != "nil"} == bound


FLAT = """\
local json = use("json")
for line in io.lines() do
  local found, words = json.flat(line), {}
  for name, value in pairs(found or {}) do
    words[#words + 1] = json.quote(name) .. ':"' .. value .. '"'
  end
  print(found and "{" .. table.concat(words, ",") .. "}" or "null")
end
"""


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.dictionaries(
            st.text("ab-_:,. {}[]", min_size=1, max_size=6),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.none(),
            max_size=4,
        ),
        min_size=1, max_size=30,
    ),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_flat_object_is_taken_apart(
    home: Path, objects: list[dict[str, str | None]], spaces: bool, argv: bool
) -> None:
    last = {"argv": ["a]}", '","x":"y', "b"]} if argv else {}
    separators = (", ", ": ") if spaces else (",", ":")
    lines = [json.dumps({**o, **last}, separators=separators) for o in objects]
    said = run(home, FLAT, "\n".join(lines).encode() + b"\n").decode().split("\n")[:-1]
    assert [json.loads(line) for line in said] == [
        {name: value or "" for name, value in o.items()} for o in objects
    ]


@pytest.mark.parametrize(
    "text",
    ["", "x", "{", '{"a"', '{"a":', '{"a":"', '{"a":"b', '{"a":"b"', '{"a":"b",}', '{"a":"b"}}',
     '{"a":{}}', '{"x":["a"]}', '{"argv":["a"],"x":"b"}', '{"a":"\\"}', '{"a\\n":"b"}', '{,}'],
)  # fmt: skip
def test_what_is_no_flat_object_is_not_taken_apart(home: Path, text: str) -> None:
    assert run(home, FLAT, text.encode() + b"\n") == b"null\n"


READ = """\
local json = use("json")
local function show(plan, problem, word)
  if not plan then return tostring(problem) .. " " .. tostring(word) end
  local words = {}
  for _, key in ipairs({ "decision", "stamp", "message" }) do
    words[#words + 1] = json.quote(key) .. ":" .. json.quote(plan[key] or "")
  end
  words[#words + 1] = '"always":' .. tostring(plan.always)
  for _, key in ipairs({ "options", "env" }) do
    local inner = {}
    for name, value in pairs(plan[key]) do
      inner[#inner + 1] = json.quote(name) .. ":" .. json.quote(value)
    end
    table.sort(inner)
    words[#words + 1] = json.quote(key) .. ":{" .. table.concat(inner, ",") .. "}"
  end
  return "{" .. table.concat(words, ",") .. "}"
end
local decoded = 0
local decode = json.decode
json.decode = function(...) decoded = decoded + 1 return decode(...) end
print(show(use("answer").read(io.read("*a"))))
print(decoded)
"""
ANSWERS = st.fixed_dictionaries(
    {
        "decision": st.text("0123456789abcdef", min_size=15, max_size=17),
        "rewrite": st.dictionaries(
            st.sampled_from(["cpus-per-task", "cpu-freq", "constraint", "nodes", "uid"]),
            st.sampled_from(["1", "12", "0", "1-2", "milan", 'a"b', "", "{}", "\\"]),
            max_size=3,
        ),
        "env": st.dictionaries(
            st.sampled_from(["OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMAXPROCS", "PATH"]),
            st.sampled_from(["1", "x"]),
            max_size=1,
        ),
        "message": st.text(st.sampled_from('ab"\\{},:é\\n'), max_size=12),
        "to": st.sampled_from(["tty", "always", "nobody"]),
        "stamp": st.text(st.sampled_from('ab"\\{},:é\\n'), max_size=12).map(
            lambda t: f"advisor:{{{t}}}"
        ),
    }
)


def read_answer(home: Path, line: bytes) -> tuple[str, int]:
    """Return the plan as JSON text (or what is wrong), and how often JSON was read."""
    plan, decoded = run(home, READ, line).decode().rstrip("\n").rsplit("\n", 1)
    return plan, int(decoded)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANSWERS)
def test_the_usual_line_reads_as_json_would(home: Path, answer: dict[str, Any]) -> None:
    line = answer_line(answer)[:-1]
    spaced = json.dumps({"v": 1, **answer}).encode()  # is read as JSON
    plan, as_json = read_answer(home, line)[0], read_answer(home, spaced)
    assert as_json[1] == 1
    if len(answer["rewrite"]) > 1 and plan.endswith("garbage"):
        assert as_json[0].endswith("garbage")  # later Luas look at options in any order
    else:
        assert plan == as_json[0]


def test_the_daemons_own_answer_is_the_usual_line(home: Path, tmp_path: Path) -> None:
    from advisor.service.handlers import Handlers
    from advisor.service.peer import Peer
    from advisor.service.snapshot import StoreSource

    request = {"v": 1, "op": "decide", "scheduler": "slurm", "hook": "cli_filter",
               "options": {}, "argv": ["x"], "script": "#!/bin/sh\nsrun ./app\n"}  # fmt: skip
    answer = Handlers(StoreSource(tmp_path / "none.db")).answer(
        json.dumps(request).encode(), Peer(1, os.getuid(), 0)
    )
    plan, decoded = read_answer(home, answer[:-1])
    assert decoded == 0
    assert json.loads(plan)["stamp"] == json.loads(answer)["stamp"]


MESSAGE = 'local p = use("answer").read(io.read("*a")) io.write(p and p.message or "")'


def message(home: Path, text: str | bytes) -> str:
    """Return what the user would read of a message."""
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    answer = b'{"v":1,"decision":"0123456789abcdef","rewrite":{},"message":' + data + b"}"
    return run(home, MESSAGE, answer).decode()


@pytest.mark.parametrize(
    "text", ["advisor: 20 % less", "\u221220 % \u2013 \u201egut\u201c, K\u00f6ln \u4eac", "a" * 500]
)
def test_messages_people_can_read_are_let_through(home: Path, text: str) -> None:
    assert message(home, text) == text


def test_what_steers_a_terminal_is_taken_out_of_messages(home: Path) -> None:
    assert message(home, "a\u009b2J") == "a?2J"
    assert message(home, "a\u202eb\u200bc\u2028d\ufeff") == "a?b?c?d?"
    assert message(home, b'"a\xc2\x9bb\x9b\xe2A\xff"') == "a?b??A?"
    assert message(home, "two\nlines") == ""
    assert message(home, "\U0001f331 grows") == "? grows"
    assert message(home, b'"\\ud83d half"') == "? half"
    assert message(home, "\x1b[2J") == ""


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_no_message_can_steer_a_terminal(home: Path, text: str) -> None:
    shown = message(home, json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)


# -- system calls --------------------------------------------------------------------------------


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


class Peer:
    """The other end of a socket: sends pieces with a pause, or hangs up."""

    def __init__(self, path: Path, *pieces: bytes, pause_s: float = 0.0, read: bool = True) -> None:
        self.got = b""
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
            try:
                for piece in self._pieces:
                    connection.sendall(piece)
                    time.sleep(self._pause_s)
            except OSError:
                pass


@pytest.fixture
def path() -> Iterator[Path]:
    """A path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="lua-") as name:
        yield Path(name) / "s"


SOON_S, LATE_S = 0.3, 30.0
"""A deadline that is meant to pass, and one that a busy machine keeps as well."""


def exchange(
    home: Path, system: str, path: Path, line: str = '"hello\\n"', more: str = "",
    within_s: float = LATE_S,
) -> str:  # fmt: skip
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
        "v": 1, "decision": "0123456789abcdef", "rewrite": {"cpu-freq": "1200000-1900000"},
        "env": {"OMP_NUM_THREADS": "4"}, "message": "", "stamp": "advisor:{}", "to": "tty",
    }  # fmt: skip
    peer = Peer(path, json.dumps(answer).encode() + b"\n")
    (tmp_path / "filter.lua").write_text(FILTER)
    done = subprocess.run(
        [lua, tmp_path / "filter.lua", installed],
        env={"PATH": os.environ["PATH"], **({} if precompiled else {"ADVISOR_DEBUG": "1"})},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "1200000-1900000\n4 0123456789abcdef\n"
    request = json.loads(peer.got)
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
        [LUA_OF[home], tmp_path / "filter.lua", installed], env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
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
        [LUA_OF.get(home, LUAS[0]), script, home, *arguments], cwd=folder, env=environment,
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip


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
        "A": 'x"\n', "B_C": "y", "SECRET": "z", "LONG": "7" * 4097, "OMP_PLACES": "\t" * 300,
        "FOO_NUM_THREADS": "3", "SLURM_JWT": "key", "SLURM_JWT_": "", "SLURM_SACK_KEY": "key",
        "OMP": "no", "NUM_THREADS": "no",
    }  # fmt: skip
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


def test_a_message_to_the_log_waits_for_nobody(home: Path, system: str, path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(path))
    code = f'{system} for i = 1, 20 do sys.datagram(select(2, ...), "line " .. i) end'
    run(home, code.replace("20", "1"), b"", path)
    assert listener.recv(100) == b"line 1"
    run(home, code, b"", path)  # nobody reads: the queue is full after some
    run(home, code.replace("20", "1"), b"", path.parent / "none")
