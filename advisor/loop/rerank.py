"""Rank what was characterised and keep it: what follows from stored phases and profiles.

``advisor lab rank`` does so for one application, ``advisor collect`` for what users sent, ``advisor
lab bench`` for all, since new profiles make old rankings stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor import paths
from advisor.core.codec import FieldError
from advisor.core.node_type_estimate import NodeTypeEstimate, log_error
from advisor.core.units import format_count
from advisor.errors import InputError
from advisor.ranking.files import read_thresholds
from advisor.ranking.io import IoProfile
from advisor.ranking.rank import DEFAULT, METHODS, RankedPhase, Ranking, RankingMethod, rank, ratios
from advisor.ranking.similarity import Profile, Thresholds
from advisor.ranking.streams import Characterisation, Stream
from advisor.ranking.suite import like
from advisor.store.file_systems import io_profiles
from advisor.store.profiles import Wanted, profiles, want
from advisor.store.rankings import (
    StoredCharacterisation,
    StoredRanking,
    characterisations,
    rankings,
    save_ranking,
)
from advisor.store.reader import Reader
from advisor.store.writer import Writer

ENOUGH = 25
"""Points of an element that is as good as equal."""


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """A ranking as it is stored now: node types, fastest first.

    ``waiting`` microbenchmarks that its phases lack wait for the next bench.
    """

    estimates: tuple[NodeTypeEstimate, ...]
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Renewed:
    """What became of all characterisations once there were new profiles.

    ``applications`` have a new ranking, ``faster`` of them another fastest node type; ``by_hand``
    rankings were left; ``failed`` says in a line each what cannot be ranked.
    """

    applications: int = 0
    faster: int = 0
    by_hand: int = 0
    failed: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """All of it in one line, "" where there was nothing to rank."""
        parts = []
        if self.applications:
            parts.append(
                f"{format_count(self.applications, 'application')} ranked again, "
                f"{self.faster} changed their fastest node type"
            )
        if self.by_hand:
            parts.append(f"{format_count(self.by_hand, 'ranking')} made by hand left as they are")
        if self.failed:
            more = f" and {len(self.failed) - 1} more" if len(self.failed) > 1 else ""
            parts.append(f"not ranked: {self.failed[0]}{more}")
        return "; ".join(parts)


def site_thresholds(config_dir: Path) -> Path:
    """Return the file of the site's thresholds: its own in the config folder, else ours."""
    site_file = config_dir / "ranking.yaml"
    return site_file if site_file.exists() else paths.share("config/ranking.yaml")


def known_profiles(reader: Reader, user: str | None = None) -> list[Profile]:
    """Return the store's profiles as rankings take them: of own kernels those for this user.

    A ranking rests on the kernels of whoever characterised, and on those that advise everybody.
    """
    return [
        Profile(
            p.microbenchmark,
            p.node_type,
            p.time_per_iter_us,
            tuple(Stream.from_dict(s) for s in p.streams),
            p.energy_per_iter_nj,
            p.threads,
            p.spread,
            bool(p.contributor),
        )
        for p in profiles(reader, user=user)
    ]


def known_files(reader: Reader) -> list[IoProfile]:
    """Return the store's profiles of file systems as rankings take them."""
    return [
        IoProfile(
            p.node_type,
            p.file_system,
            p.operation,
            p.random,
            p.block_b,
            p.time_per_op_us,
            p.direct,
            p.spread,
            p.cached_us,
        )
        for p in io_profiles(reader)
    ]


def lacking(characterisation: Characterisation, ranking: Ranking) -> list[Wanted]:
    """Return the microbenchmarks that the phases lack.

    A phase lacks them unless one of its own size and stride was measured on the base node type,
    and what its estimate takes on all others.
    """
    return [
        Wanted(
            m.name, tuple(s.to_dict() for s in m.streams), f"{characterisation.application}: {name}"
        )
        for name, streams in (
            (r.phase.name, r.phase.streams)
            for r in ranking.phases
            if ranking.missing or _lacks_match(r)
        )
        for m in like(streams, characterisation.threads or 1)
    ]


def _lacks_match(ranked: RankedPhase) -> bool:
    best = ranked.match
    if not ranked.phase.streams:
        return False
    return best is None or min(best.elements["size"], best.elements["stride"]) < ENOUGH


def keep(
    writer: Writer,
    stored: StoredCharacterisation,
    ranking: Ranking,
    thresholds: Thresholds,
    *,
    by_hand: bool = False,
) -> StoredOrder:
    """Store a ranking for the jobs that its characterisation may advise. Raises StoreError.

    One that tells no node type leaves the former ranking where it is.
    """
    estimates = ratios(ranking, writer.inventory(), thresholds)
    if not estimates:
        return StoredOrder(())
    save_ranking(
        writer,
        stored.application,
        stored.workload,
        ranking.base,
        estimates,
        method=ranking.method,
        contributor=stored.contributor,
        scope=stored.scope,
        by_hand=by_hand,
    )
    return StoredOrder(estimates)


def rank_stored(
    writer: Writer,
    stored: StoredCharacterisation,
    profiles: Sequence[Profile],
    thresholds: Thresholds,
    method: RankingMethod = DEFAULT,
) -> StoredOrder:
    """Rank a characterisation with the store's profiles, keep that, and queue what it lacks.

    Raises InputError when it cannot be ranked, StoreError.
    """
    try:
        characterisation = Characterisation.from_dict(stored.record)
        files = known_files(writer)
        ranking = rank(characterisation, profiles, stored.node_type, thresholds, method, files)
    except FieldError as error:
        raise InputError(f"{error.key}: {error}") from None
    except (ArithmeticError, ValueError) as error:
        raise InputError(f"its phases are not valid: {error}") from None
    order = keep(writer, stored, ranking, thresholds)
    waiting = want(writer, lacking(characterisation, ranking))
    if not order.estimates:
        raise InputError(f"no profile of {stored.node_type} is similar to a phase")
    return StoredOrder(order.estimates, waiting)


def rank_delivered(writer: Writer, stored: StoredCharacterisation, thresholds: Path) -> str:
    """Rank what a user sent, and say in one line what came of it. Raises StoreError."""
    name = f"{stored.application} ({stored.workload}) from {stored.node_type}"
    whose = "" if stored.scope == "all" else f" for {stored.contributor}"
    try:
        profiles = known_profiles(writer, stored.contributor)
        order = rank_stored(writer, stored, profiles, read_thresholds(thresholds))
    except InputError as error:
        return f"{name}{whose} is kept, not ranked: {error}"
    best = min(order.estimates, key=lambda e: e.time_ratio)
    line = f"ranked {name}{whose}: {format_count(len(order.estimates), 'node type')}, fastest "
    if best.time_ratio < 1:
        off = f"±{100 * log_error(best.error_pct):.0f} %"
        line += f"{best.node_type} ({best.time_ratio:.2f} times the time, {off})"
    else:
        line += f"{best.node_type} itself" if best.node_type == stored.node_type else best.node_type
    if order.waiting:
        waiting = format_count(order.waiting, "microbenchmark")
        line += f"; {waiting} wait for: advisor lab bench --wanted"
    return line


def rank_renewed(writer: Writer, contributor: str | None, thresholds: Path) -> str:
    """Rank again what follows from new kernels of a contributor, None for everybody; say so."""
    return rank_all(writer, read_thresholds(thresholds), contributor).line


def rank_all(writer: Writer, thresholds: Thresholds, contributor: str | None = None) -> Renewed:
    """Rank all that is characterised with the profiles there are, as it was ranked before.

    With ``contributor``, what that user characterised.

    Contributor, scope and method stay; what was not ranked yet is, by the default method.
    Rankings made by hand, from files that were given, stay as they are. Raises StoreError.
    """
    former_rankings: dict[tuple[str, str, str, str], StoredRanking] = {}
    for r in rankings(writer):
        former_rankings.setdefault((r.application, r.workload, r.base, r.contributor), r)
    profiles_of_user: dict[str, list[Profile]] = {}
    ranked, faster, failed = Counter[str](), set(), []
    by_hand = 0
    for stored in characterisations(writer):
        if contributor is not None and stored.contributor != contributor:
            continue
        former = former_rankings.get(
            (stored.application, stored.workload, stored.node_type, stored.contributor)
        )
        if former is not None and former.by_hand:
            by_hand += 1
            continue
        method = next((m for m in METHODS if former and m == former.method), DEFAULT)
        whose = stored.contributor
        if whose not in profiles_of_user:
            profiles_of_user[whose] = known_profiles(writer, whose)
        try:
            order = rank_stored(writer, stored, profiles_of_user[whose], thresholds, method)
        except InputError as error:
            failed.append(f"{stored.application} ({stored.workload}): {error.message}")
            continue
        ranked[stored.application] += 1
        best = min(order.estimates, key=lambda e: e.time_ratio).node_type
        if former is not None and former.estimate.node_type != best:
            faster.add(stored.application)
    return Renewed(len(ranked), len(faster), by_hand, tuple(failed))
