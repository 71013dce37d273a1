"""PBS's jobs as records: what a job asked for, took, and what its nodes used.

Finished jobs are known as long as the server keeps them (``job_history_enable``). Energy and the
cap that held come from the advisor's execution hook: ``energy_j`` of every node added up, and
``energy_nodes``, on how many of them it was measured. ``advisor_gpus`` tells by node what GPUs that
were set had and took.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from advisor.core.delivery import VARIABLE, marked_place
from advisor.core.gpus import GpuUse, uses_of
from advisor.core.power import is_possible
from advisor.errors import SchedulerError
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.schedulers.pbs import control as pbs_control
from advisor.schedulers.pbs.chunks import Place, asked, has_host_alone
from advisor.schedulers.pbs.inventory import Host, read_hosts

_ID = re.compile(r"(\d+(?:\[\d*\])?)(?:\.[\w.-]+)?")
_STATES = {
    "Q": "PENDING",
    "H": "PENDING",
    "W": "PENDING",
    "T": "PENDING",
    "M": "PENDING",
    "R": "RUNNING",
    "B": "RUNNING",
    "E": "COMPLETING",
    "S": "SUSPENDED",
    "U": "SUSPENDED",
}
# X is a task of an array that has ended while its array goes on.
FINISHED = ("F", "X")
_WROTE, _ALTERED = "+wrote:", "+altered"
"""Behind the stamp, as the queuejob hook writes them."""
# JOB_SUBSTATE_TERMINATED and JOB_EXEC_KILL_WALLTIME of OpenPBS's headers.
_TERMINATED = "91"
_OVER_WALLTIME = "-29"
_WALLTIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+)")
_FORM = "%Y-%m-%dT%H:%M:%SZ"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
TIMEOUT_S = 300.0
"""Seconds that qstat may take for all ended jobs of a large site."""


def short_id(job_id: str) -> str:
    """Return a job's id without its server: ``12``, ``9[3]``. Raises SchedulerError."""
    match = _ID.fullmatch(job_id.strip())
    if not match:
        raise SchedulerError(f"{job_id!r} is not a PBS job id")
    return match[1]


def finished_jobs(since: str) -> list[JobRecord]:
    """Return the jobs of all users (that this one may see) that ended since an ISO 8601 time.

    The tasks of an array are jobs of their own, the array is none.
    """
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as error:
        raise SchedulerError(f"{since!r} is not a time like 2026-01-31T12:00") from error
    records = []
    # -x: ended ones, as long as the server keeps them; -t: the tasks of arrays
    jobs = read_jobs("-x", "-t")
    host_table = hosts_by_name() if jobs else None
    for job_id, attributes in jobs.items():
        record = record_of(job_id, attributes, host_table)
        if record is None or record.job_id.endswith("[]") or not record.finished:
            continue
        if record.ended_at and datetime.fromisoformat(record.ended_at) >= moment.astimezone(UTC):
            records.append(record)
    return records


def unfinished_jobs() -> list[JobRecord]:
    """Return the jobs of all users that wait or run. Raises SchedulerError."""
    records = (record_of(job_id, attributes) for job_id, attributes in read_jobs().items())
    return [record for record in records if record is not None and not record.finished]


def job(job_id: str) -> JobRecord | None:
    """Return one job, None when the server does not know it (any more)."""
    try:
        jobs = read_jobs("-x", short_id(job_id))
    except SchedulerError as error:
        if "Unknown Job Id" in str(error) or "has finished" in str(error):
            return None
        raise
    for name, attributes in jobs.items():
        return record_of(name, attributes, hosts_by_name())
    return None


def hosts_by_name() -> dict[str, Host] | None:
    """Return what PBS says of hosts, None where it does not."""
    try:
        hosts = read_hosts(pbs_control.ask_json("pbsnodes", "-a", "-v", timeout_s=TIMEOUT_S))
    except SchedulerError:
        return None
    return {host.name.partition(".")[0]: host for host in hosts}


def read_jobs(*arguments: str) -> dict[str, dict[str, Any]]:
    """Return jobs' attributes by id, from ``qstat -f``.

    Only one id may be named: of several, qstat's JSON has the first alone. Where its JSON is
    broken (releases before 2021 do not escape what users write) the text is read instead.
    """
    try:
        data = pbs_control.ask_json("qstat", "-f", *arguments, timeout_s=TIMEOUT_S)
    except SchedulerError as error:
        if "no JSON" not in error.message:
            raise
        return parse_text(pbs_control.ask("qstat", "-f", *arguments, timeout_s=TIMEOUT_S))
    jobs = data.get("Jobs")
    return {k: v for k, v in jobs.items() if isinstance(v, dict)} if isinstance(jobs, dict) else {}


def parse_text(text: str) -> dict[str, dict[str, Any]]:
    """Return the jobs of ``qstat -f``'s text, in the form of its JSON."""
    jobs: dict[str, dict[str, Any]] = {}
    attributes: dict[str, Any] = {}
    # qstat breaks long values: what goes on begins with a tab.
    for line in re.sub(r"\n\t", "", text).splitlines():
        if line.startswith("Job Id: "):
            attributes = jobs.setdefault(line[8:].strip(), {})
        elif match := re.match(r"    ([\w.]+) = (.*)$", line):
            name, _, resource = match[1].partition(".")
            if resource:
                attributes.setdefault(name, {})[resource] = match[2]
            elif name == "Variable_List":
                # A comma inside of a value has a backslash before it.
                pairs = (p.partition("=") for p in re.split(r"(?<!\\),", match[2]))
                attributes[name] = {k: v for k, _, v in pairs}
            else:
                attributes[name] = match[2]
    return jobs


def record_of(
    job_id: str, a: Mapping[str, Any], inventory: Mapping[str, Host] | None = None
) -> JobRecord | None:
    """Return a job's record, None for attributes that make no sense.

    ``inventory``: what is known of hosts, by name; None where nothing is.
    """
    match = _ID.fullmatch(job_id)
    if not match:
        return None
    wants, used = _texts(a.get("Resource_List")), _texts(a.get("resources_used"))
    hosts = _hosts(str(a.get("exec_host") or ""))
    state = _state(a)
    seconds = _seconds(used.get("walltime", ""))
    record = JobRecord(
        job_id=match[1],
        name=str(a.get("Job_Name") or ""),
        user=str(a.get("Job_Owner") or "").partition("@")[0],
        account=str(a.get("Account_Name") or ""),
        state=state,
        finished=a.get("job_state") in FINISHED,
        submitted_at=_time(a.get("ctime")),
        # Releases without obittime tell when the job went into the history.
        ended_at=_time(a.get("obittime")) or _time(a.get("history_timestamp")),
        elapsed_s=seconds,
        nodes=len(hosts),
        node_list=",".join(hosts),
        partition=str(a.get("queue") or ""),
        cpus=_number(wants.get("ncpus")),
        comment=str(a.get("comment") or ""),
        admin_comment=wants.get("advisor_stamp", ""),
        results=marked_place(f"{VARIABLE}={variables(a).get(VARIABLE, '')}"),
        submit_line=f"qsub {a['Submit_arguments']}" if a.get("Submit_arguments") else "",
        whole_nodes=_whole_nodes(wants, used, hosts, inventory),
        freq_requested_khz=_number(wants.get("cpu_freq_mhz")) * 1000 or None,
        time_limit_s=_seconds(wants.get("walltime", "")),
        restarts=max(0, _number(a.get("run_count")) - 1),
        cpu_s=_seconds(used.get("cput", "")) or None,
        memory_mb=_kb(used.get("mem", "")) / 1e3 or None,
        altered=_altered_request(wants),
        gpus=_gpus(used.get("advisor_gpus", "")),
        gpu_count=_number(wants.get("ngpus")),
    )
    if not (record.finished and hosts and seconds is not None):
        return record
    return _with_step(record, wants, used, variables(a).get("ADVISOR_SET", ""))


def _whole_nodes(
    wants: Mapping[str, str],
    used: Mapping[str, str],
    hosts: Sequence[str],
    inventory: Mapping[str, Host] | None,
) -> bool | None:
    """Tell whether a job had its hosts for itself, None where its cores tell.

    The execution hook, which was there, goes before what place and sharing say now.
    """
    try:
        place = Place.parse(wants.get("place", ""))
    except ValueError:
        return None
    if hosts and _number(used.get("energy_nodes")) == len(hosts):
        return True
    job_hosts = [(inventory or {}).get(name.partition(".")[0]) for name in hosts]
    alone = [
        has_host_alone(place, host.sharings if host else (), parted=host.parted if host else False)
        for host in job_hosts
    ]
    return (bool(alone) and all(alone)) or None


def _altered_request(wants: Mapping[str, str]) -> str:
    """Return what of a job is not as the queuejob hook left it, "" where that wrote nothing.

    Where PBS has no postqueuejob event, the job's own request tells of a later hook.
    """
    _, mark, text = wants.get("advisor_stamp", "").partition(_WROTE)
    try:
        hook_values = json.loads(text.removesuffix(_ALTERED))["left"] if mark else {}
        changed = [n for n in sorted(hook_values) if wants.get(n, hook_values[n]) != hook_values[n]]
        if not changed and mark and "select" not in hook_values and "nodes" not in hook_values:
            chunks = asked({"select": wants.get("select", "")})  # by the server
            ranks = int(
                hook_values.get("mpiprocs") or chunks.mpiprocs if "mpiprocs" in wants else 1
            )
            changed = ["select"] if chunks.several or chunks.mpiprocs != ranks else []
    except (ValueError, KeyError, TypeError, AttributeError):
        return "request"
    if not changed and text.endswith(_ALTERED):
        return "request"
    return ", ".join(changed)


def _with_step(
    record: JobRecord, wants: Mapping[str, str], used: Mapping[str, str], hook_variables: str
) -> JobRecord:
    """Add what the job's one run was: PBS knows of no steps.

    ``hook_variables`` are the variables that the hook set.
    """
    nodes = record.nodes
    energy_j = _joules(used.get("energy_j"))
    if _number(used.get("energy_nodes")) != nodes:
        energy_j = None  # some node could not tell its part
    impossible = energy_j is not None and not is_possible(energy_j, record.elapsed_s, nodes)
    if impossible:
        energy_j = None
    observed_khz, cap = None, record.freq_requested_khz
    if cap and "cpu_freq_mhz" in used:
        # PBS adds up what the hook says on each node.
        observed_khz = round(_number(used["cpu_freq_mhz"]) * 1000 / nodes)
        if observed_khz < cap * (1 - 0.5 / nodes):  # not all of its nodes were capped
            record = replace(record, freq_requested_khz=None)
            observed_khz = None
    try:
        chunks = asked(wants)
        tasks, cpus = chunks.count * chunks.mpiprocs, chunks.count * chunks.ncpus
        threads = _number(hook_variables.rpartition("=")[2]) or chunks.threads_per_rank
        if chunks.several:
            tasks = cpus = threads = 0
    except ValueError:
        tasks = cpus = threads = 0
    step = StepRecord(
        "0",
        "",  # of which program is not known
        record.state,
        record.elapsed_s,
        nodes,
        tasks,
        energy_j,
        record.freq_requested_khz,
        observed_khz,
        cpus,
        threads,
        impossible,
    )
    return replace(record, energy_j=energy_j, freq_observed_khz=observed_khz, steps=(step,))


def _gpus(text: str) -> tuple[GpuUse, ...]:
    """Return what nodes said of a job's GPUs; () for nothing, and for what makes no sense."""
    try:
        # PBS joins the texts of a job's nodes into one JSON object, which it quotes.
        nodes = json.loads(text.strip("'")) if text else {}
    except (ValueError, RecursionError):
        return ()
    named = nodes.items() if isinstance(nodes, dict) else ()
    return uses_of((n[:64], devices) for n, devices in named if isinstance(devices, str))


def _state(a: Mapping[str, Any]) -> str:
    letter = str(a.get("job_state") or "")
    if letter not in FINISHED:
        return _STATES.get(letter, "PENDING")
    code = str(a.get("Exit_status", ""))
    if str(a.get("substate")) == _TERMINATED:
        return "CANCELLED"
    if code == _OVER_WALLTIME:
        return "TIMEOUT"
    return "COMPLETED" if code == "0" else "FAILED" if code else "CANCELLED"


def _hosts(exec_host: str) -> list[str]:
    """Return the hosts of ``n1/0*28+n2/0*28``, each once."""
    names = (part.partition("/")[0].strip("()") for part in exec_host.split("+"))
    return list(dict.fromkeys(n for n in names if n))


def _texts(value: object) -> dict[str, str]:
    """Return texts; qstat's JSON has one that is JSON itself as such."""
    items = value.items() if isinstance(value, dict) else ()
    return {str(k): json.dumps(v) if isinstance(v, dict) else str(v) for k, v in items}


def _number(text: str | None) -> int:
    try:
        return max(0, int(float(text or 0)))
    except (ValueError, OverflowError):
        return 0


def _joules(text: str | None) -> float | None:
    """Return an energy as it stands; None for none, 0 and what is no number."""
    try:
        return float(text or 0) or None
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    match = _WALLTIME.fullmatch(text.strip())
    if not match:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float((hours * 60 + minutes) * 60 + seconds)


def _kb(text: str) -> float:
    """Return memory as PBS writes it, ``1234kb``; 0 for anything else."""
    match = re.fullmatch(r"(\d+)kb", text.strip())
    # PBS's kb are 1024 bytes, ours 1000.
    return float(match[1]) * 1.024 if match else 0.0


def _time(value: object) -> str:
    """Return the time that PBS's clients print in UTC, or seconds since 1970, as ISO 8601.

    "" for neither. The clients are asked in UTC, since they name no zone.
    """
    text = str(value or "")
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC).strftime(_FORM)
        _, month, day, clock, year = text.split()
        return datetime.fromisoformat(
            f"{int(year):04d}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}T{clock}"
        ).strftime(_FORM)
    except (ValueError, OverflowError, OSError):
        return ""


def variables(a: Mapping[str, Any]) -> dict[str, str]:
    """Return a job's variables."""
    return _texts(a.get("Variable_List"))
