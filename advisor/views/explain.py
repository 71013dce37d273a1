"""What the advisor would do with a job that is not submitted: asked of a store or a daemon."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.database import is_readable
from advisor.errors import AdvisorError, InputError, StoreError

if TYPE_CHECKING:
    from advisor.core.decision import Decision
    from advisor.core.request import JobRequest
    from advisor.store.reader import Reader


def explain(
    payload: Mapping[str, object], *, store: Path | None, socket: Path, user: str, uid: int
) -> tuple[Decision, tuple[str, ...]]:
    """Return the decision for a payload, and the hooks that see jobs before the advisor's.

    ``payload`` is what a hook would send. The daemon at ``socket`` is asked, as hooks ask it, where
    it answers from ``store``: it alone knows queues, limits and what is free now. Else the store is
    read, if it can be; also by who asks for another user, which the daemon believes from root only.
    Nothing is recorded, and the job is never the one left alone at random. Hooks are known of PBS,
    by a daemon that may list them; none where nothing is known.
    Raises StoreError when there is neither, InputError for a request that makes no sense.
    """
    if store is not None and is_readable(store):
        if os.geteuid() not in (0, uid) or not _answers_from(store, socket):
            return from_store(store, payload, user=user, uid=uid), ()
        return _answer(socket, payload)
    if store is not None and not socket.exists():
        raise StoreError(
            f"{store}: cannot be read, and no daemon answers at {socket}",
            hint="name a store with --db or a daemon with --socket",
        )
    return _answer(socket, payload)


def _answers_from(store: Path, socket: Path) -> bool:
    """Tell whether a daemon answers at a socket, and from this store."""
    from advisor.core.protocol import call

    try:
        return store.samefile(str(call(socket, {"v": 1, "op": "status"}, 1.0).get("store")))
    except (AdvisorError, OSError):
        return False


def from_daemon(socket: Path, payload: Mapping[str, object], *, timeout_s: float = 5.0) -> Decision:
    """Ask the daemon, which hooks ask, too. Raises AdvisorError."""
    return _answer(socket, payload, timeout_s)[0]


def _answer(
    socket: Path, payload: Mapping[str, object], timeout_s: float = 5.0
) -> tuple[Decision, tuple[str, ...]]:
    from advisor.core.decision import Decision
    from advisor.core.protocol import call

    answer = call(socket, {"v": 1, "op": "explain", **payload}, timeout_s)
    hooks = answer.get("earlier_hooks")
    return Decision.from_dict(answer), tuple(map(str, hooks)) if isinstance(hooks, list) else ()


def from_store(store: Path, payload: Mapping[str, object], *, user: str, uid: int) -> Decision:
    """Decide from a store, without a daemon. Raises StoreError and InputError."""
    from dataclasses import replace

    from advisor.core.program import checked
    from advisor.core.settings import parse_choices
    from advisor.schedulers.translators import translator
    from advisor.store.reader import Reader

    choices, _ = parse_choices(str(payload.get("choices") or ""))
    parse = translator(str(payload["scheduler"])).parse_request
    try:
        request = parse({**payload, "hook": "explain"}, user=user, uid=uid, choices=choices)
    except ValueError as error:
        raise InputError(f"{payload['script_path']}: {error}") from None
    request = replace(request, program=request.program or checked(payload.get("program")))
    with Reader(store) as reader:
        return decide_alone(request, reader)


def decide_alone(request: JobRequest, reader: Reader) -> Decision:
    """Return the decision for one request, reading no other application's models.

    The holdout is never drawn.
    """
    from advisor.service.decide import decide
    from advisor.service.snapshot import site_of
    from advisor.service.step_plans import planned_applications
    from advisor.service.whole_job import applications_of
    from advisor.store.histories import history_records

    snapshot = site_of(reader)
    read = decide(request, snapshot, chance=_no_holdout)
    snapshot.histories = history_records(reader, [read.identity])
    names = {read.application} | applications_of(request, snapshot, read.identity)
    names |= planned_applications(request, snapshot, read.identity)
    apart = read.reading.apart if read.reading else ()
    names |= {program.recognised.application for program in apart if program.recognised}
    for application in sorted(filter(None, names)):
        snapshot.take([*reader.find_models(application), *reader.size_models(application)])
    return decide(request, snapshot, chance=_no_holdout)


def _no_holdout() -> float:
    return 1.0
