"""Transcripts in pages: ``$ command`` and what it prints, to be run again and compared.

A block between ``` that has lines beginning with ``$ `` is one. A line ``...`` in it stands for any
lines. ``$ cat FILE`` makes the file that it shows. All blocks of a page are one session.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOME = "/home/ann/tour"
"""What pages show in place of the folder that a session runs in."""

ELSEWHERE = {
    "README.md": "needs a Slurm cluster: tests/slurm/test_readme.py",
    "gpu.md": "needs two GPUs",
}
"""Pages whose session runs in another test, and why."""

NOT_RUN = {
    "advisor train stencil.sh --scheduler slurm --yes": "two minutes of the cluster: make "
    "demo-slurm prints it, tests/slurm/test_training.py tests it; test_readme.py imports such runs",
}
"""Commands that no test runs to compare their output, and why."""

_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:T[\d:]+Z)?")


@dataclass(frozen=True, slots=True)
class Step:
    """A command and the lines it prints, without empty ones at the end."""

    command: str
    output: tuple[str, ...]

    @property
    def file(self) -> str:
        """The file that this step makes, "" if it makes none."""
        words = self.command.split()
        return words[1] if words[0] == "cat" and len(words) == 2 else ""


def steps(text: str) -> list[Step]:
    """Return all steps of a page."""
    found = []
    for block in _BLOCK.findall(text):
        found += [Step(m[1], tuple(m[2].rstrip().splitlines())) for m in _STEP.finditer(block)]
    return found


def run(session: Sequence[Step], folder: Path, environment: Mapping[str, str]) -> list[Step]:
    """Run a session by bash in a folder; return it with what the commands print."""
    script = ""
    for step in session:
        if step.file:
            script += f"cat > {step.file} <<'END OF FILE'\n" + "\n".join(step.output)
            script += "\nEND OF FILE\n"
        script += f"{step.command}\nprintf '\\036'\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=dict(environment),
        text=True,
        timeout=300,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    printed = done.stdout.replace(str(folder), HOME).split("\036")
    assert len(printed) == len(session) + 1, done.stdout
    return [
        Step(step.command, tuple(line.rstrip() for line in text.rstrip().splitlines()))
        for step, text in zip(session, printed, strict=False)
    ]


def differences(page: Step, real: Step, *, numbers: bool = True) -> str:
    """Return "" if the page shows what a command printed, else both.

    Numbers may be 2 % apart, for they come from libraries of other versions; with ``numbers``
    False any number stands for any other: measured times and energies.
    """
    if _matches(list(page.output), list(real.output), numbers):
        return ""
    return "\n".join([f"$ {page.command}", *real.output, "--- the page has", *page.output])


def _matches(page: list[str], real: list[str], numbers: bool) -> bool:
    if not page or not real:
        return [line for line in page if line != "..."] == real
    if page[0] == "...":
        return any(_matches(page[1:], real[i:], numbers) for i in range(len(real) + 1))
    return _like(page[0], real[0], numbers) and _matches(page[1:], real[1:], numbers)


def _like(page: str, real: str, numbers: bool) -> bool:
    page, real = (_TIME.sub("TIME", line) for line in (page, real))
    texts = [" ".join(re.sub(r"-{2,}", "--", _NUMBER.sub("#", t)).split()) for t in (page, real)]
    if texts[0] != texts[1]:
        return False
    pairs = zip(_NUMBER.findall(page), _NUMBER.findall(real), strict=True)
    near = (math.isclose(float(a), float(b), rel_tol=0.02, abs_tol=0.3) for a, b in pairs)
    return not numbers or all(near)


def renewed(text: str, real: Sequence[Step]) -> str:
    """Return a page with what was printed now; steps with ``...`` stay as they are."""
    left = iter(real)

    def step(match: re.Match[str]) -> str:
        now = next(left)
        if "..." in match[2].splitlines():
            return match[0]
        blank = "\n" if match[2].endswith("\n\n") else ""
        return "\n".join([f"$ {now.command}", *now.output, ""]) + blank

    return _BLOCK.sub(lambda block: f"```\n{_STEP.sub(step, block[1])}```", text)
