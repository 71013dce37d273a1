"""A check of an installation: how it came out, and what to do."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from advisor.core.codec import JsonForm
from advisor.errors import AdvisorError

CheckState = Literal["ok", "warn", "fail"]

_PEOPLE = range(1000, 60_000)
"""User ids of people, as login.defs has them."""
_MOST_USERS = 8
"""Most users that a check tries of each kind."""


@dataclass(frozen=True, slots=True)
class Check(JsonForm):
    """One check: its name, how it came out, what was found, and what to do ("" when nothing)."""

    name: str
    state: CheckState
    text: str
    todo: str = ""


def check_error(name: str, state: CheckState, error: AdvisorError) -> Check:
    """Return the check that failed with an error."""
    return Check(name, state, error.message, error.hint)


def opening(files: Iterable[Path]) -> str:
    """Return the command that lets every user read the files, "" where they can.

    Read: r for others on the file, x for others on each folder on the way, links followed. A file
    that is not there, or that the caller cannot look at, is not judged. Where others have no such
    right, a group or an access list may give it to the site's users: root asks the system as some.
    """
    files = list(files)
    folders, closed = dict[Path, None](), dict[Path, None]()
    groups = set[int]()
    for file in files:
        real = file.resolve()
        for place in (*reversed(file.absolute().parents), *reversed(real.parents), real):
            try:
                status = place.stat()
            except OSError:
                break
            mode_bit = stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
            if not status.st_mode & mode_bit:
                (folders if mode_bit == stat.S_IXOTH else closed)[place] = None
                groups.add(status.st_gid)
    missing_bits = (("x", folders), ("r", closed))
    command = " && ".join(
        f"chmod o+{bit} {shlex.join(map(str, p))}" for bit, p in missing_bits if p
    )
    if command and os.geteuid() == 0 and _users_may_read(files, _some_users(groups)):
        return ""
    return command


def _some_users(groups: Container[int]) -> list[pwd.struct_passwd]:
    """Return some who work here: members of the groups, and people with an account."""
    members, people = list[pwd.struct_passwd](), list[pwd.struct_passwd]()
    named = {name for g in grp.getgrall() if g.gr_gid and g.gr_gid in groups for name in g.gr_mem}
    for entry in pwd.getpwall():
        if not entry.pw_uid:
            continue
        if entry.pw_name in named or (entry.pw_gid in groups and entry.pw_gid):
            members.append(entry)
        elif entry.pw_uid in _PEOPLE:
            people.append(entry)
    return members[:_MOST_USERS] + people[:_MOST_USERS]


def _users_may_read(files: Sequence[Path], users: Sequence[pwd.struct_passwd]) -> bool:
    """Tell whether one of the users may read all of the files that are there.

    A child asks that has become the user, so that groups and access lists count.
    """
    for user in users:
        child = os.fork()
        if not child:
            code = 1
            try:
                existing_files = [file for file in files if file.exists()]
                os.initgroups(user.pw_name, user.pw_gid)
                os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
                os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
                code = 0 if all(os.access(file, os.R_OK) for file in existing_files) else 1
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1] == 0:
            return True
    return False
