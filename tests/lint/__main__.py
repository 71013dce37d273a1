"""The project's own rules: ``python -m tests.lint`` prints what breaks one.

One line a violation, ``file:line: what to do``; exit code 1 if there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.lint import constants, imports, names, pages, processes, rooms
from tests.lint.project import Project, Rule

RULES: tuple[Rule, ...] = (
    constants.explained_constants,
    rooms.rooms_of_schedulers,
    rooms.room_of_the_instruments,
    names.classes_of_one_name,
    names.locals_that_say_what_they_hold,
    imports.imports_without_circles,
    imports.spine_without_large_libraries,
    processes.one_helper_starts_interpreters,
    processes.one_way_to_ask_schedulers,
    processes.drafts_for_what_is_renamed,
    pages.commands_of_pages,
    pages.words_of_pages,
    pages.keys_of_pages,
    pages.links_of_pages,
    pages.sentences_of_pages,
)


def broken(project: Project, rules: Iterable[Rule] = RULES) -> list[str]:
    """Return a line for each place where a rule does not hold, by file and line."""
    violations = {violation for rule in rules for violation in rule(project)}
    return [str(v) for v in sorted(violations, key=lambda v: (v.file, v.line, v.what))]


if __name__ == "__main__":
    lines = broken(Project(Path(__file__).resolve().parents[2]))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.exit(bool(lines))
