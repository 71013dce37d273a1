"""Configurations, their differences, changes and intervals in words: one form of each."""

from __future__ import annotations

import math
from collections.abc import Callable

from advisor.core.axes import extra_words
from advisor.core.configuration import Configuration
from advisor.core.step_plan import PlannedStep
from advisor.core.units import format_count, format_freq


def describe(c: Configuration, *, node_type: bool = False) -> str:
    """Return ``2 nodes, 14 threads (2 ranks), 1.9 GHz``: threads and ranks of a node, and the cap.

    With ``node_type``: ``2 nodes of skl, ...``.
    """
    type_words = f" of {c.node_type}" if node_type else ""
    ranks = f" ({c.ranks_per_node} ranks)" if c.ranks_per_node > 1 else ""
    cap = f", {format_freq(c.freq_khz)}" if c.freq_khz else ""
    threads = format_count(c.threads_per_node, "thread")
    further = f", {extra_words(c.extra)}" if c.extra else ""
    return f"{format_count(c.nodes, 'node')}{type_words}, {threads}{ranks}{cap}{further}"


def difference_words(old: Configuration | None, new: Configuration) -> str:
    """Return what a configuration changes of another: ``16 threads a node, at most 1.9 GHz``."""
    parts = []
    if old is None or new.node_type != old.node_type:
        parts.append(new.node_type)
    if old is None or new.nodes != old.nodes:
        parts.append(format_count(new.nodes, "node"))
    if old is None or new.threads_per_node != old.threads_per_node:
        parts.append(f"{format_count(new.threads_per_node, 'thread')} a node")
    if old is None or new.freq_khz != old.freq_khz:
        parts.append(f"at most {format_freq(new.freq_khz)}")
    if new.extra and (old is None or new.extra != old.extra):
        parts.append(extra_words(new.extra))
    return ", ".join(parts) or "the same configuration"


def step_words(step: PlannedStep) -> str:
    """Return what a plan changes of a step: ``7 of 14 threads a rank, at most 1.8 GHz``."""
    parts = []
    if step.threads_new:
        a_rank = " a rank" if step.ranks > 1 else ""
        parts.append(f"{step.threads_new} of {format_count(step.threads, 'thread')}{a_rank}")
    if step.cap_khz:
        parts.append(f"at most {format_freq(step.cap_khz)}")
    return ", ".join(parts) or "as it is written"


def change_words(
    energy: float | None, time: float, *, estimated: bool = False, brief: bool = False
) -> str:
    """Return changes (fractions) as people say them: ``9 % less energy, 3 % slower``.

    ``energy`` None or NaN: not known. Less than half a percent counts as the same. ``brief``
    leaves the word energy out, for a column that says it: ``9 % less, 3 % slower``. An estimate has
    ``about`` before it, or ``~`` where it is to be brief.
    """
    pace = _percent(time, "slower", "faster") or "as fast"
    if energy is None or math.isnan(energy):
        return f"{pace}, energy not known"
    noun = "" if brief else " energy"
    less = _percent(energy, f"more{noun}", f"less{noun}") or f"same{noun}"
    about = ("~" if brief else "about ") if estimated else ""
    return f"{about}{less}, {pace}"


def interval_words(lo: float, hi: float, form: Callable[[float], str]) -> str:
    """Return an interval, each end in the given form: ``−12.0 % to −6.1 %``."""
    return f"{form(lo)} to {form(hi)}"


def with_interval(value: float, lo: float, hi: float, form: Callable[[float], str]) -> str:
    """Return a value with its interval: ``−9.1 % (−12.0 % to −6.1 %)``."""
    return f"{form(value)} ({interval_words(lo, hi, form)})"


def _percent(change: float, more: str, less: str) -> str:
    number = f"{abs(change) * 100:.0f}"
    return "" if number == "0" else f"{number} % {more if change > 0 else less}"
