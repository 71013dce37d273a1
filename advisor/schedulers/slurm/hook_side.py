"""Slurm's side of ``advisor hook``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from advisor.errors import UsageError
from advisor.paths import socket_path
from advisor.schedulers.base import HookReport, HookRequest
from advisor.schedulers.plan import Plan
from advisor.schedulers.slurm import hook_state as state
from advisor.schedulers.slurm.hook_files import SlurmHookSettings
from advisor.schedulers.slurm.hooks import find_folder, plan_install, plan_remove, read_hooks


class SlurmHooks:
    """The hooks in the folder of slurm.conf. Raises UsageError for what only PBS has."""

    def __init__(self, request: HookRequest) -> None:
        if request.login is not None:
            raise UsageError("--login is for PBS: Slurm's filter runs in sbatch itself")
        conf = os.environ.get("SLURM_CONF", "")
        self._request = request
        usual = Path(conf).parent if conf else Path("/etc/slurm")
        self.folder = find_folder(request.folder or usual)

    def plan(self) -> Plan:
        """Plan install or remove."""
        request = self._request
        if request.action == "remove":
            return plan_remove(self.folder)
        socket = socket_path(request.socket).absolute()
        settings = SlurmHookSettings(
            socket,
            request.deadline_s,
            request.retry_s,
            understood=request.understood,
            frequency_steps=request.frequency_steps,
            axes=request.axes,
            axis_steps=request.axis_steps,
            node_cap=request.node_cap,
        )
        return plan_install(self.folder, settings, state.cluster_of(self.folder))

    def status(self, ping: Callable[[Path], str]) -> tuple[HookReport, list[str]]:
        """Return what is installed, for programs and for people."""
        hooks = read_hooks(self.folder)
        modules = state.modules_folder(self.folder, hooks)
        settings = state.read_settings(modules)
        socket = Path(self._request.socket or str(settings.get("socket") or socket_path(None)))
        retry = settings.get("retry", 30)
        report: HookReport = {
            "dir": str(self.folder),
            "settings": settings,
            "modules": state.check_modules(modules),
            "inventory": state.check_inventory(modules, state.cluster_of(self.folder))
            if modules
            else "none",
            "daemon": ping(socket),
            "breaker": state.breaker(retry if isinstance(retry, int) else 30),
            "hooks": {h.name: h.to_dict() for h in hooks},
        }
        lines = [f"{self.folder / h.name}: {h.words()}" for h in hooks]
        lines += [f"modules: {report['modules']}", f"inventory: {report['inventory']}"]
        lines += [f"daemon: {report['daemon']}", f"breaker: {report['breaker']}"]
        return report, lines
