"""A decision for one job: its id and its time."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

from advisor.core.decision import Decision


def new_id() -> str:
    """Return the id of a new decision: 16 hex digits nobody can guess."""
    return secrets.token_hex(8)


def timestamp() -> str:
    """Return the time of a decision made now."""
    return _time_text(int(time.time()))


@lru_cache(maxsize=8)
def _time_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def issue(decision: Decision, identity: str, created_at: str) -> Decision:
    """Return the same decision for another job."""
    return replace(decision, id=identity, created_at=created_at)
