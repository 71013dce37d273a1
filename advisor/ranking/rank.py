"""Rank node types for an application that ran on one of them only.

Corredor 2011, sections 3.5 and 4: each phase is taken for the microbenchmark most similar to it on
the base node; that one's time per iteration on another node type, times the phase's iterations, is
the phase's time there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import InputError
from advisor.ranking.similarity import Match, Profile, Thresholds, matches, winner
from advisor.ranking.streams import Characterisation, Phase

_NEAR = 0.9
"""Candidates whose index is at least this share of the best tell how sure an estimate is."""


@dataclass(frozen=True, slots=True)
class RankedPhase:
    """A phase, its match (None: no profile is similar) and all candidates, best first."""

    phase: Phase
    match: Match | None
    candidates: tuple[Match, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time on one node type, s: of the phases, of the whole run; ``error_pct`` about it."""

    node_type: str
    phases_s: float
    time_s: float
    error_pct: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """Estimates, fastest first; ``missing`` names node types without a profile that is needed."""

    base: str
    phases: tuple[RankedPhase, ...]
    estimates: tuple[Estimate, ...]
    missing: tuple[str, ...]


def rank(
    found: Characterisation, profiles: Sequence[Profile], base: str, thresholds: Thresholds
) -> Ranking:
    """Estimate the run on every node type that has the matched profiles.

    The time outside of the phases is scaled like the phases. An estimate's error joins how far
    the matched profiles are from the phases on the base node and how much the other near
    candidates disagree. Raises InputError when the base node has no profiles.
    """
    here = [p for p in profiles if p.node_type == base]
    if not here:
        there = ", ".join(sorted({p.node_type for p in profiles})) or "none"
        raise InputError(f"there are no profiles of base node {base}", hint=f"of: {there}")
    phases = []
    for phase in found.phases:
        candidates = matches(phase, here, thresholds)
        phases.append(RankedPhase(phase, winner(phase, candidates, thresholds), tuple(candidates)))
    times = {(p.node_type, p.key): p.time_per_iter_us for p in profiles}
    estimates, missing = [], []
    matched = [r for r in phases if r.match is not None]
    for node_type in dict.fromkeys(p.node_type for p in profiles):
        if not matched:
            break
        own = [_phase_s(r, r.match, node_type, times) for r in matched]
        if any(math.isnan(s) for s in own):
            missing.append(node_type)
            continue
        phases_s = math.fsum(own)
        measured = math.fsum(r.phase.time_s for r in matched)
        whole = found.time_s or measured
        errors = [_error(r, node_type, base, times) for r in matched]
        error = math.fsum(e * s for e, s in zip(errors, own, strict=True)) / phases_s
        estimates.append(Estimate(node_type, phases_s, phases_s * whole / measured, 100.0 * error))
    estimates.sort(key=lambda e: e.time_s)
    return Ranking(base, tuple(phases), tuple(estimates), tuple(missing))


def _phase_s(
    ranked: RankedPhase,
    match: Match | None,
    node_type: str,
    times: dict[tuple[str, tuple[object, ...]], float],
) -> float:
    if match is None:
        return math.nan
    return times.get((node_type, match.profile.key), math.nan) * ranked.phase.iterations / 1e6


def _error(
    ranked: RankedPhase,
    node_type: str,
    base: str,
    times: dict[tuple[str, tuple[object, ...]], float],
) -> float:
    """Return an estimate's relative error: the match's own on the base node, and the spread."""
    phase, match = ranked.phase, ranked.match
    assert match is not None and match.index is not None
    off = abs(match.profile.time_per_iter_us / phase.time_per_iter_us - 1.0)
    best = _phase_s(ranked, match, node_type, times)
    ratios = []
    for other in ranked.candidates:
        if other.represents and (other.index or 0.0) >= _NEAR * match.index:
            there = _phase_s(ranked, other, node_type, times)
            here = _phase_s(ranked, other, base, times)
            own = _phase_s(ranked, match, base, times)
            if not math.isnan(there):
                ratios.append(math.log(there / here * own / best))
    spread = math.sqrt(math.fsum(r * r for r in ratios) / len(ratios)) if ratios else 0.0
    return math.hypot(off, spread)
