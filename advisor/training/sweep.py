"""Run a sweep to its end: measure the design, fit, confirm the best point, fit again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from advisor.core.feasible import Constraints, feasible
from advisor.core.inventory import Inventory
from advisor.core.observation import Observation
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.select import recommend
from advisor.errors import AdvisorError, RefusedError, SchedulerError, StoreError
from advisor.models.fit import FitResult, fit_options
from advisor.schedulers.base import PlannedRun, RunResult, Scheduler, SweepStatus
from advisor.schedulers.results import read_results
from advisor.store.records import TrainingRun, TrainingState
from advisor.training.outcome import (
    Confirmation,
    Event,
    Outcome,
    Spent,
    compare,
    describe,
    option_at,
)
from advisor.training.plan import MIN_RUNS, cost, payback_runs
from advisor.training.sink import Sink, scope_of
from advisor.training.state import Stage, SweepState
from advisor.training.subject import Site
from advisor.training.table import tabulate, too_few_for_a_model


@dataclass(slots=True)
class Sweep:
    """One sweep in this process. ``show`` is called with every event."""

    state: SweepState
    scheduler: Scheduler
    sink: Sink
    policy: Policy
    site: Site
    show: Callable[[Event], None]
    results: dict[str, tuple[RunResult, ...]] = field(default_factory=dict)

    def run(self) -> Outcome:
        """Run what is not done yet, and return the outcome.

        Raises SchedulerError when the scheduler fails, RefusedError over budget, and AdvisorError
        when too few runs are good. KeyboardInterrupt stops the scheduler's work first.
        """
        self._note_state("running")
        try:
            return self._run()
        except KeyboardInterrupt:
            self._stop()
            self._note_state("stopped", "interrupted")
            raise
        except RefusedError as error:
            self._note_state("stopped", str(error))
            raise
        except (SchedulerError, StoreError) as error:
            self._note_state("stopped", str(error))
            error.hint = error.hint or f"go on with: advisor train --resume {self.state.id}"
            raise
        except AdvisorError as error:
            self._note_state("failed", str(error))
            raise

    def _run(self) -> Outcome:
        state = self.state
        design = self._stage("design")
        good = {r.seq: r for r in design if r.ok}
        failed = self._failures("design", good)
        self._check_enough(good)
        observations = self._observe(design, "design")
        fit = self._fit(observations)
        baseline = option_at(fit.options, state.subject.baseline)
        promised = self._recommended(fit, baseline)
        model_id = None
        confirmation = None
        if promised is not None and state.settings.confirm > 0:
            if "confirm" not in state.stages:
                first = len(state.stages["design"].runs)
                state.stages["confirm"] = Stage(
                    tuple(
                        PlannedRun(first + i, "confirm", promised.configuration)
                        for i in range(state.settings.confirm)
                    )
                )
                state.recommended = promised.configuration
                state.save()
            model_id = self._save(fit)
            self._check_budget_of_confirm()
            confirms = self._stage("confirm")
            confirmed = {r.seq: r for r in confirms if r.ok}
            failed += self._failures("confirm", confirmed)
            if confirmed:
                alone = option_at(fit.predicted or fit.options, promised.configuration)
                observations += self._observe(confirms, "confirm")
                fit = self._fit(observations)
                now = option_at(fit.options, promised.configuration)
                confirmation = compare(alone, list(confirmed.values()), holds=now.confirmed)
                baseline = option_at(fit.options, state.subject.baseline)
                good |= confirmed
        model_id = self._save(fit) or model_id
        recommended = None if promised is None else option_at(fit.options, promised.configuration)
        holds = confirmation is not None and confirmation.holds
        self._note_state(
            "confirmed" if holds else "fitted", confirmation.reason if confirmation else ""
        )
        return self._outcome(fit, baseline, recommended, confirmation, model_id, good, failed)

    # -- stages --------------------------------------------------------------------------------

    def _stage(self, name: str) -> list[RunResult]:
        """Bring a stage to its end and return every result of it."""
        state, scheduler = self.state, self.scheduler
        stage = state.stages[name]
        job = state.job(name)
        job.folder.mkdir(parents=True, exist_ok=True)
        before = read_results(job.folder / "results.jsonl")
        seen = len(before)
        if before:
            self.results[name] = tuple(before)
            made = sum(r.ok for r in before)
            self.show(Event("note", name, f"{made} of {len(job.runs)} runs were made before"))
        self.show(Event("stage", name, total=len(stage.runs), spent=self.spent()))
        if not stage.handles:
            stage.handles.append(scheduler.submit_sweep(job))
            state.save()
        elif not stage.ended:
            status = scheduler.poll(job, stage.handles[-1])
            seen = self._show_new(name, status, seen)
            if status.state == "ended" and job.open_runs(status.results):
                stage.handles.append(scheduler.submit_sweep(job))
                state.save()
        checked = False
        said = ""
        while True:
            status = scheduler.poll(job, stage.handles[-1])
            seen = self._show_new(name, status, seen)
            if name == "design" and not checked and stage.runs[0].seq in status.done():
                self._check_budget(status.done()[stage.runs[0].seq])
                checked = True
            if status.state == "ended":
                break
            if status.detail and status.detail != said:
                said = status.detail
                self.show(Event("waiting", name, text=said, spent=self.spent()))
            if name == "design" and self._baseline_failed(status):
                scheduler.cancel(job, stage.handles[-1])
                break
            if scheduler.POLL_S:
                time.sleep(scheduler.POLL_S)
        missing = len(job.open_runs(status.results))
        if missing and not (name == "design" and self._baseline_failed(status)):
            raise SchedulerError(
                f"the sweep ended with {missing} of {len(stage.runs)} runs not made"
                + (f": {status.detail}" if status.detail else "")
            )
        stage.ended = True
        state.save()
        return list(status.results)

    def _show_new(self, name: str, status: SweepStatus, seen: int) -> int:
        """Report results nobody has seen yet and note them in the store."""
        self.results[name] = status.results
        job = self.state.job(name)
        runs = {r.seq: r for r in job.runs}
        done = 0
        for number, result in enumerate(status.results):
            if result.seq not in runs:
                continue
            so_far = status.results[: number + 1]
            tries = sum(r.seq == result.seq for r in so_far)
            final = result.ok or job.given_up(runs[result.seq], so_far)
            done += final
            if number < seen:
                continue
            run = runs[result.seq]
            self.show(
                Event(
                    "run", name, run=run, result=result, index=done, total=len(runs),
                    text="" if result.ok or final else "will be tried again",
                    spent=self.spent(),
                )
            )  # fmt: skip
            if final:
                self._note_state("running")  # shows others that it lives
                self.sink.run(
                    TrainingRun(
                        self.state.id,
                        run.seq,
                        run.role,
                        run.configuration,
                        "done" if result.ok else "failed",
                        tries,
                        self.state.stored.get(run.seq) or None,
                        result.detail,
                    )
                )
        return len(status.results)

    def _baseline_failed(self, status: SweepStatus) -> bool:
        job = self.state.job("design")
        return job.given_up(job.runs[0], status.results)

    def _failures(self, name: str, good: dict[int, RunResult]) -> tuple[str, ...]:
        failed = []
        for run in self.state.stages[name].runs:
            if run.seq in good:
                continue
            last = [r for r in self.results[name] if r.seq == run.seq]
            why = last[-1].detail if last else "not run"
            failed.append(f"{describe(run.configuration)}: {why}")
        return tuple(failed)

    def _check_enough(self, good: dict[int, RunResult]) -> None:
        runs = self.state.stages["design"].runs
        first = runs[0]
        if first.seq not in good:
            tried = [r.detail for r in self.results["design"] if r.seq == first.seq]
            raise AdvisorError(
                f"the job as you wrote it does not run: {tried[-1] if tried else 'never started'}",
                hint="mend the script, then train again",
            )
        if len(good) < min(MIN_RUNS, len(runs)):
            raise AdvisorError(
                f"only {len(good)} of {len(runs)} runs were good, too few for a model",
                hint=f"see the outputs under {self.state.folder}",
            )

    # -- budget --------------------------------------------------------------------------------

    def _check_budget(self, baseline: RunResult) -> None:
        """Stop when the baseline's own time shows that the rest costs more than allowed."""
        state = self.state
        runs = state.stages["design"].runs
        planned = cost(
            [*runs, *(runs[:1] * state.settings.confirm)],
            state.subject.baseline,
            baseline_s=baseline.time_s,
            limit_s=state.settings.run_limit_s,
            basis="",
        )
        budget = self.policy.training.budget_node_hours
        if planned.node_hours is not None and planned.node_hours > budget:
            self._stop()
            raise RefusedError(
                f"the sweep would cost up to {planned.node_hours:.3g} node-hours, "
                f"the policy allows {budget:g}",
                hint="set training: {budget_node_hours: ...} in the policy, or use fewer --samples "
                "or higher --threads",
            )

    def _check_budget_of_confirm(self) -> None:
        spent, budget = self.spent().node_hours, self.policy.training.budget_node_hours
        if spent > budget:
            raise RefusedError(
                f"the sweep has cost {spent:.3g} node-hours, the policy allows {budget:g}: "
                "its recommendation is not confirmed",
                hint="set training: {budget_node_hours: ...} in the policy, then advisor train "
                f"--resume {self.state.id}",
            )

    def spent(self) -> Spent:
        """Return what all results seen so far have used."""
        runs = 0
        node_s = energy_j = 0.0
        known = False
        for name, results in self.results.items():
            nodes = {r.seq: r.configuration.nodes for r in self.state.stages[name].runs}
            for result in results:
                runs += 1
                node_s += (result.time_s or 0.0) * nodes.get(result.seq, 1)
                if result.energy_j is not None:
                    energy_j += result.energy_j
                    known = True
        return Spent(runs, node_s / 3600, energy_j, known)

    # -- model ---------------------------------------------------------------------------------

    def _observe(self, results: list[RunResult], stage: str) -> list[Observation]:
        """Store the good runs that are not stored yet, and return all of them."""
        state, subject = self.state, self.state.subject
        account = self._account(results)
        runs = {r.seq: r for r in state.stages[stage].runs}
        observations = {}
        for result in results:
            if not result.ok or result.time_s is None or result.seq not in runs:
                continue
            run = runs[result.seq]
            observations[result.seq] = Observation(
                run.configuration,
                result.time_s,
                result.energy_j,
                energy_quality=result.energy_quality,
                meter=result.meter,
                source="confirm" if run.role == "confirm" else "sweep",
                contributor=state.settings.user,
                account=result.account or account,
                scope=scope_of(self.policy.training.trust, result.account or account),
                job_id=result.job_id,
                extra={"sweep": state.id, "seq": result.seq},
            )
        new = [seq for seq in observations if seq not in state.stored]
        if new:
            ids = self.sink.observe(
                subject.application, subject.workload, [observations[s] for s in new]
            )
            state.stored.update(zip(new, ids, strict=True))
            state.save()
            for seq, number in zip(new, ids, strict=True):
                if number:
                    run = runs[seq]
                    tries = sum(r.seq == seq for r in results)
                    self.sink.run(
                        TrainingRun(
                            state.id, seq, run.role, run.configuration, "done", tries, number
                        )
                    )
        return list(observations.values())

    def _account(self, results: list[RunResult]) -> str:
        return next((r.account for r in results if r.account), self.state.settings.account)

    def _fit(self, observations: list[Observation]) -> FitResult:
        if too_few_for_a_model(o.configuration for o in observations):
            result = tabulate(observations)
        else:
            result = fit_options(
                observations, model=self.state.settings.model, space=self.state.space
            )
        return result

    def _save(self, fit: FitResult) -> int | None:
        subject = self.state.subject
        account = self._account([r for rs in self.results.values() for r in rs])
        return self.sink.model(
            subject.application, subject.workload, subject.node_type.name, fit, account
        )

    def _recommended(self, fit: FitResult, baseline: Option) -> Option | None:
        """Return the option to confirm: the one chosen before a kill, else the best this job may
        take."""
        state, subject = self.state, self.state.subject
        if state.recommended is not None:
            return option_at(fit.options, state.recommended)
        known = {subject.node_type.name: subject.node_type, **self.site.inventory.node_types}
        kept, reasons = feasible(
            fit.options,
            Constraints(
                request=subject.request,
                baseline=subject.baseline,
                policy=self.policy,
                inventory=Inventory(known),
                partition=subject.partition,
                ranks_free=subject.ranks_free,
                threads_kept=subject.threads_kept,
                freq_cap_khz=subject.request.freq_khz or 0,
            ),
        )
        best = recommend(kept, baseline, self.policy)
        if best is None:
            for why in reasons:
                self.show(Event("note", text=f"note: {why.text}"))
        return best

    # -- end -----------------------------------------------------------------------------------

    def _outcome(
        self,
        fit: FitResult,
        baseline: Option,
        recommended: Option | None,
        confirmation: Confirmation | None,
        model_id: int | None,
        good: dict[int, RunResult],
        failed: tuple[str, ...],
    ) -> Outcome:
        spent = self.spent()
        payback = saved = None
        if recommended is not None:
            if math.isfinite(baseline.energy_j) and spent.energy_known:
                saved = baseline.energy_j - recommended.energy_j
                payback = payback_runs(spent.energy_j, saved)
            else:
                saved = (
                    baseline.time_s * baseline.configuration.nodes
                    - recommended.time_s * recommended.configuration.nodes
                ) / 3600
                payback = payback_runs(spent.node_hours, saved)
        return Outcome(
            fit, baseline, recommended, confirmation, spent, payback, saved, model_id, good,
            failed, tuple(fit.notes),
        )  # fmt: skip

    def _stop(self) -> None:
        for name, stage in self.state.stages.items():
            if stage.handles and not stage.ended:
                self.scheduler.cancel(self.state.job(name), stage.handles[-1])

    def _note_state(self, state: TrainingState, detail: str = "") -> None:
        self.state.state, self.state.detail = state, detail
        self.state.save()
        try:
            self.sink.request(self.state.request())
        except StoreError:
            if state in ("running", "fitted", "confirmed"):
                raise  # else the error that stopped the sweep is the one to show
