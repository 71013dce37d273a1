"""What a PBS job asks of its nodes: ``select`` and ``place``, or the older ``nodes``, ``ncpus``.

Standard library only: the daemon uses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.core.gpus import GpusAsked

CHUNK_RESOURCES = frozenset(
    {
        "ncpus",
        "mem",
        "vmem",
        "mpiprocs",
        "ompthreads",
        "arch",
        "host",
        "vnode",
        "ngpus",
        "naccelerators",
        "accelerator",
        "accelerator_model",
        "accelerator_memory",
        "hbmem",
    }
)
"""Resources of a host, which a job that has no select may ask for directly."""
_COUNTED = frozenset({"ncpus", "mem", "vmem", "mpiprocs", "ompthreads", "hbmem"})
_DEVICES = frozenset({"ngpus", "naccelerators", "accelerator", "accelerator_model"})
_AMOUNT = re.compile(r"[\d.]+\s*[kmgtp]?[bw]?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgtp]?)([bw]?)")
_FACTOR = {"": 2**-20, "k": 2**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20, "p": 2.0**30}
_TRUE, _FALSE = frozenset({"true", "t", "yes", "y"}), frozenset({"false", "f", "no", "n"})
ARRANGEMENTS = ("free", "pack", "scatter", "vscatter")
SHARINGS = ("excl", "shared", "exclhost")
DEFAULT_SHARING = "default_shared"
"""A vnode's ``sharing`` where nobody set it."""


@dataclass(frozen=True, slots=True)
class Place:
    """``place``: arrangement, sharing ("" for none asked) and what groups the nodes."""

    arrangement: str = ""
    sharing: str = ""
    group: str = ""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read ``scatter:excl``. Raises ValueError."""
        words = {"arrangement": "", "sharing": "", "group": ""}
        for word in filter(None, text.split(":")):
            if word in ARRANGEMENTS:
                words["arrangement"] = word
            elif word in SHARINGS:
                words["sharing"] = word
            elif word.startswith("group="):
                words["group"] = word
            else:
                raise ValueError(f"place={text} is not a placement")
        return cls(**words)

    def __str__(self) -> str:
        return ":".join(filter(None, (self.arrangement, self.sharing, self.group)))


def has_host_alone(place: Place, sharings: Collection[str], *, parted: bool) -> bool:
    """Tell whether a job with a placement has a host for itself, as PBS's scheduler decides it.

    ``sharings`` are the ``sharing`` attributes of the host's vnodes, ``parted`` says that a vnode
    is not the whole host. The vnodes' word goes before the job's: ``ignore_excl`` lets others in
    whatever the job asks for, ``force_exclhost`` keeps them out.
    """
    return all(_takes_host_alone(place.sharing, s, parted) for s in sharings or (DEFAULT_SHARING,))


def _takes_host_alone(asked_for: str, sharing: str, parted: bool) -> bool:
    if sharing == "ignore_excl":
        return False
    if "exclhost" in (asked_for, sharing.removeprefix("force_")):
        return True
    if sharing == "default_exclhost" and not asked_for:
        return True
    excl = asked_for == "excl" or sharing == "force_excl"
    excl = excl or (not asked_for and sharing == "default_excl")
    # `excl` keeps others off the job's vnodes, not off the rest of a host that has more of them.
    return excl and not parted


@dataclass(frozen=True, slots=True)
class Asked:
    """Equal chunks and their placement, and how they were asked for.

    ``resources`` are one chunk's, in the order written. ``form``: ``select``, ``nodes``, or
    ``plain`` for resources of the whole job, which PBS makes one chunk of. ``several`` tells of
    chunks of different kinds, which are not understood: then this is the first, and ``others`` are
    the resources of the kinds behind it.
    """

    count: int = 1
    resources: Mapping[str, str] = field(default_factory=dict)
    place: Place = Place()
    form: str = "select"
    several: bool = False
    others: tuple[Mapping[str, str], ...] = ()

    @property
    def ncpus(self) -> int:
        """Cores of a chunk."""
        return self._number("ncpus") or 1

    @property
    def mpiprocs(self) -> int:
        """Ranks of a chunk."""
        return self._number("mpiprocs") or 1

    @property
    def threads_per_rank(self) -> int:
        """Cores of each rank."""
        return self._number("ompthreads") or max(1, self.ncpus // self.mpiprocs)

    @property
    def nodes(self) -> int | None:
        """How many nodes that is, None where it depends on how many chunks fit on one."""
        if self.count == 1 or self.place.arrangement == "pack":
            return 1
        return self.count if self.place.arrangement in ("scatter", "vscatter") else None

    @property
    def memory_mb(self) -> float:
        """Memory of a chunk, 0 when none is asked for. Raises ValueError."""
        text = self.resources.get("mem", "")
        try:
            return parse_size_mb(text) if text else 0.0
        except ValueError:
            raise ValueError(f"mem={text} is not an amount of memory") from None

    @property
    def host(self) -> str:
        """The host or vnode asked for by name, or ""."""
        return self.resources.get("host", "") or self.resources.get("vnode", "")

    @property
    def devices(self) -> bool:
        """Whether accelerators are asked for, by chunks of any kind."""
        return any(name in _DEVICES for kind in (self.resources, *self.others) for name in kind)

    def selectors(self) -> dict[str, str]:
        """Return what picks nodes by kind: text and boolean resources, not amounts."""
        return {
            name: truth(value)
            for name, value in self.resources.items()
            if name not in _COUNTED | _DEVICES | {"host", "vnode"}
            and value
            and not is_amount(value)
        }

    def _number(self, name: str) -> int:
        text = self.resources.get(name, "")
        if text and not text.isdecimal():
            raise ValueError(f"{name}={text} is not a number")
        return int(text or 0)


def gpus_asked(job: Asked) -> GpusAsked | None:
    """Return the GPUs that a job asks for, None where it asks for none."""
    other_devices = sorted(_DEVICES & job.resources.keys() - {"ngpus"})
    text = job.resources.get("ngpus", "0")
    if job.several:
        return GpusAsked(unclear="its chunks differ") if job.devices else None
    if other_devices:
        return GpusAsked(unclear=f"{other_devices[0]} does not tell which GPUs are its own")
    if not text.isdecimal():
        return GpusAsked(unclear=f"ngpus={text[:40]} is not a number")
    if not int(text[:6]):
        return None
    if job.nodes is None:
        return GpusAsked(unclear="how many of its chunks a node has is not known")
    return GpusAsked("job", job.count * int(text[:6]))


def is_amount(value: str) -> bool:
    """Tell whether a resource's value is a number or a size, not a name."""
    return _AMOUNT.fullmatch(value) is not None


def truth(value: str) -> str:
    """Return a boolean as PBS shows it, other values as they are."""
    lower = value.lower()
    return "True" if lower in _TRUE else "False" if lower in _FALSE else value


def asked(options: Mapping[str, str], host_resources: Collection[str] = ()) -> Asked:
    """Read what a job's resources ask for. Raises ValueError for what makes no sense.

    ``host_resources`` are the site's own resources of a host. Without select PBS packs onto one
    node, ``-l nodes`` spreads over several.
    """
    place = Place.parse(options.get("place", ""))
    if options.get("select"):
        request = _chunks(options["select"])
        return replace(request, place=place)
    direct = [n for n in options if n in CHUNK_RESOURCES or n in host_resources]
    resources = {name: options[name] for name in direct}
    if options.get("nodes"):
        request = _nodes(options["nodes"])
        if "ncpus" in resources:
            raise ValueError("nodes and ncpus together are not understood")
        chunk = {**request.resources, **resources}
        # PBS divides the job's memory among the chunks it makes of nodes.
        if "mem" in resources and request.count > 1:
            chunk["mem"] = f"{round(parse_size_mb(resources['mem']) / request.count)}mb"
        return replace(request, resources=chunk, form="nodes")
    resources.setdefault("ncpus", "1")
    return Asked(1, resources, place if str(place) else Place("pack"), form="plain")


def resource_names(
    options: Mapping[str, str], host_resources: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the names of the options that :func:`asked` reads."""
    chunk_options = ("select", "place", "nodes")
    return tuple(
        n for n in options if n in chunk_options or n in CHUNK_RESOURCES or n in host_resources
    )


def edited(select: str, changes: Mapping[str, str]) -> str:
    """Return a select with some resources of each chunk set: letter for letter, but for these."""
    parts = []
    for part in select.split("+"):
        words = part.split(":")
        for name, value in changes.items():
            word_index = next(
                (i for i, w in enumerate(words) if w.partition("=")[0].strip() == name), None
            )
            if word_index is None:
                words.append(f"{name}={value}")
            else:
                words[word_index] = f"{name}={value}"
        parts.append(":".join(words))
    return "+".join(parts)


def _chunks(text: str) -> Asked:
    """Read a select: the same chunk written twice is one chunk two times."""
    if set(text) & set("\"'()"):
        raise ValueError(f"select={text} is not understood")
    kinds: list[tuple[int, dict[str, str]]] = []
    for part in text.split("+"):
        words = part.strip().split(":")
        count = int(words.pop(0)) if words[0].isdecimal() else 1
        resources = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not (name and equals):
                raise ValueError(f"select={text} is not understood")
            resources[name] = value
        if kinds and kinds[-1][1] == resources:
            kinds[-1] = (kinds[-1][0] + count, resources)
        else:
            kinds.append((count, resources))
    if kinds[0][0] < 1:
        raise ValueError(f"select={text} has no chunk")
    other_kinds = tuple(resources for _, resources in kinds[1:])
    return Asked(kinds[0][0], kinds[0][1], several=bool(other_kinds), others=other_kinds)


def _nodes(text: str) -> Asked:
    """Read ``nodes=2:ppn=14:property#excl`` as PBS turns it into chunks."""
    body, _, tail = text.partition("#")
    sharing = "excl" if tail.startswith("excl") else "shared" if tail.startswith("shared") else ""
    first, *rest = (part.split(":") for part in body.split("+"))
    head, *words = first
    other_kinds = tuple(
        {w.partition("=")[0]: w.partition("=")[2] for w in part[1:]} for part in rest
    )
    resources = {"ncpus": "1"}
    count = 1
    if head.isdecimal():
        count = int(head)
    else:
        resources["host"] = head
    ppn = cpp = 1
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in ("ppn", "cpp", "ncpus") and value.isdecimal():
            ppn, cpp = (int(value), cpp) if name == "ppn" else (ppn, int(value))
        elif equals:
            raise ValueError(f"nodes={text} is not understood")
        else:
            resources[name] = "True"
    # ppn ranks of cpp cores each.
    resources["ncpus"] = str(ppn * cpp)
    if ppn > 1:
        resources["mpiprocs"] = str(ppn)
    if count < 1:
        raise ValueError(f"nodes={text} has no node")
    place = Place("scatter", sharing)
    return Asked(count, resources, place, several=bool(other_kinds), others=other_kinds)


def parse_size_mb(text: str) -> float:
    """Return PBS's sizes (``10gb``, ``4096``: bytes, ``1mw``: words of 8 bytes) in MB.

    Raises ValueError for anything else.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if not match:
        raise ValueError(f"not an amount of memory: {text!r}")
    return float(match[1]) * _FACTOR[match[2]] * (8 if match[3] == "w" else 1)


PART_OF_CORES = "the placement of chunks that do not use all of their cores"


def uses_part_of_cores(job: Asked) -> bool:
    """Tell whether nobody knows how many cores a node's ranks use.

    PBS places the chunks, or the ranks of a chunk that may share its node have more threads than
    the chunk has cores.
    """
    threads = job.threads_per_rank * job.mpiprocs
    crowded = threads > job.ncpus and "excl" not in job.place.sharing
    return crowded or (job.nodes is None and threads != job.ncpus)


def shape_of(options: Mapping[str, str], hosts: Collection[str]) -> dict[str, Any]:
    """Return what a job's resources say of its size, as JobRequest names it. Raises ValueError."""
    job = asked(options, hosts)
    ranks = job.count * job.mpiprocs
    return {
        "nodes": job.nodes,
        "ntasks": ranks,
        "ntasks_per_node": None if job.nodes is None else -(-ranks // job.nodes),
        "tasks_together": job.mpiprocs,
        "cpus_per_task": job.threads_per_rank,
        "constraint": ":".join(f"{name}={value}" for name, value in job.selectors().items()),
        "node_list": job.host,
        "memory_per_node_mb": job.memory_mb * job.count / (job.nodes or job.count),
        "exclusive": job.place.sharing in ("excl", "exclhost"),
        "het": job.several,
    }
