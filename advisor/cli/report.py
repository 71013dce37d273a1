"""``advisor report``: promised and measured savings, and what to do about what is missing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from advisor.cli.arguments import add_cluster, add_history
from advisor.cli.bars import beside
from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm, wire
from advisor.core.reasons import Reason
from advisor.core.units import format_change, format_count, format_node_hours
from advisor.core.words import interval_words, with_interval
from advisor.core.worth import J_PER_KWH, format_kwh

if TYPE_CHECKING:
    from advisor.core.worth import EnergyWorth
    from advisor.loop.compare import MeasuredChange
    from advisor.loop.report import Calibration, GpuEnergy, OnOffComparison, Report
    from advisor.store.reader import Reader

_LABELS = {
    "as-promised": "as promised",
    "better": "better",
    "worse": "worse",
    "unknown": "not known",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor report`` takes."""
    parser.description = (
        "Summarise decisions and outcomes: the promised savings, and the measured ones. Measured "
        "means: jobs that were changed, compared with jobs that the holdout kept unchanged."
    )
    parser.add_argument(
        "--since",
        default="30d",
        metavar="TIME",
        help="from when, like 7d or 2026-01-31 (default: 30d)",
    )
    parser.add_argument("--application", metavar="APP", default="", help="only this application")
    parser.add_argument("--user", metavar="USER", default="", help="only this user's jobs")
    add_cluster(parser, "only jobs of this cluster: Slurm's ClusterName, PBS's server")
    add_history(parser)


def run(args: argparse.Namespace) -> int:
    """Sum up and print."""
    from advisor.loop import clock
    from advisor.loop.recommendations import notes
    from advisor.loop.report import report
    from advisor.store.parquet import reader_of
    from advisor.store.seen import store_seen

    since = clock.form(clock.since(args.since))
    with reader_of(store_seen(args.db, "history"), args.history) as reader:
        result = report(
            reader,
            since=since,
            application=args.application,
            user=args.user,
            cluster=args.cluster or "",
        )
        if args.cluster:
            _check_cluster(reader, args.cluster)
        if args.user and not result.jobs:
            _check_user(reader, args.user)
        remarks = notes(result, reader)
    if args.json:
        print_json("report", _answer(result, remarks))
    else:
        _print(result, remarks)
    return 0


def _check_cluster(reader: Reader, name: str) -> None:
    """Refuse a cluster that was never collected."""
    from advisor.errors import InputError
    from advisor.store.clusters import clusters

    known = sorted({c.name for c in clusters(reader)})
    if name not in known:
        raise InputError(
            f"no cluster {name} was collected",
            hint=f"known: {', '.join(known)}" if known else "none is known: advisor collect",
        )


def _check_user(reader: Reader, user: str) -> None:
    """Refuse a user whom neither this host nor the store knows; one without jobs may ask."""
    from advisor.schedulers.submission import identity

    if not (reader.decisions(user=user, limit=1) or reader.outcomes("user = ?", (user,), newest=1)):
        identity(user)


# -- for people ----------------------------------------------------------------------------------


def _print(r: Report, remarks: list[str]) -> None:
    about = f" of {r.application}" if r.application else ""
    whose = f" of user {r.user}" if r.user else ""
    whose += f" of cluster {r.cluster}" if r.cluster else ""
    print(f"jobs{about}{whose} submitted since {r.since}")
    if not r.jobs:
        print("  none that the advisor knows of")
        _print_pruned(r)
        _print_notes(remarks)
        return
    print(
        f"  {format_count(r.jobs, 'job')} seen, {r.node_hours:.4g} node-hours, "
        f"{format_kwh(r.energy_kwh)} metered"
        f"{'' if r.gpu_kwh is None else f', GPUs {format_kwh(r.gpu_kwh)}'}"
    )
    _print_share("rewritten", r.advised, r.jobs)
    _print_share("unchanged", sum(r.left_alone.values()), r.jobs)
    for code, count in r.left_alone.most_common(6):
        print(f"    {count:>6}  {Reason(code).cause}")
    if r.advised:
        _print_outcomes(r)
        _print_savings(r)
    _print_gpus(r)
    _print_pruned(r)
    _print_notes(remarks)


def _print_share(label: str, count: int, total: int) -> None:
    print(f"  {label:<12}{beside(count / total)}{count:>5}  {100 * (count / total):.0f} %")


def _print_outcomes(r: Report) -> None:
    print("\nrewritten jobs came out")
    for verdict, label in _LABELS.items():
        if r.verdicts[verdict]:
            _print_share(label, r.verdicts[verdict], r.advised)
    for why, count in r.unknown_why.most_common(3):
        print(f"    {count:>6}  not known: {why}")
    if r.estimated:
        state_counts = ", ".join(f"{n} {_LABELS[v]}" for v, n in r.estimated.most_common())
        count = sum(r.estimated.values())
        print(f"    {count:>6}  on node types estimated from microbenchmarks: {state_counts}")
    for name, verdicts in sorted(r.classes.items()):
        state_counts = ", ".join(f"{n} {_LABELS[v]}" for v, n in verdicts.most_common())
        print(f"    {verdicts.total():>6}  never swept, {name}: {state_counts}")
    for name, states in sorted(r.trials.items()):
        state_counts = ", ".join(f"{n} {state}" for state, n in states.most_common())
        print(f"    {states.total():>6}  trials, {name}, counted apart: {state_counts}")
    for name, c in (("time", r.time_calibration), ("energy", r.energy_calibration)):
        if c.total:
            print(f"  {name:<7} {_calibration_words(c)}")


def _calibration_words(c: Calibration) -> str:
    text = (
        f"{c.inside} of {c.total} inside the promised interval ({100 * (c.inside / c.total):.0f} %"
    )
    return f"{text}, 90 % expected)"


def _print_savings(r: Report) -> None:
    print("\npromised and measured, against the jobs as they were written")
    changes = [c.change for c in (r.energy, r.time) if c is not None]
    scale = max(
        (abs(v) for v in (r.promised_energy, r.promised_time, *changes) if v is not None),
        default=0.0,
    )
    for name, promise, change in (
        ("energy", r.promised_energy, r.energy),
        ("time", r.promised_time, r.time),
    ):
        if promise is not None:
            print(f"  {name:<7} promised  {_bar(promise, scale)}{format_change(promise)}")
        if change is not None:
            print(f"  {name:<7} measured  {_bar(change.change, scale)}{_change_words(change)}")
        elif promise is not None:
            print(f"  {name:<7} measured  nothing to compare")
    if r.saved_kwh is not None:
        value, low, high = r.saved_kwh
        span = "" if low is None or high is None else f" ({interval_words(low, high, format_kwh)})"
        print(f"  saved   {format_kwh(value)}{span} of {format_kwh(r.promised_kwh)} promised")
        hours = ""
        if r.saved_node_hours is not None:
            hours = f", {format_node_hours(r.saved_node_hours)}"
        print(f"  worth   {r.tariff.words(value * J_PER_KWH)}{hours}")
    if r.comparisons:
        print()
        rows = [_row(c) for c in r.comparisons]
        print_table(
            ["application", "workload", "promised", "energy", "time", "jobs", "against"], rows
        )


def _change_words(c: MeasuredChange) -> str:
    text = format_change(c.change)
    if c.lo is None or c.hi is None:
        fewest = c.advised if c.basis == "prediction" else min(c.advised, c.left)
        text += f"  too few jobs for an interval (n={fewest})"
    else:
        text += f" ({interval_words(c.lo, c.hi, format_change)}, 90 %)"
    return f"{text}, {_basis_words(c)}"


def _basis_words(c: MeasuredChange) -> str:
    if c.basis == "prediction":
        return f"{format_count(c.advised, 'job')} against the prediction for the job as written"
    return f"{format_count(c.advised, 'job')} against {c.left} unchanged at random"


def _row(c: OnOffComparison) -> list[str]:
    main = c.energy or c.time
    basis_words = ""
    if main is not None:
        basis_words = f"{main.left} unchanged" if main.basis == "holdout" else "prediction"
    return [
        c.application,
        c.workload if len(c.workload) <= 32 else c.workload[:31] + "…",
        "-" if c.promised_energy is None else format_change(c.promised_energy),
        _short(c.energy),
        _short(c.time),
        str(main.advised if main else 0),
        basis_words,
    ]


def _short(c: MeasuredChange | None) -> str:
    if c is None:
        return "-"
    if c.lo is None or c.hi is None:
        return f"{format_change(c.change)} (too few)"
    return with_interval(c.change, c.lo, c.hi, format_change)


def _bar(change: float, scale: float) -> str:
    return beside(abs(change) / scale if scale else 0.0, worse=change > 0)


def _print_gpus(r: Report) -> None:
    """Print what GPUs took, and of how many jobs with GPUs that is not known."""
    if not r.gpus:
        return
    print(
        "\nGPUs, of jobs that had some; metered: the same jobs, as the scheduler's meter sees them"
    )
    print_table(
        ["application", "jobs", "metered", "GPUs", "not known"],
        [
            [
                g.application or "-",
                str(g.jobs),
                format_kwh(g.energy_kwh) if g.energy_kwh else "-",
                format_kwh(g.gpu_kwh) if g.jobs else "-",
                format_count(g.unknown, "job") if g.unknown else "",
            ]
            for g in r.gpus
        ],
    )


def _print_pruned(r: Report) -> None:
    """Print the sums of what was pruned: of whole months, and not in the totals."""
    if not r.pruned:
        return
    print("\npruned jobs, in sums by whole month; they are in none of the numbers above")
    headers = ["month", "decisions", "rewritten", "ended", "worse", "node-hours", "energy"]
    print_table(
        headers,
        [
            [
                m.month,
                m.decisions,
                m.changed,
                m.outcomes,
                m.worse,
                f"{m.node_s / 3600:.4g}",
                format_kwh(m.energy_j / J_PER_KWH),
            ]
            for m in r.pruned
        ],
    )


def _print_notes(remarks: list[str]) -> None:
    if remarks:
        print("\nnotes")
    for remark in remarks:
        print(f"  * {remark}")


# -- for programs --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportAnswer(JsonForm):
    """Promised and measured savings; changes are fractions."""

    since: str
    application: str | None
    user: str | None
    cluster: str | None
    jobs: int
    advised: int
    left_alone: Annotated[Mapping[str, int], "jobs by the reason code that decided"]
    holdout: int
    stamped: int
    unverified: int
    verdicts: Mapping[str, int]
    unknown: Mapping[str, int]
    estimated_node_types: Mapping[str, int]
    classes: Annotated[
        Mapping[str, Mapping[str, int]],
        "verdicts of the changed jobs of applications never swept, by class",
    ]
    trials: Annotated[
        Mapping[str, Mapping[str, int]],
        "what came of trials, by class; they count in no other verdict or saving",
    ]
    node_hours: float | None
    energy_kwh: float | None
    gpu_kwh: Annotated[float | None, "what GPUs took; null: of no job that is known"]
    gpus: Annotated[list[GpuEnergy], "the same by application"]
    promised: PromisedSavings
    measured: MeasuredSavings
    calibration: Calibrations
    workloads: list[WorkloadSavings]
    suspended: list[SuspendedModel]
    pruned: Annotated[list[PrunedMonth], "what was pruned, by whole month; in none of the totals"]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class PromisedSavings(JsonForm):
    """Of all changed jobs together."""

    energy: float | None
    time: float | None
    saved_kwh: float | None


@dataclass(frozen=True, slots=True)
class SavedEnergy(JsonForm):
    """kWh, with the ends of the interval."""

    value: float | None
    lo: float | None
    hi: float | None


@dataclass(frozen=True, slots=True)
class SavedWorth(JsonForm):
    """What the measured savings are worth."""

    energy: EnergyWorth = field(metadata=wire(inline=True))
    node_hours: float | None


@dataclass(frozen=True, slots=True)
class MeasuredSavings(JsonForm):
    """Of all changed jobs together."""

    energy: MeasuredChange | None
    time: MeasuredChange | None
    saved_kwh: SavedEnergy | None
    worth: SavedWorth | None


@dataclass(frozen=True, slots=True)
class Calibrations(JsonForm):
    """Of the promised intervals."""

    time: Calibration
    energy: Calibration


@dataclass(frozen=True, slots=True)
class WorkloadSavings(JsonForm):
    """Of the changed jobs of one workload."""

    application: str
    workload: str
    promised_energy: float | None
    promised_time: float | None
    energy: MeasuredChange | None
    time: MeasuredChange | None
    energy_kwh: float | None


@dataclass(frozen=True, slots=True)
class SuspendedModel(JsonForm):
    """A model that advises nobody for now."""

    model: int
    application: str
    workload: str
    node_type: str
    reason: str


@dataclass(frozen=True, slots=True)
class PrunedMonth(JsonForm):
    """Sums of what is no longer there."""

    month: str
    decisions: int
    changed: Annotated[int, "decisions that rewrote their job"]
    outcomes: int
    worse: int
    node_hours: float
    energy_kwh: float


def _answer(r: Report, remarks: list[str]) -> ReportAnswer:
    saved = r.saved_kwh
    worth = saved and SavedWorth(r.tariff.worth(saved[0] * J_PER_KWH), r.saved_node_hours)
    return ReportAnswer(
        since=r.since,
        application=r.application or None,
        user=r.user or None,
        cluster=r.cluster or None,
        jobs=r.jobs,
        advised=r.advised,
        left_alone=dict(r.left_alone.most_common()),
        holdout=r.holdout,
        stamped=r.stamped,
        unverified=r.unverified,
        verdicts=r.verdicts,
        unknown=r.unknown_why,
        estimated_node_types=r.estimated,
        classes=dict(sorted(r.classes.items())),
        trials=dict(sorted(r.trials.items())),
        node_hours=r.node_hours,
        energy_kwh=r.energy_kwh,
        gpu_kwh=r.gpu_kwh,
        gpus=r.gpus,
        promised=PromisedSavings(r.promised_energy, r.promised_time, r.promised_kwh),
        measured=MeasuredSavings(r.energy, r.time, SavedEnergy(*saved) if saved else None, worth),
        calibration=Calibrations(r.time_calibration, r.energy_calibration),
        workloads=[
            WorkloadSavings(
                c.application,
                c.workload,
                c.promised_energy,
                c.promised_time,
                c.energy,
                c.time,
                c.energy_kwh,
            )
            for c in r.comparisons
        ],
        suspended=[
            SuspendedModel(m.id, m.application, m.workload, m.node_type, m.state_reason)
            for m in r.suspended
        ],
        pruned=[
            PrunedMonth(
                m.month,
                m.decisions,
                m.changed,
                m.outcomes,
                m.worse,
                m.node_s / 3600,
                m.energy_j / J_PER_KWH,
            )
            for m in r.pruned
        ],
        notes=remarks,
    )
