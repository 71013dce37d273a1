"""Progress of benches on one or several node types, each measured on a node of its own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

from advisor.errors import AdvisorError, SchedulerError

if TYPE_CHECKING:
    from advisor.core.inventory import NodeType
    from advisor.schedulers.command import CommandProcess

_EVERY_S = 10.0
"""Seconds between two lines on a node type where no bar can be drawn."""

Result = TypeVar("Result")


class ProgressBars:
    """One bar for each node type on a terminal; elsewhere a line now and then.

    ``running`` are the commands that measure elsewhere.
    """

    def __init__(self, out: TextIO, names: Sequence[str]) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._shown_at: dict[str, float] = {}
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}
        self.running: list[CommandProcess] = []
        if out.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("within 2 %, {task.fields[seconds]:.0f} s"),
                console=Console(file=out, highlight=False),
                transient=True,
            )
            self._tasks = {n: self._bar.add_task(n, total=None, seconds=0.0) for n in names}

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, name: str, sure: int, total: int, seconds: float) -> None:
        """Show how many microbenchmarks of a node type are sure, of how many."""
        with self._lock:
            if self._bar is not None:
                self._bar.update(self._tasks[name], completed=sure, total=total, seconds=seconds)
            elif time.monotonic() - self._shown_at.get(name, 0.0) >= _EVERY_S:
                self._shown_at[name] = time.monotonic()
                print(
                    f"{name}: {sure} of {total} within 2 %, {seconds:.0f} s",
                    file=self._out,
                    flush=True,
                )

    def each(
        self,
        places: Sequence[tuple[str, NodeType | None]],
        measure: Callable[[str, NodeType | None], Result],
    ) -> list[tuple[Result | None, str]]:
        """Measure all places at once; return each one's result, or why there is none."""
        if len(places) == 1:
            return [(measure(*places[0]), "")]

        def one(place: tuple[str, NodeType | None]) -> tuple[Result | None, str]:
            try:
                return measure(*place), ""
            except AdvisorError as error:
                return None, str(error)

        with ThreadPoolExecutor(len(places)) as pool:
            waiting = [pool.submit(one, place) for place in places]
            try:
                return [w.result() for w in waiting]
            except KeyboardInterrupt:  # what is measured already is kept
                for process in self.running:
                    process.terminate()
                return [w.result() for w in waiting]

    def stream(self, name: str, process: CommandProcess) -> dict[str, Any]:
        """Show what ``advisor lab bench --emit`` says elsewhere; return its result.

        Raises SchedulerError.
        """
        assert process.stdout is not None and process.stderr is not None
        self.running.append(process)
        result: dict[str, Any] | None = None
        why = ""
        try:
            for line in process.stdout:
                message = _message(line)
                if "progress" in message:
                    self.show(name, *message["progress"])
                result = message.get("result", result)
                why = message.get("error", why)
            errors = process.stderr.read().strip().splitlines()
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            process.stdout.close()
            process.stderr.close()
        if result is None:
            reason = why or (" ".join(errors[-1].split()) if errors else f"exit code {code}")
            raise SchedulerError(f"no profile: {reason}")
        return result


def _message(line: str) -> dict[str, Any]:
    """Return what a line of ``--emit`` says; a node's prolog may print others."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
