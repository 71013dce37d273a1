"""What ``advisor train`` shows: plan and cost, progress, outcome."""

from __future__ import annotations

import math
from contextlib import redirect_stdout
from types import TracebackType
from typing import Any, Self, TextIO

from advisor.cli.output import print_table
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.units import (
    format_change,
    format_duration,
    format_energy,
    format_node_hours,
    format_percent,
)
from advisor.core.words import describe
from advisor.training.outcome import Confirmation, Event, SweepOutcome
from advisor.training.plan import Cost
from advisor.training.planning import PlannedSweep
from advisor.training.state import SweepState

_OF_RUN = ("time_s", "energy_j", "energy_quality", "meter", "job_id")


def title(state: SweepState) -> str:
    """Return what is trained and where, for people."""
    subject = state.subject
    return f"{subject.application} / {subject.workload} on {subject.node_type.name}"


def format_cost(cost: Cost) -> str:
    """Return a cost in words, ``up to 0.4 node-hours, 310 kJ``."""
    if cost.node_hours is None:
        return f"cost {cost.basis}"
    text = f"up to {format_node_hours(cost.node_hours)}"
    if cost.energy_j is not None:
        text += f", {format_energy(cost.energy_j)}"
    return f"{text} (from {cost.basis})"


def plan_json(plan: PlannedSweep) -> dict[str, object]:
    """Return the plan as ``--dry-run --json`` prints it."""
    state, subject = plan.state, plan.state.subject
    return {
        "application": subject.application,
        "workload": subject.workload,
        "node_type": subject.node_type.name,
        "scheduler": state.settings.scheduler,
        "baseline": subject.baseline.to_dict(),
        "space": {
            "nodes": list(state.space.nodes),
            "threads_per_node": [t for _, t in state.space.threads],
            "freqs_khz": list(state.space.freqs_khz),
        },
        "runs": [
            {"seq": r.seq, "role": r.role, **r.configuration.to_dict()}
            for r in state.stages["design"].runs
        ],
        "design": state.settings.design,
        "most_runs": max(state.settings.most_runs, len(state.stages["design"].runs)),
        "confirm": state.settings.confirm,
        "cost": plan.cost.to_dict(),
        "energy": plan.energy,
        "notes": list(plan.notes),
    }


def show_plan(plan: PlannedSweep, out: TextIO, *, listing: bool) -> None:
    """Print the plan: what is run, the cost, and when that can pay back."""
    state = plan.state
    subject, runs = state.subject, state.stages["design"].runs
    confirm = state.settings.confirm
    print(f"{title(state)}: {subject.how}", file=out)
    print(f"the job as written: {describe(subject.baseline)}", file=out)
    more = f" and {confirm} to confirm the best" if confirm else ""
    grid = f"of {len(state.space)} configurations"
    most = state.settings.most_runs
    count = f"{len(runs)} to {most} runs" if most > len(runs) else f"{len(runs)} runs"
    print(f"{count} {grid}{more}: {format_cost(plan.cost)}", file=out)
    equal = plan.cost.equal_runs
    print(
        f"at most the cost of {equal:.0f} runs of the job: pays back after "
        f"{math.ceil(equal / 0.1)} runs if it saves 10 %, {math.ceil(equal / 0.05)} if 5 %",
        file=out,
    )
    print(plan.energy, file=out)
    for note in plan.notes:
        print(f"note: {note}", file=out)
    if listing:
        for run in runs:
            print(f"  {run.seq:3d}  {run.role:8s}  {describe(run.configuration)}", file=out)


class ProgressLines:
    """Shows events: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bar: Any = None
        self._task: Any = None
        if out.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[spent]}"),
                console=Console(file=out, highlight=False),
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, soft_wrap=True)
        else:
            print(text, file=self._out, flush=True)

    def show(self, event: Event) -> None:
        """Show one event."""
        if event.kind == "stage" and self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(
                "confirming" if event.stage.startswith("confirm") else "measuring",
                total=event.total,
                spent=event.spent.words,
            )
        elif event.kind == "run":
            self.say(run_line(event))
            if self._task is not None:
                self._bar.update(self._task, completed=event.index, spent=event.spent.words)
        elif event.text:
            self.say(event.text)


def run_line(event: Event) -> str:
    """Return one finished run as a line."""
    run, result = event.run, event.result
    if run is None or result is None:
        return event.text
    where = describe(run.configuration)
    if not result.ok:
        again = f"; {event.text}" if event.text else "; left out"
        return f"run {event.index}/{event.total}  {where}  failed: {result.detail}{again}"
    time = format_duration(result.time_s or 0.0)
    if result.energy_j is None:
        energy = "energy missing"
    else:
        sign = "~" if result.energy_quality == "estimated" else ""
        energy = f"{sign}{format_energy(result.energy_j)}"
    role = "confirms " if run.role == "confirm" else ""
    return (
        f"run {event.index}/{event.total}  {role}{where}  {time}  {energy}  "
        f"({event.spent.words} so far)"
    )


def outcome_json(state: SweepState, outcome: SweepOutcome) -> dict[str, object]:
    """Return the outcome as ``--json`` prints it."""
    subject = state.subject
    roles = {r.seq: r for stage in state.stages.values() for r in stage.runs}
    return {
        "id": state.id,
        "state": state.state,
        "application": subject.application,
        "workload": subject.workload,
        "node_type": subject.node_type.name,
        "scheduler": state.settings.scheduler,
        "model": outcome.fit.model,
        "model_id": outcome.model_id,
        "energy_quality": outcome.fit.energy_quality,
        "n_train": outcome.fit.n_train,
        "stats": outcome.fit.stats,
        "baseline": _option_json(outcome.baseline),
        "recommended": _option_json(outcome.recommended) if outcome.recommended else None,
        "confirmed": None if outcome.confirmation is None else outcome.confirmation.chosen,
        "confirmation": outcome.confirmation.to_dict() if outcome.confirmation else None,
        "attempts": [a.to_dict() for a in outcome.attempts],
        "spent": {
            "runs": outcome.spent.runs,
            "node_hours": outcome.spent.node_hours,
            "energy_j": outcome.spent.energy_j if outcome.spent.energy_known else None,
        },
        "saved_per_run": outcome.saved_per_run,
        "payback_runs": outcome.payback,
        "runs": [
            {
                "seq": seq,
                "role": roles[seq].role,
                **roles[seq].configuration.to_dict(),
                **{name: getattr(result, name) for name in _OF_RUN},
            }
            for seq, result in sorted(outcome.results.items())
        ],
        "failed": list(outcome.failed),
        "notes": list(outcome.notes),
    }


def _option_json(option: Option) -> dict[str, object]:
    return {
        **option.configuration.to_dict(),
        "time_s": option.time_s,
        "energy_j": option.energy_j,
        "confirmed": option.confirmed,
    }


def show_outcome(state: SweepState, outcome: SweepOutcome, policy: Policy, out: TextIO) -> None:
    """Print what the sweep came to: baseline, recommendation, confirmation, payback."""
    base, best = outcome.baseline, outcome.recommended
    rows = [["the job as written", *_cells(base, None)]]
    if best is not None:
        rows.append(["recommended", *_cells(best, base)])
    print(file=out)
    with redirect_stdout(out):
        print_table(["", "configuration", "time", "energy", "change"], rows)
    if outcome.fit.energy_quality == "estimated":
        print("energy is estimated, not measured", file=out)
    for failed in outcome.failed:
        print(f"left out: {failed}", file=out)
    for attempt in outcome.attempts:
        print(_attempt(attempt), file=out)
    if best is None:
        print(_why_none(outcome, policy), file=out)
    elif outcome.confirmation is None:
        print("No confirmation run was needed: the runs agree on this configuration.", file=out)
    elif not outcome.confirmation.chosen:
        print("The recommended configuration is confirmed by an earlier run.", file=out)
    spent = outcome.spent.words
    if outcome.payback is not None and outcome.saved_per_run is not None:
        saved = (
            format_energy(outcome.saved_per_run)
            if math.isfinite(base.energy_j)
            else format_node_hours(outcome.saved_per_run)
        )
        over = (
            f" (more than the policy's {policy.training.payback_runs})"
            if outcome.payback > policy.training.payback_runs
            else ""
        )
        print(
            f"the sweep cost {spent}; it saves {saved} a run, so it pays back after "
            f"{outcome.payback} runs{over}",
            file=out,
        )
    else:
        print(f"the sweep cost {spent}", file=out)
    print(f"all options: advisor options {state.subject.application}", file=out)


def _attempt(attempt: Confirmation) -> str:
    """Say how a confirming run came out."""
    energy = f", {format_energy(attempt.energy_j)}" if attempt.energy_j is not None else ""
    took = f"a run there took {format_duration(attempt.time_s)}{energy}, {attempt.reason}"
    if attempt.chosen:
        return f"confirmed: {took}"
    return f"{describe(attempt.configuration)} {attempt.verdict}: {took}"


def _cells(option: Option, base: Option | None) -> list[str]:
    known = math.isfinite(option.energy_j)
    change = ""
    if base is not None:
        change = f"time {format_change(option.time_s / base.time_s - 1)}"
        if known and math.isfinite(base.energy_j):
            change += f", energy {format_change(option.energy_j / base.energy_j - 1)}"
    energy = format_energy(option.energy_j) if known else "not known"
    return [describe(option.configuration), format_duration(option.time_s), energy, change]


def _why_none(outcome: SweepOutcome, policy: Policy) -> str:
    if not math.isfinite(outcome.baseline.energy_j):
        return "No change recommended: without energy no saving can be predicted."
    tries = len(outcome.attempts)
    if tries:
        runs = "The confirmation run" if tries == 1 else f"None of the {tries} confirmation runs"
        verb = "did not match" if tries == 1 else "matched"
        return f"{runs} {verb} its prediction; no change recommended."
    return (
        f"No configuration saves {format_percent(policy.min_saving)} within a slowdown of "
        f"{format_percent(policy.max_slowdown)}; no change recommended."
    )
