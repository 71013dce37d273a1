"""``advisor hook``: install, remove or look at a scheduler's hook."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.output import print_json
from advisor.errors import AdvisorError, SchedulerError, UsageError
from advisor.paths import socket_path

if TYPE_CHECKING:
    from advisor.schedulers.cluster import Cluster
    from advisor.schedulers.slurm_hooks import HookFile, Plan

DEADLINE_LIMIT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    parser.add_argument("action", choices=["install", "remove", "status"])
    parser.add_argument("--scheduler", choices=["slurm", "pbs"], default="slurm")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR",
        help="the folder of slurm.conf (default: that of SLURM_CONF, else /etc/slurm)",
    )  # fmt: skip
    parser.add_argument("--socket", help="the daemon's socket that the hook asks")
    parser.add_argument(
        "--deadline", default="250ms", metavar="T",
        help="how long a submission may wait for the daemon, all in all (default: 250ms)",
    )  # fmt: skip
    parser.add_argument(
        "--retry", type=int, default=30, metavar="S",
        help="after a daemon that hung, ask nothing for so long (default: 30 s)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")


def run(args: argparse.Namespace) -> int:
    """Do one action."""
    from advisor.schedulers.slurm_hooks import find_folder, plan_remove

    if args.scheduler == "pbs":
        raise AdvisorError(
            "the PBS hook is not available in this release", hint="--scheduler slurm is"
        )
    folder = find_folder(args.dir or _default_folder())
    if args.action == "status":
        return _status(args, folder)
    if args.action == "install":
        plan = _plan_install(args, folder)
    else:
        plan = plan_remove(folder)
    if not args.json:
        _say(args, plan)
    if not args.dry_run:
        plan.run()
    if args.json:
        print_json(
            "hook",
            {
                "action": args.action,
                "dir": str(folder),
                "done": not args.dry_run,
                "steps": plan.lines,
                "notes": plan.notes,
            },
        )
    elif not args.dry_run:
        print("done" if plan.lines else "nothing to do")
    return 0


def _default_folder() -> Path:
    conf = os.environ.get("SLURM_CONF", "")
    return Path(conf).parent if conf else Path("/etc/slurm")


def _plan_install(args: argparse.Namespace, folder: Path) -> Plan:
    from advisor.schedulers.slurm_hook_files import HookSettings
    from advisor.schedulers.slurm_hooks import plan_install

    if args.retry < 1:
        raise UsageError("--retry is at least 1 second")
    settings = HookSettings(
        socket_path(args.socket).absolute(), _seconds(args.deadline), args.retry
    )
    return plan_install(folder, settings, _cluster(folder))


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)?", text.strip())
    value = float(match[1]) * (0.001 if match[2] == "ms" else 1.0) if match else 0.0
    if not 0 < value <= DEADLINE_LIMIT_S:
        raise UsageError(
            f"--deadline {text} is not a time from 1ms to {DEADLINE_LIMIT_S:g}s", hint="as 250ms"
        )
    return value


def _cluster(folder: Path) -> Cluster | None:
    """Return what Slurm has by the slurm.conf of this folder, from the file where it is down.

    None when neither tells.
    """
    from advisor.schedulers.slurm_conf import read_conf
    from advisor.schedulers.slurm_inventory import read_cluster

    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        return read_cluster()
    except SchedulerError:
        return read_conf(folder / "slurm.conf")
    finally:
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def _say(args: argparse.Namespace, plan: Plan) -> None:
    for line in plan.lines:
        print(f"{'would ' if args.dry_run else ''}{line}")
    for note in plan.notes:
        print(f"note: {note}")


def _status(args: argparse.Namespace, folder: Path) -> int:
    from advisor.schedulers import slurm_hook_state as state
    from advisor.schedulers.slurm_hooks import read_hooks

    hooks = read_hooks(folder)
    modules = state.modules_folder(folder, hooks)
    settings = state.read_settings(modules)
    socket = Path(args.socket or str(settings.get("socket") or socket_path(None)))
    retry = settings.get("retry", 30)
    report: dict[str, object] = {
        "modules": state.check_modules(modules),
        "inventory": state.check_inventory(modules, _cluster(folder)) if modules else "none",
        "daemon": _daemon(socket),
        "breaker": state.breaker(retry if isinstance(retry, int) else 30),
    }
    if args.json:
        words = {"action": "status", "dir": str(folder), "settings": settings, **report}
        print_json("hook", {**words, "hooks": {h.name: _hook(h) for h in hooks}})
        return 0
    for hook in hooks:
        print(f"{folder / hook.name}: {_words(hook)}")
    for key, value in report.items():
        print(f"{key}: {value}")
    return 0


def _hook(hook: HookFile) -> dict[str, object]:
    return {
        "state": hook.state,
        "version": hook.version,
        "enabled": hook.enabled,
        "calls": hook.site_file.name if hook.site_file else None,
    }


def _words(hook: HookFile) -> str:
    text = {
        "advisor": f"advisor {hook.version}",
        "site": "the site's own",
        "leftover": "does nothing (left by a removal)",
        "absent": "not there",
    }[hook.state]
    if hook.site_file is not None:
        text += f", calls {hook.site_file.name}"
    return text if hook.enabled else f"{text}, but slurm.conf does not name the Lua plugin"


def _daemon(socket: Path) -> str:
    from advisor.service.protocol import call

    try:
        answer = call(socket, {"v": 1, "op": "ping"}, timeout_s=2.0)
    except AdvisorError as error:
        return str(error)
    return f"advisor {answer.get('version')} answers at {socket}"
