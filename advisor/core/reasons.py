"""Reason codes: why a decision came out as it did. Every decision carries at least one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXTS: dict[str, str] = {
    # something was chosen
    "chosen": "chosen: {0}",
    "pinned": "you pinned this configuration",
    "tie-resources": "equal within error; {0} takes the one with {1} cores",
    "confirmed": "confirmed by a run within its predicted interval",
    "node-type-estimated": "{0} is estimated from microbenchmarks, {1}",
    # how the job was understood
    "application-rule": "application {0} by site rule",
    "application-launcher": "application {0} from the script's first launcher line",
    "application-command": "application {0} from the script's last command",
    "application-stated": "application {0} as stated by {1}",
    "workload-fallback": "workload {0} is not known; its model for 'default' is used",
    "baseline-node-type": "baseline on {0}: first in partition {1}",
    "baseline-nearest": "baseline {0} is not on the model's grid; the nearest point is {1}",
    "scope": "model measured by {0}",
    # kept as the user wrote it
    "user-set": "{0} is kept as you set it",
    "axis-keep": "policy keeps {0}",
    "threads-own": "threads are kept: {0}",
    "allocation-kept": "nodes and tasks are kept as you wrote them",
    "no-frequency-steps": "frequency is kept: the inventory lists no steps for {0}",
    "not-in-inventory": "{0} is not in the inventory, so it is not written",
    "no-room": "{0} options do not fit the partition, memory or node size",
    "lacks-memory": "{0}: no option there",
    "time-limit": "{0} options would not fit the time limit",
    "axis-bound": "{0}",
    "cores-kept": "the request keeps its cores: {0}",
    "shared-nodes": "{0} is kept: the job shares its nodes with others",
    "node-type-later": "node type is kept: {0}",
    "node-type-limit": "node type is kept: {0}",
    # nothing changed because ...
    "option-not-understood": "nothing changed: the advisor does not know {0}",
    "option-binds": "nothing changed: {0} changes or leaves open what a node, core or task is",
    "several-steps": "nothing changed: the script runs more than one program: {0}",
    "background-steps": "nothing changed: the script runs its program in the background",
    "loop-of-steps": "nothing changed: the script runs its program in a loop",
    "nested-submit": "nothing changed: the script submits jobs itself: {0}",
    "script-not-understood": "nothing changed: the advisor cannot follow the script: {0}",
    "several-partitions": "nothing changed: partitions {0} have different node types",
    "measured-otherwise": "nothing changed: the model of {0} was measured with smaller requests; "
    "measure it again with: advisor train",
    "program-rebuilt": "nothing changed: {0} was built again since it was measured; "
    "one run as promised makes its model count again",
    "other-program": "nothing changed: {0} is another program than the one that was measured",
    "opted-out": "nothing changed: you opted out ({0})",
    "mode-off": "nothing changed: policy mode is off here",
    "mode-observe": "nothing changed: policy only observes here",
    "mode-advise": "nothing changed: policy only advises here; ADVISOR_MODE=apply applies it",
    "step": "nothing changed: steps inside a job are left alone",
    "interactive": "nothing changed: {0} is left alone",
    "het-job": "nothing changed: heterogeneous jobs are left alone",
    "no-script": "nothing changed: the script cannot be read",
    "unrecognised": "nothing changed: no application recognised",
    "no-model": "nothing changed: no model for {0} yet",
    "training-ask": "train it with: advisor train {0}",
    "training-auto": "a training sweep is started for it",
    "training-running": "a training sweep is under way",
    "suspended": "nothing changed: the model is suspended: {0}",
    "no-baseline": "nothing changed: it is not known what the job asks for: {0}",
    "mixed-partition": "nothing changed: {0} has several node types and the job is bound to none: "
    "{1}",
    "baseline-outside-model": "nothing changed: {0} is outside what was measured",
    "baseline-is-best": "nothing changed: what you asked for is best for goal {0}",
    "no-candidates": "nothing changed: no option is left within what you fixed",
    "slowdown": "{0} options exceed {1} slowdown at {2} confidence",
    "saving-too-small": "nothing changed: best saving {0} is below the policy's {1}",
    "unconfirmed": "{0} promising options are not confirmed by a run yet",
    "class-estimated": "never measured: estimated from {0}, by {1}",
    "class-off": "applications like it would say more, but cold_start is off",
    "class-few": "nothing changed: only {0} applications are swept on {1}, the policy asks for {2}",
    "class-not-listed": "nothing changed: {0} jobs stay as written until they are measured",
    "class-unseen": "nothing changed: {0} applications are swept on {1}, too few for a point that "
    "never ran at {2} confidence: that needs {3}, or a trial",
    "class-doubted": "{0} options need a trial first: only its signature speaks for them",
    "class-trial": "trial {0} of {1}: it promises most of what may be tried; its outcome decides "
    "whether later jobs run so",
    "trial-confirmed": "confirmed by a trial of an earlier job",
    "trial-pending": "a trial of it is under way",
    "trials-refuted": "nothing changed: no trial of it kept what the policy asks",
    "trials-stopped": "no trial: {0} of {1} jobs came out badly",
    "cold-start-advise": "nothing changed: the policy only shows what was never measured",
    "extrapolated": "{0} was not swept: extrapolated from {1}",
    "extrapolated-advise": "nothing changed: the policy only shows what is extrapolated",
    "extrapolated-refused": "nothing changed: this size was not swept, and the policy refuses "
    "to extrapolate",
    "too-far": "nothing changed: {0} was not swept, {1} was; the policy extrapolates to {2} times "
    "that",
    "few-sizes": "nothing changed: this size was not swept; known are {0}, a law needs {1} sizes",
    "family-unfit": "nothing changed: this size was not swept, and no law holds for those that "
    "were: {0}",
    "time-limit-short": "predicted {0}, {1} to {2}, limit {3}",
    "estimates-refused": "estimates of {0} are not used: {1}",
    "energy-unknown": "nothing changed: no energy is known for this workload",
    "energy-estimated": "energy is estimated, not measured",
    "holdout": "nothing changed: left alone at random to measure real savings",
    "pin-impossible": "nothing changed: what you pinned cannot be had: {0}",
    "cannot-write": "nothing changed: {0}",
    "already-decided": "nothing changed: this job was decided before",
    "store-unreadable": "nothing changed: the advisor's store cannot be read",
    "bad-request": "nothing changed: {0}",
    "choices-bad": "your choices file is ignored: {0}",
    "setting-refused": "{0} is ignored: {1}",
    "training-budget": "no training: {0}",
}

ESTIMATED = "node-type-estimated"
"""The reason of a choice on a node type where nothing was measured."""


BY_CLASS = "class-estimated"
"""The reason of a choice for an application that was never swept."""


EXTRAPOLATED = "extrapolated"
"""The reason of a choice for a size or node count that never ran."""


TRIAL = "class-trial"
"""The reason of a job that tries a point nobody has measured."""

_LOST = ("…",) * 4


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a stable code for programs, and the details its text needs.

    ``sentence`` is the whole text where a decision was read back; a stamp keeps codes only, and
    then an ellipsis stands for each detail.
    """

    code: str
    details: tuple[str, ...] = ()
    sentence: str = ""

    @property
    def text(self) -> str:
        """The reason as one sentence for people."""
        if self.sentence or self.code not in TEXTS:
            return self.sentence or self.code
        return TEXTS[self.code].format(*self.details, *_LOST)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: code, details and text."""
        return {"code": self.code, "details": list(self.details), "text": self.text}


def reason(code: str, *details: object) -> Reason:
    """Make a reason; KeyError for a code that has no text."""
    TEXTS[code]
    return Reason(code, tuple(map(str, details)))


def like_text(cold: Mapping[str, Any]) -> tuple[str, str]:
    """Return whom a class model (its ``cold_start``) follows from, and by what, in words."""
    count, kind = cold.get("applications", 0), cold.get("class") or "unknown"
    names = ", ".join(map(str, cold.get("like") or ()))
    near = f" ({names} most like it)" if names else ""
    alike = f", {cold.get('of_class', 0)} of them {kind}" if kind != "unknown" else ""
    counters = set(cold.get("signature") or ()) - {"power_w", "time_s", "memory_mb", "cpu_util"}
    others = f"{count} applications{alike}{near}"
    return others, "one job's counters" if counters else "one job's power and time"
