"""What doctor says of the hooks for single steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.schedulers.slurm.health import check_hooks


@pytest.mark.parametrize("parameters", ["", "enable_configless", "a=1,enable_configless"])
def test_nodes_that_fetch_their_configuration_have_no_modules(
    tmp_path: Path, parameters: str
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("CliFilterPlugins=lua\n")
    _, checks = check_hooks({"SLURM_CONF": str(conf), "SlurmctldParameters": parameters}, {})
    texts = [check.text for check in checks if check.state == "warn"]
    assert "no job is rewritten, and no step advised" in texts[0]
    assert any("their steps run as written" in text for text in texts) == bool(parameters)
