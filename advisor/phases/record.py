"""A long run in little room: representative iterations in full, sums of all the others.

Of each phase that iteration is in full (or the shortest pattern of several that recurs, by the
spectrum of what iterations take) which the others resemble most (Llort et al., IPDPS 2010). Of the
others remains what each site took, iteration by iteration; of very many, what it took in two
iterations, in four, and so on. The order of the sites is kept whole. What is not a phase is kept in
full where there is room, else in blocks of events as if these were iterations.
"""

from __future__ import annotations

import base64
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.phases.arrays import Floats, Ints
from advisor.phases.autocorrelation import autocorrelation, without_trend
from advisor.phases.sequence import LEAST_ITERATIONS, IteratedPhase

_BLOCK = 64
"""Events outside of phases that are summed up together, at least."""

_RECURS = 0.3
"""Autocorrelation of iterations' times from which on they are a pattern, not chance."""

_FINE = 2000
"""Steps of a sum's natural logarithm: one is 0.05 %."""

_NONE = np.iinfo(np.int16).min


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Iterations one after the other: ``bounds`` are their first events, and the one behind them.

    Those from ``first`` to ``behind`` are kept in full; none where these are equal.
    """

    bounds: Ints
    first: int
    behind: int


def representative(took: Floats) -> tuple[int, int]:
    """Return the first iteration that is kept in full, and the one behind the last.

    ``took`` (iterations, sites) is in s. The pattern is one iteration, or as many as recur by the
    autocorrelation of their times; the one is taken whose sites are nearest to the median.
    """
    iteration_s = took.sum(axis=1)
    count, length = len(iteration_s), 1
    if np.ptp(iteration_s) > 0:
        acf = autocorrelation(without_trend(iteration_s))[: count // LEAST_ITERATIONS + 1]
        best = float(acf[2:].max(initial=0.0))
        # Four standard errors of what chance gives. Where neighbours are most alike it is a drift,
        # no pattern.
        if best > max(_RECURS, 4 / np.sqrt(count)) and best > acf[1]:
            # The first that is about as good, for multiples of a pattern recur, too.
            length = int(np.flatnonzero(acf[2:] >= 0.9 * best)[0]) + 2
    usual = np.empty_like(took)
    for k in range(length):
        usual[k::length] = np.median(took[k::length], axis=0)
    off = np.abs(took - usual).sum(axis=1)
    sums = np.convolve(off, np.ones(length), "valid")
    first = int(sums.argmin())
    return first, first + length


def condensed(
    times: Floats, tokens: Ints, phases: Sequence[IteratedPhase], room: int
) -> dict[str, Any] | None:
    """Return a run as a JSON object of at most ``room`` characters, None where it has no place.

    ``times`` (s, from 0) and ``tokens`` (the numbers of sites) are of its events.
    """
    if tokens.max(initial=0) > np.iinfo(np.uint16).max:
        return None
    took = np.diff(times)
    order = _packed(tokens.astype(np.uint16))
    phase_records = [
        [p.begin_s, p.end_s, p.period_s, p.events, list(p.sites), p.rare] for p in phases
    ]
    bounds = [_packed(np.diff(p.bounds, prepend=0).astype(np.uint32)) for p in phases]
    fixed = len(order) + len(str(phase_records)) + sum(map(len, bounds)) + 600
    most = max([len(took) // _BLOCK, *(p.iterations for p in phases)])
    together, blocks = 1, False
    while fixed < room and together <= 2 * most:
        stretches = _stretches(took, tokens[:-1], phases, _BLOCK * together if blocks else 0)
        full, sums, means = _coded(took, tokens[:-1], stretches, together)
        if fixed + len(full) + len(sums) + sum(map(len, means)) <= room:
            return {
                "order": order,
                "phases": phase_records,
                "bounds": bounds,
                "full": full,
                "sums": sums,
                "means": means,
                "together": together,
                "blocks": _BLOCK * together * blocks,
                "kept": [[s.first, s.behind] for s in stretches],
                "span_s": float(times[-1]),
            }
        together, blocks = (together, True) if not blocks else (2 * together, True)
    return None


def expanded(data: dict[str, Any]) -> tuple[Floats, Ints, list[IteratedPhase]]:
    """Return the times (s, from 0) and sites' numbers of a condensed run, and its phases.

    Raises ValueError, KeyError, TypeError or IndexError where it is damaged.
    """
    tokens = _unpacked(data["order"], np.uint16).astype(np.int64)
    phases = [
        IteratedPhase(
            float(begin),
            float(end),
            float(period),
            np.cumsum(_unpacked(bounds, np.uint32).astype(np.int64)),
            int(events),
            tuple(sites),
            {str(s): int(n) for s, n in rare.items()},
        )
        for (begin, end, period, events, sites, rare), bounds in zip(
            data["phases"], data["bounds"], strict=True
        )
    ]
    count = len(tokens) - 1
    bounds = _all_bounds(count, phases, int(data["blocks"]))
    stretches = [
        _Stretch(b, int(first), int(stop))
        for b, (first, stop) in zip(bounds, data["kept"], strict=True)
    ]
    full = _unpacked(data["full"], np.float32).astype(float)
    sums = _unpacked(data["sums"], np.int16).astype(float)
    took = np.zeros(count)
    in_full = _in_full(count, stretches)
    took[in_full] = full
    offset = 0
    for stretch, packed in zip(stretches, data["means"], strict=True):
        summed = _Summed.of(tokens[:-1], stretch, int(data["together"]))
        mean = _unpacked(packed, np.float32).astype(float)
        logs = sums[offset : offset + summed.size]
        offset += summed.size
        values = np.where(logs == _NONE, 0.0, np.exp(logs / _FINE)) * mean[summed.site]
        took[summed.events] = summed.shared(values * summed.often, took, tokens[:-1], stretch)
    times = np.concatenate([[0.0], np.cumsum(took)])
    if times[-1] > 0:
        # Rounded logarithms add up: the run takes as long again as it did.
        times *= float(data["span_s"]) / times[-1]
    return times, tokens, phases


@dataclass(frozen=True, slots=True)
class _Summed:
    """The sums of a stretch: one for each site of each iteration (or of several together).

    ``events`` are the events summed up, ``sum_of`` the sum of each; ``site`` and ``often`` of each
    sum: its site and the number of its events.
    """

    events: Ints
    sum_of: Ints
    site: Ints
    often: Ints

    @property
    def size(self) -> int:
        return len(self.site)

    @classmethod
    def of(cls, tokens: Ints, stretch: _Stretch, together: int) -> _Summed:
        events, turns = _turns(stretch)
        kinds = int(tokens.max(initial=0)) + 1
        key = turns // together * kinds + tokens[events]
        keys, sum_of, often = np.unique(key, return_inverse=True, return_counts=True)
        return cls(events, sum_of.reshape(-1), keys % kinds, often)

    def shared(self, sums: Floats, took: Floats, tokens: Ints, stretch: _Stretch) -> Floats:
        """Return what each event took (s): its sum, shared out as the iterations in full have it.

        An event that those do not have weighs as much as its site's mean there.
        """
        weights = np.ones(len(self.events))
        length = stretch.behind - stretch.first
        if length:
            kinds = int(tokens.max()) + 1
            pattern = np.arange(stretch.bounds[stretch.first], stretch.bounds[stretch.behind])
            turn = np.searchsorted(stretch.bounds, pattern, side="right") - 1
            pattern_places = _places(turn, tokens[pattern], stretch.first, length, kinds)
            site_tokens = tokens[self.events]
            event_places = _places(_turns(stretch)[1], site_tokens, stretch.first, length, kinds)
            order = np.argsort(pattern_places)
            match = np.searchsorted(pattern_places[order], event_places).clip(max=len(order) - 1)
            fits = pattern_places[order][match] == event_places
            often = np.bincount(tokens[pattern], minlength=kinds)
            mean = np.bincount(tokens[pattern], took[pattern], kinds) / np.maximum(often, 1)
            weights = np.where(fits, took[pattern][order][match], mean[site_tokens])
        total_weight = np.bincount(self.sum_of, weights, self.size)
        weights = np.where(total_weight[self.sum_of] > 0, weights, 1.0)
        total_weight = np.bincount(self.sum_of, weights, self.size)
        return np.asarray(weights / total_weight[self.sum_of] * sums[self.sum_of])


def _places(turns: Ints, tokens: Ints, first: int, length: int, kinds: int) -> Ints:
    """Return a number for the place of each event: in the pattern, of its site, the how manieth."""
    keys = turns * kinds + tokens
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=-1))
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys)) - np.repeat(begins, np.diff(begins, append=len(keys)))
    return np.asarray((rank * length + (turns - first) % length) * kinds + tokens)


def _turns(stretch: _Stretch) -> tuple[Ints, Ints]:
    """Return the events of a stretch that are not kept in full, and the iteration of each."""
    events = np.arange(stretch.bounds[0], stretch.bounds[-1])
    turns = np.searchsorted(stretch.bounds, events, side="right") - 1
    summed = (turns < stretch.first) | (turns >= stretch.behind)
    return events[summed], turns[summed]


def _all_bounds(count: int, phases: Sequence[IteratedPhase], block: int) -> list[Ints]:
    """Return the bounds of each phase among so many events, and of blocks in what lies between."""
    bounds = [np.minimum(p.bounds, count) for p in phases]
    if block:
        edges = [0, *(int(e) for b in bounds for e in (b[0], b[-1])), count]
        between = zip(edges[::2], edges[1::2], strict=True)
        bounds += [np.append(np.arange(a, b, block), b) for a, b in between if b > a]
    return bounds


def _stretches(
    took: Floats, tokens: Ints, phases: Sequence[IteratedPhase], block: int
) -> list[_Stretch]:
    kinds = int(tokens.max()) + 1
    stretches = []
    for number, bounds in enumerate(_all_bounds(len(took), phases, block)):
        first = stop = 0
        if number < len(phases):
            events = np.arange(bounds[0], bounds[-1])
            turns = np.searchsorted(bounds, events, side="right") - 1
            sums = np.bincount(
                turns * kinds + tokens[events], took[events], kinds * (len(bounds) - 1)
            )
            first, stop = representative(sums.astype(float).reshape(-1, kinds))
        stretches.append(_Stretch(bounds, first, stop))
    return stretches


def _in_full(count: int, stretches: Sequence[_Stretch]) -> NDArray[np.bool_]:
    in_full = np.ones(count, bool)
    for stretch in stretches:
        in_full[_turns(stretch)[0]] = False
    return in_full


def _coded(
    took: Floats, tokens: Ints, stretches: Sequence[_Stretch], together: int
) -> tuple[str, str, list[str]]:
    """Return what is in full, the sums by their sites' means, and the means of each stretch."""
    logs, means = [np.zeros(0, np.int16)], []
    for stretch in stretches:
        summed = _Summed.of(tokens, stretch, together)
        events = summed.events
        often = np.bincount(tokens[events])
        sums = np.bincount(summed.sum_of, took[events], summed.size)
        mean = np.bincount(tokens[events], took[events]) / np.maximum(often, 1)
        ratio = sums / np.maximum(mean[summed.site] * summed.often, 1e-300)
        # The bounds keep the logarithm finite; a sum of 0 has a code of its own.
        log = np.log(np.maximum(ratio, 1e-300)) * _FINE
        limit = np.iinfo(np.int16).max
        coded = np.where(ratio > 0, log.clip(-limit, limit).round(), _NONE)
        logs.append(coded.astype(np.int16))
        means.append(_packed(mean.astype(np.float32)))
    full = took[_in_full(len(took), stretches)].astype(np.float32)
    return _packed(full), _packed(np.concatenate(logs)), means


def _packed(values: NDArray[Any]) -> str:
    """Return an array as text; bytes of the same weight stand together, which packs better."""
    planes = np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.itemsize).T
    return base64.b64encode(lzma.compress(planes.tobytes(), preset=6)).decode()


def _unpacked(text: str, kind: type[np.generic]) -> NDArray[Any]:
    try:
        data = lzma.decompress(base64.b64decode(text))
    except lzma.LZMAError as error:
        raise ValueError("it is damaged") from error
    width = np.dtype(kind).itemsize
    planes = np.frombuffer(data, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(kind).reshape(-1)
