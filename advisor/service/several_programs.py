"""A job whose script runs several programs, of which each is known by a model of its own.

They run one after the other and share the job's variables, so that one number of threads is for
all of them. It is only taken where it is an option for each program alone, by all the rules that
hold for a job of that program: then their sum keeps the same bounds, whatever the share of each is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.core import program
from advisor.core.feasible import feasible_rows
from advisor.core.option import Option, Row
from advisor.core.reasons import SEVERAL_PROGRAMS, reason
from advisor.core.recognise import ApplicationRule, Recognised
from advisor.core.script_use import SEVERAL_STEPS
from advisor.core.select import select
from advisor.service.baseline import JobBaseline, job_and_baseline
from advisor.service.bounds import bounds_of
from advisor.service.choice import choose
from advisor.service.conclusion import Conclusion, Submission
from advisor.service.job_models import JobModels
from advisor.service.understand import UnderstoodJob
from advisor.store.records import PROGRAMS, StoredModel

_THE_JOB_S = 1
"""The number of the file that a hook may look at: of the program that the job is recognised by."""


@dataclass(frozen=True, slots=True)
class _Program:
    """One of a job's programs: its part of the job, as a job of it alone."""

    job: UnderstoodJob
    baseline: JobBaseline
    better: dict[int, Row]
    """By threads of each node: what is better than as written, by its own bounds."""

    @property
    def facts(self) -> list[dict[str, object]]:
        """The builds that its model knows of it."""
        return program.known(self.baseline.model.stats.get("program"))


def by_its_programs(left: Conclusion) -> tuple[UnderstoodJob, JobBaseline] | Conclusion | None:
    """Return a job that was left for its several programs, with the sum of what they take.

    None where one of them is not known, keeps its threads, or would be worse off with every number
    that is better for another. It stays left where such jobs came out worse than promised.
    """
    reading, snapshot = left.submission.reading, left.submission.snapshot
    if reading is None or not reading.apart or SEVERAL_STEPS not in {r.code for r in left.reasons}:
        return None
    if reading.settings.pin is not None:  # the user's own word for one program of them
        return None
    programs: list[_Program] = []
    for alone in reading.apart:
        located = job_and_baseline(replace(left.submission, reading=alone))
        known = None if isinstance(located, Conclusion) else _known(left.submission, *located)
        if known is None:
            return None
        programs.append(known)
    first = programs[0]
    if not all(_alike(p, first) for p in programs):
        return None
    common = set.intersection(*(set(p.better) for p in programs))
    checked = _file_checked(programs)
    if not common or checked is None:
        return None
    job, baseline = _together(left, programs, sorted(common), checked)
    bounds = bounds_of(job, baseline)
    if isinstance(bounds, Conclusion):
        return None
    models = baseline.models.by_node_type
    choice = choose(snapshot, models, baseline.model, baseline.row, bounds, None)
    if choice.chosen is None:
        return None
    history = snapshot.history(reading.identity)
    if history is not None and history.worse:
        why = reason("whole-job-worse", history.worse)
        return replace(left, reasons=(*left.reasons, why))
    return job, baseline


def _known(submission: Submission, job: UnderstoodJob, baseline: JobBaseline) -> _Program | None:
    """Return one of a job's programs where its own model speaks for it as it is written."""
    model, written = baseline.model, baseline.configuration
    measured = model.fitted and model.energy_quality == "measured" and model.method != "request"
    if not (measured and baseline.whole and baseline.asked == written):
        return None
    # one program's own policy or pin cannot hold for the others
    if job.policy != submission.policy or job.reading.settings.pin is not None:
        return None
    bounds = bounds_of(job, baseline)
    if isinstance(bounds, Conclusion) or len(job.node_types) != 1:
        return None
    bounds = replace(bounds, axes=())
    rows, _ = feasible_rows(model.node_type, job.snapshot.rows(model), bounds)
    better = {
        row.threads_per_node: row
        for row in rows
        if row.freq_khz == written.freq_khz and row.threads_per_node < written.threads_per_node
        if select([(model.node_type, row)], baseline.row, job.policy).chosen
    }
    return _Program(job, baseline, better) if better else None


def _alike(one: _Program, other: _Program) -> bool:
    """Tell whether two programs have the same ranks and threads, and read these from the same."""
    ours, theirs = one.job.recognised, other.job.recognised
    same_variables = set(ours.threads_from) == set(theirs.threads_from)
    return same_variables and one.baseline.configuration == other.baseline.configuration


def _file_checked(programs: Sequence[_Program]) -> list[dict[str, object]] | None:
    """Return the builds that the job's own file may have, None where others would have to be
    looked at: hooks look at one."""
    builds: list[dict[str, object]] | None = None
    for one in programs:
        if not one.facts or not one.job.reading.file:  # no more is looked at of a job of it alone
            continue
        if one.job.reading.file != _THE_JOB_S:
            return None
        names = {facts["build"] for facts in one.facts}
        builds = [f for f in (one.facts if builds is None else builds) if f["build"] in names]
        if not builds:
            return None
    return builds or []


def _together(
    left: Conclusion,
    programs: Sequence[_Program],
    threads: Sequence[int],
    checked: list[dict[str, object]],
) -> tuple[UnderstoodJob, JobBaseline]:
    """Return the job of several programs, and its baseline with the model that is their sum."""
    first, reading = programs[0].job, left.submission.reading
    assert reading is not None and reading.recognised is not None
    names = ", ".join(dict.fromkeys(p.job.recognised.application for p in programs))
    reasons = tuple(r for r in left.reasons if r.code != SEVERAL_STEPS)
    recognised = reading.recognised
    # each has been asked what it does without its variables, by its own rule or runs
    rule = ApplicationRule(recognised.application, threads_from=first.recognised.threads_from)
    uses = [p.job.use for p in programs]
    job = replace(
        first,
        reading=reading,
        recognised=Recognised(
            recognised.application, recognised.workload, recognised.command, recognised.how, rule
        ),
        use=replace(
            uses[0], cores=next((u.cores for u in uses if u.cores), ""), ends_after_s=math.inf
        ),
        reasons=(*reasons, reason(SEVERAL_PROGRAMS, names)),
    )
    written = programs[0].baseline.configuration
    sums = [_sum([p.baseline.row for p in programs], written.node_type)]
    sums += [_sum([p.better[t] for p in programs], written.node_type) for t in threads]
    model = _model(job, sums, programs, checked)
    row = model.rows()[0]
    models = JobModels({model.node_type: model}, model.workload)
    return job, JobBaseline(written, row, written, True, model, models, job.reasons)


def _sum(rows: Sequence[Row], node_type: str) -> Option:
    """Return what programs take together at one configuration: ends add up, as if all erred so."""
    time_s, time_lo_s, time_hi_s, energy_j, energy_lo_j, energy_hi_j = (
        math.fsum(values) for values in zip(*(row[4:10] for row in rows), strict=True)
    )
    return Option(
        rows[0].configuration(node_type),
        time_s,
        time_lo_s,
        time_hi_s,
        energy_j,
        energy_lo_j,
        energy_hi_j,
        confirmed=True,
    )


def _model(
    job: UnderstoodJob,
    sums: Sequence[Option],
    programs: Sequence[_Program],
    checked: list[dict[str, object]],
) -> StoredModel:
    """Return the model of one job that decisions take as any other."""
    written = sums[0]
    c = written.configuration
    shape = [[c.nodes, c.ranks_per_node, c.threads_per_node]]
    parts = [
        {
            "program": p.job.recognised.application,
            "application": p.job.recognised.application,
            "workload": p.job.recognised.workload,
            "time_share": round(p.baseline.row.time_s / written.time_s, 4),
            "energy_share": round(p.baseline.row.energy_j / written.energy_j, 4),
            "known": True,
        }
        for p in programs
    ]
    return StoredModel.of_job(
        PROGRAMS,
        job.recognised.application,
        SEVERAL_PROGRAMS,
        job.request.user,
        sums,
        {"parts": parts, "program": checked, "threads_unset": shape, "threads_of_cores": shape},
    )
