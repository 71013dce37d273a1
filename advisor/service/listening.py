"""The socket the daemon listens on: systemd's, or one of its own at a path; and what systemd hears
of the daemon."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from advisor.errors import AdvisorError

BACKLOG = 32
"""Connections that wait to be accepted; for more, a client waits in connect, where the kernel lets
one in after the other. One user may fill it, and whoever comes next stands behind that: so it is
short."""


def listening_socket(path: Path) -> tuple[socket.socket, bool]:
    """Return a socket that listens, and whether its file is ours to remove.

    Where its path is visible, clients are accepted. Raises AdvisorError where it cannot be made.
    """
    inherited = inherited_socket()
    if inherited is not None:
        inherited.listen(BACKLOG)
        return inherited, False
    hidden = path.with_name("~" + path.name[1:])  # no longer: paths have 107 bytes
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_socket():
            _refuse_if_alive(path)
        elif path.exists():
            raise FileExistsError(errno.EEXIST, "is there and is not a socket")
        hidden.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(str(hidden))
        hidden.chmod(0o666)  # everybody submits jobs; who it is the kernel says
        sock.listen(BACKLOG)
        hidden.rename(path)
    except OSError as error:
        raise AdvisorError(
            f"{path}: {error.strerror or error}", hint="choose another with --socket"
        ) from None
    return sock, True


def _refuse_if_alive(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise AdvisorError(f"{path}: another daemon serves there", hint="stop it first")


def inherited_socket() -> socket.socket | None:
    """Return the listening socket systemd passed (sd_listen_fds), or None."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    return socket.socket(fileno=3)


def notify(state: str) -> None:
    """Tell systemd a state such as ``READY=1``; silently nothing when not run by it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError:
        return
