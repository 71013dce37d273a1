"""What differs between a job without and the same job with the advisor.

`changes` are what the advisor may change: the threads of the recognised program and the cap in a
job that has its nodes for itself, the node type, and the cores of a request in a job that shares
its node. Everything else is a difference.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.law import node_type_of

from .cluster import MODELLED, law
from .pairs import Pair, Record, Tried

#: What a record holds of one job only, or of the moment; the stamp is the advisor's.
VOLATILE = frozenset(
    {
        "JobId",
        "ArrayJobId",
        "SubmitTime",
        "EligibleTime",
        "AccrueTime",
        "StartTime",
        "EndTime",
        "LastSchedEval",
        "Priority",
        "AllocNode:Sid",
        "AdminComment",
        "RunTime",
        "SuspendTime",
        "PreemptEligibleTime",
        "PreemptTime",
        "Deadline",
        "ResizeTime",
        "Scheduler",
        "Reason",
        "JobState",
    }
)
_PASSING = re.compile(
    r"(SLURM_)?ADVISOR.*|SLURM_(ARRAY_)?JOB_?ID|SLURM_JOB_(START|END)_TIME|SLURM_.*_PORT|SLURM_.*PID"
    r"|SLURM_.*IPADDR|SLURM_SRUN_COMM_.*|SLURM_TOPOLOGY_ADDR.*|SLURMD_.*|SLURM_(JOB_|STEP_)?NODELIST(_.*)?"
    r"|SLURM_CPU_BIND(_LIST)?|SBATCH_CPU_BIND(_LIST)?|SLURM_STEP_?ID|TMPDIR|HOSTNAME|_|SLURM_WORKING_CLUSTER|PMI_FD|SLURM_JOB_DEPENDENCY|BASH_FUNC.*"
)
_OF_THREADS = frozenset({"OMP_NUM_THREADS"})
_OF_CAP = frozenset({"SLURM_CPU_FREQ_REQ"})
_OF_NODE = re.compile(
    r"SLURM_CPUS_ON_NODE|SLURM_JOB_CPUS_PER_NODE(_.*)?|SLURM_JOB_CONSTRAINTS|SLURM_NODE_ALIASES"
)
_OF_CORES = re.compile(r"SLURM_CPUS_PER_TASK|SLURM_TRES_PER_TASK|" + _OF_NODE.pattern)

UNSTAMPED = "stamp: one a job -> none"
"""The difference of a job whose submission got no answer."""


@dataclass
class Verdict:
    """What differs, and what the advisor changed as it may."""

    pair: Pair
    differences: list[str] = field(default_factory=list)
    changes: set[str] = field(default_factory=set)
    moved: bool = False
    """Both were free to run on nodes of different types, and did."""

    @property
    def advised(self) -> bool:
        """Whether the advisor changed anything."""
        return bool(self.changes)

    def differs(self, what: str, off: object, on: object) -> None:
        """Note a difference."""
        self.differences.append(f"{what}: {_short(off)} -> {_short(on)}")


def compare(pair: Pair) -> Verdict:
    """Compare both submissions of a shape."""
    verdict = Verdict(pair)
    off, on = pair.off, pair.on
    _equal(verdict, "accepted", off.returncode == 0, on.returncode == 0)
    _equal(verdict, "standard error", _form(_said(off.stderr)), _form(_said(on.stderr)))
    if not pair.shape.blocking and (off.returncode or on.returncode):
        return verdict
    _equal(verdict, "standard output", _form(off.stdout), _form(on.stdout))
    if not on.has_stamps:
        verdict.differences.append(UNSTAMPED)
    _equal(verdict, "jobs submitted", len(off.submitted), len(on.submitted))
    for one, other in zip(off.submitted, on.submitted, strict=False):
        _compare_requests(verdict, one, other)
    for mine, its in zip(off.environments, on.environments, strict=False):
        _compare_environments(verdict, "environment", mine, its, kept=True)
    if [_plain(off, s) for s in off.scripts] != [_plain(on, s) for s in on.scripts]:
        verdict.differs("script", "as written", "changed")
    if pair.shape.blocking and _starts_elsewhere(verdict, off, on):
        # What srun says of a job that was cancelled as it waited has no other to be compared with.
        said = tuple(f"{what}: " for what in ("accepted", "standard error", "standard output"))
        verdict.differences = [d for d in verdict.differences if not d.startswith(said)]
    elif pair.ran:
        _compare_runs(verdict, off, on)
    return verdict


def same_records(off: Tried, on: Tried) -> bool:
    """Whether the controller knows the same of both, so that they cannot end differently."""
    return not any(
        _unlike(a, b)
        for a, b in (
            ([_record(off, r) for r in off.submitted], [_record(on, r) for r in on.submitted]),
            (
                [_settings(off, e) for e in off.environments],
                [_settings(on, e) for e in on.environments],
            ),
            ([_plain(off, s) for s in off.scripts], [_plain(on, s) for s in on.scripts]),
        )
    )


def _unlike(a: object, b: object) -> bool:
    return a != b


def _record(tried: Tried, record: Record) -> Record:
    return {k: _plain(tried, v) for k, v in record.items() if k not in VOLATILE}


def _settings(tried: Tried, environment: Mapping[str, str]) -> dict[str, str]:
    settings = {k: _plain(tried, v) for k, v in environment.items() if not _PASSING.fullmatch(k)}
    shape, distribution = tried.shape, "SLURM_DISTRIBUTION"
    if shape.via == "srun" and ":" in shape.options and distribution not in shape.environment:
        # its components start at once and share it: 4 of 30 pairs differ without the advisor, too
        settings.pop(distribution, None)
    if "SLURM_JOB_PARTITION" in settings:  # of several, the controller changes the order
        partitions = settings["SLURM_JOB_PARTITION"].split(",")
        settings["SLURM_JOB_PARTITION"] = ",".join(sorted(partitions))
    return settings


def _plain(tried: Tried, text: str) -> str:
    """Take out of a text what tells the two submissions apart, and the names of nodes."""
    text = text.replace(str(tried.folder), "DIR")
    for number in sorted(tried.ids, key=len, reverse=True):
        text = re.sub(rf"(?<!\d){number}(?!\d)", "ID", text)
    return text


def _form(text: str) -> str:
    return re.sub(r"\d+", "#", _without_nodes(text))


def _without_nodes(text: str) -> str:
    return re.sub(r"(bdw|skl|mil)[\d\[][-\d,\]]*", "NODE", text)


_CHATTER = re.compile(
    r"^((salloc|srun): (Pending|job|Granted|Relinquishing|Job|Step created|Force)"
    r"|\(null\): _log_init: Unable to open logfile).*\n?",  # a slip of slurmd 22.05
    re.M,
)
_CLOCK = re.compile(
    r"\d+m[\d.]+s|\b\d{10}\b|\d+:\d\d:\d\d"
    r"|[\d.]+user .* \S+maxresident\)k|\d+inputs\+\d+outputs .*swaps"  # time of sh
)


def _said(text: str) -> str:
    """Leave out what Slurm says of its own work, and times."""
    return _CLOCK.sub("TIME", _CHATTER.sub("", text))


def _short(value: object) -> str:
    text = str(value).strip().replace("\n", " | ")
    return text if len(text) < 200 else text[:200] + "..."


def _equal(verdict: Verdict, what: str, off: object, on: object) -> None:
    if off != on:
        verdict.differs(what, off, on)


# The request


def whole_nodes(record: Record) -> bool:
    """Whether a job has its nodes for itself, by its request or by what it got."""
    if record.get("Partition") == "oversubscribed":  # its cores are others' as well, by force
        return False
    if record.get("OverSubscribe") in ("NO", "EXCLUSIVE") or record.get("Partition") == "whole":
        return True
    cores = sum(node_type_of(n).cores for n in nodes_of(record))
    return bool(cores) and record.get("NumCPUs", "").isdigit() and int(record["NumCPUs"]) >= cores


def nodes_of(record: Record) -> list[str]:
    """Return the nodes of a record: names with ranges, as `bdw[1-2],skl1`."""
    names = []
    for prefix, ranges in re.findall(r"([a-z]+)(\d+|\[[\d,-]+\])", record.get("NodeList", "")):
        for part in ranges.strip("[]").split(","):
            first, _, last = part.partition("-")
            names += [f"{prefix}{n}" for n in range(int(first), int(last or first) + 1)]
    return names


def _tres(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _compare_requests(verdict: Verdict, off: Record, on: Record) -> None:
    """Compare what the controller took down before anything ran."""
    a, b = _record(verdict.pair.off, off), _record(verdict.pair.on, on)
    whole = whole_nodes(off)
    for name in sorted(a.keys() | b.keys()):
        mine, its = a.get(name, ""), b.get(name, "")
        if mine == its:
            continue
        if name == "Features" and not _prefers(verdict):
            verdict.changes.add("node type")
        elif name in ("CPU_min_freq", "CPU_max_freq") and (not mine or _caps_by_option(verdict)):
            verdict.changes.add("frequency cap")
        elif not whole and name in ("NumCPUs", "CPUs/Task", "MinCPUsNode"):
            verdict.changes.add("cores")
            if _count(its) > _count(mine):
                verdict.differs(f"request {name}", mine, its)
        elif not whole and name == "TRES":
            for what in _tres(mine).keys() | _tres(its).keys():
                if what not in ("cpu", "billing"):
                    _equal(verdict, f"TRES {what}", _tres(mine).get(what), _tres(its).get(what))
        else:
            verdict.differs(f"request {name}", mine, its)
    if not whole and "cores" in verdict.changes and "MinMemoryNode" not in b:
        verdict.differs("memory", "per core, as many cores", "per core, fewer cores")


def _prefers(verdict: Verdict) -> bool:
    return any(option.startswith("--prefer") for option in verdict.pair.shape.options)


def _count(text: str) -> int:
    return int(re.match(r"\d*", text)[0] or 0)  # type: ignore[index]


def _compare_environments(
    verdict: Verdict, what: str, off: Mapping[str, str], on: Mapping[str, str], *, kept: bool
) -> None:
    """Compare variables; what the user set stays, `kept` or not as the advisor may change it."""
    pair = verdict.pair
    a, b = _settings(pair.off, off), _settings(pair.on, on)
    own = pair.shape.environment
    for name in sorted(a.keys() | b.keys()):
        mine, its = a.get(name), b.get(name)
        if mine == its or (name not in own and _of_the_same_nodes(name, mine, its)):
            continue
        if name in _OF_THREADS:
            verdict.changes.add("threads")
        elif name in _OF_CAP and name not in own and ":" not in (mine or ""):
            verdict.changes.add("frequency cap")
        elif name in own or not (_follows(verdict, name) or _is_one_nodes(verdict, name, mine)):
            verdict.differs(f"{what} {name}", mine, its)


def _of_the_same_nodes(name: str, mine: str | None, its: str | None) -> bool:
    """Whether a list of Slurm's has the same nodes in another order: any may be full by chance."""
    same = sorted((mine or "").split(",")) == sorted((its or "").split(","))
    return name.startswith("SLURM_") and name.endswith("_PER_NODE") and same


def _is_one_nodes(verdict: Verdict, name: str, mine: str | None) -> bool:
    """Whether it is how many CPUs a job's only node has, to a script that starts its own ranks.

    Slurm gives it in place of a number of tasks that was not asked for. On several nodes it says
    how mpirun spreads the ranks over them.
    """
    count, tasks = "SLURM_TASKS_PER_NODE", ("-n", "--ntasks", "-c", "--cpus-per-task")
    stated = any(option.startswith(tasks) for option in verdict.pair.shape.options)
    alone = bool(re.fullmatch(r"\d+", mine or "")) and "node type" in verdict.changes
    return name == count and alone and not stated


def _follows(verdict: Verdict, name: str) -> bool:
    """Whether a variable of Slurm's follows from the nodes or cores which the job got."""
    if verdict.moved or "node type" in verdict.changes:
        return bool(_OF_NODE.fullmatch(name))
    return "cores" in verdict.changes and bool(_OF_CORES.fullmatch(name))


# The run


def _compare_runs(verdict: Verdict, off: Tried, on: Tried) -> None:
    if _starts_elsewhere(verdict, off, on):
        return
    _equal(verdict, "jobs", len(off.ended), len(on.ended))
    for one, other in zip(off.ended, on.ended, strict=False):
        _compare_jobs(verdict, one, other)
        whole = not nodes_of(other) or whole_nodes(other)
        _compare_steps(verdict, _steps(off, one), _steps(on, other), whole=whole)
        _compare_ends(verdict, one, other)
    _compare_reports(verdict, off, on)
    set_by_us = {"threads": _OF_THREADS, "frequency cap": _OF_CAP}
    ours = tuple(f"{n}=" for change in verdict.changes for n in set_by_us.get(change, ()))
    outputs = [  # sorted: lines of several nodes come in any order
        [
            sorted(
                line  # a script may print its environment
                for line in _without_nodes(_said(_plain(t, o))).splitlines()
                if not (ours and line.startswith(ours))
            )
            for o in t.outputs
        ]
        for t in (off, on)
    ]
    _equal(verdict, "output", *outputs)
    if off.returncode != on.returncode:
        verdict.differs("exit code of the command", off.returncode, on.returncode)


def _starts_elsewhere(verdict: Verdict, off: Tried, on: Tried) -> bool:
    """Whether one side alone started: its node type was changed from one that cannot be had now.

    There is no run to compare its own with.
    """
    waits = {r["JobState"] for r in off.ended} == {"PENDING"}
    return waits and "node type" in verdict.changes and all(nodes_of(r) for r in on.ended)


def _steps(tried: Tried, record: Record) -> list[Record]:
    return [s for s in tried.steps if s["JobIDRaw"].startswith(f"{record['JobId']}.")]


#: Names of one thing, which of them depends on when the controller looked.
_NO_NODES = re.compile("Priority|Resources|ReqNodeNotAvail|Nodes_required")


def _reason(record: Record) -> str:
    if record["JobState"] != "PENDING":
        return record["JobState"]
    reason = re.sub(r",.*", "", record["Reason"])
    return f"PENDING {'Resources' if _NO_NODES.match(reason) else reason}"


_OF_JOB = (
    "ExitCode",
    "DerivedExitCode",
    "Restarts",
    "QOS",
    "Account",
    "WorkDir",
    "JobName",
    "TimeLimit",
    "NtasksPerN:B:S:C",
    "Licenses",
)


def _compare_jobs(verdict: Verdict, off: Record, on: Record) -> None:
    _equal(verdict, "state", _reason(off), _reason(on))
    for name in _OF_JOB:
        mine, its = _plain(verdict.pair.off, off[name]), _plain(verdict.pair.on, on[name])
        _equal(verdict, name, mine, its)
    if whole_nodes(off):
        _equal(verdict, "CPUs/Task", off.get("CPUs/Task"), on.get("CPUs/Task"))
    if "," not in verdict.pair.off.submitted[0]["Partition"]:
        _equal(verdict, "Partition", off["Partition"], on["Partition"])
    if not nodes_of(off) or not nodes_of(on):
        return
    _equal(verdict, "nodes", len(nodes_of(off)), len(nodes_of(on)))
    _equal(verdict, "tasks", off.get("NumTasks"), on.get("NumTasks"))
    types = [sorted({node_type_of(n).name for n in nodes_of(r)}) for r in (off, on)]
    if types[0] != types[1]:
        verdict.moved = True
        if on.get("Features") == off.get("Features") or _prefers(verdict):
            return  # both were free to go anywhere
        verdict.changes.add("node type")
    elif whole_nodes(off):
        _equal(verdict, "CPUs", off["NumCPUs"], on["NumCPUs"])
    less, more = (_megabytes(_tres(r.get("TRES", "")).get("mem", "0")) for r in (off, on))
    if more < less or (more > less and types[0] == types[1]):
        verdict.differs("memory, MB", less, more)


def _megabytes(text: str) -> float:
    units = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
    match = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    return float(match[1]) * units[match[2] or "M"] if match else 0.0


def _compare_steps(
    verdict: Verdict, off: Sequence[Record], on: Sequence[Record], *, whole: bool
) -> None:
    def key(step: Record) -> tuple[str, ...]:
        return step["JobName"], step["NTasks"], step["NNodes"], step["JobIDRaw"]

    _equal(verdict, "steps", len(off), len(on))
    for one, other in zip(sorted(off, key=key), sorted(on, key=key), strict=False):
        name = f"step {one['JobIDRaw'].split('.')[-1]} ({one['JobName']})"
        for what in ("State", "ExitCode", "NTasks", "NNodes"):
            mine, its = (re.sub(r" by \d+", "", s[what]) for s in (one, other))
            _equal(verdict, f"{name} {what}", mine, its)
        _compare_step_sizes(verdict, name, one, other)
        if not one["JobIDRaw"].endswith((".batch", ".extern", ".interactive")):
            _compare_caps(verdict, name, one, other, whole=whole)


def _all_cores(step: Record) -> bool:
    nodes = nodes_of(step)
    return bool(nodes) and _count(step["NCPUS"]) >= sum(node_type_of(n).cores for n in nodes)


def _compare_step_sizes(verdict: Verdict, name: str, off: Record, on: Record) -> None:
    """CPUs stay, or stay all of the node; memory of a step never becomes less."""
    if off["NCPUS"] != on["NCPUS"] and not (_all_cores(off) and _all_cores(on)):
        smaller = "cores" in verdict.changes and _count(on["NCPUS"]) < _count(off["NCPUS"])
        if not smaller:
            verdict.differs(f"{name} CPUs", off["NCPUS"], on["NCPUS"])
    mine, its = (_megabytes(_tres(s["AllocTRES"]).get("mem", "0")) for s in (off, on))
    if its < mine and not verdict.moved:
        verdict.differs(f"{name} memory, MB", mine, its)


def _caps_by_option(verdict: Verdict) -> bool:
    shape = verdict.pair.shape
    options = [*shape.options, *(f"--{n}" for n in shape.environment)]
    return any(o.startswith(("--cpu-freq", "--SBATCH_CPU_FREQ")) for o in options)


def _compare_caps(verdict: Verdict, name: str, off: Record, on: Record, *, whole: bool) -> None:
    def cap(step: Record) -> tuple[str, str]:
        return step["ReqCPUFreqMin"], step["ReqCPUFreqMax"]

    _equal(verdict, f"{name} governor", off["ReqCPUFreqGov"], on["ReqCPUFreqGov"])
    if cap(off) == cap(on):
        return
    if not whole:
        verdict.differs(f"{name} cap where others may run", cap(off), cap(on))
    if cap(off)[1] in ("Unknown", "0", "") or _caps_by_option(verdict):
        verdict.changes.add("frequency cap")
    else:
        verdict.differs(f"{name} cap", cap(off), cap(on))


def _compare_reports(verdict: Verdict, off: Tried, on: Tried) -> None:
    """Compare what the programs themselves saw."""
    launches = [_launches(t) for t in (off, on)]
    _equal(verdict, "ranks", *([key for key, _ in side] for side in launches))
    if [key for key, _ in launches[0]] != [key for key, _ in launches[1]]:
        return
    for (key, mine), (_, its) in zip(*launches, strict=True):
        program = key[1]
        a, b = ({r["threads"] for r in side} for side in (mine, its))
        if a != b:
            if program in MODELLED:
                verdict.changes.add("threads")
            else:
                verdict.differs(f"threads of {program}", sorted(a), sorted(b))
            most = min(_bound(r) for r in its)
            if most and any(_count(r["threads"]) > most for r in its):
                verdict.differs("threads beyond the CPUs of a rank", most, sorted(b))
        _compare_workers(verdict, program, mine, its)
        bound = [sorted(_bound(r) for r in side) for side in (mine, its)]
        if not verdict.moved and "cores" not in verdict.changes:
            _equal(verdict, f"CPUs of {program}", *bound)
        first, second = (_first_rank(side) for side in (mine, its))
        _compare_environments(
            verdict, f"inside {program}", first["environment"], second["environment"], kept=False
        )
    together = [overlap(t.reports) for t in (off, on)]
    if together[0] and together[1] * 2 <= together[0]:
        verdict.differs("steps at the same time", *together)


def _compare_workers(
    verdict: Verdict, program: str, off: Sequence[Report], on: Sequence[Report]
) -> None:
    """Workers never have more threads, or on another node type no more than it has cores."""
    before, after = (max(r["workers_threads"] for r in side) for side in (off, on))
    if verdict.moved:
        before = max(before, *(node_type_of(r["node"]).cores for r in on))
    if after > before or (after < 0 <= before):
        verdict.differs(f"threads of the workers of {program}", before, after)


def _bound(report: Report) -> int:
    """Return how many CPUs Slurm bound a rank to; 0 where it does not say."""
    masks = [m for m in report["bound"].split(",") if m.startswith("0x")]
    return int(masks[_count(report["local"]) % len(masks)], 16).bit_count() if masks else 0


Report = Mapping[str, Any]
Launch = tuple[tuple[Any, ...], list[dict[str, Any]]]


def _lawful_s(tried: Tried, record: Record) -> float:
    """Return how long a job's programs with a model take as the law has it, one after the other.

    What ran at the same time counts once, by the longest of it.
    """
    launches = [
        reports
        for _, reports in _launches(tried)
        if reports[0]["program"] in MODELLED and reports[0]["job"] == record["JobId"]
    ]
    total_s, longest_s, end = 0.0, 0.0, -math.inf
    for reports in sorted(launches, key=lambda side: min(r["start"] for r in side)):
        if min(r["start"] for r in reports) >= end:
            total_s, longest_s = total_s + longest_s, 0.0
        end = max(end, *(r["end"] for r in reports))
        longest_s = max(longest_s, lawful(reports)[0])
    return total_s + longest_s


def lawful(reports: Sequence[Report]) -> tuple[float, float]:
    """Return how long one start of a program takes by the law, with the threads and cap it got, and
    the power of each of its nodes, W."""
    nodes = Counter(r["node"] for r in reports)
    node_type = node_type_of(next(iter(nodes)))
    each = _count(reports[0]["threads"]) or _bound(reports[0]) or node_type.cores
    asked = _first_rank(reports)["environment"]
    steps = re.findall(r"\d{6,}", asked.get("SLURM_CPU_FREQ_REQ", ""))
    cap_khz = min(int(steps[-1]), node_type.max_khz) if steps else node_type.max_khz
    threads = min(max(nodes.values()) * each, node_type.cores)
    return law(reports[0]["program"], node_type, len(nodes), threads, cap_khz)


def _first_rank(reports: Sequence[Report]) -> Report:
    """Return the report of the least rank: with --multi-prog rank 0 may be of another program."""
    return min(reports, key=lambda report: int(report["rank"]))


def _limit_s(record: Record) -> float:
    """Return a job's time limit, infinite where it has none."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", record["TimeLimit"])
    if match is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def _compare_ends(verdict: Verdict, off: Record, on: Record) -> None:
    """A job that would end within its time limit as it was written ends within it when advised."""
    if verdict.moved and "node type" not in verdict.changes:
        return
    before_s, after_s = _lawful_s(verdict.pair.off, off), _lawful_s(verdict.pair.on, on)
    if before_s <= _limit_s(off) and after_s > _limit_s(on):
        verdict.differs(f"time within {on['TimeLimit']}, s", round(before_s), round(after_s))


def _launches(tried: Tried) -> list[Launch]:
    """Return each start of a program: its job's place, program, ranks by node, task of an array,
    and its reports."""
    ids = tried.ids
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    single: Counter[tuple[Any, ...]] = Counter()
    for report in sorted(tried.reports, key=lambda r: r["start"]):
        # the tasks of an array, and what they submit, come in any order
        place = ids.index(report["job"]) if report["job"] in ids and not report["task"] else -1
        step = (place, report["task"], report["step"], report["program"], report["argument"])
        if report["size"] == "1" and report["rank"] == "0":
            single[step] += 1
            groups[(*step, single[step])] = [report]
        else:
            groups.setdefault((*step, 0), []).append(report)
    found = []
    for step, reports in groups.items():
        nodes = Counter(r["node"] for r in reports)
        ranks = sorted(int(r["rank"]) for r in reports)
        found.append(
            (
                (step[0], *step[3:], reports[0]["size"], ranks, sorted(nodes.values()), step[1]),
                reports,
            )
        )
    return sorted(found, key=lambda launch: (launch[0], launch[1][0]["start"]))


def overlap(reports: Sequence[Report]) -> int:
    """Return how many steps ran at the same time at most, of those that take their time."""
    long = [r for r in reports if r["rank"] == "0" and r["end"] - r["start"] > 0.5]
    return max((sum(r["start"] <= at["start"] < r["end"] for r in long) for at in long), default=0)
