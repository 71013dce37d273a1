"""A store that is named, on a shared file system that may hang: a verb says so in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor import mounts
from advisor.cli import main as cli
from advisor.store.publish import publish
from advisor.store.writer import Writer


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this host's list of mounts calls another's."""
    folder = tmp_path / "the share"
    folder.mkdir()
    place = str(folder).replace(" ", "\\040")
    table = tmp_path / "mounts"
    table.write_text(
        f"/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nserver:/x {place} nfs4 rw 0 0\n"
    )
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    return folder


def test_what_lies_on_a_share_is_known_without_touching_it(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("the share/sub")
    (tmp_path / "round").symlink_to("round")
    assert mounts.is_shared(shared / "sub/copy.db") and mounts.is_shared(tmp_path / "link/copy.db")
    for here in ("copy.db", "the share of others/copy.db", "round/copy.db", "nowhere/copy.db"):
        assert not mounts.is_shared(tmp_path / here)


@pytest.mark.parametrize(
    "verb", [["options", "app"], ["report"], ["policy", "show"], ["fit", "app"]]
)
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_verb_that_names_a_copy_which_hangs_says_so(
    shared: Path,
    verb: list[str],
    by_variable: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = shared / "copy.db"
    os.mkfifo(copy)  # whoever opens it waits for ever
    monkeypatch.setattr(mounts, "WAIT_S", 0.1)
    if by_variable:
        monkeypatch.setenv("ADVISOR_DB", str(copy))
    assert cli([*verb, *([] if by_variable else ["--db", str(copy)])]) == 1
    assert capsys.readouterr().err == (
        f"advisor: {copy}: its file system does not answer (jobs are submitted as ever; "
        "try again later, or name another store with --db)\n"
    )


def test_a_copy_on_a_share_that_answers_is_read(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Writer(tmp_path / "advisor.db").close()
    publish(tmp_path / "advisor.db", shared / "copy.db")
    assert cli(["policy", "show", "--db", str(shared / "copy.db")]) == 0
    capsys.readouterr()
    assert cli(["report", "--db", str(shared / "none.db")]) == 1
    assert "there is no store" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["backup", "publish", "restore"])
def test_a_file_to_write_or_read_that_hangs_is_said(
    shared: Path,
    tmp_path: Path,
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, copy = tmp_path / "advisor.db", shared / "copy.db"
    Writer(store).close()
    os.mkfifo(copy)
    monkeypatch.setattr(mounts, "WAIT_S", 0.1)
    assert cli([verb, str(copy), "--db", str(store)]) == 1
    assert capsys.readouterr().err == (
        f"advisor: {copy}: its file system does not answer (try again later, or name another "
        "file)\n"
    )
