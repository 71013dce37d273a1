"""The verbs and their actions as data, read from the parsers: for docs/cli.md and the man pages.

Nothing here depends on how a release of Python prints help, so that what is made is the same
everywhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.cli import FAMILIES, build_parser

COMMON = ("--help", "--db", "--config-dir", "--json")
"""What every verb takes; it comes last."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or an argument without names. ``value`` stands for its value, "" for a flag."""

    names: tuple[str, ...]
    value: str
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A verb, or an action of one. ``usage`` has a line for each way to call it."""

    name: str
    summary: str
    description: str
    epilog: str
    usage: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Argument, ...]], ...]
    actions: tuple[Command, ...]


def program() -> Command:
    """Return ``advisor`` itself, whose actions are the verbs."""
    return _command(build_parser("*"), "")


def every(command: Command) -> Iterator[Command]:
    """Yield a command and all below it."""
    yield command
    for subcommand in command.actions:
        yield from every(subcommand)


def members(command: Command) -> tuple[Command, ...]:
    """Return the verbs below the first word of verbs that have two, () of any other verb."""
    return command.actions if command.name.split()[1:] in [[name] for name in FAMILIES] else ()


def _command(parser: argparse.ArgumentParser, summary: str) -> Command:
    groups, actions = [], []
    for group in parser._action_groups:
        arguments = []
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                actions += [
                    _command(action.choices[listed.dest], listed.help or "")
                    for listed in action._get_subactions()
                ]
            elif action.help != argparse.SUPPRESS:
                arguments.append(_argument(parser, action))
        if arguments:
            groups.append((group.title or "", tuple(sorted(arguments, key=_place))))
    return Command(
        parser.prog,
        summary,
        parser.description or "",
        parser.epilog or "",
        _usage(parser),
        tuple(groups),
        tuple(actions),
    )


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Argument:
    text = parser._get_formatter()._expand_help(action)
    if isinstance(action, argparse._HelpAction):
        text = "print this help"
    if isinstance(action, argparse._VersionAction):
        text = "print the version"
    return Argument(tuple(action.option_strings), _value(action), text)


def _value(action: argparse.Action) -> str:
    """Return what stands for the value, "" for a flag."""
    if action.nargs == 0:
        return ""
    choices = "|".join(str(choice) for choice in action.choices or ())
    value = action.metavar if isinstance(action.metavar, str) else choices or action.dest.upper()
    return f"[{value}]" if action.nargs == "?" else value


def _place(argument: Argument) -> int:
    last = argument.names[-1] if argument.names else ""
    return COMMON.index(last) + 1 if last in COMMON else 0


def _usage(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    if parser.usage:
        return tuple(line.strip() for line in parser.usage.splitlines())
    words = [parser.prog]
    ends = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            ends.append(f"{action.metavar} ...")
        elif not action.option_strings:
            words.append(_value(action))
        elif action.required:
            words.append(f"{action.option_strings[-1]} {_value(action)}")
    return (" ".join([*words, "[options]", *ends]),)
