"""The two sides of systemd a daemon needs: an inherited socket, and saying it is ready."""

from __future__ import annotations

import os
import socket


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
