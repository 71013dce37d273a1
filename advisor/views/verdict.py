"""What a job gets in two lines: what it saves, and whether that is applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision, Effect
from advisor.core.policy import MODES
from advisor.core.units import format_freq
from advisor.views.decision import cause_of

_LEAST = 0.005
"""A change below half a percent is none."""


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """``what`` is to be had and whether it is ``applied``, a line each.

    ``tone``: good (it is applied), open (it could be), none (there is nothing). ``can_apply``:
    the person may have it applied to their own jobs by asking for it.
    """

    what: str
    applied: str
    tone: Literal["good", "open", "none"] = "none"
    can_apply: bool = False


def verdict(
    policy: Decision | None, yours: Decision | None, absence_reason: str = ""
) -> JobVerdict:
    """Return the verdict on jobs as written.

    ``policy`` and ``yours`` are the decisions without and with what the person has chosen;
    ``absence_reason`` says why there is none.
    """
    if policy is None or yours is None:
        return JobVerdict(f"NO ADVICE: {absence_reason}", "NOT APPLIED: jobs run as written")
    if yours.chosen is None or yours.chosen.configuration == yours.baseline:
        return _unchanged_verdict(yours)
    what = _change_sentence(yours, yours.chosen)
    if yours.changed:
        follows_policy = policy.changed and policy.chosen == yours.chosen
        whose = "the site's policy does it" if follows_policy else "as you chose"
        if _moves(yours):
            whose += ", queues permitting"  # which only the daemon knows, when it is submitted
        return JobVerdict(what, f"APPLIED: {whose} · c choose otherwise", "good")
    why, can_apply = _not_applied(policy, yours)
    if _moves(yours):
        why += "; queues must permit it, too"
    offer = " · a apply it for me" if can_apply else ""
    return JobVerdict(what, f"NOT APPLIED: {why}{offer}", "open", can_apply)


def _moves(decision: Decision) -> bool:
    """Tell whether the choice is on another node type than the job's."""
    old, new = decision.baseline, decision.chosen
    return old is not None and new is not None and new.configuration.node_type != old.node_type


def _unchanged_verdict(decision: Decision) -> JobVerdict:
    if decision.chosen is not None:
        what = "CHANGES NOTHING: you pinned what the job asks for already"
        return JobVerdict(what, "NOTHING TO APPLY: jobs run as written · c choose")
    why = cause_of(decision.reasons) or "nothing better is known"
    codes = decision.codes
    if "opted-out" in codes or "mode-off" in codes:
        application_words = "NOTHING TO APPLY: your jobs run as you wrote them · c choose"
    elif "unconfirmed" in codes:
        application_words = "NOTHING TO APPLY: a run must confirm one first · t measure"
    else:
        application_words = "NOTHING TO APPLY: jobs run as written · c choose"
    return JobVerdict(f"CHANGES NOTHING: {why}", application_words)


def _change_sentence(decision: Decision, chosen: Alternative) -> str:
    verb = "WILL" if decision.changed else "WOULD"
    energy, time = chosen.energy, chosen.time
    about = "about " if decision.energy_quality == "estimated" else ""
    if energy.change != energy.change:
        words = f"CHANGE time {_change_words(time)}, energy not known"
    elif energy.change <= -_LEAST or time.change > -_LEAST:
        lead = (
            f"SAVE {about}{_saving(energy)} energy{_interval(_as_saving(energy))}"
            if energy.change <= -_LEAST
            else f"CHANGE energy {about}{_change_words(energy)}"
        )
        words = f"{lead}, time {_change_words(time)}"
    else:
        lead = f"SAVE {_saving(time)} time{_interval(_as_saving(time))}"
        words = f"{lead}, energy {about}{_change_words(energy)}"
    return f"{verb} {words}: {against(decision.baseline, chosen.configuration)}"


def _not_applied(policy: Decision, yours: Decision) -> tuple[str, bool]:
    """Return why a choice is not applied, and whether the person can have it applied."""
    code = yours.reasons[-1].code
    if code not in ("mode-advise", "mode-observe"):
        return cause_of(yours.reasons) or "nothing would be changed", False
    if yours.policy.mode == "apply":
        return "its energy is an estimate; the site applies measured ones only", False
    limits = yours.policy.user_limits.mode
    allowed = MODES.index("apply") <= max(MODES.index(policy.policy.mode), MODES.index(limits))
    site_action = "advises" if code == "mode-advise" else "observes"
    if policy.policy.mode != yours.policy.mode:
        return "you asked for advice only", allowed
    return f"the site only {site_action}", allowed


def against(old: Configuration | None, new: Configuration) -> str:
    """Return what a configuration changes of another: ``4 cores, not 32``.

    Of several changes only the new values: ``16 cores, 1.9 GHz``.
    """
    if old is None:
        return _cores(new)
    pairs = [
        (old.node_type, new.node_type),
        (f"{old.nodes}", f"{new.nodes} node{'s' * (new.nodes != 1)}"),
        (f"{old.threads_per_node}", _cores(new)),
        (format_freq(old.freq_khz).removesuffix(" GHz"), format_freq(new.freq_khz)),
    ]
    changed = (
        old.node_type != new.node_type,
        old.nodes != new.nodes,
        old.threads_per_node != new.threads_per_node,
        old.freq_khz != new.freq_khz,
    )
    differing = [pair for pair, differs in zip(pairs, changed, strict=True) if differs]
    if len(differing) == 1:
        return f"{differing[0][1]}, not {differing[0][0]}"
    return ", ".join(new_text for _, new_text in differing) or "other ranks"


def _cores(c: Configuration) -> str:
    node_words = " a node" if c.nodes > 1 else ""
    return f"{c.threads_per_node} core{'s' * (c.threads_per_node != 1)}{node_words}"


# -- numbers ---------------------------------------------------------------------------------------


def _as_saving(effect: Effect) -> Effect:
    """Return a change as a saving."""
    return Effect(-effect.change, -effect.hi, -effect.lo)


def _saving(effect: Effect) -> str:
    return f"{_number(-effect.change, _needs_decimal(effect))} %"


def _change_words(effect: Effect) -> str:
    fine = _needs_decimal(effect)
    return f"{_number(effect.change, fine, signed=True)} %{_interval(effect, signed=True)}"


def _interval(effect: Effect, *, signed: bool = False) -> str:
    if effect.lo != effect.lo or effect.hi != effect.hi:
        return ""
    fine = _needs_decimal(effect)
    ends = (_number(v, fine, signed=signed, end=True) for v in (effect.lo, effect.hi))
    return " ({} to {})".format(*ends)


def _needs_decimal(effect: Effect) -> bool:
    """Tell whether whole percents would make one number of an interval."""
    low, high = 100 * effect.lo, 100 * effect.hi
    return high > low and f"{low:.0f}" == f"{high:.0f}"


def _number(value: float, fine: bool, *, signed: bool = False, end: bool = False) -> str:
    """Return a fraction in percent: whole, or with one decimal where that is all there is."""
    percent = 100 * value
    digits = 1 if fine or (abs(percent) < 0.95 and not end) else 0
    text = f"{percent:{'+' if signed else ''}.{digits}f}"
    return "0" if not float(text) else text
