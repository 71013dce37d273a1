"""Run what may be slow in a thread that never holds up the screen, nor the end of the program."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from textual.app import ScreenStackError
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import MountError
from textual.worker import Worker, WorkerError

from advisor.errors import AdvisorError

T = TypeVar("T")

MOST = 12
"""Threads that may wait at once: a store on a dead file server keeps every one of them."""

_waiting = threading.Semaphore(MOST)


async def in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns or raise what it raises; the thread dies with the program.

    Raises AdvisorError when too many are still waiting, and for whatever nobody expected: a screen
    goes on where a command would end. A caller that is cancelled leaves the thread to its end;
    nobody hears of the result.
    """
    if not _waiting.acquire(blocking=False):
        raise AdvisorError(
            "the store or a file system does not answer", hint="is a file system or the store hung?"
        )
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: AdvisorError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failure: AdvisorError | None = None
        try:
            result = work()
        except AdvisorError as error:
            failure = error
        except Exception as error:
            failure = unexpected(error)
        finally:
            _waiting.release()
        with suppress(RuntimeError):  # the program has ended meanwhile
            loop.call_soon_threadsafe(deliver, result, failure)

    # A caller that was cancelled does not ask how it went: that is no reason to complain.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    threading.Thread(target=run, daemon=True).start()
    return await future


def begin(
    node: DOMNode,
    work: Callable[..., Coroutine[Any, Any, object]],
    *arguments: Any,
    group: str = "default",
    exclusive: bool = False,
) -> None:
    """Let ``work(*arguments)`` run beside everything else; ``exclusive`` cancels its group's other.

    The coroutine is made when it is its turn: one that was cancelled before was never begun. What
    finds its page being taken off the screen ends without a word.
    """

    async def run() -> None:
        try:
            await work(*arguments)
        except ScreenStackError:  # the program is being left
            return
        except (NoMatches, MountError):
            if node.is_attached and not getattr(node.app, "has_left", _never)(node.screen):
                raise

    worker = cast("Awaitable[None]", run)  # or a callable: not inferred
    node.run_worker(worker, group=group, exclusive=exclusive)


def _never(page: Screen[Any]) -> bool:
    return False


async def finished(workers: Sequence[Worker[Any]], seconds: float) -> None:
    """Wait until workers have ended, however they end, but no longer than some seconds."""

    async def end(worker: Worker[Any]) -> None:
        with suppress(WorkerError):
            await worker.wait()

    ends = [asyncio.ensure_future(end(w)) for w in workers if not w.is_finished]
    if ends:
        await asyncio.wait(ends, timeout=seconds)


def unexpected(error: Exception) -> AdvisorError:
    """Return what nobody expected as an error to show, with the place it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return AdvisorError(
        f"{type(error).__name__}: {error}{where}",
        hint="a damaged file or a mistake in the advisor; advisor doctor checks the store",
    )
