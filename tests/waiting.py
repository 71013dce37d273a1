"""Wait for what another process or thread does; a busy machine only takes longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T],
    seconds: float = 60,
    shown: Callable[[], object] = lambda: "it never came true",
) -> T:
    """Return what a condition returns once it is true; after ``seconds`` fail with ``shown()``."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, shown()
        time.sleep(0.05)
    return value
