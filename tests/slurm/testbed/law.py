"""The posed hardware and the response law of the simulated application.

This is the one place where the testbed's silicon is described: the node types, the kernels, and
how long and with how many watts a kernel runs on them. The simulated application obeys it, and
end-to-end tests ask it for the truth. It needs nothing but the standard library and no package,
because a copy of it runs on the posed nodes.

The law, for one run on `nodes` nodes with `threads` busy cores on each at `f` GHz:

    compute = kernel.work / (nodes * threads * rate * f)
    memory  = kernel.traffic / (nodes * min(bandwidth(f), threads * core_bandwidth))
    time    = kernel.serial / (rate * f) + (compute^4 + memory^4)^(1/4) + kernel.comm * log2(nodes)
    power   = idle + threads * (core_static + activity * core_dynamic * f^3)
              + memory_watts * memory / time

`bandwidth(f) = bandwidth * (1 - uncore * (1 - f / f_max))` lets the memory follow the clock a
little. More threads than cores are idle threads. Power is per node, time in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Exponent of the smooth maximum which joins compute time and memory time.
SHARPNESS = 4.0
#: Watts on the meter of a node where nothing runs. A real one's idle watts, which the law has in
#: `power`, would put what Slurm takes to launch a step and to read the meter into every energy;
#: with none at all Slurm would say of a step of a tenth of a second that it was not metered.
REST_W = 20.0
#: How much of the memory bandwidth follows the core clock.
UNCORE = 0.08


@dataclass(frozen=True)
class NodeType:
    """A class of equal posed nodes; frequencies in kHz, bandwidths in traffic units per second."""

    name: str
    feature: str
    nodes: tuple[str, ...]
    sockets: int
    cores_per_socket: int
    frequencies_khz: tuple[int, ...]
    rate: float
    bandwidth: float
    core_bandwidth: float
    idle_w: float
    core_static_w: float
    core_dynamic_w: float
    memory_w: float

    @property
    def cores(self) -> int:
        """Cores of one node."""
        return self.sockets * self.cores_per_socket

    @property
    def max_khz(self) -> int:
        """Highest frequency, which is also the default cap."""
        return self.frequencies_khz[-1]

    @property
    def min_khz(self) -> int:
        """Lowest frequency."""
        return self.frequencies_khz[0]


@dataclass(frozen=True)
class Kernel:
    """A simulated application: how much it computes, moves, serialises and talks."""

    name: str
    serial: float
    work: float
    traffic: float
    comm: float
    activity: float


def _steps(low_mhz: int, high_mhz: int) -> tuple[int, ...]:
    return tuple(mhz * 1000 for mhz in range(low_mhz, high_mhz + 1, 100))


NODE_TYPES: dict[str, NodeType] = {
    node_type.name: node_type
    for node_type in (
        NodeType(
            name="bdw",
            feature="broadwell",
            nodes=("bdw1", "bdw2", "bdw3", "bdw4"),
            sockets=2,
            cores_per_socket=14,
            frequencies_khz=_steps(1200, 2200),
            rate=1.0,
            bandwidth=110.0,
            core_bandwidth=8.0,
            idle_w=95.0,
            core_static_w=1.0,
            core_dynamic_w=0.20,
            memory_w=18.0,
        ),
        NodeType(
            name="skl",
            feature="skylake",
            nodes=("skl1", "skl2"),
            sockets=2,
            cores_per_socket=20,
            frequencies_khz=_steps(1000, 2400),
            rate=1.3,
            bandwidth=190.0,
            core_bandwidth=8.5,
            idle_w=120.0,
            core_static_w=1.1,
            core_dynamic_w=0.17,
            memory_w=26.0,
        ),
        NodeType(
            name="mil",
            feature="milan",
            nodes=("mil1", "mil2"),
            sockets=2,
            cores_per_socket=32,
            frequencies_khz=(1500000, 2000000, 2450000),
            rate=1.2,
            bandwidth=300.0,
            core_bandwidth=8.5,
            idle_w=170.0,
            core_static_w=0.8,
            core_dynamic_w=0.12,
            memory_w=40.0,
        ),
    )
}

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        # Memory-bound: threads saturate the bandwidth, the clock hardly matters. Real headroom.
        Kernel("stencil", serial=0.02, work=34.0, traffic=180.0, comm=0.03, activity=0.75),
        # Compute-bound: time follows 1 / (threads * f). Nothing to gain within 5 %.
        Kernel("nbody", serial=0.03, work=105.0, traffic=10.0, comm=0.02, activity=1.0),
        # In between: a little headroom.
        Kernel("solver", serial=0.04, work=66.0, traffic=170.0, comm=0.06, activity=0.9),
    )
}


def node_type_of(node: str) -> NodeType:
    """Return the type of a posed node by the node's name; KeyError for a foreign node."""
    for node_type in NODE_TYPES.values():
        if node in node_type.nodes:
            return node_type
    raise KeyError(node)


def predict(
    kernel: str | Kernel,
    node_type: str | NodeType,
    nodes: int = 1,
    threads_per_node: int = 1,
    freq_khz: int | None = None,
    scale: float = 1.0,
) -> tuple[float, float]:
    """Return `(time_s, watts_per_node)` of one run, idle watts included.

    `freq_khz` is the cap (default: the node type's highest frequency), `scale` multiplies the
    time. Metered energy is `time_s * watts_per_node * nodes`, plus `REST_W` for what the scheduler
    spends after the run.
    """
    k = KERNELS[kernel] if isinstance(kernel, str) else kernel
    t = NODE_TYPES[node_type] if isinstance(node_type, str) else node_type
    threads = max(1, min(threads_per_node, t.cores))
    f = (t.max_khz if freq_khz is None else freq_khz) / 1e6
    f_max = t.max_khz / 1e6
    bandwidth = t.bandwidth * (1.0 - UNCORE * (1.0 - f / f_max))
    compute = k.work / (nodes * threads * t.rate * f)
    memory = k.traffic / (nodes * min(bandwidth, threads * t.core_bandwidth))
    parallel = (compute**SHARPNESS + memory**SHARPNESS) ** (1.0 / SHARPNESS)
    time_s = k.serial / (t.rate * f) + parallel + k.comm * math.log2(nodes)
    cores_w = threads * (t.core_static_w + k.activity * t.core_dynamic_w * f**3)
    watts = t.idle_w + cores_w + t.memory_w * min(1.0, memory / time_s)
    return time_s * scale, watts
