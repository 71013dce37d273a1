"""How long the store keeps what, by the policy."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from advisor.core.check import Check, check_error
from advisor.core.units import parse_duration_s
from advisor.drafts import write_whole
from advisor.errors import AdvisorError, StoreError, UsageError, install_command
from advisor.loop import clock
from advisor.mounts import check_answers
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

    times = _whole_months(writer)
    if not to_prune(writer, **times).anything:
        return None
    check_answers(folder)
    # What is written need not be written again, joined with its file, because some of it is gone.
    note = folder / _PRUNING
    noted = _noted(note)
    if noted.get("times") != times or noted.get("store") != str(writer.path):
        last = write_history(writer, folder).last
        noted = {"times": times, "store": str(writer.path), "up_to": last}
        with suppress(OSError):
            write_whole(note, json.dumps(noted), 0o600)
    pruned = prune(writer, **times, up_to=noted["up_to"])
    with suppress(OSError):
        note.unlink()
    return pruned


_PRUNING = "pruning.json"
"""Says in a history's folder what is being forgotten, for who goes on where somebody was killed."""
_NOTED_S = 86400.0
"""After so long the store may be another one, a backup's."""


def _noted(note: Path) -> dict[str, Any]:
    """Return what was noted within a day, nothing where that cannot be read."""
    try:
        if time.time() - note.stat().st_mtime > _NOTED_S:
            return {}
        noted = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) and "up_to" in noted else {}


def _whole_months(reader: Reader) -> dict[str, str]:
    """Return the beginnings of the first months that are kept, as :func:`prune` takes them."""
    decisions, observations = (
        f"{cutoff[:7]}-01T00:00:00Z" if cutoff else "" for cutoff in retained(reader) or ("", "")
    )
    return {"decisions_before": decisions, "observations_before": observations}


def check_history(reader: Reader) -> Iterator[Check]:
    """Check that the policy's history can be written, and was; nothing where it names none."""
    folder = history_folder(reader)
    if folder is None or reader.published:
        return
    try:
        check_answers(folder, hint="mend or remount it; until then nothing is forgotten")
        months = _written_months(folder)
    except AdvisorError as error:
        yield check_error("history", "warn", error)
        return
    if find_spec("duckdb") is None:
        text = f"{folder}: DuckDB, which writes it, is not installed, so nothing is forgotten"
        yield Check("history", "warn", text, install_command("duckdb"))
    elif to_prune(reader, **_whole_months(reader)).anything:
        text = f"{folder}: whole months older than the policy keeps wait to be written"
        todo = "advisor collect writes them, and names what is in the way"
        yield Check("history", "warn", text, todo)
    else:
        last = f"written up to {months[-1]}" if months else "nothing was old enough yet"
        yield Check("history", "ok", f"{folder}: {last}")


def _written_months(folder: Path) -> list[str]:
    """Return the months of a history's decisions. Raises StoreError where none can be written."""
    from advisor.store import parquet

    near = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not (near.is_dir() and os.access(near, os.W_OK | os.X_OK)):
        raise StoreError(
            f"{folder}: the history cannot be written there, so nothing is forgotten",
            hint=f"{near} is not a folder that you may write to",
        )
    if near == folder and any(not path.name.startswith(".") for path in folder.iterdir()):
        parquet.check_folder(folder)
    return list(parquet.month_files(folder, "decisions"))


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
