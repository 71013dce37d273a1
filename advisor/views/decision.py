"""A decision for people: what, why, what else there was."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.core.decision import Alternative, Decision
from advisor.core.reasons import NOTHING_CHANGED, STEP_PLAN, Reason
from advisor.core.step_plan import ANY, PlannedStep, StepPlan
from advisor.core.units import format_change, format_duration, format_energy, format_freq
from advisor.core.words import describe, step_words, with_interval
from advisor.schedulers.here import named
from advisor.schedulers.translators import translator
from advisor.views.tables import table


def decision_lines(decision: Decision, worth: Sequence[str] = ()) -> list[str]:
    """Return application, baseline, choice, alternatives and reasons as ``explain`` shows them.

    ``worth`` are the lines of what the change is worth.
    """
    d = decision
    lines = heading(d)
    if d.baseline:
        cost = _cost(d.baseline_time_s, d.baseline_energy_j)
        lines.append(f"asked for    {describe(d.baseline, node_type=True)}{cost}")
    if d.chosen and effects_text(d):
        label = "takes       " if d.changed else "would take  "
        cost = _cost(d.chosen.time_s, d.chosen.energy_j)
        place = describe(d.chosen.configuration, node_type=True)
        lines += [f"{label} {place}{cost}", f"promised     {effects_text(d)}", *worth]
    lines.append(f"rewritten    {rewrite_text(d) or 'nothing'}")
    return [*lines, *_alternatives(d.alternatives), *_steps(d.plan), *reason_lines(d)]


def _steps(plan: StepPlan | None) -> list[str]:
    """Return what a plan has for steps that are as they are read, by program and shape."""
    changed = {_step_row(step): None for step in (plan.steps if plan else ()) if step.changes}
    if not changed:
        return []
    headers = ["program", "arguments", "ranks", "threads", "gets", "time", "energy"]
    return ["", "steps of srun as they start, others run as written", *table(headers, [*changed])]


def _step_row(step: PlannedStep) -> tuple[str, ...]:
    """Return a step as a row; where its variable is unset, too, its threads stand in brackets."""
    threads = f"({step.threads})" if step.unset else str(step.threads)
    arguments = {ANY: "any others", "": "none"}.get(step.arguments, step.arguments)
    changes = [format_change(c[0] / 100) for c in (step.time_pct, step.energy_pct) if c]
    return (step.program, arguments, str(step.ranks), threads, step_words(step), *changes)


def heading(decision: Decision) -> list[str]:
    """Return the lines that name the application and the policy of a decision."""
    d = decision
    return [
        f"application  {d.application or '(not recognised)'}   workload {d.workload or '-'}",
        f"policy       version {d.policy_version}, mode {d.mode}, goal {d.goal}",
    ]


def reason_lines(decision: Decision) -> list[str]:
    """Return the reasons, a line each, under their heading."""
    return ["", "why", *(f"  - {r.text}" for r in decision.reasons)]


def rewrite_text(decision: Decision) -> str:
    """Return the rewritten options and variables as on a command line, "" for none."""
    language = translator(named(decision.scheduler))
    words = [" ".join(w) for w in language.written(decision.rewrite)]
    words += [f"{name}={value}" for name, value in decision.environment.items()]
    return "  ".join(words)


_VAGUE = "no-candidates"
_CLEARER = ("unconfirmed", "time-limit-unknown", "slowdown", "time-limit", "no-room")
"""Reasons that say more than that nothing is left."""


def why_not(reasons: Sequence[Reason]) -> str:
    """Return the sentence that says why a decision changes nothing, of all its reasons."""
    cause = cause_of([r for r in reasons if r.code != STEP_PLAN])
    return f"{NOTHING_CHANGED}: {cause}" if cause else "nothing would be changed"


def cause_of(reasons: Sequence[Reason]) -> str:
    """Return why a decision changes nothing where that is clear, "" where no reason says so.

    Of a job with a plan: that its steps may be changed.
    """
    if planned := next((r for r in reasons if r.code == STEP_PLAN), None):
        return planned.cause
    ending = [r for r in reasons if r.changes_nothing]
    if not ending:
        return ""
    clearer = [r for code in _CLEARER for r in reasons if r.code == code]
    return (clearer[0] if clearer and ending[-1].code == _VAGUE else ending[-1]).cause


def effects_text(decision: Decision) -> str:
    """Return predicted changes with their intervals, "" where they are not known."""
    chosen = decision.chosen
    if chosen is None or math.isnan(chosen.time.change):
        return ""
    effects = (("energy", chosen.energy), ("time", chosen.time))
    note = "; energy is an estimate" if decision.energy_quality == "estimated" else ""
    return ", ".join(f"{n} {with_interval(*effect, format_change)}" for n, effect in effects) + note


def _cost(time_s: float | None, energy_j: float | None) -> str:
    if time_s is None:
        return ""
    energy = "" if energy_j is None or math.isnan(energy_j) else f", {format_energy(energy_j)}"
    return f": {format_duration(time_s)}{energy}"


def _alternatives(alternatives: Sequence[Alternative]) -> list[str]:
    if not alternatives:
        return []
    rows = [
        [
            a.configuration.node_type,
            a.configuration.nodes,
            f"{a.configuration.ranks_per_node}x{a.configuration.threads_per_rank}",
            format_freq(a.configuration.freq_khz),
            format_duration(a.time_s),
            format_change(a.time.change),
            format_energy(a.energy_j),
            format_change(a.energy.change),
            "confirmed" if a.confirmed else "estimated" if a.estimated else "predicted",
        ]
        for a in alternatives
    ]
    headers = ["node type", "nodes", "threads", "cap", "time", "", "energy", "", "state"]
    return ["", "weighed", *table(headers, rows)]
