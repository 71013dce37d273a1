"""How long the store keeps what, by the policy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from advisor.core.units import parse_duration_s
from advisor.errors import UsageError
from advisor.loop import clock
from advisor.store.pruning import Pruned, prune
from advisor.store.writer import Writer


def prune_old(writer: Writer, older_than: str | None = None) -> Pruned | None:
    """Forget what the policy, or ``older_than`` for decisions, no longer keeps.

    None where everything is kept. Raises UsageError for a time that is none.
    """
    applied = writer.config("policy")
    retention = applied.compiled.get("retention") if applied else None
    retention = retention if isinstance(retention, Mapping) else {}
    decisions = _before(str(retention.get("decisions") or "") if older_than is None else older_than)
    observations = _before(str(retention.get("observations") or "")) if older_than is None else ""
    if not decisions and not observations:
        return None
    return prune(writer, decisions_before=decisions, observations_before=observations)


def _before(span: str) -> str:
    """Return the moment a span ends before now, in the store's form; "" for no span."""
    if not span:
        return ""
    try:
        length = timedelta(seconds=parse_duration_s(span))
        if not length:  # all that is there, also what a clock that was ahead dated later
            return "9999"
        return clock.form(clock.now() - length)
    except (ValueError, OverflowError):
        raise UsageError(f"{span!r} is not a time", hint="write days, like 400d") from None
