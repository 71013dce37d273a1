"""``advisor hook``: install, remove or look at a scheduler's hook."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.arguments import add_action, add_actions
from advisor.cli.output import print_json
from advisor.errors import AdvisorError, UsageError
from advisor.paths import config_dir, socket_path, store_path

if TYPE_CHECKING:
    from advisor.schedulers.plan import Plan

DEADLINE_LIMIT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    actions = add_actions(parser)
    install = add_action(actions, "install", "put the hook into the scheduler, and keep your own")
    remove = add_action(actions, "remove", "take the hook out and put your own back")
    status = add_action(actions, "status", "show what is installed and whether the daemon answers")
    for action in (install, remove, status):
        action.add_argument(
            "--scheduler", choices=["slurm", "pbs"], default="slurm",
            help="whose hook (default: slurm)",
        )  # fmt: skip
        action.add_argument(
            "--dir", type=Path, metavar="DIR",
            help="Slurm: the folder of slurm.conf (default: that of SLURM_CONF, else /etc/slurm); "
            "PBS: where to keep what is imported (default: pbs in the configuration's folder)",
        )  # fmt: skip
        action.add_argument(
            "--login", type=Path, metavar="DIR",
            help="PBS: only the program that goes before qsub, in DIR on a login node",
        )  # fmt: skip
    for action in (install, status):
        action.add_argument(
            "--socket", metavar="FILE", help="the daemon's socket (or ADVISOR_SOCKET)"
        )
    install.add_argument(
        "--deadline", default="250ms", metavar="TIME",
        help="the longest that a submission waits for the daemon (default: 250ms)",
    )  # fmt: skip
    install.add_argument(
        "--retry", type=int, default=30, metavar="S",
        help="after a daemon that hung, ask again after so many seconds (default: 30)",
    )  # fmt: skip
    for action in (install, remove):
        action.add_argument(
            "--dry-run", action="store_true", help="show what would be done, do nothing"
        )


def run(args: argparse.Namespace) -> int:
    """Do one action."""
    if args.action == "install" and args.retry < 1:
        raise UsageError("--retry is at least 1 second")
    if args.login is not None and args.scheduler != "pbs":
        raise UsageError("--login is for --scheduler pbs: Slurm's filter runs in sbatch itself")
    side = _Pbs(args) if args.scheduler == "pbs" else _Slurm(args)
    if args.action == "status":
        report, lines = side.status()
        if args.json:
            print_json("hook", {"action": "status", "scheduler": args.scheduler, **report})
        else:
            print("\n".join(lines))
        return 0
    plan = side.plan()
    if not args.json:
        _say(args, plan)
    if not args.dry_run:
        plan.run()
    if args.json:
        print_json(
            "hook",
            {
                "action": args.action,
                "scheduler": args.scheduler,
                "dir": str(side.folder),
                "done": not args.dry_run,
                "steps": plan.lines,
                "notes": plan.notes,
                "kept": plan.kept,
            },
        )
    elif not args.dry_run:
        for name in plan.kept:
            print(f"note: {name} stays for now, it is in use (run this again later)")
        print("done" if plan.lines else "nothing to do")
    return 0


def _say(args: argparse.Namespace, plan: Plan) -> None:
    for line in plan.lines:
        print(f"{'would ' if args.dry_run else ''}{line}")
    for note in plan.notes:
        print(f"note: {note}")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)?", text.strip())
    value = float(match[1]) * (0.001 if match[2] == "ms" else 1.0) if match else 0.0
    if not 0 < value <= DEADLINE_LIMIT_S:
        raise UsageError(
            f"--deadline {text} is not a time from 1ms to {DEADLINE_LIMIT_S:g}s", hint="as 250ms"
        )
    return value


class _Slurm:
    """The hooks in the folder of slurm.conf."""

    def __init__(self, args: argparse.Namespace) -> None:
        from advisor.schedulers.slurm_hooks import find_folder

        conf = os.environ.get("SLURM_CONF", "")
        self._args = args
        self.folder = find_folder(args.dir or (Path(conf).parent if conf else Path("/etc/slurm")))

    def plan(self) -> Plan:
        """Plan install or remove."""
        from advisor.schedulers.slurm_hook_files import HookSettings
        from advisor.schedulers.slurm_hook_state import cluster_of
        from advisor.schedulers.slurm_hooks import plan_install, plan_remove
        from advisor.store.reader import understood_options

        args = self._args
        if args.action == "remove":
            return plan_remove(self.folder)
        settings = HookSettings(
            socket_path(args.socket).absolute(),
            _seconds(args.deadline),
            args.retry,
            understood=understood_options(store_path(args.db)),
        )
        return plan_install(self.folder, settings, cluster_of(self.folder))

    def status(self) -> tuple[dict[str, object], list[str]]:
        """Return what is installed, for programs and for people."""
        from advisor.schedulers import slurm_hook_state as state
        from advisor.schedulers.slurm_hooks import read_hooks

        hooks = read_hooks(self.folder)
        modules = state.modules_folder(self.folder, hooks)
        settings = state.read_settings(modules)
        socket = Path(self._args.socket or str(settings.get("socket") or socket_path(None)))
        retry = settings.get("retry", 30)
        report: dict[str, object] = {
            "modules": state.check_modules(modules),
            "inventory": state.check_inventory(modules, state.cluster_of(self.folder))
            if modules
            else "none",
            "daemon": _daemon(socket),
            "breaker": state.breaker(retry if isinstance(retry, int) else 30),
        }
        lines = [f"{self.folder / h.name}: {h.words()}" for h in hooks]
        lines += [f"{key}: {value}" for key, value in report.items()]
        found = {h.name: h.to_dict() for h in hooks}
        return {
            "dir": str(self.folder), "settings": settings, **report, "hooks": found,
        }, lines  # fmt: skip


class _Pbs:
    """The hooks and resources of a PBS server, or the program before qsub on a login node."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.folder: Path = args.login or args.dir or config_dir(args.config_dir) / "pbs"
        self.folder = self.folder.absolute()

    def plan(self) -> Plan:
        """Plan install or remove."""
        from advisor.schedulers import pbs_hooks as hooks
        from advisor.schedulers.pbs_hook_state import inventory_now
        from advisor.store.reader import understood_options

        args = self._args
        if args.login is not None:
            install = args.action == "install"
            return (hooks.plan_client if install else hooks.plan_client_removal)(self.folder)
        if args.action == "remove":
            return hooks.plan_remove(self.folder)
        settings = hooks.HookSettings(
            socket_path(args.socket).absolute(),
            _seconds(args.deadline),
            args.retry,
            understood=understood_options(store_path(args.db)),
        )
        return hooks.plan_install(self.folder, settings, inventory_now())

    def status(self) -> tuple[dict[str, object], list[str]]:
        """Return what is installed, for programs and for people."""
        from advisor.schedulers import pbs_hook_state as state
        from advisor.schedulers.pbs_hooks import client_state

        if self._args.login is not None:
            path = self.folder / "qsub"
            words = {"advisor": "goes before qsub", "foreign": "not the advisor's"}
            said = words.get(client_state(path), "not there")
            return {"client": said}, [f"{path}: {said}"]
        found = state.look()
        settings = found.settings
        socket = Path(self._args.socket or str(settings.get("socket") or socket_path(None)))
        report: dict[str, object] = {
            "resources": state.check_resources(),
            "inventory": state.check_inventory(settings),
            "daemon": _daemon(socket),
            "breaker": state.breaker(settings),
        }
        lines = [f"hook {h.name}: {state.words(h)}" for h in found.hooks]
        lines += [f"{key}: {value}" for key, value in report.items()]
        shown = {h.name: state.to_dict(h) for h in found.hooks}
        short = {k: v for k, v in settings.items() if k not in ("inventory", "host_resources")}
        return {"settings": short, **report, "hooks": shown}, lines


def _daemon(socket: Path) -> str:
    from advisor.service.protocol import call

    try:
        answer = call(socket, {"v": 1, "op": "ping"}, timeout_s=2.0)
    except AdvisorError as error:
        return str(error)
    return f"advisor {answer.get('version')} answers at {socket}"
