"""Decisions and the accounting's records of their jobs, to collect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from advisor.core.configuration import Configuration
from advisor.core.decision import Alternative, Decision, Effect
from advisor.core.inventory import NodeType
from advisor.core.option import Option
from advisor.core.policy import Policy
from advisor.core.reasons import Reason, reason
from advisor.core.stamp import make_stamp
from advisor.loop.collect import Collected, collect
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.store.records import StoredModel
from advisor.store.writer import Writer

NOW = datetime.now(UTC).replace(microsecond=0)


BDW = NodeType(
    "bdw",
    "broadwell",
    ("batch",),
    cores=28,
    freq_khz=(1_200_000, 1_900_000, 2_200_000),
    nodes=tuple(f"bdw{i}" for i in range(1, 9)),
)


BASE = Configuration("bdw", 1, 1, 28, 2_200_000)


TO = Configuration("bdw", 1, 1, 28, 1_900_000)


class Accounting:
    """A scheduler that answers with the records it was given."""

    NAME: ClassVar[str] = "slurm"

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        self.jobs = list(jobs)
        self.asked: list[str] = []

    def finished_jobs(self, since: str) -> list[JobRecord]:
        self.asked.append(since)
        return self.jobs


def option(c: Configuration, time_s: float, energy_j: float) -> Option:
    return Option(
        c,
        time_s,
        time_s / 1.02,
        time_s * 1.02,
        energy_j,
        energy_j / 1.02,
        energy_j * 1.02,
        True,
        True,
    )


def model(store: Writer, scope: str = "all", owner: str = "") -> StoredModel:
    return store.save_model(
        "stencil",
        "n64",
        "bdw",
        scope=scope,  # type: ignore[arg-type]
        owner=owner,
        name="bspline",
        energy_quality="measured",
        n_train=12,
        stats={},
        options=[option(BASE, 100.0, 10_000.0), option(TO, 102.0, 9_000.0)],
    )


def decision(
    number: int,
    model_id: int | None,
    *,
    user: str = "ann",
    changed: bool = True,
    at: datetime = NOW - timedelta(hours=1),
    reasons: tuple[Reason, ...] = (),
    holdout: bool = False,
) -> Decision:
    chosen = Alternative(
        TO, 102.0, 9_000.0, Effect(0.02, 0.0, 0.04), Effect(-0.1, -0.12, -0.08), True
    )
    return Decision(
        id=f"{number:016x}",
        created_at=at.isoformat(timespec="seconds"),
        scheduler="slurm",
        hook="cli_filter",
        user=user,
        account="proj",
        policy=Policy(mode="apply"),
        application="stencil",
        workload="n64",
        baseline=BASE,
        chosen=chosen,
        alternatives=(chosen,),
        rewrite={"cpu-freq": "1200000-1900000"} if changed else {},
        environment={},
        reasons=reasons or (reason("chosen", "x"), reason("confirmed")),
        holdout=holdout,
        model_id=model_id,
        energy_quality="measured",
        policy_version=0,
        baseline_time_s=100.0,
        baseline_energy_j=10_000.0,
    )


def job(
    number: int,
    stamp: str = "",
    *,
    user: str = "ann",
    account: str = "proj",
    state: str = "COMPLETED",
    time_s: float = 102.0,
    energy_j: float | None = 9_000.0,
    freq: int | None = 1_900_000,
    cpus: int = 28,
    at: datetime = NOW - timedelta(hours=1),
    job_id: str = "",
) -> JobRecord:
    step = StepRecord("0", "stencil", "COMPLETED", time_s, 1, 1, energy_j, freq, freq, cpus)
    return JobRecord(
        job_id or str(number),
        "job",
        user,
        account,
        state,
        at.isoformat(),
        time_s + 2,
        1,
        f"bdw{number % 8 + 1}",
        energy_j,
        freq,
        freq,
        admin_comment=stamp,
        partition="batch",
        ended_at=(at + timedelta(seconds=time_s)).isoformat(),
        cpus=cpus,
        steps=(step,),
    )


def run(store: Writer, *jobs: JobRecord) -> Collected:
    return collect(store, Accounting(jobs), NOW - timedelta(days=1))  # type: ignore[arg-type]


def decided(store: Writer, d: Decision) -> str:
    store.save_decision(d)
    return make_stamp(d)


def state(store: Writer, m: StoredModel) -> str:
    return next(iter(store.models([m.id]))).state


def worse(
    store: Writer, m: StoredModel, number: int, user: str = "ann", **changes: object
) -> JobRecord:
    stamp = decided(store, decision(number, m.id, user=user))
    return job(number, stamp, user=user, **{"energy_j": 10_500.0, **changes})  # type: ignore[arg-type]


OLD = {"path": "/x/stencil", "size": 1, "mtime": 2, "build": "aa" * 20}


def measured(store: Writer, **stats: object) -> StoredModel:
    m = model(store)
    return store.save_model(
        "stencil",
        "n64",
        "bdw",
        scope="all",
        owner="",
        name="bspline",
        energy_quality="measured",
        n_train=12,
        stats={"program": [OLD], **stats},
        options=m.options(),
    )
