"""What users' jobs run, handed over by the program before qsub until their jobs' requests come.

PBS's hooks do not see a job's script, and everybody sees a job's variables. So the program before
qsub gives the daemon what it read of the script, by a random key, and the job's variables hold the
key alone. Where that program could not reach this daemon, the text lies in a file of the user's
home, which a child reads with the user's own rights (:mod:`advisor.service.script_reader`).

A text is its user's: nobody else's request gets it, whatever key it names. Each is given out once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import re
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from advisor.core.protocol import ProtocolError
from advisor.interpreter import own_environment, own_python
from advisor.service.peer import Users, groups_of
from advisor.service.script_reader import MAX_PACKET, MAX_TEXT, TEXT, WantedText, read_answer

log = logging.getLogger("advisor.serve")

KEY = re.compile(r"[0-9a-f]{32}", re.ASCII)
_IN_LINE = re.compile(rb'"client": ?"([0-9a-f]{32})"')
"""A key where a hook's request has it: quotes of other texts are escaped."""
LASTS_S = 120.0
"""A text that no request asked for is forgotten."""
USER_BYTES, ALL_BYTES = 256 << 10, 64 << 20
"""Of one user's texts, and of all; users whom nobody knows by name share one allowance."""
READ_S = 0.2
"""So long the file of a user is waited for: less than a hook waits for its answer."""
_AT_ONCE = 16
_AGAIN_S = 1.0
"""Between two starts of the child."""


@dataclass(slots=True)
class _Text:
    book: int | None
    text: str
    until: float


@dataclass(slots=True)
class Scripts:
    """The texts that were handed over. All is called in the daemon's loop only."""

    users: Users
    asked: bool = False
    """A hook of PBS has asked this daemon: texts come to the right place here."""
    found: int = 0
    missing: int = 0
    """Requests whose text was there, and those whose text was not."""
    _texts: dict[tuple[int, str], _Text] = field(default_factory=dict)
    _bytes: dict[int | None, int] = field(default_factory=dict)
    _child: _Child | None = None
    _started: float = -_AGAIN_S
    _waiting: dict[tuple[int, str], asyncio.Future[str]] = field(default_factory=dict)

    def put(self, uid: int, key: object, text: object) -> None:
        """Keep a user's text. Raises ProtocolError for what is no key, or no text of a client."""
        if not isinstance(key, str) or not KEY.fullmatch(key):
            raise ProtocolError("a key has 32 hexadecimal digits")
        if not isinstance(text, str) or not TEXT.fullmatch(text):
            raise ProtocolError(f"a packed text has at most {MAX_TEXT} letters of base64")
        now = time.monotonic()
        for expired in [k for k, t in self._texts.items() if t.until < now]:
            self._forget_text(expired)
        book = uid if self.users.has_name(uid) else None
        self._forget_text((uid, key))
        while self._bytes.get(book, 0) + len(text) > USER_BYTES:
            self._forget_text(next(k for k, t in self._texts.items() if t.book == book))
        while sum(self._bytes.values()) + len(text) > ALL_BYTES:
            # who keeps the most makes room: one user cannot push out the others' texts
            most = max(self._bytes, key=lambda b: self._bytes[b])
            self._forget_text(next(k for k, t in self._texts.items() if t.book == most))
        self._texts[uid, key] = _Text(book, text, now + LASTS_S)
        self._bytes[book] = self._bytes.get(book, 0) + len(text)

    def _forget_text(self, text_key: tuple[int, str]) -> str:
        text = self._texts.pop(text_key, None)
        if text is None:
            return ""
        self._bytes[text.book] -= len(text.text)
        if not self._bytes[text.book]:
            del self._bytes[text.book]
        return text.text if text.until >= time.monotonic() else ""

    @staticmethod
    def key_in(line: bytes) -> str:
        """Return the key that a request's line has in place of a text, "" for none."""
        match = _IN_LINE.search(line)
        return match[1].decode() if match else ""

    def filled(self, line: bytes, uid: int) -> bytes:
        """Return a user's line with the text in place of its key, which is used up."""
        key = self.key_in(line)
        text = self._forget_text((uid, key))
        self.found += bool(text)
        self.missing += not text
        return line.replace(key.encode(), text.encode()) if text else line

    # -- texts in users' homes -----------------------------------------------------------------

    def lies_elsewhere(self, uid: int, key: str) -> bool:
        """Tell whether a text has to be read in its user's home, and can be."""
        return (uid, key) not in self._texts and os.geteuid() in (0, uid)

    async def read(self, uid: int, key: str) -> None:
        """Read a text in its user's home and keep it; after READ_S it counts as missing."""
        if len(self._waiting) >= _AT_ONCE or any(waiting == uid for waiting, _ in self._waiting):
            return
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        self._waiting[uid, key] = answer
        try:
            async with asyncio.timeout(READ_S):
                # A directory service may be slow.
                location = await asyncio.to_thread(_location_of, uid, key)
                if location is not None and self._listens():
                    assert self._child is not None
                    self._child.ask(location)
                    self.put(uid, key, await answer)
        except (TimeoutError, OSError, ProtocolError) as error:
            log.warning("event=script-unread uid=%d error=%s", uid, repr(str(error) or "too slow"))
        finally:
            self._waiting.pop((uid, key), None)

    def _listens(self) -> bool:
        """Tell whether there is a child, after starting one. Raises OSError."""
        if self._child is not None and self._child.ended:
            self._child.close()
            self._child = None
        now = time.monotonic()
        if self._child is None and now - self._started >= _AGAIN_S:
            self._started = now
            self._child = _Child(self._take_text)
        return self._child is not None

    def _take_text(self, uid: int, key: str, text: str) -> None:
        answer = self._waiting.get((uid, key))
        if answer is not None and not answer.done():
            answer.set_result(text)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._child = None


class _Child:
    """The process that reads users' files; it ends with its socket."""

    def __init__(self, take: Callable[[int, str, str], None]) -> None:
        self._take = take
        self.ended = False
        # Packets: each file is read by a process of its own, and all of these answer here.
        self._socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_socket:
            self._process = subprocess.Popen(
                own_python("advisor.service.script_reader"),
                stdin=child_socket.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                env=own_environment(),
            )
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def ask(self, location: WantedText) -> None:
        """Ask for a file. Raises OSError."""
        self._socket.send(location.packet())

    def _readable(self) -> None:
        try:
            packet = self._socket.recv(MAX_PACKET)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            packet = b""
        if packet:
            self._take(*read_answer(packet))
            return
        self.ended = True
        asyncio.get_running_loop().remove_reader(self._socket)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(RuntimeError, ValueError):  # no loop any more, or not watched
            asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _location_of(uid: int, key: str) -> WantedText | None:
    """Return what a child needs to become a user, None for one that nobody knows by name."""
    try:
        gid, groups = groups_of(uid)
        return WantedText(uid, gid, tuple(groups), key, pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return None
