"""Every decision that tests make is made again from its stored form: it must come out the same."""

from __future__ import annotations

import json
from collections.abc import Callable

from advisor.core.decision import Decision
from advisor.core.reasons import TRIALS
from advisor.service.decide import decide_again
from advisor.service.snapshot import Snapshot

_WORDS = frozenset({"no-script", "unrecognised", "training-ask", "training-auto"})
"""What only a script that is at hand can tell apart; nothing changes either way."""
_OF_TRIALS = frozenset({"cap-trial-pending", "cap-trials-stopped"})
"""What is said of trials of caps: a decision that is made again never is one."""


def same_again(decision: Decision, snapshot: Snapshot, chance: Callable[[], float]) -> None:
    """Decide again from the record as it is stored; what the job gets must be the same."""
    record = json.loads(json.dumps(decision.to_dict()))
    stored = Decision.from_dict(record)
    assert stored.request is not None and stored.reading is not None
    assert stored.reading.to_dict() == record["reading"]
    again = decide_again(stored.request, stored.reading, snapshot, chance=chance)
    if not TRIALS.isdisjoint(decision.codes):
        assert TRIALS.isdisjoint(again.codes)
        return
    assert dict(again.rewrite) == dict(decision.rewrite)
    assert dict(again.environment) == dict(decision.environment)
    assert (again.application, again.workload) == (decision.application, decision.workload)
    assert (again.baseline, again.chosen) == (decision.baseline, decision.chosen)
    assert (again.policy, again.model_id) == (decision.policy, decision.model_id)
    codes, before = ({*d.codes} - _WORDS - _OF_TRIALS for d in (again, decision))
    assert codes - {"choices-bad"} == before - {"choices-bad"}
