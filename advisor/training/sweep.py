"""Run a sweep to its end: measure the design, fit, confirm the best point, fit again."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.configuration import Configuration
from advisor.core.feasible import Constraints, feasible
from advisor.core.inventory import Inventory
from advisor.core.option import Option
from advisor.core.rate import Work
from advisor.core.recommend import confirmed_choice, to_confirm
from advisor.core.requested_configuration import unset_kept
from advisor.core.units import format_change, format_count
from advisor.core.words import describe
from advisor.errors import AdvisorError, RefusedError, SchedulerError, StoreError
from advisor.models.adaptive import ADAPTIVE, FIRST_RUNS, NextRuns, next_runs, telling_run
from advisor.models.ended_runs import ended_early, launch_spread, refuted, without_refuted
from advisor.models.fit import MOST_CONFIRMATIONS, FitResult, borne_out, fit_options, run_sigma
from advisor.models.physical import Physical
from advisor.models.runs import MIN_CONFIGURATIONS
from advisor.models.sequential import SEQUENTIAL, next_run
from advisor.schedulers.base import PlannedRun, RunResult
from advisor.schedulers.translators import translator
from advisor.training.measuring import Measuring
from advisor.training.outcome import Confirmation, Event, SweepOutcome, compare, option_at
from advisor.training.plan import first_runs_of, payback_runs
from advisor.training.state import (
    CHECK,
    CURVE,
    FIRST,
    again_stage,
    confirm_stage,
    further_stage,
)
from advisor.training.table import tabulate, too_few_for_a_model

MOST_AGAIN = 2
"""Further runs of the job as written at most, where the others do not bear it out."""


def _distance(first: Configuration, second: Configuration) -> float:
    """Return how far two configurations are from each other, in logarithms."""
    further_axes = zip(first.extra, second.extra, strict=True)
    pairs = [
        (first.threads_per_node, second.threads_per_node),
        (first.freq_khz, second.freq_khz),
        *((value, other_value) for (_, value), (_, other_value) in further_axes),
    ]
    # 0 is no cap, which is nowhere on the axis
    return sum(abs(math.log(a / b)) for a, b in pairs if a and b)


@dataclass(slots=True)
class Sweep(Measuring):
    """One sweep: its runs, the model, the choice and its confirmation."""

    def run(self) -> SweepOutcome:
        """Run what is not done yet, and return the outcome.

        Raises SchedulerError when the scheduler fails, RefusedError over budget, and AdvisorError
        when too few runs are good. KeyboardInterrupt stops the scheduler's work first.
        """
        self.note_state("running")
        try:
            return self._run()
        except KeyboardInterrupt:
            self.stop()
            self.note_state("stopped", "interrupted")
            raise
        except RefusedError as error:
            self.note_state("stopped", str(error))
            raise
        except (SchedulerError, StoreError) as error:
            self.note_state("stopped", str(error))
            error.hint = error.hint or f"resume it with: advisor train --resume {self.state.id}"
            raise
        except AdvisorError as error:
            self.note_state("failed", str(error))
            raise
        except OSError as error:  # a full disk, most often: what is kept there says where it was
            raise SchedulerError(
                f"{error.filename or self.state.folder}: {error.strerror}",
                hint=f"make room there, then: advisor train --resume {self.state.id}",
            ) from error

    def _run(self) -> SweepOutcome:
        if not self.state.settings.fits:
            return self._runs_only()
        if self.state.settings.design == ADAPTIVE:
            fit, attempts = self._run_adaptive()
        else:
            fit, attempts = self._confirm_best(self._run_design())
        model_id = self._save_model(fit)
        baseline = option_at(fit.options, self.state.subject.baseline)
        choice = confirmed_choice(self._allowed_options(fit), baseline, self.policy)
        recommended = None if choice is None else option_at(fit.options, choice)
        last = next((a for a in reversed(attempts) if a.configuration == choice), None)
        if last is None and attempts:
            last = attempts[-1]
        self.note_state(
            "confirmed" if recommended is not None else "fitted", last.reason if last else ""
        )
        return self._outcome(fit, baseline, recommended, last, tuple(attempts), model_id)

    def _runs_only(self) -> SweepOutcome:
        """Make the runs of a smaller size; the model over sizes learns from them."""
        self.make("design")
        self.check_enough()
        fit = tabulate(self.observations)
        self.note_state("fitted", "its runs serve the model over sizes")
        return self._outcome(
            fit, option_at(fit.options, self.state.subject.baseline), None, None, (), None
        )

    def _run_design(self) -> FitResult:
        """Make the runs of the design and return the fit to them."""
        self.make("design")
        self.check_enough()
        fit = self._fit()
        state = self.state
        if state.settings.design != SEQUENTIAL:
            return fit
        former = None
        for number in itertools.count():
            name = further_stage(number)
            if name not in state.stages:
                chosen = self._next_sequential(fit, former)
                if chosen is None:
                    break
                self.plan(name, "design", (chosen,))
            if self.make(name):
                former, fit = fit, self._fit()
        return fit

    def _run_adaptive(self) -> tuple[FitResult, list[Confirmation]]:
        """Make the adaptive design's runs, those that confirm among them."""
        state = self.state
        apart = ("design", CHECK, CURVE, FIRST)
        waiting = [name for name in state.stages if name not in apart]  # of a resume
        self.make("design")
        self.check_enough()
        if state.settings.curve:
            self._make_curve()
        fit, attempts = self._fit(), list[Confirmation]()
        while True:
            if waiting:
                name = waiting.pop(0)
            else:
                fit = self._comparable(fit)
                step = self._next_runs(fit)
                if step is None:
                    return fit, attempts
                name = self._plan_next(step)
            first = state.stages[name].runs[0]
            promised = option_at(fit.predicted or fit.options, first.configuration)
            if first.role == "confirm":
                self._save_model(fit)
            good = self.make(name)
            if not good:
                continue
            fit = self._fit()
            confirm_runs = [r for r in good if r.seq == first.seq]
            if first.role != "confirm" or not confirm_runs:
                continue
            self._base_again()
            fit = self._fit()
            attempt = self._attempt(fit, promised, confirm_runs)
            attempts.append(attempt)
            if not attempt.holds and self._check_ended(first.configuration):
                fit = self._fit()
            self._show_attempt(name, attempt)

    def _make_curve(self) -> None:
        """Have one run go through the values; where nothing comes of it, each gets a run."""
        state = self.state
        if CURVE not in state.stages:
            self.plan(CURVE, "design", state.settings.curve)
        good = self.make_in_one(CURVE)
        missing = FIRST_RUNS - 1 - len(good)
        if missing <= 0:
            return
        if FIRST not in state.stages:
            samples, base = state.settings.most_runs, state.subject.baseline
            first, _ = first_runs_of(ADAPTIVE, state.space, samples, base)
            measured = {o.configuration for o in self.observations}
            self.plan(FIRST, "design", [c for c in first if c not in measured])
        self.make(FIRST)

    def _in_curve(self) -> set[Configuration]:
        """Return what one run went through, and told of."""
        stage = self.state.stages.get(CURVE)
        return {r.configuration for r in stage.runs if r.seq in self.good} if stage else set()

    def _runs(self) -> list[PlannedRun]:
        """Return the runs that are planned so far; those that were made in one are none of them."""
        stages = self.state.stages.items()
        return [run for name, stage in stages if name != CURVE for run in stage.runs]

    def _next_runs(self, fit: FitResult) -> NextRuns | None:
        """Return what the adaptive design runs next, None when it has ended."""
        state = self.state
        planned = self._runs()
        base = state.subject.baseline
        pairs = Counter(r.configuration for r in planned if r.role == "confirm")
        # The first of its runs is no repetition.
        pairs[base] = sum(r.configuration == base for r in planned) - 1
        failed = {r.configuration for r in planned} - {o.configuration for o in self.observations}
        options = [o for o in self._allowed_options(fit) if o.configuration not in failed]
        made = len(planned) + (CURVE in state.stages)
        runs_left = state.settings.most_runs - made
        step = next_runs(
            options,
            option_at(fit.options, base),
            self.policy,
            runs_left=runs_left,
            pairs=pairs,
            run_sigma=run_sigma(fit),
            confirm=self.policy.training.confirm,
            as_predicted=fit.as_predicted,
            known=self._in_curve(),
        )
        measured = {o.configuration for o in without_refuted(self.observations, [])}
        if step is None and runs_left and too_few_for_a_model(measured):
            # what no job may take, since nobody knows yet how long it runs, tells something, too
            runnable = [o for o in fit.options if o.configuration not in failed]
            step = telling_run(options, measured) or telling_run(runnable, measured)
        if step is None:
            text = f"settled after {made} of at most {state.settings.most_runs} runs"
            self.show(Event("note", "design", text))
        elif any(map(self.too_dear, step.configurations)):
            self.show(Event("note", "design", "no further run: it might exceed the budget"))
            return None
        return step

    def _plan_next(self, step: NextRuns) -> str:
        """Plan the design's next runs as a stage, and return its name."""
        stages = self.state.stages
        confirming = sum(stage.runs[0].role == "confirm" for stage in stages.values())
        name = further_stage(sum(n.startswith("next-") for n in stages))
        name = confirm_stage(confirming) if step.confirms else name
        self.plan(name, "confirm" if step.confirms else "design", step.configurations)
        return name

    def _attempt(self, fit: FitResult, promised: Option, good: list[RunResult]) -> Confirmation:
        """Compare confirming runs with what was promised, by the fit made with them."""
        c, work = promised.configuration, Work.of_stats(fit.stats)
        baseline = option_at(fit.options, self.state.subject.baseline)
        choice = confirmed_choice(self._allowed_options(fit), baseline, self.policy)
        holds = option_at(fit.options, c).confirmed
        return compare(promised, good, holds=holds, chosen=choice == c, work=work)

    def _show_attempt(self, name: str, attempt: Confirmation) -> None:
        why = "" if attempt.holds else f": {attempt.reason}"
        where = describe(attempt.configuration)
        self.show(Event("note", name, f"{where} {attempt.verdict}{why}"))

    def _next_sequential(self, fit: FitResult, former: FitResult | None) -> Configuration | None:
        """Return where the sequential design runs next, None when it has ended."""
        state = self.state
        planned = [r for stage in state.stages.values() for r in stage.runs]
        if len(planned) >= state.settings.most_runs or any(r.role == "confirm" for r in planned):
            return None
        tried = {r.configuration for r in planned}
        allowed = {o.configuration for o in self._allowed_options(fit)} - tried
        chosen = next_run(fit, former, state.subject.baseline, self.policy, allowed)
        if chosen is None:
            text = f"settled after {len(planned)} of at most {state.settings.most_runs} runs"
            self.show(Event("note", "design", text))
        elif self.too_dear(chosen):
            self.show(Event("note", "design", "no further run: it might exceed the budget"))
            return None
        return chosen

    def _confirm_best(self, fit: FitResult) -> tuple[FitResult, list[Confirmation]]:
        """Confirm the best option by a run; while that bears nothing out, learn and try again."""
        state = self.state
        attempts: list[Confirmation] = []
        tried: list[Configuration] = []
        while len(tried) < MOST_CONFIRMATIONS and state.settings.confirm > 0:
            name = confirm_stage(len(tried))
            fit = self._comparable(fit)
            if name not in state.stages:
                c = self._proposed_option(fit, tried)
                if c is None:
                    break
                self.plan(name, "confirm", (c,) * state.settings.confirm)
            c = state.stages[name].runs[0].configuration
            tried.append(c)
            self._save_model(fit)
            # After the model is stored: what was learnt serves also where the confirmation is too
            # dear.
            self.check_budget_of_confirm()
            promised = option_at(fit.predicted or fit.options, c)
            good = self.make(name)
            if not good:
                continue
            self._base_again()
            fit = self._fit()
            options = self._allowed_options(fit)
            baseline = option_at(fit.options, state.subject.baseline)
            option = option_at(fit.options, c)
            choice = confirmed_choice(options, baseline, self.policy)
            work = Work.of_stats(fit.stats)
            attempt = compare(promised, good, holds=option.confirmed, chosen=choice == c, work=work)
            attempts.append(attempt)
            if choice == c:
                break
            if not attempt.holds and self._check_ended(c):
                fit = self._fit()
            why = "" if attempt.holds else f": {attempt.reason}"
            self.show(Event("note", name, f"{describe(c)} {attempt.verdict}{why}"))
        return fit, attempts

    def _check_ended(self, near: Configuration) -> bool:
        """Make the run nearest to one that came out otherwise again, if it was ended early.

        So is the job as written, if it was. Where one takes something else than was expected, no
        fit takes those that were ended from then on. Tells whether so.
        """
        ended_runs = [o for o in self.observations if ended_early(o)]
        if not ended_runs or len(without_refuted(self.observations, [])) < len(self.observations):
            return False
        nearest = min(ended_runs, key=lambda o: _distance(o.configuration, near))
        base = self.state.subject.baseline
        runs = [o for o in ended_runs if o is nearest or o.configuration == base]
        if CHECK not in self.state.stages:
            self.plan(CHECK, "design", [o.configuration for o in runs])
        self.make(CHECK)
        complete_runs = [o for o in self.observations if not ended_early(o)]
        spread = launch_spread(complete_runs)
        off = [
            (refuted(run, o, spread), run)
            for run in runs
            for o in complete_runs
            if o.configuration == run.configuration
        ]
        most, run = max(off, key=lambda e: abs(e[0]), default=(0.0, nearest))
        where = describe(run.configuration)
        if not most:
            self.show(Event("note", CHECK, f"{where}: the run ended early is confirmed"))
            return False
        text = f"{where}: a complete run is {format_change(most)} off the one ended early"
        self.show(
            Event(
                "note",
                CHECK,
                f"{text}; left out: {format_count(len(ended_runs), 'run')} ended early",
            )
        )
        return True

    def _base_again(self) -> None:
        """Make the job as written again, complete, where what is left has no run of it.

        It was ended early, beside an earlier sweep's run, and the confirming one refutes that.
        """
        base = self.state.subject.baseline
        if any(o.configuration == base for o in without_refuted(self.observations, [])):
            return
        if CHECK not in self.state.stages:
            text = "the confirming run refutes the run ended early: the job as written runs again"
            self.show(Event("note", CHECK, text))
            self.plan(CHECK, "design", (base,))
        self.make(CHECK)

    def _comparable(self, fit: FitResult) -> FitResult:
        """Return a fit in which the job as written can be compared with, after more runs of it.

        All advice is against it: a run of it that the others do not bear out is neither believed
        nor left out but made again.
        """
        state, base = self.state, self.state.subject.baseline
        for number in range(MOST_AGAIN):
            name = again_stage(number)
            if name not in state.stages:
                planned = len(self._runs()) + (CURVE in state.stages)
                over = state.settings.design == ADAPTIVE and planned >= state.settings.most_runs
                if over or borne_out(fit, base) or self.too_dear(base):
                    break
                text = "the other runs do not bear out the job as written: it runs again"
                self.show(Event("note", name, text))
                self.plan(name, "design", (base,))
            elif name in self.results:
                continue
            if self.make(name):
                fit = self._fit()
        return fit

    def _proposed_option(
        self, fit: FitResult, tried: Sequence[Configuration]
    ) -> Configuration | None:
        """Return what to confirm next, None for nothing."""
        baseline = option_at(fit.options, self.state.subject.baseline)
        options = self._allowed_options(fit, say=not tried)
        return to_confirm(options, baseline, self.policy, tried, most=MOST_CONFIRMATIONS)

    def _fit(self) -> FitResult:
        trusted = {o.configuration for o in without_refuted(self.observations, [])}
        settings = self.state.settings
        first = settings.design == ADAPTIVE  # whose first runs only say where to go on
        least = FIRST_RUNS if first else MIN_CONFIGURATIONS
        if too_few_for_a_model(trusted, least):
            return tabulate(self.observations)
        return fit_options(
            self.observations,
            # laws alone say something of three runs
            model=settings.model if len(trusted) >= MIN_CONFIGURATIONS else Physical.NAME,
            node_type=self.state.subject.node_type,
            least=least,
            elsewhere=settings.elsewhere,
        )

    def _save_model(self, fit: FitResult) -> int | None:
        subject = self.state.subject
        account = self.account([r for rs in self.results.values() for r in rs])
        return self.sink.model(
            subject.application, subject.workload, subject.node_type.name, fit, account
        )

    def _allowed_options(self, fit: FitResult, *, say: bool = False) -> tuple[Option, ...]:
        """Return the options this job may take; ``say`` why not more."""
        subject = self.state.subject
        node_types = {subject.node_type.name: subject.node_type, **self.site.inventory.node_types}
        by_scheduler = translator(self.state.settings.scheduler).SETS_THREADS
        unset = [name for name in subject.threads_from if name not in by_scheduler]
        unset = [] if subject.fills_cores else unset
        filled = fit.stats.get("threads_unset")
        allowed, reasons = feasible(
            fit.options,
            Constraints(
                request=subject.request,
                baseline=subject.baseline,
                policy=self.policy,
                inventory=Inventory(node_types),
                partition=subject.partition,
                axes=tuple(self.state.settings.axes),
                whole=subject.method == "variables",
                threads_kept=subject.threads_kept,
                threads_unset=unset_kept(unset, subject.baseline, filled),
                freq_kept=subject.freq_kept,
                cores_kept=subject.threads_kept
                or ("policy says allocation: keep" if self.policy.allocation == "keep" else ""),
                freq_cap_khz=subject.request.freq_khz or 0,
            ),
        )
        if say:
            for why in reasons:
                self.show(Event("note", text=f"note: {why.text}"))
        return tuple(allowed)

    # -- end -----------------------------------------------------------------------------------

    def _outcome(
        self,
        fit: FitResult,
        baseline: Option,
        recommended: Option | None,
        confirmation: Confirmation | None,
        attempts: tuple[Confirmation, ...],
        model_id: int | None,
    ) -> SweepOutcome:
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
        return SweepOutcome(
            fit,
            baseline,
            recommended,
            confirmation,
            spent,
            payback,
            saved,
            model_id,
            self.good,
            tuple(self.failed),
            tuple(fit.notes),
            attempts,
        )
