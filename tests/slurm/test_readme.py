"""The README's transcript on a real Slurm: what its commands print has the form that is shown."""

from __future__ import annotations

import re
from pathlib import Path

from advised import AdvisedSite

from tests.transcripts import NOT_RUN, Step, differences, steps

README = Path(__file__).parents[2] / "README.md"

OPEN = (
    (r"\b[0-9a-f]{16}\b", "ID"),
    (r"^slurm \w+(?=: )", "slurm CLUSTER"),
    (r"(?<= J) +as promised$", "  0.0 % more than promised, within its interval"),
    (r"(?<= s) +as promised$", "  0.0 % slower than promised, within its interval"),
    (r"(faster|slower) than promised|(more|less) than promised|as promised, ", "off, "),
    (r"\b(stencil\.sh|allocation)\b", "JOB NAME"),  # Slurm's accounting sometimes loses the name
    (r"(the same|−?[0-9.e-]+) node-hours", "N node-hours"),
    (r"your \d+ runs .*", "your runs"),  # and everybody's, where tests before had some
    (r"\((below )?\d+ %\)", "(its chance)"),
    (r"\d\.\d+ GHz observed|observed: not known", "as observed"),  # if Slurm sampled the job
    (r"within its interval( and measurement error)?", "within its interval"),
)
"""What differs from one measurement to the next, besides numbers."""


def test_the_readme_shows_what_is_printed(site: AdvisedSite) -> None:
    script = site.script(
        "stencil.sh",
        "srun simapp --kernel stencil --scale 2",
        "-N 1",
        "--exclusive",
        "-p broadwell",
        "-t 10",
        f"-o {site.folder}/%j.out",
    )
    shown = steps(README.read_text(encoding="utf-8"))
    (number,) = {
        step.command.split()[-1] for step in shown if step.command.startswith("advisor why")
    }
    # What tests before this one ran and measured on the same cluster is none of its business.
    site.testbed.rest()
    site.advisor("collect")
    site.advisor("forget", "simapp", "--yes", check=False)
    site.settle()
    job = 0
    for step in shown:
        if step.command in NOT_RUN:
            site.import_law(
                "stencil",
                "bdw",
                2.0,
                application="simapp",
                workload="--kernel stencil --scale 2",
                scope="own",
            )
            continue
        words = [str(job) if word == number else word for word in step.command.split()]
        if words[0] == "sbatch":
            done = site.testbed.run(["sbatch", script.name], cwd=site.folder)
            printed = done.stderr + done.stdout
            job = int(printed.split()[-1])
            site.testbed.wait(job)
            site.testbed.sacct(job)  # waits until the accounting has the end of the job
        elif words[0] == "advisor":
            answer = site.advisor(*words[1:])
            printed = answer.stderr + answer.stdout
        else:
            printed = site.testbed.run(words).stdout
        printed = printed.replace(str(site.folder), "/home/ann").rstrip()
        # A job of seconds has a signature or none, as Slurm's accounting sampled it.
        printed = re.sub(r"\n  signatures +\d+", "", printed)
        # Nor has the page to do with the folder that another test's job named in its comment.
        printed = re.sub(r"^advisor: users' files cannot be read now: .*\n", "", printed)
        real = closed(Step(step.command, lines(printed)))
        problem = differences(closed(step), real, numbers=False)
        assert problem == "", problem


def lines(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in text.splitlines())


def closed(step: Step) -> Step:
    output = []
    for line in step.output:
        for pattern, word in OPEN:
            line = re.sub(pattern, word, line)
        output.append(line)
    return Step(step.command, tuple(output))
