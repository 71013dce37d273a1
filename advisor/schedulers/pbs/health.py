"""Check what of PBS the advisor lives by: the server, its resources, its hooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from advisor import __version__
from advisor.core.check import Check
from advisor.core.request import plain_name
from advisor.errors import SchedulerError
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.pbs import hook_state as state
from advisor.schedulers.pbs.hooks import EXECJOB, LATER_EVENTS, QUEUEJOB, RESOURCES, Installed
from advisor.schedulers.pbs.qsub import default_variables

_INSTALL = "advisor hook install --scheduler pbs"
_DOES = {QUEUEJOB: "jobs run as written", EXECJOB: "no job is capped or metered"}


def check_scheduler(understood: Collection[str] = ()) -> tuple[Mapping[str, Any], list[Check]]:
    """Return the server's attributes ({} where there is none) and the checks of it.

    ``understood``: resources in no table that the site knows.
    """
    try:
        server = pbs_control.server()
    except SchedulerError as error:
        todo = "nothing, if this machine only uses --scheduler local"
        return {}, [Check("pbs", "warn", f"PBS does not answer here: {error.message}", todo)]
    return server, [*_server(server), *_resources(understood)]


def _server(server: Mapping[str, Any]) -> Iterator[Check]:
    version = f"PBS {server.get('pbs_version', '')}".strip()
    yield Check("pbs", "ok", f"{version}, server {server.get('name', '?')}")
    if not pbs_control.truthy(server.get("job_history_enable", "False")):
        yield Check(
            "accounting",
            "fail",
            "PBS forgets jobs as they end, so nothing can be collected",
            'qmgr -c "set server job_history_enable=True"',
        )
        return
    try:
        default_variables(server)
    except ValueError as error:
        yield Check(
            "login",
            "warn",
            f"{error}, so the login nodes' part adds nothing to a job without a -v of its own: "
            "what its script runs stays unknown",
            'qmgr -c "set server default_qsub_arguments = ..." with options alone, and no -C',
        )
    lasts = server.get("job_history_duration", "336:00:00")
    yield Check("accounting", "ok", f"finished jobs are kept for {lasts}: collect more often")


def _resources(understood: Collection[str]) -> Iterator[Check]:
    try:
        server_resources = pbs_control.custom_resources()
    except SchedulerError as error:
        yield Check("resources", "warn", error.message, error.hint)
        return
    absent_names = [name for name in RESOURCES if name not in server_resources]
    if absent_names:
        yield Check("resources", "warn", f"there is no {', '.join(absent_names)}", _INSTALL)
    else:
        yield Check("resources", "ok", f"{', '.join(RESOURCES)} are there")
    inventory = state.inventory_now()
    strange = [n for n in state.strange_resources(inventory) if plain_name(n) not in understood]
    if strange:
        yield Check(
            "resources",
            "ok",
            f"the advisor does not change jobs that ask for {', '.join(strange)}: it does not know "
            "what they bind",
            f"site.yaml: understood_options: {{{strange[0]}: harmless}}, or binds: [axes]",
        )
    if inventory is not None and inventory.unscheduled:
        yield Check(
            "scheduler",
            "warn",
            f"sched_config does not list {', '.join(inventory.unscheduled)}: jobs that ask for it "
            "may run on any node",
            "add it to the line `resources:` in sched_config, then kill -HUP pbs_sched",
        )


def check_hooks(
    settings: Mapping[str, Any], frequency_steps: Mapping[str, tuple[int, ...]]
) -> tuple[str | None, list[Check]]:
    """Return the socket that the queuejob hook asks (None: it is not at work), and the checks."""
    try:
        hook_state = state.look()
    except SchedulerError as error:
        return None, [Check("hook", "warn", error.message, error.hint or "run this as root")]
    checks = [check for hook in hook_state.hooks for check in (_hook(hook), *_events(hook))]
    settings = hook_state.settings
    if settings:
        inventory_state = state.check_inventory(settings)
        if inventory_state != "current":
            checks.append(
                Check(
                    "hook",
                    "warn",
                    f"the hook's list of nodes and resources: {inventory_state}",
                    _INSTALL,
                )
            )
        exec_config = hook_state.hooks[1].config or {}
        for old in (
            state.check_table(settings),
            state.check_steps(settings, frequency_steps),
            state.check_hosts(exec_config) if hook_state.hooks[1].state == "advisor" else "",
        ):
            if old:
                checks.append(Check("hook", "warn", old, _INSTALL))
        if last := state.altered(settings):
            checks.append(
                Check(
                    "hook",
                    "warn",
                    f"a hook behind the advisor's changed {last['count']} jobs that it had "
                    f"rewritten, {last['job']} last ({last['changed']}): "
                    "they ran without its changes",
                    "give hook advisor a higher order than that hook has, then "
                    f"rm {settings.get('altered') or state.ALTERED}",
                )
            )
        breaker = state.breaker(settings)
        if breaker != "closed":
            checks.append(
                Check("hook", "warn", breaker, "check the daemon: advisor doctor on its host")
            )
    at_work = hook_state.hooks[0].enabled and settings.get("socket")
    return str(settings["socket"]) if at_work else None, checks


def _events(hook: Installed) -> Iterator[Check]:
    """Say what goes without the events that a hook is not called for."""
    if hook.state != "advisor" or not hook.code.strip():
        return
    lacking_events = [event for event in hook.lacks if event not in LATER_EVENTS]
    if lacking_events:
        yield Check("hook", "warn", f"hook {hook.name} lacks {', '.join(lacking_events)}", _INSTALL)
    for event in hook.lacks:
        if event in LATER_EVENTS:
            yield Check("hook", "ok", f"{hook.name} has no {event}: {LATER_EVENTS[event]}")


def _hook(hook: Installed) -> Check:
    if hook.state == "foreign":
        return Check(
            "hook", "warn", f"the server's hook {hook.name} is not the advisor's", _INSTALL
        )
    if hook.state == "absent":
        return Check("hook", "warn", f"there is no hook {hook.name}: {_DOES[hook.name]}", _INSTALL)
    if not hook.enabled:
        return Check(
            "hook",
            "warn",
            f"hook {hook.name} is not enabled: {_DOES[hook.name]}",
            f'qmgr -c "set hook {hook.name} enabled=true"',
        )
    if not hook.of_this_release:
        return Check(
            "hook",
            "warn",
            f"hook {hook.name} ({hook.version}) is not that of this advisor ({__version__})",
            _INSTALL,
        )
    return Check("hook", "ok", f"{hook.name} is installed ({hook.version}) and on")
