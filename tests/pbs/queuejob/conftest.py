"""Where the daemon's socket is, and the settings that are installed with the hook."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.schedulers.pbs.hooks import PbsHookSettings, queuejob_config


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def settings(path: Path, tmp_path: Path) -> dict[str, object]:
    installed = queuejob_config(PbsHookSettings(path, deadline_s=0.25), None)
    return {**installed, "breaker": str(tmp_path / "breaker"), "host_resources": ["node_type"]}
