"""``advisor lab rank``: estimate an application's time on node types where it never ran."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import paths
from advisor.cli.arguments import add_application
from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import add_plot_argument, check_plot, print_picture, save_plot
from advisor.cli.streams import complain
from advisor.core.codec import JsonForm, wire
from advisor.core.units import format_count, format_duration
from advisor.database import is_writable
from advisor.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from advisor.ranking.rank import RankedPhase, Ranking, RankingMethod, TimeEstimate
    from advisor.ranking.similarity import Profile, ProfileMatch, Thresholds
    from advisor.ranking.streams import Characterisation, Stream
    from advisor.store.rankings import StoredCharacterisation
    from advisor.store.reader import Reader

_SHOWN = 8
"""Most similar profiles and notes that are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor lab rank`` takes."""
    parser.description = (
        "Estimate an application's time on every node type from microbenchmarks: each phase that "
        "advisor lab characterise found is compared with profiles of the base node type, and their "
        "times on other node types give the phase's (Corredor 2011)."
    )
    add_application(parser, "the characterised application", optional=True)
    parser.add_argument("--phase", type=Path, metavar="FILE", help="read the phases from this file")
    parser.add_argument(
        "--profiles", type=Path, metavar="FILE", help="read the profiles from this file"
    )
    parser.add_argument(
        "--base",
        metavar="NODE_TYPE",
        help="the base node type (default: where it was characterised)",
    )
    parser.add_argument(
        "--method",
        choices=("blend", "thesis"),
        default="blend",
        help="blend mixes profiles of all streams and of arithmetic, thesis takes the most similar "
        "profile (default: blend)",
    )
    parser.add_argument(
        "--thresholds",
        type=Path,
        metavar="FILE",
        help="points of the similarity index (default: ranking.yaml of the configuration folder, "
        "else the built-in ones)",
    )
    parser.add_argument(
        "--no-store",
        action="store_true",
        help="only print the ranking (the next advisor lab bench stores one)",
    )
    add_plot_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Rank and print; 3 where no phase is similar to any profile."""
    from advisor.loop.rerank import known_files, site_thresholds
    from advisor.ranking.files import read_phases, read_profiles, read_thresholds
    from advisor.ranking.rank import rank
    from advisor.ranking.streams import Characterisation
    from advisor.training.training_job import current_user
    from advisor.views.ranking_picture import measured_times, ranking_picture

    if (args.phase is None) == (args.application is None):
        raise UsageError("no application is named", hint="advisor lab rank A, or --phase FILE")
    check_plot(args.plot)
    with _open(args) as store:
        source = None if args.phase or store is None else _stored_characterisation(store, args)
        app = Characterisation.from_dict(source.record) if source else read_phases(args.phase)
        base = args.base or app.node_type
        if not base:
            raise UsageError(
                "the phases do not say which node type they ran on", hint="--base NODE_TYPE"
            )
        site = site_thresholds(paths.config_dir(args.config_dir))
        limits = read_thresholds(args.thresholds or site)
        user = source.contributor if source else current_user()
        profiles = read_profiles(args.profiles) if args.profiles else stored_profiles(store, user)
        files = [] if store is None else known_files(store)
        ranking = rank(app, profiles, base, limits, args.method, files)
        stored, queued = None, ""
        time_intervals = (
            {} if store is None else measured_times(store, app.application, app.workload)
        )
        picture = ranking_picture(app.application, ranking, time_intervals)
        if store is not None and source is not None and ranking.estimates and not args.no_store:
            by_hand = bool(args.profiles or args.thresholds or base != source.node_type)
            stored = _keep_ranking(store, source, ranking, limits, by_hand=by_hand)
        if store is not None and not args.profiles and not args.no_store:
            queued = _queue_missing(store, app, ranking)
    if ranking.estimates:
        save_plot(picture, args.plot)
    if args.json:
        print_json("rank", _answer(app, ranking, stored, queued))
    else:
        _print(ranking)
        if len(ranking.estimates) > 1:
            print()
            print_picture(picture)
        for line in (*(stored.lines if stored else ()), queued):
            if line:
                print(line)
    if not ranking.estimates:
        lacking_kernels = "; ".join(_lacking_profile(r) for r in ranking.phases)
        complain(
            f"no profile of {base} is similar to a phase of {app.application} ({lacking_kernels})"
        )
        return RefusedError.exit_code
    return 0


def _open(args: argparse.Namespace) -> AbstractContextManager[Reader | None]:
    """Open the store once, to write where that is wanted and allowed; files need none.

    Raises StoreError when there is no store but a stored application is to be ranked.
    """
    from advisor.store.reader import Reader
    from advisor.store.writer import Writer

    path = paths.whole_store(
        args.db, hint="the site ranks what you characterise: advisor options shows the node types"
    )
    if args.phase and (args.profiles or not path.exists()):
        return nullcontext()
    reader = Reader(path)
    if args.no_store or reader.published or not is_writable(path):
        return reader
    reader.close()
    return Writer(path)


def stored_profiles(store: Reader | None, user: str | None = None) -> list[Profile]:
    """Return the store's profiles, of users' own kernels those that advise ``user``.

    Raises RefusedError when no node type was measured.
    """
    from advisor.loop.rerank import known_profiles

    profiles = known_profiles(store, user) if store is not None else []
    if not profiles:
        raise RefusedError(
            "no node type has profiles", hint="advisor lab bench, or --profiles FILE"
        )
    return profiles


def _stored_characterisation(store: Reader, args: argparse.Namespace) -> StoredCharacterisation:
    """Return the characterisation to rank: the user's own before another's."""
    from advisor.store.rankings import characterisations
    from advisor.training.training_job import current_user
    from advisor.views.misspelt import meant

    rows = characterisations(store, args.application, args.workload)
    if not rows:
        if suggested_name := meant(store, args.application):
            raise UsageError(
                f"nothing is stored for application {args.application!r}", hint=suggested_name
            )
        raise RefusedError(
            f"{args.application} was not characterised", hint="advisor lab characterise -- COMMAND"
        )
    user_rows = [r for r in rows if r.contributor == current_user()]
    rows = user_rows or rows
    if len(rows) > 1:
        names = ", ".join(f"{r.workload} on {r.node_type} by {r.contributor}" for r in rows)
        raise UsageError(f"several characterisations match: {names}", hint="choose with --workload")
    return rows[0]


def _lacking_profile(ranked: RankedPhase) -> str:
    """Name the microbenchmark that a phase lacks."""
    streams = " and ".join(
        f"{s.size_kb:g} KB, stride {s.stride_b} B, {'shared' if s.access == 'C' else 'private'}"
        for s in ranked.phase.streams
    )
    return f"phase {ranked.phase.name} needs a microbenchmark of {streams or 'computing alone'}"


@dataclass(frozen=True, slots=True)
class RankAnswer(JsonForm):
    """An application's time on node types it never ran on."""

    application: str
    workload: str
    base: str
    method: RankingMethod
    phases: list[PhaseAnswer]
    ranking: list[NodeTypeTime]
    missing: Sequence[str]
    unsure: Sequence[str]
    io_s: float
    io_notes: Sequence[str]
    stored: bool | None = field(default=None, metadata=wire(omit=True))
    notes: Sequence[str] | None = field(default=None, metadata=wire(omit=True))
    queued: str = field(default="", metadata=wire(omit=True))


@dataclass(frozen=True, slots=True)
class PhaseAnswer(JsonForm):
    """A phase and the profiles that are similar to it."""

    name: str
    weight: float
    match: Similar | None
    memory: float | None
    by_own_kernel: bool
    margin: float
    wanted: str | None
    candidates: list[Similar]


@dataclass(frozen=True, slots=True)
class Similar(JsonForm):
    """A profile that was compared with a phase."""

    microbenchmark: str
    index: float | None
    elements: Mapping[str, float]
    phase_streams: Sequence[int]
    streams: Sequence[Stream]
    time_per_iter_us: float
    spread: float
    unsure: bool
    own: bool

    @classmethod
    def of(cls, m: ProfileMatch) -> Similar:
        """Return what programs are told of a match."""
        p = m.profile
        return cls(
            p.microbenchmark,
            m.index,
            m.elements,
            m.streams,
            p.streams,
            p.time_per_iter_us,
            p.spread,
            bool(p.doubt),
            p.own,
        )


@dataclass(frozen=True, slots=True)
class NodeTypeTime(JsonForm):
    """The time on one node type."""

    node_type: str
    phases_s: float
    time_s: float
    error_pct: float
    time_interval: tuple[float, float]


def _answer(
    app: Characterisation, ranking: Ranking, stored: StoredNow | None, queued: str
) -> RankAnswer:
    return RankAnswer(
        application=app.application,
        workload=app.workload,
        base=ranking.base,
        method=ranking.method,
        phases=[
            PhaseAnswer(
                name=r.phase.name,
                weight=r.phase.weight,
                match=None if r.match is None else Similar.of(r.match),
                memory=r.memory,
                by_own_kernel=r.by_own,
                margin=r.margin,
                wanted=None if r.match is not None else _lacking_profile(r),
                candidates=[Similar.of(m) for m in r.candidates],
            )
            for r in ranking.phases
        ],
        ranking=[
            NodeTypeTime(
                e.node_type, e.phases_s, e.time_s, 100 * ranking.error(e), ranking.interval(e)
            )
            for e in ranking.estimates
        ],
        missing=ranking.missing,
        unsure=ranking.unsure,
        io_s=ranking.io_s,
        io_notes=ranking.io_notes,
        stored=stored.stored if stored else None,
        notes=stored.lines if stored else None,
        queued=queued,
    )


def _print(ranking: Ranking) -> None:
    for r in ranking.phases:
        similar = [m for m in r.candidates if m.index is not None]
        discarded_count = len(r.candidates) - len(similar)
        print(f"phase {r.phase.name}: {r.phase.time_s:.4g} s, weight {100 * r.phase.weight:.1f} %")
        if similar:
            print_table(
                [
                    "microbenchmark",
                    "size KB",
                    "stride B",
                    "of stream",
                    "us per iteration",
                    "index",
                    "",
                ],
                [
                    [
                        m.profile.microbenchmark,
                        _stream_values(m, "size_kb"),
                        _stream_values(m, "stride_b"),
                        ", ".join(str(s + 1) for s in m.streams),
                        f"{m.profile.time_per_iter_us:.5g}",
                        f"{m.index:g}",
                        _mark(m, r.match),
                    ]
                    for m in similar[:_SHOWN]
                ],
            )
        print(
            f"{discarded_count} comparisons discarded as too different "
            f"({100 * r.margin:.0f} % and more)"
        )
        if r.memory is not None:
            print(
                f"estimated by a blend: {100 * r.memory:.0f} % memory access, the rest arithmetic"
            )
        elif r.by_own and r.match is not None:
            print(f"estimated by your own kernel {r.match.profile.microbenchmark}")
        elif r.match is None:
            print(_lacking_profile(r))
        print()
    if ranking.estimates:
        base_s = next((e.time_s for e in ranking.estimates if e.node_type == ranking.base), None)
        print_table(
            ["node type", "phases", "whole run", "of base", "90 % interval", ""],
            [
                [
                    e.node_type,
                    format_duration(e.phases_s),
                    format_duration(e.time_s),
                    "-" if not base_s else f"{100 * e.time_s / base_s:.0f} %",
                    _interval(ranking, e),
                    "it ran here" if e.node_type == ranking.base else "",
                ]
                for e in ranking.estimates
            ],
        )
        print(f"estimated from microbenchmarks, not measured; base {ranking.base}")
    if ranking.io_s:
        print(
            f"{format_duration(ranking.io_s)} of the run are reads and writes of files; they go "
            "with the profiles of file systems"
        )
        for note in ranking.io_notes[:_SHOWN]:
            print(f"  {note}")
    if ranking.unsure:
        print(
            f"{len(ranking.unsure)} of its profiles are less sure than 2 %: they weigh less, and "
            "the error is wider; advisor lab bench measures them again"
        )
        for text in ranking.unsure[:_SHOWN]:
            print(f"  {text}")
    for node_type in ranking.missing:
        print(f"{node_type} has no profile of a chosen microbenchmark")


def _interval(ranking: Ranking, estimate: TimeEstimate) -> str:
    low, high = ranking.interval(estimate)
    return f"{format_duration(low)} to {format_duration(high)}"


def _mark(match: ProfileMatch, chosen: ProfileMatch | None) -> str:
    words = ["chosen"] if match is chosen else []
    words += ["a user's own"] if match.profile.own else []
    words += [f"unsure, {100 * match.profile.spread:.0f} %"] if match.profile.doubt else []
    return ", ".join(words)


def _stream_values(match: ProfileMatch, name: str) -> str:
    return ", ".join(f"{getattr(s, name):g}" for s in match.profile.streams)


@dataclass(frozen=True, slots=True)
class StoredNow:
    """Whether a ranking is stored, and notes about it."""

    stored: bool
    lines: tuple[str, ...]


def _keep_ranking(
    store: Reader,
    source: StoredCharacterisation,
    ranking: Ranking,
    thresholds: Thresholds,
    *,
    by_hand: bool,
) -> StoredNow:
    """Store a ranking for the jobs its characterisation may advise, if this user may write.

    ``by_hand``: it follows from files that were given, and new profiles leave it as it is.
    """
    from advisor.derive.transfers import transfers
    from advisor.derive.worker import derive
    from advisor.loop.rerank import keep
    from advisor.store.writer import Writer

    whose = "everybody's jobs" if source.scope == "all" else f"jobs of {source.contributor}"
    if not isinstance(store, Writer):
        why = "is a published copy" if store.published else "may not be written by you"
        instead = _ranking_in_use(store, source, whose)
        return StoredNow(False, (f"not stored: {store.path} {why}; {instead}",))
    order = keep(store, source, ranking, thresholds, by_hand=by_hand)
    lines = [f"stored, for {whose}"]
    if by_hand:
        lines.append("made by hand: new profiles do not change it")
    derive(store, first=source.application)
    following = transfers(store, source.application, source.workload)
    if not following and len(order.estimates) > 1:
        lines.append(
            f"no options follow from it: {source.application} has no model on {ranking.base}"
        )
    for t in following:
        if t.problem:
            lines.append(f"{t.node_type}: no job goes there: {t.problem}")
        else:
            lines.append(f"{t.node_type}: jobs may go there, by this estimate (advisor options)")
    return StoredNow(True, tuple(dict.fromkeys(lines)))


def _queue_missing(store: Reader, app: Characterisation, ranking: Ranking) -> str:
    """Queue the microbenchmarks that the phases lack for the next bench; say so or why not."""
    from advisor.loop.rerank import lacking
    from advisor.store.profiles import want, wanted
    from advisor.store.writer import Writer

    lacks = lacking(app, ranking)
    if not lacks:
        return ""
    gap_words = f"not measured: {format_count(len(lacks), 'microbenchmark')} nearer to the phases"
    if isinstance(store, Writer):
        waiting = want(store, lacks)
    else:
        names = [(w.microbenchmark, w.streams) for w in wanted(store)]
        waiting = sum((w.microbenchmark, w.streams) in names for w in lacks)
    if waiting:
        return f"{gap_words}; advisor lab bench --wanted measures them"
    return f"{gap_words}; the owner of {store.path} measures them with advisor lab bench"


def _ranking_in_use(store: Reader, source: StoredCharacterisation, whose: str) -> str:
    """Say which ranking jobs follow when this one is not stored."""
    from advisor.store.rankings import rankings

    stored_rankings = rankings(store, source.application, source.workload, base=source.node_type)
    contributor_rankings = [r for r in stored_rankings if r.contributor == source.contributor]
    if contributor_rankings:
        day = contributor_rankings[0].created_at[:10]
        return f"the site's own ranking, of {day}, holds for {whose}"
    return (
        "the site has none yet: its next advisor lab bench, or advisor lab rank by its owner, "
        "makes one"
    )
