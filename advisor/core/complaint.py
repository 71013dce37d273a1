"""When a user has reason to complain about what the advisor promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

LAST = 3
"""Last jobs of each user that are looked at."""
WORSE = 2
"""Of these, so many worse than predicted count as harm; one that is far worse is enough, too."""

T = TypeVar("T")


def last_worse(jobs: Sequence[T], is_worse: Callable[[T], bool]) -> tuple[T, ...]:
    """Return which of the last jobs came out worse; ``jobs`` are the oldest first."""
    return tuple(job for job in jobs[-LAST:] if is_worse(job))


def is_harm(worse: Sequence[T], is_far: Callable[[T], bool]) -> bool:
    """Tell whether those of the last jobs that came out worse are a reason to complain."""
    return len(worse) >= WORSE or any(map(is_far, worse))
