"""docs/cli.md: every verb with its options."""

from __future__ import annotations

from advisor import laboratory
from docs.generator.commands import Argument, Command, every, members, program
from docs.generator.variables import VARIABLES

HEAD = """\
<!-- Made by `make docs` from the parsers of advisor/cli: change those. -->
# Command line

{description} {epilog}

`man advisor` has the same once `make man` has written the man pages; `advisor completion` makes
your shell complete all of it. {laboratory} are part of the laboratory:
`{how}`.

"""


def page() -> str:
    """Return docs/cli.md."""
    advisor = program()
    *verbs, last = (f"`lab {verb}`" for verb in laboratory.VERBS)
    parts = [
        HEAD.format(
            description=advisor.description,
            epilog=_code(advisor.epilog),
            laboratory=f"{', '.join(verbs)} and {last}",
            how=laboratory.HOW,
        )
    ]
    parts.append("| verb | what it does |\n|---|---|\n")
    for verb in advisor.actions:
        for v in members(verb) or (verb,):
            parts.append(f"| [`{v.name}`](#{_anchor(v.name)}) | {v.summary} |\n")
    for verb in advisor.actions:
        for command in every(verb):
            parts.append(_section(command, "##" if command is verb else "###"))
    parts.append("\n## Environment variables\n")
    for title, names in VARIABLES.items():
        parts.append(f"\n{title}:\n\n")
        parts += [f"- `{name}`: {text}\n" for name, text in names.items()]
    return "".join(parts)


def _section(command: Command, level: str) -> str:
    lines = [f"\n{level} {command.name}\n", _code(command.description), ""]
    lines += [f"    {line}" for line in command.usage]
    for title, arguments in command.groups:
        lines.append("" if title in ("options", "positional arguments") else f"\n{title}:\n")
        lines += [_item(argument) for argument in arguments]
    if command.epilog:
        lines += ["", _code(command.epilog)]
    return "\n".join(lines) + "\n"


def _item(argument: Argument) -> str:
    names = argument.names or ("",)
    shown = ", ".join(f"`{f'{name} {argument.value}'.strip()}`" for name in names)
    return f"- {shown}: {_code(argument.help)}"


def _code(text: str) -> str:
    """Return text without HTML or emphasis of its own."""
    return text.replace("<", "\\<").replace("*", "\\*")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
