"""Names in the pages exist, and those that exist are in the pages.

Verbs, options, variables, reason codes and keys. The generated pages have all verbs, options and
keys (``test_docs_generated.py``), docs/safety.md all reason codes (``test_safety_page.py``).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.cli import build_parser
from advisor.core.protocol import SETTINGS
from advisor.core.reasons import KINDS
from advisor.core.script import advisor_lines
from advisor.policy.jsonschema import schema
from advisor.policy.load import check_text
from advisor.schedulers.slurm import table as slurm_table
from docs.generator import reference
from docs.generator.commands import every, program
from docs.generator.variables import VARIABLES

from .docs_text import PAGES, ROOT, Command, block_lines, commands, inline

COMMANDS = {command.name: command for command in every(program())}
QSUB = {"-l", "-v"}
"""Options of qsub that pages name."""
ENVIRONMENT = re.compile(r"\b(?:SLURM_)?ADVISOR(?:_[A-Z]+)*\b(?!_)")
GUARDS = re.compile(r"^\s*#(?:ifndef|define) \w+_H$", re.MULTILINE)

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


def options_of(name: str) -> set[str]:
    groups = COMMANDS[name].groups
    return {option for _, arguments in groups for one in arguments for option in one.names}


def parts(command: Command) -> Iterator[tuple[str, list[str]]]:
    """Yield the verb, or each action that ``check|diff`` stands for, and the options given."""
    words = list(command.words)
    if "--" in words:
        words = words[: words.index("--")]
    given = [re.split(r"[=\]]", word.strip("["))[0] for word in words if word.startswith("-")]
    rest = [word for word in words if not word.startswith("-")]
    verb = f"advisor {rest[0]}" if rest and rest[0] != "VERB" else "advisor"
    actions = {f"{verb} {action}" for action in rest[1].split("|")} if rest[1:] else set()
    below = {one.name for one in COMMANDS[verb].actions} if verb in COMMANDS else set()
    yield from ((name, given) for name in (actions if below else {verb}))


@page
def test_verbs_actions_and_options_in_commands_exist(page: Path) -> None:
    for command in commands(page):
        for name, given in parts(command):
            assert name in COMMANDS, command
            assert set(given) <= options_of(name), command


@page
def test_commands_in_blocks_can_be_pasted(page: Path) -> None:
    for command in commands(page):
        if command.whole:
            words = list(command.words)
            before = words[: words.index("--")] if "--" in words else words
            build_parser("*").parse_args(before)  # SystemExit 2 where it is wrong


@page
def test_options_named_alone_exist(page: Path) -> None:
    """In some verb, in Slurm, or in the benchmark or test program the page speaks of."""
    ours = {option for name in COMMANDS for option in options_of(name)}
    slurm = {f"--{name}" for name in slurm_table.OPTIONS} | {f"-{c}" for c in slurm_table.SHORT}
    programs = [*(ROOT / "benchmarks").glob("*.py"), ROOT / "tests" / "pbs" / "real_server.py"]
    others = "".join(path.read_text(encoding="utf-8") for path in programs)
    for code in inline(page.read_text(encoding="utf-8")):
        if re.match(r"--?[a-z]", code):
            option = re.split(r"[ =]", code)[0]
            assert option in ours | slurm | QSUB or f'"{option}"' in others, code


def test_variables_in_the_code_are_documented() -> None:
    code = [
        *(ROOT / "advisor").rglob("*.*"), *(ROOT / "tui").rglob("*.py"),
        *(ROOT / "lab/advisor_lab").rglob("*.py"), *(ROOT / "hooks").rglob("*.*"),
    ]  # fmt: skip
    named: set[str] = set()
    for path in code:
        if path.suffix in (".py", ".lua", ".c", ".h"):
            text = GUARDS.sub("", path.read_text(encoding="utf-8"))
            named |= set(ENVIRONMENT.findall(text))
    documented = {name for names in VARIABLES.values() for name in names}
    assert named == documented
    assert set(SETTINGS) <= documented


@page
def test_variables_in_the_pages_exist(page: Path) -> None:
    documented = {name for names in VARIABLES.values() for name in names}
    named = set(ENVIRONMENT.findall(page.read_text(encoding="utf-8")))
    assert named <= documented | {"ADVISOR_RENEW"}  # of tests/tui/test_tui_screens.py


@page
def test_lines_of_scripts_have_settings_that_exist(page: Path) -> None:
    settings = {name.removeprefix("ADVISOR_").lower() for name in SETTINGS}
    settings |= {"off", "complete", "key", "size.n"}  # of sizes any name
    text = page.read_text(encoding="utf-8")
    for code in (*inline(text), *block_lines(text)):
        if code.startswith("#ADVISOR "):
            assert set(advisor_lines(code)) - {""} <= settings, code


@page
def test_words_with_hyphens_in_backticks_are_reasons_or_values(page: Path) -> None:
    values = set(re.findall(r"'enum': \[(.*?)\]", str([schema("policy"), schema("site")])))
    known = (
        set(KINDS) | set(re.findall(r"'([^']+)'", " ".join(values))) | choices(build_parser("*"))
    )
    for code in inline(page.read_text(encoding="utf-8")):
        if re.fullmatch(r"[a-z]+(-[a-z]+)+", code):
            assert code in known, code


def choices(parser: argparse.ArgumentParser) -> set[str]:
    found: set[str] = set()
    for action in parser._actions:
        found |= {str(choice) for choice in action.choices or ()}
        if isinstance(action, argparse._SubParsersAction):
            found |= {word for below in action.choices.values() for word in choices(below)}
    return found


@page
def test_keys_of_policy_and_site_exist_and_their_values_are_allowed(page: Path) -> None:
    known = {key.replace("[]", "").replace(".NAME", "") for kind in reference.WHAT
             for key in reference.keys(kind)}  # fmt: skip
    sections = {key.split(".")[0] for key in known if "." in key}
    for code in inline(page.read_text(encoding="utf-8")):
        dotted = re.fullmatch(r"([a-z_]+)\.[a-z_.]+", code)
        if dotted and dotted[1] in sections and not code.endswith((".py", ".yaml")):
            assert code in known, code
        if re.match(r"[a-z_]+: \S", code):
            settings = yaml.safe_load(code.replace("...", "x"))
            for key in flat(settings):
                assert any(key == one or one.endswith(f".{key}") for one in known), code
            if "..." not in code and settings.keys() <= schema("policy")["properties"].keys():
                _, problems = check_text(f"version: 1\n{code}\n", page.name, "policy")
                assert problems == [], code


def flat(settings: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in settings.items():
        yield f"{path}{key}"
        if isinstance(value, dict):
            yield from flat(value, f"{path}{key}.")


@page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_picture_is_shown_by_a_page() -> None:
    shown = {
        (page.parent / name).resolve()
        for page in PAGES
        for name in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page.read_text())
    }
    assert shown == set((ROOT / "docs" / "pictures").rglob("*.svg"))


def test_the_readme_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(docs/([\w/]+\.md)\)", (ROOT / "README.md").read_text()))
    kept = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert listed == kept
