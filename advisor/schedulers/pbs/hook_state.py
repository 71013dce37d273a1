"""Look at installed PBS hooks: are they on, is what they know still so."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import SchedulerError
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.pbs import table as pbs_table
from advisor.schedulers.pbs.hooks import (
    EXECJOB,
    QUEUEJOB,
    RESOURCES,
    Installed,
    execjob_config,
    read_hook,
    steps_mhz,
)
from advisor.schedulers.pbs.inventory import HookInventory, read_hook_inventory

BREAKER, ALTERED = "/run/advisor-pbs-breaker", "/run/advisor-pbs-altered"
"""Where the queuejob hook notes that the daemon hung, and jobs that a later hook has changed."""


@dataclass(frozen=True, slots=True)
class Found:
    """The hooks of a server; ``settings`` is the queuejob hook's configuration."""

    hooks: tuple[Installed, ...]

    @property
    def settings(self) -> Mapping[str, object]:
        """What was written into the queuejob hook's configuration, {} where it is not ours."""
        hook = next(h for h in self.hooks if h.name == QUEUEJOB)
        return hook.config or {} if hook.state == "advisor" else {}


def look() -> Found:
    """Return what the server has. Raises SchedulerError when it cannot be asked."""
    return Found(tuple(read_hook(name) for name in (QUEUEJOB, EXECJOB)))


def words(hook: Installed) -> str:
    """Say in words what a hook is."""
    if hook.state != "advisor":
        return {"foreign": "not the advisor's"}.get(hook.state, "not there")
    return f"advisor {hook.version}{'' if hook.enabled else ', but it is not enabled'}"


def to_dict(hook: Installed) -> dict[str, object]:
    """Return the JSON form."""
    return {"state": hook.state, "version": hook.version, "enabled": hook.enabled}


def check_resources() -> str:
    """Say whether the resources are as the hooks need them."""
    server_resources = pbs_control.custom_resources()
    absent_names = [n for n in RESOURCES if n not in server_resources]
    if absent_names:
        return f"not there: {', '.join(absent_names)} (run: advisor hook install)"
    mistyped = [
        n
        for n, (kind, flags) in RESOURCES.items()
        if server_resources[n][0] != kind or set(flags) - set(server_resources[n][1])
    ]
    return f"of another type: {', '.join(mistyped)}" if mistyped else "there"


def inventory_now() -> HookInventory | None:
    """Return what the hook has to know of the complex, None when PBS does not tell."""
    try:
        hook_inventory = read_hook_inventory()
    except SchedulerError:
        return None
    return hook_inventory if any(hook_inventory.queues.values()) else None


def check_inventory(settings: Mapping[str, object]) -> str:
    """Compare what the hook knows of the complex with what PBS says now."""
    if not settings:
        return "none"
    hook_text, current_inventory = str(settings.get("inventory") or ""), inventory_now()
    if not hook_text:
        return "empty, so no job is changed (run: advisor hook install)"
    if current_inventory is None:
        return "not compared: PBS does not answer"
    up_to_date = hook_text == current_inventory.text() and settings.get("away") == list(
        current_inventory.away
    )
    return "current" if up_to_date else "old (run: advisor hook install)"


def check_steps(
    settings: Mapping[str, object], frequency_steps: Mapping[str, tuple[int, ...]]
) -> str:
    """Compare the caps that the hook lets through with the store's, "" when they are the same."""
    if not frequency_steps or settings.get("steps_mhz") == steps_mhz(frequency_steps):
        return ""
    return "the hook knows other frequency steps than the store (run: advisor hook install)"


def check_hosts(config: Mapping[str, object]) -> str:
    """Compare what the execution hook knows of hosts with PBS, "" when it is the same."""
    current_inventory = inventory_now()
    hook_hosts = {name: config.get(name) for name in ("parted", "sharings")}
    if current_inventory is None or hook_hosts.items() <= execjob_config(current_inventory).items():
        return ""
    return "the execution hook knows other hosts or sharing of them (run: advisor hook install)"


def altered(settings: Mapping[str, object]) -> Mapping[str, object]:
    """Return the last job that a hook behind the advisor's changed, and how many there were.

    ``job``, ``changed`` (names of resources, as a text), ``count``; {} where there is none. As the
    hook left it on the server's host.
    """
    path = str(settings.get("altered") or ALTERED)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return {}
        noted = json.loads(Path(path).read_text(errors="replace"))
    except (OSError, ValueError):
        return {}
    if not (isinstance(noted, dict) and isinstance(noted.get("changed"), list)):
        return {}
    changed = ", ".join(str(name) for name in noted["changed"])
    return {"job": noted.get("job"), "changed": changed, "count": noted.get("count")}


def check_table(settings: Mapping[str, object]) -> str:
    """Compare the hook's list of resources with this release's, "" when they are the same."""
    hook_resources = settings.get("resources")
    if isinstance(hook_resources, list) and set(hook_resources) == set(pbs_table.RESOURCES):
        return ""
    return "the hook knows other resources than this release (run: advisor hook install)"


def strange_resources(inventory: HookInventory | None) -> list[str]:
    """Return the site's own resources that leave a job alone which asks for them.

    Raises SchedulerError.
    """
    kinds = inventory.host_resources if inventory is not None else ()
    site_resources = pbs_control.custom_resources()
    text = ("string", "string_array", "boolean")
    return pbs_table.strange(
        site_resources,
        {n for n, (kind, _) in site_resources.items() if n in kinds and kind in text},
    )


def breaker(settings: Mapping[str, object]) -> str:
    """Say whether submissions ask the daemon now (on the server's host)."""
    retry = settings.get("retry_s")
    retry_s = retry if isinstance(retry, int | float) else 30
    path = str(settings.get("breaker") or BREAKER)
    try:
        status = os.lstat(path)
    except OSError:
        return "closed"
    age = time.time() - status.st_mtime
    if not stat.S_ISREG(status.st_mode) or not -1 <= age < retry_s:
        return "closed"
    return f"open: the daemon hung {age:.0f} s ago, asked again in {retry_s - age:.0f} s"
