"""The one line a user reads on stderr: what changed, the expected effect, how to refuse."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative
from advisor.core.reasons import Reason
from advisor.core.units import format_change, format_freq

_REFUSE = "refuse with ADVISOR=off"


def effect_line(
    application: str,
    baseline: Configuration | None,
    chosen: Alternative | None,
    reasons: Sequence[Reason],
    changed: bool,
    energy_quality: str,
) -> str:
    """Return the line for the user, "" when there is nothing worth saying."""
    if chosen is None and any(r.code == "training-auto" for r in reasons):
        return f"advisor: no model for {application} yet; it is measured now for later jobs"
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
    what = describe_choice(baseline, chosen.configuration)
    if changed:
        pinned = "your pin" if "pinned" in codes else application
        return f"advisor: {pinned} runs on {what}: {effect} {surely}; {_REFUSE}"
    if "mode-advise" in codes:
        if chosen.estimated:
            effect = f"{effect} ({surely})"
        return f"advisor: {what} would give {effect}; take it with ADVISOR_MODE=apply"
    return ""


def describe_choice(baseline: Configuration | None, new: Configuration) -> str:
    """Return what differs between baseline and choice, in words."""
    parts = []
    if baseline is None or new.node_type != baseline.node_type:
        parts.append(new.node_type)
    if baseline is None or new.nodes != baseline.nodes:
        parts.append(f"{new.nodes} node{'s' if new.nodes > 1 else ''}")
    if baseline is None or new.threads_per_node != baseline.threads_per_node:
        n = new.threads_per_node
        parts.append(f"{n} thread{'s' if n > 1 else ''} a node")
    if baseline is None or new.freq_khz != baseline.freq_khz:
        parts.append(f"at most {format_freq(new.freq_khz)}")
    return ", ".join(parts) or "the same configuration"
