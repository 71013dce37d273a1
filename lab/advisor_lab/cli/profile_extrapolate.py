"""``advisor lab profile extrapolate``: write the profiles of scales that never ran."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm, wire
from advisor.core.nearest import suggestion
from advisor.errors import UsageError
from advisor_lab.cli.profile import combinations, values_of
from advisor_lab.cli.profile_steps import keep_step, open_study, say_notes


@dataclass(frozen=True, slots=True)
class WrittenClass(JsonForm):
    """A class of threads; whether it sends to a group of processes."""

    name: str
    threads: float = field(metadata=wire("NThreads"))
    group: bool


@dataclass(frozen=True, slots=True)
class WrittenProfile(JsonForm):
    """A profile's file, and its scale."""

    file: str
    at: Mapping[str, float]
    classes: Sequence[WrittenClass]


@dataclass(frozen=True, slots=True)
class ProfileExtrapolateAnswer(JsonForm):
    """The profiles that were written."""

    application: str
    files: Sequence[WrittenProfile]
    notes: Sequence[str]


def run(args: argparse.Namespace) -> int:
    """Predict every combination, then write the files."""
    from advisor_lab.profile.generate import (
        file_name,
        predict_classes,
        profile_json,
        trends_of,
        write_profile,
    )
    from advisor_lab.profile.placement import class_places
    from advisor_lab.profile.runs import scale_text

    study = open_study(args)
    values = values_of(args.at, "--at")
    parameters = study.runs.parameters
    for name in values:
        if name not in parameters:
            raise UsageError(
                f"--at: there is no parameter {name!r}", hint=suggestion(name, parameters)
            )
    for name in parameters:
        if name not in values:
            raise UsageError(f"--at needs a value of {name}, too")
    models, threads = study.models()
    trends = trends_of(study.class_runs(), by_communication=study.by_communication)
    folder = Path(args.output)
    places, notes = class_places(study.class_runs())
    answers = []
    for scale in combinations(values):
        classes, class_notes = predict_classes(models, threads, trends, places, scale)
        notes += class_notes
        data = profile_json(args.application, scale, classes, per_process=args.threads == "process")
        answers.append((scale, classes, data))
    files = []
    for scale, classes, data in answers:
        path = write_profile(folder, file_name(args.application, scale), data)
        files.append((path, scale, classes))
    keep_step(args, {"files": [str(p) for p, _, _ in files]}, output=str(folder.resolve()))
    say_notes(notes)
    if args.json:
        listed = [
            WrittenProfile(
                str(p),
                s,
                [WrittenClass(c.name, c.threads, c.group is not None) for c in classes],
            )
            for p, s, classes in files
        ]
        print_json("profile-extrapolate", ProfileExtrapolateAnswer(args.application, listed, notes))
        return 0
    print_table(
        ("file", "scale", "threads"),
        [(p, scale_text(s), f"{sum(c.threads for c in cs):.6g}") for p, s, cs in files],
    )
    return 0
