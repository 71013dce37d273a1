"""A published copy on this host: brought once for each number, checked, whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.core.decision import Decision
from advisor.core.inventory import NodeType
from advisor.errors import StoreError
from advisor.service.snapshot import StoreSource
from advisor.store.announced import announce, place_of, read_announcement
from advisor.store.fetch import fetch, fetch_in_child
from advisor.store.publish import publish
from advisor.store.reader import Reader
from advisor.store.writer import Writer


@pytest.fixture
def store(store_path: Path) -> Iterator[Writer]:
    with Writer(store_path) as writer:
        writer.save_node_types([NodeType("bdw")], source="slurm")
        yield writer


@pytest.fixture
def copy(store: Writer, tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    path = tmp_path / "shared" / "copy.db"
    publish(Path(store.path), path, history=False)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "advisor.db"


def types(path: Path) -> set[str]:
    with Reader(path) as reader:
        return set(reader.inventory().node_types)


def test_a_copy_is_fetched_once_for_each_number(store: Writer, copy: Path, target: Path) -> None:
    first = fetch(copy, target)
    assert (first.fetched, first.announced.number) == (True, 1)
    assert target.read_bytes() == copy.read_bytes() and target.stat().st_mode & 0o777 == 0o644
    inode = target.stat().st_ino
    store.save_decision(Decision.from_dict({"decision": "d", "user": "ann"}))  # is not published
    publish(Path(store.path), copy, history=False)
    again = fetch(copy, target)
    assert (again.fetched, again.announced.number) == (False, 1)
    assert again.announced.published_at > first.announced.published_at
    assert target.stat().st_ino == inode
    store.save_node_types([NodeType("skl")], source="slurm")
    publish(Path(store.path), copy, history=False)
    assert types(target) == {"bdw"}
    third = fetch(copy, target)
    assert (third.fetched, third.announced.number) == (True, 2)
    assert types(target) == {"bdw", "skl"} and read_announcement(target) == third.announced


def test_it_is_as_old_as_it_was_published(copy: Path, target: Path) -> None:
    then = "2020-01-01T00:00:00.000000Z"
    place = place_of(copy)
    place.write_text(json.dumps({**json.loads(place.read_text()), "published_at": then}))
    fetch(copy, target)
    source = StoreSource(target)
    source.refresh()
    assert source.published_at == read_announcement(copy).published_s
    assert (source.age_s() or 0) > 86_400
    source.close()


def test_what_was_not_announced_is_not_taken(copy: Path, target: Path, store: Writer) -> None:
    fetch(copy, target)
    before = target.read_bytes()
    data = copy.read_bytes()
    for changed in (data[:-1] + bytes([data[-1] ^ 1]), data + b"x" * 10_000, data[:-1]):
        copy.write_bytes(changed)
        place_of(target).unlink(missing_ok=True)
        with pytest.raises(StoreError, match=r"is not the copy that was announced \(number 1\)"):
            fetch(copy, target)
        assert target.read_bytes() == before
    # what is announced and is no store, is not taken either
    copy.write_bytes(b"SQLite format 3\0" + bytes(8000))
    announce(copy, copy)
    with pytest.raises(StoreError, match="the copy is damaged"):
        fetch(copy, target)
    assert target.read_bytes() == before
    assert [
        p.name for p in target.parent.iterdir() if "draft" in p.name or p.suffix == ".tmp"
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "x" * 100_000,
        '{"number": 1, "bytes": "1", "sha256": "", "published_at": ""}',
        '{"number": 1, "bytes": 1, "sha256": "", "published_at": "soon"}',
        '{"number": 1, "bytes": 1, "sha256": 1, "published_at": "2026-01-01"}',
    ],
)
def test_an_announcement_of_no_sense(copy: Path, target: Path, text: str) -> None:
    place_of(copy).write_text(text)
    with pytest.raises(StoreError) as caught:
        fetch(copy, target)
    assert "announces no copy" in str(caught.value) and not target.exists()


def test_a_copy_nobody_announced(copy: Path, target: Path) -> None:
    place_of(copy).unlink()
    with pytest.raises(StoreError, match="No such file") as caught:
        fetch(copy, target)
    assert "advisor store publish" in str(caught.value.hint)


def test_a_store_is_never_replaced(store: Writer, copy: Path) -> None:
    with pytest.raises(StoreError, match="is a store, not a copy of one"):
        fetch(copy, Path(store.path))
    with pytest.raises(StoreError, match="is the published copy itself"):
        fetch(copy, copy)
    assert types(Path(store.path)) == {"bdw"}


def test_a_damaged_copy_here_is_fetched_again(copy: Path, target: Path) -> None:
    fetch(copy, target)
    os.truncate(target, 4096)
    assert fetch(copy, target).fetched and target.read_bytes() == copy.read_bytes()


def hang_announcement(copy: Path) -> None:
    place_of(copy).unlink()
    os.mkfifo(place_of(copy))


def hang_copy(copy: Path) -> None:
    copy.unlink()
    os.mkfifo(copy)


@pytest.mark.parametrize("hang", [hang_announcement, hang_copy])
def test_a_file_system_that_hangs_is_given_up(
    store: Writer, copy: Path, target: Path, tmp_path: Path, hang: Callable[[Path], None]
) -> None:
    """A pipe nobody writes to, in place of a file on a server that does not answer."""
    kept = tmp_path / "kept"
    shutil.copytree(copy.parent, kept)
    fetch(copy, target)
    store.save_node_types([NodeType("skl")], source="slurm")
    publish(Path(store.path), copy, history=False)
    before = target.read_bytes()
    hang(copy)
    with pytest.raises(StoreError, match=r"not fetched within 1 s: its file system hangs"):
        fetch_in_child(copy, target, 1.0)
    assert target.read_bytes() == before


def test_one_fetches_at_a_time(copy: Path, target: Path) -> None:
    with target.with_name(f"{target.name}.fetching").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="somebody else fetches it, or hangs in doing so"):
            fetch(copy, target)


def test_the_verb(advisor: Callable[..., Any], copy: Path, target: Path, tmp_path: Path) -> None:
    done = advisor("store", "fetch", str(copy), str(target), "--json")
    assert done.code == 0, done.err
    answer = done.json()
    assert (answer["number"], answer["fetched"], answer["path"]) == (1, True, str(target))
    again = advisor("store", "fetch", str(copy), str(target))
    assert again.code == 0 and again.out.startswith(f"{target}: copy 1, ")
    assert again.out.endswith("ago, the same as before\n")
    absent = advisor("store", "fetch", str(tmp_path / "no.db"), str(target))
    assert (absent.code, absent.out) == (1, "")
    assert "no.db.announced: No such file or directory" in absent.err
    assert advisor("store", "fetch", str(copy), str(target), "--deadline", "0").code == 2
