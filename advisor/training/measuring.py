"""Make a sweep's runs: bring stages to their end, store what they measured, keep to the budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.core.configuration import Configuration
from advisor.core.observation import GPU_ENERGY, GPUS, Observation
from advisor.core.policy import Policy, scope_of
from advisor.core.thread_use import KEY as THREAD_USE
from advisor.core.units import format_count, format_duration
from advisor.core.words import describe
from advisor.errors import AdvisorError, RefusedError, SchedulerError, StoreError
from advisor.models.adaptive import ADAPTIVE
from advisor.models.failed_fast import failed_fast
from advisor.schedulers.base import (
    PlannedRun,
    Role,
    RunResult,
    Scheduler,
    SweepJob,
    SweepStatus,
)
from advisor.schedulers.early import why_none, why_whole
from advisor.schedulers.results import read_results
from advisor.store.records import TrainingRun, TrainingState
from advisor.training.experiment import AfterRun, after_run
from advisor.training.outcome import Event, Spent
from advisor.training.plan import MIN_RUNS, cost, expected_runs
from advisor.training.result_store import ResultStore
from advisor.training.state import Stage, SweepState
from advisor.training.training_job import TrainingSite


@dataclass(slots=True)
class Measuring:
    """The runs of one sweep in this process. ``show`` is called with every event.

    ``good`` are the good results by number, ``failed`` says of the others why, ``observations``
    are the good runs as the store has them. ``reasons_shown`` say why runs
    were not ended early, and were shown already.
    """

    state: SweepState
    scheduler: Scheduler
    sink: ResultStore
    policy: Policy
    site: TrainingSite
    show: Callable[[Event], None]
    results: dict[str, tuple[RunResult, ...]] = field(default_factory=dict)
    good: dict[int, RunResult] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    processor: AfterRun | None = None
    reasons_shown: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Take up what an experiment does after each run."""
        settings = self.state.settings
        if settings.after:
            place = Path(settings.working_folder)
            self.processor = after_run(settings.after, self.state.folder, place)

    def plan(self, name: str, role: Role, configurations: Sequence[Configuration]) -> None:
        """Add a stage to the sweep, so that it is made, also after a kill.

        The job as written beside what is confirmed has its own role.
        """
        state = self.state
        first, base = sum(len(s.runs) for s in state.stages.values()), state.subject.baseline
        roles: list[Role] = [
            "baseline" if role == "confirm" and c == base else role for c in configurations
        ]
        state.stages[name] = Stage(
            tuple(
                PlannedRun(first + i, own_role, c)
                for i, (own_role, c) in enumerate(zip(roles, configurations, strict=True))
            )
        )
        state.save()

    def make(self, name: str) -> list[RunResult]:
        """Bring a stage to its end, take up its runs, and return the good ones."""
        results = self._run_stage(name)
        good = {r.seq: r for r in results if r.ok}
        self.failed += self._failures(name, good)
        self.good |= good
        self._post_process(name, good)
        self.observations += self._store_runs(results, name)
        return list(good.values())

    def make_in_one(self, name: str) -> list[RunResult]:
        """Bring a stage to its end whose runs are made in one, and return the good ones.

        What it does not tell is no failed run: other runs of those configurations may follow.
        """
        results = self._run_stage(name)
        good = {r.seq: r for r in results if r.ok}
        for why in dict.fromkeys(r.detail for r in results if not r.ok):
            count = sum(r.detail == why for r in results if not r.ok)
            text = f"{count} of {format_count(len(results), 'value')} not known in one run: {why}"
            self.show(Event("note", name, text))
        self.good |= good
        self.observations += self._store_runs(results, name)
        return list(good.values())

    # -- stages --------------------------------------------------------------------------------

    def _run_stage(self, name: str) -> list[RunResult]:
        """Bring a stage to its end and return every result of it."""
        state, scheduler = self.state, self.scheduler
        stage = state.stages[name]
        job = replace(state.job(name), results=self.sink.place)
        job.folder.mkdir(parents=True, exist_ok=True)
        earlier = read_results(job.folder / "results.jsonl")
        shown_count = len(earlier)
        if earlier:
            self.results[name] = tuple(earlier)
            succeeded = sum(r.ok for r in earlier)
            self.show(Event("note", name, f"made before: {succeeded} of {len(job.runs)} runs"))
        self.show(Event("stage", name, total=len(stage.runs), spent=self.spent()))
        if not stage.handles:
            stage.handles.append(scheduler.submit_sweep(job))
            state.save()
        elif not stage.ended:
            status = scheduler.poll(job, stage.handles[-1])
            shown_count = self._show_new(name, status, shown_count)
            # A sweep that goes on after a kill: its job may have ended before all was run.
            if status.state == "ended" and job.open_runs(status.results):
                stage.handles.append(scheduler.submit_sweep(job))
                state.save()
        checked = False
        shown = ""
        while True:
            status = scheduler.poll(job, stage.handles[-1])
            shown_count = self._show_new(name, status, shown_count)
            # The first run tells what the others may cost.
            if name == "design" and not checked and stage.runs[0].seq in status.done():
                self._check_budget(status.done()[stage.runs[0].seq])
                checked = True
            if status.state == "ended":
                break
            if status.detail and status.detail != shown:
                shown = status.detail
                self.show(Event("waiting", name, text=shown, spent=self.spent()))
            if name == "design" and self._baseline_failed(status):
                scheduler.cancel(job, stage.handles[-1])
                break
            if scheduler.POLL_S:  # 0 where asking makes the next run itself
                time.sleep(scheduler.POLL_S)
        # A baseline that failed has ended its stage on purpose: the rest was never run.
        open_count = len(job.open_runs(status.results))
        if open_count and not (name == "design" and self._baseline_failed(status)):
            raise SchedulerError(
                f"the sweep ended; {open_count} of {len(stage.runs)} runs are missing"
                + (f": {status.detail}" if status.detail else "")
            )
        stage.ended = True
        state.save()
        return list(status.results)

    def _show_new(self, name: str, status: SweepStatus, shown_count: int) -> int:
        """Report results nobody has seen yet and note them in the store."""
        self.results[name] = status.results
        job = self.state.job(name)
        runs = {r.seq: r for r in job.runs}
        finished = 0
        for number, result in enumerate(status.results):
            if result.seq not in runs:
                continue
            so_far = status.results[: number + 1]
            tries = sum(r.seq == result.seq for r in so_far)
            final = result.ok or job.given_up(runs[result.seq], so_far)
            finished += final
            if number < shown_count:
                continue
            run = runs[result.seq]
            self.show(
                Event(
                    "run",
                    name,
                    run=run,
                    result=result,
                    index=finished,
                    total=len(runs),
                    text="" if result.ok or final else "will be tried again",
                    spent=self.spent(),
                )
            )
            self._say_why_whole(name, job, run, result)
            if final:
                self.note_state("running")  # shows others that it lives
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

    def _say_why_whole(self, name: str, job: SweepJob, run: PlannedRun, result: RunResult) -> None:
        """Say once for each reason why a run went to its end that could have been ended."""
        if not result.ok or result.extrapolated:
            return
        why = why_whole(job, run, result.attempt)
        reasons = {why: f"{describe(run.configuration)} went to its end: {why}"}
        if run.role == "baseline" and (none := why_none(job)):
            reasons[none] = f"no run ends early: {none}"
        for why, text in reasons.items():
            if why and why not in self.reasons_shown:
                self.reasons_shown.add(why)
                self.show(Event("note", name, text))

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

    def check_enough(self) -> None:
        """Raise AdvisorError when the job as written, or nearly everything else, does not run."""
        good = self.good
        runs = self.state.stages["design"].runs
        first = runs[0]
        if first.seq not in good:
            tried = [r.detail for r in self.results["design"] if r.seq == first.seq]
            raise AdvisorError(
                f"the job as written does not run: {tried[-1] if tried else 'never started'}",
                hint="repair the script, then train again",
            )
        if len(good) < min(MIN_RUNS, len(runs)):
            raise AdvisorError(
                f"only {len(good)} of {len(runs)} runs succeeded, too few for a model",
                hint=f"see the outputs under {self.state.folder}",
            )
        # By identity, since two runs may be equal in all that was measured.
        short = {id(self.observations[i]) for i in failed_fast(self.observations)}
        base_runs = [o for o in self.observations if o.configuration == self.state.subject.baseline]
        if base_runs and all(id(o) in short for o in base_runs):
            raise AdvisorError(
                f"the job as written took only {format_duration(base_runs[0].time_s)}, far less "
                "than its other runs allow: it failed, probably",
                hint=f"see its output under {self.state.folder}",
            )

    # -- budget --------------------------------------------------------------------------------

    def _check_budget(self, baseline: RunResult) -> None:
        """Stop when the baseline's own time shows that the rest costs more than allowed."""
        state = self.state
        runs = state.stages["design"].runs
        # the adaptive design looks at its budget before every further run
        most = 0 if state.settings.design == ADAPTIVE else state.settings.most_runs
        planned = cost(
            expected_runs(state.space, runs, most=most, confirm=state.settings.confirm),
            state.subject.baseline,
            baseline_s=baseline.time_s,
            limit_s=state.settings.run_limit_s,
            basis="",
        )
        budget = self.policy.training.budget_node_hours
        if planned.node_hours is not None and planned.node_hours > budget:
            self.stop()
            raise RefusedError(
                f"the sweep would cost up to {planned.node_hours:.3g} node-hours, "
                f"the policy allows {budget:g}",
                hint="set training: {budget_node_hours: ...} in the policy, or use fewer --samples "
                "or higher --threads",
            )

    def check_budget_of_confirm(self) -> None:
        """Raise RefusedError when the design has cost what is allowed."""
        spent, budget = self.spent().node_hours, self.policy.training.budget_node_hours
        if spent > budget:
            raise RefusedError(
                f"the sweep has cost {spent:.3g} node-hours, the policy allows {budget:g}: "
                "its recommendation is not confirmed",
                hint="set training: {budget_node_hours: ...} in the policy, then advisor train "
                f"--resume {self.state.id}",
            )

    def too_dear(self, configuration: Configuration) -> bool:
        """Tell whether one more run might cost more than the policy allows."""
        baseline = self.good[self.state.stages["design"].runs[0].seq]
        more = cost(
            [PlannedRun(0, "design", configuration)],
            self.state.subject.baseline,
            baseline_s=baseline.time_s,
            limit_s=self.state.settings.run_limit_s,
            basis="",
        )
        budget_left_node_hours = self.policy.training.budget_node_hours - self.spent().node_hours
        return more.node_hours is not None and more.node_hours > budget_left_node_hours

    def spent(self) -> Spent:
        """Return what all results seen so far have used."""
        runs = 0
        node_s = energy_j = 0.0
        has_energy = False
        for name, results in self.results.items():
            nodes = {r.seq: r.configuration.nodes for r in self.state.stages[name].runs}
            for result in results:
                runs += 1
                node_s += (result.spent_s or result.time_s or 0.0) * nodes.get(result.seq, 1)
                used = result.energy_j
                if result.extrapolated is not None and used is not None:
                    used = result.spent_j or used * result.extrapolated["share"]
                if used is not None:
                    energy_j += used
                    has_energy = True
        return Spent(runs, node_s / 3600, energy_j, has_energy)

    # -- after each run --------------------------------------------------------------------------

    def _post_process(self, name: str, good: Mapping[int, RunResult]) -> None:
        """Do what an experiment asks for after its runs, and renew its summary."""
        if self.processor is None:
            return
        job = self.state.job(name)
        for run in job.runs:
            problem = self.processor.take(job, run, good[run.seq]) if run.seq in good else ""
            if problem:
                self.show(Event("note", name, f"{describe(run.configuration)}: {problem}"))
        runs = [r for stage in self.state.stages.values() for r in stage.runs]
        results = [(r, self.good[r.seq]) for r in runs if r.seq in self.good]
        try:
            self.processor.summarise(results)
        except OSError as error:
            text = f"the summary cannot be written: {error.filename}: {error.strerror}"
            self.show(Event("note", name, text))

    # -- what was measured -----------------------------------------------------------------------

    def _store_runs(self, results: list[RunResult], stage: str) -> list[Observation]:
        """Store the good runs that are not stored yet, and return all of them."""
        state, subject = self.state, self.state.subject
        account = self.account(results)
        about: dict[str, object] = {"program": dict(subject.program)} if subject.program else {}
        if subject.rate is not None and subject.rate.unit:
            about["rate_unit"] = subject.rate.unit
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
                result.rate,
                energy_quality=result.energy_quality,
                meter=result.meter,
                source="confirm" if run.role == "confirm" else "sweep",
                contributor=state.settings.user,
                account=result.account or account,
                scope=scope_of(self.policy.training.trust, result.account or account),
                job_id=result.job_id,
                extra={
                    "sweep": state.id,
                    "seq": result.seq,
                    **about,
                    **self._counters(run),
                    **({THREAD_USE: dict(result.thread_use)} if result.thread_use else {}),
                    **self._gpus(),
                    **({GPU_ENERGY: result.gpu_j} if result.gpu_j is not None else {}),
                    **({"design": ADAPTIVE} if state.settings.design == ADAPTIVE else {}),
                    **({"extrapolated": dict(result.extrapolated)} if result.extrapolated else {}),
                },
                method=subject.method,
                space=state.space,
            )
        new = [seq for seq in observations if seq not in state.stored]
        if new:
            ids = self.sink.observe(
                subject.application,
                subject.workload,
                [observations[s] for s in new],
                fit=state.settings.fits,
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

    def _gpus(self) -> dict[str, object]:
        """Return how many GPUs each node of the job has, where that is known."""
        gpus = self.state.subject.request.gpus
        try:
            count = gpus.on_a_node(self.state.subject.baseline) if gpus is not None else 0
        except ValueError:
            return {}
        return {GPUS: count} if count else {}

    def _counters(self, run: PlannedRun) -> dict[str, object]:
        """Return what was counted in a run, where anything was."""
        counters = self.processor.kept.get(str(run.seq), {}) if self.processor else {}
        return {"counters": counters} if counters else {}

    def account(self, results: Sequence[RunResult]) -> str:
        """Return the account that runs were charged to."""
        return next((r.account for r in results if r.account), self.state.settings.account)

    def stop(self) -> None:
        """Give back what the scheduler holds for the sweep."""
        for name, stage in self.state.stages.items():
            if stage.handles and not stage.ended:
                self.scheduler.cancel(self.state.job(name), stage.handles[-1])

    def note_state(self, state: TrainingState, detail: str = "") -> None:
        """Keep the sweep's state, here and in the store."""
        self.state.state, self.state.detail = state, detail
        self.state.save()
        try:
            self.sink.request(self.state.request())
        except StoreError:
            if state in ("running", "fitted", "confirmed"):
                raise  # else the error that stopped the sweep is the one to show
