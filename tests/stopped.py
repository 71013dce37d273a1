"""Processes that do not run for a while, as on a host that stands still."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time


def stop_peer(connection: socket.socket, seconds: float) -> None:
    """Let the process at the other end stand still for so long, and then run for a moment."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid = struct.unpack("3i", credentials)[0]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.05)
