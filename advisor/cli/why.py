"""``advisor why [JOBID...]``: what was decided for a job, and how it came out."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from advisor.cli.arguments import add_cluster
from advisor.cli.bars import beside
from advisor.cli.colour import say
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm, wire
from advisor.database import is_readable
from advisor.errors import AdvisorError, InputError

if TYPE_CHECKING:
    from advisor.core.decision import Decision
    from advisor.core.gpus import GpuUse
    from advisor.loop.step_outcomes import StepOutcome
    from advisor.loop.why import Answer, Compared
    from advisor.store.reader import Reader
    from advisor.store.records import Outcome
    from advisor.views.worth import Worth


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor why`` takes."""
    parser.description = (
        "Show what was decided for a job and why, the promise, and how it came out. Reads the "
        "store if you may read it, else the job's stamp in the scheduler's accounting."
    )
    parser.add_argument(
        "jobs",
        metavar="JOBID",
        nargs="*",
        help="ids, like 4711, or 4711_3 (PBS: 4711[3]) for a task of an array (default: my last "
        "job that the advisor knows of)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="SCHEDULER",
        help="whose job: slurm, pbs or local (default: local for local-..., else slurm or pbs, "
        "whichever this machine has)",
    )
    add_cluster(
        parser,
        "the cluster whose job it is: Slurm's ClusterName, PBS's server (default: this host's)",
    )


@dataclass(frozen=True, slots=True)
class WhyAnswer(JsonForm):
    """What was decided for a job and how it came out."""

    job: str
    cluster: Annotated[str, "empty where it is not known"]
    state: str
    collected: Annotated[bool, "the outcome is in the store; false: the accounting as it is now"]
    trust: Literal["", "verified", "stamped", "unverified"]
    trust_why: str
    decision: Decision | None
    outcome: Outcome | None
    verdict: Annotated[
        str | None,
        "as-promised, better, worse, unknown or left-alone; empty without a decision",
    ]
    compared: Comparisons
    tasks: list[ArrayTask]
    steps: Annotated[list[StepOutcome], "of a job with a plan, once it has ended"]
    gpus: Annotated[list[GpuUse], "what each GPU had set and took, as far as its node told"]
    energy_gpu_j: Annotated[float | None, "what the GPUs took together; null: not known"]
    energy_gpu_note: Annotated[str, "why it is not known of a job with GPUs"]
    notes: list[str]
    worth: Worth | None

    @classmethod
    def of(cls, answer: Answer, worth: Worth | None) -> WhyAnswer:
        """Return what programs are told."""
        return cls(
            job=answer.job_id,
            cluster=answer.cluster,
            state=answer.state,
            collected=answer.collected,
            trust=cast(Any, answer.trust),
            trust_why=answer.trust_why,
            decision=answer.decision,
            outcome=answer.outcome,
            verdict=answer.outcome.verdict if answer.outcome is not None else None,
            compared=Comparisons(**answer.compared()),
            tasks=[ArrayTask(o.job_id, o.state, o.verdict) for o in answer.tasks],
            steps=answer.steps(),
            gpus=answer.gpus(),
            energy_gpu_j=answer.gpu_j,
            energy_gpu_note=answer.gpu_note,
            notes=answer.notes,
            worth=worth,
        )


@dataclass(frozen=True, slots=True)
class WhyAnswers(JsonForm):
    """What was decided for several jobs and how they came out."""

    jobs: list[WhyAnswer]


ANSWERS = (WhyAnswer, WhyAnswers)


@dataclass(frozen=True, slots=True)
class Comparisons(JsonForm):
    """Promised against measured, of what was promised."""

    time: Compared | None = field(default=None, metadata=wire(omit=True))
    energy: Compared | None = field(default=None, metadata=wire(omit=True))


@dataclass(frozen=True, slots=True)
class ArrayTask(JsonForm):
    """How a task of an array came out."""

    job: str
    state: str
    verdict: str


def run(args: argparse.Namespace) -> int:
    """Find out and print; of several jobs one after the other."""
    from advisor.views.why import why_lines

    jobs = [(job, args.cluster or "") for job in args.jobs] or [_last(args)]
    answers = [_answer(args, *job) for job in jobs]
    if args.json:
        forms = [WhyAnswer.of(answer, worth) for answer, worth in answers]
        print_json("why", forms[0] if len(forms) == 1 else WhyAnswers(forms))
        return 0
    for number, (answer, worth) in enumerate(answers):
        say(*([""] if number else []), *why_lines(answer, worth), *_bars(answer))
    return 0


def _answer(args: argparse.Namespace, job: str, cluster: str) -> tuple[Answer, Worth | None]:
    """Return what is known of a job, and what its change is worth."""
    from advisor.loop.why import why
    from advisor.schedulers.choose import create, installed
    from advisor.store.clusters import clusters
    from advisor.store.opening import caller
    from advisor.views.worth import of_decision

    name = args.scheduler or ("local" if job.startswith("local-") else "")
    with ExitStack() as stack:
        reader = _reader(args, job)
        if reader is not None:
            stack.enter_context(reader)
            name = name or next((c.scheduler for c in clusters(reader) if c.name == cluster), "")
        scheduler = create(name) if name else installed()
        user = caller() if os.geteuid() else None
        answer = why(job, reader, scheduler, user=user, cluster=cluster)
        worth = of_decision(answer.decision, reader, caller()) if answer.decision else None
    return answer, worth


def _last(args: argparse.Namespace) -> tuple[str, str]:
    """Return the caller's latest job in the store, and its cluster. Raises InputError."""
    from advisor.store.opening import caller
    from advisor.views.recent import last_job

    reader = _reader(args, None)
    if reader is not None:
        with reader:
            job, cluster = last_job(reader, caller(), args.cluster or "")
        if job:
            return job, cluster
    raise InputError("no job of yours is known", hint="name one: advisor why JOBID")


def _bars(answer: Answer) -> list[str]:
    """Return energy and time as written, promised and measured as bars, on a terminal."""
    from advisor.views.why import drawn

    lines = []
    for title, figures in drawn(answer):
        most = max(value for _, value, _ in figures)
        rows = [f"  {n:<11} {b}{text}" for n, v, text in figures if (b := beside(v / most))]
        lines += ["", title, *rows] if rows else []
    return lines


def _reader(args: argparse.Namespace, job: str | None) -> Reader | None:
    """Open the store if there is one to read; one that was named must be readable."""
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen

    path = store_seen(args.db, "history", job=job and job.partition(".")[0])
    if args.db is None and not is_readable(path):
        return None
    try:
        return Reader(path)
    except AdvisorError as error:
        if args.db is not None:
            raise
        print(f"advisor: {error}; asking the scheduler instead", file=sys.stderr)
        return None
