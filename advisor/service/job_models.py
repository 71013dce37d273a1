"""Which models a job gets: its workload's, its family's, or the application's default."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from advisor.core.policy import Policy
from advisor.core.reasons import Reason, reason
from advisor.core.request import JobRequest
from advisor.service.families import sized_models
from advisor.service.snapshot import Snapshot
from advisor.store.records import StoredModel


@dataclass(frozen=True, slots=True)
class JobModels:
    """Models by node type and the workload they are for; ``stop``: why there are none."""

    by_node_type: Mapping[str, StoredModel]
    workload: str
    reasons: tuple[Reason, ...] = ()
    stop: Reason | None = None


@dataclass(frozen=True, slots=True)
class ModelSearch:
    """What tells a job's models; ``node_type`` is "" and ``nodes`` 0 where that is not known."""

    snapshot: Snapshot
    policy: Policy
    application: str
    workload: str
    user: str
    account: str
    node_type: str = ""
    nodes: Callable[[], int] = field(default=lambda: 0)

    def find(self) -> JobModels:
        """Return the workload's models if it was swept, else its family's, else the default's.

        Where a family is known on the job's node type, ``default`` is not used.
        """
        workload_models = self._models_of(self.workload)
        if any(m.fitted for m in workload_models.values()):
            return JobModels(workload_models, self.workload)
        sized = self.of_family()
        if sized is not None:
            return sized
        if self.workload != "default" and self.policy.unknown_workload == "default":
            default = self._models_of("default")
            if default and (not workload_models or any(m.fitted for m in default.values())):
                why = reason("workload-fallback", self.workload)
                return JobModels(default, "default", (why,))
        return JobModels(workload_models, self.workload, self._left_out(workload_models))

    def of_family(self) -> JobModels | None:
        """Return the models of the workload's family at the job's size, None without a family."""
        families = self.snapshot.families
        if not self.node_type or not families.knows(self.application, self.workload):
            return None
        key = self.application, self.workload, self.user, self.account
        sized = sized_models(families, key, self.node_type, self.nodes(), self.policy)
        if sized is None:
            return None
        if not sized.models:
            return JobModels({}, self.workload, stop=sized.why)
        return JobModels(sized.models, self.workload, (sized.why,))

    def of_scales(self) -> JobModels | None:
        """Return what its family says of node counts that never ran, None where it does not."""
        has_scales = self.snapshot.families.knows_scales(self.application, self.workload)
        return self.of_family() if has_scales else None

    def _left_out(self, workload_models: Mapping[str, StoredModel]) -> tuple[Reason, ...]:
        """Say that applications like it would have a model, where that is not wanted."""
        if workload_models or self.policy.cold_start.mode != "off":
            return ()
        every = self.snapshot.find(self.application, self.workload, self.user, self.account)
        return (reason("class-off"),) if every else ()

    def _models_of(self, workload: str) -> dict[str, StoredModel]:
        models = self.snapshot.find(self.application, workload, self.user, self.account)
        if self.policy.cold_start.mode == "off":
            return {name: m for name, m in models.items() if not m.by_class}
        return models


def how_to_train(request: JobRequest, policy: Policy, *, running: bool) -> list[Reason]:
    """Return the reason that says how what is missing comes to be measured, if it can be."""
    training = policy.training
    if running:
        return [reason("training-running")]
    if policy.mode == "observe" or (request.script is None and not request.script_path):
        return []
    lies_there = request.script_truncated or request.fingerprint
    script_complete = request.script is not None and not lies_there
    if training.mode == "ask":
        return [reason("training-ask", shlex.quote(request.script_path or "SCRIPT"))]
    if training.mode == "auto" and (script_complete or request.script_path.startswith("/")):
        return [reason("training-auto")]
    return []
