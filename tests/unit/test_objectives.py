"""Three objectives and the clusters along the front."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from advisor.core.configuration import Configuration
from advisor.core.objectives import CLUSTERS, MEASURES, clusters, front, resource_front
from advisor.core.option import Option
from advisor.core.select import WEIGHTS

VALUE = st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0, math.nan])


def option(time: float, energy: float, threads: int = 4, nodes: int = 1) -> Option:
    c = Configuration("n", nodes, 1, threads, 0)
    return Option(c, time, time, time, energy, energy, energy)


def beats(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


@given(st.lists(st.tuples(VALUE, VALUE, VALUE), max_size=25))
def test_the_front_is_what_nothing_beats(rows: list[tuple[float, float, float]]) -> None:
    whole = [i for i, r in enumerate(rows) if not any(map(math.isnan, r))]
    wanted = [i for i in whole if not any(beats(rows[j], rows[i]) for j in whole)]
    assert list(front(rows)) == wanted


def test_fewer_cores_are_an_objective_of_their_own() -> None:
    options = [option(10, 100, 8), option(10.1, 101, 4), option(10.2, 102, 8)]
    assert front([(o.time_s, o.energy_j) for o in options]) == (0,)
    assert resource_front(options) == (0, 1)


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=1, max_size=30))
def test_a_goals_own_choice_lies_in_its_cluster(points: list[tuple[float, float]]) -> None:
    options = [option(t, e) for t, e in points]
    found = clusters(options)
    assert set(found) == set(front([(o.time_s, o.energy_j) for o in options]))
    choices: dict[str, int] = {}
    for goal in CLUSTERS:
        w = WEIGHTS[goal]
        scores = {
            i: w * math.log(options[i].energy_j) + (1 - w) * math.log(options[i].time_s)
            for i in found
        }
        choices[goal] = min(scores, key=lambda i: scores[i])
    for i in choices.values():
        assert found[i] in [g for g, j in choices.items() if points[j] == points[i]]


def test_clusters_run_from_power_to_performance() -> None:
    options = [option(10 + 2 * i, 100 / (1 + i * (1.2 - 0.1 * i))) for i in range(6)]
    order = [clusters(options)[i] for i in range(6)]
    assert order[0] == "performance"
    assert order[-1] == "power"
    assert order == sorted(order, key=["performance", "balanced", "power"].index)


def test_measures() -> None:
    o = option(3600.0, 2.0, threads=4, nodes=3)
    found = {name: measure(o) for name, measure in MEASURES.items()}
    assert found == {
        "time": 3600.0,
        "energy": 2.0,
        "edp": 7200.0,
        "ed2p": 2 * 3600.0**2,
        "cores": 12.0,
        "node-hours": 3.0,
    }
