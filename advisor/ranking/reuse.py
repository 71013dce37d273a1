"""How large a stream is beside the others: what decides which cache it is read from.

A zone that would stay in a cache by itself does not when other streams pass through that cache
meanwhile. Its reuse distance is the lines it touches in one pass and those that the others touch in
the time of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from advisor.ranking.streams import Stream

_LINE_B = 64


def effective(streams: Sequence[Stream], threads: int) -> tuple[Stream, ...]:
    """Return streams as large as what ``threads`` touch from one pass over them to the next.

    Sizes in KB, larger by the others' lines over their own; the private zones of all threads lie
    beside a shared one.
    """
    shares = [threads if s.access == "P" else 1 for s in streams]
    found = []
    for i, s in enumerate(streams):
        lines = _lines_b(s)
        steps = lines / _line_b(s) / (s.steps or 1.0)
        others = math.fsum(
            min(_lines_b(o), steps * (o.steps or 1.0) * _line_b(o)) * share
            for j, (o, share) in enumerate(zip(streams, shares, strict=True)) if j != i
        )  # fmt: skip
        more = others / (lines * shares[i]) if lines else 0.0
        found.append(replace(s, size_kb=s.size_kb * (1.0 + more)))
    return tuple(found)


def _line_b(stream: Stream) -> float:
    """Return bytes of memory that a step along a stream touches anew."""
    return float(_LINE_B if stream.random else min(_LINE_B, max(1, stream.stride_b)))


def _lines_b(stream: Stream) -> float:
    """Return bytes of the lines that one pass over a stream's zone touches."""
    size = stream.size_kb * 1024
    return size if stream.random else size * min(1.0, _LINE_B / max(1, stream.stride_b))
