"""What is told of a circuit breaker is what the hook does (is_open, M.hung in hooks)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from advisor.schedulers.pbs import hook_state as of_pbs
from advisor.schedulers.slurm import hook_state as of_slurm


@pytest.mark.parametrize(("age_s", "said"), [(10, "open"), (40, "closed"), (-3600, "closed")])
def test_a_daemon_that_hung_is_not_asked_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: int, said: str
) -> None:
    """Also by a clock that was set back since."""
    path = tmp_path / "advisor-breaker"
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for told in (of_pbs.breaker({"breaker": str(path), "retry_s": 30}), of_slurm.breaker(30)):
        assert told.partition(":")[0] == said
    path.unlink()
    path.symlink_to(tmp_path)
    assert of_pbs.breaker({"breaker": str(path), "retry_s": 30}) == of_slurm.breaker(30) == "closed"
