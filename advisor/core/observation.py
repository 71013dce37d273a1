"""One measured run, and how far to trust it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from advisor.core.configuration import Configuration, SearchSpace

Quality = Literal["measured", "estimated", "missing"]
Source = Literal["import", "sweep", "confirm", "job", "run"]
Scope = Literal["own", "account", "all"]
RunMethod = Literal["", "variables", "request"]
GPU_ENERGY = "energy_gpu_j"
"""Under this name a run keeps, beside what it is, the joules of its accelerators."""
_OF_GPUS_ALONE = frozenset({"nvml", "amdgpu", "intelgpu"})
"""Meters that see accelerators only; after ``+`` they are added to one of processors."""


GPUS = "gpus"
"""Under this name a run keeps how many GPUs each of its nodes gave it."""
_WHOLE_NODE = frozenset({"pm_counters", "grace"})
"""Meters that see all of a node."""


def coverage(meter: str) -> tuple[str, ...]:
    """Return what decides whether two meters' energies can be compared: the accelerators in them.

    () is that of a meter that sees none, or the whole node.
    """
    first, *added = meter.split("+")
    return (first, *added) if first in _OF_GPUS_ALONE else ("", *added) if added else ()


@dataclass(frozen=True, slots=True)
class Observation:
    """One run of a workload at a configuration.

    ``time_s`` and ``energy_j`` (all nodes together, None when there was no meter) are the raw
    responses; ``fom`` is an optional figure of merit, a rate to be maximised. ``contributor`` is
    the user whose run it was; ``scope`` says whose jobs it may advise.
    """

    configuration: Configuration
    time_s: float
    energy_j: float | None = None
    fom: float | None = None
    energy_quality: Quality = "measured"
    meter: str = ""
    source: Source = "import"
    contributor: str = ""
    account: str = ""
    scope: Scope = "own"
    job_id: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)
    method: RunMethod = ""
    """How its threads were set: by ``variables`` inside the allocation the job asks for, or by a
    smaller ``request``. "" for what was imported, made by hand, or ran as it was written."""
    space: SearchSpace | None = None
    """The grid that its model is to be evaluated on; None where nobody said (an import, a job)."""
    cluster: str = ""
    """The cluster that ``job_id`` is of, "" where nobody knows."""

    @property
    def gpus(self) -> int:
        """GPUs that each of its nodes gave it, 0 where that is not known."""
        # What a user's file says is believed as far as there may be such a node.
        count = self.extra.get(GPUS)
        return int(count) if isinstance(count, int | float) and 0 < count <= 1024 else 0

    @property
    def gpus_metered(self) -> bool:
        """Whether its energy has that of its GPUs in it: whose clocks are stated was metered."""
        states_gpus = GPU_ENERGY in self.extra or bool(self.configuration.extra)
        return states_gpus or self.meter in _WHOLE_NODE or bool(coverage(self.meter))


def by_quality(runs: Iterable[Observation]) -> dict[Quality, int]:
    """Return how many runs have their energy measured, estimated and missing."""
    counts = Counter(run.energy_quality for run in runs)
    return {quality: counts[quality] for quality in get_args(Quality)}
