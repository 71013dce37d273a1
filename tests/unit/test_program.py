"""Which program a model was measured with: where a script's file is, and what its build is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from advisor.core import program
from advisor.core.script import main_command
from advisor.schedulers.slurm.hook_files import SlurmHookSettings, module_files

LUA, CC = shutil.which("lua5.1"), shutil.which("cc")
needs_lua = pytest.mark.skipif(LUA is None, reason="lua5.1 is not installed")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("srun ./bin/app -n 3", "./bin/app"),
        ("srun /opt/app", "/opt/app"),
        ("srun app", "app"),
        ("srun ~/app", "~/app"),
        ("srun $HOME/app", "~/app"),
        ("srun ${SLURM_SUBMIT_DIR}/app", "./app"),
        ("D=/opt/x\nsrun $D/app", "/opt/x/app"),
        ("cd $SLURM_SUBMIT_DIR\nsrun ./app", "./app"),
        ('cd "$SLURM_SUBMIT_DIR" && srun ./app', "./app"),
        # where the script leaves it open
        ("cd run\nsrun ./app", ""),
        ("cd run; srun /opt/app", "/opt/app"),
        ("cd run\nsrun app", "app"),
        ("module load x\nsrun app", ""),
        ("module load x\nsrun /opt/app", "/opt/app"),
        ("source env.sh\nsrun app", ""),
        (". env.sh\nsrun app", ""),
        ("export PATH=/opt:$PATH\nsrun app", ""),
        ("srun $SOMEWHERE/app", ""),
        ("srun /opt/a*p", ""),
        ("srun singularity exec image.sif /opt/app", ""),
        ("echo nothing", ""),
    ],
)
def test_where_a_script_s_program_is(script: str, expected: str) -> None:
    assert program.where(main_command(script), script) == expected


def test_in_another_folder_only_what_is_not_relative_is_found() -> None:
    for script, expected in (("srun ./app", ""), ("srun app", "app"), ("srun /a/app", "/a/app")):
        assert program.where(main_command(script), script, moved=True) == expected


def facts(path: str, build: str, size: int = 9, mtime: int = 5) -> dict[str, object]:
    return {"path": path, "size": size, "mtime": mtime, "build": build}


A, B, C = "aa" * 20, "bb" * 20, "adler:01234567:9"


def test_the_same_build_is_the_same_program_wherever_it_is() -> None:
    known = [facts("/x/app", A), facts("/y/app", C)]
    assert program.compare(known, facts("/z/app", A)) == "same"
    assert program.compare(known, facts("/x/app", C)) == "same"
    assert program.compare(known, facts("/x/app", B)) == "rebuilt"
    assert program.compare(known, facts("/z/app", B)) == "other"
    assert program.compare([], facts("/z/app", B)) == "unknown"
    assert program.compare(known, {}) == "unknown"


def test_what_is_expected_is_the_file_as_it_was_seen_last() -> None:
    known = [facts("/x/app", A, 1, 2), facts("/y/app", B, 3, 4)]
    assert program.expected(known, "/x/app") == {
        "path": "/x/app",
        "size": "1",
        "mtime": "2",
        "build": f"{A} {B}",
    }
    assert program.expected(known, "./app", "/x") == program.expected(known, "/x/app")
    assert program.expected(known, "../y/app", "/x")["size"] == "3"
    assert program.expected(known, "app")["size"] == program.expected(known, "~/app")["size"] == "3"
    # of a file never seen, nothing but its build tells
    assert program.expected(known, "/z/app")["size"] == "0"
    assert program.expected(known, "./app") == {
        "path": "./app",
        "size": "0",
        "mtime": "0",
        "build": f"{A} {B}",
    }
    assert program.expected(known, "") == program.expected([], "/x/app") == {}


def test_each_build_is_kept_once_and_as_it_was_seen_last() -> None:
    found = program.joined([facts("/x", A, 1), None, "x", facts("/x", B), facts("/y", A, 2)])
    assert found == [facts("/x", B), facts("/y", A, 2)]
    assert len(program.joined(facts("/x", f"{n:040x}") for n in range(100))) == 20


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        {},
        facts("/x", "no build"),
        facts("x", A),
        facts("/x", A, -1),
        {**facts("/x", A), "size": "many"},
        {**facts("/x", A), "mtime": float("inf")},
        facts("/x\n", A),
        facts("/" + "x" * 2000, A),
        {**facts("/x", A), "path": 3},
        {**facts("/x", A), "size": 10**20},
    ],
)
def test_facts_that_make_no_sense_are_none(data: object) -> None:
    assert program.checked(data) == {}


def test_facts_from_a_hook_are_texts_and_may_be_relative() -> None:
    sent = {"path": "./bin/../app", "size": "9", "mtime": "5", "build": A}
    assert program.checked(sent, "/home/ann") == facts("/home/ann/app", A)


# -- what a build is, in Python and in Lua --------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    for name, data in module_files(SlurmHookSettings(Path("/nowhere")), None, {}).items():
        (folder / name).write_bytes(data)
    return folder


LUA_MAIN = """\
local home, system = ...
local loaded = { home = home }
local function use(name)
  if loaded[name] == nil then
    loaded[name] = assert(loadfile(home .. "/" .. name .. ".lua"))(use)
  end
  return loaded[name]
end
if system == "portable" then loaded.system = use("portable") end
local json = use("json")
for line in io.lines() do
  local found = use("program").differs(json.decode(line))
  local words = {}
  for name, value in pairs(found or {}) do
    words[#words + 1] = json.quote(name) .. ":" .. json.quote(value)
  end
  print(found and "{" .. table.concat(words, ",") .. "}" or "null")
end
"""


def differs(
    home: Path,
    *wanted: dict[str, str],
    system: str = "",
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> list[Any]:
    """What the filter's Lua finds of each file that is not as it is wanted."""
    assert LUA is not None
    (home / "identity.lua").write_text(LUA_MAIN)
    done = subprocess.run(
        [LUA, home / "identity.lua", str(home), system],
        input="".join(json.dumps(w) + "\n" for w in wanted),
        env={**os.environ, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def wanted(path: Path | str, build: str = A, size: int = 0, mtime: int = 0) -> dict[str, str]:
    return {"path": str(path), "build": build, "size": str(size), "mtime": str(mtime)}


def compiled(folder: Path, name: str, *flags: str, code: str = "int main(void){return 0;}") -> Path:
    assert CC is not None
    (folder / "code.c").write_text(code)
    subprocess.run([CC, "-o", folder / name, folder / "code.c", *flags], check=True)
    return folder / name


def read_id(path: Path) -> str:
    """The build id as binutils reads it."""
    done = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if "Build ID" in line]
    return lines[0].split()[-1] if lines else ""


@needs_lua
@needs_cc
@pytest.mark.parametrize("system", ["native", "portable"])
def test_both_languages_read_the_same_build(home: Path, tmp_path: Path, system: str) -> None:
    with_id = compiled(tmp_path, "with", "-Wl,--build-id")
    short = compiled(tmp_path, "short", "-Wl,--build-id=0x0123456789abcdef")
    without = compiled(tmp_path, "without", "-Wl,--build-id=none")
    script = tmp_path / "script.py"
    script.write_text("print('x')\n" * 20_000)  # longer than what is summed
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    torn = tmp_path / "torn"
    torn.write_bytes(with_id.read_bytes()[:70])
    files = [with_id, short, without, script, empty, torn]
    found = differs(home, *map(wanted, files), system=system)
    for path, seen in zip(files, found, strict=True):
        assert program.checked(seen) == program.find(str(path), Path("/"))
    assert found[0]["build"] == read_id(with_id)
    assert found[1]["build"] == "0123456789abcdef"
    assert [f["build"].partition(":")[0] for f in found[2:]] == ["adler"] * 4
    assert read_id(without) == ""


@needs_lua
@needs_cc
def test_a_rebuilt_program_differs_and_a_touched_one_does_not(home: Path, tmp_path: Path) -> None:
    path = compiled(tmp_path, "app", "-Wl,--build-id")
    os.utime(path, (1, 1))
    before = program.find(str(path), Path("/"))
    known = program.expected([before], str(path))
    os.utime(path, (2, 2))
    assert differs(home, known) == [None]
    compiled(tmp_path, "app", "-Wl,--build-id", code="int main(void){return 1;}")
    after = differs(home, known)[0]
    assert after["build"] != before["build"]
    both = program.expected([before, program.checked(after)], str(path))
    assert differs(home, both) == [None]
    # of the very size and time it had, nobody opens it: what is there does not even parse
    path.write_bytes(b"x" * int(str(before["size"])))
    os.utime(path, (1, 1))
    assert differs(home, known) == [None]


@needs_lua
@pytest.mark.parametrize("system", ["native", "portable"])
def test_where_lua_looks_for_a_program(home: Path, tmp_path: Path, system: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, text in ((first, "1"), (second, "2")):
        folder.mkdir()
        (folder / "app").write_text(text)
    (second / "app").chmod(0o755)  # what may not be run is passed over
    path = {"PATH": f"{first}:{second}", "HOME": str(first)}
    found = differs(home, wanted("app"), wanted("~/app"), system=system, env=path)
    assert [f["path"] for f in found] == [f"{second}/app", f"{first}/app"]
    relative = differs(home, wanted("./second/app"), system=system, cwd=tmp_path)[0]
    assert program.checked(relative, str(tmp_path)) == program.find("second/app", tmp_path)


@needs_lua
def test_of_what_cannot_be_read_nothing_is_known(home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    places: list[Path | str] = [
        tmp_path / "absent",
        tmp_path,
        tmp_path / "fifo",
        "nosuchprogram",
        "/dev/zero",
    ]
    assert differs(home, *(wanted(p) for p in places)) == [None] * len(places)
    for place in places:
        assert program.find(str(place), tmp_path) == {}
