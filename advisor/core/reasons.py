"""Reason codes: why a decision came out as it did. Every decision carries at least one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.core.codec import JsonForm


@dataclass(frozen=True, slots=True)
class ReasonKind:
    """What a code says, with ``{0}`` and so on for its details.

    ``changes_nothing``: it ended the decision, the job stays as it is written; ``one``: the text
    where the first detail is 1, of a reason that counts something.
    """

    text: str
    changes_nothing: bool = False
    one: str = ""


def _ended(text: str, one: str = "") -> ReasonKind:
    return ReasonKind(text, changes_nothing=True, one=one)


NOTHING_CHANGED = "nothing changed"
"""How the sentence of a reason begins that changes nothing."""

KINDS: dict[str, ReasonKind] = {
    # something was chosen
    "chosen": ReasonKind("chosen: {0}"),
    "pinned": ReasonKind("you pinned this configuration"),
    "tie-resources": ReasonKind(
        "several options are equal within error; {0} takes the one with {1} cores"
    ),
    "node-cap": ReasonKind("the job's nodes apply the cap, to all that it runs"),
    "confirmed": ReasonKind(
        "confirmed by a run within its predicted interval; still possible: "
        "over {0} slowdown ({1}), under {2} saving ({3})"
    ),
    "node-type-estimated": ReasonKind("{0} is estimated from microbenchmarks, {1}"),
    "step-plan": ReasonKind("each step of srun is looked up as it starts; known are {0}"),
    # how the job was understood
    "application-rule": ReasonKind("application {0} by site rule"),
    "application-launcher": ReasonKind("application {0} from the script's first launcher line"),
    "application-command": ReasonKind("application {0} from the script's last command"),
    "application-stated": ReasonKind("application {0} as stated by {1}"),
    "workload-fallback": ReasonKind(
        "workload {0} has no model; the model of workload 'default' is used"
    ),
    "baseline-node-type": ReasonKind(
        "job as written runs on {0}: first node type of partition {1}"
    ),
    "baseline-nearest": ReasonKind("{0} was not measured; the nearest measured point is {1}"),
    "several-runs": ReasonKind("the script runs its program {0} times: only the cap may change"),
    "several-programs": ReasonKind(
        "its programs run one after the other, and fewer threads are better for each: {0}"
    ),
    "scope": ReasonKind("model measured by {0}"),
    # kept as the user wrote it
    "user-set": ReasonKind("the policy keeps what the job sets itself: {0}"),
    "axis-keep": ReasonKind("the policy keeps {0}"),
    "threads-own": ReasonKind("threads are kept: {0}"),
    "threads-unset": ReasonKind("threads are kept: the job leaves {0}"),
    "allocation-kept": ReasonKind("nodes and tasks are kept as you wrote them"),
    "axis-unwritten": ReasonKind("{0} is kept: nothing here writes it into a job"),
    "no-frequency-steps": ReasonKind("frequency is kept: the inventory lists no steps for {0}"),
    "not-in-inventory": ReasonKind("{0} is not in the inventory, so it is not set"),
    "no-room": ReasonKind(
        "{0} options do not fit the partition, memory or node size",
        one="1 option does not fit the partition, memory or node size",
    ),
    "lacks-memory": ReasonKind("options without enough memory are left out: {0}"),
    "time-limit": ReasonKind(
        "{0} options might not end within the time limit",
        one="1 option might not end within the time limit",
    ),
    "time-limit-unknown": ReasonKind(
        "{0} options are predicted slower than the job as written, and it is not known which "
        "time limit will hold: state one",
        one="1 option is predicted slower than the job as written, and it is not known which time "
        "limit will hold: state one",
    ),
    "axis-bound": ReasonKind("{0}"),
    "cores-kept": ReasonKind("the number of cores is kept: {0}"),
    "shared-nodes": ReasonKind("{0} is kept: the job shares its nodes with others"),
    "node-type-later": ReasonKind("node type is kept: {0}"),
    "node-type-limit": ReasonKind("node type is kept: {0}"),
    # nothing changed because ...
    "option-not-understood": _ended("the advisor does not know {0}"),
    "option-binds": _ended("{0} makes the job's nodes, tasks or cores unclear"),
    "several-steps": _ended("the script runs more than one program: {0}"),
    "background-steps": _ended("the script runs its program in the background"),
    "loop-of-steps": _ended("the script runs its program in a loop"),
    "nested-submit": _ended("the script submits jobs itself: {0}"),
    "script-not-understood": _ended("the advisor cannot follow the script: {0}"),
    "several-partitions": _ended("partitions {0} have different node types; name one"),
    "measured-otherwise": _ended(
        "the model of {0} is from an older version; measure it again: advisor train SCRIPT"
    ),
    "program-rebuilt": _ended(
        "{0} was built again since it was measured; once a run matches its model, the advisor "
        "changes jobs again"
    ),
    "other-program": _ended("{0} is not the program that was measured"),
    "opted-out": _ended("you opted out ({0})"),
    "mode-off": _ended("the policy says mode: off for this job"),
    "mode-observe": _ended("the policy says mode: observe for this job"),
    "mode-advise": _ended(
        "the policy says mode: advise for this job; to apply it: ADVISOR_MODE=apply"
    ),
    "step": _ended("the advisor does not change steps inside a job"),
    "interactive": _ended("the advisor does not change interactive jobs ({0})"),
    "het-job": _ended("the advisor does not change heterogeneous jobs"),
    "no-script": _ended("the script cannot be read"),
    "script-missing": _ended("what the script runs did not reach the advisor"),
    "unrecognised": _ended("the application was not recognised; name it: ADVISOR_APPLICATION=NAME"),
    "no-model": _ended("no model for {0} yet"),
    "training-ask": ReasonKind("train it with: advisor train {0}"),
    "training-auto": ReasonKind("the daemon starts a training sweep for it"),
    "training-running": ReasonKind("a training sweep is running"),
    "whole-job": ReasonKind("predicted from its own earlier jobs: {0}"),
    "whole-job-worse": ReasonKind("its earlier jobs predict nothing of it now: {0}"),
    "program-ended": ReasonKind(
        "nothing is made slower: {0} in the script may end a program after a time"
    ),
    "cap-trial": ReasonKind(
        "this job tries a cap that its earlier ones did not have, trial {0} of {1}: even if all of "
        "its work waited for the clock, it would take {2} longer at most"
    ),
    "cap-trial-pending": ReasonKind("another job of this script is trying a cap"),
    "cap-trials-stopped": ReasonKind("its jobs try no further caps: {0}"),
    "suspended": _ended("the model is suspended: {0}"),
    "no-baseline": _ended("the job's configuration is not known: {0}"),
    "mixed-partition": _ended("{0} has several node types and the job selects none: {1}"),
    "baseline-outside-model": _ended("{0} is too far from what was measured"),
    "baseline-is-best": _ended("the job as written is best for goal {0}"),
    "no-candidates": _ended("no other option is allowed for this job"),
    "slowdown": ReasonKind(
        "{0} options exceed {1} slowdown at {2} confidence",
        one="1 option exceeds {1} slowdown at {2} confidence",
    ),
    "saving-too-small": _ended("best saving {0}, less its uncertainty, is below the policy's {1}"),
    "unconfirmed": ReasonKind(
        "{0} promising options are not confirmed by a run yet",
        one="1 promising option is not confirmed by a run yet",
    ),
    "class-estimated": ReasonKind("application never measured: estimated from {0}, by {1}"),
    "class-off": ReasonKind("similar applications were measured, but cold_start is off"),
    "class-few": _ended(
        "only {0} applications were measured on {1}, the policy asks for {2}",
        one="only 1 application was measured on {1}, the policy asks for {2}",
    ),
    "class-not-listed": _ended("the policy changes no {0} jobs before they are measured"),
    "class-unseen": _ended(
        "only {0} applications were measured on {1}; {2} confidence at a point that never ran "
        "needs {3}, or a trial",
        one="only 1 application was measured on {1}; {2} confidence at a point that never ran "
        "needs {3}, or a trial",
    ),
    "class-doubted": ReasonKind(
        "{0} options need a trial first: other applications do not support them",
        one="1 option needs a trial first: other applications do not support it",
    ),
    "class-trial": ReasonKind(
        "trial {0} of {1}: this job tries the best allowed option; its result decides whether "
        "later jobs use it"
    ),
    "trial-confirmed": ReasonKind("confirmed by a trial with an earlier job"),
    "trial-pending": ReasonKind("a trial with another job is running"),
    "trials-refuted": _ended("every trial missed the policy's bounds"),
    "trials-stopped": ReasonKind("no more trials: {0} of {1} jobs missed the policy's bounds"),
    "cold-start-advise": _ended("the policy only shows estimates for applications never measured"),
    "extrapolated": ReasonKind("{0} was not measured: extrapolated from {1}"),
    "extrapolated-advise": _ended("the policy only shows extrapolated options"),
    "extrapolated-refused": _ended(
        "this size was not measured, and the policy refuses to extrapolate"
    ),
    "too-far": _ended(
        "{0} was not measured, the nearest is {1}; the policy extrapolates by a factor of {2} "
        "at most"
    ),
    "few-sizes": _ended(
        "this size was not measured; extrapolation needs {1} measured sizes, there are: {0}"
    ),
    "family-unfit": _ended(
        "this size was not measured, and no scaling model fits the measured ones: {0}"
    ),
    "time-limit-short": ReasonKind(
        "the job may reach its time limit: predicted {0} ({1} to {2}), limit {3}"
    ),
    "estimates-refused": ReasonKind("estimates of {0} are not used: {1}"),
    "energy-unknown": _ended("no energy is known for this workload"),
    "energy-estimated": ReasonKind("energy is estimated, not measured"),
    "holdout": _ended("holdout job, drawn at random to measure the real savings"),
    "pin-impossible": _ended("this job cannot have your pinned configuration: {0}"),
    "cannot-write": _ended("{0}"),
    "already-decided": _ended("this job was decided before"),
    "store-unreadable": _ended("the advisor's store cannot be read"),
    "bad-request": _ended("{0}"),
    "choices-bad": ReasonKind("your choices file is ignored: {0}"),
    "setting-refused": ReasonKind("{0} is ignored: {1}"),
    "training-budget": ReasonKind("no training: {0}"),
}

ESTIMATED = "node-type-estimated"
"""The reason of a choice on a node type where nothing was measured."""


BY_CLASS = "class-estimated"
"""The reason of a choice for an application that was never swept."""


EXTRAPOLATED = "extrapolated"
"""The reason of a choice for a size or node count that never ran."""


WHOLE_JOB = "whole-job"
"""The reason of a choice for a job that is known by its own earlier jobs alone."""
PROGRAM_ENDED = "program-ended"
"""Why neither a job's history nor a plan for its steps makes anything slower."""
NOT_UNDERSTOOD = frozenset(
    {
        "several-steps",
        "script-not-understood",
        "loop-of-steps",
        "background-steps",
        "unrecognised",
        "no-baseline",
    }
)
"""Why a job is left alone whose history, or what its steps turn out to be, may still tell more."""
STEP_PLAN = "step-plan"
"""The reason of a job that is left as it is written and carries a plan for its steps."""
SEVERAL_RUNS = "several-runs"
"""The reason of a decision whose times and energies are of several runs of the program."""
SEVERAL_PROGRAMS = "several-programs"
"""The reason of one whose times and energies are the sums of several programs' models."""


TRIAL = "class-trial"
"""The reason of a job that tries a point nobody has measured."""
CAP_TRIAL = "cap-trial"
"""The reason of a job that tries a cap which no earlier job of its script ran under."""
CAP_TRIALS_STOPPED = "cap-trials-stopped"
"""Why no further job of a script tries a cap."""
TRIALS = frozenset({TRIAL, CAP_TRIAL})
"""The reasons of jobs that are judged as trials, and in no verdict or saving beside."""

_LOST = ("…",) * 4


@dataclass(frozen=True, slots=True)
class Reason(JsonForm):
    """One reason: a stable code for programs, and the details its text needs.

    ``sentence`` is the whole text where a decision was read back; a stamp keeps codes only, and
    then an ellipsis stands for each detail.
    """

    JSON = ("code", "details", "text")

    code: str
    details: tuple[str, ...] = ()
    sentence: str = ""

    @property
    def changes_nothing(self) -> bool:
        """Whether it ended the decision: the job stays as it is written."""
        if self.code not in KINDS:  # of another version: its sentence is all that is known
            return self.sentence.startswith(NOTHING_CHANGED)
        return KINDS[self.code].changes_nothing

    @property
    def text(self) -> str:
        """The reason as one sentence for people."""
        if self.sentence or self.code not in KINDS:
            return self.sentence or self.code
        return f"{NOTHING_CHANGED}: {self.cause}" if self.changes_nothing else self.cause

    @property
    def cause(self) -> str:
        """The text where it is clear that nothing changes."""
        if self.sentence or self.code not in KINDS:
            return self.text.removeprefix(f"{NOTHING_CHANGED}: ")
        kind = KINDS[self.code]
        text = kind.one if kind.one and self.details[:1] == ("1",) else kind.text
        return text.format(*self.details, *_LOST)


def reason(code: str, *details: object) -> Reason:
    """Make a reason; KeyError for a code that has no text."""
    KINDS[code]
    return Reason(code, tuple(map(str, details)))


def like_text(cold: Mapping[str, Any]) -> tuple[str, str]:
    """Return whom a class model (its ``cold_start``) follows from, and by what, in words."""
    count, kind = cold.get("applications", 0), cold.get("class") or "unknown"
    names = ", ".join(map(str, cold.get("like") or ()))
    near = f" ({names} most like it)" if names else ""
    alike = f", {cold.get('of_class', 0)} of them {kind}" if kind != "unknown" else ""
    counters = set(cold.get("signature") or ()) - {"power_w", "time_s", "memory_mb", "cpu_util"}
    applications = f"{count} applications{alike}{near}"
    return applications, "one job's counters" if counters else "one job's power and time"
