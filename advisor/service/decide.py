"""Decide for one job. :func:`_conclude` has the stages of a decision in their order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from advisor.core.decision import Decision
from advisor.core.feasible import Constraints
from advisor.core.reading import JobReading
from advisor.core.reasons import Reason
from advisor.core.request import JobRequest
from advisor.core.settings import Pin
from advisor.schedulers.translators import translator
from advisor.service.applying import apply_choice, keeping
from advisor.service.baseline import JobBaseline, asked_of, find_models, locate_baseline, to_train
from advisor.service.bounds import bounds_of, with_obstacles
from advisor.service.cap_trials import cap_trial_of
from advisor.service.choice import Choice, choose, trial_of
from advisor.service.conclusion import Conclusion, Submission, record
from advisor.service.read_job import PastAvailability
from advisor.service.snapshot import Snapshot
from advisor.service.step_plans import with_plan
from advisor.service.understand import UnderstoodJob, understand
from advisor.service.whole_job import by_history, with_spread


def decide(
    request: JobRequest,
    snapshot: Snapshot,
    *,
    chance: Callable[[], float] = random.random,
    trials: bool = True,
) -> Decision:
    """Return the decision for a request, from memory alone.

    ``chance`` draws the holdout, uniform in [0, 1). The decision's ``rewrite`` is empty unless
    everything is known, allowed and confirmed, or it is a trial; those are only made with
    ``trials``, and whoever lets a job run one must take its place first.
    """
    snapshot = snapshot.of_cluster(request.cluster)
    request = translator(request.scheduler).fold(request, snapshot.availability)
    request = request.with_understood(snapshot.understood_options).with_written(snapshot.axes)
    request = request.with_environment_files(snapshot.environment_files)
    submission = Submission(request, snapshot, snapshot.policy.base)
    return record(with_plan(_conclude(submission, chance, trials), chance))


def decide_again(
    request: JobRequest, reading: JobReading, snapshot: Snapshot, *, chance: Callable[[], float]
) -> Decision:
    """Return the decision for a request that was kept with what was read of its job.

    The same as :func:`decide`, and never a trial: what the scheduler completes and binds is in
    the request, and nodes are as free as they were then.
    """
    snapshot = snapshot.of_cluster(request.cluster)
    snapshot = replace(snapshot, availability=PastAvailability(reading=reading))
    threads, counts = reading.threads, reading.counts_threads
    if threads or counts:
        request = replace(request, script_threads=threads, script_counts=counts)
    submission = Submission(request, snapshot, snapshot.policy.base, reading)
    return record(with_plan(_conclude(submission, chance, False), chance))


def unchanged(request: JobRequest, snapshot: Snapshot, why: Reason) -> Decision:
    """Return the decision to change nothing for a reason found outside :func:`decide`."""
    return record(Conclusion(Submission(request, snapshot, snapshot.policy.base), (why,)))


def _conclude(submission: Submission, chance: Callable[[], float], trials: bool) -> Conclusion:
    """Return what the decision comes to.

    Each stage takes what those before it found, alters nothing of it, and returns what it finds
    itself, or the conclusion that the job stays as it is written.
    """
    # the job as it is written: by its script, else by its own earlier jobs
    located = _job_and_baseline(submission)
    if isinstance(located, Conclusion):
        located = by_history(located)
    if isinstance(located, Conclusion):
        return located
    job, baseline = located
    job = with_obstacles(job, baseline)
    # Again where an axis cannot be written: with that kept, another choice may be best. Each turn
    # keeps one axis more, so it ends.
    while True:
        # what user, script, policy and cluster leave
        bounds = bounds_of(job, baseline)
        if isinstance(bounds, Conclusion):
            return bounds
        # among the candidates within them
        choice = choose_for(job, baseline, bounds, trials=trials)
        # unless policy, program or holdout keep it from the job; in the scheduler's words
        conclusion = apply_choice(job, baseline, bounds, choice, chance)
        if isinstance(conclusion, Conclusion):
            return conclusion
        job, chance = keeping(job, conclusion), _no_holdout  # which was drawn


def _job_and_baseline(submission: Submission) -> tuple[UnderstoodJob, JobBaseline] | Conclusion:
    """Return what a job runs, and the measured point that stands for it as it is written."""
    # what runs, where, under which policy; of the script, what it does with its cores
    job = understand(submission)
    if isinstance(job, Conclusion):
        return job
    # of its workload, its family of sizes, or the application
    models = find_models(job)
    if isinstance(models, Conclusion):
        return models
    # its configuration on its own node type, which must have a model
    demand = asked_of(job, models)
    if isinstance(demand, Conclusion):
        return demand
    # the measured point that stands for it
    baseline = locate_baseline(job, demand)
    return baseline if isinstance(baseline, Conclusion) else (job, baseline)


def _no_holdout() -> float:
    return 1.0


def choose_for(
    job: UnderstoodJob, baseline: JobBaseline, bounds: Constraints, *, trials: bool
) -> Choice:
    """Return the choice for a job, a trial where it may run one now."""
    snapshot, model, pin = job.snapshot, baseline.model, job.reading.settings.pin
    choice = choose(
        snapshot,
        baseline.models.by_node_type,
        model,
        baseline.row,
        bounds,
        None if pin is None else Pin.from_dict(pin),
    )
    if model.of_history:
        choice = cap_trial_of(job, baseline, bounds, choice) if trials else choice
        return with_spread(model, choice)
    if not model.by_class:
        return choice
    if trials and job.use.runs == 1:  # a trial is judged by what one run takes
        choice = trial_of(snapshot, model, job.request, job.policy, choice)
    training = to_train(job, baseline.models.workload)
    return replace(choice, reasons=(*choice.reasons, *training))
