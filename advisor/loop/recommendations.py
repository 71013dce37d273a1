"""What a report makes worth doing, each as one sentence that names the line to change."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from advisor.core.units import format_count
from advisor.loop.backlog import late_backlog
from advisor.loop.clock import form
from advisor.loop.execution import IMPOSSIBLE, NO_STEP, NOT_METERED, SHARED
from advisor.loop.report import Report
from advisor.schedulers.choose import create
from advisor.store.reader import Reader

_ENOUGH, _PROMISED = 10, 0.9
"""Jobs from which on it is said that their intervals hold less than the share that is promised."""
_SHARE, _SOME = 0.10, 0.05
"""A reason that explains less than this share of the jobs is not worth a note."""
_CAUSES = {NO_STEP: "step", SHARED: "shared", NOT_METERED: "meter"}


def notes(report: Report, reader: Reader) -> list[str]:
    """Return the notes of a report."""
    sentences: list[str] = []
    left_alone, policy = report.left_alone, reader.policy().base
    if reader.published and not report.jobs:
        sentences.append(
            "this host has a published copy of the store, which holds no jobs unless it was made "
            "with advisor store publish --history: run advisor report on the store's host"
        )

    def share(code: str) -> float:
        return left_alone[code] / report.jobs if report.jobs else 0.0

    if share("unrecognised") >= _SHARE:
        sentences.append(
            f"{100 * share('unrecognised'):.0f} % of jobs unrecognised: add a rule under "
            f"{_where(reader, 'site', 'applications')}"
        )
    if share("no-model") >= _SHARE:
        names = ", ".join(
            f"{name} ({format_count(count, 'job')})"
            for name, count in report.missing_models.most_common(3)
        )
        sentences.append(
            f"{100 * share('no-model'):.0f} % of jobs have no model: advisor train their "
            "scripts, most "
            f"used: {names}; or set training: {{mode: auto}} at "
            f"{_where(reader, 'policy', 'training')}"
        )
    if report.possible_jobs and policy.mode != "apply":
        sentences.append(
            f"{format_count(report.possible_jobs, 'job')} only advised or observed; with "
            "changes they "
            f"would have saved {report.possible_kwh:.3g} kWh by prediction: set mode: apply at "
            f"{_where(reader, 'policy', 'mode')}"
        )
    if share("no-baseline") >= _SHARE:
        sentences.append(
            f"{100 * share('no-baseline'):.0f} % of jobs on nodes that are not in the inventory: "
            "run advisor site discover"
        )
    if share("baseline-outside-model") >= _SHARE:
        sentences.append(
            f"{100 * share('baseline-outside-model'):.0f} % of jobs ask for what was never "
            "measured: "
            "train with their own job script (advisor train SCRIPT)"
        )
    sentences += _energy(report)
    set_already = reader.config("policy") is not None and policy.holdout > 0
    if report.advised and not report.holdout and not set_already:
        sentences.append(
            "no job was in the holdout, so savings are compared with a prediction only: "
            f"set holdout: 2% at {_where(reader, 'policy', 'holdout')}"
        )
    for model in report.suspended:
        words = [model.application]
        words += ["--workload", model.workload] if model.workload != "default" else []
        mend = f"train it again, or advisor fit {shlex.join(words)}"
        if model.transferred:
            mend = f"it was estimated from microbenchmarks; train it on {model.node_type}"
        if model.of_sizes:
            mend = f"it was extrapolated from other sizes; train a larger one on {model.node_type}"
        if model.by_class:
            mend = f"it was estimated from other applications; train it on {model.node_type}"
        sentences.append(
            f"model {model.id} of {model.application} on {model.node_type} is suspended "
            f"({model.state_reason}): {mend}"
        )
    for name, calibration in (
        ("time", report.time_calibration),
        ("energy", report.energy_calibration),
    ):
        interval = calibration.to_dict()
        high = interval["share_hi"]
        # Surely fewer than promised: the upper end of what the share may be, and of some jobs.
        if calibration.total >= _ENOUGH and isinstance(high, float) and high < _PROMISED:
            sentences.append(
                f"promised {name} intervals are too narrow: {calibration.inside} of "
                f"{calibration.total} jobs inside, {100 * _PROMISED:.0f} % expected; "
                "advisor fit takes the jobs' own runs into the models"
            )
    if report.unverified:
        sentences.append(
            f"left out: {format_count(report.unverified, 'job')} with the stamp of another job"
        )
    if report.stamped:
        sentences.append(
            f"{format_count(report.stamped, 'job')} known by the stamp alone (decided on login "
            "nodes), which a user could have written"
        )
    if waiting := late_backlog(reader):
        last = f"since {form(waiting.last)}" if waiting.last else "ever"
        sentences.append(
            f"nothing was collected {last}, and "
            f"{format_count(waiting.decisions, 'decision')} "
            f"{'waits' if waiting.decisions == 1 else 'wait'}: systemctl enable --now "
            "advisor-collect.timer"
        )
    return sentences


def _energy(report: Report) -> list[str]:
    """Return what to do about completed jobs without energy, by partition and cause."""
    sentences = []
    dropped = sum(n for (*_, why), n in report.without_energy.items() if why == IMPOSSIBLE)
    if dropped:
        sentences.append(
            f"no energy for {format_count(dropped, 'completed job')}: their meter said what their "
            "nodes cannot have used, and that was dropped; see what the scheduler's energy plugin "
            "reads on these nodes"
        )
    for (scheduler, partition, why), count in report.without_energy.most_common(4):
        if count < _SOME * report.jobs or why not in _CAUSES:
            continue
        if advice := create(scheduler).ENERGY_ADVICE.get(_CAUSES[why]):
            jobs = format_count(count, "completed job")
            advice = advice.format(partition=partition)
            sentences.append(f"no energy for {jobs} in partition {partition}: {advice}")
    return sentences


def _where(reader: Reader, kind: str, key: str) -> str:
    """Return file and line of a key in the applied policy or site file, as well as is known."""
    config = reader.config("policy" if kind == "policy" else "site")
    if config is None:
        return f"{key}: in {kind}.yaml (none is applied: advisor {kind} apply)"
    name = Path(config.path).name if config.path else f"{kind}.yaml"
    for number, line in enumerate(config.text.splitlines(), start=1):
        if re.match(rf"{re.escape(key)}\s*:", line):
            return f"{config.path or name}:{number} ({line.strip()[:60]})"
    return f"{key}: in {config.path or name} (not set there)"
