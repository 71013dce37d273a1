"""What each operation of the socket protocol is asked and answers, as types.

``config/schemas/protocol.json`` is made of these: of ``NameRequest`` and ``NameReply`` for each
operation's name. Every request also has ``v`` and ``op``, every answer ``v``. Nothing reads by
them: hooks in Lua and in PBS's Python send requests, and the daemon checks what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, Required, TypedDict

from advisor.core.codec import Above, AtLeast, AtMost, Matches
from advisor.core.configuration import Configuration
from advisor.core.protocol import MAX_STAMP

AnyKeys = Mapping[str, object]
"""An object whose keys the protocol does not state."""
Objects = Sequence[AnyKeys]
Texts = Sequence[str]
After = Annotated[int | None, "ask again with this as after; null: that was all"]


class JobRequestKeys(TypedDict, total=False):
    """A job as a hook sees it."""

    scheduler: Required[str]
    hook: str
    type: str
    options: AnyKeys
    argv: Texts
    script: str | None
    script_path: str
    truncated: bool
    env: Mapping[str, str]
    choices: str
    cwd: str
    het: bool
    program: AnyKeys
    uid: int
    user: str
    stamp: str
    host_resources: Texts
    attributes: AnyKeys
    submit_arguments: str
    executable: str
    argument_list: str
    client: str
    name: str


class DecideRequest(JobRequestKeys, total=False):
    """Asks what a job should get."""

    cluster: Annotated[
        str, "Slurm's ClusterName, PBS's server; \"\" where the hook does not know it"
    ]
    plan: Annotated[Literal[1], "the hook gives the job a plan for its steps"]


class DecideReply(TypedDict, total=False):
    """What to change of a job."""

    decision: Required[str]
    rewrite: Required[
        Annotated[
            Mapping[str, str], 'options with their new values; from PBS "" takes a resource out'
        ]
    ]
    message: Required[str]
    env: Mapping[str, str]
    to: Literal["tty", "always"]
    stamp: Annotated[str, AtMost(MAX_STAMP), "advisor: and one JSON object"]
    plan: Annotated[
        str,
        AtMost(MAX_STAMP),
        "what the job's steps get where they start: the variable ADVISOR_PLAN",
    ]
    program: Annotated[AnyKeys, "the file to look at: path, size, mtime, build"]


class ExplainRequest(JobRequestKeys, total=False):
    """Asks for the whole decision, which is not kept."""

    explicit: Annotated[AnyKeys, "PBS: the options that the user set, where they are not all"]


class ExplainReply(TypedDict):
    """The whole decision, and what else is known."""

    earlier_hooks: Annotated[
        Texts, "PBS: the site's hooks that see jobs before the advisor's, where that is known"
    ]


class SubmittedRequest(TypedDict):
    """Says which job a decision was made for."""

    decision: str
    job: str


class SubmittedReply(TypedDict):
    """It is noted."""

    ok: Literal[True]


class ScriptRequest(TypedDict):
    """Hands over what a job of PBS runs, under a key that the job carries."""

    key: Annotated[str, Matches("^[0-9a-f]{32}$")]
    client: Annotated[str, Matches("^[A-Za-z0-9_-]{1,32768}$")]


class ScriptReply(SubmittedReply):
    """It is kept for a while."""

    asked: Annotated[bool, "a hook has asked this daemon with such a key"]


class ObservedRun(TypedDict, total=False):
    """One measured run."""

    configuration: Required[Configuration]
    time_s: Required[Annotated[float, Above(0)]]
    energy_j: float | None
    fom: float | None
    energy_quality: Literal["measured", "estimated", "missing"]
    meter: str
    job_id: str
    extra: AnyKeys
    method: str


class RunGrid(TypedDict):
    """What a model of runs is evaluated on."""

    nodes: Annotated[Sequence[Annotated[int, AtLeast(1)]], AtLeast(1)]
    threads: Annotated[
        Sequence[
            Annotated[
                tuple[Annotated[int, AtLeast(1)], Annotated[int, AtLeast(1)]],
                "ranks and threads of each node",
            ]
        ],
        AtLeast(1),
    ]
    freqs_khz: Annotated[Sequence[Annotated[int, AtLeast(0)]], AtLeast(1)]


class ObserveRequest(TypedDict, total=False):
    """Hands over runs that the peer measured."""

    application: Required[str]
    workload: Required[str]
    observations: Required[Annotated[Sequence[ObservedRun], AtLeast(1)]]
    account: str
    space: Annotated[RunGrid | None, "the grid that a model of these runs is evaluated on"]
    fit: bool


class ObserveReply(SubmittedReply):
    """They wait to be stored."""

    stored: int


class SentPhase(TypedDict):
    """A phase of an application."""

    name: str
    streams: Objects


class SentCharacterisation(TypedDict):
    """An application's phases."""

    application: str
    workload: str
    phases: Annotated[Sequence[SentPhase], AtMost(200)]
    node_type: NotRequired[str]


class CharacteriseRequest(TypedDict):
    """Hands over an application's phases, as the peer measured them."""

    characterisation: SentCharacterisation


class CharacteriseReply(SubmittedReply):
    """They wait to be stored."""


class SentProfile(TypedDict):
    """What one kernel took."""

    microbenchmark: str
    streams: Annotated[Objects, AtMost(3)]
    threads: int
    time_per_iter_us: float
    spread: float
    repeats: int


class ProfileRequest(TypedDict):
    """Hands over what kernels of the peer's own took on a node type."""

    node_type: str
    machine: AnyKeys
    host: NotRequired[str]
    kernel: NotRequired[str]
    compiler: NotRequired[str]
    profiles: Annotated[Sequence[SentProfile], AtLeast(1), AtMost(100)]


class ProfileReply(SubmittedReply):
    """They wait to be stored."""


class ApplicationsRequest(TypedDict, total=False):
    """Asks for a page of the site and its applications."""

    after: int


class ApplicationsReply(TypedDict, total=False):
    """Rows of the store's tables; the first page has the site, too."""

    config_versions: Objects
    node_types: Objects
    workloads: Required[Objects]
    next: Required[After]


class OptionsRequest(ApplicationsRequest, total=False):
    """Asks for a page of the models that may advise the peer's jobs."""

    application: str
    workload: str
    node_type: str


class OptionsReply(TypedDict, total=False):
    """Models that may advise the peer's jobs, options packed in base64."""

    workloads: Annotated[Objects, "of families' models, which no list of workloads has"]
    models: Required[Objects]
    observations: Objects
    training_requests: Objects
    training_runs: Objects
    next: Required[After]


class HistoryRequest(ApplicationsRequest, total=False):
    """Asks for a page of jobs."""

    job: str


class HistoryReply(TypedDict):
    """The peer's own jobs, all for root and administrators, the newest first."""

    decisions: Objects
    outcomes: Objects
    next: After


class MetricsRequest(TypedDict):
    """Asks how the daemon is doing, for a monitoring system."""


class MetricsReply(TypedDict):
    """How the daemon is doing."""

    metrics: Annotated[str, "OpenMetrics text"]


class StatusRequest(TypedDict):
    """Asks how the daemon is doing."""


class FoundScripts(TypedDict):
    """Requests by key whose text was there, and whose text was not."""

    found: int
    missing: int


class AnswerTimes(TypedDict):
    """Microseconds that answers took."""

    p50: float | None
    p99: float | None


class StatusReply(TypedDict):
    """How the daemon is doing."""

    version: str
    pid: int
    uptime_s: float | None
    store: str
    store_error: str
    store_hangs: NotRequired[bool]
    store_read: NotRequired[bool]
    store_age_s: NotRequired[float | None]
    models: int
    newest_model: int
    node_types: Texts
    policy_version: int
    decisions: int
    changed: int
    availability: AnyKeys | None
    connections: Annotated[int, "open ones of all users"]
    refused: Annotated[int, "requests refused and connections closed, since one user took too much"]
    takes_results: bool
    scripts: FoundScripts
    answer_us: AnswerTimes


class PingRequest(TypedDict):
    """Asks whether anybody is there."""


class PingReply(TypedDict):
    """The daemon is there."""

    pong: Literal[True]
    version: str


class RefusedReply(TypedDict):
    """Of any operation, where it cannot be answered."""

    error: str
    hint: NotRequired[str]


OPERATIONS: Mapping[str, tuple[type, type]] = {
    "decide": (DecideRequest, DecideReply),
    "explain": (ExplainRequest, ExplainReply),
    "submitted": (SubmittedRequest, SubmittedReply),
    "script": (ScriptRequest, ScriptReply),
    "observe": (ObserveRequest, ObserveReply),
    "characterise": (CharacteriseRequest, CharacteriseReply),
    "profile": (ProfileRequest, ProfileReply),
    "applications": (ApplicationsRequest, ApplicationsReply),
    "options": (OptionsRequest, OptionsReply),
    "history": (HistoryRequest, HistoryReply),
    "metrics": (MetricsRequest, MetricsReply),
    "status": (StatusRequest, StatusReply),
    "ping": (PingRequest, PingReply),
}
"""Request and answer of each operation."""
