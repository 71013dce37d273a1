"""The state of the complex that fake_pbs.py makes, and its hooks."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import admission
import interpreters

TYPES = {"long": "int", "string": "str", "size": "size", "boolean": "str", "float": "str"}


class Refusal(Exception):
    """What a program says on stderr, and its exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Complex:
    """The state of the whole complex: one JSON file under a lock."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        with (self.root / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.root / "server.json"
            state = json.loads(path.read_text())
            before = json.dumps(state)
            yield state
            if json.dumps(state) != before:
                partial = path.with_name("server.new")
                partial.write_text(json.dumps(state))
                partial.replace(path)

    @property
    def hooks(self) -> Path:
        """Where the server keeps what was imported."""
        return self.root / "home" / "server_priv" / "hooks"

    def log(self, text: str) -> None:
        with (self.root / "log").open("a") as file:
            file.write(text + "\n")


def types(state: dict[str, Any]) -> dict[str, str]:
    """Return the types of the site's own resources, as hooks see them."""
    return {n: TYPES[r["type"]] for n, r in state["resources"].items()}


def say_no(program: str, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except admission.RefusedError as error:
        raise Refusal(f"{program}: {error}") from None


def run_hook(pbs: Complex, hook: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    """Run a hook as PBS does, in an interpreter of its own."""
    environment = {"PATH": "/usr/bin:/bin"}
    if hook.get("config"):
        path = pbs.root / "hooks" / f"{hook['name']}.CF"
        path.write_text(hook["config"])
        environment["PBS_HOOK_CONFIG_FILE"] = str(path)
    source = pbs.root / "hooks" / f"{hook['name']}.PY"
    source.write_text(hook["code"])
    event = {
        **event,
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "conf": {"PBS_HOME": str(pbs.root / "home")},
        "node": "n1",
    }
    done = interpreters.run(source, json.dumps([event]), environment, Path.cwd())
    if done.returncode:
        raise Refusal(f"hook {hook['name']}: {done.stderr}")
    outcome: dict[str, Any] = json.loads(done.stdout)[0]
    for line in [*outcome["log"], *filter(None, [outcome["failure"]])]:
        pbs.log(line)
    return outcome


def on(hook: dict[str, Any]) -> bool:
    return bool(hook.get("code")) and str(hook.get("enabled", "true")).lower() == "true"


TIMES = ("ctime", "stime", "obittime")
"""Attributes of a job that are kept in seconds; clients show them in their own zone."""


def clock(seconds: float) -> str:
    """Return a time as a client of PBS prints it: in the zone of its environment, unnamed."""
    return time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(seconds)).replace("  ", " ")
