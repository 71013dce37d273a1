"""``advisor lab profile import``: keep the profiles of an application's runs."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor import paths
from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm
from advisor.errors import InputError
from advisor_lab.cli.profile import values_of
from advisor_lab.cli.profile_steps import keep_step, say_notes

if TYPE_CHECKING:
    from advisor.store.reader import Reader


@dataclass(frozen=True, slots=True)
class ReadRun(JsonForm):
    """A profiled run: its file, its scale, and how many threads it had."""

    file: str
    scale: Mapping[str, float]
    threads: int


@dataclass(frozen=True, slots=True)
class ImportedApplication(JsonForm):
    """What was read of an application, and how many runs are new."""

    application: str
    new: int
    parameters: Sequence[str]
    runs: Sequence[ReadRun]


@dataclass(frozen=True, slots=True)
class ProfileImportAnswer(JsonForm):
    """What profiles were read and kept."""

    role: Literal["train", "test"]
    applications: Sequence[ImportedApplication]
    warnings: Sequence[str]


def run(args: argparse.Namespace) -> int:
    """Read all files, then store them."""
    from advisor.store.writer import Writer
    from advisor_lab.profile.appendix import read_places
    from advisor_lab.profile.runs import profile_set, scale_text
    from advisor_lab.profile.store import ProfileFile, save_profile_files
    from advisor_lab.profile.study import load_study

    scale = {n: v[0] for n, v in values_of(args.scale, "--scale").items()}
    runs, warnings = read_places(args.places, scale)
    path_of = {id(run): path for path, run in runs}
    every = [run for _, run in runs]
    chosen = [r for r in every if args.application in (None, r.application)]
    names = sorted({r.application for r in chosen})
    if not chosen:
        names_there = ", ".join(sorted({r.application for r in every}))
        raise InputError(
            f"{', '.join(map(str, args.places))}: no profile is of {args.application}",
            hint=f"found: {names_there}",
        )
    answer = []
    with Writer(paths.whole_store(args.db)) as writer:
        for name in names:
            application_runs = [r for r in chosen if r.application == name]
            profile_set(name, application_runs)  # refuses parameters that differ
            files = [
                ProfileFile(args.role, r.scale, r.file, r.digest, path_of[id(r)].read_bytes())
                for r in application_runs
            ]
            with writer.batch():
                new = save_profile_files(writer, name, files, by=getpass.getuser())
                if _has_train(writer, name):
                    warnings += load_study(writer, name).runs.notes  # refuses, too
            answer.append((name, application_runs, new))
    for name, application_runs, new in answer:
        step = argparse.Namespace(**{**vars(args), "application": name})
        keep_step(
            step,
            {"files": [r.file for r in application_runs], "new": new},
            places=[str(p.resolve()) for p in args.places],
        )
    say_notes(warnings)
    if args.json:
        applications = [
            ImportedApplication(
                name,
                new,
                sorted(application_runs[0].scale),
                [ReadRun(r.file, r.scale, len(r.threads)) for r in application_runs],
            )
            for name, application_runs, new in answer
        ]
        print_json("profile-import", ProfileImportAnswer(args.role, applications, warnings))
        return 0
    for name, application_runs, new in answer:
        print(f"{name}: {len(application_runs)} runs to {_purpose(args.role)}, {new} new")
        print_table(
            ("file", "scale", "threads"),
            [(r.file, scale_text(r.scale), len(r.threads)) for r in application_runs],
        )
    return 0


def _has_train(store: Reader, application: str) -> bool:
    from advisor_lab.profile.store import profile_files

    return any(f.role == "train" for f in profile_files(store, application))


def _purpose(role: str) -> str:
    return "learn from" if role == "train" else "test with"
