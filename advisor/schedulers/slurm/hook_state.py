"""Look at installed Slurm hooks: do their modules load, is what they know still so."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor import __version__
from advisor.errors import SchedulerError
from advisor.paths import share
from advisor.schedulers.cluster import Cluster
from advisor.schedulers.slurm.conf import read_conf
from advisor.schedulers.slurm.hook_files import inventory_text, lua_programs, steps_text
from advisor.schedulers.slurm.hooks import HookFile
from advisor.schedulers.slurm.inventory import read_cluster

_TRY = """\
local home = ...
slurm = {}
local function use(name) return assert(loadfile(home .. "/start.lua"))(home, name) end
local names = "filter submit limits log inventory rewrite steps understood"
for name in names:gmatch("%S+") do use(name) end
local native = package.loadlib(home .. "/native.so", "luaopen_advisor")
local ok, problem = pcall(function() return use("portable").hung(1) end)
if not ok and not native then error(problem, 0) end
print(_VERSION:sub(5) .. ": " .. (native and "native" or "lua-posix"))
"""


def modules_folder(folder: Path, hooks: Sequence[HookFile]) -> Path | None:
    """Return the modules' folder that the installed stubs use, None without any."""
    folder_id = next((h.folder_id for h in hooks if h.folder_id), "")
    return folder / "advisor" / folder_id if folder_id else None


def read_settings(modules: Path | None) -> dict[str, object]:
    """Return what was written into the installed modules: socket, deadline (s), retry (s)."""
    try:
        text = (modules / "config.lua").read_text() if modules else ""
    except OSError:
        return {}
    settings: dict[str, object] = {
        key: value.replace('\\"', '"').replace("\\\\", "\\")
        for key, value in re.findall(r'(\w+) = "((?:[^"\\]|\\.)*)"', text)
    }
    for key, number in re.findall(r"(deadline|retry) = ([\d.]+)", text):
        settings[key] = float(number) if key == "deadline" else int(number)
    return settings


def check_modules(modules: Path | None) -> str:
    """Load the installed modules in every Lua here: "load" and by what, or what is wrong.

    Which Lua Slurm was built with is not known, so that one of them loads the modules is enough.
    """
    if modules is None:
        return "none installed"
    loaded: dict[str, list[str]] = {}
    problem = ""
    for lua in lua_programs("lua"):
        load_test = subprocess.run(
            [lua, "-", str(modules)],
            input=_TRY,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        version, _, way = load_test.stdout.strip().partition(": ")
        if load_test.returncode == 0:
            loaded.setdefault(way, []).append(version)
        else:
            first = (load_test.stderr.strip() or "no word why").partition("\n")[0]
            problem = problem or first.removeprefix(f"{Path(lua).name}: ")
    if len(loaded) == 1:
        return f"load ({next(iter(loaded))})"
    if loaded:
        ways = (f"{way} for Lua {', '.join(versions)}" for way, versions in loaded.items())
        return f"load ({'; '.join(ways)})"
    return f"do not load: {problem}" if problem else "not tried: Lua is not installed here"


def of_this_release(hook: HookFile, modules: Path) -> bool:
    """Tell whether a hook and the modules' sources are those that this release installs."""
    try:
        return hook.version == __version__ and all(
            (modules / source.name).read_bytes() == source.read_bytes()
            for source in share("hooks/slurm/advisor").glob("*.lua")
        )
    except OSError:
        return False


def check_inventory(modules: Path, cluster: Cluster | None) -> str:
    """Compare what the hooks know of the cluster with what Slurm says now."""
    try:
        installed = (modules / "inventory.lua").read_text()
    except OSError as error:
        return f"{modules / 'inventory.lua'}: {error.strerror} (run: advisor hook install)"
    if "partitions" not in installed:
        return "empty, so no job is rewritten (run: advisor hook install while slurmctld runs)"
    if cluster is None:
        return "not compared: Slurm does not answer"
    return "current" if installed == inventory_text(cluster) else "old (run: advisor hook install)"


def check_steps(modules: Path, frequency_steps: Mapping[str, Sequence[int]]) -> str:
    """Compare the caps that the hooks let through with the store's, "" when they are the same."""
    try:
        installed = (modules / "steps.lua").read_text()
    except OSError:
        installed = ""
    if not frequency_steps or installed == steps_text(frequency_steps):
        return ""
    return "the hooks know other frequency steps than the store (run: advisor hook install)"


def cluster_of(folder: Path) -> Cluster | None:
    """Return what Slurm has by the slurm.conf of a folder, from the file where it is down.

    None when neither tells.
    """
    former = os.environ.get("SLURM_CONF")
    # Slurm's commands have no option for it.
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        return read_cluster()
    except SchedulerError:
        return read_conf(folder / "slurm.conf")
    finally:
        if former is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = former


def breaker(retry_s: int) -> str:
    """Say whether this user's submissions ask the daemon now."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for path in (Path(runtime, "advisor-breaker"), Path(f"/tmp/advisor-breaker-{os.geteuid()}")):
        # Without XDG_RUNTIME_DIR the first is no place at all.
        if not path.is_absolute():
            continue
        try:
            # Not stat: in /tmp anybody may have left a link of that name.
            status = path.lstat()
        except OSError:
            continue
        age = time.time() - status.st_mtime
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if ours and -1 <= age < retry_s:
            return f"open: the daemon hung {age:.0f} s ago, asked again in {retry_s - age:.0f} s"
    return "closed"
