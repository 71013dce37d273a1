"""What an engine is, and what it runs: tasks that are text, with answers that are text.

A task names a function of the advisor's and has its argument, as JSON; so is what it answers.
Nothing else travels, so that no engine unpickles what somebody wrote, and whoever asked stores the
answers: a worker has no store. Engines are entry points of the group ``advisor.workers``.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple, Protocol

from advisor import plugins
from advisor.core.workers_setup import WorkersSetup
from advisor.errors import AdvisorError


class Task(NamedTuple):
    """A function, ``package.module:name``, and its argument as JSON text."""

    function: str
    text: str


class Done(NamedTuple):
    """What came of the task of this number: JSON text, or what went wrong, in one line."""

    number: int
    text: str = ""
    problem: str = ""


class Workers(Protocol):
    """An engine. What it cannot have done it says of each task; it never raises for one."""

    DESCRIPTION: ClassVar[str]

    def __init__(self, setup: WorkersSetup) -> None: ...

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Yield what came of every task, as they are done. Raises AdvisorError where it cannot
        begin: something is not installed, or set up wrong."""


def engine(setup: WorkersSetup) -> Workers:
    """Return the engine that a site chose. Raises InputError for one that is not there."""
    made: Workers = plugins.load("workers", setup.engine)(setup)
    return made


def perform(function: str, text: str) -> str:
    """Do a task; return its answer, or what was wrong, as JSON text."""
    module, _, name = function.partition(":")
    try:
        return json.dumps({"answer": getattr(importlib.import_module(module), name)(text)})
    except AdvisorError as error:
        return json.dumps({"problem": str(error)})
    except Exception as error:  # of one task: the others go on
        return json.dumps({"problem": repr(error)})


def done(number: int, performed: str) -> Done:
    """Return what :func:`perform` says of a task."""
    result = json.loads(performed)
    return Done(number, str(result.get("answer", "")), str(result.get("problem", "")))
