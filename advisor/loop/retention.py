"""How long the store keeps what, by the policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from advisor.core.units import parse_duration_s
from advisor.errors import UsageError
from advisor.loop import clock
from advisor.store.pruning import Pruned, prune
from advisor.store.reader import Reader
from advisor.store.writer import Writer

log = logging.getLogger("advisor.collect")


def prune_old(writer: Writer, older_than: str | None = None) -> Pruned | None:
    """Forget what :func:`retained` does not keep; None where everything is kept."""
    cutoffs = retained(writer, older_than)
    if cutoffs is None:
        return None
    decisions, observations = cutoffs
    return prune(writer, decisions_before=decisions, observations_before=observations)


def retained(reader: Reader, older_than: str | None = None) -> tuple[str, str] | None:
    """Return from which moments on decisions and measured runs are kept; "" for all of a kind.

    They are the policy's, or ``older_than`` for decisions. None where everything is kept. Raises
    UsageError for an ``older_than`` that is no time; of a policy of an earlier version, which let
    a number stand without a unit, all of that kind is kept.
    """
    if older_than is not None:
        try:
            return _cutoff(older_than), ""
        except (ValueError, OverflowError) as error:
            raise UsageError(
                f"--older-than {older_than}: {error}", hint="write days, like 400d"
            ) from None
    applied = reader.config("policy")
    retention = applied.compiled.get("retention") if applied else None
    spans = retention if isinstance(retention, Mapping) else {}
    moments = []
    for kind in ("decisions", "observations"):
        span = str(spans.get(kind) or "")
        try:
            moments.append(_cutoff(span) if span else "")
        except (ValueError, OverflowError) as error:
            log.warning("event=retention-unread kind=%s span=%r error=%r", kind, span, str(error))
            moments.append("")
    decisions, observations = moments
    return (decisions, observations) if decisions or observations else None


def _cutoff(span: str) -> str:
    """Return the moment a span ends before now, in the store's form. Raises ValueError."""
    length = timedelta(seconds=parse_duration_s(span))
    if not length:  # all that is there, also what a clock that was ahead dated later
        return "9999"
    return clock.form(clock.now() - length)
