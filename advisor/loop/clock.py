"""Times as the loop keeps them: UTC, ISO 8601 with a Z, so that they sort as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from advisor.core.units import parse_duration_s
from advisor.errors import UsageError

_KEPT = 1024
"""Texts whose moments are kept: a job's few times are asked for again and again."""


@lru_cache(_KEPT)
def moment(text: str) -> datetime | None:
    """Return the moment of an ISO 8601 text; one without a zone is local time. None: no time."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(_KEPT)
def utc(text: str) -> str:
    """Return a time in the store's form, "" for what is no time ("Unknown", "None")."""
    time = moment(text)
    return "" if time is None else form(time)


def form(when: datetime) -> str:
    """Return a moment in the store's form, whole seconds."""
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def now() -> datetime:
    """Return the moment."""
    return datetime.now(UTC)


def since(text: str) -> datetime:
    """Return the moment a ``--since`` names: a span before now (``7d``) or a date.

    Raises UsageError for anything else.
    """
    try:
        return now() - timedelta(seconds=parse_duration_s(text))
    except (ValueError, OverflowError):
        pass
    time = moment(text)
    if time is None:
        span = f"{text.strip()}d" if text.strip().isdigit() else "7d"
        raise UsageError(
            f"--since {text}: not a time",
            hint=f"write a span like {span} or 12h, or a date: 2026-01-31",
        )
    return time
