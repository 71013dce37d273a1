"""``advisor lab profile classify``: the classes of threads that behave alike in every run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import check_plot, save_plot
from advisor.core.codec import JsonForm, wire
from advisor_lab.cli.profile_steps import keep_step, open_study, say_notes


@dataclass(frozen=True, slots=True)
class ClassOfRun(JsonForm):
    """A class's threads in one run: process and thread of each."""

    scale: Mapping[str, float]
    role: Literal["train", "test"]
    threads: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class ThreadClass(JsonForm):
    """A class in every run, and what its processes send, with the keys of appendix B.3."""

    name: str
    runs: Sequence[ClassOfRun]
    groups: Annotated[
        Sequence[Mapping[str, object]],
        "scale, startRank, communicationVector, dimensions, and of each dimensionN its iterations "
        "and stride",
    ]


@dataclass(frozen=True, slots=True)
class Vote(JsonForm):
    """How one run would order another's classes."""

    voter: str = field(metadata=wire("from"))
    run: str = field(metadata=wire("to"))
    vote: Sequence[int]


@dataclass(frozen=True, slots=True)
class ProfileClassifyAnswer(JsonForm):
    """The classes of threads in every run."""

    application: str
    method: Literal["profile", "communication"]
    classes: Sequence[ThreadClass]
    silhouettes: Mapping[str, float]
    eigenvalues: Sequence[float]
    components: int
    topology: str
    votes: Sequence[Vote]
    notes: Sequence[str]


def run(args: argparse.Namespace) -> int:
    """Classify, keep the classes, and print them."""
    from advisor_lab.profile.study import classify

    check_plot(args.plot)
    study = open_study(args)
    result = classify(study, args.method, args.classes)
    if args.plot is not None:
        from advisor_lab.profile.pictures import class_picture

        save_plot(class_picture(study, result, args.picture), args.plot)
    keep_step(args, result)
    runs = [*study.trained, *study.runs.test]
    trained = {run.digest for run in study.trained}
    if args.json:
        classes = [
            ThreadClass(
                name,
                [
                    ClassOfRun(
                        run.scale,
                        "train" if run.digest in trained else "test",
                        result["members"][run.digest][i],
                    )
                    for run in runs
                ],
                [
                    {"scale": run.scale, **result["groups"][run.digest][i]}
                    for run in runs
                    if run.digest in result["groups"]
                ],
            )
            for i, name in enumerate(result["classes"])
        ]
        keys = ("silhouettes", "eigenvalues", "components", "topology", "votes", "notes")
        more = {key: result[key] for key in keys}
        print_json(
            "profile-classify",
            ProfileClassifyAnswer(args.application, args.method, classes, **more),
        )
        return 0
    sentence = f"{len(result['classes'])} classes"
    if result["topology"]:
        sentence += f", {result['topology']}"
    if result["silhouettes"]:
        best = result["silhouettes"].get(str(len(result["classes"])))
        sentence += f", silhouette {best:.2f}" if best is not None else ""
    print(sentence)
    from advisor_lab.profile.runs import scale_text

    print_table(
        ("run", "role", *result["classes"]),
        [
            (
                scale_text(run.scale),
                "train" if run.digest in trained else "test",
                *(_members(threads) for threads in result["members"][run.digest]),
            )
            for run in runs
        ],
    )
    print("threads of each class, and the first one's process")
    say_notes(result["notes"])
    return 0


def _members(threads: list[list[int]]) -> str:
    return f"{len(threads)} ({threads[0][0]})"
