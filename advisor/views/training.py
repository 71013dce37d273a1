"""A sweep in words: its plan and cost, each run, what it came to."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from advisor.core.option import Option
from advisor.core.parameters import format_number, parameters_of
from advisor.core.policy import Policy
from advisor.core.units import (
    format_change,
    format_count,
    format_duration,
    format_energy,
    format_node_hours,
    format_percent,
)
from advisor.core.words import describe
from advisor.training.outcome import Confirmation, Event, SweepOutcome
from advisor.training.plan import USUAL_SHARE, Cost
from advisor.training.planning import PlannedSweep
from advisor.training.state import SweepState


def title(state: SweepState) -> str:
    """Return what is trained and where, for people."""
    subject = state.subject
    return f"{subject.application} / {subject.workload} on {subject.node_type.name}"


def cost_words(cost: Cost) -> str:
    """Return a cost in words, ``up to 0.4 node-hours, 310 kJ``."""
    if cost.node_hours is None:
        return f"cost {cost.basis}"
    text = f"up to {format_node_hours(cost.node_hours)}"
    if cost.energy_j is not None:
        text += f", {format_energy(cost.energy_j)}"
    return f"{text} (from {cost.basis})"


def plan_lines(plan: PlannedSweep, *, listing: bool = False) -> list[str]:
    """Return the plan in words: what is run, the cost, and when that can pay back.

    With ``listing`` every run too.
    """
    state = plan.state
    subject, runs = state.subject, state.stages["design"].runs
    confirm = state.settings.confirm
    more = f" and {confirm} to confirm the best" if confirm else ""
    most = state.settings.most_runs
    count = f"{len(runs)} to {most} runs" if most > len(runs) else format_count(len(runs), "run")
    equal = plan.cost.equal_runs
    lines = [
        f"{title(state)}: {subject.how}",
        f"the job as written: {describe(subject.baseline)}",
        f"{count} of {len(state.space)} configurations{more}: {cost_words(plan.cost)}",
        f"at most the cost of {equal:.0f} runs of the job: pays back after "
        f"{math.ceil(equal / 0.1)} runs if it saves 10 %, {math.ceil(equal / 0.05)} if 5 %",
        plan.energy,
        *(
            [f"rate: the {subject.rate.take} number of '{subject.rate.match}' in a run's output"]
            if subject.rate
            else []
        ),
        *_early_end_lines(plan),
        *(f"note: {note}" for note in plan.notes),
    ]
    if listing:
        lines += [f"  {r.seq:3d}  {r.role:8s}  {describe(r.configuration)}" for r in runs]
    return lines


def _early_end_lines(plan: PlannedSweep) -> list[str]:
    """Say which runs may end early, what becomes of their files, and what that may save."""
    tolerance, earlier = plan.state.settings.within, plan.state.settings.earlier
    if not tolerance:
        return []
    runs = plan.state.stages["design"].runs
    complete_runs = (
        sum(r.role == "baseline" for r in runs) + plan.state.settings.confirm - bool(earlier)
    )
    base, equal = plan.state.subject.baseline, max(1.0, plan.cost.equal_runs)
    share = min(1.0, (complete_runs + USUAL_SHARE * max(0.0, equal - complete_runs)) / equal)
    which = "those that confirm" if earlier else "the first and those that confirm"
    lines = [
        f"runs end once their time and energy are known within {format_percent(tolerance)}, except "
        f"{which}; the files of a run that ends early are incomplete (--complete: all runs whole)",
        *(
            [
                "the run of the job as written is compared with the complete run of sweep "
                f"{earlier}, and may end early too"
            ]
            if earlier
            else []
        ),
        "if the program repeats itself, the sweep costs about "
        f"{format_percent(round(share, 2))} of one with complete runs",
    ]
    if base.nodes * base.ranks_per_node > 1:
        lines.append(
            "the lowest rank on the job's first node stands for all ranks: if they do not iterate "
            "together, no run ends early"
        )
    return lines


def run_line(event: Event) -> str:
    """Return one finished run as a line."""
    run, result = event.run, event.result
    if run is None or result is None:
        return event.text
    where = describe(run.configuration)
    if not result.ok:
        consequence = f"; {event.text}" if event.text else "; left out"
        return f"run {event.index}/{event.total}  {where}  failed: {result.detail}{consequence}"
    time = format_duration(result.time_s or 0.0)
    if result.energy_j is None:
        energy = "energy missing"
    else:
        sign = "~" if result.energy_quality == "estimated" else ""
        energy = f"{sign}{format_energy(result.energy_j)}"
    if result.extrapolated is not None:
        share = format_percent(round(result.extrapolated["share"], 2))
        energy += f"  (ended early, after {share} of it)"
    if result.rate is not None:
        energy += f"  rate {result.rate:.4g}"
    role = "confirms " if run.role == "confirm" else ""
    return (
        f"run {event.index}/{event.total}  {role}{where}  {time}  {energy}  "
        f"({event.spent.words} so far)"
    )


def outcome_rows(outcome: SweepOutcome) -> list[list[str]]:
    """Return a row each for the job as written and what is recommended, if anything is.

    The columns: which, configuration, time, energy, change.
    """
    base, best = outcome.baseline, outcome.recommended
    rows = [["the job as written", *_cells(base, None)]]
    if best is not None:
        rows.append(["recommended", *_cells(best, base)])
    return rows


def outcome_lines(
    state: SweepState, outcome: SweepOutcome, policy: Policy, no_law: str = ""
) -> list[str]:
    """Return what the sweep came to: what failed, confirmation, verdict, cost and payback.

    ``no_law`` says why no law holds over its sizes.
    """
    lines = []
    if outcome.fit.energy_quality == "estimated":
        lines.append("energy is estimated, not measured")
    lines += [f"left out: {failed}" for failed in outcome.failed]
    lines += [_attempt(attempt) for attempt in outcome.attempts]
    size = state.settings.size
    if size is not None and not size.last:
        lines.append(
            f"{size.words} has no model of its own: its runs show how {size.parameter} acts"
        )
        return [*lines, f"the sweep cost {outcome.spent.words}"]
    if outcome.recommended is None:
        lines.append(_why_none(outcome, policy))
    elif outcome.confirmation is None:
        lines.append("No confirmation run was needed: the runs agree on this configuration.")
    elif not outcome.confirmation.chosen:
        lines.append("The recommended configuration is confirmed by an earlier run.")
    lines.append(f"the sweep cost {outcome.spent.words}{_payback(outcome, policy)}")
    name = shlex.quote(state.subject.application)
    lines.append(f"all options: advisor options {name}")
    if size is not None and no_law:
        lines.append(f"sizes that never ran are not known: {no_law}; were the runs undisturbed?")
    elif size is not None:
        twice = parameters_of(state.subject.workload).size | {size.parameter: 2 * size.largest}
        place = ",".join(f"{n}={format_number(v)}" for n, v in twice.items())
        lines.append(f"sizes that never ran: advisor lab predict {name} --at {place}")
    return lines


def series_lines(plans: Sequence[PlannedSweep]) -> list[str]:
    """Return the cost of all sizes of a series together."""
    runs = sum(p.cost.runs for p in plans)
    hours = [p.cost.node_hours for p in plans]
    known_node_hours = [h for h in hours if h is not None]
    cost = (
        f"up to {format_node_hours(sum(known_node_hours))}"
        if len(known_node_hours) == len(hours)
        else "cost not known"
    )
    return [f"in all {len(plans)} sizes: {format_count(runs, 'run')}, {cost}"]


def _payback(outcome: SweepOutcome, policy: Policy) -> str:
    if outcome.payback is None or outcome.saved_per_run is None:
        return ""
    metered = math.isfinite(outcome.baseline.energy_j)
    saved = (format_energy if metered else format_node_hours)(outcome.saved_per_run)
    most = policy.training.payback_runs
    limit_words = f" (more than the policy's {most})" if outcome.payback > most else ""
    return (
        f"; it saves {saved} a run, so it pays back after "
        f"{format_count(outcome.payback, 'run')}{limit_words}"
    )


def _attempt(attempt: Confirmation) -> str:
    """Say how a confirming run came out."""
    energy = f", {format_energy(attempt.energy_j)}" if attempt.energy_j is not None else ""
    run_words = f"a run there took {format_duration(attempt.time_s)}{energy}, {attempt.reason}"
    if attempt.chosen:
        return f"confirmed: {run_words}"
    return f"{describe(attempt.configuration)} {attempt.verdict}: {run_words}"


def _cells(option: Option, base: Option | None) -> list[str]:
    has_energy = math.isfinite(option.energy_j)
    change = ""
    if base is not None:
        change = f"time {format_change(option.time_s / base.time_s - 1)}"
        if has_energy and math.isfinite(base.energy_j):
            change += f", energy {format_change(option.energy_j / base.energy_j - 1)}"
    energy = format_energy(option.energy_j) if has_energy else "not known"
    return [describe(option.configuration), format_duration(option.time_s), energy, change]


def _why_none(outcome: SweepOutcome, policy: Policy) -> str:
    if not math.isfinite(outcome.baseline.energy_j):
        return "No change recommended: without energy no saving can be predicted."
    tries = len(outcome.attempts)
    if tries:
        runs = "The confirmation run" if tries == 1 else f"None of the {tries} confirmation runs"
        if any(attempt.holds for attempt in outcome.attempts):
            verb = "does not keep" if tries == 1 else "keeps"
            return f"{runs} {verb} the policy's bounds; no change recommended."
        verb = "did not match" if tries == 1 else "matched"
        return f"{runs} {verb} its prediction; no change recommended."
    return (
        f"No configuration saves {format_percent(policy.min_saving)} within a slowdown of "
        f"{format_percent(policy.max_slowdown)}; no change recommended."
    )
