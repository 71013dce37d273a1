"""Print how true the intervals of options by transfer are, over drawn node types and applications.

An application's time is a smooth maximum of computing and memory plus a serial part, a node's
power that of an idle one, its cores (static, and with the cube of the frequency) and its memory.
Node types differ in cores, clock, bandwidth, where it saturates, and where their power goes; the
application is anything from compute-bound to memory-bound. Its options on one node type are
carried to another by the true ratio on full nodes, and by a ratio that is off as the method is.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from dataclasses import dataclass

from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.node_type_estimate import METHOD_ERROR, NodeTypeEstimate
from advisor.core.option import Z90, Option
from advisor.core.transfer import transfer

SHARPNESS = 4.0
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25)
FREQUENCIES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class Silicon:
    """A drawn node type: work and traffic per second, watts."""

    cores: int
    rate: float
    bandwidth: float
    core_bandwidth: float
    uncore: float
    idle_w: float
    core_static_w: float
    core_dynamic_w: float
    memory_w: float

    @classmethod
    def draw(cls, rng: random.Random) -> Silicon:
        """Draw one."""
        cores = rng.choice((8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 64, 96, 128))
        core_bandwidth = rng.uniform(5, 14)
        power = rng.uniform(5, 10) * cores
        idle, memory, static = (
            rng.uniform(0.25, 0.6),
            rng.uniform(0.03, 0.2),
            rng.uniform(0.05, 0.3),
        )
        busy = (1 - idle - memory) * power / cores
        return cls(
            cores,
            math.exp(rng.uniform(-0.5, 0.7)),
            core_bandwidth * cores * rng.uniform(0.2, 0.9),
            core_bandwidth,
            rng.uniform(0, 0.3),
            idle * power,
            static * busy,
            (1 - static) * busy,
            memory * power,
        )


@dataclass(frozen=True)
class Application:
    """A drawn application: what it computes, moves and serialises, and how hot it runs."""

    work: float
    traffic: float
    serial: float
    activity: float

    @classmethod
    def draw(cls, rng: random.Random, at: Silicon) -> Application:
        """Draw one, balanced somehow on a node type."""
        work = at.cores * at.rate
        balance = math.exp(rng.uniform(-2.5, 2.5))
        traffic = min(at.bandwidth, at.cores * at.core_bandwidth) / balance
        serial = rng.choice((0.0, rng.uniform(0, 0.03))) * at.rate
        return cls(work, traffic, serial, rng.uniform(0.7, 1.1))


def law(a: Application, s: Silicon, threads: int, frequency: float) -> tuple[float, float]:
    """Return time (s) and energy (J) on one node; the nominal frequency is 1."""
    bandwidth = s.bandwidth * (1 - s.uncore * (1 - frequency))
    compute = a.work / (threads * s.rate * frequency)
    memory = a.traffic / min(bandwidth, threads * s.core_bandwidth)
    time = a.serial / (s.rate * frequency)
    time += (compute**SHARPNESS + memory**SHARPNESS) ** (1 / SHARPNESS)
    cores = threads * (s.core_static_w + a.activity * s.core_dynamic_w * frequency**3)
    return time, time * (s.idle_w + cores + s.memory_w * min(1.0, memory / time))


def node_type(name: str, s: Silicon) -> NodeType:
    steps = tuple(round(f * 2e6) for f in sorted(FREQUENCIES))
    return NodeType(name, cores=s.cores, freq_khz=steps, default_freq_khz=steps[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    inside: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    off: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for _ in range(args.pairs):
        here, there = Silicon.draw(rng), Silicon.draw(rng)
        a = Application.draw(rng, here)
        base, target = node_type("base", here), node_type("target", there)
        options = []
        for threads in {max(1, round(share * here.cores)) for share in SHARES}:
            for freq in base.freq_khz:
                t, e = law(a, here, threads, freq / 2e6)
                c = Configuration("base", 1, 1, threads, freq)
                options.append(Option(c, t, t, t, e, e, e, True, True))
        (t0, e0), (t1, e1) = law(a, here, here.cores, 1.0), law(a, there, there.cores, 1.0)
        for case, wrong in (("true ratio", 0.0), ("estimated ratio", rng.gauss(0, METHOD_ERROR))):
            times = math.exp(wrong) * t1 / t0, math.exp(wrong) * e1 / e0
            ranked = NodeTypeEstimate(
                "target", t1, times[0], 0.0, None, None, times[1], 0.0, "profiles"
            )
            for o in transfer(options, base, target, ranked):
                c = o.configuration
                true = law(a, there, c.threads_per_node, c.freq_khz / 2e6)
                where = _where(c.threads_per_node / target.cores, c.freq_khz / 2e6)
                for what, value, truth, sigma in (
                    ("time", o.time_s, true[0], o.time_sigma),
                    ("energy", o.energy_j, true[1], o.energy_sigma),
                ):
                    # With the true ratio its own error does not count.
                    own = METHOD_ERROR if wrong == 0.0 else 0.0
                    half = Z90 * math.sqrt(max(0.0, sigma**2 - own**2))
                    error = abs(math.log(value / truth))
                    for place in ("everywhere", where):
                        inside[case, what, place].append(error <= half + 1e-6)
                        off[case, what, place].append(error)
    print(f"{args.pairs} pairs of node types; 90 % intervals; mean |ln error|")
    for case in ("true ratio", "estimated ratio"):
        print(f"\n{case}\n{'':<34}{'time inside':>12}{'error':>8}{'energy inside':>15}{'error':>8}")
        for where in ("everywhere", *PLACES):
            cells = ""
            for what, width in (("time", 12), ("energy", 15)):
                held, errors = inside[case, what, where], off[case, what, where]
                cells += f"{sum(held) / len(held):>{width}.1%}{sum(errors) / len(errors):>8.3f}"
            print(f"{where:<34}{cells}")


PLACES = (
    "full node, nominal frequency",
    "full node, lower frequency",
    "fewer cores, nominal frequency",
    "fewer cores, lower frequency",
)


def _where(share: float, frequency: float) -> str:
    return PLACES[2 * (share < 0.999) + (frequency < 0.999)]


if __name__ == "__main__":
    main()
