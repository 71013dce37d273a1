"""What the program before qsub hands to the daemon: whose it is, how much, for how long."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import pwd
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.core.protocol import ProtocolError
from advisor.service import script_reader, scripts
from advisor.service.handlers import Handlers
from advisor.service.peer import Peer, Users
from advisor.service.script_reader import WantedText
from advisor.service.scripts import ALL_BYTES, USER_BYTES, Scripts
from advisor.service.snapshot import StoreSource
from advisor.store.writer import Writer
from tests.another_user import NOBODY, as_user

ROOT = Path(__file__).resolve().parents[2]
KEY, OTHER = "0123456789abcdef" * 2, "f" * 32
ALICE, BOB = 1001, 1002


def line(key: str, **more: object) -> bytes:
    data = {"v": 1, "op": "decide", "scheduler": "pbs", "hook": "queuejob", "client": key, **more}
    return json.dumps(data).encode()


@pytest.fixture
def kept() -> Scripts:
    users = Users()
    for uid, name in ((ALICE, "alice"), (BOB, "bob"), (5001, "5001"), (5002, "5002")):
        users._names[uid] = name
    return Scripts(users)


def test_both_sides_name_the_same_place() -> None:
    spec = importlib.util.spec_from_file_location("qsub_client", ROOT / "hooks/pbs/qsub.py")
    assert spec is not None and spec.loader is not None
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    assert client.FOLDER == script_reader.FOLDER
    assert client.MAX_VALUE == script_reader.MAX_TEXT


def test_a_text_is_given_to_its_user_once(kept: Scripts) -> None:
    kept.put(ALICE, KEY, "packed")
    assert kept.filled(line(KEY), BOB) == line(KEY)
    assert kept.filled(line(OTHER), ALICE) == line(OTHER)
    assert kept.filled(line(KEY), ALICE) == line("packed")
    assert kept.filled(line(KEY), ALICE) == line(KEY)
    assert (kept.found, kept.missing) == (1, 3)


@pytest.mark.parametrize("name", ['x", "client": "' + KEY, '"client": "' + KEY + '"'])
def test_a_name_is_not_taken_for_a_key(kept: Scripts, name: str) -> None:
    assert kept.key_in(line("", options={"job-name": name})) == ""


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("../../etc/passwd", "x"),
        (KEY.upper(), "x"),
        (KEY + "0", "x"),
        (None, "x"),
        (KEY, ""),
        (KEY, "a b"),
        (KEY, 'x"y'),
        (KEY, None),
        (KEY, "x" * 32769),
    ],
)
def test_what_is_no_text_of_a_client_is_refused(kept: Scripts, key: object, text: object) -> None:
    with pytest.raises(ProtocolError):
        kept.put(ALICE, key, text)


def held(kept: Scripts) -> int:
    return sum(len(t.text) for t in kept._texts.values())


def test_each_user_has_so_much_room_and_strangers_share_one(kept: Scripts) -> None:
    text = "x" * 32768
    kept.put(BOB, KEY, "bobs")
    for number in range(40):
        kept.put(ALICE, f"{number:032x}", text)
        assert held(kept) <= USER_BYTES + 4
    assert kept.filled(line(f"{39:032x}"), ALICE) == line(text)
    for number in range(40):
        kept.put(5001 + number % 2, f"{number:032x}", text)
    assert held(kept) <= 2 * USER_BYTES + 4
    assert kept.filled(line(KEY), BOB) == line("bobs")


def test_all_together_have_so_much_room(kept: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ALL_BYTES <= 64 << 20
    monkeypatch.setattr(scripts, "ALL_BYTES", 100_000)
    kept.put(BOB, KEY, "bobs")
    for number in range(9):
        kept.put(ALICE, f"{number:032x}", "x" * 30000)
    assert held(kept) <= 100_000
    assert kept.filled(line(KEY), BOB) == line("bobs")


def test_what_no_request_asks_for_is_forgotten(
    kept: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.put(ALICE, KEY, "packed")
    later = time.monotonic() + scripts.LASTS_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert kept.filled(line(KEY), ALICE) == line(KEY)
    kept.put(BOB, OTHER, "x")
    assert held(kept) == 1


# -- in the user's home ----------------------------------------------------------------------------


class Home:
    """A home of somebody else's where that can be, and what is left there."""

    def __init__(self, folder: Path) -> None:
        self.uid = pwd.getpwnam(NOBODY).pw_uid if os.geteuid() == 0 else os.geteuid()
        self.gid = pwd.getpwuid(self.uid).pw_gid
        self.home = folder / "home"
        self.folder = self.home / script_reader.FOLDER
        self.folder.mkdir(parents=True)
        for part in (folder, *folder.parents):
            if part.stat().st_uid == os.geteuid() and part != Path("/"):
                part.chmod(part.stat().st_mode | 0o011)
        os.chown(self.folder, self.uid, self.gid)
        self.folder.chmod(0o700)

    def leave(self, text: str, mode: int = 0o600) -> Path:
        path = self.folder / KEY
        path.write_text(text)
        path.chmod(mode)
        os.chown(path, self.uid, self.gid)
        return path

    def read(self) -> str:
        """Ask the daemon's real child."""

        async def ask() -> str:
            kept = Scripts(Users())
            try:
                assert kept.lies_elsewhere(self.uid, KEY)
                await kept.read(self.uid, KEY)
                return next((t.text for t in kept._texts.values()), "")
            finally:
                kept.close()

        return asyncio.run(ask())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    found = Home(tmp_path)
    wanted = WantedText(found.uid, found.gid, (found.gid,), KEY, str(found.home))
    monkeypatch.setattr(scripts, "_location_of", lambda uid, key: wanted)
    monkeypatch.setattr(scripts, "READ_S", 30.0)
    return found


def test_a_text_in_the_user_s_home_is_read_and_removed(home: Home) -> None:
    path = home.leave("packed")
    assert home.read() == "packed"
    assert not path.exists()


def a_link(home: Home, folder: Path) -> None:
    (folder / "secret").write_text("rootsecret")
    (folder / "secret").chmod(0o600)
    (home.folder / KEY).symlink_to(folder / "secret")


def a_hard_link(home: Home, folder: Path) -> None:
    os.link(home.leave("packed"), home.folder / "other")


def a_pipe(home: Home, folder: Path) -> None:
    os.mkfifo(home.folder / KEY, 0o600)
    os.chown(home.folder / KEY, home.uid, home.gid)


def of_somebody_else(home: Home, folder: Path) -> None:
    os.chown(home.leave("packed", 0o644), 0, 0)
    if os.geteuid():
        pytest.skip("only root gives files away")


def open_to_others(home: Home, folder: Path) -> None:
    home.leave("packed", 0o640)


def too_long(home: Home, folder: Path) -> None:
    home.leave("x" * 40000)


def a_hole(home: Home, folder: Path) -> None:
    with home.leave("").open("r+b") as file:
        file.truncate(1 << 40)


def no_text(home: Home, folder: Path) -> None:
    home.leave("root:x:0:0\n")


def a_folder(home: Home, folder: Path) -> None:
    (home.folder / KEY).mkdir()


def a_linked_folder(home: Home, folder: Path) -> None:
    """Root's own: the child that has become the user cannot look into it."""
    theirs = folder / "roots"
    theirs.mkdir(mode=0o700)
    (theirs / KEY).write_text("packed")
    (theirs / KEY).chmod(0o600)
    home.folder.rmdir()
    home.folder.symlink_to(theirs)


def nothing(home: Home, folder: Path) -> None:
    pass


@pytest.mark.parametrize(
    "plant",
    [
        a_link,
        a_hard_link,
        a_pipe,
        of_somebody_else,
        open_to_others,
        too_long,
        a_hole,
        no_text,
        a_folder,
        a_linked_folder,
        nothing,
    ],
)
def test_what_a_user_plants_there_is_not_read(
    home: Home, tmp_path: Path, plant: Callable[[Home, Path], None]
) -> None:
    plant(home, tmp_path)
    assert home.read() == ""
    assert not (tmp_path / "secret").exists() or (tmp_path / "secret").read_text() == "rootsecret"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody")
def test_the_child_opens_nothing_as_root(home: Home, tmp_path: Path) -> None:
    wanted = WantedText(home.uid, home.gid, (home.gid,), KEY, str(home.home))

    def look() -> str:  # in a child that is root no more
        script_reader.become(wanted)
        return f"{os.getresuid()} {os.getresgid()} {os.getgroups()}"

    ids = f"{(home.uid,) * 3} {(home.gid,) * 3} {[home.gid]}"
    end, start = os.pipe()
    if not os.fork():
        os.write(start, look().encode())
        os._exit(0)
    os.close(start)
    with os.fdopen(end) as file:
        assert file.read() == ids
    assert as_user(lambda: "x") == "x"


# -- the whole request ---------------------------------------------------------------------------


@pytest.fixture
def handlers(tmp_path: Path) -> Handlers:
    Writer(tmp_path / "a.db").close()
    found = Handlers(StoreSource(tmp_path / "a.db"))
    found.refresh()
    return found


def test_a_job_whose_text_is_missing_runs_as_written(handlers: Handlers) -> None:
    """Its user may have said off in it."""
    root = Peer(1, 0, 0)
    told = json.loads(handlers.answer(line(KEY, options={"select": "1:ncpus=4"}), root))
    assert told["rewrite"] == {}
    assert handlers.status()["scripts"] == {"found": 0, "missing": 1}
    explained = json.loads(
        handlers.answer(
            line(KEY, options={"select": "1:ncpus=4"}).replace(b"decide", b"explain"), root
        )
    )
    assert [r for r in explained["reasons"]] == ["script-missing"]


def test_the_daemon_says_whether_a_hook_asks_it(handlers: Handlers) -> None:
    me = Peer(1, ALICE, ALICE)
    put = json.dumps({"v": 1, "op": "script", "key": KEY, "client": "packed"}).encode()
    assert json.loads(handlers.answer(put, me)) == {"v": 1, "ok": True, "asked": False}
    handlers.answer(line(OTHER), me)  # a user is no hook
    assert not json.loads(handlers.answer(put, me))["asked"]
    handlers.answer(line(OTHER), Peer(1, 0, 0))
    assert json.loads(handlers.answer(put, me))["asked"]
    handlers.answer(line(KEY, uid=ALICE), Peer(1, 0, 0))
    assert handlers.scripts.found == 1
