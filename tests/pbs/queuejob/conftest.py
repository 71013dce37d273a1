"""Where the daemon's socket is, and the settings that are installed with the hook."""

from __future__ import annotations

from pathlib import Path

import pytest
from queuejob.whole import inventory

from advisor.schedulers.pbs.hooks import PbsHookSettings, queuejob_config


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def settings(path: Path, tmp_path: Path) -> dict[str, object]:
    steps = {
        f"node_type={kind}": (1_200_000, 1_900_000, 2_000_000, 2_200_000) for kind in ("bdw", "skl")
    }
    known = PbsHookSettings(path, deadline_s=0.25, frequency_steps=steps)
    files = {"breaker": str(tmp_path / "breaker"), "altered": str(tmp_path / "altered")}
    return {**queuejob_config(known, inventory()), **files}
