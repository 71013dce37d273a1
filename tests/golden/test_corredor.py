"""Every index, winner and estimate of the worked cases of Corredor 2011 (tables 3.15 to 4.49)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from advisor.core.node_type_estimate import METHOD_ERROR
from advisor.core.option import Z90
from advisor.paths import share
from advisor.ranking.files import read_thresholds
from advisor.ranking.rank import Ranking, rank
from advisor.ranking.similarity import Profile, compare, matches, winner
from advisor.ranking.streams import Characterisation, Phase, Stream

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("corredor_cases.json").read_text()
)
THRESHOLDS = read_thresholds(share("config/ranking.yaml"))
named = pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])


def streams(rows: list[list[Any]]) -> tuple[Stream, ...]:
    return tuple(Stream(*row) for row in rows)


def phase_of(case: dict[str, Any]) -> Phase:
    return Phase(
        "main", 1.0, case["phase_s"], case["iterations"], case["us"], streams(case["streams"])
    )


def profile_of(row: dict[str, Any], node_type: str = "BN", us: float | None = None) -> Profile:
    return Profile(row["id"], node_type, us or row["us"], streams(row["streams"]))


@named
def test_every_index(case: dict[str, Any]) -> None:
    phase = phase_of(case)
    for row in case["profiles"]:
        found = {m.streams: m.index for m in compare(phase, profile_of(row), THRESHOLDS)}
        if len(row["streams"]) == 2:
            assert found == {(0, 1): row["index"][0]}, row
        else:
            assert found == {(i,): index for i, index in enumerate(row["index"])}, row


@named
def test_the_winner(case: dict[str, Any]) -> None:
    phase, profiles = phase_of(case), [profile_of(r) for r in case["profiles"]]
    best = winner(phase, matches(phase, profiles, THRESHOLDS), THRESHOLDS)
    assert best is not None
    assert (best.profile.microbenchmark, best.index) == (
        case["winner"]["id"],
        case["winner"]["index"],
    )
    if "size" in case["winner"]:
        assert best.profile.streams[0].size_kb == case["winner"]["size"]


def ranking_of(case: dict[str, Any]) -> Ranking:
    """The case's node types, ranked by the winner among its profiles."""
    phase = phase_of(case)
    profiles = [profile_of(r) for r in case["profiles"]]
    best = winner(phase, matches(phase, profiles, THRESHOLDS), THRESHOLDS)
    assert best is not None
    chosen = best.profile
    there = [
        Profile(chosen.microbenchmark, node, values["t"], chosen.streams)
        for node, values in case["nodes"].items()
        if node != "BN"
    ]
    return rank(Characterisation("app", (phase,)), [*profiles, *there], "BN", THRESHOLDS)


@named
def test_every_estimate_and_the_fastest(case: dict[str, Any]) -> None:
    ranking = ranking_of(case)
    found = {e.node_type: e for e in ranking.estimates}
    for node, values in case["nodes"].items():
        # the base node's estimate is printed from a second measurement of the profile
        close = 0.02 if node == "BN" else 0.003
        assert found[node].phases_s == pytest.approx(values["estimate_s"], rel=close), node
    assert ranking.estimates[0].node_type == case["fastest"]


def test_the_intervals_that_rank_prints_hold() -> None:
    """Of the 20 measured times 18 are inside, as for jobs; the profiles' own errors hold 4."""
    inside = of_profiles = 0
    for case in CASES:
        ranking = ranking_of(case)
        for e in ranking.estimates:
            real = case["nodes"][e.node_type]["real_s"]
            if e.node_type == "BN" or real is None:
                continue
            low, high = ranking.interval(e)
            inside += low <= real <= high
            off = Z90 * math.log1p(e.error_pct / 100)
            of_profiles += abs(math.log(real / e.time_s)) <= off
    assert (inside, of_profiles) == (18, 4)


def test_the_published_errors() -> None:
    off = [
        values["diff_pct"]
        for case in CASES
        for node, values in case["nodes"].items()
        if node != "BN"
    ]
    assert len(off) == 21
    assert sum(off) / 21 == pytest.approx(10.2, abs=0.05)
    assert max(off) == pytest.approx(31.9, abs=0.05)


def test_the_error_that_estimates_are_given_is_the_published_one() -> None:
    """Stated errors are far too small; intervals by transfer rest on how far off all were."""
    off = [
        math.log(values["estimate_s"] / values["real_s"])
        for case in CASES
        for node, values in case["nodes"].items()
        if node != "BN" and values["real_s"] is not None
    ]
    assert len(off) == 20  # the 21st is 0.5 % off, what was measured is not printed
    assert math.sqrt(sum(o * o for o in off) / 21) == pytest.approx(METHOD_ERROR, abs=0.002)
    assert sum(abs(o) <= Z90 * METHOD_ERROR for o in off) == 18
