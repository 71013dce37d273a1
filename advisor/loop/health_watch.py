"""Check that the daemon knows what the scheduler's nodes do now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.core.check import Check
from advisor.schedulers.choose import every

_UNKNOWN = "no job goes to another node type"


def check_watch(status: Mapping[str, object]) -> Iterator[Check]:
    """Check what the daemon's status says of its watch on the scheduler."""
    if "availability" not in status:  # an older daemon
        return
    watch = status["availability"]
    if not isinstance(watch, Mapping):
        yield Check(
            "watch",
            "warn",
            f"it does not watch the scheduler: {_UNKNOWN}",
            "start it without --watch 0 where the scheduler's commands are",
        )
        return
    labels = {s.NAME: s.LABEL for s in every()}
    who = labels.get(str(watch.get("scheduler")), "the scheduler")
    age = watch.get("age_s")
    old = "" if age is None else f" (last read {age:g} s ago)"
    if watch.get("error"):
        consequence = "" if watch.get("known") else f": {_UNKNOWN}"
        yield Check(
            "watch",
            "warn",
            f"it cannot read {who}{old}{consequence}: {watch['error']}",
            str(watch.get("hint") or "") or "run the scheduler's commands as the daemon's user",
        )
    elif not watch.get("known"):
        yield Check(
            "watch",
            "warn",
            f"what it knows of {who} is too old{old}: {_UNKNOWN}",
            "is the machine overloaded? see the daemon's log",
        )
    elif not watch.get("limits_known"):
        yield Check(
            "watch",
            "warn",
            f"it cannot read limits{old}: no job goes to nodes of another size: "
            f"{watch.get('limits_error') or 'not read yet'}",
            "run the daemon as a user who may run: sacctmgr show assoc",
        )
    else:
        yield Check("watch", "ok", f"{who}'s nodes and limits are known{old}")
