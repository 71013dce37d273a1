"""Measure this machine: which microbenchmarks, with which meter, and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from advisor.lab.bench import SURE, Repetitions, measure
from advisor.lab.machine import circumstances, fingerprint, memory_b
from advisor.ranking.streams import Stream
from advisor.ranking.suite import FLOPS, Microbenchmark, plan


def measure_here(order: dict[str, Any], show: Callable[[int, int, float], None]) -> dict[str, Any]:
    """Run what an order says; return machine, profiles and peaks in the form of JSON.

    ``order``: size (quick, full, none), budget_s, wanted (name and streams each), meter.
    """
    from advisor.meters.choose import best_meter
    from advisor.schedulers.local.scheduler import local_node_type

    node = local_node_type()
    threads = node.cores
    meter = best_meter(node, name=order["meter"])
    metered = meter.meter if meter.meter is not None and meter.meter.NAME != "estimate" else None
    wanted = [
        Microbenchmark(w["name"], threads, tuple(Stream.from_dict(s) for s in w["streams"]))
        for w in order["wanted"]
    ]
    if order["size"] != "none":
        wanted += plan(order["size"], threads, memory_b())
    wanted = list(dict.fromkeys(wanted))
    begin = time.monotonic()
    found = measure(wanted, budget_s=order["budget_s"], meter=metered, show=show)
    return {
        "machine": fingerprint(node),
        **circumstances(),
        "threads": threads,
        "meter": f"energy measured by {metered.NAME}" if metered else "no energy: no meter here",
        "seconds": time.monotonic() - begin,
        "wanted": len(wanted),
        "sure": sum(m.spread <= SURE for m in found),
        "profiles": [_profile(m) for m in found],
        "peaks": peaks(found, threads),
    }


def _profile(m: Repetitions) -> dict[str, Any]:
    """Return a result in the form of ``advisor.store.profiles.StoredProfile``, less its node."""
    one = m.microbenchmark
    return {
        "microbenchmark": one.name,
        "streams": [s.to_dict() for s in one.streams],
        "threads": one.threads,
        "time_per_iter_us": m.time_per_iter_us,
        "spread": min(m.spread, 10.0),
        "repeats": len(m.seconds),
        "energy_per_iter_nj": m.energy_per_iter_nj,
        "meter": m.meter,
    }


def peaks(found: list[Repetitions], threads: int) -> dict[str, float]:
    """Return the roofline of the node: GB/s from memory by the triad, GFlop/s by the peak.

    The triad counts 24 bytes an iteration, as STREAM does; zeros where they were not measured.
    """
    triads = [m for m in found if m.microbenchmark.name == "triad"]
    largest = max(triads, key=lambda m: m.microbenchmark.streams[0].size_kb, default=None)
    peak = next((m for m in found if m.microbenchmark.name == "fma"
                 and m.microbenchmark.threads == threads), None)  # fmt: skip
    return {
        "bandwidth_gb_s": 24e-3 * threads / largest.time_per_iter_us if largest else 0.0,
        "gflop_s": FLOPS["fma"] * 1e-3 * threads / peak.time_per_iter_us if peak else 0.0,
    }
