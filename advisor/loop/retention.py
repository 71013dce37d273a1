"""How long the store keeps what, by the policy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from advisor.core.units import parse_duration_s
from advisor.errors import UsageError
from advisor.loop import clock
from advisor.store.pruning import Pruned, prune, to_prune
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


def prune_months(writer: Writer, folder: Path) -> Pruned | None:
    """Write a history, then forget the whole months that :func:`retained` does not keep.

    None where there is none, or everything is kept. By whole months, so that each is written once.
    Raises StoreError; nothing is forgotten then.
    """
    from advisor.loop.history import write_history
    from advisor.mounts import check_answers

    cutoffs = retained(writer)
    if cutoffs is None:
        return None
    decisions, observations = (f"{cutoff[:7]}-01T00:00:00Z" if cutoff else "" for cutoff in cutoffs)
    times = {"decisions_before": decisions, "observations_before": observations}
    if not to_prune(writer, **times).anything:
        return None
    check_answers(folder)
    return prune(writer, **times, up_to=write_history(writer, folder).last)


def history_folder(reader: Reader) -> Path | None:
    """Return the folder of the history that the policy has, None without any."""
    folder = _section(reader).get("history")
    return Path(folder) if isinstance(folder, str) and folder else None


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
    spans, moments = _section(reader), []
    for kind in ("decisions", "observations"):
        span = str(spans.get(kind) or "")
        try:
            moments.append(_cutoff(span) if span else "")
        except (ValueError, OverflowError) as error:
            log.warning("event=retention-unread kind=%s span=%r error=%r", kind, span, str(error))
            moments.append("")
    decisions, observations = moments
    return (decisions, observations) if decisions or observations else None


def _section(reader: Reader) -> Mapping[str, object]:
    """Return what the policy says of retention."""
    applied = reader.config("policy")
    retention = applied.compiled.get("retention") if applied else None
    return retention if isinstance(retention, Mapping) else {}


def _cutoff(span: str) -> str:
    """Return the moment a span ends before now, in the store's form. Raises ValueError."""
    length = timedelta(seconds=parse_duration_s(span))
    if not length:  # all that is there, also what a clock that was ahead dated later
        return "9999"
    return clock.form(clock.now() - length)
