"""What one user may take of the daemon: connections, unfinished lines, and work.

Work is counted in units, of which each user gets ``RATE`` a second: 1 for a request and 2 for the
square of its milliseconds, because a request that takes n times as long keeps n times as many
others waiting n times as long. Root and the scheduler's own user ask for everybody and have no
limits. User ids without a name share one allowance, and all else that is bounded for each user: one
person may own many such numbers.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from advisor.core.protocol import TOO_MANY, answer_line
from advisor.service.peer import Users

CONNECTIONS = 32
"""Open connections of one user; for a further one the oldest goes."""

BEGUN = 4 << 20
"""Bytes of lines a user has begun and not ended, over all connections."""

RATE = 200.0
"""Units that each user gets in a second."""
BURST = 1000.0
"""Units that a user may have saved: some decisions at their slowest, as after a daemon's start, or
some hundred usual ones at once. A user who never pauses has ``RATE`` alone."""
MOST_OF_ONE = 400.0
"""Units that one request counts, at most."""
_DEBT = 2000.0
"""Units nobody is deeper in debt than: ten seconds without an answer."""

RECORDS = 20_000
"""Decisions of one user that are recorded in a day; of further ones the job's stamp tells."""
_DAY_S = 86400.0
"""A day, in seconds."""

UNNAMED = 0xFFFFFFFE
"""What all user ids without a name are booked to: a number that belongs to nobody."""

_SPARE = 64
"""Descriptors that are kept for the store, the log and children."""

_MOST = 16384
"""Descriptors that the daemon asks the kernel for, at most."""

BUSY = answer_line(
    {
        "error": f"{TOO_MANY}: ask for at most {RATE:g} short requests a second, "
        "or fewer long ones",
        "hint": "ask again in some seconds",
    }
)


@dataclass(slots=True, eq=False)
class Use:
    """What one user takes just now; ``bounded`` is false for root and the scheduler."""

    bounded: bool = True
    left: float = BURST
    at: float = 0.0
    records: float = RECORDS
    """Decisions that may still be recorded."""
    records_at: float = 0.0
    begun: int = 0
    prompt: bool = True
    """The user's last connection sent its line; else nobody waits for the next one's."""
    next_turn: bool = False
    """Had a long answer: the next one only after others, whoever has asked by then."""
    named: bool = False
    """The log has named the user since it asked for too much."""
    open: dict[object, Callable[[], None]] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the store is read for the user: one reading at a time."""
    readings: int = 0
    """Readings of the store that are under way or wait."""

    def spent(self) -> bool:
        """Tell whether the user has to wait."""
        if not self.bounded:
            return False
        now = time.monotonic()
        self.left = min(BURST, self.left + RATE * (now - self.at))
        self.at = now
        # One line of the log for each rush, not for each request in it.
        if self.left > BURST / 2:
            self.named = False
        return self.left <= 0

    def may_record(self) -> bool:
        """Take room for the record of one decision; tell whether there was any."""
        if not self.bounded:
            return True
        now = time.monotonic()
        gained = RECORDS / _DAY_S * (now - self.records_at)
        self.records = min(RECORDS, self.records + gained)
        self.records_at = now
        if self.records < 1:
            return False
        self.records -= 1
        return True

    def take_turn(self) -> None:
        """Let the user's lines be answered again, now that the loop has looked who is there."""
        self.next_turn = False

    def charge(self, seconds: float) -> None:
        """Note a request and the processor's time it took."""
        self.left = max(-_DEBT, self.left - 1 - min(MOST_OF_ONE, 2e6 * seconds * seconds))


class Limits:
    """Everybody's use."""

    def __init__(self, users: Users) -> None:
        self.users = users
        self.most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE
        self.connections = 0
        """Open ones of all users."""
        self.refused = 0
        """Requests that were not answered, and connections that were closed."""
        self._uses: dict[int, Use] = {}

    def of(self, uid: int) -> Use:
        """Return what a user takes just now."""
        key = self.booked(uid)
        use = self._uses.get(key)
        if use is None:
            now = time.monotonic()
            bounded = uid not in self.users.trusted_uids
            use = self._uses[key] = Use(bounded, at=now, records_at=now)
        return use

    def booked(self, uid: int) -> int:
        """Return the user id that what a user takes is booked to.

        Of an id that was not looked up yet nobody knows a name.
        """
        users = self.users
        return uid if uid in users.trusted_uids or users.has_name(uid) else UNNAMED

    def enter(self, use: Use, connection: object, close: Callable[[], None]) -> None:
        """Note a connection and how to close it; where there are too many, close another."""
        use.open[connection] = close
        self.connections += 1
        if use.bounded and len(use.open) > CONNECTIONS:
            self._close_oldest(use)
        if self.connections > self.most:
            self.make_room()

    def leave(self, use: Use, connection: object) -> None:
        """Forget a connection that is closed."""
        self.connections -= use.open.pop(connection, None) is not None

    def close_all(self) -> None:
        """Close all connections."""
        for use in self._uses.values():
            for close in list(use.open.values()):
                close()

    def make_room(self) -> None:
        """Close a connection of the user who has most."""
        # Of root or the scheduler only where nobody else has any.
        use = max(self._uses.values(), key=lambda u: (u.bounded, len(u.open)), default=None)
        if use is not None and use.open:
            self._close_oldest(use)

    def _close_oldest(self, use: Use) -> None:
        self.refused += 1
        oldest = next(iter(use.open))
        close = use.open[oldest]
        self.leave(use, oldest)
        close()


def take_descriptors() -> None:
    """Let this process have as many descriptors as it may, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
