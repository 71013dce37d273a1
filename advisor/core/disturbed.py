"""Which measured options were disturbed: runs far above their neighbours on both sides."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.core.option import Option

_FAR = 1.3
"""How many times the larger of both neighbours: far beyond what noise or a step of a law does."""


def disturbed(options: Sequence[Option]) -> frozenset[int]:
    """Return the numbers of options that show a disturbed run, not the program.

    Only a run that no model confirmed can be one. It stands out in time or energy above the options
    with more and fewer threads, or with a higher and a lower frequency, on the same nodes.
    """
    outliers = set()
    for axis in ("threads_per_node", "freq_khz"):
        for line in _lines(options, axis):
            for previous, number, following in zip(line, line[1:], line[2:], strict=False):
                o, sides = options[number], (options[previous], options[following])
                if (
                    o.measured
                    and not o.confirmed
                    and (
                        o.time_s > _FAR * max(s.time_s for s in sides)
                        or o.energy_j > _FAR * max(s.energy_j for s in sides)
                    )
                ):
                    outliers.add(number)
    return frozenset(outliers)


def _lines(options: Sequence[Option], axis: str) -> list[list[int]]:
    """Return the options along one axis, in its order, by all that else they are."""
    lines: dict[tuple[object, ...], list[int]] = {}
    other_axis = "freq_khz" if axis == "threads_per_node" else "threads_per_node"
    for number, o in enumerate(options):
        c = o.configuration
        key = (c.node_type, c.nodes, c.ranks_per_node, getattr(c, other_axis), c.extra)
        lines.setdefault(key, []).append(number)
    return [
        sorted(line, key=lambda n: int(getattr(options[n].configuration, axis)))
        for line in lines.values()
    ]
