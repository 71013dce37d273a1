"""Rank node types for an application that ran on one of them only.

Corredor 2011, sections 3.5 and 4: each phase is matched with the microbenchmark most similar to it
on the base node; that one's time per iteration on another node type, times the phase's iterations,
is the phase's time there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from advisor.core.inventory import Inventory
from advisor.core.node_type_estimate import EnergySource, NodeTypeEstimate, log_error
from advisor.core.option import Z90
from advisor.core.power import stated_power_w
from advisor.core.transfer import STATED_POWER_ERROR
from advisor.errors import InputError
from advisor.ranking.blend import (
    LEAST_ERROR,
    Blended,
    blend,
    doubtful,
    in_doubt,
    memory_parts,
    memory_ratio,
)
from advisor.ranking.io import IoProfile, by_node_type, io_on, without_io
from advisor.ranking.similarity import (
    Profile,
    ProfileMatch,
    Thresholds,
    matches,
    narrowed,
    winner,
)
from advisor.ranking.streams import Characterisation, Phase

RankingMethod = Literal["thesis", "blend"]
METHODS: tuple[RankingMethod, ...] = ("blend", "thesis")
DEFAULT: RankingMethod = "blend"
"""How rankings are made unless somebody says otherwise."""

_NEAR = 0.9
"""Candidates whose index is at least this share of the best show how sure an estimate is; a user's
own kernel whose index is this share of the most stands for its phase."""


@dataclass(frozen=True, slots=True)
class RankedPhase:
    """A phase, its match (None: no profile is similar) and all candidates, best first.

    ``memory`` is the part of its time that its streams take when profiles are mixed, None where
    they are not. ``margin`` is the relative difference at which a profile was discarded.
    ``by_own``: the match is a kernel that a user brought for it, and alone stands for it.
    """

    phase: Phase
    match: ProfileMatch | None
    candidates: tuple[ProfileMatch, ...]
    memory: float | None = None
    margin: float = 0.0
    by_own: bool = False


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """The time on one node type, s: of the phases, of the whole run.

    ``error_pct`` is its standard error as the profiles show it; see :meth:`Ranking.interval`.

    ``energy_ratio`` is its energy over the base node's, None where no meter measured it.
    """

    node_type: str
    phases_s: float
    time_s: float
    error_pct: float
    energy_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Estimates, fastest first; ``missing`` names node types without a profile that is needed.

    ``unsure`` names the profiles that they rest on and that are less sure than 2 %. ``io_s`` is
    what of the run on the base node is reads and writes of files; ``io_notes`` say what is not
    known of them elsewhere.
    """

    base: str
    method: RankingMethod
    phases: tuple[RankedPhase, ...]
    estimates: tuple[TimeEstimate, ...]
    missing: tuple[str, ...]
    unsure: tuple[str, ...] = ()
    io_s: float = 0.0
    io_notes: tuple[str, ...] = ()

    def error(self, estimate: TimeEstimate) -> float:
        """Return the standard error of the logarithm of an estimate's time.

        On the base node the method has no error of its own: the phases ran there.
        """
        on_base = estimate.node_type == self.base
        return estimate.error_pct / 100.0 if on_base else log_error(estimate.error_pct)

    def interval(self, estimate: TimeEstimate) -> tuple[float, float]:
        """Return the 90 % interval of an estimate's time, s."""
        half = math.exp(Z90 * self.error(estimate))
        return estimate.time_s / half, estimate.time_s * half


def rank(
    app: Characterisation,
    profiles: Sequence[Profile],
    base: str,
    thresholds: Thresholds,
    method: RankingMethod = "thesis",
    files: Sequence[IoProfile] = (),
) -> Ranking:
    """Estimate the run on every node type that has the profiles it takes.

    Its reads and writes of files go with the profiles of file systems (``files``), all else with
    those of microbenchmarks.

    ``thesis`` takes each phase for its winner, and scales the time outside of the phases like
    them; an estimate's error joins how far the matched profiles are from the phases on the base
    node and how much the other near candidates disagree. ``blend`` is in
    :mod:`advisor.ranking.blend`; the phases' matches are shown beside it. Raises InputError when
    the base node has no profiles, or a phase that is to be mixed no time.
    """
    base_profiles = [p for p in profiles if p.node_type == base]
    if not base_profiles:
        type_names = ", ".join(sorted({p.node_type for p in profiles})) or "none"
        raise InputError(
            f"there are no profiles of base node {base}", hint=f"there are some of: {type_names}"
        )
    for phase in app.phases if method == "blend" else ():
        if phase.streams and not (phase.time_s and phase.time_per_iter_us):
            raise InputError(f"phase {phase.name} has streams, but no time of an iteration")
    full_app, app = app, without_io(app)
    by_type: defaultdict[str, list[Profile]] = defaultdict(list)
    for p in profiles:
        by_type[p.node_type].append(p)
    threads = app.threads or max(p.threads for p in base_profiles)
    alike = [p for p in base_profiles if p.threads in (0, threads)]
    parts = memory_parts(app, profiles, base) if method == "blend" else [None] * len(app.phases)
    phases = []
    for phase, memory in zip(app.phases, parts, strict=True):
        candidates = matches(phase, alike, thresholds)
        chosen = winner(phase, candidates, thresholds)
        near, margin = narrowed(phase, candidates, thresholds)
        by_own = _stands_alone(chosen, thresholds)
        phases.append(
            RankedPhase(phase, chosen, tuple(near), None if by_own else memory, margin, by_own)
        )
    tables = {name: _times(type_profiles) for name, type_profiles in by_type.items()}
    make = _blended if method == "blend" else _matched
    estimates, missing_types = make(app, phases, base, tables, threads, profiles)
    estimates, notes = _with_io(estimates, full_app, base, files, profiles)
    estimates.sort(key=lambda e: e.time_s)
    if method == "thesis":
        unsure = _unsure(phases, tables)
    else:
        alone = _unsure([r for r in phases if r.memory is None], tables)
        unsure = tuple(dict.fromkeys((*doubtful(app, profiles, base), *alone)))
    io_s = math.fsum(
        s.time_s for streams in (full_app.io, *(p.io for p in full_app.phases)) for s in streams
    )
    return Ranking(
        base, method, tuple(phases), tuple(estimates), tuple(missing_types), unsure, io_s, notes
    )


def _with_io(
    estimates: Sequence[TimeEstimate],
    app: Characterisation,
    base: str,
    files: Sequence[IoProfile],
    profiles: Sequence[Profile],
) -> tuple[list[TimeEstimate], tuple[str, ...]]:
    """Return estimates with the application's I/O added, and what is not known of that.

    Energy's ratio stays: a node that waits for files is not measured.
    """
    if not app.io and not any(p.io for p in app.phases):
        return list(estimates), ()
    times, notes, longer = by_node_type(files), dict[str, None](), []
    for e in estimates:
        memory = memory_ratio(profiles, base, e.node_type)
        io = io_on(app, times[base], times[e.node_type], e.node_type, memory)
        time_s = e.time_s + io.phases_s + io.rest_s
        error = math.hypot(e.error_pct / 100.0 * e.time_s / time_s, io.error_of(time_s))
        if e.node_type != base:
            notes |= dict.fromkeys(io.notes)
        longer.append(
            replace(
                e,
                phases_s=e.phases_s + io.phases_s,
                time_s=time_s,
                error_pct=100.0 * error,
            )
        )
    return longer, tuple(notes)


def _stands_alone(chosen: ProfileMatch | None, thresholds: Thresholds) -> bool:
    """Whether the match is a user's own kernel and as good as the phase itself."""
    if chosen is None or not chosen.profile.own:
        return False
    return (chosen.index or 0.0) >= _NEAR * thresholds.most


def _unsure(phases: Sequence[RankedPhase], tables: Mapping[str, Times]) -> tuple[str, ...]:
    """Return the chosen profiles that are less sure than 2 %, on each node type."""
    used = (
        times.get(r.match.profile.key)
        for r in phases
        if r.match is not None
        for times in tables.values()
    )
    return tuple(dict.fromkeys(in_doubt(p) for p in used if p is not None and p.doubt))


Times = Mapping[tuple[object, ...], Profile]


def _times(profiles: Sequence[Profile]) -> dict[tuple[object, ...], Profile]:
    """Return a node type's profiles by what they measure, those of most threads."""
    times: dict[tuple[object, ...], Profile] = {}
    for p in profiles:
        if p.key not in times or times[p.key].threads < p.threads:
            times[p.key] = p
    return times


def _blended(
    app: Characterisation,
    phases: Sequence[RankedPhase],
    base: str,
    tables: Mapping[str, Times],
    threads: int,
    profiles: Sequence[Profile],
) -> tuple[list[TimeEstimate], list[str]]:
    def alone(n: int, node_type: str) -> Blended | None:
        phase_s = _phase_s(phases[n], phases[n].match, tables[node_type], threads)
        if math.isnan(phase_s):
            return None
        error = _error(phases[n], tables[node_type], tables[base], threads)
        if phases[n].by_own and node_type != base:
            error = math.hypot(error, LEAST_ERROR)
        ratio = phase_s / phases[n].phase.time_s
        joules = [_joules(phases[n : n + 1], tables[name]) for name in (node_type, base)]
        power = joules[0] / joules[1] / ratio if joules[0] and joules[1] else None
        return Blended(ratio, error, 0.0, power)

    by_own = frozenset(n for n, r in enumerate(phases) if r.by_own)
    mixed, missing_types = blend(app, profiles, base, alone, by_own)
    return [
        TimeEstimate(e.node_type, e.phases_s, e.time_s, 100.0 * e.error, e.energy_ratio)
        for e in mixed
    ], missing_types


def _matched(
    app: Characterisation,
    phases: Sequence[RankedPhase],
    base: str,
    tables: Mapping[str, Times],
    threads: int,
    _profiles: Sequence[Profile],
) -> tuple[list[TimeEstimate], list[str]]:
    estimates, missing_types = [], []
    matched = [r for r in phases if r.match is not None]
    for node_type, times in tables.items():
        if not matched:
            break
        phase_times_s = [_phase_s(r, r.match, times, threads) for r in matched]
        if any(math.isnan(s) for s in phase_times_s):
            missing_types.append(node_type)
            continue
        phases_s = math.fsum(phase_times_s)
        measured = math.fsum(r.phase.time_s for r in matched)
        run_s = app.time_s or measured
        errors = [_error(r, times, tables[base], threads) for r in matched]
        error = math.fsum(e * s for e, s in zip(errors, phase_times_s, strict=True)) / phases_s
        joules = [_joules(matched, table) for table in (times, tables[base])]
        energy = joules[0] / joules[1] if joules[0] and joules[1] else None
        estimates.append(
            TimeEstimate(node_type, phases_s, phases_s * run_s / measured, 100.0 * error, energy)
        )
    return estimates, missing_types


def _joules(ranked: Sequence[RankedPhase], times: Times) -> float | None:
    """Return the matched profiles' energy for all phases, nJ; None if one was not metered."""
    total = 0.0
    for r in ranked:
        assert r.match is not None
        profile = times.get(r.match.profile.key)
        if profile is None or profile.energy_per_iter_nj is None:
            return None
        total += profile.energy_per_iter_nj * r.phase.iterations
    return total


def _phase_s(ranked: RankedPhase, match: ProfileMatch | None, times: Times, threads: int) -> float:
    """Return a phase's seconds by a match; with other threads each makes another share."""
    profile = times.get(match.profile.key) if match is not None else None
    if profile is None:
        return math.nan
    share = threads / profile.threads if profile.threads and threads else 1.0
    return profile.time_per_iter_us * ranked.phase.iterations * share / 1e6


def _error(ranked: RankedPhase, times: Times, base_times: Times, threads: int) -> float:
    """Return an estimate's relative error: the match's own on the base node, and the spread."""
    phase, match = ranked.phase, ranked.match
    assert match is not None and match.index is not None
    off = abs(match.profile.time_per_iter_us / phase.time_per_iter_us - 1.0)
    best = _phase_s(ranked, match, times, threads)
    base_s = _phase_s(ranked, match, base_times, threads)
    ratios = []
    for candidate in ranked.candidates:
        if candidate.represents and (candidate.index or 0.0) >= _NEAR * match.index:
            candidate_s = _phase_s(ranked, candidate, times, threads)
            if not math.isnan(candidate_s):
                ratios.append(
                    math.log(
                        candidate_s
                        / _phase_s(ranked, candidate, base_times, threads)
                        * base_s
                        / best
                    )
                )
    spread = math.sqrt(math.fsum(r * r for r in ratios) / len(ratios)) if ratios else 0.0
    match_profiles = (table.get(match.profile.key) for table in (times, base_times))
    return math.hypot(off, spread, *(p.doubt for p in match_profiles if p is not None))


def ratios(
    ranking: Ranking, inventory: Inventory, thresholds: Thresholds
) -> tuple[NodeTypeEstimate, ...]:
    """Return every estimated node type against the base's own estimate, the base included.

    Both are estimates from the same profiles, so what a profile is off its phase on the base
    drops out of the ratio. Similarity is the index weighted by the phases' time, a phase without
    a match counting as 0; None where none has one. Energy comes from the profiles where they were
    metered on both node types, else from the power that the site states of both, times the time's
    ratio.
    """
    base_estimate = next((e for e in ranking.estimates if e.node_type == ranking.base), None)
    if base_estimate is None:
        return ()
    similarity = _similarity(ranking)
    estimates = []
    for e in ranking.estimates:
        ratio = e.time_s / base_estimate.time_s
        energy: tuple[float, float, EnergySource] | tuple[None, None, None] = (None, None, None)
        power = [_power(inventory, name) for name in (e.node_type, ranking.base)]
        if e.energy_ratio:
            energy = e.energy_ratio, e.error_pct, "profiles"
        elif power[0] and power[1]:
            error = math.hypot(e.error_pct, 100.0 * STATED_POWER_ERROR)
            energy = ratio * power[0] / power[1], error, "node power"
        most = None if similarity is None else thresholds.most
        estimates.append(
            NodeTypeEstimate(e.node_type, e.time_s, ratio, e.error_pct, similarity, most, *energy)
        )
    return tuple(estimates)


def _similarity(ranking: Ranking) -> float | None:
    if all(r.match is None for r in ranking.phases):
        return None
    phases_s = math.fsum(r.phase.time_s for r in ranking.phases)
    points = math.fsum(
        r.phase.time_s * (r.match.index or 0.0) for r in ranking.phases if r.match is not None
    )
    return points / phases_s if phases_s else 0.0


def _power(inventory: Inventory, name: str) -> float | None:
    node_type = inventory.resolve(name)
    return None if node_type is None else stated_power_w(node_type, node_type.cores)
