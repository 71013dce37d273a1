"""Man pages: advisor.1 and one for each verb, in the man macros that groff and mandoc know."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

from advisor import __version__
from docs.generator.commands import Argument, Command, every, members, program
from docs.generator.variables import VARIABLES

EXIT_CODES = {
    "0": "Done.",
    "1": "Failed.",
    "2": "Wrong usage.",
    "3": "Refused by the policy, or nothing to do.",
}


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    advisor = program()
    page_texts = {"advisor.1": _page(advisor, _verbs(advisor) + _environment())}
    for verb in advisor.actions:
        members_of_verb = members(verb)
        if members_of_verb:
            page_texts[f"{_file(verb)}.1"] = _page(verb, _verbs(verb))
        for command in members_of_verb or (verb,):
            page_texts[f"{_file(command)}.1"] = _page(
                command, "".join(map(_action, list(every(command))[1:]))
            )
    return page_texts


def _page(command: Command, more: str) -> str:
    name = _file(command)
    summary = command.summary or "spend less energy on the cluster without slowing anybody down"
    text = f'.\\" Made by make man from the parsers of advisor/cli.\n.TH {name.upper()} 1 {_day()} '
    text += f'"advisor {__version__}" "Advisor Manual"\n'
    text += f".SH NAME\n{name} \\- {_text(summary)}\n.SH SYNOPSIS\n.nf\n"
    text += "\n".join(_line(line) for line in command.usage) + "\n.fi\n"
    text += f".SH DESCRIPTION\n{_text(command.description)}\n"
    for title, arguments in command.groups:
        heading = "ARGUMENTS" if title == "positional arguments" else title.upper()
        text += f".SH {_text(heading)}\n{_arguments(arguments)}"
    text += more
    if command.epilog:
        text += f".SH NOTES\n{_text(command.epilog)}\n"
    text += ".SH EXIT STATUS\n"
    text += "".join(f".TP\n.B {code}\n{meaning}\n" for code, meaning in EXIT_CODES.items())
    main_page_link = "" if name == "advisor" else "\n.BR advisor (1),"
    return f"{text}.SH SEE ALSO{main_page_link}\n.BR sbatch (1),\n.BR qsub (1)\n"


def _day() -> str:
    """Return today, or the day that a reproducible build names."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.fromtimestamp(int(seconds), UTC) if seconds else datetime.now(UTC)
    return f"{now:%Y-%m-%d}"


def _verbs(advisor: Command) -> str:
    listed = (f".TP\n.BR {_file(v)} (1)\n{_text(v.summary)}\n" for v in advisor.actions)
    return ".SH VERBS\n" + "".join(listed)


def _environment() -> str:
    text = ".SH ENVIRONMENT\n"
    for title, names in VARIABLES.items():
        text += f".SS {_text(title)}\n"
        text += "".join(f".TP\n.B {name}\n{_text(meaning)}\n" for name, meaning in names.items())
    return text


def _action(command: Command) -> str:
    text = f".SH {_text(command.name.upper())}\n{_text(command.description)}\n.PP\n.nf\n"
    text += "\n".join(_line(line) for line in command.usage) + "\n.fi\n"
    return text + "".join(_arguments(arguments) for _, arguments in command.groups)


def _arguments(arguments: tuple[Argument, ...]) -> str:
    return "".join(f".TP\n{_names(argument)}\n{_text(argument.help)}\n" for argument in arguments)


def _names(argument: Argument) -> str:
    value = f"\\fI{_text(argument.value)}\\fR" if argument.value else ""
    names = [f"\\fB{_text(name)}\\fR {value}".strip() for name in argument.names]
    return ", ".join(names) or value


def _text(text: str) -> str:
    """Return text that troff prints as it is."""
    return _line(text.replace("`", ""))


def _line(text: str) -> str:
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")
    return re.sub(r"^([.'])", r"\\&\1", safe)


def _file(command: Command) -> str:
    return command.name.replace(" ", "-")
