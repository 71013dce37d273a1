"""A PBS made of files: qsub, qstat, qdel, pbsnodes and qmgr in a folder for PATH.

Answers have the shapes recorded from OpenPBS 23.06.06, its faults included (of several ids,
qstat's JSON has the first alone; the last -v counts; a resource in use is not deleted). What a
request becomes after its hooks, and where it would run, is admission.py's. Jobs really run, as
processes; hooks that were imported run in fresh interpreters, server hooks at qsub, execution
hooks around the job, on a posed /sys.

    python fake_pbs.py ROOT PROGRAM ARGUMENTS...
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from fake_mom import mom
from fake_qmgr import qmgr
from fake_qstat import pbsnodes, qdel, qstat
from fake_qsub import qsub
from fake_server import Complex, Refusal

HERE = Path(__file__).resolve().parent
PROGRAMS = ("qsub", "qstat", "qdel", "pbsnodes", "qmgr")


def install(root: Path, *, nodes: dict[str, dict[str, Any]] | None = None) -> Path:
    """Make a complex in a folder; return the folder of its programs, for PATH."""
    for name in ("bin", "spool", "hooks", "sys", "home/server_priv/hooks/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        path = root / "bin" / program
        path.write_text(text_of(root, program))
        path.chmod(0o755)
    state = {
        "next": 1,
        "jobs": {},
        "nodes": nodes or {"n1": {"ncpus": 28, "mem": "65536000kb", "node_type": "bdw"}},
        "given": {},
        "queues": {
            "workq": {"queue_type": "Execution", "enabled": "True", "started": "True"},
        },
        "server": {
            "server_state": "Active",
            "default_queue": "workq",
            "job_history_enable": "True",
        },
        "resources": {"node_type": {"type": "string", "flag": "h"}},
        "hooks": {},
    }
    (root / "server.json").write_text(json.dumps(state))
    return root / "bin"


def text_of(root: Path, program: str) -> str:
    """Return the script that is a program of the complex."""
    words = shlex.join([sys.executable, "-S", str(HERE / "fake_pbs.py"), str(root), program])
    return f'#!/bin/sh\nexec {words} "$@"\n'


def run(root: Path, program: str, argv: list[str]) -> int:
    """Run a program of the complex; return its exit code."""
    programs = {
        "qsub": qsub,
        "qstat": qstat,
        "qdel": qdel,
        "pbsnodes": pbsnodes,
        "qmgr": qmgr,
        "mom": mom,
    }
    try:
        return programs[program](Complex(root), argv)
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
