"""Between rows and records: every column is named here once. Standard library only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from advisor.core.axes import AXES, Extra
from advisor.core.configuration import Configuration, SearchSpace
from advisor.core.decision import Decision
from advisor.core.observation import Observation
from advisor.errors import InputError, StoreError
from advisor.store.port import ResultRow
from advisor.store.records import (
    ConfigVersion,
    Outcome,
    StoredModel,
    StoredObservation,
    TrainingRequest,
    TrainingRun,
)

MODEL_COLUMNS = (
    "m.id, w.application, w.name AS workload, m.node_type, m.scope, m.owner, m.version, m.name,"
    " m.state, m.state_reason, m.energy_quality, m.n_train, m.stats, m.options, m.created_at,"
    " m.updated_at, m.sizes AS sizes_blob"
)
OBSERVATION_COLUMNS = (
    "o.id, w.application, w.name AS workload, o.node_type, o.nodes, o.ranks_per_node,"
    " o.threads_per_node, o.freq_khz, o.time_s, o.energy_j, o.fom, o.energy_quality, o.meter,"
    " o.source, o.contributor, o.account, o.scope, o.job_id, o.extra, o.created_at, o.method,"
    " o.space, o.cluster"
)
REQUEST_COLUMNS = (
    "r.id, w.application, w.name AS workload, r.node_type, r.user, r.scheduler, r.state,"
    " r.detail, r.plan, r.created_at, r.updated_at"
)

PLACE = ("node_type", "nodes", "ranks_per_node", "threads_per_node", "freq_khz")
"""The columns of a configuration; its further axes stand with what else is kept of a run."""
NAME_LIMIT = 200
"""Characters of a name."""


def now() -> str:
    """Return the time in UTC as ISO 8601 with microseconds; sorts as text."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def clean(value: Any) -> Any:
    """Return a value as SQLite can store it: bytes that were no UTF-8 become ``?`` in text."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def cleaned(values: Iterable[Any]) -> list[Any]:
    """Return :func:`clean` of each value; most are numbers or ASCII."""
    return [v if type(v) is not str or v.isascii() else clean(v) for v in values]


def to_json(value: object) -> str:
    """Return JSON in ASCII; NaN and infinities become null, what JSON lacks becomes text."""
    # Looked for only where there is any: most records have none, and a look takes longer than this.
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value))


_encode = json.JSONEncoder(allow_nan=False, default=str).encode
"""One encoder for all: json.dumps would make one for every value."""


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def from_json(text: str, what: str) -> dict[str, Any]:
    """Read a stored JSON object back. Raises StoreError when it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise damaged(what)
    return value


def damaged(what: str) -> StoreError:
    """Return the error of a record that is no JSON object."""
    return StoreError(f"{what}: the stored record is damaged")


def model(row: ResultRow) -> StoredModel:
    """Return the model of a row of MODEL_COLUMNS."""
    values = list(row)
    values[12] = from_json(values[12], f"model {values[0]}")  # its stats
    return StoredModel(*values)


def observation(row: ResultRow) -> StoredObservation:
    """Return the observation of a row of OBSERVATION_COLUMNS."""
    (
        number,
        application,
        workload,
        node_type,
        nodes,
        ranks,
        threads,
        freq,
        time_s,
        energy_j,
        fom,
        quality,
        meter,
        source,
        contributor,
        account,
        scope,
        job_id,
        extra,
        created_at,
        method,
        space,
        cluster,
    ) = row
    more = from_json(extra, f"observation {number}") if extra != "{}" else {}
    return StoredObservation(
        number,
        application,
        workload,
        Observation(
            Configuration(node_type, nodes, ranks, threads, freq, _axes(more) if more else ()),
            time_s,
            energy_j,
            fom,
            quality,
            meter,
            source,
            contributor,
            account,
            scope,
            job_id,
            more,
            method,
            _space(node_type, space) if space else None,
            cluster,
        ),
        created_at,
    )


def _axes(extra: dict[str, Any]) -> Extra:
    """Take the further axes out of what is kept of a run; what cannot be a value stays there."""
    names = [n for n in AXES if type(v := extra.get(n)) is int and v > 0]
    return tuple((name, extra.pop(name)) for name in sorted(names))


@lru_cache(maxsize=1000)
def _space(node_type: str, text: str) -> SearchSpace | None:
    """Return a stored search space; None where it makes no sense, as if nobody had said."""
    try:
        return SearchSpace.from_dict(node_type, json.loads(text))
    except ValueError:
        return None


def check_name(what: str, name: str) -> None:
    """Raise InputError unless a name can be printed on one line."""
    if not name or len(name) > NAME_LIMIT or not name.isprintable() or name != name.strip():
        raise InputError(
            f"{name!r} is not a name for {'an' if what[0] in 'aeiou' else 'a'} {what}",
            hint=f"1 to {NAME_LIMIT} printable characters, no blanks at the ends",
        )


def check_observation(run: Observation) -> None:
    """Raise InputError for an observation with a value that makes no sense."""
    for name, value in (("time_s", run.time_s), ("energy_j", run.energy_j), ("fom", run.fom)):
        if value is None and name != "time_s":
            continue
        if value is None or not math.isfinite(value) or value <= 0:
            raise InputError(f"{name} of an observation must be a positive number, not {value}")
    c = run.configuration
    check_name("node type", c.node_type)
    if not 1 <= c.ranks_per_node <= c.threads_per_node or c.nodes < 1 or c.freq_khz < 0:
        raise InputError(f"an observation's configuration is not valid: {c.to_dict()}")


def observation_row(workload_id: int, run: Observation, created_at: str) -> dict[str, Any]:
    """Return the columns of one observation; InputError on a value that makes no sense."""
    check_observation(run)
    c = run.configuration
    return {
        "workload_id": workload_id,
        **{name: getattr(c, name) for name in PLACE},
        **{name: getattr(run, name) for name in _OF_RUN},
        "energy_quality": "missing" if run.energy_j is None else run.energy_quality,
        "extra": to_json(dict(sorted({**run.extra, **dict(c.extra)}.items()))),
        "space": "" if run.space is None else to_json(run.space.to_dict()),
        "created_at": created_at,
    }


_OF_RUN = (
    "time_s",
    "energy_j",
    "fom",
    "meter",
    "source",
    "contributor",
    "account",
    "scope",
    "job_id",
    "method",
    "cluster",
)


def request(row: ResultRow) -> TrainingRequest:
    """Return the training request of a row of REQUEST_COLUMNS."""
    values = list(row)
    values[8] = from_json(values[8], f"training request {values[0]}")  # its plan
    return TrainingRequest(*values)


def run(row: ResultRow) -> TrainingRun:
    """Return the training run of a whole row of training_runs."""
    what = f"run {row['seq']} of training request {row['request_id']}"
    try:
        configuration = Configuration.from_dict(from_json(row["configuration"], what))
    except (KeyError, ValueError):
        raise StoreError(f"{what}: the stored configuration is damaged") from None
    values = {name: row[name] for name in TrainingRun.__slots__}
    return TrainingRun(**{**values, "configuration": configuration})


def outcome(row: ResultRow) -> Outcome:
    """Return the outcome of a whole row of outcomes."""
    values = {name: row[name] for name in Outcome.__slots__}
    values["record"] = from_json(row["record"], f"outcome of job {row['job_id']}")
    return Outcome(**values)


def config(row: ResultRow) -> ConfigVersion:
    """Return the configuration version of a whole row of config_versions."""
    values = {name: row[name] for name in ConfigVersion.__slots__}
    values["compiled"] = from_json(row["compiled"], f"{row['kind']} version {row['version']}")
    values["active"] = bool(row["active"])
    return ConfigVersion(**values)


SAVE_DECISION = """
INSERT INTO decisions (id, created_at, scheduler, hook, user, account, application, workload,
    node_type, mode, changed, holdout, model_id, policy_version, record, job_id, cluster)
VALUES (:id, :created_at, :scheduler, :hook, :user, :account, :application, :workload,
    :node_type, :mode, :changed, :holdout, :model_id, :policy_version, :record, :job_id,
    :cluster)
ON CONFLICT (id) DO UPDATE SET
    record = CASE WHEN length(excluded.record) > length(decisions.record)
                  THEN excluded.record ELSE decisions.record END,
    job_id = CASE WHEN excluded.job_id <> '' THEN excluded.job_id ELSE decisions.job_id END,
    cluster = CASE WHEN excluded.cluster <> '' THEN excluded.cluster ELSE decisions.cluster END
"""
"""Keeps the fuller record when a decision arrives twice: from the daemon and with its job."""

LINK_DECISION = """
UPDATE decisions SET job_id = :job_id,
    cluster = CASE WHEN :cluster <> '' THEN :cluster ELSE cluster END
WHERE id = :id
"""


DROP_DECISION = "DELETE FROM decisions WHERE id = :id AND job_id = :job_id"


OUTCOME_KEY = ("job_id", "scheduler", "cluster", "submitted_at")
OutcomeKey = tuple[str, str, str, str]
"""What an outcome is found by, the first columns of its row: a job's id, its scheduler and cluster,
and when it was submitted."""


def decision_row(decision: Decision, job_id: str) -> dict[str, Any]:
    """Return the columns of a decision. Raises InputError for one without an id."""
    d = decision
    if not d.id:
        raise InputError("a decision to store has no id")
    place = d.baseline or (d.chosen.configuration if d.chosen else None)
    return {
        "id": d.id,
        "created_at": d.created_at or now(),
        **{
            name: clean(getattr(d, name))
            for name in (
                "scheduler",
                "hook",
                "user",
                "account",
                "application",
                "workload",
                "mode",
                "cluster",
            )
        },
        "node_type": clean(place.node_type) if place else "",
        "changed": int(d.changed),
        "holdout": int(d.holdout),
        "model_id": d.model_id,
        "policy_version": int(d.policy_version),
        "record": to_json(d.to_dict()),
        "job_id": job_id,
    }


DECISION_COLUMNS = "id, record, job_id, cluster"
_LEFT_OUT = "'$.alternatives', '$.explanation', '$.reading', '$.request'"
BRIEF_DECISION_COLUMNS = f"id, job_id, cluster, json_remove(record, {_LEFT_OUT}) AS record"
"""What was promised and why, without what was asked, read and weighed: SQLite is quicker at leaving
that out than Python is at reading it."""
ALIKE_DECISION_COLUMNS = (
    "id, created_at, job_id,"
    f" json_remove(record, {_LEFT_OUT}, '$.decision', '$.created_at', '$.job_id') AS record"
)
"""The same without what is each decision's own: a request that comes again is decided alike."""


def decision(row: ResultRow) -> Decision:
    """Return the decision of a row of DECISION_COLUMNS or BRIEF_DECISION_COLUMNS."""
    record = from_json(row["record"], f"decision {row['id']}")
    return Decision.from_dict(record, job_id=row["job_id"], cluster=row["cluster"])


def decision_alike(row: ResultRow) -> Decision:
    """Return the decision of a row of ALIKE_DECISION_COLUMNS; many may share what they hold."""
    alike = _decision_of_record(row["record"])
    if alike is None:
        raise damaged(f"decision {row['id']}")
    return alike.of_job(row["id"], row["created_at"], row["job_id"])


@lru_cache(4096)
def _decision_of_record(record: str) -> Decision | None:
    """Return the decision of a record, None where it is damaged."""
    value = json.loads(record)
    return Decision.from_dict(value) if isinstance(value, dict) else None
