"""Each scheduler has a room of its own, and so have the instruments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.lint.project import Project, Violation

SCHEDULERS = "advisor/schedulers"
READ_IN_SCRIPTS = {
    f"advisor/core/{name}.py"
    for name in ("job_numbers", "launchers", "program", "script", "script_use")
}
"""Scripts are read by one grammar, which knows what all schedulers' scripts mention: it costs one
pass over a script, in every submission, and a script may be written for more than one scheduler."""
VARIABLES = r"\b(?:SLURM|SBATCH|PBS)_[A-Z]|\bNCPUS\b"
COMMANDS = r"""["'](?:scancel|squeue|sacct|scontrol|qstat|qdel|qmgr)["']"""
INSTRUMENTS = re.compile(
    r"(valgrind|trace|microbench|characterise\w*|twin|symbols|native|bench|evaluate)(\.\w+)?"
)
MAY_MEASURE = tuple(f"advisor/{room}/" for room in ("instruments", "cli", "views", "schedulers"))
"""Rooms where modules may have the instruments' names."""


def rooms_of_schedulers(project: Project) -> Iterator[Violation]:
    """Nobody outside a scheduler's room names it, imports from it, or has its variables."""
    rooms = sorted(p.parent.name for p in (project.root / SCHEDULERS).glob("*/__init__.py"))
    any_room = "|".join(rooms)
    named = "|".join(room for room in rooms if room != "local")  # an ordinary word
    imports = (
        rf"advisor\.schedulers\.(?:{any_room})\b",
        rf"from advisor\.schedulers import .*\b(?:{any_room})\b",
    )
    for source in project.files("advisor", "tui", "lab"):
        if source.name.startswith(tuple(f"{SCHEDULERS}/{room}/" for room in rooms)):
            continue
        only = f"{{}} belongs into the room of its scheduler, {SCHEDULERS}/"
        yield from source.matches(rf"""["'](?:{named})["']""", only)
        for pattern in imports:
            yield from source.matches(pattern, "{}: nobody outside imports from a scheduler's room")
        if re.search(named, source.path.stem):
            yield source.violation(1, "a module's name outside the rooms names no scheduler")
        if source.name not in READ_IN_SCRIPTS:
            yield from source.matches(VARIABLES, only)
            yield from source.matches(COMMANDS, only)
    for room in rooms:
        others = "|".join(r for r in rooms if r != room)
        for source in project.files(f"{SCHEDULERS}/{room}"):
            yield from source.matches(
                rf"advisor\.schedulers\.(?:{others})\b", "{}: a room knows no other room"
            )


def room_of_the_instruments(project: Project) -> Iterator[Violation]:
    """What measures programs has a room of its own."""
    for path in sorted((project.root / "advisor").rglob("*")):
        source = project.source(path)
        if "__pycache__" in path.parts or source.name.startswith(MAY_MEASURE):
            continue
        if INSTRUMENTS.fullmatch(path.name):
            yield source.violation(1, "what measures belongs into advisor/instruments")
