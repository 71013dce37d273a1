"""Several values of one setting within one run: which is due, and what each takes."""

from __future__ import annotations

import math

import pytest

from advisor.phases.visits import SETTLE_S, Visits
from tests.values_in_turn import VALUES, Program, Running, complete, truth, visited


@pytest.mark.parametrize(
    "program",
    [
        Program(),
        Program(scatter=0.0),
        Program(grows=1.0),
        Program(iterations=90, iteration_s=0.6),
        Program(iterations=6000, iteration_s=0.005, scatter=0.1),
    ],
)
def test_each_value_is_known_within_what_was_asked_for(program: Program) -> None:
    visits, run = visited(program)
    assert visits.done and not visits.reason
    assert run.now < 0.9 * complete(program).events.times[-1] * max(map(program.time, VALUES))
    points = visits.points()
    assert [p.value for p in points] == [1, 2, 3, 4, 5, 6]
    for point in points:
        time_s, energy_j = truth(program, VALUES[point.value])
        assert point.energy is not None and point.iterations >= 8
        for whole, true in ((point.time, time_s), (point.energy, energy_j)):
            assert whole.half <= 0.03 * whole.total
            assert whole.total == pytest.approx(true, rel=0.03), (point, true)


def test_a_drift_of_the_run_counts_for_no_value() -> None:
    """It gets slower by a fifth as it goes on, which the complete run did not."""
    visits, _ = visited(Program(drift=0.2), base=Program())
    assert visits.done
    for point in visits.points():
        assert point.time.total == pytest.approx(truth(Program(), VALUES[point.value])[0], rel=0.02)


def test_what_follows_a_change_is_left_out() -> None:
    visits, run = visited(Program(scatter=0.0))
    assert visits.done
    marks = [t for t, site in run.events if site == "step"]
    for former, visit in zip(visits.visits, visits.visits[1:], strict=False):
        gap_s = marks[visit.first] - marks[former.behind]
        assert (gap_s >= SETTLE_S) == (former.value != visit.value)


def test_values_go_there_and_back() -> None:
    visits, _ = visited(Program())
    order = [v.value for v in visits.visits]
    assert order[:14] == [0, 1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 0]
    assert len(order) % 7 == 0


def test_of_too_many_values_for_a_run_some_are_left_out() -> None:
    visits, _ = visited(Program(iterations=330))
    assert visits.done and visits.values[0] == 0 and visits.values[-1] == 6
    assert 4 <= len(visits.values) < 7 and len(visits.points()) == len(visits.values) - 1


@pytest.mark.parametrize(
    ("base", "run", "why"),
    [
        (Program(iterations=60), None, "60 iterations of 0.05 s, too few for 4 values"),
        (Program(around_s=20), None, "its iterations are 43 % of the complete run"),
        (Program(iterations=6, iteration_s=2), None, "the complete run has no iterations"),
        (Program(), Program(iterations=200), "it ended before each value was visited there and"),
        (Program(), Program(scatter=0.3), "it ended before each value was known within 3 %"),
    ],
)
def test_why_nothing_comes_of_it(base: Program, run: Program | None, why: str) -> None:
    visits, _ = visited(run or base, base=base)
    assert not visits.done and why in visits.reason


def test_iterations_of_another_kind_are_none_of_the_complete_runs() -> None:
    run, visits = Running(Program(), 2, VALUES), Visits(complete(Program()), len(VALUES))
    run.go(visits, site="reduce")
    assert visits.reason == "its iterations are not those of the complete run"


def test_without_a_meter_time_alone_is_known() -> None:
    run, visits = Running(Program(), 2, VALUES), Visits(complete(Program()), 7, metered=False)
    run.go(visits)
    assert visits.done and all(p.energy is None for p in visits.points())


def test_intervals_hold_as_often_as_they_say() -> None:
    """90 % ones, which leave room for a drift that no such program has: more often."""
    held = total = 0
    for seed in range(12):
        program = Program(scatter=0.05)
        run = Running(program, 100 + seed, VALUES)
        visits = Visits(complete(program, 200 + seed), 7)
        run.go(visits)
        for point in visits.points() if visits.done else ():
            time_s, energy_j = truth(program, VALUES[point.value])
            for whole, true in ((point.time, time_s), (point.energy, energy_j)):
                assert whole is not None
                held += math.isclose(whole.total, true, abs_tol=whole.half)
                total += 1
    assert total >= 100 and held >= 0.85 * total
