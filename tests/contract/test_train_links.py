"""A sweep that the daemon starts as a user: that user's links get nothing from root."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from advisor.service.spool import Spool, remove_forgotten

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts sweeps as others")
def test_links_in_the_users_folder_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The user is as fast as can be: links lie there as soon as the folder is theirs."""
    victim = tmp_path / "victim"
    victim.write_text("root's")
    chown = os.chown
    given = []

    def at_once(path: Path, uid: int, gid: int, **more: Any) -> None:
        chown(path, uid, gid, **more)
        given.append(path.name)
        if path.is_dir():
            for name in ("job.sh", "train.log"):
                (path / name).unlink(missing_ok=True)
                (path / name).symlink_to(victim)

    monkeypatch.setattr(os, "chown", at_once)
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o1777)
    request.addfinalizer(lambda: place.rmdir())  # it is empty then
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    spool = Spool(tmp_path / "spool", tmp_path / "a.db", tmp_path / "s")
    spool._train(
        {
            "scheduler": "slurm",
            "script": "srun ./app\n",
            "path": "/home/job.sh",
            "arguments": [],
            "options": "",
            "uid": NOBODY,
            "cwd": "/",
        }
    )
    (sweep,) = spool._sweeps
    folder = sweep.folder
    assert sweep.process.wait(20) == 0
    assert sorted(given[:2]) == ["job.sh", "train.log"]
    assert given[2].startswith("advisor-train-") and len(given) == 3
    assert (victim.read_text(), victim.stat().st_uid) == ("root's", 0)
    (folder / "more").mkdir()
    spool._sweeps = []  # its thread looks at them, too
    assert not sweep.runs()
    assert not folder.exists() and (victim.read_text(), victim.stat().st_uid) == ("root's", 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts sweeps as others")
def test_one_sweep_of_a_user_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for few: one user leaves it to others."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    for folder in (tmp_path, *tmp_path.parents[:-2]):  # all below /tmp: pytest closes its own
        folder.chmod(0o755)
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    spool = Spool(tmp_path / "spool", tmp_path / "a.db", tmp_path / "s")
    job = {
        "scheduler": "slurm",
        "script": "srun ./app\n",
        "path": "",
        "arguments": [],
        "options": "",
        "uid": NOBODY,
        "cwd": "/",
    }
    for uid in (NOBODY, NOBODY, 1):
        spool._train({**job, "uid": uid})
    assert len(spool._sweeps) == 2
    for sweep in spool._sweeps:
        sweep.process.kill()
        sweep.process.wait()
        sweep.runs()
    spool._sweeps = []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts sweeps as others")
def test_folders_that_a_killed_daemon_left_go_after_a_week(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(place))
    place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    old, new, link = (place / f"advisor-train-{name}" for name in ("old", "new", "link"))
    for folder in (old, new):
        folder.mkdir(0o700)
        (folder / "train.log").touch()
        os.chown(folder / "train.log", NOBODY, NOBODY)
        os.chown(folder, NOBODY, NOBODY)
    link.symlink_to(new)
    os.utime(old, (1, 1))
    os.utime(link, (1, 1), follow_symlinks=False)
    remove_forgotten()
    assert sorted(path.name for path in place.iterdir()) == [link.name, new.name]
    assert (new / "train.log").exists()
