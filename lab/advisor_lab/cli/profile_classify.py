"""``advisor lab profile classify``: the classes of threads that behave alike in every run."""

from __future__ import annotations

import argparse
from typing import Any

from advisor.cli.output import print_json, print_table
from advisor.cli.pictures import check_plot, save_plot
from advisor_lab.cli.profile_steps import keep_step, open_study, say_notes


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
    roles = {run.digest: "train" for run in study.trained}
    if args.json:
        data: dict[str, Any] = {
            "application": args.application,
            "method": args.method,
            "classes": [
                {
                    "name": name,
                    "runs": [
                        {
                            "scale": dict(run.scale),
                            "role": roles.get(run.digest, "test"),
                            "threads": result["members"][run.digest][i],
                        }
                        for run in runs
                    ],
                    "groups": [
                        {"scale": dict(run.scale), **result["groups"][run.digest][i]}
                        for run in runs
                        if run.digest in result["groups"]
                    ],
                }
                for i, name in enumerate(result["classes"])
            ],
            **{
                k: result[k]
                for k in ("silhouettes", "eigenvalues", "components", "topology", "votes", "notes")
            },
        }
        print_json("profile-classify", data)
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
                roles.get(run.digest, "test"),
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
