"""What a job asks for, in the words of no particular scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from advisor.core.axes import AxisWriting, writings_of
from advisor.core.cache_key import keyed_as, not_keyed
from advisor.core.gpus import GpusAsked
from advisor.core.protocol import PREFIXES
from advisor.core.script import without_sourced

_SENDER = not_keyed("of who asks and what for: the policy that holds for that is in the key")
_READ = not_keyed("of the program: how it uses its cores, and its threads, are in the key")
_PLACES = not_keyed("of where it may run: the node types it may land on are in the key")
_BINDS = not_keyed("of what is bound: why an axis is kept, and the cap, are in the key")
_LIMIT = not_keyed("of the time limit: the limit that rules something out is in the key")
_WRITTEN = not_keyed("a choice is written after it was made")
_WHOLE = not_keyed("of how tasks lie on nodes: whether the job has whole nodes is in the key")
_GPUS = not_keyed("of the GPUs: which of their axes may change is in the key")
_TRIALS = not_keyed("a trial is taken or not after the choice was made")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A submission as a hook saw it, normalised by the scheduler's adapter.

    None means: not asked for. ``explicit`` names the axes the user fixed: a subset of
    ``frequency``, ``threads``, ``ranks``, ``node_type``, ``nodes``. ``environment`` holds only
    what the hook sent (``ADVISOR_*``, ``OMP_NUM_THREADS``). A field without ``metadata`` is part of
    the key that a choice is remembered by (:mod:`advisor.core.cache_key`).
    """

    scheduler: str = field(metadata=_SENDER)
    hook: str = field(metadata=_SENDER)
    user: str = field(metadata=_SENDER)
    uid: int = field(metadata=_SENDER)
    cluster: str = field(default="", metadata=_PLACES)
    """The cluster it is submitted to, "" where that is not known or not one alone."""
    kind: str = field(default="batch", metadata=_READ)
    """``batch``, ``run`` (a command: srun, qsub --), ``allocate`` (salloc, qsub -I) or ``step``."""
    account: str = field(default="", metadata=_SENDER)
    partition: str = field(default="", metadata=_PLACES)
    qos: str = field(default="", metadata=_SENDER)
    job_name: str = field(default="", metadata=_SENDER)
    script: str | None = field(default=None, metadata=_READ)
    script_path: str = field(default="", metadata=_READ)
    script_truncated: bool = field(default=False, metadata=_READ)
    command: tuple[str, ...] = field(default=(), metadata=_READ)
    submit_line: str = field(default="", metadata=_READ)
    """The words after the submit command, for site rules where the script cannot be read."""
    fingerprint: str = field(default="", metadata=_READ)
    """Digest of the script, where only an excerpt of it was sent."""
    options: Mapping[str, str] = field(default_factory=dict, metadata=_WRITTEN)
    """The scheduler's own options, where writing a choice back needs them."""
    host_resources: tuple[str, ...] = field(default=(), metadata=_WRITTEN)
    """PBS: names of the site's own resources that belong to a host."""
    completed: Mapping[str, str] = field(default_factory=dict, metadata=_WRITTEN)
    """PBS: the options with what the server fills in, where that is known and differs."""
    node_types: tuple[str, ...] | None = field(default=None, metadata=_PLACES)
    """PBS: names of the node types with a node that has all that ``constraint`` asks for; None
    where nothing is known of the nodes."""
    environment: Mapping[str, str] = field(
        default_factory=dict, metadata=keyed_as(lambda sent: sent.get("OMP_NUM_THREADS"))
    )
    choices: Mapping[str, object] = field(default_factory=dict, metadata=_READ)
    explicit: frozenset[str] = frozenset()
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    tasks_together: int = field(default=1, metadata=_WHOLE)
    """So many tasks are on one node at least, where nothing else says how they are spread."""
    cpus_per_task: int | None = None
    gpus: GpusAsked | None = field(default=None, metadata=_GPUS)
    constraint: str = field(default="", metadata=_PLACES)
    node_list: str = field(default="", metadata=_PLACES)
    freq_khz: int | None = field(default=None, metadata=_BINDS)
    freq_low_khz: int | None = None
    """The least frequency that the user asked for, kHz: a cap below it would take that away."""
    freq_variables: Mapping[str, int] = field(default_factory=dict, metadata=_BINDS)
    """Variables that a site may set for everybody and that cap the job's steps, kHz, where the job
    asks for nothing else; see :meth:`with_understood`."""
    freq_unclear: str = field(default="", metadata=_BINDS)
    """What sets the frequency of the job's steps to what is not known before it runs."""
    time_limit_s: int | None = field(default=None, metadata=_LIMIT)
    """The limit that will hold, the job's own or the scheduler's default; 0: none is to hold. None:
    the job states none, and which will hold is not known (yet)."""
    signal_before_s: int = field(default=0, metadata=_LIMIT)
    """So long before its time limit the job may get a signal that it asked for."""
    memory_per_node_mb: float | None = None
    memory_per_cpu_mb: float | None = None
    default_memory_mb: tuple[float, float] | None = None
    """What the scheduler gives a job that states no memory, in MiB per node and per CPU, 0 where it
    does not give it so; both 0: all that a node has. None where it is not known."""
    exclusive: bool = False
    environment_exported: bool = field(default=True, metadata=_READ)
    het: bool = field(default=False, metadata=_BINDS)
    takes_plan: bool = field(default=False, metadata=_WRITTEN)
    """Its hook gives the job a plan for its steps (:mod:`advisor.core.step_plan`)."""
    array: bool = field(default=False, metadata=_TRIALS)
    held: bool = field(default=False, metadata=_TRIALS)
    """Submitted on hold, with a dependency or a later begin: it starts when nobody knows yet."""
    binds: Mapping[str, str] = field(default_factory=dict, metadata=_BINDS)
    """What must be kept whatever the policy says, by axis, with the option or variable that binds
    it: ``frequency``, ``threads``, ``node_type``, ``cores`` (the request must not become smaller),
    ``tasks`` (nodes and tasks must be stated), ``all`` (it changes what a core or a task is)."""
    not_understood: tuple[str, ...] = field(default=(), metadata=_BINDS)
    """Options and variables that the scheduler's table does not know: the job is left alone."""
    launcher: str = field(default="", metadata=_READ)
    """What starts the command of a job that is one: ``srun app``."""
    cwd: str = field(default="", metadata=_READ)
    """The folder it was submitted from."""
    program: Mapping[str, object] = field(default_factory=dict, metadata=_READ)
    """What the hook found of the program's file: ``path``, ``size``, ``mtime``, ``build``."""
    written_from: tuple[str, ...] = field(default=(), metadata=_WRITTEN)
    """Names of the ``options`` that are kept with a decision: what writing a choice back needs."""
    script_options: Mapping[str, str] = field(default_factory=dict, metadata=_WRITTEN)
    """PBS: the script's own value, "" for none, of each kept option that the hook saw otherwise: a
    hook of the site or the submit command's line changed it."""
    script_threads: int | None = field(default=None, metadata=_READ)
    """Of a request that was read back: threads of a rank that its script states."""
    script_counts: bool = field(default=False, metadata=_READ)
    """Of a request that was read back: its script sets or reads the number of its threads."""

    def with_understood(self, options: Mapping[str, Sequence[str]]) -> JobRequest:
        """Return the request where the site says what options bind that are in no table.

        ``options``: name as in :func:`plain_name` -> axes, none of a harmless one. A harmless
        frequency variable is the site's own default: the job starts from it, and it keeps nothing.
        One that is named with its value, ``NAME=KHZ``, is so with this value only; another is its
        user's.
        """
        caps = self.freq_variables
        if caps and all(
            () in (options.get(plain_name(n)), options.get(plain_name(f"{n}={khz}")))
            for n, khz in caps.items()
        ):
            binds = {a: n for a, n in self.binds.items() if a != "frequency" or n not in caps}
            explicit = self.explicit - {"frequency"}
            freq_khz = min(caps.values())
            site = replace(
                self, binds=binds, explicit=explicit, freq_khz=freq_khz, freq_low_khz=None
            )
            return replace(site, freq_variables={}).with_understood(options)
        option_axes = {
            n: options[plain_name(n)] for n in self.not_understood if plain_name(n) in options
        }
        if not option_axes:
            return self
        binds = {axis: name for name, axes in option_axes.items() for axis in axes}
        unknown = tuple(n for n in self.not_understood if n not in option_axes)
        return replace(self, binds={**binds, **self.binds}, not_understood=unknown)

    def with_environment_files(self, patterns: Sequence[str]) -> JobRequest:
        """Return the request as if its script did not source what only sets up its environment.

        ``patterns`` are those of :func:`advisor.core.script.without_sourced`.
        """
        script = self.script and without_sourced(self.script, patterns)
        return self if script == self.script else replace(self, script=script)

    def with_written(self, axes: Mapping[str, AxisWriting]) -> JobRequest:
        """Return the request with the axes bound whose own options its user has set."""
        bound_axes = {a: f"--{w.option}" for a, w in axes.items() if w.option in self.options}
        return replace(self, binds={**bound_axes, **self.binds}) if bound_axes else self

    def summary(self) -> dict[str, object]:
        """Return what is worth keeping: no script text, no environment, nothing unset."""
        summary = {n: getattr(self, n) for n in _KEPT if getattr(self, n) not in (None, "")}
        summary |= {n: getattr(self, n) for n in _KEPT_IF_SET if getattr(self, n)}
        if self.default_memory_mb is not None:
            summary["default_memory_mb"] = list(self.default_memory_mb)
        if self.tasks_together != 1:
            summary["tasks_together"] = self.tasks_together
        if not self.environment_exported:
            summary["environment_exported"] = False
        if self.binds:
            summary["binds"] = {axis: why[:_LONGEST] for axis, why in self.binds.items()}
        if self.not_understood:
            summary["not_understood"] = [name[:_LONGEST] for name in self.not_understood[:_MOST]]
        if threads := thread_environment(self.environment):
            summary["environment"] = threads
        if self.written_from:
            summary["options"] = {name: self.options[name] for name in self.written_from}
            if self.host_resources:
                summary["host_resources"] = list(self.host_resources)
        if self.script_options:
            cut = {name: value[:_LONGEST_OPTION] for name, value in self.script_options.items()}
            summary["script_options"] = cut
        if self.completed:
            summary["completed"] = dict(self.completed)
        if self.node_types is not None:
            summary["node_types"] = list(self.node_types)
        if self.gpus is not None:
            summary["gpus"] = self.gpus.to_dict()
        return {**summary, "explicit": sorted(self.explicit)}

    @classmethod
    def from_summary(
        cls,
        data: Mapping[str, Any],
        scheduler: str,
        hook: str,
        user: str,
        account: str,
        **others: Any,
    ) -> JobRequest:
        """Read :meth:`summary` back; ``others`` are further fields. The uid is not kept: -1."""
        values = others | {name: data[name] for name in (*_KEPT, *_KEPT_IF_SET) if name in data}
        values |= {name: data[name] for name in _KEPT_OTHERWISE if name in data}
        for name in ("not_understood", "host_resources"):
            values[name] = tuple(map(str, data.get(name) or ()))
        if memory := data.get("default_memory_mb"):
            per_node, per_cpu = memory
            values["default_memory_mb"] = float(per_node), float(per_cpu)
        values["written_from"] = tuple(values.get("options", ()))
        if isinstance(data.get("node_types"), list):
            values["node_types"] = tuple(map(str, data["node_types"]))
        if isinstance(data.get("gpus"), Mapping):
            values["gpus"] = GpusAsked.from_dict(data["gpus"])
        explicit = data.get("explicit")
        axes = frozenset(map(str, explicit)) if isinstance(explicit, list) else frozenset()
        return cls(scheduler, hook, user, -1, account=account, explicit=axes, **values)


class CannotWriteError(ValueError):
    """One axis of a choice cannot be written in the scheduler's options; ``binding`` keeps it."""

    def __init__(self, axis: str, text: str, binding: str) -> None:
        super().__init__(text)
        self.axis, self.binding = axis, binding


def thread_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that say how many threads there are and where."""
    prefixes = tuple(p for p in PREFIXES if not p.startswith("ADVISOR_"))
    variables = ((n, v) for n, v in environment.items() if n.startswith(prefixes) or "THREAD" in n)
    return {name: value[:_LONGEST] for name, value in islice(variables, _MOST)}


def plain_name(option: str) -> str:
    """Return an option's name, the same for ``--spank:plugin:new_way`` and ``--new-way``."""
    return option.lstrip("-").rpartition(":")[2].replace("_", "-")


def understood_of(site: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return what a compiled site file says of options in no table: name -> axes.

    An option that writes an axis keeps that axis in jobs whose users set it themselves.
    """
    options = site.get("understood_options")
    option_axes = options if isinstance(options, Mapping) else {}
    writing = {w.option: (axis,) for axis, w in writings_of(site).items() if w.option}
    return {plain_name(name): tuple(axes) for name, axes in {**writing, **option_axes}.items()}


def environment_files_of(site: Mapping[str, object]) -> tuple[str, ...]:
    """Return the patterns of a compiled site file for what scripts may source."""
    patterns = site.get("environment_files")
    return tuple(map(str, patterns)) if isinstance(patterns, list) else ()


_KEPT = (
    "kind",
    "partition",
    "qos",
    "job_name",
    "script_path",
    "fingerprint",
    "nodes",
    "ntasks",
    "ntasks_per_node",
    "cpus_per_task",
    "constraint",
    "freq_khz",
    "time_limit_s",
    "exclusive",
)
_KEPT_IF_SET = (
    "cluster",
    "node_list",
    "freq_low_khz",
    "freq_unclear",
    "memory_per_node_mb",
    "memory_per_cpu_mb",
    "het",
    "takes_plan",
    "array",
    "held",
    "signal_before_s",
)
_KEPT_OTHERWISE = (
    "tasks_together",
    "environment_exported",
    "binds",
    "environment",
    "options",
    "script_options",
    "completed",
)
_LONGEST_OPTION = 1000
"""Characters of a script's option that are kept: a longer one counts as changed since."""
_LONGEST, _MOST = 80, 20
"""Characters of a text that is kept, and how many are."""
