"""The node types of a workload in order: what is to be had on each, and how that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from advisor.core.node_type_estimate import NodeTypeEstimate, log_error, similarity_text
from advisor.core.option import Z90
from advisor.core.units import format_count
from advisor.core.words import describe
from advisor.plotting.statistics import IntervalPanel
from advisor.store.rankings import StoredRanking
from advisor.views.options import View

TimeSource = Literal["measured", "predicted", "estimated"]


@dataclass(frozen=True, slots=True)
class RankedRow:
    """One node type for a workload, by its fastest option, and how that is known.

    ``where`` is that option's point, "" where there are no options; ``brief`` and ``how`` say how
    it is known in a few words and in a sentence.
    """

    node_type: str
    kind: TimeSource
    time_s: float
    energy_j: float | None
    where: str
    brief: str
    how: str
    low_s: float
    high_s: float
    """The 90 % interval of ``time_s``; both are it where no error is known."""


def intervals(rows: Sequence[RankedRow]) -> IntervalPanel:
    """Return the picture of the times: a line for each node type, by how it is known."""
    kinds: dict[str, list[tuple[float, float, float] | None]] = {}
    for kind in dict.fromkeys(row.kind for row in rows):
        kinds[kind] = [(r.time_s, r.low_s, r.high_s) if r.kind == kind else None for r in rows]
    return IntervalPanel(
        "time (s) at best, with its 90 % interval", [r.node_type for r in rows], kinds
    )


def ranked(views: Mapping[str, View], stored: Sequence[StoredRanking]) -> tuple[RankedRow, ...]:
    """Return node types with options or a stored ranking, fastest first.

    ``stored`` is newest first; of several rankings of a node type the newest counts. One without
    options takes the fastest time of its base, times the ratio.
    """
    ranked_rows = [_of_options(name, view) for name, view in views.items()]
    ranked_types = set(views)
    for ranking in stored:
        name = ranking.estimate.node_type
        if name not in ranked_types:
            ranked_types.add(name)
            ranked_rows.append(_of_ranking(ranking, views.get(ranking.base)))
    return tuple(sorted(ranked_rows, key=lambda r: (r.time_s, r.node_type)))


def _of_options(name: str, view: View) -> RankedRow:
    best = min(view.options, key=lambda o: o.time_s)
    energy = None if math.isnan(best.energy_j) else best.energy_j
    transfer = view.model.transfer
    if transfer:
        fields: dict[str, Any] = {n: transfer.get(n) for n in NodeTypeEstimate.__slots__}
        base, method = str(transfer.get("base")), str(transfer.get("method"))
        estimate = NodeTypeEstimate(**fields)
        kind: TimeSource = "estimated"
        brief, how = _brief_words(estimate), _sentence(estimate, base, method)
    elif any(o.measured for o in view.options):
        kind, brief = "measured", f"{format_count(view.model.n_train, 'run')} there"
        how = f"its options follow from {format_count(view.model.n_train, 'run')} there"
    else:
        kind, brief, how = "predicted", "predicted", "predicted, nothing ran at its options"
    where, low, high = describe(best.configuration), best.time_lo_s, best.time_hi_s
    return RankedRow(name, kind, best.time_s, energy, where, brief, how, low, high)


def _of_ranking(ranking: StoredRanking, base: View | None) -> RankedRow:
    estimate, energy_j, base_sigma = ranking.estimate, None, 0.0
    time_s = estimate.time_s
    if estimate.node_type == ranking.base:
        how = "it ran there while it was characterised; advisor train measures its options"
        name, brief = estimate.node_type, "characterised"
        return RankedRow(name, "measured", time_s, None, "", brief, how, time_s, time_s)
    if base is not None:
        fastest = min(base.options, key=lambda o: o.time_s)
        time_s, base_sigma = fastest.time_s * estimate.time_ratio, fastest.time_sigma
        if estimate.energy_ratio is not None and not math.isnan(fastest.energy_j):
            energy_j = fastest.energy_j * estimate.energy_ratio
    how = (
        _sentence(estimate, ranking.base, ranking.method)
        + "; it has no options, so no job is sent there"
    )
    error_factor = math.exp(Z90 * math.hypot(base_sigma, log_error(estimate.error_pct)))
    name, brief = estimate.node_type, _brief_words(estimate)
    low, high = time_s / error_factor, time_s * error_factor
    return RankedRow(name, "estimated", time_s, energy_j, "", brief, how, low, high)


def _brief_words(estimate: NodeTypeEstimate) -> str:
    return f"estimate, ±{100 * log_error(estimate.error_pct):.0f} %"


def _sentence(estimate: NodeTypeEstimate, base: str, method: str) -> str:
    """Say how an estimate was found."""
    text = f"estimated from microbenchmarks ({method}): {estimate.time_ratio:.2f} times the time"
    if estimate.energy_ratio is not None:
        text += f" and {estimate.energy_ratio:.2f} times the energy"
    text += f" of {base}, ±{100 * log_error(estimate.error_pct):.0f} %"
    if estimate.similarity is not None:
        text += f", {similarity_text(asdict(estimate))}"
    if estimate.energy_source == "node power":
        text += "; energy from the nodes' stated power"
    return text
