"""PBS's side of ``advisor hook``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from advisor.errors import UsageError
from advisor.paths import socket_path
from advisor.schedulers.base import ClientReport, HookReport, HookRequest
from advisor.schedulers.pbs import hook_state as state
from advisor.schedulers.pbs import hooks
from advisor.schedulers.plan import Plan


class PbsHooks:
    """The hooks and resources of a PBS server, or the program before qsub on a login node."""

    def __init__(self, request: HookRequest) -> None:
        if request.node_cap:
            raise UsageError("--node-cap is for Slurm: PBS's own hook on the nodes sets every cap")
        self._request = request
        folder = request.login or request.folder or request.config_dir / "pbs"
        self.folder = folder.absolute()

    def plan(self) -> Plan:
        """Plan install or remove."""
        request = self._request
        if request.login is not None:
            if request.action == "install":
                return hooks.plan_client(self.folder, socket_path(request.socket).absolute())
            return hooks.plan_client_removal(self.folder)
        if request.action == "remove":
            return hooks.plan_remove(self.folder)
        socket = socket_path(request.socket).absolute()
        settings = hooks.PbsHookSettings(
            socket,
            request.deadline_s,
            request.retry_s,
            understood=request.understood,
            frequency_steps=request.frequency_steps,
        )
        return hooks.plan_install(self.folder, settings, state.inventory_now())

    def status(self, ping: Callable[[Path], str]) -> tuple[HookReport | ClientReport, list[str]]:
        """Return what is installed, for programs and for people."""
        if self._request.login is not None:
            path = self.folder / "qsub"
            words: dict[str, ClientReport] = {
                "advisor": {"client": "goes before qsub"},
                "foreign": {"client": "not the advisor's"},
            }
            login = words.get(hooks.client_state(path), {"client": "not there"})
            return login, [f"{path}: {login['client']}"]
        hook_state = state.look()
        settings = hook_state.settings
        socket = Path(self._request.socket or str(settings.get("socket") or socket_path(None)))
        short = {k: v for k, v in settings.items() if k not in ("inventory", "host_resources")}
        report: HookReport = {
            "settings": short,
            "resources": state.check_resources(),
            "inventory": state.check_inventory(settings),
            "daemon": ping(socket),
            "breaker": state.breaker(settings),
            "hooks": {h.name: state.to_dict(h) for h in hook_state.hooks},
        }
        lines = [f"hook {h.name}: {state.words(h)}" for h in hook_state.hooks]
        lines += [f"resources: {report['resources']}", f"inventory: {report['inventory']}"]
        lines += [f"daemon: {report['daemon']}", f"breaker: {report['breaker']}"]
        return report, lines
