"""What a request was answered, for the next time it comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.core.decision import Decision
from advisor.core.protocol import answer_line
from advisor.core.stamp import make_stamp
from advisor.core.step_plan import PlanForm


@dataclass(slots=True)
class Answered:
    """A decision for ``uid`` and the request it answers.

    ``drawn``: the holdout was drawn for it, and must be drawn each time.
    """

    decision: Decision
    request: Mapping[str, object]
    uid: int
    drawn: bool
    _line: bytes = b""
    _plan: PlanForm | None = None

    def holds(self, luck: float) -> bool:
        """Tell whether it is the answer again, with another draw of the holdout."""
        return not self.drawn or luck >= self.decision.policy.holdout

    def line(self, identity: str, created_at: str) -> bytes:
        """Return the answer's line under the id and time of one job's own decision.

        Only those two are put in, and the plan's sum. None can be a part of anything else: the id
        is 64 random bits, and before the time stand the quotes of its key, which no other text has
        bare.
        """
        decision = self.decision
        if not self._line:
            answer: dict[str, object] = {
                "decision": decision.id,
                "rewrite": dict(decision.rewrite),
                "env": dict(decision.environment),
                "message": decision.message,
                "to": "always" if decision.policy.message == "always" else "tty",
                "stamp": make_stamp(decision),
            }
            if decision.plan is not None:
                self._plan = decision.plan.form()
                answer["plan"] = self._plan.text(decision.id)
            if decision.look_at and decision.changed:
                answer["program"] = dict(decision.look_at)
            self._line = answer_line(answer)
        line = self._line
        if plan := self._plan:
            line = line.replace(plan.text(decision.id).encode(), plan.text(identity).encode())
        line = line.replace(decision.id.encode(), identity.encode())
        return line.replace(_time_field(decision.created_at), _time_field(created_at))


def _time_field(time: str) -> bytes:
    return f'\\"at\\":\\"{time}\\"'.encode()
