"""SIGKILL at random moments of database, daemons, collectors and movers: every decision once.

`benchmarks/clusters_day.py --kills 100` is the long form.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.paths import share
from tests import postgresql

PROGRAM = share("config").parent / "benchmarks" / "clusters_day.py"
KILLS, JOBS = 5, 40


@pytest.mark.postgresql
@pytest.mark.parametrize("store", ["postgresql", "sqlite"])
def test_every_decision_is_there_once(store: str, tmp_path: Path) -> None:
    if store == "postgresql" and (why := postgresql.why_none()):
        pytest.skip(why)
    sizes = ["--jobs", str(JOBS), "--rate", "40", "--history", "50", "--models", "2", "--short"]
    command = [sys.executable, str(PROGRAM), "--store", store, "--kills", str(KILLS), *sizes]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path), "--json"], capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    day = json.loads(done.stdout)
    killed = json.dumps(day["killed"])
    assert len(day["killed"]) == KILLS
    kept = day["kept"]
    assert kept["answered"] + day["unanswered"] == 5 * JOBS
    assert kept["answered"] > 5 * JOBS * 2 / 3, (kept, killed)
    wrong = {name: count for name, count in kept.items() if name != "answered" and count}
    assert not wrong, (wrong, killed, day["collect"])
