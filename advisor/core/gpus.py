"""The GPUs that a job asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from advisor.core.codec import Record
from advisor.core.configuration import Configuration
from advisor.core.units import format_count

REPORT = "advisor-gpus:"
_REPORT = re.compile(rf"(?:^| ){REPORT}([\w.-]{{1,64}}):([\d./,-]{{1,2000}})")
_DEVICE = re.compile(r"(\d{1,3})/(\d{1,5})/(\d{1,5})/(\d{1,12}\.\d|-)")


@dataclass(frozen=True, slots=True)
class GpuUse(Record):
    """What one device of a job had set and took: by the node, and the driver's minor number.

    ``axes`` is empty where nothing was set, ``energy_j`` None where its driver counts none.
    """

    node: str
    device: int
    energy_j: float | None
    axes: Mapping[str, int] = field(default_factory=dict)


def reported(text: str) -> tuple[GpuUse, ...]:
    """Return what a job's nodes wrote into its system comment, as `advisor-node-cap` does."""
    return uses_of(_REPORT.findall(text))


def uses_of(nodes: Iterable[tuple[str, str]]) -> tuple[GpuUse, ...]:
    """Return what nodes say, as `advisor-node-gpus` prints it; the last of a device counts."""
    uses: dict[tuple[str, str], GpuUse] = {}
    for node, devices in nodes:
        for number, watts, mhz, joules in _DEVICE.findall(devices[:2000]):
            values = {"gpu_freq_khz": 1000 * int(mhz), "gpu_power_w": int(watts)}
            axes = {name: value for name, value in values.items() if value}
            energy_j = None if joules == "-" else float(joules)
            uses[node, number] = GpuUse(node, int(number), energy_j, axes)
    return tuple(uses.values())


@dataclass(frozen=True, slots=True)
class GpusAsked(Record):
    """How many GPUs, for each node, for each task, or for the whole job.

    ``unclear``: why their number, or whose they are, is not known; "" where it is.
    """

    per: Literal["node", "task", "job"] = "node"
    count: int = 0
    unclear: str = ""

    def on_a_node(self, configuration: Configuration) -> int:
        """Return how many GPUs each node of the job gives it. Raises ValueError where unclear."""
        if self.unclear:
            raise ValueError(self.unclear)
        if self.per == "job":
            if self.count % configuration.nodes:
                gpus, nodes = (
                    format_count(n, word)
                    for n, word in ((self.count, "GPU"), (configuration.nodes, "node"))
                )
                raise ValueError(f"{gpus} on {nodes} are not as many on each")
            return self.count // configuration.nodes
        return self.count * (configuration.ranks_per_node if self.per == "task" else 1)
