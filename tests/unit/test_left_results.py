"""What users left in folders of their own: taken as them, once, and nothing that is not theirs."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import paths
from advisor.cli import train
from advisor.core.configuration import Configuration
from advisor.core.delivery import marked_place, place_mark, write_spool_file
from advisor.core.observation import Observation, Scope
from advisor.core.policy import Policy
from advisor.errors import InputError, RefusedError, StoreError
from advisor.loop import clock, left_reader, left_results
from advisor.loop.left_results import known_places, note_places, place_of, take_left
from advisor.loop.spool import Spooled, give, held, spool_folder, take_spool
from advisor.store.rankings import StoredCharacterisation
from advisor.store.writer import Writer
from advisor.training import result_store
from advisor.training.result_store import LeftResults, open_results
from tests.another_user import as_user

ROOT = os.geteuid() == 0
USER = "nobody" if ROOT else pwd.getpwuid(os.geteuid()).pw_name
RUNS = [
    Observation(
        Configuration("bdw", 1, 1, t, 0),
        9.0 / t,
        9.0 + t,
        energy_quality="measured",
        meter="rapl",
        source="sweep",
        extra={"sweep": "s", "seq": t},
        method="variables",
    )
    for t in (1, 2, 4)
]


@dataclass
class Home:
    """A user's folder, and the store's host with its places."""

    root: Path
    store: Writer

    @property
    def folder(self) -> Path:
        return self.root / "to-collect"

    def leave(self, *runs: Observation, fit: bool = False) -> None:
        LeftResults(self.folder, USER).observe("app", "w", runs or RUNS, fit=fit)
        self.give()

    def give(self) -> None:
        """Make what lies there the user's own."""
        if ROOT:
            entry = pwd.getpwnam(USER)
            for path in (self.root, self.folder, *self.folder.iterdir()):
                os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)

    def put(self, number: int, content: bytes = b"{}") -> Path:
        path = self.folder / f"runs-{number}-ab.json"
        path.write_bytes(content)
        path.chmod(0o600)
        return path

    def take(self, folder: Path | None = None, user: str = USER) -> left_results.LeftFiles:
        places = {user: {str(folder or self.folder): clock.form(clock.now())}}
        return take_left(places, spool_folder(self.store.path), self.store.inventory())

    def taken(self) -> Spooled:
        def fit(_: Writer, a: str, w: str, t: str, scope: Scope, owner: str) -> str:
            return f"{a} {w} {t} {scope} {owner}"

        def rank(_: Writer, stored: StoredCharacterisation) -> str:
            return stored.application

        return take_spool(self.store, spool_folder(self.store.path), fit, rank, lambda *_: "")


@pytest.fixture
def home(store_path: Path) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="left-", dir="/tmp"))
    (root / "to-collect").mkdir()
    with Writer(store_path) as store:
        yield Home(root, store)
    shutil.rmtree(root)


def test_what_was_left_is_stored_once_as_its_owners(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.leave(fit=True)
    (left,) = home.folder.iterdir()
    assert (left.stat().st_mode & 0o777, home.folder.stat().st_mode & 0o777) == (0o600, 0o700)
    read, removing = left_results._read_folders, []

    def killed(rights: Any, folders: Any) -> dict[str, Any]:
        removing.append(any(folders.values()))
        if removing[-1]:
            raise KeyboardInterrupt
        return read(rights, folders)

    with monkeypatch.context() as patch:
        patch.setattr(left_results, "_read_folders", killed)
        with pytest.raises(KeyboardInterrupt):
            home.take()
    assert removing == [False, True] and left.exists()
    spooled = home.taken()
    assert (spooled.files, spooled.observations, spooled.fits) == (1, 3, [f"app w bdw own {USER}"])
    again = home.take()
    assert (again.files, again.refused, again.problems) == (1, [], []) and not left.exists()
    assert home.taken().observations == 0
    stored = [o.observation for o in home.store.observations("app", "w")]
    assert {(o.contributor, o.scope, o.source) for o in stored} == {(USER, "own", "sweep")}
    assert home.take().files == 0


def test_what_is_not_its_owners_alone_is_refused(home: Home) -> None:
    """Links, pipes, folders, files of others, too large ones, nonsense; the good ones are taken."""
    secret = home.root / "secret"
    secret.write_text("{}")
    good = json.dumps(
        {
            "application": "a",
            "workload": "w",
            "observations": [{"configuration": RUNS[0].configuration.to_dict(), "time_s": 1.0}],
        }
    ).encode()
    home.put(1, good)
    (home.folder / "runs-2-ab.json").symlink_to(secret)
    (home.folder / "runs-3-ab.json").hardlink_to(secret)
    os.mkfifo(home.folder / "runs-4-ab.json", 0o600)
    os.truncate(home.put(5), 1 << 40)
    (home.folder / "runs-6-ab.json").mkdir(0o700)
    home.put(7).chmod(0o666)
    home.put(8, b"\xff\xfe{}")
    home.put(9, b"[" * 100_000)
    home.put(10, b'{"application": "a", "workload": "w", "observations": []}')
    home.put(11, good.replace(b"1.0", b"-1e999"))
    home.put(12, good.replace(b'"a"', b"7"))
    (home.folder / "phases-13-ab.json").write_text('{"characterisation": {"phases": 1}}')
    (home.folder / "phases-13-ab.json").chmod(0o600)
    home.put(14, b'{"observations": [' + b"{}," * 1000 + b"{}]}")
    (home.folder / "notes.txt").write_text("the user's own")
    home.put(15, b"[]")
    home.put(16, good)
    home.give()
    if ROOT:
        os.chown(home.folder / "runs-15-ab.json", 1, 1)
    found = home.take()
    refused = {line.split("-")[-2]: line for line in found.refused}
    assert found.files == 2 and not found.problems
    assert set(refused) == {str(n) for n in range(2, 16)}
    assert "larger than 2 MB" in refused["5"] and "cannot be opened" in refused["2"]
    assert "link" in refused["3"] and "ordinary" in refused["4"] and "others" in refused["7"]
    assert home.taken().observations == 2
    assert secret.read_text() == "{}"
    again = home.take()  # they are renamed, and not looked at again
    assert (again.files, again.refused) == (0, [])
    assert len(list(home.folder.glob("refused-*"))) == len(refused)
    assert (home.folder / "notes.txt").exists()


def test_folders_that_are_not_their_owners_alone(home: Home) -> None:
    home.leave()
    link = home.root / "link"
    link.symlink_to(home.folder)
    assert "Not a directory" in home.take(link).problems[0]
    home.folder.chmod(0o777)
    assert "others may write" in home.take().problems[0]
    home.folder.chmod(0o700)
    if ROOT:
        os.chown(home.folder, 0, 0)
        assert "Permission denied" in home.take().problems[0]
        home.folder.chmod(0o755)
        assert "somebody else" in home.take().problems[0]
        assert home.take(user="root").refused  # root's folder, another's file
    assert "No such file" in home.take(home.root / "gone").problems[0]
    assert "no such user" in home.take(user="nobody-here").problems[0]
    assert home.taken().files == 0


def test_a_folder_swapped_while_it_is_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked up in the folder that was opened, not by its path."""
    home.put(1, b"mine")
    other = home.root / "other"
    other.mkdir()
    (other / "runs-1-ab.json").write_text("theirs")
    scandir = os.scandir

    def swapped(folder: int) -> Any:
        home.folder.rename(home.root / "away")
        (home.root / "to-collect").symlink_to(other)
        return scandir(folder)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", swapped)
        found = left_reader._list_folder(str(home.folder), {}, [10, 1000])
    assert found["files"] == [["runs-1-ab.json", "mine"]]


def test_what_is_read_at_once_is_bounded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 8):
        home.put(number, b"x" * 100)
    found = left_reader._list_folder(str(home.folder), {}, [5, 1000])
    assert (len(found["files"]), found["more"]) == (5, 2)  # type: ignore[arg-type]
    found = left_reader._list_folder(str(home.folder), {}, [100, 350])
    assert (len(found["files"]), found["more"]) == (3, 4)  # type: ignore[arg-type]
    home.give()
    monkeypatch.setattr(left_results, "_MOST_ANSWER", 100)
    assert "too much" in home.take().problems[0]


def test_a_file_system_that_hangs_and_an_answer_that_lies(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader runs as the user, who may make anything of it."""
    home.leave()
    with monkeypatch.context() as patch:
        patch.setattr(left_reader, "look", lambda _: time.sleep(60))
        patch.setattr(left_results, "WAIT_S", 0.1)
        assert "does not answer" in home.take().problems[0]
    with monkeypatch.context() as patch:
        patch.setattr(left_reader, "look", lambda _: os.kill(os.getpid(), 9))
        assert "ended" in home.take().problems[0]
    lies: tuple[Any, ...] = (
        {"files": [["../../etc/passwd", "{}"], ["runs-1-ab.json", "{}"], 7]},
        {"files": 3, "refused": [["../x", "y"], ["runs-1-ab.json", "a\nb" * 999]], "more": "x"},
        [],
        {"error": "\x1b[2J" * 999},
    )
    for lie in lies:
        with monkeypatch.context() as patch:
            patch.setattr(left_results, "_read_folders", _answers({str(home.folder): lie}))
            found = home.take()
            assert found.files == 0
            assert all(line.isprintable() and len(line) < 400 for line in found.refused)
            assert all(line.isprintable() and len(line) < 400 for line in found.problems)
    assert not spool_folder(home.store.path).exists()


def _answers(answer: dict[str, Any]) -> Any:
    return lambda *_: answer


def test_full_disks_lose_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's, while results are left, and the store's, while they are taken."""
    full = OSError(errno.ENOSPC, "No space left on device")

    def fsync(_: int) -> None:
        raise full

    sink = LeftResults(home.folder, USER)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreError, match="No space left") as caught:
            sink.observe("app", "w", RUNS)
        assert "--resume" in caught.value.hint
        assert list(home.folder.iterdir()) == []
    home.leave()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreError, match="No space left"):
            home.take()
    assert len(list(home.folder.iterdir())) == 1
    assert home.take().files == 1 and home.taken().observations == 3
    shutil.rmtree(home.folder)
    home.folder.touch()
    with pytest.raises(StoreError):
        sink.observe("app", "w", RUNS)
    assert home.take().problems
    home.folder.unlink()
    home.folder.mkdir()


def test_places_are_remembered_for_a_while(tmp_path: Path) -> None:
    file, now = tmp_path / "places.json", clock.now()

    def at(days: float) -> str:
        return clock.form(now - timedelta(days=days))

    assert note_places(file, {}) == {} and not file.exists()
    note_places(file, {("ann", "/a"): at(0), ("bob", "/b"): at(31)})
    assert known_places(file) == {"ann": {"/a": at(0)}}
    assert file.stat().st_mode & 0o777 == 0o600
    note_places(file, {("ann", "/a"): at(3)})  # an older job's word changes nothing
    many = {("ann", f"/{n}"): at(n) for n in range(1, 20)}
    assert list(note_places(file, many)["ann"]) == ["/a", *(f"/{n}" for n in range(1, 8))]
    for broken in ("", "[1]", '{"ann": 7}', "{"):
        file.write_text(broken)
        assert known_places(file) == {}
        assert note_places(file, {("ann", "/a"): at(0)}) == {"ann": {"/a": at(0)}}
    assert left_results.ended("2999-01-01T00:00:00") <= clock.form(clock.now())
    assert left_results.ended("Unknown")


def test_a_place_in_a_jobs_words() -> None:
    for folder in ("/home/ann/x", "/home/a b/ü,'\";$(x)", "/x" * 500):
        mark = place_mark(Path(folder))
        assert marked_place("", f"sbatch --comment={mark} -N 1 a.sh") == folder
    for text in ("ADVISOR_RESULTS=x", "ADVISOR_RESULTS=/a%0Ab", "ADVISOR_RESULTS=", "/a"):
        assert marked_place(text) == ""
    assert place_of("ann:/home/ann") == ("ann", "/home/ann")
    for text in ("/home/ann", "ann:", ":/x", "ann:x"):
        with pytest.raises(InputError, match="USER:FOLDER"):
            place_of(text)


def test_no_place_for_what_would_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "advisor.training.result_store._status_of", lambda _: {"takes_results": False}
    )
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "x"):
        with pytest.raises(RefusedError, match="only reads") as caught:
            open_results(
                tmp_path / "no.db",
                tmp_path / "s",
                explicit=False,
                user="ann",
                trust="own",
                left_folder=place,
            )
        assert caught.value.hint
    assert not (tmp_path / "no.db").exists()


def test_a_sweep_in_the_background_leaves_its_results_where_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given the usual work folder; what `advisor run --record` left comes with its job."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(result_store, "open_results", lambda *_, left_folder, **__: left_folder)
    state: Any = SimpleNamespace(settings=SimpleNamespace(user="ann"))

    def left(work_dir: Path | None) -> object:
        return train._results(
            Namespace(db=None, work_dir=work_dir, for_daemon=False), state, Policy()
        )

    usual = paths.state_dir()
    assert left(None) == left(usual / "sweeps") == usual / "to-collect"
    assert left(tmp_path / "scratch") == tmp_path / "scratch/to-collect"


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_what_root_collects_stays_the_daemons(home: Home, tmp_path: Path) -> None:
    """A daemon of its own user goes on beside a collection that runs as root."""
    entry, beside = pwd.getpwnam(USER), home.root / "lib"
    beside.mkdir()
    os.chown(beside, entry.pw_uid, entry.pw_gid)
    home.leave()
    places = note_places(
        beside / "places.json", {(USER, str(home.folder)): clock.form(clock.now())}
    )
    with held(beside, ".collect.lock"):
        assert take_left(places, beside / "spool", home.store.inventory()).files == 1
    made = [path for path in beside.rglob("*") if path.stat().st_uid != entry.pw_uid]
    assert made == [] and len(list(beside.rglob("*"))) == 4

    def goes_on() -> None:
        with held(beside, ".collect.lock"), held(beside / "spool", ".lock"):
            note_places(beside / "places.json", {(USER, "/x"): clock.form(clock.now())})
            write_spool_file(beside / "spool", "{}")
            for path in (beside / "spool").glob("*.json"):
                path.read_text()
                path.unlink()

    assert as_user(goes_on, USER) == ""


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_nothing_of_roots_is_given_away_by_a_link(tmp_path: Path) -> None:
    """The daemon's user may put a link where root is about to make a file."""
    entry, theirs, secret = pwd.getpwnam(USER), tmp_path / "lib", tmp_path / "secret"
    theirs.mkdir()
    os.chown(theirs, entry.pw_uid, entry.pw_gid)
    secret.write_text("root's")
    (theirs / "soft").symlink_to(secret)
    (theirs / "hard").hardlink_to(secret)
    for name in ("soft", "hard"):
        give(theirs / name)
    assert secret.stat().st_uid == 0
