"""Slurm's accounting as records: what a job asked for, took, and was metered at.

Energy is Slurm's own meter: ``ConsumedEnergyRaw`` of numbered steps, where blank and 0 both mean
that nothing was metered.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from advisor.core.cluster_name import cluster_name
from advisor.core.delivery import marked_place
from advisor.core.gpus import reported
from advisor.core.power import LEAST_W, is_possible
from advisor.core.stamp import node_cap_khz
from advisor.errors import SchedulerError
from advisor.schedulers.base import (
    JobRecord,
    JobUse,
    MeterSees,
    StepRecord,
    StepUse,
    longest_step,
)
from advisor.schedulers.slurm.control import CLUSTERS, UNFINISHED, ask, energy_plugin, time_of

FIELDS = (
    "JobID",
    "JobName",
    "User",
    "Account",
    "Partition",
    "State",
    "Submit",
    "End",
    "ElapsedRaw",
    "NNodes",
    "NCPUS",
    "NTasks",
    "NodeList",
    "ConsumedEnergyRaw",
    "ReqCPUFreqMin",
    "ReqCPUFreqMax",
    "AveCPUFreq",
    "Constraints",
    "Comment",
    "AdminComment",
    "SubmitLine",
    "TimelimitRaw",
    "QOS",
    "TotalCPU",
    "MaxRSS",
    "AveDiskRead",
    "AveDiskWrite",
    "Cluster",
    "AllocTRES",
    "SystemComment",
)
ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,RV,TO"
BRIEF_S = 2.0
"""A step shorter than this may end between two readings of its meter."""
START_S = 60.0
"""So long after a job's end its start may still reach the database; 4 s were seen."""
_DIGITS = 12
"""Of seconds, nodes and CPUs no job has as many; what has more is damaged."""

# `7_[3-5]` are tasks of an array that wait, `7+1` is a component of a heterogeneous job.
JOB_ID = re.compile(r"\d+(?:_(?:\d+|\[[^\]]*\]))?(?:\+\d+)?")
_STEP_ID = re.compile(rf"({JOB_ID.pattern})\.(\w+)(?:\+\d+)?")
_WHOLE = ("batch", "extern")
"""Steps that last as long as their job."""
_FREQ_KHZ = {"": 1.0, "K": 1.0, "M": 1e3, "G": 1e6, "T": 1e9}
_BYTES = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d{1,6})(?:,|$)")
_SEES: Mapping[str, MeterSees] = {
    "gpu": "gpus",
    "rapl": "processors",
    "ipmi": "nodes",
    "pm_counters": "nodes",
    "xcc": "nodes",
}
"""What Slurm's plugins for energy see."""
_STAMP = re.compile(r"^((?:SLURM_)?ADVISOR\w*)=(.*)$")


def records(arguments: Sequence[str]) -> list[JobRecord]:
    """Ask sacct with further arguments and return the jobs. Raises SchedulerError.

    The database may take in the end of a brief job before its start. Until then the record has no
    partition, no options and another name, and the job counts as one that has not finished.
    """
    separator = f"\x1f{secrets.token_hex(8)}\x1f"
    text = ask(
        "sacct",
        "--parsable",
        f"--delimiter={separator}",
        "--noheader",
        f"--format={','.join(FIELDS)}",
        *_of_cluster(),
        *arguments,
    )
    return [replace(r, finished=False) if _lacks_start(r) else r for r in parse(text, separator)]


def _of_cluster() -> tuple[str, ...]:
    """Return how sacct is told whose jobs to show.

    Unlike other commands it does not look at the variable; of a federation it would show all.
    """
    name = cluster_name(os.environ.get(CLUSTERS))
    return (f"--clusters={name}",) if name else ()


def _lacks_start(record: JobRecord) -> bool:
    if record.partition or not record.finished:
        return False
    try:
        ended_at = datetime.fromisoformat(record.ended_at).astimezone()
    except (ValueError, OverflowError, OSError):
        return False
    return abs((datetime.now().astimezone() - ended_at).total_seconds()) < START_S


def finished_jobs(since: str) -> list[JobRecord]:
    """Return the jobs of all users (that this one may see) that ended since an ISO 8601 time."""
    finished = [
        record
        for record in again(
            records(
                [
                    "--allusers",
                    # Else sacct leaves out every start of a requeued job but its last.
                    "--duplicates",
                    f"--starttime={_sacct_time(since)}",
                    "--endtime=now",
                    f"--state={ENDED}",
                ]
            )
        )
        if record.finished
    ]
    return _with_meter(finished)


def unfinished_jobs() -> list[JobRecord]:
    """Return the jobs of all users that wait or run, as the controller lists them.

    Only id, user, state and time of submission. Raises SchedulerError.
    """
    # --all: in partitions that are hidden from users, too
    text = ask("squeue", "--all", "--noheader", "--format=%i %u %T %V")
    rows = (line.split() for line in text.splitlines())
    return [
        JobRecord(job_id, "", user, "", state, submitted_at=time_of(submitted))
        for job_id, user, state, submitted in (row for row in rows if len(row) == 4)
    ]


def again(jobs: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the last record of each job, with how often it was started before.

    Slurm keeps a record of every start of a requeued job. Another user's job, or one of another
    name, has been given the id of an older one.
    """
    by_job: dict[tuple[str, str, str], JobRecord] = {}
    for record in sorted(jobs, key=lambda r: r.submitted_at):
        key = record.job_id, record.user, record.name
        former = by_job.get(key)
        by_job[key] = replace(record, restarts=former.restarts + 1) if former else record
    return list(by_job.values())


def _with_meter(jobs: list[JobRecord]) -> list[JobRecord]:
    """Say of jobs with GPUs what their energies are the energy of, by the plugin of now."""
    if not any(j.gpu_count or j.gpus for j in jobs):
        return jobs
    sees = _SEES.get(energy_plugin(), "")
    return [replace(j, meter_sees=sees) if j.gpu_count or j.gpus else j for j in jobs]


def job(job_id: str) -> JobRecord | None:
    """Return one job with the advisor's stamp, None when the accounting does not know it.

    Where Slurm reused a job id the latest one is returned.
    """
    if not JOB_ID.fullmatch(job_id):
        raise SchedulerError(f"{job_id!r} is not a Slurm job id")
    runs = [r for r in again(records([f"--jobs={job_id}", "--duplicates"])) if r.job_id == job_id]
    if not runs:
        return None
    latest = max(runs, key=lambda r: r.submitted_at)
    return replace(_with_meter([latest])[0], stamp=stamp(job_id))


def stamp(job_id: str) -> dict[str, str]:
    """Return the advisor's variables in a batch job's recorded environment.

    Empty where Slurm does not keep it (AccountingStoreFlags=job_env), and for some seconds after
    the job's end, since the database takes it in last. It is the user's own word.
    """
    try:
        text = ask("sacct", f"--jobs={job_id}", "--env-vars", *_of_cluster())
    except SchedulerError:
        return {}
    matches = (_STAMP.match(line) for line in text.splitlines())
    return {m[1]: m[2] for m in matches if m}


def parse(text: str, separator: str) -> list[JobRecord]:
    """Return the jobs in sacct's output, steps attached. Rows that make no sense are dropped.

    Each field ends with ``separator``, which nobody who names a job can foresee: names and
    comments may hold anything, line breaks included, and still forge no row.
    """
    jobs: list[JobRecord] = []
    latest: dict[str, int] = {}
    steps: dict[int, list[StepRecord]] = {}
    used: dict[int, list[tuple[float | None, float | None]]] = {}
    tokens = text.split(separator)
    for offset in range(0, len(tokens) - len(FIELDS) + 1, len(FIELDS)):
        row = dict(zip(FIELDS, tokens[offset : offset + len(FIELDS)], strict=True))
        name = row["JobID"].strip()
        if JOB_ID.fullmatch(name):
            latest[name] = len(jobs)
            jobs.append(_job(name, row))
            continue
        step = _STEP_ID.fullmatch(name)
        if step and step[1] in latest:
            steps.setdefault(latest[step[1]], []).append(_step(step[2], row))
            used.setdefault(latest[step[1]], []).append(_used_mb(row))
    return [
        _with_use(_with_steps(record, steps.get(i, [])), used.get(i, []))
        for i, record in enumerate(jobs)
    ]


def _used_mb(row: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Return what a step's tasks read and wrote together, and the most that one had resident."""
    parts = [_mb(row["AveDiskRead"]), _mb(row["AveDiskWrite"])]
    known_parts = [part for part in parts if part is not None]
    return sum(known_parts) * (_number(row["NTasks"]) or 1) if known_parts else None, _mb(
        row["MaxRSS"]
    )


def _with_use(record: JobRecord, used: Sequence[tuple[float | None, float | None]]) -> JobRecord:
    disk = [d for d, _ in used if d is not None]
    memory = [m for _, m in used if m]
    return replace(
        record,
        disk_mb=sum(disk) if disk and memory else None,  # without memory nothing was gathered
        memory_mb=max(memory, default=None),
    )


def _mb(text: str) -> float | None:
    """Return ``12.5M``, ``1234K`` or bytes in MB; None for blank."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)([KMGT]?)\s*", text)
    return float(match[1]) * _BYTES[match[2]] / 1e6 if match else None


def _cpu_s(text: str) -> float | None:
    """Return ``[DAYS-[HOURS:]]MINUTES:SECONDS`` in s; None for blank and 0: not gathered."""
    match = re.fullmatch(r"\s*(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\s*", text)
    if not match:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds or None


def _job(job_id: str, row: Mapping[str, str]) -> JobRecord:
    state = _state(row["State"])
    return JobRecord(
        job_id=job_id,
        name=row["JobName"],
        user=row["User"],
        account=row["Account"],
        state=state,
        finished=state not in UNFINISHED,
        submitted_at=time_of(row["Submit"]),
        ended_at=time_of(row["End"]),
        elapsed_s=_number(row["ElapsedRaw"]),
        nodes=int(_number(row["NNodes"]) or 0),
        node_list="" if row["NodeList"] == "None assigned" else row["NodeList"],
        constraint=row["Constraints"],
        comment=row["Comment"],
        admin_comment=row["AdminComment"],
        submit_line=row["SubmitLine"],
        results=marked_place(row["Comment"], row["SubmitLine"]),
        partition=row["Partition"],
        qos=row["QOS"],
        cpus=int(_number(row["NCPUS"]) or 0),
        freq_requested_khz=freq_khz(row["ReqCPUFreqMax"]),
        node_cap_khz=node_cap_khz(row["AdminComment"]),
        gpus=reported(row["SystemComment"]),
        gpu_count=int(m[1]) if (m := _GPUS.search(row["AllocTRES"])) else 0,
        time_limit_s=_limit_s(row["TimelimitRaw"]),
        cpu_s=_cpu_s(row["TotalCPU"]),
        cluster=row["Cluster"].strip(),
    )


def _step(step_id: str, row: Mapping[str, str]) -> StepRecord:
    elapsed_s, nodes = _number(row["ElapsedRaw"]), int(_number(row["NNodes"]) or 0)
    joules, impossible = metered_j(row["ConsumedEnergyRaw"], elapsed_s, nodes)
    return StepRecord(
        step_id=step_id,
        name=row["JobName"],
        state=_state(row["State"]),
        elapsed_s=elapsed_s,
        nodes=nodes,
        tasks=int(_number(row["NTasks"]) or 0),
        energy_j=joules,
        energy_impossible=impossible,
        freq_requested_khz=freq_khz(row["ReqCPUFreqMax"]),
        freq_observed_khz=freq_khz(row["AveCPUFreq"]),
        cpus=int(_number(row["NCPUS"]) or 0),
    )


def metered_j(text: str, elapsed_s: float | None, nodes: int) -> tuple[float | None, bool]:
    """Return a step's ConsumedEnergyRaw in joules, and whether its meter said what cannot be.

    None for blank, 0 and what stands for no value.
    """
    joules = _number(text)
    if not joules:
        return None, False
    if is_possible(joules, elapsed_s, nodes):
        return joules, False
    # a short step may end before its meter is read again: that is no reading
    unread = 0 < joules < LEAST_W * nodes * BRIEF_S and (elapsed_s or 0.0) < BRIEF_S
    return None, not unread


def _with_steps(record: JobRecord, steps: list[StepRecord]) -> JobRecord:
    """Sum up the numbered steps: the job's own row counts the batch step or nothing at all.

    Its frequency is the batch step's where there are none. Slurm meters a step's nodes whole: the
    extern step, which PrologFlags=Contain makes, is on all nodes of the job, the batch step on its
    first.
    """
    numbered = [s for s in steps if s.numbered]
    # Slurm counts whole seconds: a step of 0 s ran all the same.
    weights = [(s, max(s.elapsed_s or 0.0, 1.0)) for s in numbered]
    longest = max(weights, key=lambda pair: pair[1], default=None)
    weighed = weights or [(s, 1.0) for s in steps if s.step_id == "batch"]
    observed = [(s.freq_observed_khz, w) for s, w in weighed if s.freq_observed_khz]
    mean = sum(f * w for f, w in observed) / sum(w for _, w in observed) if observed else None
    whole_steps = [s for s in steps if s.step_id in _WHOLE and s.nodes == record.nodes]
    return replace(
        record,
        steps=tuple(steps),
        energy_j=total_energy_j(numbered),
        whole_energy_j=next((s.energy_j for s in whole_steps if s.energy_j), None),
        freq_requested_khz=(longest[0].freq_requested_khz if longest else None)
        or record.freq_requested_khz,
        freq_observed_khz=None if mean is None else round(mean),
    )


STEP_USE = (
    "JobName",
    "ElapsedRaw",
    "NNodes",
    "NTasks",
    "NCPUS",
    "ConsumedEnergyRaw",
    "ReqCPUFreqMax",
)
"""The columns of a step's row that :func:`step_use` takes."""
JOB_USE = (
    "JobID",
    "JobName",
    "User",
    "Account",
    "Partition",
    "State",
    "End",
    "ElapsedRaw",
    "NNodes",
    "NCPUS",
    "NodeList",
    "ReqCPUFreqMax",
    "SubmitLine",
)
"""The columns of a job's row that :func:`job_use` takes."""


def step_use(cells: Sequence[str]) -> StepUse | None:
    """Return a numbered step by its :data:`STEP_USE`, None where its counts are no numbers."""
    name, elapsed, nodes_text, tasks_text, cpus_text, energy, freq = cells
    elapsed_s, nodes = count(elapsed), count(nodes_text)
    tasks, cpus = count(tasks_text), count(cpus_text)
    if elapsed_s is None or nodes is None or tasks is None or cpus is None:
        return None
    joules, impossible = metered_j(energy, elapsed_s, nodes)
    return StepUse(name, elapsed_s, nodes, tasks, cpus, joules, impossible, freq_khz(freq))


@lru_cache(1 << 14)
def count(text: str) -> int | None:
    """Return seconds, nodes or CPUs, 0 for blank; None for what is none that a job may have."""
    if not text:
        return 0
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def job_use(cells: Sequence[str], steps: Sequence[StepUse]) -> JobUse | None:
    """Return a job by its :data:`JOB_USE` with good counts, None while it has not ended.

    As :func:`parse` does, for a million jobs: no times, no limits, nothing of ours.
    """
    job_id, name, user, account, partition, state_text, ended_at = cells[:7]
    elapsed_s, nodes, cpus, node_list, freq, submit_line = cells[7:]
    state = _state(state_text)
    if state in UNFINISHED:
        return None
    longest = longest_step(steps)
    cap_khz = longest.freq_requested_khz if longest is not None else None
    return JobUse(
        job_id,
        name,
        user,
        account,
        partition,
        state,
        ended_at,
        float(elapsed_s or 0),
        int(nodes or 0),
        int(cpus or 0),
        node_list,
        total_energy_j(steps),
        cap_khz or freq_khz(freq),
        submit_line,
        steps,
    )


def total_energy_j(steps: Sequence[StepRecord | StepUse]) -> float | None:
    """Return the energy of numbered steps together, None when it is not known.

    A step without energy makes the sum unknown, unless it was too short to be metered.
    """
    total = 0.0
    for step in steps:
        if step.energy_j is not None:
            total += step.energy_j
        elif (step.elapsed_s or 0.0) >= BRIEF_S:
            return None
    return total or None


@lru_cache(1024)
def freq_khz(text: str) -> int | None:
    """Return ``1.20G``, ``2200M`` or ``1200000K`` in kHz; None for blank, 0, Unknown and names."""
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,12})?)([KMGT]?)\s*", text)
    value = round(float(match[1]) * _FREQ_KHZ[match[2]]) if match else 0
    return value or None


def _limit_s(text: str) -> float | None:
    """Return a time limit of so many minutes in s; None for UNLIMITED and Partition_Limit."""
    return 60.0 * int(text) if text.strip().isdecimal() else None


def _number(text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError:
        return None


@lru_cache(1024)
def _state(text: str) -> str:
    """Return a state without its tail: ``CANCELLED by 1000`` is CANCELLED."""
    words = text.split()
    return words[0].rstrip("+") if words else ""


def _sacct_time(since: str) -> str:
    """Return an ISO 8601 time as sacct is asked: in UTC, without a zone, never in the future."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as error:
        raise SchedulerError(f"{since!r} is not a time like 2026-01-31T12:00") from error
    moment = min(moment.astimezone(UTC), datetime.now(UTC) - timedelta(seconds=1))
    return moment.strftime("%Y-%m-%dT%H:%M:%S")
