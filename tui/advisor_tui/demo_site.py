"""The example site: machines, programs, and the physical law that both follow.

Nothing here was measured on anybody's machine. Runs and options come from a roofline law: time is
what computing and memory traffic take, power what nodes, cores and clock draw, with noise.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.mark_front import place
from advisor.core.observation import Observation, Quality
from advisor.core.option import Option
from advisor.core.thread_use import KEY, ThreadUse

POLICY = """\
# The example site's policy.
version: 1
mode: apply
goal: min_energy
max_slowdown: 8%
min_saving: 3%
holdout: 10%
node_type_change: allow
estimated_node_types: accept
rules:
  - match: {partition: debug}
    mode: off
  - match: {application: "md*"}
    goal: performance
    max_slowdown: 2%
"""
COMPILED: dict[str, object] = {
    "base": {
        "mode": "apply",
        "goal": "min_energy",
        "max_slowdown": 0.08,
        "min_saving": 0.03,
        "holdout": 0.1,
        "node_type_change": "allow",
        "estimated_node_types": "accept",
    },
    "rules": [
        {"match": {"partition": ["debug"]}, "set": {"mode": "off"}},
        {
            "match": {"application": ["md*"]},
            "set": {"goal": "performance", "max_slowdown": 0.02},
        },
    ],
}
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --mem=64G
{more}#SBATCH --time=02:00:00

srun ./{name} {arguments}
"""


BUSY = """\
#!/bin/sh
# Something that can really be measured here: about half a second of counting.
exec awk -v n="$1" 'BEGIN { while (i < n) i++ }'
"""
BUSY_SCRIPT = """\
#!/bin/bash
#SBATCH --exclusive
#SBATCH --time=00:05:00

srun ./busy 8000000
"""


@dataclass(frozen=True, slots=True)
class DemoMachine:
    """A node type and its law: rates per core and GHz, bandwidths, and watts."""

    node_type: NodeType
    rate: float
    bandwidth: float
    core_bandwidth: float
    idle_w: float
    core_w: float
    clock_w: float


@dataclass(frozen=True, slots=True)
class Program:
    """An application's workload: what it computes and moves, and what is known of it."""

    name: str
    workload: str
    work: float
    traffic: float
    serial: float
    machines: tuple[str, ...]
    state: str = "confirmed"
    quality: Quality = "measured"
    jobs: int = 6


def _machine(
    name: str, feature: str, nodes: int, cores: int, khz: tuple[int, ...], *law: float
) -> DemoMachine:
    kind = NodeType(
        feature,
        feature=feature,
        partitions=("batch", "debug"),
        sockets=2,
        cores=cores,
        memory_mb=192_000,
        freq_khz=khz,
        default_freq_khz=khz[-1],
        nodes=tuple(f"{name}{i:02}" for i in range(1, nodes + 1)),
        default_partition="batch",
    )
    return DemoMachine(kind, *law)


def _steps(low: int, high: int, step_khz: int = 100_000) -> tuple[int, ...]:
    return tuple(range(low, high + 1, step_khz))


MACHINES = {
    m.node_type.name: m
    for m in (
        _machine(
            "bdw", "broadwell", 24, 28, _steps(1_200_000, 2_200_000), 1.0, 110, 8.0, 95, 1, 0.21
        ),
        _machine(
            "skl",
            "skylake",
            16,
            40,
            _steps(1_000_000, 2_400_000, 200_000),
            1.3,
            190,
            8.5,
            120,
            1.1,
            0.17,
        ),
        _machine(
            "mil", "milan", 8, 64, (1_500_000, 2_000_000, 2_450_000), 1.2, 300, 8.5, 170, 0.8, 0.12
        ),
    )
}

PROGRAMS = (
    Program("lbm", "channel 512", 900, 16500, 0.4, ("broadwell", "skylake", "milan"), jobs=14),
    Program("lbm", "channel 1024", 7300, 130000, 1.5, ("skylake",)),
    Program(
        "stencil3d", "--size 800", 2100, 9800, 0.8, ("broadwell", "skylake"), state="grid", jobs=11
    ),
    Program("cg-solver", "n=4e6", 1300, 7200, 1.1, ("broadwell",), state="grid", jobs=9),
    Program("cg-solver", "n=3e7", 9800, 54000, 3.0, ("broadwell",), state="fitted", jobs=2),
    Program("md-water", "64k atoms", 16500, 900, 0.6, ("broadwell", "milan"), jobs=8),
    Program("fft3d", "n=1024", 5200, 11800, 2.0, ("skylake",), jobs=5),
    Program("genome-align", "human", 3900, 2500, 21.0, ("broadwell",), jobs=6),
    Program("ocean", "gyre 1/12", 2600, 9000, 4.0, ("milan",), state="suspended", jobs=5),
    Program("render", "frame", 2900, 200, 0.2, ("skylake",), quality="estimated", jobs=3),
    Program("wave2d", "default", 700, 5200, 0.3, ("broadwell",), state="training", jobs=1),
    Program("raytrace", "default", 4000, 300, 0.1, (), state="none", jobs=2),
)


RANKED = ("genome-align", "milan")
"""An application, and a node type where it never ran but that was ranked by microbenchmarks."""


def law(p: Program, m: DemoMachine, threads: int, khz: int) -> tuple[float, float]:
    """Return (seconds, joules) of one run on one node."""
    f = khz / 1e6
    top = m.node_type.freq_khz[-1] / 1e6
    bandwidth = min(m.bandwidth * (1 - 0.08 * (1 - f / top)), threads * m.core_bandwidth)
    compute, memory = p.work / (threads * m.rate * f), p.traffic / bandwidth
    time_s = p.serial / (m.rate * f) + (compute**4 + memory**4) ** 0.25
    watts = m.idle_w + threads * (m.core_w + m.clock_w * f**3) + 20 * memory / time_s
    return time_s, time_s * watts


def grid(m: DemoMachine) -> list[Configuration]:
    """Return the configurations of one node that are modelled."""
    cores = m.node_type.cores
    step = cores // (7 if cores % 7 == 0 else 8)
    name, khz = m.node_type.name, m.node_type.freq_khz
    return [Configuration(name, 1, 1, t, f) for t in range(step, cores + 1, step) for f in khz]


def _counted_threads(c: Configuration) -> dict[str, object]:
    """Return what a sweep counts in the run of the job as written: it uses all cores by itself."""
    return {KEY: ThreadUse(True, (c.threads_per_rank,) * c.ranks_per_node).to_dict()}


def options(p: Program, m: DemoMachine) -> tuple[list[Option], list[Observation]]:
    """Return a program's options on a machine, and the runs behind them."""
    draw = random.Random(f"{p.name} {p.workload} {m.node_type.name}")
    points = grid(m)
    runs = set(points[:: max(1, len(points) // 11)]) | {points[-1]}
    slant = draw.uniform(-0.01, 0.01)
    program_options, sweep_runs = [], []
    for c in points:
        time_s, energy_j = law(p, m, c.threads_per_node, c.freq_khz)
        measured = c in runs
        relative_error = draw.gauss(0, 0.004) if measured else slant * math.sin(c.threads_per_node)
        half_t, half_e = (0.009, 0.011) if measured else (0.022, 0.026)
        if p.quality == "estimated":
            half_e = 0.08
        t, e = time_s * (1 + relative_error), energy_j * (1 + 1.2 * relative_error)
        program_options.append(
            Option(
                c,
                t,
                t / (1 + half_t),
                t * (1 + half_t),
                e,
                e / (1 + half_e),
                e * (1 + half_e),
                measured,
            )
        )
        if measured:
            sweep_runs.append(
                Observation(
                    c,
                    t,
                    e,
                    None,
                    p.quality,
                    "example",
                    "sweep",
                    "ann",
                    scope="all",
                    extra=_counted_threads(c) if c == points[-1] else {},
                )
            )
    if p.state == "grid":
        program_options = [replace(o, measured=True, confirmed=True) for o in program_options]
    elif p.state != "fitted":
        program_options = _confirmed(program_options, points[-1])
    return list(place(program_options, 0.05)), sweep_runs


def _confirmed(program_options: list[Option], baseline: Configuration) -> list[Option]:
    """Return the options with the thriftiest within 6 % slowdown, and the baseline, confirmed."""
    base = next(o for o in program_options if o.configuration == baseline)
    within_bound = [o for o in program_options if o.time_s <= 1.06 * base.time_s]
    quick = [o for o in program_options if o.time_s <= 1.012 * base.time_s]
    chosen = {min(group, key=lambda o: o.energy_j).configuration for group in (within_bound, quick)}
    chosen.add(baseline)
    confirmed = []
    for o in program_options:
        if o.configuration in chosen:
            o = replace(
                o,
                measured=True,
                confirmed=True,
                time_lo_s=o.time_s / 1.009,
                time_hi_s=o.time_s * 1.009,
                energy_lo_j=o.energy_j / 1.011,
                energy_hi_j=o.energy_j * 1.011,
            )
        confirmed.append(o)
    return confirmed


def script_of(p: Program) -> str:
    """Return a program's job script; it asks for a node type where it needs another."""
    node_type = p.machines[0] if p.machines else "skylake"
    more = "" if node_type == next(iter(MACHINES)) else f"#SBATCH --constraint={node_type}\n"
    return SCRIPT.format(name=p.name, more=more, arguments=p.workload)
