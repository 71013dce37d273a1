"""How similar a phase is to a microbenchmark's profile: indices, discards, and the winner.

Corredor 2011, section 3.5, tables 3.21 to 3.26: five elements (time per iteration, size, stride,
data type, access) give points; for several streams an element is their mean; the index is the sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.errors import InputError
from advisor.ranking.streams import Phase, Stream

Steps = tuple[tuple[float, float], ...]
"""(greatest relative difference, points), ascending."""

ELEMENTS = ("time_per_iter", "size", "stride", "dtype", "access")
MOST_SIMILAR = 5
"""Of more similar profiles the margin is tightened (Corredor, section 3.5, figure 3.18)."""
SURE = 0.02
"""A profile's mean is sure when its 95 % interval is within this share of it."""
MOST_STREAMS = 6
"""Streams of a phase that are compared: all orders of more would take too long."""
_TIGHTER, _MOST_ROUNDS = 0.5, 12
"""Ties are resolved by thresholds times this (Corredor, section 3.5), so many times at most."""
_ROUNDING = 1e-9
"""A difference this little above a threshold is still within it."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The points of each element; differences above ``discard_above`` end a comparison."""

    size: Steps
    stride: Steps
    time_per_iter: Steps
    dtype: float
    access: float
    discard_above: float

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Thresholds:
        """Read the form of ``config/ranking.yaml``. Raises InputError naming the key."""
        valid_keys = {"version", *cls.__slots__}
        for key in data:
            if key not in valid_keys:
                raise InputError(
                    f"{key}: is not known", hint=f"there are {', '.join(sorted(valid_keys))}"
                )
        return cls(
            _steps(data, "size"),
            _steps(data, "stride"),
            _steps(data, "time_per_iter"),
            _number(data, "dtype"),
            _number(data, "access"),
            _number(data, "discard_above"),
        )

    @property
    def most(self) -> float:
        """The index of a profile that is the phase itself."""
        steps = (self.size, self.stride, self.time_per_iter)
        return sum(max(points for _, points in s) for s in steps) + self.dtype + self.access

    def tightened(self, factor: float) -> Thresholds:
        """Return thresholds that give their points to smaller differences only."""

        def closer(steps: Steps) -> Steps:
            return tuple((limit * factor, points) for limit, points in steps)

        return replace(
            self,
            size=closer(self.size),
            stride=closer(self.stride),
            time_per_iter=closer(self.time_per_iter),
        )


def _steps(data: Mapping[str, Any], key: str) -> Steps:
    value = data.get(key)
    if not isinstance(value, list) or not value or not all(map(_is_step, value)):
        value = []
    if not value or sorted(value) != value:
        raise InputError(f"{key}: must be ascending steps like [[0.02, 25], [0.05, 15]]")
    return tuple((float(limit), float(points)) for limit, points in value)


def _is_step(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 0 for v in value)
    )


def _number(data: Mapping[str, Any], key: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise InputError(f"{key}: must be a number from 0 up")
    return float(value)


@dataclass(frozen=True, slots=True)
class Profile:
    """One microbenchmark's result on one node type: time per iteration (us) and its streams.

    ``energy_per_iter_nj`` is the node's, None without a meter; ``threads`` is 0 where not known;
    ``spread`` is half of the mean's 95 % interval over it, 0 where not known; ``own`` marks a
    kernel that a user brought.
    """

    microbenchmark: str
    node_type: str
    time_per_iter_us: float
    streams: tuple[Stream, ...]
    energy_per_iter_nj: float | None = None
    threads: int = 0
    spread: float = 0.0
    own: bool = False

    @property
    def doubt(self) -> float:
        """Its spread where that is more than a profile's 2 %, else 0."""
        return self.spread if self.spread > SURE else 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes microbenchmarks, whatever node type they ran on."""
        return (
            self.microbenchmark,
            *((s.size_kb, s.stride_b, s.dtype_b, s.access) for s in self.streams),
        )


@dataclass(frozen=True, slots=True)
class ProfileMatch:
    """A profile compared with a phase.

    ``streams`` are the phase's streams it stands for, by index; ``index`` None means discarded,
    and then ``elements`` are empty.
    """

    profile: Profile
    streams: tuple[int, ...]
    index: float | None
    elements: Mapping[str, float]

    @property
    def represents(self) -> bool:
        """Whether it can stand for the phase: it was not discarded and has the busiest stream."""
        return self.index is not None and 0 in self.streams


def compare(phase: Phase, profile: Profile, thresholds: Thresholds) -> list[ProfileMatch]:
    """Compare a profile with every choice of as many of the phase's streams, in every order.

    Of the orders of one choice the best stands. A profile of more streams than the phase gives
    nothing, nor does one of none; of a phase's streams the busiest ``MOST_STREAMS`` are held
    against it.
    """
    comparisons: list[ProfileMatch] = []
    count = len(profile.streams)
    if not count:
        return comparisons
    for chosen in itertools.combinations(range(min(len(phase.streams), MOST_STREAMS)), count):
        orders = [
            _match(phase, profile, order, thresholds) for order in itertools.permutations(chosen)
        ]
        best = max(orders, key=lambda m: -1.0 if m.index is None else m.index)
        comparisons.append(replace(best, streams=tuple(sorted(best.streams))))
    return comparisons


def _match(
    phase: Phase, profile: Profile, order: tuple[int, ...], thresholds: Thresholds
) -> ProfileMatch:
    discarded = ProfileMatch(profile, order, None, {})
    limit = thresholds.discard_above
    time = _difference(profile.time_per_iter_us, phase.time_per_iter_us)
    if time > limit:
        return discarded
    time = math.hypot(time, profile.doubt)  # an unsure profile may be so much further off
    totals = dict.fromkeys(ELEMENTS, 0.0)
    for stream_index, profile_stream in zip(order, profile.streams, strict=True):
        phase_stream = phase.streams[stream_index]
        size = _difference(profile_stream.size_kb, phase_stream.size_kb)
        stride = _difference(profile_stream.stride_b, phase_stream.stride_b)
        if size > limit or stride > limit:
            return discarded
        totals["size"] += _points(size, thresholds.size)
        totals["stride"] += _points(stride, thresholds.stride)
        totals["dtype"] += thresholds.dtype * (profile_stream.dtype_b == phase_stream.dtype_b)
        totals["access"] += thresholds.access * (profile_stream.access == phase_stream.access)
    elements = {name: value / len(order) for name, value in totals.items()}
    elements["time_per_iter"] = _points(time, thresholds.time_per_iter)
    return ProfileMatch(profile, order, sum(elements.values()), elements)


def _difference(profile_value: float, phase_value: float) -> float:
    if profile_value == phase_value:
        return 0.0
    return abs(profile_value - phase_value) / phase_value if phase_value else float("inf")


def _points(difference: float, steps: Steps) -> float:
    return next((points for limit, points in steps if difference <= limit + _ROUNDING), 0.0)


def matches(
    phase: Phase, profiles: Sequence[Profile], thresholds: Thresholds
) -> list[ProfileMatch]:
    """Return every comparison of a phase with the profiles of its base node, best first."""
    comparisons = [m for p in profiles for m in compare(phase, p, thresholds)]
    comparisons.sort(key=lambda m: (not m.represents, -(m.index or 0.0)))
    return comparisons


def narrowed(
    phase: Phase, comparisons: Sequence[ProfileMatch], thresholds: Thresholds
) -> tuple[list[ProfileMatch], float]:
    """Return the comparisons with the margin at which a profile is discarded, tightened.

    While more than MOST_SIMILAR can stand for the phase, the margin is halved; the best by index
    always stay, and so does the last margin that leaves any. The margin comes as a share.
    """
    still_alike, margin = list(comparisons), thresholds.discard_above
    best = max((m.index or 0.0 for m in still_alike if m.represents), default=0.0)
    for _ in range(_MOST_ROUNDS):
        if sum(m.represents for m in still_alike) <= MOST_SIMILAR:
            break
        tighter = replace(thresholds, discard_above=margin * _TIGHTER)
        tighter_matches = [
            m
            if m.index is None or m.index == best
            else next(n for n in compare(phase, m.profile, tighter) if n.streams == m.streams)
            for m in still_alike
        ]
        if not any(m.represents for m in tighter_matches):
            break
        still_alike, margin = tighter_matches, margin * _TIGHTER
    still_alike.sort(key=lambda m: (not m.represents, -(m.index or 0.0)))
    return still_alike, margin


def winner(
    phase: Phase, comparisons: Sequence[ProfileMatch], thresholds: Thresholds
) -> ProfileMatch | None:
    """Return the match that stands for the phase, None when all were discarded.

    A match that lacks the busiest stream cannot. Ties are resolved by tighter thresholds, then by
    the nearer time per iteration.
    """
    rest = [m for m in comparisons if m.represents]
    if not rest:
        return None
    best = max(m.index or 0.0 for m in rest)
    rest = [m for m in rest if m.index == best]
    factor = 1.0
    for _ in range(_MOST_ROUNDS):
        if len(rest) == 1:
            break
        factor *= _TIGHTER
        tighter = thresholds.tightened(factor)
        tighter_indices = [
            (
                m,
                max(
                    (n.index or 0.0)
                    for n in compare(phase, m.profile, tighter)
                    if n.streams == m.streams
                ),
            )
            for m in rest
        ]
        top = max(index for _, index in tighter_indices)
        rest = [m for m, index in tighter_indices if index == top]
    phase_us = phase.time_per_iter_us
    return min(rest, key=lambda m: _difference(m.profile.time_per_iter_us, phase_us))
