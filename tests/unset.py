"""What a model says whose runs, with the variables of threads unset, used all of their threads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from advisor.core.option import Option


def as_measured(options: Iterable[Option]) -> dict[str, Any]:
    """Return the stats of a model of these options: a run was counted at each, GPUs metered."""
    places = (o.configuration for o in options)
    shapes = {(c.nodes, c.ranks_per_node, c.threads_per_node) for c in places}
    unset = [list(shape) for shape in sorted(shapes)]
    return {"threads_unset": unset, "threads_of_cores": unset, "gpus_metered": True}
