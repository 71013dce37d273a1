"""Names in the pages exist, and those that exist are in the pages.

Verbs, options, variables, reason codes and keys. The generated pages have all verbs, options and
keys (``tests/contract/test_docs_generated.py``), docs/safety.md all reason codes
(``test_safety_page.py``). And no sentence of a page is longer than people read.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from advisor.cli import build_parser
from advisor.core.protocol import SETTINGS
from advisor.core.reasons import KINDS
from advisor.core.script import advisor_lines
from advisor.errors import AdvisorError
from advisor.policy.jsonschema import schema
from advisor.policy.load import check_text
from advisor.schedulers.slurm import table as slurm_table
from docs.generator import reference
from docs.generator.commands import every, program
from docs.generator.variables import VARIABLES
from tests.contract.docs_text import Command, block_lines, commands, inline, pages
from tests.lint.project import Project, Source, Violation

QSUB = {"-l", "-v"}
"""Options of qsub that pages name."""
OF_TESTS = {"ADVISOR_RENEW", "ADVISOR_URL"}
"""Variables that pages name and no program of ours reads: tests and hatch_build.py do."""
OF_LINES = {"off", "complete", "key", "size.n"}
"""What stands behind #ADVISOR beside the settings that are variables too; of sizes any name."""
ENVIRONMENT = re.compile(r"\b(?:SLURM_)?ADVISOR(?:_[A-Z]+)*\b(?!_)")
GUARDS = re.compile(r"^\s*#(?:ifndef|define) \w+_H$", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]*)\)")

MOST_WORDS = 40
"""Of a sentence; what stands in one pair of backticks, or in a link, counts as one word."""
NO_PROSE = re.compile(
    r"^(?: *```.*?^ *```|#[^\n]*|\|[^\n]*|(?<=\n\n)(?: {4,}[^\n]*\n)+)", re.MULTILINE | re.DOTALL
)
"""Blocks, titles, rows of tables."""
PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
SENTENCES = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[\"'(*]*[A-Z0-9`\[])|(?<=:)\s*\n\s*\n")
ONE_WORD = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)")


def _pages(project: Project) -> list[Source]:
    return [project.source(path) for path in pages(project.root)]


# -- commands --------------------------------------------------------------------------------------


@cache
def _parser() -> argparse.ArgumentParser:
    """The program's own, of all verbs: it keeps nothing of what it reads."""
    return build_parser("*")


@cache
def _options() -> Mapping[str, set[str]]:
    """The options of each verb and action."""
    return {
        command.name: {
            option
            for _, arguments in command.groups
            for argument in arguments
            for option in argument.names
        }
        for command in every(program())
    }


@cache
def _verbs_with_actions() -> set[str]:
    return {command.name for command in every(program()) if command.actions}


def commands_of_pages(project: Project) -> Iterator[Violation]:
    """Verbs, actions and options exist, and commands in blocks can be pasted.

    An option named alone is of some verb, of Slurm, or of the benchmark or test program the page
    speaks of.
    """
    ours = set().union(*_options().values())
    slurm = {f"--{name}" for name in slurm_table.OPTIONS} | {f"-{c}" for c in slurm_table.SHORT}
    others = "".join(source.text for source in project.files("benchmarks", "tests/pbs"))
    for page in _pages(project):
        for command in commands(page.path):
            words = " ".join(command.words)
            line = page.line_of(command.line)
            for name, given in _parts(command):
                if name not in _options():
                    yield page.violation(line, f"{name}: there is no such verb or action")
                elif unknown := set(given) - _options()[name]:
                    yield page.violation(line, f"{name} has no {', '.join(sorted(unknown))}")
            if command.whole and (message := _refusal(command)):
                yield page.violation(line, f"advisor {words}: {message}")
        for code in inline(page.text):
            if re.match(r"--?[a-z]", code):
                option = re.split(r"[ =]", code)[0]
                if option not in ours | slurm | QSUB and f'"{option}"' not in others:
                    yield page.violation(page.line_of(code), f"{option}: there is no such option")


def _parts(command: Command) -> Iterator[tuple[str, list[str]]]:
    """Yield the verb, or each action that ``check|diff`` stands for, and the options given."""
    words = list(command.words)
    if "--" in words:
        words = words[: words.index("--")]
    given = [re.split(r"[=\]]", word.strip("["))[0] for word in words if word.startswith("-")]
    rest = [word for word in words if not word.startswith("-")]
    names = {"advisor"}
    for word in rest:
        if word == "VERB" or not names <= _verbs_with_actions():
            break
        names = {f"{name} {action}" for name in names for action in word.split("|")}
    yield from ((name, given) for name in names)


def _refusal(command: Command) -> str:
    """Return what the program says against a command; empty where it takes it."""
    words = list(command.words)
    try:
        _parser().parse_args(words[: words.index("--")] if "--" in words else words)
    except AdvisorError as error:
        return str(error)
    return ""


# -- words -----------------------------------------------------------------------------------------


def words_of_pages(project: Project) -> Iterator[Violation]:
    """Variables, settings of scripts, reason codes and values exist.

    A variable that the code names is documented in docs/generator/variables.py, and no other is.
    """
    documented = {name for names in VARIABLES.values() for name in names}
    code = [
        *project.files("advisor", "hooks", endings=(".py", ".lua", ".c", ".h")),
        *project.files("tui", "lab/advisor_lab"),
    ]
    variables = project.source(project.root / "docs/generator/variables.py")
    named: set[str] = set()
    for source in code:
        names = set(ENVIRONMENT.findall(GUARDS.sub("", source.text)))
        for name in sorted(names - documented):
            what = f"{name} is not in docs/generator/variables.py"
            yield source.violation(source.line_of(name), what)
        named |= names
    for name in sorted(documented - named):
        yield variables.violation(variables.line_of(f'"{name}"'), f"nothing reads or sets {name}")
    for name in sorted(set(SETTINGS) - documented):
        yield variables.violation(1, f"{name} is missing")
    settings = {name.removeprefix("ADVISOR_").lower() for name in SETTINGS} | OF_LINES
    values = _values()
    for page in _pages(project):
        for name in sorted(set(ENVIRONMENT.findall(page.text)) - documented - OF_TESTS):
            yield page.violation(page.line_of(name), f"{name}: there is no such variable")
        for code_line in (*inline(page.text), *block_lines(page.text)):
            lines = advisor_lines(code_line) if code_line.startswith("#ADVISOR ") else {}
            for name in sorted(set(lines) - {""} - settings):
                what = f"{name} is no setting of a script"
                yield page.violation(page.line_of(code_line), what)
        for word in inline(page.text):
            if re.fullmatch(r"[a-z]+(-[a-z]+)+", word) and word not in values:
                what = f"{word} is no reason code, no value of a key, no choice of an option"
                yield page.violation(page.line_of(f"`{word}`"), what)


@cache
def _values() -> set[str]:
    enums = re.findall(r"'enum': \[(.*?)\]", str([schema("policy"), schema("site")]))
    return {*KINDS, *re.findall(r"'([^']+)'", " ".join(enums)), *_choices(_parser())}


def _choices(parser: argparse.ArgumentParser) -> set[str]:
    words: set[str] = set()
    for action in parser._actions:
        words |= {str(choice) for choice in action.choices or ()}
        if isinstance(action, argparse._SubParsersAction):
            words |= {word for below in action.choices.values() for word in _choices(below)}
    return words


# -- keys ------------------------------------------------------------------------------------------


def keys_of_pages(project: Project) -> Iterator[Violation]:
    """Keys of the policy and the site file exist, and their values are allowed."""
    keys = {
        key.replace("[]", "").replace(".NAME", "")
        for kind in reference.WHAT
        for key in reference.keys(kind)
    }
    sections = {key.split(".")[0] for key in keys if "." in key}
    of_policy = schema("policy")["properties"].keys()
    for page in _pages(project):
        for code in inline(page.text):
            line = page.line_of(code)
            dotted = re.fullmatch(r"([a-z_]+)\.[a-z_.]+", code)
            a_key = dotted and dotted[1] in sections and not code.endswith((".py", ".yaml"))
            if a_key and code not in keys:
                yield page.violation(line, f"{code}: there is no such key")
            if not re.match(r"[a-z_]+: \S", code):
                continue
            settings = yaml.safe_load(code.replace("...", "x"))
            for key in _flat(settings):
                if not any(key == one or one.endswith(f".{key}") for one in keys):
                    yield page.violation(line, f"{key}: there is no such key")
            if "..." not in code and settings.keys() <= of_policy:
                _, problems = check_text(f"version: 1\n{code}\n", page.path.name, "policy")
                for problem in problems:
                    yield page.violation(line, f"{code}: {problem}")


def _flat(settings: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in settings.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")


# -- links -----------------------------------------------------------------------------------------


def links_of_pages(project: Project) -> Iterator[Violation]:
    """Links lead somewhere, and the README lists every page.

    The pictures that pages show are those of docs/pictures: all of them, and no others.
    """
    pictures = project.files("docs/pictures", endings=(".svg",))
    drawn = {picture.path.resolve() for picture in pictures}
    shown, listed = set(), set()
    for page in _pages(project):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.text):
            if "://" not in target and not (page.path.parent / target).exists():
                yield page.violation(
                    page.line_of(f"]({target}"), f"{target}: there is no such file"
                )
        for name in PICTURE.findall(page.text):
            picture = (page.path.parent / name).resolve()
            if picture not in drawn:
                yield page.violation(page.line_of(f"]({name}"), f"{name} is not in docs/pictures")
            shown.add(picture)
        if page.name == "README.md":
            listed = set(re.findall(r"\]\((docs/[\w/]+\.md)\)", page.text))
    for source in pictures:
        if source.path.resolve() not in shown:
            yield source.violation(1, "no page shows this picture")
    for page in project.files("docs", endings=(".md",)):
        if page.name not in listed:
            yield page.violation(1, "the README does not list this page")


# -- sentences -------------------------------------------------------------------------------------


def sentences_of_pages(project: Project) -> Iterator[Violation]:
    """No sentence has more than forty words."""
    for page in _pages(project):
        for paragraph in PARAGRAPHS.split(NO_PROSE.sub("\n\n", page.text)):
            for sentence in SENTENCES.split(paragraph):
                words = [w for w in ONE_WORD.sub("`", sentence).split() if re.search(r"[\w`]", w)]
                if len(words) > MOST_WORDS:
                    what = f"a sentence of {len(words)} words; {MOST_WORDS} are the most"
                    yield page.violation(page.line_of(sentence), what)
