"""Whether clusters still are what they were: boxes of two clusterings, and stability.

A cluster is the box of its members on every axis, grown by 5 %; clusters of one clustering and the
next match when their boxes overlap. Two clusterings are equivalent when matched clusters hold 85 %
of the computing time of both; three in a row are stable. Each failure lowers what is asked for by
5 points, to 70 % at least (Llort et al., "On-line detection of large-scale parallel application's
structure", IPDPS 2010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Box = Mapping[str, tuple[float, float]]
"""Lowest and highest value of a cluster's members, by axis."""

MARGIN = 0.05
"""Relative tolerance at each end of the boxes that are compared."""
_FIRST, _STEP, _LAST = 85, 5, 70
"""Percent of the computing time that matched clusters must hold: at first, less by, at least."""

_IN_A_ROW = 3
"""Clusterings one after the other that must agree."""


@dataclass(frozen=True, slots=True)
class TrackedCluster:
    """A cluster: its box, and the computing time it holds (any unit)."""

    box: Box
    time: float


def overlap(one: Box, other: Box) -> bool:
    """Tell whether two boxes, each grown by the margin, overlap on every axis."""
    return all(
        one[axis][0] * (1 - MARGIN) <= other[axis][1] * (1 + MARGIN)
        and other[axis][0] * (1 - MARGIN) <= one[axis][1] * (1 + MARGIN)
        for axis in one
    )


def matched_share(before: Sequence[TrackedCluster], now: Sequence[TrackedCluster]) -> float:
    """Return the share of time in clusters that match one of the other clustering, of the lesser.

    Zero where a clustering has no clusters.
    """

    def share(clusters: Sequence[TrackedCluster], counterparts: Sequence[TrackedCluster]) -> float:
        total_time = sum(c.time for c in clusters)
        matched_time = sum(
            c.time for c in clusters if any(overlap(c.box, o.box) for o in counterparts)
        )
        return matched_time / total_time if total_time > 0 else 0.0

    return min(share(before, now), share(now, before))


@dataclass
class ClusterStability:
    """Follows clusterings one after the other until three in a row are equivalent."""

    required: int = _FIRST
    """Percent asked for by now."""
    seen: int = 0
    stable_at: int | None = None
    """The number, from 1, of the first clustering with two equivalences behind it."""
    _row: int = 1
    _before: Sequence[TrackedCluster] | None = field(default=None, repr=False)

    def feed(self, clusters: Sequence[TrackedCluster]) -> bool:
        """Take the next clustering; True once it is stable."""
        if self._before is None:
            self.seen, self._before = 1, clusters
            return False
        share = matched_share(self._before, clusters)
        self._before = clusters
        return self.matched(share)

    def matched(self, share: float) -> bool:
        """Take the share that the next clustering has in common with the one before."""
        self.seen = max(self.seen, 1) + 1
        if round(100 * share, 9) >= self.required:
            self._row += 1
        else:
            self._row = 1
            self.required = max(self.required - _STEP, _LAST)
        if self._row >= _IN_A_ROW and self.stable_at is None:
            self.stable_at = self.seen
        return self.stable_at is not None
