"""Application profiles with laws that are known, in the profiler's form, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from advisor_lab.profile.topology import grid_sources

LSYS = "20000 + 60 SIZE^2/NPC + 900 per neighbour; messages of 800 SIZE bytes, 50 from each"


def thread(process: int, sources: Iterable[int], total: int, size: int) -> dict[str, Any]:
    """One thread: 30 % loads, 40 % floating point, the rest integers, in 64 bits."""
    near = sorted(sources)
    count = 20000 + 60 * size**2 // total + 900 * len(near)
    loads, fp = 3 * count // 10, 4 * count // 10

    def group(kind: str, number: int) -> list[dict[str, Any]]:
        return [{"total_instructions": number, "mix": [{"vector_size": 1, kind: number}]}]

    sent = 50 * len(near)
    return {
        "threadId": 0,
        "processId": process,
        "instructionMix": {
            "instructions_analyzed": count,
            "load_instructions": group("float_64bits", loads),
            "fp_arith_instructions": group("float_64bits", fp),
            "int_arith_instructions": group("int_32bits", count - loads - fp),
        },
        "ilp": [{"windowSize": 54, "statistics": {"span": count / 2, "arithmetic_mean": 2.0}}],
        "mpiDataExchanged": {
            "sent_bytes": 800 * size * len(near),
            "sent_messages": sent,
            "received_bytes": 800 * size * len(near),
            "received_messages": sent,
        },
        "mpiCommunicationVector": [
            {"source": (process + r) % total, "received_bytes": 800 * size, "received_messages": 50}
            for r in near
        ],
    }


def grid_profile(lengths: tuple[int, ...], size: int, *, wraps: bool = False) -> dict[str, Any]:
    """One run on a grid of processes: a chain, a mesh or a torus."""
    sources = grid_sources(lengths, [wraps] * len(lengths))
    total = len(sources)
    return {
        "application": "grid",
        "appScale": {"NPC": total, "SIZE": size},
        "threads": [thread(p, own, total, size) for p, own in sources.items()],
    }


def write_runs(folder: Path, runs: Iterable[dict[str, Any]]) -> Path:
    """Write each run to a file; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, run in enumerate(runs):
        (folder / f"run{i:02d}.json").write_text(json.dumps(run))
    return folder
