"""What doctor says of the hooks for single steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.schedulers.slurm import health
from advisor.schedulers.slurm.health import check_hooks, check_scheduler


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


@pytest.fixture
def capping(tmp_path: Path) -> dict[str, str]:
    """A Slurm that runs the program that caps nodes, and binds jobs to their cores."""
    for name in ("advisor-node-cap", "advisor-node-cores"):
        (tmp_path / name).touch(mode=0o755)
    return {
        **dict.fromkeys(("Prolog", "Epilog"), str(tmp_path / "advisor-node-cap")),
        "PrologFlags": "Alloc,Contain",
        "JobSubmitPlugins": "lua",
        "TaskPlugin": "task/cgroup,task/affinity",
        "ConstrainCores": "yes",
    }


def node_cap(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> tuple[str, str]:
    """What doctor says of it."""
    lines = "\n".join(f"{name} = {value}" for name, value in settings.items())
    monkeypatch.setattr(health, "ask", lambda *_, **__: lines)
    _, checks = check_scheduler()
    (found,) = (check for check in checks if check.name == "node-cap")
    return found.state, found.text


def test_own_cores_are_capped_where_slurm_binds_jobs_to_them(
    capping: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, text = node_cap(monkeypatch, capping)
    assert state == "ok" and text.endswith("where site.yaml says shared_caps: accept")
    state, text = node_cap(monkeypatch, capping | {"ConstrainCores": "no"})
    assert state == "ok" and text.endswith("a shared node: ConstrainCores is not yes")


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone owns what it writes")
def test_a_program_that_is_missing_beside_the_prolog_is_told(
    capping: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = Path(capping["Prolog"]).with_name("advisor-node-cores")
    cores.chmod(0o777)
    state, text = node_cap(monkeypatch, capping)
    assert state == "fail" and f"{cores} can be written by others than root" in text
    cores.unlink()
    state, text = node_cap(monkeypatch, capping)
    assert state == "fail" and f"{cores} is not there" in text
    assert node_cap(monkeypatch, capping | {"ConstrainCores": "no"})[0] == "ok"
