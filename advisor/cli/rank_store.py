"""How ``advisor rank`` keeps a stored application's ranking, and says so."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor import paths

if TYPE_CHECKING:
    from advisor.ranking.rank import Ranking
    from advisor.ranking.similarity import Profile, Thresholds
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
    profiles: Sequence[Profile],
    thresholds: Thresholds,
    method: str,
) -> Kept:
    """Store a ranking for the jobs its characterisation may advise, if this user may write."""
    from advisor.ranking.ratios import ratios
    from advisor.store.rankings import save_ranking
    from advisor.store.writer import Writer

    path = paths.store_path(args.db)
    if not os.access(path, os.W_OK):
        return Kept(False, (f"not stored: {path} may not be written by you",))
    with Writer(path) as store:
        found = ratios(ranking, profiles, store.inventory(), thresholds)
        save_ranking(
            store,
            source.application,
            source.workload,
            ranking.base,
            found,
            method=method,
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
