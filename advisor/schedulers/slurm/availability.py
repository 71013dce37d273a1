"""Read from Slurm what jobs can have now: nodes, partitions, reservations, limits.

Standard library only. Nodes, partitions, reservations and settings come from the controller by
``scontrol``; limits from the accounting database by ``sacctmgr``, as they hold for each user
with all that lies above.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from glob import glob
from itertools import chain

from advisor.core.availability import Bounds, JobLimits, PartitionState, account_in
from advisor.core.cluster_name import cluster_name
from advisor.core.nodelist import expand
from advisor.core.units import parse_memory_mb
from advisor.errors import SchedulerError
from advisor.schedulers.node_state import FOR_EVER_S, TIMEOUT_S, NodeReading, NodeState
from advisor.schedulers.slurm.control import ask
from advisor.schedulers.slurm.inventory import records
from advisor.schedulers.slurm.table import parse_limit
from advisor.schedulers.slurm.translator import (
    BINDING_SETTINGS,
    CPUSET_SETTINGS,
    PROLOG_SETTINGS,
)

_READY = frozenset({"CLOUD", "DYNAMIC_NORM", "PERFCTRS"})
"""Flags of an idle node that jobs may have at once."""
_BUSY = frozenset({"IDLE", "ALLOCATED", "MIXED"})
_LOST = frozenset(
    {"DRAIN", "FAIL", "NOT_RESPONDING", "INVALID_REG", "INVAL", "FUTURE", "UNKNOWN", "BLOCKED"}
)
_HIDING = ("nodes", "partitions", "reservations")
_ASSOC = (
    "Account",
    "User",
    "ParentName",
    "QOS",
    "DefaultQOS",
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
    "MaxTRES",
    "MaxTRESPerNode",
    "MaxTRESMins",
    "Partition",
    "MaxWall",
)
_USER = ("User", "DefaultAccount")
_QOS = (
    "Name",
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
    "MaxTRES",
    "MaxTRESPerNode",
    "MaxTRESMins",
    "MaxTRESPA",
    "MaxTRESPU",
    "MaxTRESRunMinsPA",
    "MaxTRESRunMinsPU",
    "MinTRES",
    "MaxWall",
)
_NORMAL = "normal"
_OF_A_JOB = ("MaxTRES", "MaxTRESPerNode")
_COUNTED = re.compile(r"(?:^|,)(cpu|mem|billing)=([^,]+)")
"""What a larger node has more of; licences, GPUs and other resources do not change with it."""


def read() -> NodeReading:
    """Return what nodes and partitions do now. Raises SchedulerError."""
    settings = parse_settings(_scontrol("config"))
    _check_seen(settings)
    now_s = time.time()
    nodes = parse_nodes(
        _scontrol("node"), parse_reservations(_scontrol("reservation"), now_s), now_s
    )
    if not nodes:
        raise SchedulerError("Slurm has no nodes", hint="see: scontrol show node")
    partitions = parse_partitions(_scontrol("partition"), settings)
    binding = {name: settings.get(name, "") for name in (*BINDING_SETTINGS, *CPUSET_SETTINGS)}
    return NodeReading(
        tuple(nodes),
        partitions,
        settings=binding | prolog_settings(settings),
        cluster=cluster_name(settings.get("ClusterName")).lower(),
    )


def read_limits() -> JobLimits:
    """Return the limits of associations and QOS, as far as Slurm enforces any.

    Raises SchedulerError where accounting cannot be asked.
    """
    settings = parse_settings(_scontrol("config"))
    # Without it the database has limits that the controller holds no job to.
    if "limits" not in settings.get("AccountingStorageEnforce", "").lower().split(","):
        return JobLimits(enforced=False)
    cluster = f"cluster={settings.get('ClusterName', '')}"
    return parse_limits(
        _sacctmgr("assoc", _ASSOC, cluster),
        _sacctmgr("qos", _QOS),
        _sacctmgr("user", _USER, cluster),
    )


def _scontrol(what: str) -> str:
    # --all: partitions that are hidden from users start jobs, too
    return ask("scontrol", "--all", "--oneliner", "show", what, timeout_s=TIMEOUT_S)


def _sacctmgr(what: str, fields: Iterable[str], *where: str) -> str:
    command = ["sacctmgr", "--noheader", "--parsable2", "--readonly", "show", what, *where]
    try:
        command.append(f"format={','.join(fields)}")
        return ask(*command, timeout_s=TIMEOUT_S)
    except SchedulerError as error:
        raise SchedulerError(
            error.message,
            hint="the daemon's user must be able to run sacctmgr show assoc for everybody",
        ) from None


def _check_seen(settings: Mapping[str, str]) -> None:
    """Refuse to go on where Slurm hides nodes or reservations from this user."""
    hidden = [w for w in settings.get("PrivateData", "").lower().split(",") if w in _HIDING]
    owner = settings.get("SlurmUser", "").partition("(")[0]
    uid = os.geteuid()
    if hidden and uid != 0 and f"({uid})" not in settings.get("SlurmUser", ""):
        raise SchedulerError(
            f"Slurm hides {', '.join(hidden)} from user {uid} (PrivateData)",
            hint=f"run the daemon as root or {owner or 'SlurmUser'}",
        )


def parse_settings(text: str) -> dict[str, str]:
    """Return ``scontrol show config`` by key; what is not set is "".

    Of a key with several values (``Prolog[0]``) they stand behind each other, with commas.
    """
    settings: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"(\w+)(\[\d+\])?\s*=\s*(.*)$", line)
        if match:
            name, value = match[1], match[3].strip()
            value = "" if value in ("(null)", "N/A", "UNLIMITED", "Unknown") else value
            former = settings.get(name) if match[2] else ""
            settings[name] = f"{former},{value}" if former else value
    return settings


def prolog_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what says whether nodes cap whole jobs, the patterns of programs expanded here."""
    named = {name: settings.get(name, "") for name in PROLOG_SETTINGS}
    for name in ("Prolog", "Epilog"):
        files = (sorted(glob(word)) or [word] for word in named[name].split(","))  # noqa: PTH207
        named[name] = ",".join(chain.from_iterable(files))
    return named


# -- nodes ---------------------------------------------------------------------------------------


def parse_reservations(text: str, now_s: float) -> dict[str, float]:
    """Return from when on (seconds since 1970) each reserved node is kept from other jobs.

    The time has passed where a reservation holds already; it is -inf where it holds for so long
    that the node counts as lost. Jobs that name a reservation are bound to its nodes: for all
    others any reservation is in the way, also one that their user may use.
    """
    starts: dict[str, float] = {}
    for fields in records(text, "ReservationName"):
        begin, end = _moment(fields.get("StartTime", "")), _moment(fields.get("EndTime", ""))
        if end <= now_s or not fields.get("Nodes"):
            continue
        if begin <= now_s and end - now_s > FOR_EVER_S:
            begin = -math.inf
        try:
            names = expand(fields["Nodes"])
        except ValueError as error:
            raise SchedulerError(f"scontrol show reservation: {error}") from None
        for name in names:
            starts[name] = min(begin, starts.get(name, math.inf))
    return starts


def _moment(text: str) -> float:
    """Return a time as scontrol writes it, in seconds since 1970; infinity for none."""
    if text.isdecimal():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.inf


def parse_nodes(text: str, blocked: Mapping[str, float], now_s: float) -> list[NodeState]:
    """Return the nodes of ``scontrol --oneliner show node``; see :func:`parse_reservations`."""
    states = []
    for fields in records(text, "NodeName"):
        name, until = fields["NodeName"], blocked.get(fields["NodeName"], math.inf)
        base, *flags = fields.get("State", "").split("+")
        usable = base in _BUSY and _LOST.isdisjoint(flags) and until > -math.inf
        idle = usable and base == "IDLE" and _READY.issuperset(flags) and until > now_s
        states.append(
            NodeState(
                name,
                tuple(p for p in fields.get("Partitions", "").split(",") if p),
                tuple(f for f in fields.get("ActiveFeatures", "").split(",") if f),
                idle,
                usable,
                until,
            )
        )
    return states


# -- partitions ----------------------------------------------------------------------------------

_FORCED = re.compile("FORCE(?!:1$).*")
"""Cores of every job are others', too, --exclusive or not; FORCE:1 lets one job on each."""


def parse_partitions(text: str, settings: Mapping[str, str]) -> dict[str, PartitionState]:
    """Return the partitions of ``scontrol --oneliner show partition``.

    Memory per CPU or node that a partition does not state is the cluster's.
    """
    whole_nodes = settings.get("SelectType", "").endswith("/linear")
    consumable = "MEMORY" in settings.get("SelectTypeParameters", "").upper()
    partitions = {}
    for record in records(text, "PartitionName"):
        fields = {k: "" if v in ("UNLIMITED", "NONE") else v for k, v in record.items()}
        # Slurm takes one of the two; a partition's own replaces either of the cluster's.
        own_memory = {k for k in ("DefMemPerCPU", "DefMemPerNode") if fields.get(k)}
        cpus = (fields.get("MaxCPUsPerNode"), fields.get("MaxCPUsPerSocket"))
        memory = (fields.get("MaxMemPerNode"), settings.get("MaxMemPerNode"))
        sharing = fields.get("OverSubscribe", "")
        partitions[fields["PartitionName"]] = PartitionState(
            up=fields.get("State") == "UP",
            whole_nodes=whole_nodes or sharing.startswith("EXCLUSIVE"),
            shared_cores=f"OverSubscribe={sharing}" if _FORCED.fullmatch(sharing) else "",
            time_limit_s=_time_limit(fields),
            most=(_smallest(cpus), _smallest(memory)),
            qos=fields.get("QoS", ""),
            default=fields.get("Default") == "YES",
            default_memory_mb=_default_memory(
                fields if own_memory else settings, consumable=consumable
            ),
        )
    return partitions


def _smallest(texts: Iterable[str | None]) -> int:
    """Return the smallest number, 0 when there is none."""
    return min((int(t) for t in texts if t and t.isdecimal()), default=0)


def _default_memory(stated: Mapping[str, str], *, consumable: bool) -> tuple[float, float] | None:
    """Return what a job gets that states no memory, in MB per node and per CPU.

    Both are 0 where it gets all that its node has: where nothing states a default, and where Slurm
    does not hand out memory at all.
    """
    if not consumable:
        return 0.0, 0.0
    try:
        per_node, per_cpu = (float(stated.get(k) or 0) for k in ("DefMemPerNode", "DefMemPerCPU"))
    except ValueError:
        return None
    return per_node, 0.0 if per_node else per_cpu


def _time_limit(fields: Mapping[str, str]) -> float | None:
    """Return the time limit of a job that states none, None where it is not understood."""
    text = fields.get("DefaultTime") or fields.get("MaxTime") or "UNLIMITED"
    try:
        return _limit(text)
    except ValueError:
        return None


def _limit(text: str) -> float:
    limit = parse_limit(text)
    return math.inf if limit is None else float(limit)


# -- limits --------------------------------------------------------------------------------------


def parse_limits(associations: str, qos: str, users: str = "") -> JobLimits:
    """Return the limits of ``sacctmgr show assoc``, ``show qos`` and ``show user``.

    They are on cores, memory, billing and time. An association has the limits of all that lie above
    it too. Of a user's several associations in one account, those of a partition hold there.
    """
    lines = [dict(zip(_ASSOC, line.split("|"), strict=False)) for line in associations.splitlines()]
    parents = {a["Account"]: a.get("ParentName", "") for a in lines if not a.get("User")}
    account_bounds: defaultdict[str, Bounds] = defaultdict(Bounds)
    for fields in lines:
        if not fields.get("User"):
            account = fields["Account"]
            account_bounds[account] = _joined(
                account_bounds[account], _bounds(fields, f"account {account}")
            )
    by_user: defaultdict[str, dict[str, Bounds]] = defaultdict(dict)
    for fields in lines:
        user, account = fields.get("User", ""), fields["Account"]
        if not user:
            continue
        bounds = replace(
            _bounds(fields, f"{user}'s association with {account}"), qos=_default_qos(fields)
        )
        for name in _ancestors(account, parents):
            bounds = _joined(bounds, account_bounds[name])
        partition = fields.get("Partition", "")
        by_user[user][account_in(account, partition) if partition else account] = bounds
    pairs = (line.split("|") for line in users.splitlines())
    accounts = {pair[0]: pair[1] for pair in pairs if len(pair) > 1 and pair[1]}
    return JobLimits(dict(by_user), parse_qos(qos), default_accounts=accounts)


def _default_qos(fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the QOS of a job that names none; all that it may have where that is not known.

    As Slurm takes it: the association's default, else its only one, else ``normal``.
    """
    if default := fields.get("DefaultQOS"):
        return (default,)
    names = tuple(name.lstrip("+") for name in fields.get("QOS", "").split(",") if name)
    return (_NORMAL,) if _NORMAL in names else names


def _joined(a: Bounds, b: Bounds) -> Bounds:
    """Return the bounds of both."""
    return Bounds(
        tuple(dict.fromkeys((*a.job, *b.job))),
        tuple(dict.fromkeys((*a.most, *b.most))),
        tuple(dict.fromkeys((*a.least, *b.least))),
        tuple(dict.fromkeys((*a.qos, *b.qos))),
        min(a.wall_s, b.wall_s),
    )


def _ancestors(account: str, parents: Mapping[str, str]) -> list[str]:
    """Return an account and those above it, the nearest first."""
    ancestors: list[str] = []
    while account and account not in ancestors:
        ancestors.append(account)
        account = parents.get(account, "")
    return ancestors


def parse_qos(text: str) -> dict[str, Bounds]:
    """Return the bounds of ``sacctmgr show qos``, by name."""
    by_name = {}
    for line in text.splitlines():
        fields = dict(zip(_QOS, line.split("|"), strict=False))
        by_name[fields["Name"]] = _bounds(fields, f"QOS {fields['Name']}")
    return by_name


def _bounds(fields: Mapping[str, str], where: str) -> Bounds:
    job: list[tuple[str, float, float, bool]] = []
    most: list[str] = []
    least: list[str] = []
    for key, value in fields.items():
        for resource, amount in _COUNTED.findall(value) if "TRES" in key else ():
            text = f"{key}={resource}={amount} of {where}"
            if key == "MinTRES":
                least.append(text)
            elif key in _OF_A_JOB and resource in ("cpu", "mem"):
                size = parse_memory_mb(amount) if resource == "mem" else float(amount)
                cpus, memory = (size, math.inf) if resource == "cpu" else (math.inf, size)
                job.append((text, cpus, memory, key == "MaxTRESPerNode"))
            else:
                most.append(text)
    wall_s = _limit(fields.get("MaxWall") or "UNLIMITED")
    return Bounds(tuple(job), tuple(most), tuple(least), wall_s=wall_s)
