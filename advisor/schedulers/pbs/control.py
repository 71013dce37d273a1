"""Questions to a PBS server, and what ``pbs.conf`` says."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import SchedulerError
from advisor.schedulers.command import Shaping, answer, run_command

SERVERS = ("PBS_DEFAULT", "PBS_SERVER")
"""The variables by which PBS's commands ask another server than this host's."""
SHAPING = Shaping(("PBS_QSTAT_", "PBS_QMGR_"), frozenset({"PBSDEBUG", "PBS_DPREFIX"}))
"""PBS's clients write times in their own zone, without naming it."""


def conf() -> dict[str, str]:
    """Return ``pbs.conf``: where PBS's programs and its home are; empty where there is none."""
    path = Path(os.environ.get("PBS_CONF_FILE", "/etc/pbs.conf"))
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    settings = {}
    for line in lines:
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            settings[key.strip()] = value.strip().strip("\"'")
    return {**settings, **{k: v for k, v in os.environ.items() if k in ("PBS_HOME", "PBS_EXEC")}}


def program(name: str) -> str:
    """Return where a command of PBS is: in PATH, else below PBS_EXEC. Raises SchedulerError."""
    path = shutil.which(name)
    if path is None:
        folder = conf().get("PBS_EXEC", "/opt/pbs")
        path = shutil.which(name, path=f"{folder}/bin:{folder}/sbin")
    if path is None:
        raise SchedulerError(
            f"{name} is not in PATH",
            hint="run this where PBS's commands are; --scheduler local takes this machine alone",
        )
    return path


def ask(name: str, *arguments: str, timeout_s: float = 60.0) -> str:
    """Run a command of PBS and return its stdout. Raises SchedulerError with its stderr."""
    return run_command([program(name), *arguments], SHAPING, timeout_s=timeout_s)


def qmgr(command: str, timeout_s: float = 60.0) -> str:
    """Run one command of qmgr and return its stdout. Raises SchedulerError with what it says."""
    reply = answer([program("qmgr"), "-c", command], SHAPING.environment(), timeout_s)
    if reply.code == 0:
        return reply.out
    message = next(iter(reply.err.strip().splitlines()), f"exit code {reply.code}")
    message = re.sub(r"^qmgr obj=\S* svr=\S*: ", "", message)
    if "unauthorized" in message or "Unauthorized" in message:
        raise SchedulerError(f"qmgr: {message.strip()}", hint="run this as root on the PBS server")
    raise SchedulerError(f"qmgr: {message.strip()}")


def ask_json(name: str, *arguments: str, timeout_s: float = 60.0) -> dict[str, Any]:
    """Run a command that answers in JSON. Raises SchedulerError for an answer that is none."""
    text = ask(name, "-F", "json", *arguments, timeout_s=timeout_s)
    try:
        # Control characters in what users write stand in PBS's JSON as they are.
        data = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise SchedulerError(f"{name} -F json answered no JSON: {error}") from None
    if not isinstance(data, dict):
        raise SchedulerError(f"{name} -F json answered something else than an object")
    return data


def server() -> Mapping[str, Any]:
    """Return the server's attributes. Raises SchedulerError when it cannot be asked."""
    servers = ask_json("qstat", "-B", "-f", timeout_s=20).get("Server")
    if not isinstance(servers, dict) or not servers:
        raise SchedulerError("qstat -B lists no server")
    name, attributes = next(iter(servers.items()))
    return {"name": name, **attributes} if isinstance(attributes, dict) else {"name": name}


def custom_resources() -> dict[str, tuple[str, str]]:
    """Return the site's own resources: type and flags by name. Raises SchedulerError."""
    resources: dict[str, tuple[str, str]] = {}
    name = ""
    for line in qmgr("list resource").splitlines():
        if line.startswith("Resource "):
            name = line.removeprefix("Resource ").strip()
            resources[name] = ("", "")
        elif match := re.match(r"\s+(type|flag) = (\S+)", line):
            kind, flags = resources.get(name, ("", ""))
            resources[name] = (match[2], flags) if match[1] == "type" else (kind, match[2])
    return resources


def scheduled_resources() -> frozenset[str] | None:
    """Return the resources that PBS's scheduler looks at, None where its file is not here.

    A text resource that ``sched_config`` does not list is silently ignored: jobs that ask for
    it run anywhere.
    """
    home = conf().get("PBS_HOME")
    path = Path(home or "/var/spool/pbs") / "sched_priv" / "sched_config"
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^\s*resources:\s*\"?([^\"\n]*)\"?", text, re.MULTILINE)
    return frozenset(re.split(r"[,\s]+", match[1].strip()) if match else ())


@dataclass(frozen=True, slots=True)
class PbsJobHere:
    """The job of PBS that this process runs in, by its list of nodes."""

    nodefile: Path

    @classmethod
    def find(cls) -> PbsJobHere | None:
        """Return the job that the environment names, None outside of jobs."""
        name = os.environ.get("PBS_NODEFILE", "")
        return cls(Path(name)) if name else None

    def nodes(self) -> int:
        """Return how many nodes it has; 1 where nothing says so."""
        try:
            return max(1, len(set(self.nodefile.read_text(errors="replace").split())))
        except OSError:
            return 1

    def steps(self) -> list[str]:
        """Return none: PBS has no steps of its own."""
        return []

    def signal(self, step: str, number: signal.Signals) -> None:
        """Do nothing: there are no steps."""


def truthy(value: object) -> bool:
    """Tell whether PBS says True, as text or in JSON."""
    return value is True or str(value).lower() in ("true", "1")
