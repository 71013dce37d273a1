"""What ``advisor train`` shows: plan and cost, progress, outcome."""

from __future__ import annotations

from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any, Self, TextIO

from advisor.cli.output import print_table
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.training.outcome import Event, SweepOutcome
from advisor.training.planning import PlannedSweep
from advisor.training.state import SweepState
from advisor.views.training import outcome_lines, outcome_rows, run_line

_OF_RUN = ("time_s", "energy_j", "energy_quality", "meter", "job_id", "rate", "extrapolated")


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
        "by_class": [c.to_dict() for c in plan.by_class],
        "design": state.settings.design,
        "most_runs": max(state.settings.most_runs, len(state.stages["design"].runs)),
        "confirm": state.settings.confirm,
        "cost": asdict(plan.cost),
        "energy": plan.energy,
        "within": state.settings.within,
        "earlier": state.settings.earlier,
        "notes": list(plan.notes),
    }


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

    def __exit__(self, *_: object) -> None:
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


def show_outcome(
    state: SweepState, outcome: SweepOutcome, policy: Policy, out: TextIO, no_law: str = ""
) -> None:
    """Print what the sweep came to: baseline, recommendation, confirmation, payback.

    ``no_law`` says why no law holds over its sizes.
    """
    print(file=out)
    with redirect_stdout(out):
        print_table(["", "configuration", "time", "energy", "change"], outcome_rows(outcome))
        for line in outcome_lines(state, outcome, policy, no_law):
            print(line)
