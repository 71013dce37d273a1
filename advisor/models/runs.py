"""Which runs a model rests on, and their responses: one mean time and energy per configuration."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.core.configuration import Configuration
from advisor.core.observation import GPU_ENERGY, Observation, Quality, RunMethod, Scope, coverage
from advisor.core.units import format_change, format_count
from advisor.core.words import describe
from advisor.errors import InputError
from advisor.models.ended_runs import ended_early, response_of
from advisor.models.failed_fast import without_failed_fast
from advisor.models.job_runs import JobValue, error_of, is_job, of_jobs_alone, with_jobs
from advisor.models.meter_step import in_words, meter_step_j, with_step
from advisor.models.response import Response
from advisor.models.scatter import ASSUMED, Z95, Elsewhere, pooled

MIN_CONFIGURATIONS = 4
"""Fewer distinct configurations say nothing about a shape, nor about the error of one."""

JOBS_BESIDE = "jobs of the past are beside the measured runs"
_AXES = ("nodes", "threads_per_node", "freq_khz")
_FEWEST_FOR_BROKEN, _FEWEST_REPEATS = 30, 3
"""Configurations that neighbours can be compared in; runs of one that show which of them is off."""
_BROKEN, _BROKEN_AT_LEAST = 5.0, 0.10
"""A run is broken this many usual deviations off, and by more than this (log)."""
_MOST_GPU_J = 256
"""Configurations of which a model keeps what GPUs took: daemons read it."""
_POWER_SHARE = 0.5
"""What disturbs a run makes it longer and costs energy alike: power repeats better than either."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Everything a model is fitted to. ``energy`` and ``power`` (W, of the same runs) are None
    when too few runs know their energy."""

    time: Response
    energy: Response | None
    power: Response | None
    energy_quality: Quality
    notes: tuple[str, ...]
    work: float | None = None
    """What the median run did, in what their rates count, where every run has a rate."""


@dataclass(frozen=True, slots=True)
class ScopedRuns:
    """The runs of one model, and whose jobs it advises.

    ``owner`` is empty for scope ``all``, the account for ``account``, the user for ``own``.
    """

    scope: Scope
    owner: str
    observations: tuple[Observation, ...]


def runs_by_scope(observations: Sequence[Observation]) -> list[ScopedRuns]:
    """Return the groups of one workload's runs on one node type, widest scope first.

    Each group's runs stay in the order given.

    Everybody's model rests on runs of scope ``all`` only; an account's also on its own of scope
    ``account``; a user's also on what only they may use, and on the account's when all of these
    were made for one account. So nobody's private run reaches another's jobs.
    """
    # By identity: two runs may be equal in all that is noted of them.
    place = {id(o): i for i, o in enumerate(observations)}

    def in_order(*runs: Observation) -> tuple[Observation, ...]:
        return tuple(sorted(runs, key=lambda o: place[id(o)]))

    everybody = [o for o in observations if o.scope == "all"]
    scoped = [ScopedRuns("all", "", tuple(everybody))] if everybody else []
    accounts: dict[str, list[Observation]] = {}
    by_user: dict[str, list[Observation]] = {}
    for o in observations:
        if o.scope == "account" and o.account:
            accounts.setdefault(o.account, []).append(o)
        elif o.scope != "all":
            by_user.setdefault(o.contributor, []).append(o)
    for account, runs in sorted(accounts.items()):
        scoped.append(ScopedRuns("account", account, in_order(*everybody, *runs)))
    for user, runs in sorted(by_user.items()):
        of_account = {o.account for o in runs}
        shared = accounts.get(of_account.pop(), []) if len(of_account) == 1 else []
        scoped.append(ScopedRuns("own", user, in_order(*everybody, *shared, *runs)))
    return scoped


def gather(
    observations: Sequence[Observation],
    *,
    measurement_error: float = ASSUMED,
    least: int = MIN_CONFIGURATIONS,
    elsewhere: Elsewhere | None = None,
) -> Runs:
    """Average repeated runs and settle which energies count.

    With a figure of merit on every run, time and energy are those of the median run's work: runs
    of different length then compare. Measured and estimated energies are never mixed: measured
    ones are used where there are enough of them, else estimated ones. ``measurement_error`` is
    the assumed 95 % half width of one run, a fraction, where nothing was repeated; ``elsewhere``
    is what other workloads' repeats on the node type say of it. Raises InputError where there are
    fewer configurations than ``least``, and for a run that makes no sense.
    """
    notes: list[str] = []
    for i, o in enumerate(observations):
        for name, value in (("time_s", o.time_s), ("energy_j", o.energy_j), ("fom", o.fom)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"run {i}: {name} is {value}", hint="it must be above 0")
    cells = {o.configuration for o in observations}
    if len({c.node_type for c in cells}) > 1:
        kinds = ", ".join(sorted({c.node_type for c in cells}))
        raise InputError(f"runs on several node types ({kinds}) in one fit", hint="fit each alone")
    if len(cells) < least:
        raise InputError(
            f"{format_count(len(cells), 'configuration')} measured, a model needs {least}",
            hint="measure more, best with advisor train",
        )
    jobs = [o for o in observations if is_job(o)]
    measured = [o for o in observations if not is_job(o)]
    alone = len({o.configuration for o in measured}) < least
    if jobs and not alone:
        observations = measured
    # Stragglers first: beside a run that hung all others look as if they had failed fast.
    observations = without_failed_fast(_without_stragglers(observations, notes), notes)
    as_read = observations
    observations, work = of_equal_work(observations, notes)
    read = {id(o): r for o, r in zip(observations, as_read, strict=True)}
    if ended_runs := sum(map(ended_early, observations)):
        notes.append(f"ended early, weigh less: {ended_runs} of {len(observations)} runs")
    sigma, repeats_elsewhere = measurement_error / Z95, elsewhere or {}
    usual = {
        name: pooled(share * sigma, tuple(map(tuple, repeats_elsewhere.get(name, ()))))
        for name, share in (("time", 1.0), ("energy", 1.0), ("power", _POWER_SHARE))
    }
    time = response_of(observations, "time", lambda o: o.time_s, usual["time"])
    quality, chosen = _energies(observations, notes, least)
    energy = power = None
    if quality != "missing":
        energy = response_of(chosen, "energy", lambda o: o.energy_j or 0.0, usual["energy"])
        power = response_of(
            chosen, "energy", lambda o: (o.energy_j or 0.0) / o.time_s, usual["power"]
        )
        if quality == "measured":
            step_j = meter_step_j([read[id(o)] for o in chosen])
            energy, power = with_step(energy, power, time, step_j)
            notes += filter(None, [in_words(energy)])
    if jobs and alone:
        notes.append(
            f"nothing is confirmed: most is known from {format_count(len(jobs), 'job')} of the past"
        )
        time, energy = of_jobs_alone(time), None if energy is None else of_jobs_alone(energy)
    elif jobs:
        time, energy, power = _beside_jobs(jobs, work, quality, (time, energy, power), notes)
    notes += _steadiness({"time": time, "energy": energy})
    return Runs(time, energy, power, quality, tuple(notes), work)


def _beside_jobs(
    jobs: Sequence[Observation],
    work: float | None,
    quality: Quality,
    measured: tuple[Response, Response | None, Response | None],
    notes: list[str],
) -> tuple[Response, Response | None, Response | None]:
    """Return the responses of measured runs with jobs of the past in them, where these agree."""
    time, energy, power = measured
    past = f"left out: {format_count(len(jobs), 'job')} of the past"
    if work is not None:
        notes.append(f"{past}: without figure of merit")
        jobs = ()
    times = [JobValue(o.configuration, o.time_s, error_of(o)) for o in jobs]
    time, why = with_jobs(time, times)
    metered = [o for o in jobs if o.energy_quality == quality and o.energy_j is not None]
    if energy is not None and power is not None:
        values = [JobValue(o.configuration, o.energy_j or 0.0, error_of(o)) for o in metered]
        energy, _ = with_jobs(energy, values if not why else ())
        watts = [
            JobValue(v.configuration, v.value / o.time_s, v.error)
            for v, o in zip(values, metered, strict=True)
        ]
        power, _ = with_jobs(power, watts if not why else ())
    if why:
        notes.append(f"{past}: {why}")
    elif jobs:
        notes.append(f"{len(jobs)} {JOBS_BESIDE}")
    return time, energy, power


def of_one_method(
    observations: Sequence[Observation], notes: list[str]
) -> tuple[Sequence[Observation], RunMethod]:
    """Return the runs that may stand in one model, and how their threads were set.

    What a run takes with fewer threads inside its allocation says nothing of a smaller request,
    nor the other way round: of the two the newest counts (``observations`` are oldest first).
    Imported runs and jobs as they were written go with either.
    """
    newest: RunMethod = next((o.method for o in reversed(observations) if o.method), "")
    usable = [o for o in observations if o.method in ("", newest)]
    if len(usable) < len(observations):
        how = "inside the whole allocation" if newest == "request" else "by a smaller request"
        notes.append(
            f"left out: {format_count(len(observations) - len(usable), 'run')} measured {how}"
        )
    return usable, newest


def _steadiness(responses: Mapping[str, Response | None]) -> list[str]:
    """Say where repeats are far apart, or not normally distributed."""
    warnings = []
    for name, response in responses.items():
        if response is None:
            continue
        for c, half in response.unsteady.items():
            change = format_change(math.expm1(2 * half))
            warnings.append(f"{name} of the runs at {describe(c)} differs by {change}: unsteady")
        p = response.not_normal()
        if p is not None:
            warnings.append(
                f"repeats of {name} are not normally distributed (Shapiro-Wilk p {p:.1e}): "
                "intervals may be too narrow"
            )
    return warnings


def _without_stragglers(
    observations: Sequence[Observation], notes: list[str]
) -> Sequence[Observation]:
    """Leave out runs that took much longer than the other runs of their configuration, and say so.

    Three runs or more show which one is off: by five times what is usual among repeats (median
    absolute deviation of all of them) and by more than 10 %.
    """
    groups: dict[Configuration, list[int]] = {}
    for i, o in enumerate(observations):
        groups.setdefault(o.configuration, []).append(i)
    off: dict[int, float] = {}
    for rows in groups.values():
        if len(rows) >= _FEWEST_REPEATS:
            logs = [math.log(observations[i].time_s) for i in rows]
            off |= {i: v - float(np.median(logs)) for i, v in zip(rows, logs, strict=True)}
    if not off:
        return observations
    # 1.4826: from a median absolute deviation to a standard deviation, where errors are normal.
    usual = 1.4826 * float(np.median(np.abs(list(off.values()))))
    odd = {i: v for i, v in off.items() if abs(v) > max(_BROKEN * usual, _BROKEN_AT_LEAST)}
    for i, v in odd.items():
        where = describe(observations[i].configuration)
        notes.append(
            f"a run at {where} is {format_change(math.expm1(v))} off its repeats: left out"
        )
    return [o for i, o in enumerate(observations) if i not in odd]


def of_equal_work(
    observations: Sequence[Observation], notes: list[str]
) -> tuple[Sequence[Observation], float | None]:
    """Return the runs as if each did the median run's work, and that work (rate x s).

    Time and energy are scaled by what a run did; power stays. Without a rate of every run they are
    as they were, and the work is None.
    """
    amounts = [o.fom * o.time_s for o in observations if o.fom is not None]
    if len(amounts) < len(observations) or not amounts:
        if amounts:
            notes.append("figures of merit are ignored: not every run has one")
        return observations, None
    work = float(np.median(amounts))
    scales = [work / amount for amount in amounts]
    return [
        replace(
            o, time_s=o.time_s * scale, energy_j=None if o.energy_j is None else o.energy_j * scale
        )
        for o, scale in zip(observations, scales, strict=True)
    ], work


def gpu_stats(observations: Sequence[Observation]) -> dict[str, object]:
    """Return what a model keeps of its runs' GPUs: how many a node, and whether all were metered.

    Nothing where no run says how many, or where they differ. ``gpu_j``: what they took on average
    at each configuration, J, of those whose runs all tell; the newest :data:`_MOST_GPU_J`.
    """
    stats: dict[str, object] = {}
    first = observations[0].gpus
    if first and all(o.gpus == first for o in observations):
        stats["gpus"] = first
    if all(o.gpus_metered for o in observations):
        stats["gpus_metered"] = True
    took: dict[Configuration, list[object]] = {}
    for o in observations:
        took.setdefault(o.configuration, []).append(o.extra.get(GPU_ENERGY))
    means = [
        (c, statistics.fmean(joules))
        for c, values in took.items()
        if len(joules := [float(j) for j in values if isinstance(j, int | float)]) == len(values)
    ]
    if means:
        stats["gpu_j"] = [{**c.to_dict(), GPU_ENERGY: joules} for c, joules in means[-_MOST_GPU_J:]]
    return stats


def rate_stats(work: float | None, observations: Sequence[Observation]) -> dict[str, object]:
    """Return what a model keeps of its runs' rates: the work, and their unit if they have one."""
    if work is None:
        return {}
    units = {str(o.extra.get("rate_unit", "")) for o in observations}
    return {"rate": {"work": work, "unit": units.pop() if len(units) == 1 else ""}}


def _energies(
    observations: Sequence[Observation], notes: list[str], least: int
) -> tuple[Quality, list[Observation]]:
    """Return which energies count and the runs that have them."""
    by_quality: dict[Quality, list[Observation]] = {"measured": [], "estimated": []}
    for o in observations:
        if o.energy_j is not None and o.energy_quality != "missing":
            by_quality[o.energy_quality].append(o)
    by_quality["measured"] = _of_one_coverage(by_quality["measured"], notes)
    measured, estimated = by_quality["measured"], by_quality["estimated"]
    enough: list[Quality] = [q for q, runs in by_quality.items() if _configurations(runs) >= least]
    if not enough:
        if measured or estimated:
            notes.append(
                f"energy is unknown: measured at {_configurations(measured)} configurations, "
                f"estimated at {_configurations(estimated)}; needed are {least} "
                "of a kind"
            )
        return "missing", []
    quality = enough[0]
    if measured and estimated:
        left_out = estimated if quality == "measured" else measured
        notes.append(
            f"only {quality} energies count; left out: {format_count(len(left_out), 'run')}"
        )
    unmetered = sum(o.energy_j is None or o.energy_quality == "missing" for o in observations)
    if unmetered:
        notes.append(f"without energy, for time only: {format_count(unmetered, 'run')}")
    return quality, by_quality[quality]


def _of_one_coverage(observations: list[Observation], notes: list[str]) -> list[Observation]:
    """Return the runs whose meter saw the same accelerators as the newest one's.

    A node's energy with its GPUs and one without are not the same quantity.
    """
    newest = coverage(observations[-1].meter) if observations else ()
    alike = [o for o in observations if coverage(o.meter) == newest]
    if len(alike) < len(observations):
        readings = format_count(len(observations) - len(alike), "reading")
        notes.append(f"left out: {readings} by a meter that sees other accelerators")
    return alike


def _configurations(observations: Sequence[Observation]) -> int:
    return len({o.configuration for o in observations})


def broken(log_mean: Mapping[Configuration, float]) -> dict[Configuration, float]:
    """Return configurations whose response stands alone, and how far off (log) it is.

    Such runs were on a disturbed node, most often. Along every axis a response is compared with
    the line between its two neighbours (in logarithms); it is broken when it is off along each of
    them, by five times what is usual and by more than 10 %. A step in one axis, which is real,
    is not broken in this sense, and what lies at the grid's edge has no such line. No model
    takes part, so that none hides its own errors; points of small sets are too far apart.
    """
    if len(log_mean) < _FEWEST_FOR_BROKEN:
        return {}
    axes = sum(len({_place(c, a) for c in log_mean}) > 1 for a in _axes_of(log_mean))
    lines = between_neighbours(log_mean)
    off = {c: [log_mean[c] - v for v in values] for c, values in lines.items()}
    least = {c: min(e, key=abs) for c, e in off.items() if len(e) == axes}
    if not least:
        return {}
    usual = 1.4826 * float(np.median(np.abs(list(least.values()))))
    return {c: e for c, e in least.items() if abs(e) > max(_BROKEN * usual, _BROKEN_AT_LEAST)}


def between_neighbours(log_mean: Mapping[Configuration, float]) -> dict[Configuration, list[float]]:
    """Return what the line between both neighbours along an axis says of each configuration.

    In logarithms, of every axis that varies; nothing of what has no neighbour on one side.
    """
    between: dict[Configuration, list[float]] = {}
    axes = _axes_of(log_mean)
    for axis in axes:
        lines: dict[tuple[int, ...], list[Configuration]] = {}
        for c in sorted(log_mean, key=lambda c: _place(c, axis)):
            rest = (_place(c, a) for a in axes if a != axis)
            lines.setdefault((c.ranks_per_node, *rest), []).append(c)
        for line in lines.values():
            for a, b, c in zip(line, line[1:], line[2:], strict=False):
                x, y, z = (math.log(max(1, _place(p, axis))) for p in (a, b, c))
                share = (y - x) / (z - x)
                between.setdefault(b, []).append((1 - share) * log_mean[a] + share * log_mean[c])
    return between


def _axes_of(configurations: Collection[Configuration]) -> tuple[str, ...]:
    """Return the axes by name, those of all runs and these runs' further ones."""
    first = next(iter(configurations), None)
    return (*_AXES, *(name for name, _ in first.extra)) if first else _AXES


def _place(c: Configuration, axis: str) -> int:
    return int(getattr(c, axis)) if axis in _AXES else dict(c.extra)[axis]
