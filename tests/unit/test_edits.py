"""Changing a user's own file: in one step, mode and links kept, and back again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.choices import chosen, entry_of, read, write
from advisor.edits import replace
from advisor.errors import InputError


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_script_keeps_its_mode_and_leaves_a_backup(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_bytes(b"old\n")
    script.chmod(0o750)
    edit = replace(script, b"new\n", backup=True)
    assert script.read_bytes() == b"new\n"
    assert script.stat().st_mode & 0o777 == 0o750
    assert edit.backup is not None and edit.backup.read_bytes() == b"old\n"
    assert names(tmp_path) == ["job.sh", "job.sh.before-advisor"]
    again = replace(script, b"newer\n", backup=True)
    assert again.backup is not None and again.backup.name == "job.sh.before-advisor.2"
    again.undo()
    edit.undo()
    assert script.read_bytes() == b"old\n"
    assert names(tmp_path) == ["job.sh"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / "choices.json"
    real.write_text("{}")
    link.symlink_to(real)
    replace(link, b'{"off": true}')
    assert link.is_symlink()
    assert real.read_text() == '{"off": true}'


def test_undo_refuses_when_somebody_else_wrote_since(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"1")
    edit = replace(path, b"2")
    path.write_bytes(b"3")
    with pytest.raises(InputError, match="something else"):
        edit.undo()
    assert path.read_bytes() == b"3"


def test_undo_of_a_new_file_removes_it(tmp_path: Path) -> None:
    edit = replace(tmp_path / "new" / "f", b"1")
    edit.undo()
    assert not (tmp_path / "new" / "f").exists()


def test_what_cannot_be_written_is_one_error_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError) as caught:
        replace(tmp_path / "file" / "f", b"1")
    assert "file" in str(caught.value) and "nothing was changed" in str(caught.value)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(InputError):
        replace(folder, b"1")
    assert names(tmp_path) == ["file", "folder"]


def test_unknown_keys_survive_a_change(tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    before = {
        "version": 1,
        "note": "mine",
        "workloads": {"a/*": {"goal": "edp", "why": "talk"}, "b/*": {}},
    }
    path.write_text(json.dumps(before))
    choices = read(path)
    entry_of(choices, "a", "big")["off"] = True
    write(path, choices)
    after = json.loads(path.read_text())
    assert after["note"] == "mine"
    assert after["workloads"] == {"a/*": {"goal": "edp", "why": "talk"}, "a/big": {"off": True}}
    assert chosen(after, "a", "big") == {"off": True, "goal": "edp"}
    assert chosen(after, "a", "small") == {"goal": "edp"}
    assert chosen(after, "c", "small") == {}
    assert chosen({"goal": "edp", "pin": {"nodes": 1}}, "c", "w") == {
        "goal": "edp",
        "pin": {"nodes": 1},
    }


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 9}', '{"workloads": []}', '{"workloads": {"a/*": 1}}', "\xff"]
)
def test_a_broken_choices_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "choices.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) in str(caught.value) and "mend" in str(caught.value)
