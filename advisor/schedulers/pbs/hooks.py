"""Install, remove and look at the PBS hooks: resources and hooks of the server, by qmgr.

What will be done is shown first, as the commands themselves. What lay there before stays: only
what an installation made is taken away again, and a hook of the same name that is not the
advisor's is in the way. On login nodes a program that goes before qsub is put into a folder of
PATH.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor import __version__
from advisor.core import protocol
from advisor.drafts import write_whole
from advisor.errors import AdvisorError, InputError, SchedulerError
from advisor.paths import share
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.pbs import table as pbs_table
from advisor.schedulers.pbs.inventory import HookInventory
from advisor.schedulers.plan import Plan

QUEUEJOB, EXECJOB = "advisor", "advisor_exec"
RESOURCES = {
    "advisor_stamp": ("string", "rm"),
    "cpu_freq_mhz": ("long", "m"),
    "energy_j": ("long", "m"),
    "energy_nodes": ("long", "m"),
    "gpu_freq_mhz": ("long", "m"),
    "gpu_power_w": ("long", "m"),
    "advisor_gpus": ("string", "rm"),
}
"""The resources the hooks need: type and flags. r: users cannot set it, m: the nodes get it."""
_EVENTS = {
    QUEUEJOB: ("queuejob", "postqueuejob"),
    EXECJOB: (
        "execjob_begin",
        "execjob_prologue",
        "execjob_epilogue",
        "execjob_end",
        "execjob_abort",
        "execjob_postsuspend",
        "execjob_preresume",
        "exechost_periodic",
        "exechost_startup",
    ),
}
LATER_EVENTS: Mapping[str, str] = {
    "postqueuejob": "what a hook behind it changes is only found once the job has ended",
    "execjob_postsuspend": "a cap stays while its job is suspended",
    "execjob_preresume": "a job that was suspended gets no verdict",
    "execjob_abort": "a job that cannot start leaves its cap for a minute",
}
"""Events that not every release of PBS has, and what goes without each."""
_SOURCES = {QUEUEJOB: "advisor_queuejob.py", EXECJOB: "advisor_execjob.py"}
_KEPT_AS = {"application/x-python": ".PY", "application/x-config": ".CF"}
_MARK = "written by `advisor hook install`"
_CLIENT_MARK = "Goes before PBS's qsub on login nodes"
PERIOD_S = 60
"""How often running jobs' counters are read: RAPL wraps within minutes."""


@dataclass(frozen=True, slots=True)
class PbsHookSettings:
    """What is written into the hooks' configuration: times in seconds."""

    socket: Path
    deadline_s: float = 0.25
    retry_s: int = 30
    understood: Collection[str] = ()
    """Resources and attributes that are in no table, but that the site knows."""
    frequency_steps: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Caps that node types can have, kHz, by their feature."""


@dataclass(frozen=True, slots=True)
class Installed:
    """One hook as the server has it: ``state`` is advisor, foreign or absent."""

    name: str
    state: str
    enabled: bool = False
    order: str = ""
    alarm_s: int = 0
    config: Mapping[str, object] | None = None
    code: str = ""
    events: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The release that wrote its configuration, "" when it has none."""
        return str((self.config or {}).get("version") or "")

    @property
    def lacks(self) -> tuple[str, ...]:
        """The events that an installation sets and that it is not called for."""
        return tuple(event for event in _EVENTS[self.name] if event not in self.events)

    @property
    def of_this_release(self) -> bool:
        """Tell whether code and configuration are those that this release imports."""
        return self.version == __version__ and self.code.strip() == _source(self.name).strip()


def read_hook(name: str) -> Installed:
    """Return what the server has under a hook's name. Raises SchedulerError when not allowed."""
    try:
        text = pbs_control.qmgr(f"list hook {name}")
    except SchedulerError as error:
        if "not found" in error.message or "does not exist" in error.message:
            return Installed(name, "absent")
        raise
    code = _export(name, "application/x-python")
    # one without code was made by an installation that was cut short
    state = "advisor" if _MARK in code or not code.strip() else "foreign"
    # qmgr breaks a long list into lines.
    events = re.search(r"event = \"?([\w,]+)", re.sub(r",\s*\n\s+", ",", text))
    listed = dict(re.findall(r"(?m)^\s+(enabled|order|alarm) = (\w+)", text))
    try:
        config = json.loads(_export(name, "application/x-config") or "{}")
    except ValueError:
        config = {}
    return Installed(
        name,
        state,
        pbs_control.truthy(listed.get("enabled", "")),
        listed.get("order", ""),
        int(listed.get("alarm", "")) if listed.get("alarm", "").isdecimal() else 0,
        config if isinstance(config, dict) else {},
        code,
        tuple(events[1].split(",")) if events else (),
    )


def _source(name: str) -> str:
    return share(f"hooks/pbs/{_SOURCES[name]}").read_text(encoding="utf-8")


def _export(name: str, form: str) -> str:
    """Return what was imported into a hook, "" where nothing was, or it cannot be read.

    It is read where PBS keeps it: each export by qmgr leaves a copy in ``hooks/tmp`` there.
    """
    home = Path(pbs_control.conf().get("PBS_HOME") or "/var/spool/pbs")
    try:
        stored = home / "server_priv" / "hooks" / f"{name}{_KEPT_AS[form]}"
        return stored.read_text(encoding="utf-8", errors="replace")
    except OSError:
        pass
    try:
        return pbs_control.qmgr(f"export hook {name} {form} default")
    except SchedulerError:
        return ""


def plan_install(folder: Path, settings: PbsHookSettings, inventory: HookInventory | None) -> Plan:
    """Plan an install or a reinstall; nothing is done yet.

    Of a hook that is there, the order stays, and whether it is enabled; so does its alarm, unless
    it would ring, and PBS reject the job, before the hook's own deadline is over.
    ``folder`` keeps what is imported, and the commands. Raises InputError for a socket's path
    that is too long, a resource of another type, and a foreign hook in the way.
    """
    if len(os.fsencode(settings.socket)) > protocol.MAX_SOCKET:
        raise InputError(
            f"{settings.socket}: a socket's path has at most {protocol.MAX_SOCKET} bytes",
            hint="choose a shorter --socket",
        )
    server_resources = pbs_control.custom_resources()
    hooks = [read_hook(name) for name in (QUEUEJOB, EXECJOB)]
    for hook in hooks:
        if hook.state == "foreign":
            raise InputError(
                f"the server has a hook {hook.name} that is not the advisor's",
                hint="rename it, or delete it",
            )
    commands, made_resources = [], _made_resources(folder)
    for name, (kind, flags) in RESOURCES.items():
        if name not in server_resources:
            commands.append(f"create resource {name} type={kind},flag={flags}")
            made_resources.add(name)
        elif server_resources[name][0] != kind:
            raise InputError(
                f"resource {name} is of type {server_resources[name][0]}, the hooks need {kind}",
                hint="delete it, if nothing else uses it",
            )
        elif set(flags) - set(server_resources[name][1]):
            commands.append(f"set resource {name} flag={flags}")
    least_s = {QUEUEJOB: max(2, int(settings.deadline_s) + 2), EXECJOB: 30}
    plan = Plan()
    for hook in hooks:
        name = hook.name
        if hook.state == "absent":
            commands.append(f"create hook {name}")
        fresh = not hook.code.strip()  # new, or made by an installation that was cut short
        enabled = "true" if fresh or hook.enabled else "false"
        alarm_s = least_s[name] if fresh else max(hook.alarm_s, least_s[name])
        if enabled == "false":
            plan.notes.append(
                f"hook {name} stays disabled, as it was: "
                f'qmgr -c "set hook {name} enabled=true" enables it'
            )
        if not fresh and alarm_s != hook.alarm_s:
            plan.notes.append(f"hook {name}: its alarm of {hook.alarm_s} s was too short")
        commands += [
            # Off while it changes, so that no job meets new code with an old configuration.
            f"set hook {name} enabled = false",
            f'set hook {name} event = "{",".join(_EVENTS[name])}"',
            f"set hook {name} alarm = {alarm_s}",
            *([] if hook.order and not fresh else [f"set hook {name} order = 500"]),
            *([f"set hook {name} freq = {PERIOD_S}"] if name == EXECJOB else []),
            f"import hook {name} application/x-python default {folder / _SOURCES[name]}",
            f"import hook {name} application/x-config default {folder / f'{name}.json'}",
            f"set hook {name} enabled = {enabled}",
        ]
    files = {
        **{source: _source(name) for name, source in _SOURCES.items()},
        f"{QUEUEJOB}.json": json.dumps(queuejob_config(settings, inventory), indent=1) + "\n",
        f"{EXECJOB}.json": json.dumps(execjob_config(inventory)) + "\n",
        "install.qmgr": "\n".join(commands) + "\n",
        "made.json": json.dumps(sorted(made_resources)) + "\n",
    }
    plan.add(f"write {folder}: {', '.join(files)}", lambda: _write_all(folder, files))
    for command in commands:
        plan.add(f"qmgr: {command}", _qmgr_step(command))
    plan.notes += _notes(inventory)
    if not settings.frequency_steps:
        plan.notes.append(
            "the store knows no node types, so caps are not held to their steps: run this again "
            "after advisor site apply"
        )
    return plan


def queuejob_config(
    settings: PbsHookSettings, inventory: HookInventory | None
) -> dict[str, object]:
    """Return the queuejob hook's configuration: what it asks, sends, and knows of PBS.

    Without an inventory no job is changed.
    """
    site = [name.replace("-", "_") for name in settings.understood]
    return {
        "version": __version__,
        "cluster": inventory.cluster if inventory else "",
        "socket": str(settings.socket),
        "deadline_s": settings.deadline_s,
        "retry_s": settings.retry_s,
        "host_resources": list(inventory.host_resources) if inventory else [],
        "inventory": inventory.text() if inventory else "",
        "steps_mhz": steps_mhz(settings.frequency_steps),
        "variables": [*protocol.SETTINGS, *protocol.THREADS],
        "counts": list(protocol.COUNTS),
        "resources": sorted({*pbs_table.RESOURCES, *site}),
        "harmless": sorted(n for n, axes in pbs_table.ATTRIBUTES.items() if not axes),
        "attributes": sorted({*(n for n, axes in pbs_table.ATTRIBUTES.items() if axes), *site}),
        "away": list(inventory.away) if inventory else [],
        "off": list(protocol.OFF),
    }


def steps_mhz(frequency_steps: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Return caps by feature as jobs ask for them."""
    return {name: [khz // 1000 for khz in steps] for name, steps in sorted(frequency_steps.items())}


def execjob_config(inventory: HookInventory | None) -> dict[str, object]:
    """Return the execution hook's configuration: what exclusivity means on which host.

    And the program that sets GPUs, the one of Slurm's prolog: PBS brings it to the nodes.
    """
    sharings = inventory.sharings if inventory else {}
    return {
        "version": __version__,
        "parted": list(inventory.parted) if inventory else [],
        "sharings": {host: list(words) for host, words in sorted(sharings.items())},
        "gpu_program": share("hooks/slurm/advisor-node-gpus").read_text(encoding="utf-8"),
    }


def plan_remove(folder: Path) -> Plan:
    """Plan the removal of what an installation made; nothing is done yet."""
    plan = Plan()
    for name in (QUEUEJOB, EXECJOB):
        hook = read_hook(name)
        if hook.state == "advisor":
            command = f"delete hook {name}"
            plan.add(f"qmgr: {command}", _qmgr_step(command))
        elif hook.state == "foreign":
            plan.notes.append(f"hook {name} is not the advisor's and stays")
    server_resources = pbs_control.custom_resources()
    for name in sorted(_made_resources(folder)):
        if name in server_resources:
            plan.add(f"qmgr: delete resource {name}", _drop_resource(name, plan))
    file_names = [
        *_SOURCES.values(),
        f"{QUEUEJOB}.json",
        f"{EXECJOB}.json",
        "install.qmgr",
        "made.json",
    ]
    if any((folder / name).exists() for name in file_names):
        plan.add(f"delete the files in {folder}", lambda: _delete_files(folder, file_names, plan))
    return plan


def _qmgr_step(command: str) -> Callable[[], None]:
    def step() -> None:
        shorter = command
        try:
            pbs_control.qmgr(command)
        except SchedulerError as error:
            for event in LATER_EVENTS:
                shorter = shorter.replace(f",{event}", "")
            if shorter != command:  # a release that lacks one of them: each by itself
                pbs_control.qmgr(shorter)
                _add_events(shorter, [e for e in LATER_EVENTS if f",{e}" in command])
                return
            raise AdvisorError(
                f"{command}: {error.message}",
                hint="run this as root on the PBS server; nothing that was there is lost",
            ) from None

    return step


def _add_events(command: str, events: Sequence[str]) -> None:
    """Add those events to a hook that this release of PBS has; ``command`` set the others."""
    hook = command.partition(" event")[0]
    for event in events:
        with contextlib.suppress(SchedulerError):
            pbs_control.qmgr(f"{hook} event += {event}")


def _drop_resource(name: str, plan: Plan) -> Callable[[], None]:
    def step() -> None:
        try:
            pbs_control.qmgr(f"delete resource {name}")
        except SchedulerError:
            # Finished jobs that PBS still remembers carry it.
            plan.kept.append(name)

    return step


def _delete_files(folder: Path, names: list[str], plan: Plan) -> None:
    """Delete the files; which resources are still to be deleted is remembered."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    if plan.kept:
        _write_all(folder, {"made.json": json.dumps(sorted(plan.kept)) + "\n"})
        return
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _made_resources(folder: Path) -> set[str]:
    """Return the resources that installations from this folder have made."""
    try:
        names = json.loads((folder / "made.json").read_text())
    except (OSError, ValueError):
        return set()
    return {n for n in names if n in RESOURCES} if isinstance(names, list) else set()


def _write_all(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name, text in files.items():
        write_whole(folder / name, text, 0o644, exactly=True, sync=True)


def _notes(inventory: HookInventory | None) -> list[str]:
    notes = []
    if inventory is None:
        notes.append(
            "PBS does not list its nodes, so no job is changed: run this again once it does"
        )
    elif inventory.unscheduled:
        names = ", ".join(inventory.unscheduled)
        notes.append(
            f"sched_config's line `resources:` lacks {names}: PBS ignores who asks for it. Add it, "
            "kill -HUP pbs_sched, then run this again"
        )
    if not pbs_control.truthy(pbs_control.server().get("job_history_enable", "False")):
        notes.append(
            "PBS forgets jobs as they end, so nothing can be collected: "
            'qmgr -c "set server job_history_enable=True"'
        )
    return notes


# -- login nodes -----------------------------------------------------------------------------------


def client_state(path: Path) -> str:
    """Return what is at a path: advisor, foreign or absent."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return "absent"
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="run this as root") from None
    return "advisor" if _CLIENT_MARK in text else "foreign"


def client_text(qsub: Path | str, socket: Path) -> str:
    """Return the program that goes before a qsub, with what the protocol's home says.

    ``qsub`` is PBS's own, ``socket`` where a daemon of the same host listens, if there is one.
    """
    text = share("hooks/pbs/qsub.py").read_text(encoding="utf-8")
    words = {
        "QSUB": str(qsub),
        "SOCKET": str(socket),
        "PASSED": protocol.SETTINGS,
        "OFF": protocol.OFF,
    }
    return re.sub(
        rf"(?m)^({'|'.join(words)}) = .*$", lambda line: f"{line[1]} = {words[line[1]]!r}", text
    )


def plan_client(folder: Path, socket: Path) -> Plan:
    """Plan putting the program that goes before qsub into a folder. Raises InputError."""
    folder = folder.absolute()
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: no folder that can be written", hint="run this as root")
    path = folder / "qsub"
    if client_state(path) == "foreign":
        raise InputError(f"{path}: in the way, and not the advisor's", hint="choose another folder")
    real = _real_qsub(path)
    text = client_text(real, socket)

    def step() -> None:
        write_whole(path, text, 0o755, exactly=True, sync=True)

    plan = Plan()
    plan.add(f"write {path}, which goes before {real}", step)
    places = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep)]
    if folder not in places or (
        real.parent in places and places.index(real.parent) < places.index(folder)
    ):
        plan.notes.append(f"{folder} must come before {real.parent} in users' PATH")
    return plan


def plan_client_removal(folder: Path) -> Plan:
    """Plan taking the program before qsub away."""
    path = folder.absolute() / "qsub"
    plan = Plan()
    if client_state(path) == "advisor":
        plan.add(f"delete {path}", path.unlink)
    elif client_state(path) == "foreign":
        plan.notes.append(f"{path} is not the advisor's and stays")
    return plan


def _real_qsub(client_path: Path) -> Path:
    """Return PBS's own qsub. Raises SchedulerError when there is none."""
    folder = pbs_control.conf().get("PBS_EXEC", "/opt/pbs")
    places = [f"{folder}/bin", *os.environ.get("PATH", "").split(os.pathsep)]
    for place in places:
        path = Path(place or ".").absolute() / "qsub"
        if path != client_path and os.access(path, os.X_OK) and client_state(path) != "advisor":
            return path
    raise SchedulerError("there is no qsub here", hint="run this where PBS's commands are")
