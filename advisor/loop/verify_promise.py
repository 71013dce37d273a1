"""Hold a promise known from a stamp alone against the model it names.

Daemons on login nodes answer from a published copy and write nothing: their decisions arrive
with the jobs. A forged stamp can name any model, but what it promises must then be that model's
own promise to the last digit, or it does not count against the model.
"""

from __future__ import annotations

import math

from advisor.core.configuration import Configuration
from advisor.core.decision import Decision
from advisor.core.option import Row
from advisor.core.select import weigh
from advisor.errors import StoreError
from advisor.loop.verdict import QUANTITIES, promised
from advisor.store.records import StoredModel


def model_promises(decision: Decision, model: StoredModel, home: StoredModel) -> bool:
    """Tell whether a decision's promise is what ``model`` predicts for its choice.

    ``home`` is the model of the baseline, on another node type perhaps.
    """
    if decision.chosen is None or decision.baseline is None:
        return False
    chosen, baseline = decision.chosen.configuration, decision.baseline
    try:
        row, base_row = (_row_at(c, model) or _row_at(c, home) for c in (chosen, baseline))
    except StoreError:
        return False
    if row is None or base_row is None or chosen == baseline:
        return False
    predicted = weigh((model.node_type, row), base_row, "balanced").alternative()
    for quantity in QUANTITIES:
        a, b = promised(decision.chosen, quantity), promised(predicted, quantity)
        if a is None or b is None:
            return False
        pairs = zip(a.to_list(), b.to_list(), strict=True)
        if not all(math.isclose(x, y, rel_tol=1e-3) for x, y in pairs):
            return False
    return True


def _row_at(c: Configuration, model: StoredModel) -> Row | None:
    """Return what a model predicts for a configuration, None where it does not know it."""
    if c.node_type != model.node_type:
        return None
    place = (c.nodes, c.ranks_per_node, c.threads_per_node, c.freq_khz)
    axes = tuple(name for name, _ in c.extra)
    return next((r for r in model.rows(axes) if r[:4] == place and r.extra == c.extra), None)
