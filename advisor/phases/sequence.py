"""Iterations in a sequence of events: the outermost loop of call sites, and phases in succession.

A repeat that stands twice in a row is a loop: of "a b c b c d" with "b c" repeated, one copy is
kept. What remains after all of its events is the program's structure, and a loop around others is
found however often these turn. (Repeated structures of event sequences: Llort et al., "On-line
detection of large-scale parallel application's structure", IPDPS 2010; the reduction is that of
square-free words.)
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

LEAST_ITERATIONS = 8
"""Fewer repeats are no phase."""

_PIECE = 3
"""Repeats that make a piece of a phase which rare events part."""

_LONGEST = 8192
"""Sites of an iteration (inner loops counted once) that are still looked for."""

_RARE_SHARE = 0.07
"""Of an iteration's events: a loop whose own sites are fewer is a rare event around another."""

_FOREIGN_SHARE = 0.15
"""Of a phase's events: where more belong to other sites, it is no phase that rare events part."""

_COVERS = 0.2
"""Of all events or of the time: a phase that covers more of either is none by chance."""

_SURPRISE = 15.0
"""Natural logarithm of the odds against a shorter one among events in random order."""

_ONCE = 0.1
"""How far the site that begins iterations may come more or less often than they do."""


@dataclass(frozen=True, slots=True)
class IteratedPhase:
    """A stretch of a run that repeats itself.

    ``bounds`` are the numbers of the events that begin its iterations, and of the first event
    behind the last; ``events`` how many an iteration usually has; ``rare`` the sites that come
    less often than the iterations, with their times; ``sites`` those of an iteration.
    """

    begin_s: float
    end_s: float
    period_s: float
    bounds: NDArray[np.int64] = field(repr=False)
    events: int
    sites: tuple[str, ...]
    rare: dict[str, int]

    @property
    def iterations(self) -> int:
        """How often it repeats."""
        return len(self.bounds) - 1


@dataclass(slots=True)
class _Loop:
    """A repeat: its place on the stack, and the events it covers: [begin, end)."""

    place: int
    pattern: tuple[int, ...]
    begin: int
    end: int
    count: int

    @property
    def length(self) -> int:
        return self.end - self.begin


class IterationFinder:
    """Takes events one after the other; ``phases`` tells what repeats in those that came."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._times: list[float] = []
        self._tokens: list[int] = []
        self._stack: list[int] = []
        self._starts: list[int] = []
        self._places: dict[tuple[int, int], list[int]] = {}
        self._open: list[_Loop] = []
        self._loops: list[_Loop] = []

    def feed(self, time_s: float, site: str) -> None:
        """Take the next event: it begins what runs until the event after it."""
        token = self._numbers.get(site)
        if token is None:
            token = self._numbers[site] = len(self._names)
            self._names.append(site)
        event_index = len(self._tokens)
        self._times.append(time_s)
        self._tokens.append(token)
        pair = (self._stack[-1] if self._stack else -1, token)
        self._places.setdefault(pair, []).append(len(self._stack))
        self._stack.append(token)
        self._starts.append(event_index)
        while True:
            length = self._repeat()
            if not length:
                break
            self._fold(length, event_index + 1)
        top = len(self._stack)
        while self._open and self._open[-1].place + 2 * len(self._open[-1].pattern) <= top - 1:
            # A whole copy's worth of other events stands behind it: it does not go on.
            self._open.pop()

    def _repeat(self) -> int:
        """Return the length of the shortest repeat that ends the stack, 0 for none."""
        stack = self._stack
        top = len(stack) - 1
        if top < 1:
            return 0
        if stack[top] == stack[top - 1]:
            return 1
        # A repeat ends in the stack's last two events: only where these stood before is tried, the
        # nearest first, for the shortest repeat is wanted and all farther ones are longer.
        places = self._places[stack[top - 1], stack[top]]
        for i in range(len(places) - 2, -1, -1):
            length = top - places[i]
            if length > _LONGEST or 2 * length > top + 1:
                return 0
            back = 2
            while back < length and stack[top - back] == stack[top - length - back]:
                back += 1
            if back == length:
                return length
        return 0

    def _fold(self, length: int, end: int) -> None:
        """Take the second copy of a repeat off the stack; its loop now ends before ``end``."""
        place = len(self._stack) - 2 * length
        begin = self._starts[place]
        self._starts[place : place + length] = self._starts[place + length :]
        del self._starts[place + length :]
        for previous, token in pairwise(self._stack[place + length - 1 :]):
            self._places[previous, token].pop()
        pattern = tuple(self._stack[place + length :])
        del self._stack[place + length :]
        while self._open and self._open[-1].place > place:
            self._open.pop()
        while self._open and self._open[-1].place == place:
            if len(self._open[-1].pattern) >= length:
                break
            self._open.pop()
        last = self._open[-1] if self._open else None
        if last is not None and last.place == place and len(last.pattern) == length:
            last.count += 1
        else:
            last = _Loop(place, pattern, begin, end, 2)
            self._open.append(last)
            self._loops.append(last)
        for loop in self._open:  # what this one is inside of goes on with it
            if loop.place + len(loop.pattern) >= place + length:
                loop.end = end

    def phases(self) -> list[IteratedPhase]:
        """Return the phases of what came so far, in order; none where nothing repeats."""
        tokens = np.array(self._tokens, np.int64)
        times = np.array(self._times)
        phases = []
        for stretch in self._stretches(tokens):
            phase = self._phase(stretch, tokens, times)
            if phase is not None:
                phases.append(phase)
        return phases

    def _stretches(self, tokens: NDArray[np.int64]) -> list[_Loop]:
        """Return the outermost loops that are iterations, those joined that rare events part."""
        loops = sorted((o for o in self._loops if o.count >= _PIECE), key=lambda o: o.begin)
        # The longest first, so that loops inside of one that is chosen find their events covered.
        order = sorted(loops, key=lambda o: (-o.length, len(o.pattern)))
        chosen: list[_Loop] = []
        covered = np.zeros(len(tokens), bool)
        for loop in order:
            if covered[loop.begin] or covered[loop.end - 1]:
                continue
            if self._rare(loop, loops, tokens):
                continue
            covered[loop.begin : loop.end] = True
            chosen.append(loop)
        chosen.sort(key=lambda o: o.begin)
        joined: list[_Loop] = []
        for loop in chosen:
            previous = joined[-1] if joined else None
            if previous is not None and self._joins(previous, loop):
                count = previous.count + loop.count
                pattern = previous.pattern
                joined[-1] = _Loop(previous.place, pattern, previous.begin, loop.end, count)
            else:
                joined.append(loop)
        return [o for o in joined if o.count >= LEAST_ITERATIONS]

    @staticmethod
    def _rare(loop: _Loop, loops: list[_Loop], tokens: NDArray[np.int64]) -> bool:
        """Tell whether a loop is only what rare events make of the iterations between them.

        ``loops`` are all, in the order in which they begin.
        """
        sites = frozenset(loop.pattern)
        begin_index = bisect_left(loops, loop.begin, key=lambda o: o.begin)
        end_index = bisect_left(loops, loop.end, key=lambda o: o.begin)
        inner = [
            o
            for o in loops[begin_index:end_index]
            if o.end <= loop.end and o is not loop and frozenset(o.pattern) < sites
        ]
        if not inner:
            return False
        extra = set(loop.pattern) - {s for o in inner for s in o.pattern}
        extra_share = float(np.isin(tokens[loop.begin : loop.end], list(extra)).mean())
        if loop.count < LEAST_ITERATIONS:
            return extra_share < _FOREIGN_SHARE
        if extra_share >= _RARE_SHARE or not extra:
            return False
        longest = max(len(o.pattern) for o in inner)
        turns = np.array([o.count for o in inner if len(o.pattern) == longest])
        steady = np.mean(np.abs(turns - np.median(turns)) <= 1) > 0.8
        return len(extra) == 1 or bool(steady)

    def _joins(self, previous: _Loop, loop: _Loop) -> bool:
        """Tell whether two loops are the same one, parted by an event or two."""
        if set(previous.pattern) != set(loop.pattern):
            return False
        gap = self._tokens[previous.end : loop.begin]
        foreign_events = [t for t in gap if t not in previous.pattern]
        events = previous.length / previous.count
        return len(gap) - len(foreign_events) <= 3 * events and len(foreign_events) <= max(
            events, 8
        )

    def _phase(
        self, loop: _Loop, tokens: NDArray[np.int64], times: NDArray[np.float64]
    ) -> IteratedPhase | None:
        """Return what a loop is as a phase; None where its turns have nothing in common."""
        where = np.arange(loop.begin, loop.end)
        in_pattern = np.isin(tokens[where], loop.pattern)
        if in_pattern.sum() < (1 - _FOREIGN_SHARE) * len(where):
            return None
        end = self._go_on(loop, tokens, set(tokens[where][~in_pattern]))
        where = np.arange(loop.begin, end)
        where = where[np.isin(tokens[where], loop.pattern)]
        exact = _strict_period(tokens[where[: int(in_pattern.sum())]])
        if exact:
            where = np.append(self._earlier(where, tokens, exact), where)
            while exact < len(where) and not np.array_equal(
                tokens[where[exact:]], tokens[where[:-exact]]
            ):
                where = where[:-1]  # a tail that begins like an iteration
            count = len(where) // exact
            starts = where[: count * exact : exact]
            last = where[count * exact - 1]
        else:
            starts = where[self._anchors(loop, tokens[where])]
            last = where[-1]
            if abs(len(starts) - loop.count) > _ONCE * loop.count:
                return None  # every site repeats in turn: the order is chance
        if len(starts) < LEAST_ITERATIONS:
            return None
        end = int(last) + 1
        seldom = set(tokens[int(starts[0]) : end]) - set(loop.pattern)
        while end < len(tokens) and tokens[end] in seldom:
            end += 1  # the rare event that came with the last iteration
        bounds = np.append(starts, end)
        if not self._covers(bounds, tokens, times, exact=bool(exact)):
            return None
        pattern_counts = np.zeros(len(tokens) + 1, np.int64)
        pattern_counts[1:] = np.cumsum(np.isin(tokens, loop.pattern))
        events = pattern_counts[bounds[1:]] - pattern_counts[bounds[:-1]]
        edge = np.append(times, times[-1])
        inside = slice(int(bounds[0]), int(bounds[-1]))
        stretches = np.diff(edge)[inside]
        rare = ~np.isin(tokens[inside], loop.pattern)
        names, often = np.unique(tokens[inside][rare], return_counts=True)
        period = float(stretches[~rare].sum()) / len(starts)
        values, many = np.unique(events, return_counts=True)
        return IteratedPhase(
            float(edge[bounds[0]]),
            float(edge[bounds[-1]]),
            period,
            bounds,
            int(values[many.argmax()]) if many.max() > len(events) / 2 else round(events.mean()),
            tuple(self._names[t] for t in dict.fromkeys(loop.pattern)),
            {self._names[n]: int(c) for n, c in zip(names, often, strict=True)},
        )

    @staticmethod
    def _earlier(
        where: NDArray[np.int64], tokens: NDArray[np.int64], exact: int
    ) -> NDArray[np.int64]:
        """Return the events before a phase that make one more iteration of it."""
        first = int(where[0])
        missing_count = exact - len(where) % exact
        earlier_events = np.arange(max(first - missing_count, 0), first)
        expected_tokens = tokens[where[exact - missing_count : exact]]
        if len(earlier_events) == missing_count and np.array_equal(
            tokens[earlier_events], expected_tokens
        ):
            return earlier_events
        return earlier_events[:0]

    @staticmethod
    def _go_on(loop: _Loop, tokens: NDArray[np.int64], rare: set[int]) -> int:
        """Return the end of a loop with the rest of an iteration that a rare event interrupts."""
        pattern_tokens, end, least = set(loop.pattern), loop.end, loop.end
        most = loop.end + 2 * loop.length // loop.count
        while end < min(len(tokens), most) and (
            tokens[end] in pattern_tokens or tokens[end] in rare
        ):
            end += 1
            if tokens[end - 1] in pattern_tokens:
                least = end
        return least

    @staticmethod
    def _covers(
        bounds: NDArray[np.int64],
        tokens: NDArray[np.int64],
        times: NDArray[np.float64],
        *,
        exact: bool,
    ) -> bool:
        """Tell whether a phase is more than chance: it is long, or sites in order are no surprise.

        Where inner loops vary, each event could have been one of two, and says less.
        """
        first, last = int(bounds[0]), min(int(bounds[-1]), len(times) - 1)
        run_s = float(times[-1] - times[0])
        took = float(times[last] - times[first])
        if last - first > _COVERS * len(times) or took > _COVERS * run_s:
            return True
        often = np.bincount(tokens) / len(tokens)
        surprise = -np.log((1 if exact else 2) * often[tokens[first:last]])
        return float(np.maximum(surprise, 0.0).sum()) > _SURPRISE + math.log(len(tokens))

    @staticmethod
    def _anchors(loop: _Loop, part: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where iterations begin: at the site that each of them has once."""
        once = [t for t in loop.pattern if loop.pattern.count(t) == 1] or list(loop.pattern)
        counts = {t: int((part == t).sum()) for t in once}
        usual = min(counts.values(), key=lambda c: abs(c - loop.count))
        anchor = next(t for t in once if counts[t] == usual)
        return np.flatnonzero(part == anchor)


def _strict_period(tokens: NDArray[np.int64]) -> int:
    """Return the length after which all of a sequence repeats exactly, 0 if it never does.

    It is n less the longest border (Knuth, Morris, Pratt 1977); only lengths that leave enough
    repeats are tried, each by one comparison of arrays.
    """
    n = len(tokens)
    if not n:
        return 0
    for length in np.flatnonzero(tokens[: n // LEAST_ITERATIONS + 1] == tokens[0])[1:]:
        if np.array_equal(tokens[length:], tokens[:-length]):
            return int(length)
    return 0


def find_iterations(times: Sequence[float], sites: Sequence[str]) -> list[IteratedPhase]:
    """Return the phases of a whole sequence."""
    finder = IterationFinder()
    for time_s, site in zip(times, sites, strict=True):
        finder.feed(time_s, site)
    return finder.phases()


def find_iterations_within(
    limit_s: float, times: Sequence[float], sites: Sequence[str]
) -> list[IteratedPhase] | None:
    """Return the phases of a whole sequence; None where that takes more processor time (s).

    Sites in random order take long, and have none.
    """
    finder, begin = IterationFinder(), time.process_time()
    for number, (time_s, site) in enumerate(zip(times, sites, strict=True)):
        if number % 1024 == 0 and time.process_time() - begin > limit_s:
            return None
        finder.feed(time_s, site)
    return finder.phases()
