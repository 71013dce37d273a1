"""Install, remove and look at the Slurm hooks in the folder of slurm.conf.

A site's own script moves aside as ``cli_filter.site.lua`` or ``job_submit.site.lua``, is called
by the stub as Slurm would call it, and comes back byte for byte on removal. Every change of a
file is one rename, so a submission sees the old hook or the new one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from advisor.core import protocol
from advisor.core.codec import JsonForm
from advisor.drafts import draft
from advisor.errors import InputError
from advisor.paths import share
from advisor.schedulers.cluster import Cluster
from advisor.schedulers.plan import Plan
from advisor.schedulers.slurm.hook_files import (
    HOOKS,
    LEFTOVER_MARK,
    NOTHING,
    STUB_MARK,
    SlurmHookSettings,
    folder_id,
    module_files,
    stub,
    syntax_problem,
)
from advisor.schedulers.slurm.translator import NODE_CAP, NODE_CORES, NODE_GPUS

KEYS = {"cli_filter.lua": "CliFilterPlugins", "job_submit.lua": "JobSubmitPlugins"}
_KEPT = 2  # module folders: the one in use, and the one a controller may not have let go of


@dataclass(frozen=True, slots=True)
class HookFile(JsonForm):
    """What stands where Slurm looks for a hook.

    ``state`` is ``advisor``, ``site`` (the site's own), ``leftover`` (a hook that does nothing,
    left by a removal) or ``absent``; ``site_file`` is the site's script that the advisor's stub
    calls, None without; ``enabled`` tells whether slurm.conf names the Lua plugin.
    """

    JSON = ("state", "version", "enabled", "calls")

    name: str
    state: str
    site_file: Path | None
    enabled: bool
    folder_id: str = ""
    version: str = ""

    @property
    def calls(self) -> str | None:
        """Name of the site's script."""
        return self.site_file.name if self.site_file else None

    def words(self) -> str:
        """Say it in words."""
        text = {
            "advisor": f"advisor {self.version}",
            "site": "the site's own",
            "leftover": "does nothing (left by a removal)",
            "absent": "not there",
        }[self.state]
        if self.site_file is not None:
            text += f", calls {self.site_file.name}"
        return text if self.enabled else f"{text}, but slurm.conf does not name the Lua plugin"


def find_folder(directory: Path) -> Path:
    """Return the folder of slurm.conf as an absolute path.

    Raises InputError when it holds no slurm.conf.
    """
    folder = directory.absolute()
    if not (folder / "slurm.conf").is_file():
        raise InputError(
            f"{folder / 'slurm.conf'}: no such file", hint="--dir is the folder of slurm.conf"
        )
    return folder


def read_hooks(folder: Path) -> list[HookFile]:
    """Return what stands in the folder for each hook."""
    plugins = _plugins(folder / "slurm.conf")
    return [_read_hook(folder, name, "lua" in plugins[name]) for name in HOOKS]


def plan_install(folder: Path, settings: SlurmHookSettings, cluster: Cluster | None) -> Plan:
    """Plan an install or a reinstall; nothing is written yet.

    Raises InputError for a folder that cannot be written, a socket's path that is too long, and
    a site's own script that does not compile.
    """
    _check_writable(folder)
    if len(os.fsencode(settings.socket)) > protocol.MAX_SOCKET:
        raise InputError(
            f"{settings.socket}: a socket's path has at most {protocol.MAX_SOCKET} bytes",
            hint="choose a shorter --socket",
        )
    plan = Plan()
    hooks = read_hooks(folder)
    sites = {h.name: _site_source(folder, h) for h in hooks}
    copies: dict[str, bytes] = {}
    for name, path in sites.items():
        if path is not None:
            copies[_site_name(name)] = code = _read_file(path)
            if problem := syntax_problem(name, code):
                raise InputError(f"{path}:{problem}", hint="mend the site's own script first")
    files = module_files(settings, cluster, copies)
    plan.folder_id = folder_id(files)
    target = folder / "advisor" / plan.folder_id
    # The modules come before the stubs that name their folder, and older ones go behind these.
    plan.add(f"write {target}", lambda: _write_folder(target, files))
    for hook in hooks:
        _plan_stub(plan, folder, hook, sites[hook.name] is not None)
    if settings.node_cap or (folder / NODE_CAP).exists():
        _plan_node_cap(plan, folder)
    plan.add("drop older modules", lambda: _drop_old(folder, keep=plan.folder_id))
    for hook in hooks:
        if not hook.enabled:
            plan.notes.append(_missing_line(folder / "slurm.conf", hook.name))
    if cluster is None:
        plan.notes.append(
            "neither Slurm nor slurm.conf tells what nodes there are, so no job will be "
            "rewritten: run this again once slurmctld runs"
        )
    return plan


def plan_remove(folder: Path) -> Plan:
    """Plan the removal: the site's own scripts come back. Raises InputError when not writable."""
    _check_writable(folder)
    plan = Plan()
    for hook in read_hooks(folder):
        path = folder / hook.name
        if hook.state == "advisor" and hook.site_file is not None:
            line = f"put {hook.site_file.name} back as {path}"
            plan.add(line, _restore_step(hook.site_file, path))
        elif hook.state == "advisor" and hook.enabled:
            plan.add(
                f"leave a {path} that does nothing: slurm.conf says {KEYS[hook.name]}=lua",
                _write_step(path, NOTHING[hook.name].encode()),
            )
        elif hook.state == "advisor" or (hook.state == "leftover" and not hook.enabled):
            plan.add(f"delete {path}", path.unlink)
        elif hook.state == "site" and os.path.lexists(folder / _site_name(hook.name)):
            plan.notes.append(
                f"{path} is the site's own and stays; {_site_name(hook.name)} is an older one"
            )
        elif hook.state == "leftover":
            plan.notes.append(
                f"{path} does nothing and can go once slurm.conf has no {KEYS[hook.name]}=lua"
            )
    if (folder / NODE_CAP).exists():  # Slurm drains nodes whose prolog is gone
        plan.notes.append(
            f"{folder / NODE_CAP} caps nothing now; it can go once Prolog and Epilog do not name it"
        )
    if _module_folders(folder):
        plan.add(f"delete {folder / 'advisor'}", lambda: _delete_modules(folder))
    return plan


def _read_hook(folder: Path, name: str, enabled: bool) -> HookFile:
    path, site = folder / name, folder / _site_name(name)
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        text, state = "", "absent"
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="run this as root") from None
    else:
        ours = STUB_MARK in text
        state = "advisor" if ours else "leftover" if LEFTOVER_MARK in text else "site"
    if state != "advisor":
        return HookFile(name, state, None, enabled)
    version = re.search(r", advisor (\S+) " + re.escape(STUB_MARK), text)
    identity = re.search(r'"/advisor/([^"@]+)"', text)
    return HookFile(
        name,
        state,
        site if os.path.lexists(site) else None,
        enabled,
        identity[1] if identity else "",
        version[1] if version else "",
    )


def _site_name(hook: str) -> str:
    return f"{hook.removesuffix('.lua')}.site.lua"


def _site_source(folder: Path, hook: HookFile) -> Path | None:
    """Return the site's own script as it lies now, None when there is none."""
    if hook.state == "site":
        site_file = folder / _site_name(hook.name)
        if os.path.lexists(site_file) and not _module_folders(folder):
            raise InputError(
                f"{site_file}: in the way, and not the advisor's", hint="move it out of the way"
            )
        return folder / hook.name
    return hook.site_file


def _plan_stub(plan: Plan, folder: Path, hook: HookFile, has_site: bool) -> None:
    path, site = folder / hook.name, folder / _site_name(hook.name)
    if hook.state == "site":
        plan.add(
            f"keep the site's own {path} as {site.name}", lambda: _keep_site_script(path, site)
        )
    text = stub(hook.name, folder, plan.folder_id, site.name if has_site else "")
    calling = f", which calls {site.name}" if has_site else ""
    plan.add(f"write {path}{calling}", _write_step(path, text))


def _plan_node_cap(plan: Plan, folder: Path) -> None:
    """Plan the program that caps nodes, and say what slurm.conf has to name."""
    for name in (NODE_GPUS, NODE_CORES, NODE_CAP):
        path = folder / name
        text = share(f"hooks/slurm/{name}").read_bytes()
        plan.add(f"write {path}", _write_step(path, text, mode=0o755))
    conf = folder / "slurm.conf"
    if NODE_CAP not in conf.read_text(errors="replace"):
        plan.notes.append(
            f"{conf} has to say Prolog={path}, Epilog={path} and PrologFlags=Alloc, and each "
            f"compute node needs it, {NODE_CORES} and {NODE_GPUS} before that; where the site has "
            "a prolog, a pattern of a folder with both (docs/admin.md)"
        )


def _keep_site_script(path: Path, site: Path) -> None:
    """Give the site's script a second name, so that the first never points at nothing."""
    with draft(site.parent, site.name) as partial:
        # The draft has taken the name, where os.link must find none.
        partial.unlink()
        try:
            os.link(path, partial, follow_symlinks=False)
        except OSError:  # a file system without links
            shutil.copy2(path, partial, follow_symlinks=False)
        partial.replace(site)


def _restore_step(site: Path, path: Path) -> Callable[[], None]:
    def step() -> None:
        mtime_s = _next_time(path)
        site.replace(path)
        with contextlib.suppress(OSError):
            os.utime(path, (mtime_s, mtime_s))

    return step


def _write_step(path: Path, data: bytes, mode: int = 0o644) -> Callable[[], None]:
    def step() -> None:
        with draft(path.parent, path.name) as partial:
            mtime_s = _next_time(path)
            _write_new(partial, data)
            partial.chmod(mode)
            os.utime(partial, (mtime_s, mtime_s))
            partial.replace(path)

    return step


def _next_time(path: Path) -> int:
    """Return a date for what replaces a hook: slurmctld reads it again only when it is newer."""
    try:
        last = int(path.stat().st_mtime)
    except OSError:
        last = 0
    return max(int(time.time()), last) + 1


def _write_new(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)


def _write_folder(target: Path, files: dict[str, bytes]) -> None:
    if target.is_dir() and all(_has_content(target / n, data) for n, data in files.items()):
        return
    target.parent.mkdir(mode=0o755, exist_ok=True)
    target.parent.chmod(0o755)
    partial = target.with_name(f".{target.name}.new")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    partial.chmod(0o755)
    for name, data in files.items():
        _write_new(partial / name, data)
    if target.exists():
        # The name is made of the content: one with another content is damaged.
        shutil.rmtree(target)
    partial.rename(target)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="mend the site's own script") from None


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _module_folders(folder: Path) -> list[Path]:
    """Return the modules' folders, half-written ones too, the newest first; nothing else's."""
    folders = [
        path
        for path in (folder / "advisor").glob("*")
        if re.fullmatch(r"\.?\d[\w.+]*-[0-9a-f]{12}(\.new)?", path.name) and path.is_dir()
    ]
    return sorted(folders, key=lambda p: p.stat().st_mtime, reverse=True)


def _drop_old(folder: Path, keep: str) -> None:
    # The one in use counts as the newest, also where it was installed before.
    os.utime(folder / "advisor" / keep)
    for path in _module_folders(folder)[_KEPT:]:
        shutil.rmtree(path)


def _delete_modules(folder: Path) -> None:
    for path in _module_folders(folder):
        shutil.rmtree(path)
    with contextlib.suppress(OSError):  # something of the site's is in it
        (folder / "advisor").rmdir()


def _check_writable(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: no permission to write", hint="run this as root")


def _plugins(conf: Path) -> dict[str, list[str]]:
    """Return the plugins slurm.conf names for each hook, Include lines followed."""
    plugins: dict[str, list[str]] = {name: [] for name in HOOKS}
    for key, value in _settings(conf, depth=4):
        for name in HOOKS:
            if key == KEYS[name].lower():
                plugins[name] = [v.rpartition("/")[2] for v in value.split(",") if v]
    return plugins


def _settings(conf: Path, depth: int) -> list[tuple[str, str]]:
    settings: list[tuple[str, str]] = []
    try:
        text = conf.read_text(errors="replace")
    except OSError as error:
        raise InputError(f"{conf}: {error.strerror}", hint="run this as root") from None
    for line in text.replace("\\\n", "").splitlines():
        line = line.partition("#")[0].strip()
        if include := re.match(r"include\s+(\S+)$", line, re.IGNORECASE):
            if depth and (conf.parent / include[1]).is_file():
                settings += _settings(conf.parent / include[1], depth - 1)
        elif match := re.match(r"(CliFilterPlugins|JobSubmitPlugins)\s*=\s*(\S+)", line, re.I):
            settings.append((match[1].lower(), match[2]))
    return settings


def _missing_line(conf: Path, hook: str) -> str:
    plugins = [*_plugins(conf)[hook], "lua"]
    instruction = (
        "then restart slurmctld" if hook == "job_submit.lua" else "on every submitting host"
    )
    return f"{conf} needs the line {KEYS[hook]}={','.join(plugins)} ({instruction})"
