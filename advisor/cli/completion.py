"""``advisor completion``: the shell's completion script, made from all verbs' parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from advisor import plugins
from advisor.cli import build_parser
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm
from advisor.errors import StoreError
from advisor.store.seen import store_seen

SHELLS = ("bash", "zsh", "fish")
NAMES = ("applications", "node-types")
"""What the scripts ask the store for."""

FILES = ("FILE", "CSV", "SCRIPT")
"""How options and arguments that take a file are shown, besides all that end in ``.csv``."""

_BASH = """
# bash splits --option=value into three words
_advisor() {
  local i words=() at=$COMP_CWORD
  for i in "${!COMP_WORDS[@]}"; do
    if [[ ${COMP_WORDS[i]} = "=" && ${words[-1]-} = --* ]]; then
      if (( i == COMP_CWORD )); then words+=(""); fi
      if (( i < COMP_CWORD )); then (( at-- )); fi
    else
      words+=("${COMP_WORDS[i]}")
    fi
  done
  local COMP_WORDS=("${words[@]}") COMP_CWORD=$at
  _shtab_advisor
}
complete -o bashdefault -o default -F _advisor advisor
"""
"""What follows shtab's script: files where it knows nothing, as after ``advisor run --``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor completion`` takes."""
    parser.description = (
        "Print the script with which your shell completes advisor's verbs, options, files, "
        "applications and node types when you press Tab. Write it where the shell looks: "
        "~/.local/share/bash-completion/completions/advisor for bash, a file _advisor in a folder "
        "of $fpath for zsh, ~/.config/fish/completions/advisor.fish for fish."
    )
    parser.add_argument(
        "what",
        choices=(*SHELLS, *NAMES),
        metavar="|".join(SHELLS),
        help="the shell; the scripts themselves call it with applications or node-types, which "
        "prints the names the store knows, one a line",
    )


@dataclass(frozen=True, slots=True)
class CompletionAnswer(JsonForm):
    """A completion script, or names to complete."""

    shell: Literal["bash", "zsh", "fish"]
    script: str


@dataclass(frozen=True, slots=True)
class Names(JsonForm):
    """Names to complete."""

    names: list[str]


ANSWERS = (CompletionAnswer, Names)


def run(args: argparse.Namespace) -> int:
    """Print the script, or the names."""
    if args.what in NAMES:
        names = _names(args)
        if args.json:
            print_json("completion", Names(names))
        else:
            print(*names, sep="\n", end="\n" if names else "")
        return 0
    script = _script(args.what)
    if args.json:
        print_json("completion", CompletionAnswer(args.what, script))
    else:
        print(script)
    return 0


def _names(args: argparse.Namespace) -> list[str]:
    """Return what there is; nothing without a store: who presses Tab wants no error."""
    from advisor.store.reader import Reader

    try:
        with Reader(store_seen(args.db)) as reader:
            if args.what == "node-types":
                return sorted(reader.inventory().node_types)
            return sorted({workload.application for workload in reader.workloads()})
    except StoreError:
        return []


def _script(shell: str) -> str:
    """Return the shell's script. What completes a value follows from its metavar."""
    import shtab

    parser = build_parser("*")
    applications, both = (
        _store_completion("applications"),
        _store_completion("applications", files=True),
    )
    ways = dict.fromkeys(FILES, shtab.FILE) | {
        "DIR": shtab.DIRECTORY,
        "FOLDER": shtab.DIRECTORY,
        "APP": applications,
        "APP[/WORKLOAD]": applications,
        "APP|FOLDER": both,
        "SCRIPT|APP": both,
        "NODE_TYPE": _store_completion("node-types"),
    }
    for action in _arguments(parser):
        if isinstance(action.metavar, str):
            if way := ways.get("FILE" if action.metavar.endswith(".csv") else action.metavar):
                action.complete = way  # type: ignore[attr-defined]
            elif action.metavar == "SCHEDULER":
                action.choices = plugins.names("schedulers")
            elif "|" in action.metavar and action.metavar.islower():
                action.choices = action.metavar.split("|")
            action.metavar = action.metavar.replace(":", " ")  # a separator in zsh's script
    script: str = shtab.complete(parser, shell)
    return script + _BASH if shell == "bash" else script


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _arguments(subparser)


def _store_completion(names: str, *, files: bool = False) -> dict[str, object]:
    """Return how each shell completes names of the store, asked for when Tab is pressed.

    With ``files`` a file's name may stand there, too.
    """
    function, command = f"_advisor_{names}", f"advisor completion {names} 2>/dev/null"
    bash, zsh, fish = "", "", command
    if files:
        function, bash, zsh = f"{function}_or_file", 'compgen -f -- "$1";', "_files;"
        fish = f"{command}; __fish_complete_path (commandline -ct)"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({fish})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "$({command})" -- "$1"; {bash} }}',
            "zsh": f'{function}() {{ compadd -- ${{(f)"$({command})"}}; {zsh} }}',
        },
    }
