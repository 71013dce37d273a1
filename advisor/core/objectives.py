"""Beyond time and energy: resource use as a third objective, products of both, clusters.

Source: Endrei 2019, section 7.3.4 (resource use extends the problem to three objectives) and
figure 2.2 (power, balanced and performance clusters along the front); EDP and ED2P as in 2.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from advisor.core.option import Option
from advisor.core.policy import Goal
from advisor.core.select import WEIGHTS

CLUSTERS: tuple[Goal, ...] = ("balanced", "power", "performance")
"""The goals that give clusters their names; where two choose the same, the first names it."""


def cores(option: Option) -> float:
    """Return the cores an option takes on all its nodes: the third objective."""
    return float(option.configuration.cores)


def node_hours(option: Option) -> float:
    """Return what whole nodes are charged for, h."""
    return option.configuration.nodes * option.time_s / 3600


def edp(option: Option) -> float:
    """Return the energy-delay product, J s."""
    return option.energy_j * option.time_s


def ed2p(option: Option) -> float:
    """Return energy times time squared, J s^2."""
    return option.energy_j * option.time_s**2


MEASURES: Mapping[str, Callable[[Option], float]] = {
    "time": lambda o: o.time_s,
    "energy": lambda o: o.energy_j,
    "edp": edp,
    "ed2p": ed2p,
    "cores": cores,
    "node-hours": node_hours,
}
"""What options can be ordered by; less is better in all of them."""


def front(rows: Sequence[tuple[float, ...]]) -> tuple[int, ...]:
    """Return the rows that no other row beats in one column without losing in another.

    All columns are minimised; equal rows stand together. Rows with a NaN are never on the front.
    """
    order = sorted(
        (i for i, row in enumerate(rows) if not any(map(math.isnan, row))), key=lambda i: rows[i]
    )
    on_front: list[int] = []
    for i in order:  # whatever beats a row comes before it
        row = rows[i]
        if not any(
            rows[j] != row and all(a <= b for a, b in zip(rows[j], row, strict=True))
            for j in on_front
        ):
            on_front.append(i)
    return tuple(sorted(on_front))


def resource_front(options: Sequence[Option]) -> tuple[int, ...]:
    """Return the options on the front of time, energy and cores."""
    return front([(o.time_s, o.energy_j, cores(o)) for o in options])


def clusters(options: Sequence[Option]) -> dict[int, Goal]:
    """Return the cluster of each option on the front of time and energy, by index.

    An option belongs to the goal whose own choice (unbounded, the best score on the front) lies
    nearest along the front, in log space: so what a goal chooses lies in the cluster of its name.
    """
    line = front([(o.time_s, o.energy_j) for o in options])
    logs = {i: (math.log(options[i].time_s), math.log(options[i].energy_j)) for i in line}

    def score(i: int, goal: Goal) -> float:
        time, energy = logs[i]
        return WEIGHTS[goal] * energy + (1 - WEIGHTS[goal]) * time

    option_of_goal = (
        {goal: min(line, key=lambda i: score(i, goal)) for goal in CLUSTERS} if line else {}
    )
    return {
        i: min(
            option_of_goal,
            key=lambda goal: (math.dist(logs[i], logs[option_of_goal[goal]]), CLUSTERS.index(goal)),
        )
        for i in line
    }
