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
from advisor.core.select import score_of
from advisor.core.settings import Pin
from advisor.schedulers.translators import translator
from advisor.service.applying import apply_choice, keeping
from advisor.service.baseline import JobBaseline, job_and_baseline, to_train
from advisor.service.bounds import bounds_of, with_obstacles
from advisor.service.cap_trials import cap_trial_of
from advisor.service.choice import Choice, choose, trial_of
from advisor.service.conclusion import Conclusion, Submission, record
from advisor.service.read_job import PastAvailability
from advisor.service.several_programs import by_its_programs
from advisor.service.snapshot import Snapshot
from advisor.service.step_plans import with_plan
from advisor.service.understand import UnderstoodJob
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
    located = job_and_baseline(submission)
    if isinstance(located, Conclusion):
        located = _known_otherwise(located)
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


def _known_otherwise(left: Conclusion) -> tuple[UnderstoodJob, JobBaseline] | Conclusion:
    """Return a job that was to be left alone with what its programs, or its own earlier jobs, say.

    Where both do, that which is better for the policy's goal.
    """
    by_programs = by_its_programs(left)
    if isinstance(by_programs, Conclusion):
        return by_programs
    by_jobs = by_history(left)
    if by_programs is None:
        return by_jobs
    if isinstance(by_jobs, Conclusion):
        return by_programs
    return min((by_programs, by_jobs), key=lambda located: _score(*located))


def _score(job: UnderstoodJob, baseline: JobBaseline) -> float:
    """Return how good the choice for a job is by its policy's goal: the less, the better."""
    bounds = bounds_of(job, baseline)
    if isinstance(bounds, Conclusion):
        return 0.0
    chosen = choose_for(job, baseline, bounds, trials=False).chosen
    return 0.0 if chosen is None else score_of(chosen, job.policy.goal)


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
