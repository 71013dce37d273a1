"""Which scheduler a machine has, where nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.schedulers.choose import installed
from advisor.schedulers.here import installed_name


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ((), "slurm"),
        (("pbsnodes",), "pbs"),
        (("scontrol",), "slurm"),
        (("pbsnodes", "scontrol"), "slurm"),
    ],
)
def test_the_scheduler_whose_commands_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: tuple[str, ...], expected: str
) -> None:
    for name in commands:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PBS_CONF_FILE", str(tmp_path / "pbs.conf"))
    (tmp_path / "pbs.conf").write_text(f"PBS_EXEC={tmp_path / 'none'}\n")
    assert expected == installed().NAME == installed_name()
