"""What each operation of the protocol does."""

from __future__ import annotations

import logging
import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.core.availability import EARLIER_HOOKS
from advisor.core.decision import Decision
from advisor.core.openmetrics import AnswerCounts, Text
from advisor.core.protocol import (
    MAX_CHOICES,
    MAX_SCRIPT,
    ProtocolError,
    answer_line,
    parse_request_line,
)
from advisor.core.reasons import CAP_TRIAL, TRIALS, reason
from advisor.core.request import JobRequest
from advisor.core.settings import parse_choices
from advisor.core.stamp import read_stamp
from advisor.errors import AdvisorError, InputError, MovedStoreError, StoreError
from advisor.paths import beside
from advisor.plugins import names
from advisor.schedulers.translators import translator
from advisor.service.answered import Answered
from advisor.service.decide import decide, unchanged
from advisor.service.issue import issue, new_id, timestamp
from advisor.service.limits import Limits
from advisor.service.peer import Peer, Users
from advisor.service.scripts import KEY, Scripts
from advisor.service.snapshot import StoreSource
from advisor.service.spool import Spool
from advisor.service.watch import Watch
from advisor.store import visible
from advisor.store.cap_trials import give_up_cap_trial, take_cap_trial
from advisor.store.follow import follow
from advisor.store.journal import Journal
from advisor.store.reader import Reader
from advisor.store.trials import give_up_place, key_of, take_place

if TYPE_CHECKING:
    from advisor.core.operations import (
        CharacteriseReply,
        ObserveReply,
        ProfileReply,
        ScriptReply,
        StatusReply,
        SubmittedReply,
    )

log = logging.getLogger("advisor.serve")

Request = Mapping[str, object]
AnswerKeys = Mapping[str, object]

_REMEMBERED = 50_000  # decisions, with their users: nobody else withdraws them
_LONG = {"script": MAX_SCRIPT, "choices": MAX_CHOICES, "client": MAX_SCRIPT}
JOURNAL_ENDS_S = 2.5
"""Seconds in which a stopped daemon writes the decisions that wait; others come with their jobs."""
LONGEST_QUERY_S = 1.0
"""Seconds after which a query for a page, which has some, ends with an error."""
_MOST = 16384
"""Characters of what a hook sends, by key, and of all else together."""


@dataclass(slots=True)
class Handlers:
    """The daemon's operations over one store.

    ``spool`` is where users' runs are left; ``watch`` keeps an eye on the scheduler.
    """

    source: StoreSource
    users: Users = field(default_factory=Users)
    journal: Journal | None = None
    spool: Spool | None = None
    watch: Watch | None = None
    limits: Limits = field(init=False)
    scripts: Scripts = field(init=False)
    _behind: deque[Callable[[], None]] = field(default_factory=deque)
    _issued: dict[str, int] = field(default_factory=dict)
    _latencies: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    _decided: int = 0
    _changed: int = 0
    _started: float = field(default_factory=time.time)
    unrecorded: int = 0
    """Decisions that were not recorded: their users had asked for too many."""
    _readers: list[Reader] = field(default_factory=list)
    _counts: AnswerCounts = field(default_factory=AnswerCounts)

    def __post_init__(self) -> None:
        self.limits = Limits(self.users)
        self.scripts = Scripts(self.users)

    def start(self) -> None:
        """Start writing behind; load what the first job would wait for."""
        for name in names("translators"):
            with suppress(InputError):  # whoever asks for that scheduler hears of it
                translator(name)
        if self.journal is not None:
            self.journal.start()

    def close(self) -> None:
        """Write what is still to be written and let go of the store."""
        self.settle()
        if self.journal is not None:
            self.journal.close(JOURNAL_ENDS_S)
        while self._readers:
            self._readers.pop().close()
        self.source.close()

    def refresh(self, *, force: bool = False) -> bool:
        """Look at the store, tell whether anything changed; on failure keep what was read last."""
        fresh = False
        try:
            fresh = self.source.refresh(force=force)
            if fresh:
                s = self.source.snapshot
                log.info(
                    "event=loaded models=%d node_types=%d policy=%d",
                    len(s.models),
                    len(s.inventory.node_types),
                    s.policy.version,
                )
            if self.source.error:
                log.info("event=store-back")
            self.source.error = ""
        except MovedStoreError as moved:
            if self._follow(moved):
                return self.refresh(force=force)
        except Exception as error:  # whatever is wrong with it, the daemon goes on answering
            text = str(error) if isinstance(error, AdvisorError) else repr(error)
            if text != self.source.error:
                log.error("event=store-unreadable error=%r", text)
            self.source.error = text
        self.source.hangs = False
        return fresh

    def _follow(self, moved: MovedStoreError) -> bool:
        """Go on with the store that this one was moved to; tell whether it is there."""
        try:
            store = follow(moved)
        except AdvisorError as error:
            if str(error) != self.source.error:
                log.error("event=store-unreadable error=%r", str(error))
            self.source.error = str(error)
            return False
        log.warning("event=store-moved from=%s to=%s", self.source.path, store)
        self.source.path = store
        if self.spool is not None:
            self.spool.follow(beside(store) / "spool", store)
        if self.watch is not None:
            self.watch.follow()
        return True

    def hangs(self) -> None:
        """Say of the store's file system that it does not answer, until it does."""
        text = f"{self.source.path}: its file system does not answer; jobs are decided from memory"
        if not self.source.hangs:
            log.error("event=store-unreadable error=%r", text)
        self.source.hangs, self.source.error = True, text

    def mark_enforce(self, socket_path: Path, *, on: bool | None = None) -> None:
        """Keep the marker file beside the socket that tells job_submit to ask us."""
        marker = socket_path.with_name(socket_path.name + ".enforce")
        policy = self.source.snapshot.policy
        enforced = (
            on
            if on is not None
            else (policy.base.enforce or any(r.overrides.get("enforce") for r in policy.rules))
        )
        try:
            if enforced and not marker.exists():
                marker.touch(mode=0o644)
            elif not enforced:
                marker.unlink(missing_ok=True)
        except OSError as error:
            log.warning("event=enforce-marker error=%r", str(error))

    def answer(self, line: bytes, peer: Peer) -> bytes:
        """Answer one line with one. Raises AdvisorError for what the peer did wrong.

        The same job is submitted again and again: a user's line that was answered from the same
        snapshot is not worked out again. What need not be done before the answer is sent waits for
        :meth:`settle`.
        """
        if key := self.scripts.key_in(line):
            line = self._with_script(line, peer)
            key = self.scripts.key_in(line)
        snapshot, luck = self.source.snapshot, random.random()
        past_answer = snapshot.answered.get((peer.uid, line))
        if past_answer is not None and past_answer.holds(luck):
            identity, created_at = new_id(), timestamp()
            self._issue_decision(
                lambda: issue(past_answer.decision, identity, created_at), identity, past_answer
            )
            return past_answer.line(identity, created_at)
        request = parse_request_line(line)
        if request["op"] != "decide":
            self.settle()  # a job may be linked to a decision that still waits
            return answer_line(_operation(request)(self, request, peer))
        carried = read_stamp(str(request.get("stamp") or ""))
        uid = self.users.subject(peer, request)
        # The filter has asked already, and the job is as that answer made it.
        if carried is not None and self._issued.get(carried.id) == uid:
            return answer_line({"decision": carried.id, "rewrite": {}, "message": ""})
        self._drop_replaced(request.get("program"), uid)
        drawn: list[float] = []

        def chance() -> float:
            drawn.append(luck)
            return luck

        decision, lasts = self._decision(request, peer, chance=chance)
        if request.get("hook") == "job_submit" and not decision.policy.enforce:
            decision = decision.withdrawn()
        answered = Answered(decision, request, uid, bool(drawn))
        # What was drawn, and what came by a key or a stamp, is another answer the next time.
        if lasts and not key and not decision.holdout and carried is None:
            snapshot.remember((peer.uid, line), answered)
        self._issue_decision(lambda: decision, decision.id, answered)
        return answered.line(decision.id, decision.created_at)

    def script_elsewhere(self, line: bytes, peer: Peer) -> tuple[int, str] | None:
        """Return user and key of the text that a line needs, where it lies in the user's home.

        Raises ProtocolError for a line that is no request.
        """
        key = self.scripts.key_in(line)
        if not key:
            return None
        uid = self.users.subject(peer, parse_request_line(line))
        return (uid, key) if self.scripts.lies_elsewhere(uid, key) else None

    def _with_script(self, line: bytes, peer: Peer) -> bytes:
        """Return a line with the text whose key it names, as it is where there is none."""
        request = parse_request_line(line)
        if request["op"] != "decide":
            return line
        if peer.uid in self.users.trusted_uids:
            self.scripts.asked = True
        return self.scripts.filled(line, self.users.subject(peer, request))

    def _explain(self, request: Request, peer: Peer) -> AnswerKeys:
        decision, _ = self._decision(request, peer, hook="explain", chance=lambda: 1.0)
        return {**decision.to_dict(), "earlier_hooks": self._earlier_hooks(decision)}

    def _earlier_hooks(self, decision: Decision) -> list[str]:
        """Return the site's hooks that see the job before the advisor's, as far as is known."""
        availability = self.source.snapshot.availability
        if availability is None or availability.scheduler != decision.scheduler:
            return []
        return availability.settings.get(EARLIER_HOOKS, "").split()

    def settle(self) -> None:
        """Do what answers left to be done behind them: the log, the journal, sweeps to start."""
        while self._behind:
            try:
                self._behind.popleft()()
            except Exception:
                log.exception("event=internal-error")

    def _issue_decision(
        self, decision: Callable[[], Decision], identity: str, answered: Answered
    ) -> None:
        """Note that a decision goes out; its record is made once the answer is sent."""
        self._issued[identity] = answered.uid
        if len(self._issued) > _REMEMBERED:
            del self._issued[next(iter(self._issued))]
        self._decided += 1
        self._changed += answered.decision.changed
        reasons = answered.decision.reasons
        deciding = reasons[-1].code if reasons else ""
        self._counts.reasons[deciding, answered.decision.changed] += 1
        self._promise_nodes(answered.decision)
        self._behind.append(lambda: self._record(decision(), answered.request, answered.uid))

    def _promise_nodes(self, decision: Decision) -> None:
        """Note that a job is bound to nodes which the scheduler does not know yet."""
        if self.watch is not None and decision.binds_node_type and decision.chosen is not None:
            configuration = decision.chosen.configuration
            self.watch.promise(configuration.node_type, configuration.nodes)

    def _drop_replaced(self, removed: object, uid: int) -> None:
        """Forget the decision whose program was not found, now that its hook asks again."""
        first = str(removed.get("instead") or "") if isinstance(removed, Mapping) else ""
        if not first or self._issued.get(first) != uid:
            return
        del self._issued[first]
        self._behind.append(lambda: give_up_place(self.source.path, first))
        self._behind.append(lambda: give_up_cap_trial(self.source.path, first))
        self._decided -= 1
        self._changed -= 1
        journal = self.journal
        if journal is not None:
            self._behind.append(lambda: journal.drop(first))

    def _record(self, decision: Decision, request: Mapping[str, object], uid: int) -> None:
        """Keep a decision whose answer is sent.

        Of a user who asks for too many, a job's own stamp tells what was decided.
        """
        if not self.limits.of(uid).may_record():
            self.unrecorded += 1
            log.warning("event=not-recorded uid=%d", self.limits.booked(uid))
            return
        if self.journal is not None:
            self.journal.put(decision)
        if self.spool is not None and any(r.code == "training-auto" for r in decision.reasons):
            self.spool.want_training(decision, request, uid)
        log.info(
            "event=decision id=%s user=%s application=%r changed=%d reasons=%s",
            decision.id,
            decision.user,
            decision.application,
            decision.changed,
            ",".join(r.code for r in decision.reasons),
        )

    def _decision(
        self,
        request: Mapping[str, object],
        peer: Peer,
        *,
        hook: str = "",
        chance: Callable[[], float] = random.random,
    ) -> tuple[Decision, bool]:
        """Return the decision, and whether the same request would get it again."""
        uid = self.users.subject(peer, request)
        user = self.users.name(uid)
        scheduler = str(request.get("scheduler") or "")
        try:
            parser = translator(scheduler).parse_request
        except InputError as error:
            raise ProtocolError(error.message) from None
        hook_name = hook or str(request.get("hook") or "")
        payload = {**request, "hook": hook_name}
        if _too_long(request):
            empty = JobRequest(scheduler, str(payload["hook"])[:40], user, uid)
            return unchanged(empty, self.source.snapshot, reason("unrecognised")), False
        choices, problem = parse_choices(str(request.get("choices") or ""))
        snapshot = self.source.snapshot
        try:
            job = parser(payload, user=user, uid=uid, choices=choices)
        except ValueError as error:
            empty = JobRequest(scheduler, str(payload["hook"]), user, uid)
            return unchanged(empty, snapshot, reason("bad-request", error)), False
        if self.source.error and not self.source.loaded:
            return unchanged(job, snapshot, reason("store-unreadable")), False
        if KEY.fullmatch(str(request.get("client") or "")):  # its text would say what its user set
            return unchanged(job, snapshot, reason("script-missing")), False
        # A trial is judged by its decision's record, which a host without a journal keeps none of.
        may_try = self.journal is not None and hook_name != "job_submit"
        decision = decide(job, snapshot, chance=chance, trials=may_try)
        lasts = not problem
        if decision.changed and not hook and not TRIALS.isdisjoint(decision.codes):
            lasts = False
            if not self._take_place(decision):
                decision = decide(job, snapshot, chance=chance, trials=False)
        if problem:
            log.warning("event=choices-bad user=%s error=%r", user, problem)
        return decision, lasts

    def _take_place(self, decision: Decision) -> bool:
        """Take the place of a trial, which only one job at a time has; False where it is taken."""
        snapshot = self.source.snapshot
        if CAP_TRIAL in decision.codes:
            if not take_cap_trial(self.source.path, decision):
                return False
            snapshot.cap_trials.add(decision.identity)
            return True
        model = snapshot.models.get(decision.model_id or 0)
        if model is None or not take_place(self.source.path, decision, model):
            return False
        snapshot.trials.pending.add(key_of(model))
        return True

    def _submitted(self, request: Request, peer: Peer) -> SubmittedReply:
        decision, job = str(request.get("decision") or ""), str(request.get("job") or "")
        if self._issued.get(decision) != self.users.subject(peer, request):
            raise ProtocolError(f"decision {decision!r} was not made for you")
        # Slurm's tasks of arrays are 17_4, parts of heterogeneous jobs 17+1.
        if not job.replace("_", "").replace("+", "").isalnum():
            raise ProtocolError(f"not a job id: {job!r}")
        if self.journal is not None:
            self.journal.link(decision, job)
        return {"ok": True}

    def _script(self, request: Request, peer: Peer) -> ScriptReply:
        self.scripts.put(peer.uid, request.get("key"), request.get("client"))
        return {"ok": True, "asked": self.scripts.asked}

    def _observe(self, request: Request, peer: Peer) -> ObserveReply:
        return {"ok": True, "stored": self._spool().put_runs(request, *self._sender(peer))}

    def _characterise(self, request: Request, peer: Peer) -> CharacteriseReply:
        inventory = self.source.snapshot.inventory
        self._spool().put_phases(request, *self._sender(peer), inventory)
        return {"ok": True}

    def _profile(self, request: Request, peer: Peer) -> ProfileReply:
        inventory = self.source.snapshot.inventory
        self._spool().put_profiles(request, *self._sender(peer), inventory)
        return {"ok": True}

    def _spool(self) -> Spool:
        """Return where what peers measured is left. Raises AdvisorError where none is taken."""
        if self.spool is None:
            raise AdvisorError(
                "this daemon answers from a published copy and stores no measurements",
                hint="send them to the daemon on the store's host",
            )
        return self.spool

    def _sender(self, peer: Peer) -> tuple[str, int]:
        """Return the user who contributes, and the user id that it is booked to."""
        return self.users.name(peer.uid), self.limits.booked(peer.uid)

    def show(self, line: bytes, peer: Peer) -> bytes:
        """Answer a line that asks for what the peer may see; some threads do it."""
        request = parse_request_line(line)
        if request["op"] not in visible.SHOWN:
            raise ProtocolError("a request has one op")
        return answer_line(self._page(request, peer))

    def _page(self, request: Mapping[str, object], peer: Peer) -> dict[str, object]:
        """Return what the peer may see of the store."""
        user = self.users.name(peer.uid)
        try:
            reader = self._readers.pop()  # no other thread uses it meanwhile
            if reader.path != self.source.path:  # the store was moved
                reader.close()
                raise IndexError
        except IndexError:
            # Soon given up: few threads read pages, for all users.
            reader = Reader(self.source.path, timeout_s=0.05, longest_s=LONGEST_QUERY_S)
        try:
            reader.changed()  # a published copy may have been replaced
            page = visible.page(reader, request, user, all_jobs=self.users.admin(peer))
        except StoreError:
            reader.close()
            raise
        self._readers.append(reader)
        return page

    def observe_latency(self, seconds: float) -> None:
        """Note how long an answer took."""
        self._latencies.append(seconds)
        self._counts.answered(seconds)

    def metrics(self) -> str:
        """Return how the daemon is doing as OpenMetrics text."""
        snapshot, text, now_s = self.source.snapshot, Text(), time.time()
        states = Counter(m.state for m in snapshot.models.values())
        journal = self.journal
        text.family("build", "gauge", "the daemon's version", [({"version": __version__}, 1.0)])
        text.family(
            "uptime_seconds",
            "gauge",
            "since the daemon began",
            [({}, now_s - self._started)],
            "seconds",
        )
        text.family(
            "decisions",
            "counter",
            "jobs decided, by the reason that decided and whether changed",
            [
                ({"reason": reason, "changed": str(int(changed))}, n)
                for (reason, changed), n in sorted(self._counts.reasons.items())
            ],
        )
        text.histogram(
            "answer_seconds",
            "time of the daemon for an answer",
            self._counts.times,
            self._counts.time_s,
        )
        text.family(
            "refused",
            "counter",
            "requests refused, and connections closed, as one user took too much",
            [({}, self.limits.refused)],
        )
        text.family("connections", "gauge", "open connections", [({}, self.limits.connections)])
        text.family(
            "models",
            "gauge",
            "current models by state",
            [({"state": s}, n) for s, n in sorted(states.items())],
        )
        text.family(
            "node_types",
            "gauge",
            "node types of the inventory",
            [({}, len(snapshot.inventory.node_types))],
        )
        text.family(
            "policy_version", "gauge", "the policy that is applied", [({}, snapshot.policy.version)]
        )
        text.family(
            "store_readable",
            "gauge",
            "1 while the store can be read",
            [({}, float(not self.source.error))],
        )
        text.family(
            "store_size_bytes",
            "gauge",
            "the store's file",
            [({}, self.source.size_bytes())],
            "bytes",
        )
        text.family(
            "store_age_seconds",
            "gauge",
            "since the copy that is read was published",
            [({}, self.source.age_s())],
            "seconds",
        )
        text.family(
            "decisions_waiting",
            "gauge",
            "decisions not written to the store yet",
            [({}, journal.waiting if journal else None)],
        )
        text.family(
            "decisions_lost",
            "counter",
            "decisions that could not be written",
            [({}, journal.dropped if journal else None)],
        )
        text.family(
            "decisions_unrecorded",
            "counter",
            "not recorded, as one user asked for too many; jobs' stamps tell",
            [({}, self.unrecorded)],
        )
        text.family(
            "spool_files",
            "gauge",
            "files of users' measurements that wait",
            [({}, self.spool.waiting if self.spool else None)],
        )
        return text.text()

    def status(self) -> StatusReply:
        """Return how the daemon is doing."""
        snapshot = self.source.snapshot
        times = sorted(self._latencies)

        def quantile(q: float) -> float | None:
            return round(times[int(q * (len(times) - 1))] * 1e6, 1) if times else None

        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.time() - self._started, 1),
            "store": str(self.source.path),
            "store_error": self.source.error,
            "store_hangs": self.source.hangs,
            "store_read": self.source.loaded,
            "store_age_s": self.source.age_s(),
            "models": len(snapshot.models),
            "newest_model": max(snapshot.models, default=0),
            "node_types": sorted(snapshot.inventory.node_types),
            "policy_version": snapshot.policy.version,
            "decisions": self._decided,
            "changed": self._changed,
            "availability": None if self.watch is None else self.watch.status(),
            "connections": self.limits.connections,
            "refused": self.limits.refused,
            "takes_results": self.spool is not None,
            "scripts": {"found": self.scripts.found, "missing": self.scripts.missing},
            "answer_us": {"p50": quantile(0.5), "p99": quantile(0.99)},
        }


_OPERATIONS: Mapping[str, Callable[[Handlers, Request, Peer], AnswerKeys]] = {
    "explain": Handlers._explain,
    "submitted": Handlers._submitted,
    "script": Handlers._script,
    "observe": Handlers._observe,
    "characterise": Handlers._characterise,
    "profile": Handlers._profile,
    "status": lambda handlers, _request, _peer: handlers.status(),
    "metrics": lambda handlers, _request, _peer: {"metrics": handlers.metrics()},
    "ping": lambda _handlers, _request, _peer: {"pong": True, "version": __version__},
}
"""What is answered in the loop, besides ``decide``, whose answers are remembered by their line;
pages of the store (:data:`advisor.store.visible.SHOWN`) are read in threads, by ``show``."""


def _operation(request: Request) -> Callable[[Handlers, Request, Peer], AnswerKeys]:
    """Return what does a request's operation. Raises ProtocolError where the loop does not."""
    name = str(request["op"])
    if name in visible.SHOWN:  # else it would have been seen before it was read as JSON
        raise ProtocolError(f"write the op as it is: {name}")
    if name not in _OPERATIONS:
        raise ProtocolError(f"unknown op {name!r}")
    return _OPERATIONS[name]


def _too_long(request: Mapping[str, object]) -> bool:
    """Tell whether a request holds more than any hook sends of a job that can be understood."""
    rest = {k: v for k, v in request.items() if k not in _LONG}
    return _room(rest, _MOST) < 0 or any(
        _room(request[key], most) < 0 for key, most in _LONG.items() if key in request
    )


def _room(value: object, room: int, depth: int = 5) -> int:
    """Return how many of ``room`` characters a value leaves; below 0 it is not looked at whole.

    Each part of a list or an object takes four besides its own.
    """
    if isinstance(value, str):
        return room - len(value)
    if isinstance(value, dict):
        parts: Iterable[object] = value.values()
        room -= sum(map(len, value)) + 4 * len(value)
    elif isinstance(value, list):
        parts = value
    else:
        return room
    if not depth:  # deeper than any hook nests
        return -1
    for part in parts:
        room -= 4
        if room < 0:
            break
        if isinstance(part, str):
            room -= len(part)
        elif isinstance(part, list | dict):
            room = _room(part, room, depth - 1)
    return room
