"""How ``advisor rank`` keeps a stored application's ranking, and says so."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import paths

if TYPE_CHECKING:
    from advisor.ranking.rank import RankedPhase, Ranking
    from advisor.ranking.similarity import Thresholds
    from advisor.ranking.streams import Characterisation
    from advisor.store.rankings import StoredCharacterisation


@dataclass(frozen=True, slots=True)
class Kept:
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
) -> Kept:
    """Store a ranking for the jobs its characterisation may advise, if this user may write."""
    from advisor.ranking.ratios import ratios
    from advisor.store.rankings import save_ranking
    from advisor.store.writer import Writer

    path = paths.store_path(args.db)
    if not os.access(path, os.W_OK):
        return Kept(False, (f"not stored: {path} may not be written by you",))
    with Writer(path) as store:
        found = ratios(ranking, store.inventory(), thresholds)
        save_ranking(
            store,
            source.application,
            source.workload,
            ranking.base,
            found,
            method=ranking.method,
            contributor=source.contributor,
            scope=source.scope,
        )
        followed = store.renew_transfers(source.application, source.workload)
    whose = "everybody's jobs" if source.scope == "all" else f"jobs of {source.contributor}"
    lines = [f"stored, for {whose}"]
    if not followed and len(found) > 1:
        lines.append(f"no model follows from it: {source.application} has none on {ranking.base}")
    for t in followed:
        if t.problem:
            lines.append(f"{t.node_type}: no job goes there: {t.problem}")
        else:
            lines.append(f"{t.node_type}: jobs may go there, by this estimate (advisor options)")
    return Kept(True, tuple(dict.fromkeys(lines)))


ENOUGH = 25
"""Points of an element that is as good as equal."""


def queue_missing(args: argparse.Namespace, found: Characterisation, ranking: Ranking) -> str:
    """Have the microbenchmarks that the phases lack wait for the next bench; say so or why not.

    A phase lacks them unless one of its own size and stride was measured on the base node type,
    and what its estimate takes on all others.
    """
    from advisor.ranking.suite import like
    from advisor.store.profiles import Wanted, want
    from advisor.store.writer import Writer

    wanted = [
        Wanted(m.name, tuple(s.to_dict() for s in m.streams), f"{found.application}: {name}")
        for name, streams in (
            (r.phase.name, r.phase.streams) for r in ranking.phases if ranking.missing or _lacks(r)
        )
        for m in like(streams, 1)
    ]
    if not wanted:
        return ""
    path = paths.store_path(args.db)
    told = f"{len(wanted)} microbenchmarks nearer to the phases were not measured"
    if not os.access(path, os.W_OK):
        return f"{told}; who may write {path} can have them measured by advisor bench"
    with Writer(path) as store:
        want(store, wanted)
    return f"{told}; they wait for: advisor bench --wanted"


def _lacks(ranked: RankedPhase) -> bool:
    best = ranked.match
    if not ranked.phase.streams:
        return False
    return best is None or min(best.elements["size"], best.elements["stride"]) < ENOUGH
