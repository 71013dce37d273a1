"""Linear algebra on one thread: its matrices are small here, and its threads wait for each other.

With several, a fit takes more processor time, and many times as much on a busy login node: whoever
waits for a thread that is not running spins. The limit ends with the function, so a notebook that
calls it keeps the threads of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
R = TypeVar("R")


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function; while it runs, BLAS has one thread in this process."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with threadpool_limits(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
