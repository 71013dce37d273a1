"""What is kept of a ranking: each node type against the base, in time, energy and similarity."""

from __future__ import annotations

import math

from advisor.core.inventory import Inventory
from advisor.core.node_type_estimate import EnergySource, NodeTypeEstimate
from advisor.core.power import stated_power_w
from advisor.core.transfer import STATED_POWER_ERROR
from advisor.ranking.rank import Ranking
from advisor.ranking.similarity import Thresholds


def ratios(
    ranking: Ranking, inventory: Inventory, thresholds: Thresholds
) -> tuple[NodeTypeEstimate, ...]:
    """Return every estimated node type against the base's own estimate, the base included.

    Both are estimates from the same profiles, so what a profile is off its phase on the base
    drops out of the ratio. Similarity is the index weighted by the phases' time, a phase without
    a match counting as 0; None where none has one. Energy comes from the profiles where they were
    metered on both node types, else from the power that the site states of both, times the time's
    ratio.
    """
    own = next((e for e in ranking.estimates if e.node_type == ranking.base), None)
    if own is None:
        return ()
    similarity = _similarity(ranking)
    found = []
    for e in ranking.estimates:
        ratio = e.time_s / own.time_s
        energy: tuple[float, float, EnergySource] | tuple[None, None, None] = (None, None, None)
        power = [_power(inventory, name) for name in (e.node_type, ranking.base)]
        if e.energy_ratio:
            energy = e.energy_ratio, e.error_pct, "profiles"
        elif power[0] and power[1]:
            error = math.hypot(e.error_pct, 100.0 * STATED_POWER_ERROR)
            energy = ratio * power[0] / power[1], error, "node power"
        most = None if similarity is None else thresholds.most
        found.append(
            NodeTypeEstimate(e.node_type, e.time_s, ratio, e.error_pct, similarity, most, *energy)
        )
    return tuple(found)


def _similarity(ranking: Ranking) -> float | None:
    if all(r.match is None for r in ranking.phases):
        return None
    whole = math.fsum(r.phase.time_s for r in ranking.phases)
    points = math.fsum(
        r.phase.time_s * (r.match.index or 0.0) for r in ranking.phases if r.match is not None
    )
    return points / whole if whole else 0.0


def _power(inventory: Inventory, name: str) -> float | None:
    node_type = inventory.resolve(name)
    return None if node_type is None else stated_power_w(node_type, node_type.cores)
