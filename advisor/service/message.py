"""The one line a user reads on stderr: what changed, the expected effect, how to refuse."""

from __future__ import annotations

from advisor.core.decision import Decision
from advisor.core.units import format_change, format_freq

_REFUSE = "refuse with ADVISOR=off"


def effect_line(decision: Decision) -> str:
    """Return the line for the user, "" when there is nothing worth saying."""
    chosen = decision.chosen
    codes = {r.code for r in decision.reasons}
    if chosen is None:
        ask = next((r for r in decision.reasons if r.code == "training-ask"), None)
        if ask is not None:
            return (
                f"advisor: no model for {decision.application} yet; "
                f"measure it once with: advisor train {ask.details[0]}"
            )
        return ""
    quality = " (estimated)" if decision.energy_quality == "estimated" else ""
    effect = (
        f"energy {format_change(chosen.energy.change)}{quality}, "
        f"time {format_change(chosen.time.change)}"
    )
    what = describe_choice(decision)
    if decision.rewrite:
        pinned = "your pin" if "pinned" in codes else decision.application
        return f"advisor: {pinned} runs on {what}: {effect} expected; {_REFUSE}"
    if "mode-advise" in codes:
        return f"advisor: {what} would give {effect}; take it with ADVISOR_MODE=apply"
    return ""


def describe_choice(decision: Decision) -> str:
    """Return what differs between baseline and choice, in words."""
    chosen, baseline = decision.chosen, decision.baseline
    if chosen is None:
        return "what it asked for"
    new = chosen.configuration
    parts = []
    if baseline is None or new.node_type != baseline.node_type:
        parts.append(new.node_type)
    if baseline is None or new.nodes != baseline.nodes:
        parts.append(f"{new.nodes} node{'s' if new.nodes > 1 else ''}")
    if baseline is None or new.threads_per_node != baseline.threads_per_node:
        parts.append(f"{new.threads_per_node} cores a node")
    if baseline is None or new.freq_khz != baseline.freq_khz:
        parts.append(f"at most {format_freq(new.freq_khz)}")
    return ", ".join(parts) or "the same configuration"
