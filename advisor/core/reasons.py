"""Reason codes: why a decision came out as it did. Every decision carries at least one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEXTS: dict[str, str] = {
    # something was chosen
    "chosen": "chosen: {0}",
    "pinned": "you pinned this configuration",
    "tie-resources": "several options are equal within error; {0} takes the one with {1} cores",
    "confirmed": "confirmed by a run within its predicted interval",
    "node-type-estimated": "{0} is estimated from microbenchmarks, {1}",
    # how the job was understood
    "application-rule": "application {0} by site rule",
    "application-launcher": "application {0} from the script's first launcher line",
    "application-command": "application {0} from the script's last command",
    "application-stated": "application {0} as stated by {1}",
    "workload-fallback": "workload {0} has no model; the model of workload 'default' is used",
    "baseline-node-type": "job as written runs on {0}: first node type of partition {1}",
    "baseline-nearest": "{0} was not measured; the nearest measured point is {1}",
    "scope": "model measured by {0}",
    # kept as the user wrote it
    "user-set": "the policy keeps what the job sets itself: {0}",
    "axis-keep": "the policy keeps {0}",
    "threads-own": "threads are kept: {0}",
    "threads-unset": "threads are kept: the job leaves {0}",
    "allocation-kept": "nodes and tasks are kept as you wrote them",
    "no-frequency-steps": "frequency is kept: the inventory lists no steps for {0}",
    "not-in-inventory": "{0} is not in the inventory, so it is not set",
    "no-room": "{0} options do not fit the partition, memory or node size",
    "lacks-memory": "options without enough memory are left out: {0}",
    "time-limit": "{0} options might not end within the time limit",
    "time-limit-unknown": "{0} options are predicted slower than the job as written, and it is not "
    "known which time limit will hold: state one",
    "axis-bound": "{0}",
    "cores-kept": "the number of cores is kept: {0}",
    "shared-nodes": "{0} is kept: the job shares its nodes with others",
    "node-type-later": "node type is kept: {0}",
    "node-type-limit": "node type is kept: {0}",
    # nothing changed because ...
    "option-not-understood": "nothing changed: the advisor does not know {0}",
    "option-binds": "nothing changed: {0} makes the job's nodes, tasks or cores unclear",
    "several-steps": "nothing changed: the script runs more than one program: {0}",
    "background-steps": "nothing changed: the script runs its program in the background",
    "loop-of-steps": "nothing changed: the script runs its program in a loop",
    "nested-submit": "nothing changed: the script submits jobs itself: {0}",
    "script-not-understood": "nothing changed: the advisor cannot follow the script: {0}",
    "several-partitions": "nothing changed: partitions {0} have different node types; name one",
    "measured-otherwise": "nothing changed: the model of {0} is from an older version; measure it "
    "again: advisor train SCRIPT",
    "program-rebuilt": "nothing changed: {0} was built again since it was measured; "
    "once a run matches its model, the advisor changes jobs again",
    "other-program": "nothing changed: {0} is not the program that was measured",
    "opted-out": "nothing changed: you opted out ({0})",
    "mode-off": "nothing changed: the policy says mode: off for this job",
    "mode-observe": "nothing changed: the policy says mode: observe for this job",
    "mode-advise": "nothing changed: the policy says mode: advise for this job; to apply it: "
    "ADVISOR_MODE=apply",
    "step": "nothing changed: the advisor does not change steps inside a job",
    "interactive": "nothing changed: the advisor does not change interactive jobs ({0})",
    "het-job": "nothing changed: the advisor does not change heterogeneous jobs",
    "no-script": "nothing changed: the script cannot be read",
    "script-missing": "nothing changed: what the script runs did not reach the advisor",
    "unrecognised": "nothing changed: the application was not recognised; "
    "name it: ADVISOR_APPLICATION=NAME",
    "no-model": "nothing changed: no model for {0} yet",
    "training-ask": "train it with: advisor train {0}",
    "training-auto": "the daemon starts a training sweep for it",
    "training-running": "a training sweep is running",
    "suspended": "nothing changed: the model is suspended: {0}",
    "no-baseline": "nothing changed: the job's configuration is not known: {0}",
    "mixed-partition": "nothing changed: {0} has several node types and the job selects none: {1}",
    "baseline-outside-model": "nothing changed: {0} is too far from what was measured",
    "baseline-is-best": "nothing changed: the job as written is best for goal {0}",
    "no-candidates": "nothing changed: no other option is allowed for this job",
    "slowdown": "{0} options exceed {1} slowdown at {2} confidence",
    "saving-too-small": "nothing changed: best saving {0} is below the policy's {1}",
    "unconfirmed": "{0} promising options are not confirmed by a run yet",
    "class-estimated": "application never measured: estimated from {0}, by {1}",
    "class-off": "similar applications were measured, but cold_start is off",
    "class-few": "nothing changed: only {0} applications were measured on {1}, the policy asks for "
    "{2}",
    "class-not-listed": "nothing changed: the policy changes no {0} jobs before they are measured",
    "class-unseen": "nothing changed: only {0} applications were measured on {1}; {2} confidence "
    "at a point that never ran needs {3}, or a trial",
    "class-doubted": "{0} options need a trial first: other applications do not support them",
    "class-trial": "trial {0} of {1}: this job tries the best allowed option; its result decides "
    "whether later jobs use it",
    "trial-confirmed": "confirmed by a trial with an earlier job",
    "trial-pending": "a trial with another job is running",
    "trials-refuted": "nothing changed: every trial missed the policy's bounds",
    "trials-stopped": "no more trials: {0} of {1} jobs missed the policy's bounds",
    "cold-start-advise": "nothing changed: the policy only shows estimates for applications never "
    "measured",
    "extrapolated": "{0} was not measured: extrapolated from {1}",
    "extrapolated-advise": "nothing changed: the policy only shows extrapolated options",
    "extrapolated-refused": "nothing changed: this size was not measured, and the policy refuses "
    "to extrapolate",
    "too-far": "nothing changed: {0} was not measured, the nearest is {1}; the policy extrapolates "
    "by a factor of {2} at most",
    "few-sizes": "nothing changed: this size was not measured; extrapolation needs {1} measured "
    "sizes, there are: {0}",
    "family-unfit": "nothing changed: this size was not measured, and no scaling model fits the "
    "measured ones: {0}",
    "time-limit-short": "the job may reach its time limit: predicted {0} ({1} to {2}), limit {3}",
    "estimates-refused": "estimates of {0} are not used: {1}",
    "energy-unknown": "nothing changed: no energy is known for this workload",
    "energy-estimated": "energy is estimated, not measured",
    "holdout": "nothing changed: holdout job, drawn at random to measure the real savings",
    "pin-impossible": "nothing changed: this job cannot have your pinned configuration: {0}",
    "cannot-write": "nothing changed: {0}",
    "already-decided": "nothing changed: this job was decided before",
    "store-unreadable": "nothing changed: the advisor's store cannot be read",
    "bad-request": "nothing changed: {0}",
    "choices-bad": "your choices file is ignored: {0}",
    "setting-refused": "{0} is ignored: {1}",
    "training-budget": "no training: {0}",
}

TEXTS_FOR_ONE: dict[str, str] = {
    "no-room": "1 option does not fit the partition, memory or node size",
    "time-limit": "1 option might not end within the time limit",
    "time-limit-unknown": "1 option is predicted slower than the job as written, and it is not "
    "known which time limit will hold: state one",
    "slowdown": "1 option exceeds {1} slowdown at {2} confidence",
    "unconfirmed": "1 promising option is not confirmed by a run yet",
    "class-few": "nothing changed: only 1 application was measured on {1}, the policy asks for {2}",
    "class-unseen": "nothing changed: only 1 application was measured on {1}; {2} confidence at a "
    "point that never ran needs {3}, or a trial",
    "class-doubted": "1 option needs a trial first: other applications do not support it",
}
"""The texts of those that count something, where the first detail is 1."""

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
        texts = TEXTS_FOR_ONE if self.details[:1] == ("1",) else {}
        return texts.get(self.code, TEXTS[self.code]).format(*self.details, *_LOST)

    @property
    def cause(self) -> str:
        """The text where it is clear that nothing changes."""
        return self.text.removeprefix("nothing changed: ")

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
