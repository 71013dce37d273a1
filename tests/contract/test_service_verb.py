"""``advisor service``: units with this installation's paths, as systemd takes them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
NAMES = ["advisor-collect.service", "advisor-collect.timer", "advisor.service", "advisor.socket"]


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_units_have_absolute_paths_and_the_same_settings(
    advisor: Run, tmp_path: Path, scheduler: str
) -> None:
    folder = tmp_path / "units"
    done = advisor("service", "install", "--dir", folder, "--scheduler", scheduler)
    assert (done.code, done.err) == (0, "")
    assert sorted(p.name for p in folder.iterdir()) == NAMES
    services = [(folder / name).read_text() for name in NAMES if name.endswith(".service")]
    for text in services:
        programs = re.findall(r"^Exec\w+=(\S+)", text, re.M)
        assert programs
        assert all(Path(p).is_absolute() and Path(p).exists() for p in programs)
        assert re.findall("^EnvironmentFile=(.*)", text, re.M) == ["-/etc/advisor/serve.env"]
        # pbs_iff, which PBS's commands run, is a setuid program.
        wanted = "NoNewPrivileges=no" if scheduler == "pbs" else "NoNewPrivileges=yes"
        assert f"\n{wanted}\n" in text
    assert "\nLimitNOFILE=" in services[1]
    status = advisor("service", "status", "--dir", folder, "--scheduler", scheduler, "--json")
    assert status.code == 0
    assert set(status.json()["active"].values()) == {"as this version writes it"}
    (folder / "advisor.socket").unlink()
    (folder / "advisor.service").write_text("")
    status = advisor("service", "status", "--dir", folder, "--scheduler", scheduler, "--json")
    assert status.code == 1
    assert status.json()["active"]["advisor.socket"] == "missing"
    assert "another version" in status.json()["active"]["advisor.service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_systemd_takes_them(advisor: Run, tmp_path: Path, scheduler: str) -> None:
    assert advisor("service", "install", "--dir", tmp_path, "--scheduler", scheduler).code == 0
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in NAMES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_that_cannot_be_written(advisor: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = advisor("service", "install", "--dir", tmp_path / "file" / "units")
    assert done.code == 1
    assert done.err.count("\n") == 1


def test_without_systemd_the_units_are_there_and_it_says_what_to_do(
    advisor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho 'Host is down' >&2\nexit 1\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("advisor.cli.service.FOLDER", tmp_path / "units")
    monkeypatch.setattr("advisor.cli.service.LOOKED_INTO", (tmp_path / "units",))
    done = advisor("service", "install", "--scheduler", "slurm")
    assert done.code == 1 and done.err.count("\n") == 1
    assert f"the units are in {tmp_path / 'units'}, but not enabled" in done.err
    assert "Host is down" in done.err and "without systemd run advisor serve" in done.err
    assert sorted(p.name for p in (tmp_path / "units").iterdir()) == NAMES
    status = advisor("service", "status", "--scheduler", "slurm")
    wanted = "systemd does not answer, as this version writes it"
    assert status.out.splitlines() == [f"{tmp_path / 'units' / n}: {wanted}" for n in NAMES]
