"""From counted events to a signature: what they come to per second, and which are not believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.core.signature import LINE_B, Signature

_CYCLES = (
    "cycles",
    "cpu-cycles",
    "papi_tot_cyc",
    "cpu_clk_unhalted_core",
    "cpu_clk_unhalted.thread",
)
_INSTRUCTIONS = ("instructions", "papi_tot_ins", "instr_retired_any", "inst_retired.any")
_FLOPS: dict[str, int] = {
    **{
        f"fp_arith_inst_retired.{width}_double": n
        for width, n in (("scalar", 1), ("128b_packed", 2), ("256b_packed", 4), ("512b_packed", 8))
    },
    **{
        f"fp_arith_inst_retired.{width}_single": n
        for width, n in (("scalar", 1), ("128b_packed", 4), ("256b_packed", 8), ("512b_packed", 16))
    },
    "fp_ret_sse_avx_ops.all": 1,
    "retired_sse_avx_flops:any": 1,
    "papi_dp_ops": 1,
    "papi_sp_ops": 1,
    "scalar": 1,
    "pairs": 2,
    "fours": 4,
    "eights": 8,
    "sixteens": 16,
    "flops": 1,
}
"""Floating-point operations that one count of an event stands for."""
_IPC, _FLOPS_PER_CYCLE = 8, 64
"""No core does more in a cycle."""
FASTEST_HZ = 6e9
"""No core is faster, where its clock is not known."""
BOOST = 2.0
"""Boost may go so far beyond the highest frequency that can be asked for."""


@dataclass(slots=True)
class Counts:
    """Events of one run on one node, summed over its processors.

    ``running`` is the percentage of the time that each was counted; ``memory_b`` what went to and
    from memory; ``cpu_s`` the seconds of processor time.
    """

    time_s: float | None = None
    events: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    memory_b: float | None = None
    memory_running: float = 100.0
    cpu_s: float | None = None

    def add(self, event: str, value: float, running: float = 100.0) -> None:
        """Add a count; the same event of several processors is summed."""
        name = plain_name(event)
        self.events[name] = self.events.get(name, 0.0) + value
        self.running[name] = min(self.running.get(name, 100.0), running)


def plain_name(event: str) -> str:
    """Return an event's name without its PMU and modifiers: ``cpu_core/cycles/u`` is cycles."""
    name = event.strip().lower().removeprefix("perf::")
    if "/" in name:
        name = name.split("/")[1]
    stem, _, modifier = name.rpartition(":")
    return stem if stem and modifier and set(modifier) <= set("ukhgpPIDSWe") else name


def signature_of(
    counts: Counts, *, cpus: int | None = None, clock_hz: float = FASTEST_HZ, source: str = ""
) -> tuple[Signature, list[str]]:
    """Return the signature of a run, and which counts were dropped and why.

    Dropped is what was counted for less than all of the time, and what ``cpus`` processors could
    not do at ``clock_hz``.
    """
    dropped: list[str] = []
    believed: dict[str, float] = {}
    most = counts.time_s * clock_hz * cpus if counts.time_s and cpus else None
    for name, value in counts.events.items():
        share = _IPC if name in _INSTRUCTIONS else _FLOPS_PER_CYCLE if name in _FLOPS else 1
        if not counts.running[name]:
            dropped.append(f"{name}: not counted")
        elif counts.running[name] < 100:
            dropped.append(f"{name}: counted for {counts.running[name]:g} % of the time only")
        elif most is not None and value > most * share:
            dropped.append(
                f"{name}: {value:.4g} is more than {cpus} processors can do in {counts.time_s:g} s"
            )
        else:
            believed[name] = value
    cycles, instructions = _first_count(believed, _CYCLES), _first_count(believed, _INSTRUCTIONS)
    memory = counts.memory_b
    if memory is not None and counts.memory_running < 100:
        part = f"counted for {counts.memory_running:g} % of the time only"
        dropped.append(f"memory traffic: {part if counts.memory_running else 'not counted'}")
        memory = None
    flops = _flops(believed, [name.partition(":")[0] for name in dropped])
    seconds = counts.time_s
    return Signature(
        cpi=cycles / instructions if cycles and instructions else None,
        tpi=memory / LINE_B / instructions if memory is not None and instructions else None,
        gflops=None if flops is None or not seconds else flops / seconds / 1e9,
        gbs=None if memory is None or not seconds else memory / seconds / 1e9,
        cpu_util=100 * counts.cpu_s / (seconds * cpus)
        if counts.cpu_s is not None and seconds and cpus
        else None,
        time_s=seconds,
        cpus=cpus,
        source=source,
    ), dropped


def _first_count(events: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((events[name] for name in names if name in events), None)


def _flops(events: Mapping[str, float], dropped: list[str]) -> float | None:
    """Return the operations; None where none was counted, or one that belongs to them is lost."""
    operations = [value * _FLOPS[name] for name, value in events.items() if name in _FLOPS]
    if any(name in _FLOPS for name in dropped):
        return None
    return sum(operations) if operations else events.get("papi_fp_ops")
