"""Estimated and measured time of an application on node types (Corredor 2011, fig. 3.29, 4.12)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.models.response import response
from advisor.models.scatter import USUAL
from advisor.plotting.panels import Panels
from advisor.plotting.statistics import IntervalPanel
from advisor.ranking.rank import Ranking
from advisor.store.reader import Reader

TimeInterval = tuple[float, float, float]


def measured_times(reader: Reader, application: str, workload: str) -> dict[str, TimeInterval]:
    """Return (time, low, high), s at 90 %, of every node type whose full node was run.

    A ranking is for full nodes at nominal frequency: counted are runs on one node with all of its
    cores at the highest frequency that was run.
    """
    cores = {name: n.cores for name, n in reader.inventory().node_types.items()}
    runs = [
        r.observation
        for r in reader.observations(application, workload)
        if r.observation.configuration.nodes == 1
        and r.observation.configuration.cores == cores.get(r.observation.configuration.node_type)
    ]
    intervals = {}
    for name in {o.configuration.node_type for o in runs}:
        node_runs = [o for o in runs if o.configuration.node_type == name]
        highest = max(o.configuration.freq_khz for o in node_runs)
        node_runs = [o for o in node_runs if o.configuration.freq_khz == highest]
        full_node = node_runs[0].configuration
        times = response([(full_node, o.time_s) for o in node_runs], USUAL)
        mean, half = times.log_mean[full_node], times.half_width(full_node)
        intervals[name] = (math.exp(mean), math.exp(mean - half), math.exp(mean + half))
    return intervals


def ranking_picture(
    application: str, ranking: Ranking, measured: dict[str, TimeInterval]
) -> Panels:
    """Return a bar for each node type: the estimate with its 90 % interval, and the measured time.

    In s, and in percent of the base node's time (fig. 3.29 and 4.12). Node types that were measured
    but not estimated follow at the end.
    """
    estimates_by_type = {e.node_type: e for e in ranking.estimates}
    names = [*estimates_by_type, *sorted(set(measured) - set(estimates_by_type))]
    estimated: list[TimeInterval | None] = []
    for name in names:
        e = estimates_by_type.get(name)
        estimated.append(None if e is None else (e.time_s, *ranking.interval(e)))
    kinds: dict[str, Sequence[TimeInterval | None]] = {"estimated": estimated}
    if measured:
        kinds["measured"] = [measured.get(name) for name in names]
    title = f"{application}: time on one full node, 90 % intervals"
    panels = [IntervalPanel("time (s)", names, kinds, bars=True)]
    base = estimates_by_type.get(ranking.base)
    if base is not None:
        shares: dict[str, Sequence[TimeInterval | None]] = {
            kind: [None if v is None else _percent(v, base.time_s) for v in values]
            for kind, values in kinds.items()
        }
        panels.append(IntervalPanel(f"time, % of {ranking.base}'s", names, shares, bars=True))
    return Panels(title, tuple(panels))


def _percent(interval: TimeInterval, base_s: float) -> TimeInterval:
    value, low, high = (100 * end / base_s for end in interval)
    return value, low, high
