"""Make the files that ``advisor hook install`` puts beside slurm.conf.

Two small stubs stand where Slurm looks; all else lies in one folder named by its content, so
that an install or an upgrade is seen whole or not at all: ``advisor/<id>/``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from advisor import __version__
from advisor.core import axes, protocol
from advisor.core.wrappers import FRONTS_AT_STEP
from advisor.errors import AdvisorError, InputError
from advisor.paths import share
from advisor.schedulers.cluster import Cluster
from advisor.schedulers.slurm import table as slurm_table
from advisor.schedulers.slurm.translator import AXES

HOOKS = ("cli_filter.lua", "job_submit.lua")
STUB_MARK = "(advisor stub)"
BUNDLES = {
    "filter": ("config", "system", "filter"),
    "answer": ("answer", "rewrite"),
    "change": ("axes", "inventory", "json", "limits", "program", "steps", "table", "understood"),
    "step": ("step", "wrappers"),
}
"""cli_filter's modules precompiled into ``NAME-VERSION.luac``, a third of the time to load the
sources: what every job needs; what every answer needs; what an answer that changes the job needs
besides, which are loaded while the daemon thinks; what looks a step up in its job's plan."""
NATIVE = "native.so"
"""The system calls cli_filter needs, compiled here; without it lua-posix is used."""

_LOADER = """\
local loaded = { home = home }
local function use(name)
  if loaded[name] == nil then
    local file = not parts[name] and bundle_of[name]
    local later = file and loadfile(home .. "/" .. file .. "-" .. _VERSION:sub(5) .. ".luac")
    for other, part in pairs(later and later() or {}) do parts[other] = part end
    local part = parts[name] or assert(loadfile(home .. "/" .. name .. ".lua"))
    loaded[name] = part(use)
  end
  return loaded[name]
end
return use(main)
"""
NOTHING = {
    "cli_filter.lua": """\
-- Does nothing. Left by `advisor hook remove` because slurm.conf says CliFilterPlugins=lua and
-- every submission fails without this file. (advisor leftover)
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset) return slurm.SUCCESS end
function slurm_cli_post_submit(offset, job_id, step_id) return slurm.SUCCESS end
return slurm.SUCCESS
""",
    "job_submit.lua": """\
-- Does nothing. Left by `advisor hook remove` because slurm.conf says JobSubmitPlugins=lua and
-- slurmctld does not start without this file. (advisor leftover)
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
""",
}
LEFTOVER_MARK = "(advisor leftover)"


@dataclass(frozen=True, slots=True)
class SlurmHookSettings:
    """What is written into the installed files: times in seconds."""

    socket: Path
    deadline_s: float = 0.25
    retry_s: int = 30
    syslog: Path = Path("/dev/log")
    understood: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the site says of options that are in no table: name -> axes, none of a harmless one."""
    frequency_steps: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Caps that node types can have, kHz, by their feature."""
    axes: Mapping[str, axes.AxisWriting] = field(default_factory=dict)
    """How the site has further axes written, by axis, where that is not as Slurm does."""
    axis_steps: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    """What the GPUs of node types can be set to: axis, then feature."""
    node_cap: bool = False
    """Also the program that caps whole nodes."""


def module_files(
    settings: SlurmHookSettings, cluster: Cluster | None, sites: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the files of the modules' folder by name, those for each Lua's own form among them.

    Arguments as of :func:`source_files`.
    """
    files = source_files(settings, cluster, sites)
    return {**files, **compiled_files(files)}


def source_files(
    settings: SlurmHookSettings, cluster: Cluster | None, sites: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the files of the modules' folder that any Lua reads, by name.

    ``cluster`` None means an unknown inventory: options are then never rewritten. ``sites`` are
    copies of the site's own scripts by file name.
    """
    sources = share("hooks/slurm/advisor")
    files = {path.name: path.read_bytes() for path in sorted(sources.glob("*.lua"))}
    native = _native(sources / "native.c")
    if native is not None:
        files[NATIVE] = native
    files["config.lua"] = _config(settings, cluster.name if cluster else "").encode()
    files["table.lua"] = table_text(settings.understood).encode()
    files["inventory.lua"] = inventory_text(cluster).encode()
    files["axes.lua"] = axes_text({**AXES, **settings.axes}, settings.axis_steps).encode()
    files["steps.lua"] = steps_text(settings.frequency_steps).encode()
    files["wrappers.lua"] = _wrappers_text().encode()
    return {**files, **sites}


def compiled_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what spares a hook to read sources: bundles of these files, for each Lua that is here.

    Lua's own forms differ by version; where no compiler is installed, the sources are read.
    """
    sources_of = dict(BUNDLES)
    if NATIVE not in files:
        # What native.so does is done by lua-posix then.
        sources_of["filter"] += ("portable",)
    code = {
        name: f"{_parts(files, part_names)}return parts\n"
        for name, part_names in sources_of.items()
    }
    bundle_of = "".join(f" {part} = {_lua_text(b)}," for b in BUNDLES for part in BUNDLES[b])
    code["filter"] = (
        f"local home, main = ...\n{_parts(files, sources_of['filter'])}"
        f"local bundle_of = {{{bundle_of} }}\n{_LOADER}"
    )
    compiled_by_name = {}
    for compiler in lua_programs("luac"):
        for name, text in code.items():
            version, compiled = _compiled(compiler, text)
            compiled_by_name[f"{name}-{version}.luac"] = compiled
    return compiled_by_name


def folder_id(files: Mapping[str, bytes]) -> str:
    """Return the name of a folder with these files: the release and a digest."""
    digest = hashlib.sha256()
    for name in sorted(files):
        # With their lengths, so that no other split into files has the same digest.
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return f"{__version__}-{digest.hexdigest()[:12]}"


def stub(hook: str, folder: Path, identity: str, site_file: str) -> bytes:
    """Return the stub of a hook; without a site's own script it has no code for one."""
    text = share(f"hooks/slurm/{hook}").read_text(encoding="utf-8")
    if not site_file:
        head, _, rest = text.partition("-- @site\n")
        _, _, tail = rest.partition("-- @end\n")
        text = f"{head}local function own() return slurm.SUCCESS end\n{tail}"
    off = f" {' '.join(protocol.OFF)} "
    for key, value in {"DIR": folder, "ID": identity, "SITE": site_file, "OFF": off}.items():
        text = text.replace(f'@{key}@"', f"{_lua_text(str(value))[1:]}")
    lines = [line for line in text.splitlines(keepends=True) if line not in _MARKERS]
    return "".join(lines).replace("@VERSION@", __version__).encode()


_MARKERS = ("-- @site\n", "-- @end\n")


def syntax_problem(name: str, code: bytes) -> str:
    """Return what Lua's compiler says is wrong, "" when nothing or when there is no compiler."""
    problem = ""
    for compiler in lua_programs("luac"):
        syntax_check = subprocess.run(
            [compiler, "-p", "-"], input=code, capture_output=True, check=False, timeout=30
        )
        if syntax_check.returncode == 0:  # which Lua Slurm uses is not known
            return ""
        first = syntax_check.stderr.decode(errors="replace").strip().partition("\n")[0]
        problem = problem or first.partition("stdin:")[2] or f"{name}: {first}"
    return problem


def lua_programs(name: str) -> list[str]:
    """Return the paths of ``lua`` or ``luac`` of every Lua on this host that Slurm may use."""
    names = [f"{name}{dash}5.{minor}" for minor in (1, 2, 3, 4) for dash in ("", "-")]
    paths = [shutil.which(n) for n in (*names, name)]
    # Several names may lead to one program, which is tried once.
    return list({os.path.realpath(path): path for path in reversed(paths) if path}.values())[::-1]


def _config(settings: SlurmHookSettings, cluster: str) -> str:
    libraries = ", ".join(
        f"[{_lua_text(version)}] = {_lua_text(str(path))}"
        for version, path in sorted(_posix_libraries().items())
    )
    return (
        "-- Written by `advisor hook install`.\n"
        f"return {{ socket = {_lua_text(str(settings.socket))},"
        f" deadline = {settings.deadline_s:g}, retry = {settings.retry_s:d},"
        f" syslog = {_lua_text(str(settings.syslog))}, version = {_lua_text(__version__)},"
        f" cluster = {_lua_text(cluster)},"
        f" names = {_lua_text(' '.join(protocol.sent_by_name()))},"
        f" prefixes = {_lua_text(' '.join((*slurm_table.PREFIXES, *protocol.PREFIXES)))},"
        f" counts = {_lua_set(protocol.COUNTS)}, off = {_lua_words(protocol.OFF)},"
        f" max_answer = {protocol.MAX_ANSWER}, max_socket = {protocol.MAX_SOCKET},"
        f" max_script = {protocol.MAX_SCRIPT}, max_choices = {protocol.MAX_CHOICES},"
        f" max_variable = {protocol.MAX_VARIABLE}, cut = {protocol.CUT},"
        f" posix = {{ {libraries} }} }}\n"
    )


def _posix_libraries() -> dict[str, Path]:
    """Return lua-posix's library for each Lua on this host: looking for it takes 35 us."""
    libraries: dict[str, Path] = {}
    for pattern in ("usr/local/lib/lua", "usr/lib64/lua", "usr/lib/*/lua", "usr/lib/lua"):
        for path in Path("/").glob(f"{pattern}/5.*/posix.so"):
            libraries.setdefault(f"Lua {path.parent.name}", path)
    return libraries


def table_text(understood: Mapping[str, Sequence[str]]) -> str:
    """Write the closed world of slurm_table: what understood.lua and submit.lua check by."""
    site = {n: " ".join(f"binds:{a}" for a in axes) or "harmless" for n, axes in understood.items()}
    t = slurm_table
    judged = {n: c for n, c in t.VARIABLES.items() if c != "harmless" or t.SETS.get(n) in t.VALUES}
    members = {
        "options": _lua_map({n: c for n, c in t.OPTIONS.items() if c != "harmless"}),
        "harmless_options": _lua_words(n for n, c in t.OPTIONS.items() if c == "harmless"),
        "values": "{ "
        + ", ".join(
            f"[{_lua_text(option)}] = {{ "
            + ", ".join(f"{{ {_lua_text(w)}, {_lua_text(c)} }}" for w, c in rules)
            + " }"
            for option, rules in t.VALUES.items()
        )
        + " }",
        "variables": _lua_map(judged),
        "harmless_variables": _lua_words(t.VARIABLES.keys() - judged),
        "sets": _lua_map({n: o for n, o in t.SETS.items() if n in judged}),
        "families": "{ " + ", ".join(_lua_text(f) for f in t.FAMILIES) + " }",
        "launcher": _lua_map(t.LAUNCHER),
        "reads": "{ " + ", ".join(f"{p} = {_lua_words(r)}" for p, r in t.READS.items()) + " }",
        "counts": _lua_words(t.COUNTS),
        "site": _lua_map(site),
        "flags": _lua_words(t.FLAGS),
        "overwritten": _lua_words(t.OVERWRITTEN),
        "asked_by_name": _lua_words((*protocol.SETTINGS, *protocol.THREADS)),
    }
    body = "".join(f"  {name} = {value},\n" for name, value in members.items())
    return f"-- Written by `advisor hook install`.\nreturn {{\n{body}}}\n"


def _lua_map(values: Mapping[str, str]) -> str:
    """Write a map as one text, ``;key=value;``: tables take Lua far longer to load."""
    return _lua_text("".join(f";{k}={v}" for k, v in sorted(values.items())) + ";")


def _lua_set(names: Iterable[str]) -> str:
    return "{ " + ", ".join(f"[{_lua_text(n)}] = true" for n in sorted(names)) + " }"


def _lua_words(words: Iterable[str]) -> str:
    """Return words in one text with a space around each: found without making a table."""
    return _lua_text(f" {' '.join(sorted(words))} ")


def inventory_text(cluster: Cluster | None) -> str:
    """Write the classes of equal nodes of each partition: what limits.lua checks against."""
    if cluster is None:
        return "-- Slurm did not answer at install.\nreturn {}\n"
    default = next((p.name for p in cluster.partitions if p.default), "")
    lines = [
        "-- Written by `advisor hook install` from scontrol.",
        f"return {{ default = {_lua_text(default)}, partitions = {{",
    ]
    for partition in sorted(cluster.partitions, key=lambda p: p.name):
        classes = Counter(
            (n.cores * n.threads_per_core, n.memory_mb, tuple(sorted(n.features)))
            for n in cluster.nodes
            if partition.name in n.partitions
        )
        limit = f" max_nodes = {partition.max_nodes}," if partition.max_nodes else ""
        lines.append(f"  [{_lua_text(partition.name)}] = {{{limit} classes = {{")
        for (cpus, memory, features), count in sorted(classes.items()):
            names = ", ".join(f"[{_lua_text(f)}] = true" for f in features)
            lines.append(
                f"    {{ nodes = {count}, cpus = {cpus}, memory = {memory},"
                f" features = {{ {names} }} }},"
            )
        lines.append("  } },")
    return "\n".join([*lines, "} }", ""])


def steps_text(frequency_steps: Mapping[str, Sequence[int]]) -> str:
    """Write the caps in kHz that the node types of a feature can have: " 1200000 1900000 "."""
    head = "-- Written by `advisor hook install` from the store."
    caps = {name: f" {' '.join(map(str, khz))} " for name, khz in sorted(frequency_steps.items())}
    lines = [f"  [{_lua_text(name)}] = {_lua_text(text)}," for name, text in caps.items()]
    return "\n".join([head, "return {", *lines, "}", ""])


def _wrappers_text() -> str:
    """Write what a step's program may stand behind: what step.lua reads its words by."""
    lines = ["-- Written by `advisor hook install`.", "return {"]
    for name, front in FRONTS_AT_STEP.items():
        members = [f"flags = {_lua_words(front.flags)}", f"values = {_lua_words(front.values)}"]
        members += [f"verb = {_lua_text(front.verb)}"] if front.verb else []
        members += [f"{n} = true" for n in ("image", "inside", "interpreter") if getattr(front, n)]
        lines.append(f"  [{_lua_text(name)}] = {{ {', '.join(members)} }},")
    return "\n".join([*lines, "}", ""])


def axes_text(
    writings: Mapping[str, axes.AxisWriting], axis_steps: Mapping[str, Mapping[str, Sequence[int]]]
) -> str:
    """Write the options of further axes: their form, and what nodes of each feature can have.

    Clocks as a text of all of them, power limits as the least and the most. An option of a SPANK
    plugin is none of Slurm's own.
    """
    lines = []
    for axis, writing in sorted(writings.items()):
        if writing.nodes:
            continue
        pattern = "(%d+)".join(re.sub(r"(\W)", r"%\1", part) for part in writing.value.split("{}"))
        values = []
        for feature, steps in sorted(axis_steps.get(axis, {}).items()):
            numbers = [step // writing.per for step in steps]
            text = _lua_text(f" {' '.join(map(str, numbers))} ")
            if axes.AXES[axis].limits_power:
                text = f"{{ {numbers[0]}, {numbers[-1]} }}"
            values.append(f"[{_lua_text(feature)}] = {text}")
        spank = str(writing.option not in slurm_table.OPTIONS).lower()
        lines.append(
            f"  [{_lua_text(writing.option)}] = {{ axis = {_lua_text(axis)}, spank = {spank},"
            f" pattern = {_lua_text(f'^{pattern}$')}, values = {{ {', '.join(values)} }} }},"
        )
    return "\n".join(
        ["-- Written by `advisor hook install` from the store.", "return {", *lines, "}", ""]
    )


def _parts(files: Mapping[str, bytes], names: Sequence[str]) -> str:
    """Return Lua code that makes a table of functions out of modules."""
    text = "local parts = {}\n"
    for name in names:
        text += f"parts[{_lua_text(name)}] = function(...)\n{files[f'{name}.lua'].decode()}\nend\n"
    return text


def _compiled(compiler: str, code: str) -> tuple[str, bytes]:
    """Return the version of a compiler's Lua and its bytecode, which other Luas refuse to load."""
    compilation = subprocess.run(
        [compiler, "-s", "-o", "/dev/stdout", "-"],
        input=code.encode(),
        capture_output=True,
        check=False,
        timeout=30,
    )
    if compilation.returncode or not compilation.stdout.startswith(b"\x1bLua"):
        problem = compilation.stderr.decode(errors="replace").strip()
        raise AdvisorError(f"{compiler} cannot compile the hook: {problem}", hint="report this")
    # The fifth byte of Lua's bytecode is its version: 0x53 is 5.3.
    return f"{compilation.stdout[4] >> 4}.{compilation.stdout[4] & 15}", compilation.stdout


def _native(source: Path) -> bytes | None:
    """Compile the system calls, None where there is no C compiler or it fails."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    return None if compiler is None else _library(compiler, source.read_bytes())


@lru_cache(maxsize=2)  # takes longer than all else of an installation
def _library(compiler: str, source: bytes) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / NATIVE
        # fewer segments: a third less time to open
        flags = ["-s", "-Wl,--build-id=none", "-Wl,-z,noseparate-code", "-Wl,-z,norelro"]
        names = ("MAX_ANSWER", "MAX_SCRIPT", "MAX_CHOICES", "MAX_VARIABLE", "CUT")
        flags += [f"-D{name}={getattr(protocol, name)}" for name in names]
        compilation = subprocess.run(
            [compiler, "-O2", "-std=c11", "-shared", "-fPIC", *flags, "-o", target, "-xc", "-"],
            input=source,
            capture_output=True,
            check=False,
            timeout=60,
        )
        return target.read_bytes() if compilation.returncode == 0 else None


def _lua_text(text: str) -> str:
    """Return text as a Lua literal."""
    if not text.isprintable():
        raise InputError(f"{text!r} has control characters", hint="choose another name")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
