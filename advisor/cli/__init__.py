"""The ``advisor`` command: one lazily imported module per verb.

Importing this module loads argparse and nothing heavy; a verb's module is imported only when
that verb is called. Packages add verbs by entry points of the group ``advisor.verbs``, each a
module. A verb's module offers ``add_arguments(parser)`` and ``run(args) -> int``;
one that sets the default ``takes_tail=True`` finds what follows ``--`` in ``args.tail``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from advisor import __version__, laboratory, plugins
from advisor.cli.arguments import add_common, find_workload
from advisor.cli.parser import Parser
from advisor.cli.streams import complain, guarded, prepare
from advisor.errors import AdvisorError, InputError, LaboratoryError
from advisor.interpreter import search_absolute_folders
from advisor.paths import state_dir


class Verb(NamedTuple):
    """A verb's module below advisor.cli, "" where a package has it, and its line of the help."""

    module: str
    summary: str


VERBS = {
    # your jobs
    "explain": Verb("explain", "show what the hook would do with a job script, and why"),
    "jobs": Verb("jobs", "list my jobs of the last days: what was changed, promised and measured"),
    "why": Verb("why", "show what was decided for a job and how it came out"),
    "note": Verb("note", "sum up my week: jobs, energy, one suggestion"),
    "options": Verb("options", "list an application's options and their trade-off"),
    "choose": Verb("choose", "pin a configuration or a goal for my jobs, or leave them alone"),
    "tui": Verb("tui", "browse applications and options in the terminal, and choose"),
    "train": Verb("train", "measure an application with a low-cost sweep and fit its model"),
    # your site
    "prospect": Verb("prospect", "estimate what this site would save, from its accounting alone"),
    "site": Verb("site", "discover and edit the inventory and the site file"),
    "policy": Verb("policy", "check, apply, compare and roll back the policy"),
    "hook": Verb("hook", "install, remove or check a scheduler's hook"),
    "report": Verb("report", "compare promised and measured savings"),
    "doctor": Verb("doctor", "check this installation and name what to repair"),
    "store backup": Verb("backup", "write everything in the store to one file"),
    "store restore": Verb("restore", "put a backup in the store's place"),
    "store publish": Verb("publish", "make a read-only copy of the store for other hosts"),
    "store move": Verb("move", "bring the store from a file to PostgreSQL, or back"),
    "store fetch": Verb("fetch", "bring a published copy onto this host"),
    "store history": Verb("history", "keep decisions and outcomes as Parquet files"),
    "store prune": Verb("prune", "forget what the policy no longer keeps"),
    "store promote": Verb("promote", "share an application's measurements with more users"),
    "store forget": Verb("forget", "remove an application's measurements"),
    # to study
    "demo": Verb("demo", "show advice for programs that others measured, and what it saves"),
    "lab predict": Verb("predict", "predict sizes and node counts that never ran"),
    "lab bench": Verb("bench", "profile node types with microbenchmarks"),
    "lab rank": Verb("rank", "estimate an application's time on node types it never ran on"),
    "lab characterise": Verb("characterise", "find an application's phases and memory streams"),
    "lab classify": Verb(
        "classify",
        "find the class of applications: cpu-bound, memory-bound and more",
    ),
    "lab classes": Verb("classes", "train, check and show the files that classes are found by"),
    **{f"lab {name}": Verb("", summary) for name, summary in laboratory.VERBS.items()},
    # what scripts, services and measured runs need
    "run": Verb("run", "run a command and measure its time and energy"),
    "import": Verb("import_", "import measured runs from a file"),
    "fit": Verb("fit", "fit a model to the measured runs and store it"),
    "cc": Verb("cc", "compile, and make a traced twin for advisor lab characterise"),
    "collect": Verb("collect", "read from the accounting how advised jobs came out"),
    "serve": Verb("serve", "run the daemon that answers the hooks"),
    "service": Verb("service", "write systemd's units with this host's paths, or show them"),
    "metrics": Verb("metrics", "print how the daemon is doing, for Prometheus"),
    "completion": Verb("completion", "print the completion script for bash, zsh or fish"),
}

FAMILIES = {
    "store": "back up, restore, move, publish, fetch, history, prune, promote, forget",
    "lab": "study nodes, programs and models: bench, rank, characterise and more",
}
"""The first words of verbs that have two."""
GROUPS = {"explain": "your jobs", "prospect": "your site", "demo": "to study"}
"""The verbs that begin a group in the help; the others follow theirs."""
_ALSO = "run"
"""The verb from which on the help has the names alone."""

FORMER = {"on": ["choose", "--on"], "off": ["choose", "--off"]} | {
    name.split()[1]: name.split() for name in VERBS if " " in name
}
"""What verbs were called before they moved below others: it goes on working."""

_ALL_TAIL = "cc"
"""The verb all of whose words but --help are another program's."""


class _Program(Parser):
    """``advisor`` itself: its help lists the verbs by groups."""

    def format_help(self) -> str:
        """Return the help."""
        lines = ["usage: advisor VERB ...", "", str(self.description)]
        verbs = list(_first_words())
        secondary_index = verbs.index(_ALSO)
        for name in verbs[:secondary_index]:
            if name in GROUPS:
                lines += ["", f"{GROUPS[name]}:"]
            lines.append(f"  {name:<13} {_summary(name)}")
        lines += ["", f"also: {', '.join(verbs[secondary_index:])}"]
        if added := _added():
            lines += ["", "added:", *(f"  {name:<13} {summary}" for name, summary in added.items())]
        return "\n".join([*lines, "", str(self.epilog), ""])


def _first_words() -> dict[str, None]:
    """Return the verbs' first words, in order."""
    return dict.fromkeys(name.partition(" ")[0] for name in VERBS)


def _summary(word: str) -> str:
    return FAMILIES.get(word) or VERBS[word].summary


def _added() -> dict[str, str]:
    """Return the verbs that other packages add, each with the package it is of."""
    reserved_names = {*_first_words(), *FORMER}
    added = {n: e for n, e in plugins.found("verbs").items() if n not in reserved_names}
    return {n: f"of {e.dist.name}" if e.dist else e.value for n, e in added.items()}


def _module(verb: str) -> Any:
    """Return a verb's module. Raises LaboratoryError, InputError."""
    if verb in VERBS and VERBS[verb].module:
        return import_module(f"advisor.cli.{VERBS[verb].module}")
    return laboratory.load("verbs", verb.removeprefix("lab "), verb)


def build_parser(verb: str | None = None, *, alone: bool = False) -> argparse.ArgumentParser:
    """Return the parser; only ``verb``'s own arguments are loaded (all when ``verb`` is "*").

    ``alone``: it need know no other verb, as none can be what is called; argparse takes 5 ms for
    their names.

    Raises LaboratoryError for a verb of the laboratory where it is not installed, and InputError
    for one whose package does not load; of such verbs "*" has only the names.
    """
    parser = _Program(
        prog="advisor",
        description="Spend less energy on the cluster without slowing anybody down.",
        epilog="advisor VERB --help says more. Exit codes: 0 done, 1 failed, 2 usage, "
        "3 refused by policy or nothing to do.",
    )
    parser.add_argument("--version", action="version", version=f"advisor {__version__}")
    subparser_settings: dict[str, Any] = dict(
        dest="verb", metavar="VERB", required=True, parser_class=Parser
    )
    levels = {"": parser.add_subparsers(**subparser_settings)}
    listed = {name: entry.summary for name, entry in VERBS.items()}
    if verb not in VERBS:
        listed |= _added()
    if alone and verb in listed:
        listed = {verb: listed[verb]}
    lacking = laboratory.VERBS if verb == "*" and not laboratory.installed() else ()
    for name, summary in listed.items():
        family, _, word = name.rpartition(" ")
        if family not in levels:
            about = FAMILIES[family]
            family_parser = levels[""].add_parser(
                family, help=about, description=about.capitalize() + "."
            )
            levels[family] = family_parser.add_subparsers(title="verbs", **subparser_settings)
            family_parser.epilog = f"{family_parser.prog} VERB --help says more."
            if family == "lab" and not laboratory.installed():
                family_parser.epilog += f" [lab]: part of the laboratory; {laboratory.HOW}."
        description = summary.capitalize() + "."
        if word in laboratory.VERBS and not laboratory.installed():
            summary = f"[lab] {summary}"
        sub = levels[family].add_parser(word, help=summary, description=description)
        if verb == name or (verb == "*" and word not in lacking):
            if name != _ALL_TAIL:
                add_common(sub)
            try:
                _module(name).add_arguments(sub)
            except InputError:  # a package that is broken; of all verbs it takes none along
                if verb == name:
                    raise
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    tail: list[str] | None = None
    if arguments[:1] == [_ALL_TAIL] and arguments[1:2] not in (["--help"], ["-h"]):
        arguments, tail = arguments[:1], arguments[1:]
    elif "--" in arguments:
        separator_index = arguments.index("--")
        arguments, tail = arguments[:separator_index], arguments[separator_index + 1 :]
    if os.geteuid() == 0:
        search_absolute_folders()
    prepare()
    return guarded(lambda: run_verb(verb_first(arguments), tail))


_COMMON = ("--db", "--config-dir", "--json")
"""What every verb takes; the first two with a value."""


def verb_first(arguments: Sequence[str]) -> list[str]:
    """Return arguments with what every verb takes behind the verb: ``--json report``."""
    common_options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] in _COMMON:
        common_options.append(rest.pop(0))
        if common_options[-1] in _COMMON[:2] and rest:
            common_options.append(rest.pop(0))
    if rest and rest[0] in FAMILIES:
        return [rest[0], *verb_first([*common_options, *rest[1:]])]
    return [*rest[:1], *common_options, *rest[1:]] if rest else common_options


def of_today(arguments: Sequence[str]) -> list[str]:
    """Return arguments with the verb's name of today; people at a terminal hear it, once."""
    former = arguments[0] if arguments else ""
    if former not in FORMER:
        return list(arguments)
    words = FORMER[former]
    if sys.stderr.isatty() and "--json" not in arguments and _first_time(former):
        complain(f"advisor {former} is advisor {' '.join(words)} now; the old name works, too")
    return [*words, *arguments[1:]]


def _first_time(former: str) -> bool:
    """Tell whether this user hears this for the first time, as far as that can be kept."""
    mark_path = state_dir() / "told" / former
    try:
        mark_path.parent.mkdir(parents=True, exist_ok=True)
        mark_path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # a home that nobody can write to: better twice than never
        pass
    return True


def run_verb(arguments: Sequence[str], tail: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. Raises OSError where the output cannot be written."""
    arguments = of_today(arguments)
    if len(arguments) == 1 and arguments[0] in FAMILIES:
        arguments.append("--help")
    words = [a for a in arguments if not a.startswith("-")]
    word_count = 2 if words[:1] and words[0] in FAMILIES else 1
    verb = " ".join(words[:word_count]) or None
    try:
        parser = build_parser(verb, alone=arguments[:word_count] == words[:word_count])
        if not arguments:
            parser.print_help()
            return 0
        args = parser.parse_args(arguments)
        if tail is not None and not getattr(args, "takes_tail", False):
            parser.error(f"{verb} takes nothing after --")
        args.tail = list(tail or ())
        find_workload(args)
        code: int = _module(str(verb)).run(args)
    except AdvisorError as error:
        _print_error(arguments, error.message, error.hint, error.exit_code)
        complain(str(error), "advisor " if isinstance(error, LaboratoryError) else "advisor: ")
        return error.exit_code
    except KeyboardInterrupt:
        _print_error(arguments, "stopped", "", 130)
        complain("stopped")
        return 130
    except OSError as error:
        if error.filename:  # else it is the output itself that cannot be written
            _print_error(arguments, f"{error.filename}: {error.strerror or error}", "", 1)
        raise
    return code


def _print_error(arguments: Sequence[str], message: str, hint: str, exit_code: int) -> None:
    """Print an error where programs read; people read standard error, as everywhere."""
    if "--json" in arguments:
        from advisor.cli.output import ErrorAnswer, print_json

        print_json("error", ErrorAnswer(message, hint, exit_code))
