"""Take home what users left in folders of their own, where the daemon of their host only reads.

A sweep's job says where its owner leaves results. That is the user's own word, so a folder is read
and emptied by a child with its owner's rights (:mod:`advisor.loop.left_reader`), and what is in it
counts as if that user had sent it to the daemon: it goes into the spool. A file is removed once it
lies there, and taking it twice stores nothing twice: the spool's file has its name.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import random
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from advisor.core.codec import FieldError, wire
from advisor.core.delivery import delivered_runs, write_delivery
from advisor.core.inventory import Inventory
from advisor.errors import AdvisorError, InputError, StoreError
from advisor.loop import clock, left_reader
from advisor.loop.left_reader import MAX_BYTES, NAME
from advisor.loop.spool import give
from advisor.ranking.kernels import read_sent_profiles
from advisor.ranking.streams import at_site, read_sent

log = logging.getLogger("advisor.collect")

KEPT = timedelta(days=30)
"""So long after a user's last sweep a folder is looked at."""
MAX_FOLDERS = 8
"""Folders of one user that are looked at, the latest."""
WAIT_S, ALL_WAIT_S = 20.0, 120.0
"""A user's file system may hang: how long is waited for one user, and for all together."""
_MOST_ANSWER = 8 * MAX_BYTES

Places = dict[str, dict[str, str]]
"""By user and folder when a job last named it, in UTC."""


@dataclass(slots=True)
class LeftFiles:
    """What was taken: files, and files for which there was no room this time; lines for people."""

    files: int = 0
    more: int = field(default=0, metadata=wire("waiting"))
    refused: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def known_places(file: Path) -> Places:
    """Return the places noted in a file; none where it cannot be read."""
    try:
        data = json.loads(file.read_text())
        return {str(u): {str(f): str(t) for f, t in fs.items()} for u, fs in data.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        log.warning("event=places-unreadable file=%s error=%r", file, str(error))
        return {}


def note_places(file: Path, named: Mapping[tuple[str, str], str]) -> Places:
    """Note what jobs named, forget what none has for long; return what is to be looked at.

    ``named``: by user and folder when the job ended, in UTC. Raises StoreError.
    """
    former = known_places(file)
    places: Places = {user: dict(folders) for user, folders in former.items()}
    for (user, folder), ended_at in named.items():
        user_folders = places.setdefault(user, {})
        user_folders[folder] = max(user_folders.get(folder, ""), ended_at)
    oldest = clock.form(clock.now() - KEPT)
    for user in list(places):
        latest = sorted(places[user].items(), key=lambda item: item[1], reverse=True)
        recent = {
            folder: ended_at for folder, ended_at in latest[:MAX_FOLDERS] if ended_at >= oldest
        }
        if recent:
            places[user] = recent
        else:
            del places[user]
    if places != former:
        try:
            give(write_delivery(file.parent, file.name, json.dumps(places, indent=1)))
        except AdvisorError as error:
            raise StoreError(error.message, hint="free some space beside the store") from None
    return places


def take_left(places: Places, spool: Path, inventory: Inventory) -> LeftFiles:
    """Move what users left into the spool. What cannot be read now stays for the next time.

    Raises StoreError when the spool cannot be written: then nothing was removed.
    """
    result = LeftFiles()
    until = time.monotonic() + ALL_WAIT_S
    users = sorted(places.items())
    random.shuffle(users)  # those whose file system hangs are not always the first
    for number, (user, folders) in enumerate(users):
        if time.monotonic() > until:
            result.problems.append(f"{len(users) - number} users were not looked at this time")
            break
        try:
            _take_deliveries(user, list(folders), spool, inventory, result)
        except _UnreadableError as error:
            result.problems.append(f"{user}: {error}")
            log.warning("event=left-unread user=%s error=%r", user, str(error))
    return result


class _UnreadableError(Exception):
    """A user's folders cannot be read now."""


def _take_deliveries(
    user: str, folders: list[str], spool: Path, inventory: Inventory, result: LeftFiles
) -> None:
    owner = _owner(user)
    by_folder = _read_folders(owner, {folder: {} for folder in folders})
    handled_names: dict[str, dict[str, list[str]]] = {}
    for folder in folders:
        listing = by_folder.get(folder)
        if not isinstance(listing, dict):
            continue
        if listing.get("error"):
            result.problems.append(f"{user}: {folder}: {_line(listing['error'])}")
        accepted_names, refused = (
            [],
            [(n, w) for n, w in _pairs(listing.get("refused")) if NAME.fullmatch(n)],
        )
        for name, text in _pairs(listing.get("files")):
            # Who read the folder was the user: its word is checked like the files.
            if not NAME.fullmatch(name):
                continue
            try:
                count, data = _delivery(name, text, user, inventory)
            except (AdvisorError, FieldError) as error:
                refused.append((name, getattr(error, "message", str(error))))
                continue
            try:
                spool_name = f"{name.removesuffix('.json')}-u{owner.pw_uid}-n{count}.json"
                path = write_delivery(spool, spool_name, data)
                give(spool)
                give(path)
            except AdvisorError as error:
                raise StoreError(error.message, hint="free some space beside the store") from None
            accepted_names.append(name)
        result.files += len(accepted_names)
        result.more += listing["more"] if isinstance(listing.get("more"), int) else 0
        result.refused += [f"{user}: {folder}/{name}: {_line(why)}" for name, why in refused]
        if accepted_names or refused:
            handled_names[folder] = {
                "taken": accepted_names,
                "refused": [name for name, _ in refused],
            }
    # Removed only now that all lies in the spool. Killed in between, the same names come again, and
    # nothing is stored twice.
    if handled_names:
        _read_folders(owner, handled_names)


def _delivery(name: str, text: str, user: str, inventory: Inventory) -> tuple[int, str]:
    """Return how many runs a file holds, and what the spool keeps of it."""
    try:
        sent = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is not JSON: {error}") from None
    if not isinstance(sent, dict):
        raise InputError("it is not a file of measurements")
    if name.startswith("phases-"):
        phases = at_site(read_sent(sent.get("characterisation")), inventory)
        return 1, json.dumps({"contributor": user, "characterisation": phases.to_dict()})
    if name.startswith("profiles-"):
        return 1, json.dumps({"contributor": user, **read_sent_profiles(sent).to_dict()})
    data = delivered_runs(sent, user)
    runs = data["observations"]
    assert isinstance(runs, list)
    return len(runs), json.dumps(data)


def _owner(user: str) -> pwd.struct_passwd:
    """Return whose rights are needed. Raises _UnreadableError for none of ours."""
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise _UnreadableError("this host knows no such user") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise _UnreadableError("only root can take what others left; run advisor collect as root")
    return entry


def _read_folders(owner: pwd.struct_passwd, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Have the reader look into folders as their owner. Raises _UnreadableError.

    What hangs on a dead file system cannot even be killed; it is left to itself.
    """
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if not child:
            _become_reader(owner, wish, answer.fileno())
        until, pause = time.monotonic() + WAIT_S, 0.001
        while not (ended_child := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                raise _UnreadableError(f"the file system does not answer within {WAIT_S:g} s")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        if ended_child[1]:
            raise _UnreadableError("its reader was ended")
        if answer.seek(0, os.SEEK_END) > _MOST_ANSWER:
            raise _UnreadableError("there is too much of it")
        answer.seek(0)
        data = json.loads(answer.read())
    return data if isinstance(data, dict) else {}


def _become_reader(owner: pwd.struct_passwd, wish: Mapping[str, Any], answer: int) -> NoReturn:
    """Be the user from now on, with nothing of ours open; answer, and end."""
    code = 1
    try:
        out = os.dup2(answer, 3) if answer != 3 else 3
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):  # else who reads our output would wait for a child that hangs
            os.dup2(nothing, number)
        if os.geteuid() == 0:
            os.initgroups(owner.pw_name, owner.pw_gid)
            os.setresgid(owner.pw_gid, owner.pw_gid, owner.pw_gid)
            os.setresuid(owner.pw_uid, owner.pw_uid, owner.pw_uid)
        os.chdir("/")
        text = json.dumps(left_reader.look(wish)).encode()
        while text:
            text = text[os.write(out, text) :]
        code = 0
    finally:
        os._exit(code)


def _pairs(value: object) -> list[tuple[str, str]]:
    """Return pairs of texts; whatever else the user made of the reader's answer is dropped."""
    items = value if isinstance(value, list) else []
    return [
        (item[0], item[1])
        for item in items
        if isinstance(item, list) and len(item) == 2 and all(isinstance(t, str) for t in item)
    ]


def _line(text: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text))[:200]


def place_of(text: str) -> tuple[str, str]:
    """Return user and folder of ``USER:FOLDER``. Raises InputError."""
    user, colon, folder = text.partition(":")
    if not (user and colon and folder.startswith("/")):
        raise InputError(f"{text!r} is not USER:FOLDER", hint="like ann:/home/ann/to-collect")
    return user, folder


def ended(ended_at: str) -> str:
    """Return when a job ended as :func:`note_places` takes it; now where nobody knows."""
    moment: datetime | None = clock.moment(clock.utc(ended_at))
    return clock.form(min(moment or clock.now(), clock.now()))
