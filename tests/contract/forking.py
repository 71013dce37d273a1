"""Make many calls of ``advisor`` from one interpreter: load once, fork for each.

`python forking.py PLAN`, where PLAN is JSON: the calls, and what the shell that starts this has
closed. Each call gets its variables, its folder and its output, and ends with what an interpreter
does for its output at its end. The exit codes then stand in PLAN. Without PLAN it reads such files'
names from standard input, line by line, and prints each when its calls are done.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from advisor.cli import build_parser, main

HEAVY = (
    "numpy",
    "pandas",
    "scipy.stats",
    "statsmodels.api",
    "patsy",
    "yaml",
    "rich.table",
    "pydantic",
    "ClusterShell.NodeSet",
    "advisor_lab.evaluation.compare_models",
    "advisor.loop.report",
    "advisor.loop.why",
    "advisor.policy.fields",
    "advisor.policy.schema",
    "advisor.ranking.rank",
    "advisor.training.planning",
    "advisor.views.explain",
)
"""What calls load when they need it."""
FEW = 5
"""So many calls load it themselves."""


def redirect(number: int, target: int) -> None:
    """Let descriptor ``number`` be the open file ``target``."""
    if target != number:
        os.dup2(target, number)
        os.close(target)


def enter(job: dict[str, Any], closed: str) -> None:
    """Become the call: its folder, its variables, its output. What is closed stays closed."""
    os.environ.clear()
    os.environ.update(job["variables"])
    os.chdir(job["place"])
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    if "2>&-" not in closed:
        redirect(2, os.open("err", new))
    if ">&-" in closed.replace("2>&-", ""):
        return
    if job["to"] == "gone":
        reader, writer = os.pipe()
        os.close(reader)
        redirect(1, writer)
    else:
        redirect(1, os.open(job["to"] or "out", new))


def call(argv: list[str]) -> NoReturn:
    """Make a call and end as an interpreter does, without taking all of its modules apart."""
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    try:
        if not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        print(f"Exception ignored in: {sys.stdout!r}: {error}", file=sys.stderr)
        code = 120
    os._exit(code)


def run(plan: Path) -> None:
    """Fork for each call; the parent writes the exit codes."""
    data = json.loads(plan.read_text())
    for name in HEAVY if len(data["jobs"]) > FEW else ():
        importlib.import_module(name)
    gc.freeze()
    codes = []
    for job in data["jobs"]:
        child = os.fork()
        if child == 0:
            enter(job, data["closed"])
            call(job["argv"])
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    plan.write_text(json.dumps(codes))


def serve() -> None:
    """Make the calls of one plan after another."""
    for line in iter(sys.stdin.readline, ""):
        run(Path(line.rstrip("\n")))
        print(line, end="", flush=True)


if __name__ == "__main__":
    build_parser("*")
    if sys.argv[1:]:
        run(Path(sys.argv[1]))
    else:
        serve()
