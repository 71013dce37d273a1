"""Who is at the other end of the socket, and whose job may they speak for."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from advisor.core.protocol import ProtocolError
from advisor.errors import UsageError

_UCRED = struct.Struct("3i")
_SO_PEERGROUPS = 59
"""Of Linux 4.13 and later; Python has no name for it."""
_REMEMBERED = 100_000
"""User ids that are known to have no name, at most: a container may have many."""
_MOST_GROUPS = 256
"""What Python can ask for; of a process with more, none is known."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The kernel's word on a connection: process, user and group (SO_PEERCRED), other groups."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer of a connected UNIX socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(raw)
    return Peer(pid, uid, gid, _groups_of_peer(connection))


def _groups_of_peer(connection: socket.socket) -> tuple[int, ...]:
    """Return the supplementary groups of the process that connected; none where nobody says."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST_GROUPS)
    except OSError:
        return ()
    return tuple(memoryview(raw).cast("I"))


class Users:
    """User names by uid, looked up once (a directory service may be slow)."""

    def __init__(
        self,
        trusted_uids: frozenset[int] = frozenset({0}),
        admins: frozenset[int] = frozenset({0}),
        admin_groups: frozenset[int] = frozenset(),
    ) -> None:
        self.trusted_uids = trusted_uids
        self._admins = admins
        self._admin_groups = admin_groups
        self._names: dict[int, str] = {}
        self._uids: dict[str, int] = {}

    def known(self, uid: int) -> bool:
        """Tell whether :meth:`name` answers without a look-up."""
        return uid in self._names

    def admin(self, peer: Peer) -> bool:
        """Tell whether a peer may see everybody's jobs."""
        groups = (peer.gid, *peer.groups)
        return peer.uid in self._admins or not self._admin_groups.isdisjoint(groups)

    def has_name(self, uid: int) -> bool:
        """Tell whether somebody is known to have this uid; without a look-up."""
        return self._names.get(uid, str(uid)) != str(uid)

    def name(self, uid: int) -> str:
        """Return the user's name, or the uid as text when nobody has it."""
        if uid not in self._names:
            try:
                self._names[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                if len(self._names) >= _REMEMBERED:
                    # Anybody may come with numbers that have no name; names there are only so
                    # many.
                    self._names = {u: n for u, n in self._names.items() if n != str(u)}
                self._names[uid] = str(uid)
        return self._names.get(uid, str(uid))

    def subject(self, peer: Peer, payload: Mapping[str, object]) -> int:
        """Return whose job a request is about: the peer's own uid.

        The request's ``uid``, or its ``user`` by name, is believed only from root and the
        scheduler's user. Raises ProtocolError for a name that nobody has.
        """
        if peer.uid not in self.trusted_uids:
            return peer.uid
        stated, name = payload.get("uid"), payload.get("user")
        if isinstance(stated, int) and stated >= 0:
            return stated
        return self.uid(name) if isinstance(name, str) and name else peer.uid

    def uid(self, name: str) -> int:
        """Return the uid of a user's name. Raises ProtocolError when nobody has it."""
        if name not in self._uids:
            try:
                uid = pwd.getpwnam(name).pw_uid
            except (KeyError, ValueError):
                raise ProtocolError(f"no such user: {name[:40]!r}") from None
            self._uids[name], self._names[uid] = uid, name
        return self._uids[name]


def trusted_uids(names: list[str], option: str = "--trust-user") -> frozenset[int]:
    """Return root's uid and those of the users that an option names. Raises UsageError."""
    uids = {0}
    for name in names:
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise _unknown(option, name, "user", "passwd") from None
    return frozenset(uids)


def _unknown(option: str, name: str, what: str, database: str) -> UsageError:
    return UsageError(
        f"{option} {name}: this host knows no such {what}",
        hint=f"getent {database} {name} has to show it",
    )


def admins(users: list[str], groups: list[str]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the uids and gids that see everybody's jobs: root, users, the groups' members.

    Whoever joins a group later counts from their next login on, as the kernel says. Raises
    UsageError for unknown names.
    """
    uids, gids = set(trusted_uids(users, "--admin-user")), set()
    for name in groups:
        try:
            group = grp.getgrnam(name)
        except KeyError:
            raise _unknown("--admin-group", name, "group", "group") from None
        gids.add(group.gr_gid)
        for member in group.gr_mem:
            with suppress(KeyError):
                uids.add(pwd.getpwnam(member).pw_uid)
    return frozenset(uids), frozenset(gids)


def groups_of(uid: int) -> tuple[int, list[int]]:
    """Return a user's primary group and all groups, for processes run as that user."""
    entry = pwd.getpwuid(uid)
    return entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
