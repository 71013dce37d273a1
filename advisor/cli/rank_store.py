"""How ``advisor rank`` keeps a stored application's ranking, and says so."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import paths

if TYPE_CHECKING:
    from advisor.ranking.rank import Ranking
    from advisor.ranking.similarity import Thresholds
    from advisor.ranking.streams import Characterisation
    from advisor.store.rankings import StoredCharacterisation


@dataclass(frozen=True, slots=True)
class StoredNow:
    """Whether a ranking is stored, and all that is to be said of it."""

    stored: bool
    lines: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return {"stored": self.stored, "notes": list(self.lines)}


def keep_ranking(
    args: argparse.Namespace,
    source: StoredCharacterisation,
    ranking: Ranking,
    thresholds: Thresholds,
    *,
    by_hand: bool,
) -> StoredNow:
    """Store a ranking for the jobs its characterisation may advise, if this user may write.

    ``by_hand``: it follows from files that were given, and new profiles leave it as it is.
    """
    from advisor.loop.rerank import keep
    from advisor.store.writer import Writer

    path = paths.store_path(args.db)
    whose = "everybody's jobs" if source.scope == "all" else f"jobs of {source.contributor}"
    if not _writable(path):
        return StoredNow(False, (f"not stored: {_why_not(path)}; {_instead(path, source, whose)}",))
    with Writer(path) as store:
        kept = keep(store, source, ranking, thresholds, by_hand=by_hand)
    lines = [f"stored, for {whose}"]
    if by_hand:
        lines.append("made by hand: it stays so when there are new profiles")
    if not kept.transfers and len(kept.estimates) > 1:
        lines.append(f"no model follows from it: {source.application} has none on {ranking.base}")
    for t in kept.transfers:
        if t.problem:
            lines.append(f"{t.node_type}: no job goes there: {t.problem}")
        else:
            lines.append(f"{t.node_type}: jobs may go there, by this estimate (advisor options)")
    return StoredNow(True, tuple(dict.fromkeys(lines)))


def queue_missing(args: argparse.Namespace, found: Characterisation, ranking: Ranking) -> str:
    """Have the microbenchmarks that the phases lack wait for the next bench; say so or why not."""
    from advisor.loop.rerank import lacking
    from advisor.store.profiles import want, wanted
    from advisor.store.reader import Reader
    from advisor.store.writer import Writer

    lacks = lacking(found, ranking)
    if not lacks:
        return ""
    path = paths.store_path(args.db)
    told = f"{len(lacks)} microbenchmarks nearer to the phases were not measured"
    if _writable(path):
        with Writer(path) as store:
            waiting = want(store, lacks)
    elif path.exists():
        with Reader(path) as reader:
            names = [(w.microbenchmark, w.streams) for w in wanted(reader)]
        waiting = sum((w.microbenchmark, w.streams) in names for w in lacks)
    else:
        waiting = 0
    if waiting:
        return f"{told}; they wait for: advisor bench --wanted"
    return f"{told}; who may write {path} can have them measured by advisor bench"


def _writable(path: Path) -> bool:
    from advisor.store.reader import Reader

    if not os.access(path, os.W_OK):
        return False
    with Reader(path) as store:
        return not store.published


def _why_not(path: Path) -> str:
    published = os.access(path, os.W_OK)
    return f"{path} {'is a published copy' if published else 'may not be written by you'}"


def _instead(path: Path, source: StoredCharacterisation, whose: str) -> str:
    """Say which ranking jobs follow when this one is not stored."""
    from advisor.store.rankings import rankings
    from advisor.store.reader import Reader

    with Reader(path) as store:
        found = rankings(store, source.application, source.workload, base=source.node_type)
    of = [r for r in found if r.contributor == source.contributor]
    if of:
        return f"the site's own ranking, of {of[0].created_at[:10]}, holds for {whose}"
    return "the site has none yet: its next advisor bench, or advisor rank by its owner, makes one"
