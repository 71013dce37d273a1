"""The command line and the daemon's decide path start without the heavy libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "numpy",
    "pandas",
    "yaml",
    "pydantic",
    "sqlite_utils",
    "textual",
    "scipy",
    "statsmodels",
    "patsy",
    "rich",
    "matplotlib",
    "ClusterShell",
)


def loaded_after(code: str) -> list[str]:
    program = f"{code}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules = {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}
    return sorted(modules & set(HEAVY))


def test_a_decision_loads_nothing_heavy(tmp_path: Path) -> None:
    from advisor.store.writer import Writer

    Writer(tmp_path / "advisor.db").close()
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nsrun ./app\n")
    code = (
        "from pathlib import Path\nfrom advisor.service import server, spool\n"
        "from advisor.service.handlers import Handlers\nfrom advisor.service.peer import Peer\n"
        "from advisor.service.snapshot import StoreSource\n"
        f"handlers = Handlers(StoreSource(Path({str(tmp_path / 'advisor.db')!r})))\n"
        "handlers.refresh()\n"
        'line = b\'{"v": 1, "op": "decide", "scheduler": "slurm", \'\n'
        'line += b\'"script": "srun ./app", "options": {}}\'\n'
        "answer = handlers.answer(line, Peer(1, 0, 0))\n"
        "assert b'\"rewrite\":{}' in answer"
    )
    assert loaded_after(code) == []


@pytest.mark.parametrize(
    "verb", ["", "explain", "why", "serve", "on", "policy", "import", "hook", "completion"]
)
def test_help_loads_nothing_heavy(verb: str) -> None:
    code = (
        "import contextlib, io\nfrom advisor.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main({[*verb.split(), '--help']})"
    )
    assert loaded_after(code) == []
