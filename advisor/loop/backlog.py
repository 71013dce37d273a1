"""Is the accounting collected? Decisions whose jobs have not been joined with it yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from advisor.loop.clock import form, moment, now
from advisor.store.reader import Reader

LATE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Decisions for jobs without an outcome, and when the last outcome was collected."""

    decisions: int
    last: datetime | None

    @property
    def late(self) -> bool:
        """Whether collecting seems to have stopped: jobs wait, and nothing came for a day."""
        return self.decisions > 0 and (self.last is None or now() - self.last > LATE)


def late_backlog(reader: Reader) -> Backlog | None:
    """Return the backlog of a store where collecting seems to have stopped, else None.

    Only then is every decision looked at.
    """
    if not Backlog(1, _last(reader)).late:
        return None
    waiting = backlog(reader)
    return waiting if waiting.late else None


def backlog(reader: Reader) -> Backlog:
    """Return the backlog of a store. Decisions younger than a day do not count."""
    count = reader.rows(
        "SELECT count(*) FROM decisions WHERE created_at < ? AND created_at > ?"
        " AND id NOT IN (SELECT decision_id FROM outcomes)",
        (form(now() - LATE), form(now() - 30 * LATE)),
    )[0][0]
    return Backlog(int(count), _last(reader))


def _last(reader: Reader) -> datetime | None:
    last = reader.rows("SELECT max(collected_at) FROM outcomes")[0][0]
    return moment(str(last or ""))
