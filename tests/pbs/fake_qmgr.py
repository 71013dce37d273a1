"""qmgr: resources, hooks, queues and the server's attributes."""

from __future__ import annotations

import base64
import getopt
import os
import pwd
import re
import sys
from pathlib import Path
from typing import Any

from fake_server import Complex, Refusal

EVENTS = [
    "queuejob",
    "postqueuejob",
    "modifyjob",
    "resvsub",
    "movejob",
    "runjob",
    "periodic",
    "execjob_begin",
    "execjob_prologue",
    "execjob_epilogue",
    "execjob_end",
    "execjob_preterm",
    "execjob_launch",
    "exechost_periodic",
    "exechost_startup",
    "execjob_attach",
    "execjob_resize",
    "execjob_abort",
    "execjob_postsuspend",
    "execjob_preresume",
]
"""What release 23.06 knows; an older one's are in the state as "hook_events"."""


def qmgr(pbs: Complex, argv: list[str]) -> int:
    given, _ = getopt.getopt(argv, "c:")
    lines = [given[-1][1]] if given else sys.stdin.read().splitlines()
    code = 0
    for line in lines:
        try:
            with pbs.locked() as state:
                manage(pbs, state, line.strip())
        except Refusal as refusal:
            print(refusal, file=sys.stderr)
            code = refusal.code
    return code


def manage(pbs: Complex, state: dict[str, Any], line: str, *, log: bool = True) -> None:
    if not line or line.startswith("#"):
        return
    if log:
        pbs.log(f"qmgr {line}")
    verb, kind, *rest = line.split(None, 2)
    words = rest[0] if rest else ""
    name, _, tail = words.partition(" ")
    hooks, resources = state["hooks"], state["resources"]
    user = pwd.getpwuid(os.getuid()).pw_name
    if kind == "hook" and user != state.get("hooks_for", user):  # PBS: root on the server's host
        raise hook_failed(
            name, f"{user}@pbs1 is unauthorized to access hooks data from server pbs1"
        )
    if verb == "list" and kind == "server":
        print(f"Server pbs1\n    default_queue = {state['server']['default_queue']}\n")
    elif verb == "list" and kind == "resource":
        for key in [name] if name else resources:
            if key not in resources:
                raise failed(key, "Unknown resource", 15035)
            print(f"Resource {key}")
            for attribute, value in resources[key].items():
                print(f"    {attribute} = {value}")
            print()
    elif verb == "list" and kind == "hook":
        for key in [name] if name else hooks:
            if key not in hooks:
                raise hook_failed(key, "hook not found")
            print(f"Hook {key}\n    type = site")
            for attribute in ("enabled", "event", "alarm", "freq", "order", "fail_action"):
                if attribute in hooks[key]:
                    value = hooks[key][attribute]
                    shown = ",".join(value) if isinstance(value, list) else value
                    print(wrapped(f"    {attribute} = {shown}"))
            print()
    elif verb == "create" and kind == "resource":
        if name in resources:
            raise failed(name, "Duplicate entry in list ", 15055)
        resources[name] = dict(w.strip().split("=", 1) for w in tail.split(","))
    elif verb == "delete" and kind == "resource":
        if name not in resources:
            raise failed(name, "Unknown resource", 15035)
        if any(name in j["Resource_List"] for j in state["jobs"].values()):
            raise failed(name, "Resource busy on job", 15174)
        del resources[name]
    elif verb == "create" and kind == "hook":
        if name in hooks:
            raise hook_failed(name, f"hook name '{name}' already registered, try another name")
        hooks[name] = {
            "name": name,
            "enabled": "true",
            "event": [],
            "alarm": "30",
            "order": "1",
        }
        if tail:
            set_hook(state, hooks[name], tail)
    elif verb == "delete" and kind == "hook":
        if name not in hooks:
            raise hook_failed(name, f"{name} does not exist!")
        del hooks[name]
        for kept in pbs.hooks.glob(f"{name}.*"):
            kept.unlink()
    elif verb == "set" and kind == "hook":
        set_hook(state, hooks[name], tail)
    elif verb == "import" and kind == "hook":
        form, encoding, path = tail.split()
        data = Path(path).read_bytes()
        text = base64.b64decode(data) if encoding == "base64" else data
        hooks[name]["config" if form == "application/x-config" else "code"] = text.decode()
        suffix = "CF" if form == "application/x-config" else "PY"
        (pbs.hooks / f"{name}.{suffix}").write_bytes(text)
    elif verb == "export" and kind == "hook":
        form = tail.split()[0]
        if name not in hooks:
            raise hook_failed(name, "hook not found")
        text = hooks[name].get("config" if form == "application/x-config" else "code", "")
        (pbs.hooks / "tmp" / f"qmgr_hook{os.getpid()}").write_text(text)  # PBS leaves it there
        print(text, end="")
    elif kind in ("server", "queue") and verb in ("set", "unset", "create", "delete"):
        manage_attributes(state, verb, kind, words)
    else:
        raise Refusal(f"qmgr: Syntax error - cannot locate attribute\n{line}")


def manage_attributes(state: dict[str, Any], verb: str, kind: str, words: str) -> None:
    """Change a queue or the server: ``set queue q resources_max.ncpus = 4``."""
    name, _, rest = words.partition(" ") if kind == "queue" else ("", "", words)
    if verb == "delete":
        del state["queues"][name]
        return
    if verb == "create":
        state["queues"][name] = {"queue_type": "", "enabled": "False", "started": "False"}
    elif kind == "queue" and name not in state["queues"]:
        raise failed(name, "Unknown queue", 15018)
    owner = state["queues"][name] if kind == "queue" else state["server"]
    for part in filter(None, [rest] if '"' in rest or verb != "create" else rest.split(",")):
        key, _, value = (p.strip() for p in part.partition("="))
        value = value.strip('"')
        key, _, resource = key.partition(".")
        if key in ("enabled", "started", "acl_user_enable", "queue_type"):
            value = value.capitalize()
        if verb == "unset":
            (owner.get(key, {}).pop if resource else owner.pop)(resource or key, None)
        elif resource:
            owner.setdefault(key, {})[resource] = value
        else:
            owner[key] = value


def set_hook(state: dict[str, Any], hook: dict[str, Any], text: str) -> None:
    key, _, value = (part.strip() for part in text.partition("="))
    if key.rstrip("+ ") != "event":
        hook[key] = value
        return
    events = value.strip('"').split(",")
    for event in events:
        if event not in state.get("hook_events", EVENTS):
            raise hook_failed(
                hook["name"], f"invalid argument to event. Should be one or more of: {EVENTS[0]}, "
            )
    hook["event"] = [*hook["event"], *events] if key.endswith("+") else events


def wrapped(line: str) -> str:
    """Return a line as qmgr lists it: broken behind commas before the 80th column."""
    lines = [""]
    for piece in re.split(r"(?<=,)", line):
        if len(lines[-1]) + len(piece) > 78:
            lines.append("\t")
        lines[-1] += piece
    return "\n".join(lines)


def failed(name: str, why: str, number: int) -> Refusal:
    return Refusal(
        f"qmgr obj={name} svr=default: {why}\nqmgr: Error ({number}) returned from server"
    )


def hook_failed(name: str, why: str) -> Refusal:
    return Refusal(f"qmgr obj={name} svr=default: {why}\nqmgr: hook error returned from server")
