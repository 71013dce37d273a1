"""What ``advisor prospect`` shows: lines for a screen, the JSON answer, a page and a picture."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import Annotated

from advisor.core.codec import Count, JsonForm, wire
from advisor.core.recognise import clean_name
from advisor.core.units import format_count
from advisor.core.words import interval_words
from advisor.core.worth import J_PER_KWH, EnergyWorth, Tariff, format_kwh
from advisor.prospect.estimate import Portion, Prospect, Slice, TrainingCandidate
from advisor.prospect.usage import DEFAULT_W, MOST_GROUPS, REPEATED, Usage
from advisor.views.tables import table

_SHOWN = 6
"""Applications of the screen; the JSON and the page have all."""
_BARS = 8
"""Applications of the picture."""
_INK = "#111827"
_PAGE_ROWS = 200
"""Rows of each table of the page."""
_OPEN_ROWS = 20
"""Of them those that are seen before a click."""
_STYLE = """\
:root{color-scheme:light dark;--ground:#fff;--ink:#111827;--faint:#4b5563;--line:#e5e7eb}
@media(prefers-color-scheme:dark){:root{--ground:#111827;--ink:#f3f4f6;--faint:#9ca3af;--line:#374151}}
body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:var(--ink);background:var(--ground)}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{position:sticky;left:0;background:var(--ground);padding-left:0}
td,th,code{white-space:nowrap}
.figure{text-align:right;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
summary{padding:.6rem 0;color:var(--faint);cursor:pointer}
svg{width:100%;height:auto;min-width:42rem}
svg>rect:first-child{fill:none}
svg text{fill:var(--ink)}
svg text[fill="#4b5563"]{fill:var(--faint)}
svg path{stroke:var(--ink)}
@media(max-width:44rem){body{margin:1rem auto}h1{font-size:1.6rem}}
"""
"""The page's: in a reader's light or dark, and on a phone, where what is wide scrolls by itself."""
_TRAIN_COLUMNS = "user", "nodes", "jobs", "saves", "command"
"""What stands beside the programs worth training first."""
ASSUMED = {
    "partition": "the mean of the metered jobs of the same partition",
    "site": "the site file's base_power_w and core_power_w",
    "default": f"a default of {DEFAULT_W:.0f} W a node",
}


@dataclass(frozen=True, slots=True)
class ApplicationUse(JsonForm):
    """The use of an application, and its published class."""

    application: str
    use: Slice = field(metadata=wire(inline=True))
    class_name: str | None = field(metadata=wire("class"))


@dataclass(frozen=True, slots=True)
class GroupOfUsers(JsonForm):
    """The use of a group of users."""

    user_group: str
    use: Slice = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class PartitionUse(JsonForm):
    """The use of a partition."""

    partition: str
    use: Slice = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class ProspectAnswer(JsonForm):
    """What a site would save, from its accounting alone; intervals are at 90 %."""

    jobs: Count
    node_hours: float
    kwh: float
    kwh_interval: tuple[float, float]
    kwh_assumed_share: Annotated[Portion, "of the energy that was not metered"]
    assumed_by: Annotated[
        Mapping[str, Portion],
        "the share by where the assumed power is from: partition, site, default",
    ]
    actionable_jobs: Count
    actionable_kwh: float
    saving_kwh: float
    saving_interval: tuple[float, float]
    saving_by_threads_kwh: float
    training_kwh: float
    worth: EnergyWorth
    first_end: str
    last_end: str
    by_application: Sequence[ApplicationUse]
    by_user_group: Sequence[GroupOfUsers]
    by_partition: Sequence[PartitionUse]
    train_first: Sequence[TrainingCandidate]
    damaged_lines: Count
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ProspectView:
    """The estimate with what was read; of damaged lines how many, and the first with its place."""

    prospect: Prospect
    usage: Usage
    damaged: int = 0
    first_damaged: str = ""
    tariff: Tariff = field(default_factory=Tariff)

    @property
    def span(self) -> str:
        """The days of the first and the last end of a job, "" where they are not known."""
        days = [_day(self.usage.first_end), _day(self.usage.last_end)]
        return f"{days[0]} to {days[1]}" if all(days) else ""

    def notes(self) -> list[str]:
        """Return what limits the answer, one sentence each."""
        p, usage = self.prospect, self.usage
        notes = []
        if p.whole.assumed_share:
            parts = ", ".join(
                f"{100 * share:.0f} % by {ASSUMED[source]}"
                for source, share in sorted(p.assumed_by.items(), key=lambda item: -item[1])
                if share >= 0.005
            )
            notes.append(
                f"{100 * p.whole.assumed_share:.0f} % of the energy is assumed, not metered"
                + (f": {parts}" if parts else "")
            )
        if usage.summed:
            notes.append(
                f"{format_count(usage.summed, 'job')} came as sums by program: whole nodes are "
                "assumed, and that a program's users ran it equally often"
            )
        notes.append(
            "caps: from published measurements, since an accounting does not show how a program "
            "slows down"
        )
        if not usage.inventory.node_types:
            cpus = (
                ", and a node has the most CPUs that a job of its partition had"
                if any(usage.most_cpus.values())
                else ""
            )
            notes.append(f"that frequency can be capped is assumed{cpus}; --site FILE says more")
        elif any(len(t.freq_khz) < 2 for t in usage.inventory.node_types.values()):
            names = ", ".join(
                n for n, t in usage.inventory.node_types.items() if len(t.freq_khz) < 2
            )
            notes.append(f"no cap is counted on {names}: the site file states no freq_khz there")
        if p.thread_kwh:
            notes.append(
                f"of it by fewer threads, as the history shows: {format_kwh(p.thread_kwh)}"
            )
        for count, what in (
            (usage.impossible, "with an impossible energy reading, which was dropped"),
            (usage.idle, "without nodes or time, not counted"),
            (usage.beyond, f"beyond the first {MOST_GROUPS} groups, summed up as not acted on"),
        ):
            if count:
                notes.append(f"{format_count(count, 'job')} {what}")
        if self.damaged:
            lines = format_count(self.damaged, "damaged line")
            notes.append(f"{lines} skipped, the first: {self.first_damaged}")
        return notes

    def answer(self) -> ProspectAnswer:
        """Return the JSON form."""
        p, all_jobs = self.prospect, self.prospect.whole
        return ProspectAnswer(
            all_jobs.jobs,
            all_jobs.node_hours,
            all_jobs.kwh,
            p.kwh_interval,
            all_jobs.assumed_share,
            p.assumed_by,
            all_jobs.actionable_jobs,
            all_jobs.actionable_kwh,
            all_jobs.saving_kwh,
            all_jobs.saving_interval,
            p.thread_kwh,
            p.training_kwh,
            self.tariff.worth(all_jobs.saving_kwh * J_PER_KWH),
            _day(self.usage.first_end),
            _day(self.usage.last_end),
            [ApplicationUse(s.name, s, s.of_class or None) for s in p.by_application],
            [GroupOfUsers(s.name, s) for s in p.by_account],
            [PartitionUse(s.name, s) for s in p.by_partition],
            p.train_first,
            self.damaged,
            self.notes(),
        )

    def lines(self) -> list[str]:
        """Return the screen."""
        p, all_jobs = self.prospect, self.prospect.whole
        span = f", {self.span}" if self.span else ""
        lines = [
            f"{format_count(all_jobs.jobs, 'job')}{span}: {_hours(all_jobs.node_hours)}, "
            f"{format_kwh(all_jobs.kwh)} ({100 * all_jobs.assumed_share:.0f} % of it assumed)",
            f"could be acted on: {format_count(all_jobs.actionable_jobs, 'job')}, "
            f"{format_kwh(all_jobs.actionable_kwh)} "
            f"({_part(all_jobs.actionable_kwh, all_jobs.kwh)}): whole nodes, recognised, "
            f"{REPEATED} runs or more",
            f"would be saved:    {_saving_words(all_jobs)} at 90 %, {self._worth()}",
        ]
        if p.training_kwh:
            lines.append(
                f"training first:    {format_kwh(p.training_kwh)} once, for all that pay it back"
            )
        shown = p.by_application[:_SHOWN]
        if shown:
            lines += ["", *table(*_table_of(shown, "application"))]
        for title, slices in (("user groups", p.by_account), ("partitions", p.by_partition)):
            parts = [f"{s.name or '-'} {_part(s.kwh, all_jobs.kwh)}" for s in slices[:5]]
            more = f", {len(slices) - 5} more" if len(slices) > 5 else ""
            if parts:
                lines.append(f"{title}: {', '.join(parts)}{more}")
        if p.train_first:
            heads = ("train first", *_TRAIN_COLUMNS)
            lines += ["", *table(heads, _train_rows(p))]
        return [*lines, "", *self.notes()]

    def _worth(self) -> str:
        all_jobs = self.prospect.whole
        part = _part(all_jobs.saving[0], all_jobs.kwh)
        if self.tariff.price is None:
            return f"{part} of all"
        return f"{part} of all, {self.tariff.money(all_jobs.saving[0] * self.tariff.price)}"

    def svg(self) -> str:
        """Return a picture: all energy, what could be acted on, what would be saved, by program."""
        p, all_jobs = self.prospect, self.prospect.whole
        apps = [s for s in p.by_application if s.saving[2]][:_BARS]
        height = 190 + 26 * len(apps)
        most = all_jobs.kwh or 1.0
        about = (
            f"of {format_kwh(all_jobs.kwh)} in {format_count(all_jobs.jobs, 'job')}"
            f"{', ' if self.span else ''}{self.span}; "
            f"{100 * all_jobs.assumed_share:.0f} % of the energy is assumed; 90 % interval"
        )
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" '
            'font-family="sans-serif" font-size="14" role="img">',
            f'<rect width="900" height="{height}" fill="#ffffff"/>',
            _text(20, 30, f"{_saving_words(all_jobs)} could be saved", size=20, weight="bold"),
            _text(20, 52, about, colour="#4b5563"),
        ]
        used, can = all_jobs.kwh, all_jobs.actionable_kwh
        for row, (name, kwh, words, colour) in enumerate(
            (
                ("used", used, format_kwh(used), "#9ca3af"),
                ("could be acted on", can, format_kwh(can), "#60a5fa"),
                ("would be saved", all_jobs.saving[0], _saving_words(all_jobs), "#15803d"),
            )
        ):
            y = 74 + 26 * row
            parts += _bar(y, name, words, kwh / most, colour)
        parts.append(_error(74 + 52, all_jobs.saving, most))
        largest = max((s.saving[2] for s in apps), default=0.0) or 1.0
        if apps:
            parts.append(_text(20, 176, "saved by program", weight="bold"))
            parts.append(_text(_LEFT, 176, "lines: 90 % intervals", colour="#4b5563"))
        for row, app in enumerate(apps):
            y = 186 + 26 * row
            share = app.saving[0] / largest
            parts += _bar(y, app.name, _saving_words(app), share, "#15803d")
            parts.append(_error(y, app.saving, largest))
        return "\n".join([*parts, "</svg>", ""])

    def html(self) -> str:
        """Return one page that needs nothing else."""
        p = self.prospect
        picture = self.svg()
        sections = []
        for title, name, slices in (
            ("Programs", "application", p.by_application),
            ("User groups", "user group", p.by_account),
            ("Partitions", "partition", p.by_partition),
        ):
            heads, rows = _table_of(slices[:_PAGE_ROWS], name)
            first, more = rows[:_OPEN_ROWS], rows[_OPEN_ROWS:]
            sections.append(f"<h2>{title}</h2>{_html_table(heads, first, range(1, len(heads)))}")
            if more:
                rest = _html_table(heads, more, range(1, len(heads)))
                sections.append(f"<details><summary>{len(more)} more</summary>{rest}</details>")
            if len(slices) > _PAGE_ROWS:
                left_out = f"{len(slices) - _PAGE_ROWS:,} smaller ones are in the answer of --json"
                sections.append(f"<p>{left_out}.</p>")
        train_heads = ("program", *_TRAIN_COLUMNS)
        figures = range(train_heads.index("nodes"), train_heads.index("command"))
        train = _html_table(train_heads, _train_rows(p), figures, code=train_heads.index("command"))
        if not p.train_first:
            train = "<p>No program would pay back what it takes to measure it.</p>"
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>What this site would save</title><style>{_STYLE}</style></head><body>"
            "<h1>What this site would save</h1>"
            f'<div class="wide">{picture}</div>'
            f"<h2>Train first</h2>{train}{''.join(sections)}"
            f"<h2>What limits this answer</h2><ul>{notes}</ul></body></html>\n"
        )


def _train_rows(prospect: Prospect) -> list[tuple[object, ...]]:
    return [
        (c.application, c.user or "-", c.nodes or "-", c.jobs, format_kwh(c.saving_kwh), c.command)
        for c in prospect.train_first
    ]


def _table_of(
    slices: Sequence[Slice], name: str
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    heads = (name, "jobs", "node-hours", "energy", "assumed", "could be acted on", "saves (90 %)")
    rows: list[tuple[object, ...]] = [
        (
            clean_name(s.name) or "-",
            s.jobs,
            f"{s.node_hours:,.0f}",
            format_kwh(s.kwh),
            f"{100 * s.assumed_share:.0f} %",
            format_kwh(s.actionable_kwh),
            _saving_words(s) if s.saving[2] else "-",
        )
        for s in slices
    ]
    return heads, rows


def _saving_words(s: Slice) -> str:
    """Return a saving with its interval, all in the unit of the largest."""
    mean, lo, hi = s.saving
    units = (("GWh", 1e6), ("MWh", 1e3), ("kWh", 1.0), ("Wh", 1e-3))
    unit, kwh = next((u for u in units if max(s.saving) >= u[1]), units[-1])

    def short(value: float) -> str:
        return f"{float(f'{value / kwh:.3g}'):g}"

    return f"{short(mean)} {unit} ({interval_words(lo, hi, short)})"


def _hours(hours: float) -> str:
    return f"{hours:,.0f} node-hours" if hours >= 1000 else f"{hours:.4g} node-hours"


def _part(kwh: float, total_kwh: float) -> str:
    return f"{100 * kwh / total_kwh:.3g} %" if total_kwh else "0 %"


def _day(text: str) -> str:
    """Return the day of an end: ISO 8601, or seconds since 1970; "" for neither."""
    try:
        if text.isascii() and text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC).date().isoformat()
        return datetime.fromisoformat(text).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 14,
    weight: str = "normal",
    colour: str = "#111827",
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


_LEFT, _WIDTH = 190, 500
"""Where the picture's bars begin, and how long the longest is."""


def _bar(y: float, name: str, value: str, share: float, colour: str) -> list[str]:
    width = _WIDTH * min(1.0, max(0.0, share))
    shown = name if len(name) <= 22 else f"{name[:21]}…"
    return [
        _text(20, y + 15, shown),
        f'<rect x="{_LEFT}" y="{y:.0f}" width="{width:.1f}" height="18" fill="{colour}"/>',
        _text(_LEFT + _WIDTH + 12, y + 15, value),
    ]


def _error(y: float, saving: tuple[float, float, float], most: float) -> str:
    lo, hi = (_LEFT + _WIDTH * min(1.0, max(0.0, v / most)) for v in saving[1:])
    return (
        f'<path d="M{lo:.1f} {y + 9:.0f}H{hi:.1f}M{lo:.1f} {y + 4:.0f}v10M{hi:.1f} {y + 4:.0f}v10" '
        'stroke="#111827" stroke-width="1.5"/>'
    )


def _html_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    figures: Container[int],
    code: int | None = None,
) -> str:
    """Return a table that scrolls by itself where it is too wide.

    The columns of ``figures`` are aligned to the right; that of ``code`` holds commands.
    """
    right = ' class="figure"'

    def line(kind: str, cells: Sequence[object]) -> str:
        texts = [escape(_shown(cell)) for cell in cells]
        if kind == "td" and code is not None:
            texts[code] = f"<code>{texts[code]}</code>"
        return "".join(
            f"<{kind}{right if column in figures else ''}>{text}</{kind}>"
            for column, text in enumerate(texts)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{line("th", heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
