"""What is made from the code is what lies in docs/, and the man pages can be read."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from advisor.cli import FAMILIES, VERBS, build_parser
from advisor.policy.jsonschema import schema
from docs.generator import man, reference
from docs.generator.__main__ import main, pages
from docs.generator.commands import every, program

COMMANDS = [command.name for command in every(program())][1:]


@pytest.fixture(scope="module")
def generated() -> dict[Path, str]:
    """The pages by their file, made once the tests run: not where tests are only collected."""
    return pages()


@pytest.fixture(scope="module")
def cli(generated: dict[Path, str]) -> str:
    """The page of all verbs."""
    return next(text for path, text in generated.items() if path.name == "cli.md")


def test_generated_pages_are_those_of_the_code(generated: dict[Path, str]) -> None:
    assert len(generated) > 40
    old = [
        path.name
        for path, text in generated.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not old, "not what the code gives: run make docs"


def test_every_verb_and_action_has_a_heading(cli: str) -> None:
    headings = re.findall(r"^##+ (advisor .*)$", cli, re.MULTILINE)
    assert headings == COMMANDS
    assert {f"advisor {verb}" for verb in VERBS} <= set(headings)
    assert {"advisor hook install", "advisor policy check", "advisor site discover"} <= set(
        headings
    )


def test_the_sections_have_all_options_that_help_prints(
    cli: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser, man_pages = build_parser("*"), man.pages()
    for name in COMMANDS:
        with pytest.raises(SystemExit):
            parser.parse_args([*name.split()[1:], "--help"])
        printed = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", options_of(capsys.readouterr().out)))
        section = cli.split(f"# {name}\n")[1].split("\n## ")[0]
        items = "\n".join(re.findall(r"^- (.*?): ", section.split("\n### ")[0], re.MULTILINE))
        assert set(re.findall(r"--[a-z][a-z-]+", items)) == printed, name
        words = name.split()[: 3 if name.split()[1] in FAMILIES else 2]
        roff = man_pages[f"{'-'.join(words)}.1"].replace("\\-", "-")
        assert all(f"\\fB{option}\\fR" in roff for option in printed), name


def test_every_argument_is_explained() -> None:
    for command in every(program()):
        for _, arguments in command.groups:
            for argument in arguments:
                assert argument.help and argument.help[0] != " ", (command.name, argument)
                assert not argument.help.endswith("."), (command.name, argument)


@pytest.mark.parametrize("kind", ["policy", "site"])
def test_every_key_of_the_schema_is_in_the_reference(kind: str) -> None:
    root = schema(kind)
    mappings = [root, *root["$defs"].values()]
    names = {name for mapping in mappings for name in mapping.get("properties", ())}
    assert {key.split(".")[-1] for key in reference.keys(kind)} == names


def test_every_key_has_a_meaning() -> None:
    for kind in reference.WHAT:
        for row in re.findall(r"^\| `.*$", reference.page(kind), re.MULTILINE):
            assert row.split(" | ")[-1].strip(" |"), row


def test_man_pages_use_the_man_macros_only(tmp_path: Path) -> None:
    assert main(["man", str(tmp_path)]) == 0
    files = {path.name for path in tmp_path.iterdir()}
    verbs = {verb.replace(" ", "-") for verb in {*VERBS, *FAMILIES}}
    assert files == {"advisor.1"} | {f"advisor-{verb}.1" for verb in verbs}
    known = {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".BR", ".nf", ".fi", '.\\"'}
    for path in sorted(tmp_path.iterdir()):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert {line.split()[0] for line in lines if line.startswith(".")} <= known, path.name
        assert lines[1].startswith(f".TH {path.stem.upper()} 1 ")
        assert [line for line in lines if line.startswith(".SH")][:3] == [
            ".SH NAME",
            ".SH SYNOPSIS",
            ".SH DESCRIPTION",
        ]


@pytest.mark.parametrize(
    "reader", [("groff", "-man", "-Tutf8", "-ww", "-z"), ("mandoc", "-T", "lint", "-W", "warning")]
)
def test_man_pages_are_well_formed(tmp_path: Path, reader: tuple[str, ...]) -> None:
    if shutil.which(reader[0]) is None:
        pytest.skip(f"{reader[0]} is not installed")
    main(["man", str(tmp_path)])
    for path in sorted(tmp_path.iterdir()):
        done = subprocess.run([*reader, path], capture_output=True, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), path.name


def options_of(text: str) -> str:
    """The lists of a help text, without usage, description and explanations."""
    return "\n".join(re.findall(r"^  (-.*?)(?:  |$)", text, re.MULTILINE))
