"""Read, with their owners' rights, what users left for the daemon in their homes.

The daemon's child: for each file it forks once more, and that process becomes the user before it
opens anything, so it reads and removes nothing that the user could not. A file counts if it is no
link, its owner's alone, and not too long; it is removed once it is read. A file system that hangs
holds up one of these processes, and no longer than ``ENDS_S``.

It is asked by packets on its standard input, a socket, and answers there; it ends when the daemon
does. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass

FOLDER = ".cache/advisor/qsub"
"""In the user's home; hooks/pbs/qsub.py writes there."""
MAX_TEXT = 32768
TEXT = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_TEXT}}}", re.ASCII)
"""What that program packs: letters of base64."""
MAX_PACKET = 65536
"""Bytes of a question or an answer: a text, and whose it is."""
ENDS_S = 2
"""After so long a process that reads a file is ended."""
# The user may put anything in the place of a file: a link would lead elsewhere, a FIFO would keep
# whoever opens it, a terminal would become ours.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class WantedText:
    """A text of a user's, and who that user is: numbers of user, group and groups, the home."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    key: str
    home: str

    def packet(self) -> bytes:
        """Return it as the child is asked."""
        return json.dumps([self.uid, self.gid, self.groups, self.key, self.home]).encode()


def read_answer(packet: bytes) -> tuple[int, str, str]:
    """Return user, key and text of the child's answer; "" for a text that is not there."""
    uid, key, text = packet.decode().split(" ")
    return int(uid), key, text


def become(location: WantedText) -> None:
    """Become the user, for good. Raises OSError where this process may not."""
    if os.geteuid() == location.uid:
        return
    # In this order: whoever is no longer root may change neither groups nor group.
    os.setgroups(location.groups)
    os.setresgid(location.gid, location.gid, location.gid)
    os.setresuid(location.uid, location.uid, location.uid)


def read(location: WantedText) -> str:
    """Return the text in the user's home and remove it, "" for none; this process is the user."""
    try:
        folder = os.open(f"{location.home}/{FOLDER}", _FLAGS | os.O_DIRECTORY)
        try:
            file = os.open(location.key, _FLAGS, dir_fd=folder)
            try:
                status = os.fstat(file)
                owned_file = stat.S_ISREG(status.st_mode) and status.st_uid == location.uid
                # A file with a second name may be one that was never meant for us.
                if not owned_file or status.st_mode & 0o077 or status.st_nlink != 1:
                    return ""
                content = os.read(file, MAX_TEXT + 1)
            finally:
                os.close(file)
            os.unlink(location.key, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError:
        return ""
    text = content.decode("latin-1")
    return text if TEXT.fullmatch(text) else ""


def serve(channel: socket.socket) -> None:
    """Answer until the daemon hangs up."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that read
    while packet := channel.recv(MAX_PACKET):
        uid, gid, groups, key, home = json.loads(packet)
        location = WantedText(uid, gid, tuple(groups), key, home)
        if os.fork():
            continue
        try:
            signal.alarm(ENDS_S)
            become(location)
            channel.send(f"{uid} {key} {read(location)}".encode())
        finally:
            # Never back into the loop, whatever failed: there would be two who answer.
            os._exit(0)


def main() -> None:
    """Serve at standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError), socket.socket(fileno=0) as channel:
        serve(channel)


if __name__ == "__main__":
    main()
