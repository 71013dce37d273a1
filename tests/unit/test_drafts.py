"""Files that appear whole or not at all, under names that nobody else has.

That whatever is renamed into place is a draft is a rule of `make lint` (tests/lint/processes.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from advisor import drafts
from advisor.drafts import draft, write_whole


def dead_process() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def left(folder: Path, name: str, pid: int, here: str = "") -> Path:
    path = folder / f".{name}.{here or drafts._host_name()}.{pid}.0123abcd.draft"
    path.write_text("left")
    return path


def test_two_drafts_of_one_name_are_two_files(tmp_path: Path) -> None:
    with draft(tmp_path, "a.db") as one, draft(tmp_path, "a.db") as other:
        assert one != other
        one.write_text("1")
        assert other.read_text() == ""
        assert one.stat().st_mode & 0o777 == 0o600
        Path(f"{one}-journal").write_text("what SQLite left")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    """By pattern, owner and process: not what runs, is another file's, or is no file."""
    gone = dead_process()
    journal = Path(f"{left(tmp_path, 'a.db', gone)}-journal")
    journal.write_text("left")
    far = left(tmp_path, "a.db", gone, "farhost-7")
    kept = [
        left(tmp_path, "a.db", os.getppid()),
        left(tmp_path, "b.db", gone),
        tmp_path / f".a.db.{drafts._host_name()}.{gone}.draft",
        tmp_path / ".a.db.mine",
    ]
    for path in kept:
        path.touch()
    link = tmp_path / f".a.db.{drafts._host_name()}.{gone}.89abcdef.draft"
    link.symlink_to(kept[-1])
    with draft(tmp_path, "a.db"):
        pass
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in (*kept, link, far)}
    old = time.time() - 2 * drafts._ELSEWHERE_S
    os.utime(far, (old, old))
    with draft(tmp_path, "a.db"):
        pass
    assert not far.exists()


def test_what_a_killed_process_left_is_cleared_though_another_has_its_number(
    tmp_path: Path,
) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        draft_of_it = left(tmp_path, "a.db", other.pid)
        with draft(tmp_path, "a.db"):
            pass
        assert draft_of_it.exists()
        before_it_began = time.time() - 60
        os.utime(draft_of_it, (before_it_began, before_it_began))
        with draft(tmp_path, "a.db"):
            pass
        assert list(tmp_path.iterdir()) == []
    finally:
        other.kill()
        other.wait()


def test_a_link_in_the_way_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".out.new", ".out", "out.new", f".out.{os.getpid()}.new"):
        (tmp_path / name).symlink_to(victim)
    write_whole(tmp_path / "out", "new")
    assert (tmp_path / "out").read_text() == "new"
    assert victim.read_text() == "mine"


def test_names_as_long_as_a_folder_takes(tmp_path: Path) -> None:
    path = tmp_path / ("ö" * 127)
    write_whole(path, b"whole", 0o640, exactly=True)
    assert path.read_bytes() == b"whole"
    assert path.stat().st_mode & 0o777 == 0o640


def write_often(path: Path, text: str) -> None:
    for _ in range(20):
        write_whole(path, text)


def test_many_writers_of_one_file_each_write_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    texts = [letter * 100_000 for letter in "abcd"]
    threads = [threading.Thread(target=write_often, args=(path, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_killed_half_way_leaves_the_old_file_and_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    code = (
        "import os, sys; from pathlib import Path; from advisor.drafts import write_whole\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        "write_whole(Path(sys.argv[1]), 'half')"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
