"""What profiles say of sizes: laws of counts as text, their use for time, and lack of memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.core.configuration import Configuration
from advisor.core.count_laws import CountLaws
from advisor.core.inventory import NodeType
from advisor.core.memory import lacking_memory
from advisor.scaling.base import SizedPlaces, SizedRuns
from advisor.scaling.registry import create

LAWS = CountLaws(
    ("N", "NPC"),
    "NPC",
    {"NThreads": ((0.0, "1"), (2.0, "NPC"))},
    # one class: two threads a process, each 5 + 3 n^2 over all threads
    ((((2.0, "NPC"),), ((5.0, "1"), (3.0, "(N^2)/NThreads"))),),
    ((((1.0, "NPC"),), ((-10.0, "1"), (1000.0, "N"))),),
)


def test_counts_are_those_of_all_threads() -> None:
    counts = LAWS.counts({"n": 4}, 2)
    assert counts == {
        "instructions": 4 * (5 + 3 * 16 / 4),
        "instructions[1]": 20.0,
        "instructions[(N^2)/NThreads]": 48.0,
    }
    assert LAWS.footprint_bytes({"n": 4}, 2) == 2 * 3990
    assert LAWS.footprint_bytes({"n": 0.001}, 2) == 0.0
    assert CountLaws.from_dict(json.loads(json.dumps(LAWS.to_dict()))) == LAWS


def test_what_is_not_known_says_nothing() -> None:
    assert LAWS.missing(["m"]) == "N" and LAWS.missing(["n"]) == ""
    assert LAWS.counts({"m": 4}, 2) is None and LAWS.footprint_bytes({}, 2) is None
    assert replace(LAWS, fixed={"n": 4.0}).footprint_bytes({}, 2) == 2 * 3990
    assert replace(LAWS, instructions=(), footprint=()).counts({"n": 4}, 2) is None
    for term in ("1/(n-n)", "log(n-n)", "exp(n^9)", "q"):
        bad = CountLaws(("n",), footprint=((((1.0, "1"),), ((1.0, term),)),))
        assert bad.footprint_bytes({"n": 50.0}, 1) is None


@pytest.mark.parametrize(
    "damage", [None, {}, {"parameters": 3}, {"threads": []}, {"footprint": [[[[1, "n +"]], []]]}]
)
def test_damaged_laws_are_none(damage: Any) -> None:
    broken = damage if not damage else LAWS.to_dict() | damage
    assert CountLaws.from_dict(broken) is None


def test_ranks_that_lack_memory() -> None:
    cells = [Configuration("a", 2, ranks, 16, 0) for ranks in (1, 8)]
    small = NodeType("a", memory_mb=30)
    lack = lacking_memory(LAWS, {"n": 5000}, cells, small)
    assert list(lack) == cells[1:]
    assert lack[cells[1]] == (
        "8 ranks a node need 0.0373 GiB of memory by the profiles, a has 0.0293 GiB"
    )
    for kind in (None, NodeType("a"), NodeType("a", memory_mb=50)):
        assert not lacking_memory(LAWS, {"n": 5000}, cells, kind)


@pytest.mark.parametrize("name", ["physics", "terms", "pmnf"])
def test_counts_show_a_law_that_bends_beyond_the_measured_sizes(name: str) -> None:
    """Work n + n^3 / 100 is nearly straight up to n = 4; profiles show the cube exactly."""
    laws = CountLaws(("n",), "", {}, ((((1.0, "1"),), ((1e6, "n"), (1e4, "n^3"))),))
    cells = [Configuration("a", 1, 1, cores, 0) for cores in (4, 16)]

    def time(n: float, c: Configuration) -> float:
        return 50 * (n + n**3 / 100) / c.threads_per_node

    noise = iter((1.01, 0.99, 0.985, 1.0, 0.99, 0.995))
    rows = [({"n": n}, c, time(n, c) * next(noise), None) for n in (1.0, 2.0, 4.0) for c in cells]
    truth = np.log([time(16, c) for c in cells])
    off = []
    for known in (None, laws):
        runs = SizedRuns.of(["n"], rows, laws=known)
        places = SizedPlaces.of(["n"], [({"n": 16.0}, c) for c in cells], known)
        forecast = create(name).forecast(runs, places)
        off.append(float(np.abs(forecast.time.mean - truth).max()))
    assert forecast.terms[-1].startswith("instructions")
    assert off[1] < min(0.03, off[0])
