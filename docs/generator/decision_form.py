"""The JSON form of a decision, as a type: what ``config/schemas/decision.json`` is made of.

:class:`advisor.core.decision.Decision` writes it, into the store and as a verb's answer. It reads
back whatever earlier versions wrote and what comes with a job's stamp; no key of that is relied on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from advisor.core.codec import AtLeast
from advisor.core.configuration import Configuration
from advisor.core.observation import Quality
from advisor.core.step_plan import StepPlan

ChangeEnds = Annotated[tuple[float | None, float | None], "lower and upper end at 90 %"]
GpuAxis = Annotated[int, AtLeast(1), "where it is an axis"]


class ConfigurationForm(TypedDict):
    """A configuration of a job."""

    node_type: str
    nodes: int
    ranks_per_node: int
    threads_per_node: int
    freq_khz: Annotated[int, "frequency cap, 0 where none can be set"]
    threads_per_rank: NotRequired[int]
    gpu_freq_khz: NotRequired[GpuAxis]
    gpu_power_w: NotRequired[GpuAxis]


class BaselineForm(ConfigurationForm):
    """What the job asked for, and what that takes."""

    time_s: float | None
    energy_j: float | None


class PredictedForm(TypedDict):
    """Values, and percent against the baseline."""

    time_s: float | None
    energy_j: float | None
    time_pct: float | None
    time_pct_interval: ChangeEnds | None
    energy_pct: float | None
    energy_pct_interval: ChangeEnds | None


class PredictionForm(PredictedForm):
    """What is predicted of the choice."""

    energy_quality: Quality


class AlternativeForm(ConfigurationForm, PredictedForm):
    """An option as it was weighed."""

    confirmed: bool
    estimated: bool


class PartForm(TypedDict):
    """A part of what a job's own history promises."""

    program: Annotated[str, "the steps' name"]
    application: Annotated[str, "whose model speaks for it, or empty"]
    workload: str
    time_share: Annotated[float, AtLeast(0)]
    energy_share: Annotated[float, AtLeast(0)]
    known: Annotated[bool, "by a model; else it counts at the worst"]


class TrialNumber(TypedDict):
    """Which trial, of how many."""

    number: int
    of: int


class PastTrial(TypedDict):
    """A trial that is over."""

    state: Literal["confirmed", "refuted", "bad", "unjudged"]
    point: Mapping[str, object]
    time_pct: NotRequired[float]
    energy_pct: NotRequired[float]


class ChoiceIntervals(TypedDict, total=False):
    """Ends of the predicted change of the choice."""

    time: Sequence[float]
    energy: Sequence[float]


ColdStartForm = TypedDict(
    "ColdStartForm",
    {
        "class": str,
        "strategy": Annotated[str, "that found the class, or empty"],
        "applications": Annotated[int, "that it was learned from"],
        "like": Sequence[str],
        "method": str,
        "trial": Annotated[TrialNumber | None, "where the job is a trial: which one, of how many"],
        "trials": Annotated[Sequence[PastTrial], "of the workload that are over"],
        "intervals": Annotated[
            ChoiceIntervals | None,
            "of the choice against the job as written, 90 %: shares of change",
        ],
    },
)
"""What the choice follows from where the application was never swept."""


class DecisionForm(TypedDict):
    """What was asked for, what was chosen and why. Percent against the baseline; null where it is
    not known."""

    decision: Annotated[str, "16 hex digits"]
    created_at: str
    scheduler: str
    hook: str
    user: str
    account: str
    mode: str
    goal: str
    application: str
    workload: str
    baseline: BaselineForm | None
    changed: bool
    rewrite: Annotated[Mapping[str, str], "the scheduler's options with their new values"]
    environment: Annotated[Mapping[str, str], "variables set in the job"]
    chosen: Configuration | None
    predicted: PredictionForm | None
    alternatives: Sequence[AlternativeForm]
    reasons: Annotated[Sequence[str], "codes, see docs/safety.md"]
    explanation: Annotated[Sequence[str], "a sentence for each reason"]
    message: str
    holdout: bool
    model_id: int | None
    policy_version: int
    request: Mapping[str, object]
    program: Mapping[str, object]
    reading: NotRequired[
        Annotated[
            Mapping[str, object],
            "what was read of the job's script and settings: with the request, enough to decide"
            " again",
        ]
    ]
    identity: NotRequired[
        Annotated[
            str,
            "what the job is: 24 hex digits, the same for its earlier jobs; absent where that is"
            " not known",
        ]
    ]
    parts: NotRequired[
        Annotated[
            Sequence[PartForm],
            "of a job that is known by its own earlier jobs: what its promise is made of, the"
            " latest of them; the last part is all that no step took",
        ]
    ]
    plan: NotRequired[
        Annotated[
            StepPlan,
            "of a job that is left as it is written: what its steps get where they start; of"
            " several entries that fit a step the first counts",
        ]
    ]
    cold_start: NotRequired[
        Annotated[ColdStartForm, "of an application never swept: what the choice follows from"]
    ]
    node_axes: NotRequired[
        Annotated[Mapping[str, int], "what the job's nodes themselves set on its GPUs"]
    ]
    node_cap_khz: NotRequired[
        Annotated[int, "the cap that the job's nodes put on all that it runs"]
    ]
    job_id: NotRequired[str]
    cluster: NotRequired[
        Annotated[str, "whose id that is, or that the job was submitted to; absent if not known"]
    ]
    origin: NotRequired[Annotated[Literal["stamp"], "known from the job's stamp only"]]


class WorthForm(TypedDict):
    """What a run saves; negative: costs more. Null: not known."""

    kwh: float
    money: float | None
    currency: str
    co2_kg: float | None
    node_hours: float
    days: int
    own_runs: Annotated[int | None, "the user's in these days"]
    all_runs: int | None
