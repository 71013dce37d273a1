"""What an application's profiles say of a whole run: its instructions and the memory it touches."""

from __future__ import annotations

from dataclasses import replace

from advisor.core.count_laws import ClassCount, CountLaws, TermSum
from advisor.errors import AdvisorError
from advisor_lab.profile.models import ClassRuns, MetricModel, ThreadCounts, fit_metric
from advisor_lab.profile.models import thread_counts as count_threads
from advisor_lab.profile.runs import stored_shape
from advisor_lab.profile.setup import default_options
from advisor_lab.profile.study import ProfileStudy, kept_options
from advisor_lab.profile.table import coefficients_of

_COUNT, _FOOTPRINT, _THREADS = "LSys", "footprint_bytes", "NThreads"


def count_laws(study: ProfileStudy) -> CountLaws | None:
    """Return the laws of an application's counts; None where its profiles show none.

    Only sums of terms are laws: another learner knows nothing beyond its runs.
    """
    try:
        classes = study.class_runs()
        threads = count_threads(classes, study.setup, study.method)
        counted = {name: _law(model) for name, model in threads.models.items()}
        members = [_fitted(study, class_runs, _THREADS, threads) for class_runs in classes]
    except AdvisorError:
        return None
    if not all(counted.values()) or not all(members):
        return None
    laws = CountLaws(study.runs.parameters, _processes(study), counted)
    return replace(
        laws,
        instructions=_per_class(study, classes, members, _COUNT, threads),
        footprint=_per_class(study, classes, members, _FOOTPRINT, threads),
    )


def _per_class(
    study: ProfileStudy,
    classes: list[ClassRuns],
    members: list[TermSum],
    metric: str,
    threads: ThreadCounts,
) -> tuple[ClassCount, ...]:
    if stored_shape(study.runs.train, metric) != "scalar":
        return ()
    try:
        laws = [_fitted(study, class_runs, metric, threads) for class_runs in classes]
    except AdvisorError:
        return ()
    return tuple(zip(members, laws, strict=True)) if all(laws) else ()


def _fitted(
    study: ProfileStudy, class_runs: ClassRuns, metric: str, threads: ThreadCounts
) -> TermSum:
    """Return a metric's law in a class, by the terms that are kept of it if there are any."""
    spec = study.specs.get(class_runs.name, {}).get(metric)
    options = study.setup.metrics.get(metric) or default_options(metric, "scalar")
    if spec is not None:
        options = kept_options(metric, spec)
    return _law(fit_metric(class_runs, metric, options, study.setup, threads, None, study.method))


def _law(model: MetricModel) -> TermSum:
    """Return a regression's coefficients with their terms; () for any other model."""
    if model.scalar is None or not (coefficients := coefficients_of(model.scalar)):
        return ()
    terms = ("1", *(t.text for t in model.scalar.terms))
    law = tuple((c, t) for c, t in zip(coefficients, terms, strict=True) if c)
    return law or ((0.0, "1"),)


def _processes(study: ProfileStudy) -> str:
    """Return the parameter that is the number of processes in every run, "" if none is."""
    runs = study.runs.train
    names = study.runs.parameters
    alike = (n for n in names if all(run.processes == dict(run.scale)[n] for run in runs))
    return next(alike, "")
