"""The GPUs that a job asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.core.codec import Record
from advisor.core.configuration import Configuration
from advisor.core.units import format_count


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
