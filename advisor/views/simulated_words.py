"""A simulated policy in sentences, as a table, as JSON and as a picture: one form of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from advisor.core.codec import Count, JsonForm, wire
from advisor.core.units import format_change, format_count, format_percent
from advisor.core.words import interval_words
from advisor.core.worth import J_PER_KWH, Tariff, format_co2, format_kwh
from advisor.plotting.panels import Panels
from advisor.plotting.statistics import IntervalPanel
from advisor.views.simulated_sums import NO_CHANGE, Interval, Pace, Sums
from advisor.views.simulation import AccountSums, Simulation, energy_share

HEADERS = (
    "account",
    "application",
    "decisions",
    "different",
    "slower",
    "energy",
    "90 %",
    "node-hours",
)
_MOST_ROWS = 20
"""Rows of the table by application."""


@dataclass(frozen=True, slots=True)
class Quantities(JsonForm):
    """By how much what jobs take would differ; None where the site does not state it."""

    energy_kwh: Interval
    node_hours: Interval
    job_hours: Interval
    money: Interval | None
    co2_kg: Interval | None

    @classmethod
    def of(cls, sums: Sums, tariff: Tariff) -> Quantities:
        """Return those of summed jobs."""
        return cls(
            sums.change("energy_kwh"),
            sums.change("node_hours"),
            sums.change("job_hours"),
            None if tariff.price is None else sums.change("money"),
            None if tariff.co2_g is None else sums.change("co2_kg"),
        )


@dataclass(frozen=True, slots=True)
class GroupAnswer(JsonForm):
    """The same for one account's jobs of one application."""

    account: str
    application: str
    decisions: Count
    different: Count
    gained: Count
    lost: Count
    slower: Pace
    faster: Pace
    quantities: Quantities = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class ReasonPair(JsonForm):
    """What decided today and then."""

    now: str
    then: str
    jobs: Count


@dataclass(frozen=True, slots=True)
class PolicySimulateAnswer(JsonForm):
    """What another policy would have done with the jobs of the past. Changes are of that policy
    against the one in effect, each with its 90 % interval.
    """

    file: str
    since: str
    policy_version: Annotated[int, "of the policy in effect; 0 is the built-in one"]
    decisions: Annotated[Count, "stored since then"]
    decided: Annotated[Count, "of them made again"]
    undecided: Annotated[Mapping[str, Count], "how many were not made again, by why"]
    different: Annotated[Count, "jobs that would get something else"]
    gained: Annotated[Count, "of them left alone today"]
    lost: Annotated[Count, "of them left alone then"]
    unknown: Annotated[Count, "of them without a model, so in no sum"]
    slower: Annotated[Pace, "jobs that change their time one way, and by how many percent"]
    faster: Pace
    quantities: Quantities = field(metadata=wire(inline=True))
    energy_now_kwh: Annotated[float, "what all jobs with a model take today"]
    energy_pct: Interval | None
    currency: str
    groups: Sequence[GroupAnswer]
    reasons: Annotated[Sequence[ReasonPair], "what decided today and then, of the jobs that differ"]


def sentences(s: Simulation, name: str) -> list[str]:
    """Return what another policy would have done; ``name`` is what the policy is called."""
    if not s.decisions:
        return [
            f"no decision was stored since {s.since}: there is nothing to try {name} on",
        ]
    decided = s.total.decisions
    today = f"policy version {s.version}" if s.version else "the built-in policy"
    lines = [
        f"{format_count(decided, 'decision')} since {s.since}, made again under {name} and {today}"
    ]
    lines += [f"  not decided again  {count}: {why}" for why, count in s.undecided.items()]
    if not decided:
        return lines
    lines.append(f"  different          {_different(s.total)}")
    if s.different:
        lines += [f"  {label:<19}{text}" for label, text in _changes(s)]
    return lines


def _different(t: Sums) -> str:
    changed_otherwise = t.different - t.gained - t.lost
    parts = [
        f"{count} {what}"
        for count, what in (
            (t.gained, "changed that are unchanged today"),
            (t.lost, "unchanged that are changed today"),
            (changed_otherwise, "changed otherwise"),
        )
        if count
    ]
    share = f" of {t.decisions}"
    return f"{format_count(t.different, 'job')}{share}{': ' if parts else ''}{', '.join(parts)}"


def _changes(s: Simulation) -> list[tuple[str, str]]:
    t = s.total
    energy, share = t.change("energy_kwh"), energy_share(s)
    percent = ""
    if share is not None:
        percent = f", {format_change(share.value)} of what all take today"
    rows = [
        ("slower", _pace(t.slower)),
        ("faster", _pace(t.faster)),
        ("energy", f"{_with_interval(energy, _kwh)}{percent}"),
        ("node-hours", _with_interval(t.change("node_hours"), _signed_number)),
    ]
    rows += [(label, _with_interval(t.change(key), form)) for key, label, form in _worth(s.tariff)]
    if t.unknown:
        rows.append(("not in the sums", f"{format_count(t.unknown, 'job')} that no model knows"))
    return rows


def _worth(tariff: Tariff) -> list[tuple[str, str, Callable[[float], str]]]:
    quantities: list[tuple[str, str, Callable[[float], str]]] = []
    if tariff.price is not None:
        quantities.append(("money", "money", lambda v: _signed_quantity(v, tariff.money)))
    if tariff.co2_g is not None:
        quantities.append(
            ("co2_kg", "CO2", lambda v: _signed_quantity(v, lambda kg: format_co2(1000 * kg)))
        )
    return quantities


def _pace(p: Pace) -> str:
    if not p.jobs:
        return "none"
    mean, most = format_percent(round(p.mean, 4)), format_percent(round(p.most, 4))
    return f"{format_count(p.jobs, 'job')}, by {mean} on average and {most} at most"


def rows(s: Simulation, most: int | None = None) -> list[tuple[str, ...]]:
    """Return the table's rows, under :data:`HEADERS`: accounts and applications that differ."""
    different = [g for g in s.groups if g.sums.different]
    return [_row(g) for g in different[:most]]


def _row(g: AccountSums) -> tuple[str, ...]:
    energy = g.sums.change("energy_kwh")
    return (
        g.account or "-",
        g.application or "-",
        str(g.sums.decisions),
        str(g.sums.different),
        str(g.sums.slower.jobs),
        _kwh(energy.value),
        interval_words(energy.lo, energy.hi, _kwh),
        _signed_number(g.sums.change("node_hours").value),
    )


def answer(s: Simulation, file: str) -> PolicySimulateAnswer:
    """Return the JSON form; ``file`` has the policy."""
    share, total = energy_share(s), s.total
    return PolicySimulateAnswer(
        file,
        s.since,
        s.version,
        s.decisions,
        total.decisions,
        s.undecided,
        s.different,
        total.gained,
        total.lost,
        total.unknown,
        total.slower,
        total.faster,
        Quantities.of(total, s.tariff),
        total.energy_now_j / J_PER_KWH,
        None if share is None else share.times(100),
        s.tariff.currency,
        [
            GroupAnswer(
                g.account,
                g.application,
                g.sums.decisions,
                g.sums.different,
                g.sums.gained,
                g.sums.lost,
                g.sums.slower,
                g.sums.faster,
                Quantities.of(g.sums, s.tariff),
            )
            for g in s.groups
        ],
        [ReasonPair(*reasons, count) for reasons, count in s.reasons.items()],
    )


def picture(s: Simulation, name: str) -> Panels:
    """Return what would differ in energy and node-hours, by account and application."""
    shown = [g for g in s.groups if g.sums.different][:_MOST_ROWS]
    names = [_label(g) for g in shown] or ["nothing differs"]
    panels = []
    for quantity, label in (("energy_kwh", "energy (kWh)"), ("node_hours", "node-hours")):
        changes = [g.sums.change(quantity) for g in shown] or [NO_CHANGE]
        panels.append(IntervalPanel(f"change of {label}", names, {"90 % interval": changes}))
    return Panels(f"{name} instead of today's policy, since {s.since[:10]}", tuple(panels))


def _label(g: AccountSums) -> str:
    return f"{g.account or '-'} {g.application or '-'}"[:28]


def _with_interval(value: Interval, form: Callable[[float], str]) -> str:
    return f"{form(value.value)} ({interval_words(value.lo, value.hi, form)})"


def _signed_quantity(value: float, form: Callable[[float], str]) -> str:
    return f"{'−' if value < 0 else '+'}{form(abs(value))}"


def _kwh(value: float) -> str:
    return _signed_quantity(value, format_kwh)


def _signed_number(value: float) -> str:
    return _signed_quantity(value, lambda v: f"{v:.3g}")


def table(s: Simulation, most: int = 12) -> tuple[Sequence[str], list[tuple[str, ...]], int]:
    """Return headers, rows and how many more there are."""
    table_rows = rows(s)
    return HEADERS, table_rows[:most], max(0, len(table_rows) - most)
