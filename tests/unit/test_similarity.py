"""Similar profiles: the margin narrows above five, and unsure ones get fewer points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.ranking.rank import rank
from advisor.ranking.similarity import Profile, Thresholds, compare, matches, narrowed, winner
from advisor.ranking.streams import Characterisation, Phase, Stream

STEPS = ((0.02, 25.0), (0.05, 15.0), (0.1, 10.0), (0.2, 5.0))
LIMITS = Thresholds(STEPS, STEPS, STEPS, 25, 25, 0.8)
PHASE = Phase("p", 1.0, 10.0, 1e6, 1.0, (Stream(1000, 8, 8, "C"),))


def profile(off: float, spread: float = 0.0, node_type: str = "a", us: float = 1.0) -> Profile:
    streams = (Stream(1000 * (1 + off), 8, 8, "C"),)
    return Profile("mbw1c", node_type, us, streams, spread=spread)


def test_of_more_than_five_similar_profiles_the_margin_is_halved() -> None:
    """Sizes off by 0, 10, ... 70 %: all eight are within 80 %, five within 40 %."""
    found = matches(PHASE, [profile(n / 10) for n in range(8)], LIMITS)
    near, margin = narrowed(PHASE, found, LIMITS)
    assert margin == 0.4
    assert sum(m.represents for m in near) == 5
    assert winner(PHASE, near, LIMITS) == winner(PHASE, found, LIMITS)
    assert narrowed(PHASE, found[:5], LIMITS)[1] == 0.8


def test_the_best_stays_where_tightening_would_leave_none() -> None:
    found = matches(PHASE, [profile(0.7 + n / 100) for n in range(6)], LIMITS)
    near, _ = narrowed(PHASE, found, LIMITS)
    assert any(m.represents for m in near)


def test_an_unsure_profile_gets_fewer_points_and_widens_the_error() -> None:
    """3 % of its own count as a difference of 3 %: 15 points of time, not 25."""
    (sure,) = compare(PHASE, profile(0, 0.02), LIMITS)
    (unsure,) = compare(PHASE, profile(0, 0.03), LIMITS)
    assert (sure.elements["time_per_iter"], unsure.elements["time_per_iter"]) == (25, 15)
    app = Characterisation("app", (PHASE,))
    there = profile(0, 0.04, "b", 2.0)
    ranking = rank(app, [profile(0), there], "a", LIMITS, "thesis")
    by_type = {e.node_type: e.error_pct for e in ranking.estimates}
    assert by_type == {"a": 0, "b": pytest.approx(4.0)}
    assert ranking.unsure == ("mbw1c (1000 KB, stride 8 B) on b: 4 %",)
    alone = rank(app, [profile(0), there], "a", LIMITS, "blend")  # there is nothing to mix
    assert alone.phases[0].memory is None and alone.unsure == ranking.unsure
    sure_there = rank(app, [profile(0), replace(there, spread=0.01)], "a", LIMITS, "thesis")
    assert sure_there.unsure == ()
