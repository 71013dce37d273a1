"""The one line a user reads on stderr: what changed, the expected effect, how to refuse."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative
from advisor.core.reasons import (
    CAP_TRIAL,
    EXTRAPOLATED,
    SEVERAL_PROGRAMS,
    TRIAL,
    WHOLE_JOB,
    Reason,
)
from advisor.core.step_plan import StepPlan
from advisor.core.units import format_change
from advisor.core.words import difference_words, step_words

_REFUSE = "refuse with ADVISOR=off"
_NAMED = 3
"""Programs that a line names."""


def plan_line(plan: StepPlan) -> str:
    """Return the line for the user of a job whose steps get what its plan says.

    Without a promise: which steps the job has is not known yet.
    """
    changes: dict[str, set[str]] = {}
    for step in plan.steps:
        if step.changes:
            changes.setdefault(step.program, set()).add(step_words(step))
    programs = [
        f"{name} {next(iter(words))}" if len(words) == 1 else f"{name} by its ranks and threads"
        for name, words in changes.items()
    ]
    more = [f"{len(programs) - _NAMED} more"] if len(programs) > _NAMED else []
    return f"advisor: steps: {'; '.join([*programs[:_NAMED], *more])}; {_REFUSE}"


def effect_line(
    application: str,
    baseline: Configuration | None,
    chosen: Alternative | None,
    reasons: Sequence[Reason],
    changed: bool,
    energy_quality: str,
) -> str:
    """Return the line for the user, "" when there is nothing worth saying."""
    short = next((r.text for r in reasons if r.code == "time-limit-short"), "")
    if chosen is None and short:
        return f"advisor: {application}: this size was not measured; {short}"
    if chosen is None and any(r.code == "training-auto" for r in reasons):
        return (
            f"advisor: no model for {application} yet; "
            "a training sweep measures it now for later jobs"
        )
    if chosen is None:
        ask = next((r for r in reasons if r.code == "training-ask"), None)
        if ask is None:
            return ""
        return (
            f"advisor: no model for {application} yet; "
            f"measure it once with: advisor train {ask.details[0]}"
        )
    codes = {r.code for r in reasons}
    quality = " (estimated)" if energy_quality == "estimated" and not chosen.estimated else ""
    effect = (
        f"energy {format_change(chosen.energy.change)}{quality}, "
        f"time {format_change(chosen.time.change)}"
    )
    surely = "estimated, not measured there" if chosen.estimated else "expected"
    if EXTRAPOLATED in codes:
        surely = "extrapolated: this size was not measured" + (f"; {short}" if short else "")
    if TRIAL in codes:
        surely = "estimated; this job is a trial"
    what = difference_words(baseline, chosen.configuration)
    trial = next((r for r in reasons if r.code == CAP_TRIAL), None)
    if changed and trial is not None:
        longer = trial.details[2]
        return f"advisor: this job tries {what}, at most {longer} longer, for later ones; {_REFUSE}"
    if changed:
        pinned = "your pin" if "pinned" in codes else application
        if not codes.isdisjoint((WHOLE_JOB, SEVERAL_PROGRAMS)):
            pinned = "this job"
        return f"advisor: {pinned} runs on {what}: {effect} {surely}; {_REFUSE}"
    if "extrapolated-advise" in codes:
        return f"advisor: {what} would give {effect} ({surely}); the site's policy only shows this"
    if "mode-advise" in codes:
        if chosen.estimated:
            effect = f"{effect} ({surely})"
        return f"advisor: {what} would give {effect}; take it with ADVISOR_MODE=apply"
    return ""
