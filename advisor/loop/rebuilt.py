"""Let a program that was built again count for its model, once a run of it came out as predicted.

Such a job is left as it was written (``program-rebuilt``); what it took is held against what the
model says of exactly that: both ends of the interval count, since a program that became faster is
another one to the model too. Energy counts where both know it.
"""

from __future__ import annotations

from advisor.core import program
from advisor.core.decision import Decision
from advisor.errors import StoreError
from advisor.loop.execution import Execution
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import visible
from advisor.loop.verdict import PromiseInterval, tolerance
from advisor.schedulers.base import JobRecord
from advisor.store.reader import Reader
from advisor.store.records import Outcome, StoredModel
from advisor.store.writer import Writer

REBUILT, OTHER = "program-rebuilt", "other-program"


def let_count(
    writer: Writer, job: JobRecord, match: MatchedJob, outcome: Outcome, execution: Execution
) -> bool:
    """Note with its model the program a job confirmed; return whether it is one more now."""
    decision = match.decision
    if REBUILT not in decision.codes or decision.changed or decision.plan is not None:
        return False
    if match.trust == "unverified" or outcome.record.get("mismatch"):
        return False
    facts, model = decision.program, _model(writer, decision)
    if not facts or model is None or model.state != "fitted" or not visible(model, job):
        return False
    if program.compare(program.known(model.stats.get("program")), facts) in ("same", "unknown"):
        return False
    if job.state.split()[:1] != ["COMPLETED"] or not _as_predicted(decision, model, execution):
        return False
    writer.add_program(model.id, facts)
    return True


def may_teach(reader: Reader, decision: Decision) -> bool:
    """Tell whether a job ran the program its model is of, as far as its hook looked."""
    if REBUILT not in decision.codes:
        return OTHER not in decision.codes
    model = _model(reader, decision)
    programs = program.known(model.stats.get("program")) if model else []
    return program.compare(programs, decision.program) == "same"


def _model(reader: Reader, decision: Decision) -> StoredModel | None:
    """Return the model of a decision's baseline, if it is the decision's application's."""
    if decision.model_id is None:
        return None
    model = next(iter(reader.models([decision.model_id])), None)
    names = decision.application, decision.workload
    return model if model and names == (model.application, model.workload) else None


def _as_predicted(decision: Decision, model: StoredModel, execution: Execution) -> bool:
    if execution.step_failed or execution.whole_nodes is False or not execution.time_s:
        return False
    try:
        option = next(
            (o for o in model.written_options() if o.configuration == decision.baseline), None
        )
    except StoreError:
        return False
    if option is None:
        return False
    slack = tolerance(execution)

    def within(value: float, low: float, high: float) -> bool:
        interval = PromiseInterval(value, low, high)
        return not (interval.is_below(value, slack) or interval.is_above(value, slack))

    if not within(execution.time_s, option.time_lo_s, option.time_hi_s):
        return False
    if execution.energy_j is None or model.energy_quality != "measured":
        return True
    return within(execution.energy_j, option.energy_lo_j, option.energy_hi_j)
