"""Numbers of a job that its script works out: lines of PBS's node file, ``$((NODES * 4))``.

Such a number is text: digits, or where it follows from the job's own tasks and nodes, how:
``$((PBS_NUM_NODES*4))``. :func:`number_of` says what it is once the job is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

TASKS, NODES = "PBS_NP", "PBS_NUM_NODES"
"""The job's own tasks, of which PBS's node file has a line each, and its nodes."""
_OWN = {
    **dict.fromkeys((TASKS, "SLURM_NTASKS", "SLURM_NPROCS"), TASKS),
    **dict.fromkeys((NODES, "PBS_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), NODES),
}
"""The schedulers' own variables."""
_MOST = 10**7
"""More tasks than any job has."""
_LONGEST = 200
"""Characters of what is calculated."""
_MAY_BE = ("PBS_NODEFILE", "$((", "$[", *_OWN)

_FILE = r"""["']?\$\{?PBS_NODEFILE\}?["']?"""
_FIRST_WORD = r" *\| *(?:awk +'\{ *print +\$1 *;? *\}'|cut +-d ?' ' +-f ?1)"
_LINES = re.compile(rf"cat +{_FILE} *\| *wc +-l|wc +-l *< *{_FILE}|wc +-l +{_FILE}{_FIRST_WORD}")
_HOSTS = re.compile(
    rf"sort +-u +{_FILE} *\| *wc +-l|sort +{_FILE} *\| *uniq *\| *wc +-l"
    rf"|cat +{_FILE} *\| *(?:sort +-u|sort *\| *uniq) *\| *wc +-l"
)
"""``uniq`` alone counts a host again whose lines do not stand together."""
_SUBSTITUTION = re.compile(r"\$\( *([^()]*?) *\)|` *([^`]*?) *`")
_CALCULATION = re.compile(r"\$\(\((.*)\)\)|\$\[(.*)\]", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_TOKEN = re.compile(r"\s*(?:(\d+)|\$?(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})|([-+*/%()]))")


def job_number(word: str, value_of: Callable[[str], str | None]) -> str:
    """Return the number that a word is, "" for any other word.

    ``value_of`` returns what a variable holds, "" for one that the script never sets, None where
    that is not known.
    """
    if not any(sign in word for sign in _MAY_BE):
        return ""
    text = _SUBSTITUTION.sub(_of_node_file, word.strip())
    if text in _OWN:
        return f"$(({text}))"
    if variable := _VARIABLE.fullmatch(text):
        name = _OWN.get(variable[1] or variable[2])
        return f"$(({name}))" if name else ""
    calculation = _CALCULATION.fullmatch(text)
    inner = (calculation[1] or calculation[2] or "") if calculation else ""
    if not inner or len(inner) > _LONGEST:
        return ""
    return _calculated(inner, value_of)


def _of_node_file(substitution: re.Match[str]) -> str:
    """Return the name of what a command substitution counts, itself where that is not known."""
    command = substitution[1] or substitution[2] or ""
    if _LINES.fullmatch(command):
        return TASKS
    return NODES if _HOSTS.fullmatch(command) else substitution[0]


def _calculated(text: str, value_of: Callable[[str], str | None]) -> str:
    """Return what arithmetic comes to, digits or how it follows from the job's numbers, or ""."""
    parts, position = [], 0
    while text[position:].strip():
        token = _TOKEN.match(text, position)
        if token is None:
            return ""
        position = token.end()
        if not (name := token[2] or token[3]):
            parts.append(token[1] or token[4])
            continue
        value = value_of(name)
        if value == "" and name in _OWN:
            value = _OWN[name]
        elif value and (known := _CALCULATION.fullmatch(value)):
            value = f"({known[1]})"
        elif not value or not value.isdecimal():
            return ""
        parts.append(value)
    calculation = f"$(({''.join(parts)}))"
    if len(calculation) > _LONGEST:
        return ""
    if TASKS in calculation or NODES in calculation:
        return calculation
    return str(number_of(calculation, 1, 1) or "")


def number_of(text: str, tasks: int, nodes: int | None) -> int | None:
    """Return the number that :func:`job_number` returned, in a job of these tasks and nodes.

    A job without a number of tasks has 0, as in the shell. None where the number of nodes is not
    known, and where the result is none that a job can have.
    """
    calculation = _CALCULATION.fullmatch(text)
    if calculation is None:
        return None
    sizes = {TASKS: str(tasks), NODES: "" if nodes is None else str(nodes)}
    tokens = [sizes[m[2]] if m[2] else m[1] or m[4] for m in _TOKEN.finditer(calculation[1] or "")]
    try:
        number = _sum(tokens)
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return number if not tokens and 0 < number <= _MOST else None


def _sum(tokens: list[str]) -> int:
    """Take a sum off the front of tokens, as the shell works it out."""
    value = _product(tokens)
    while tokens[:1] in (["+"], ["-"]):
        sign = tokens.pop(0)
        other = _product(tokens)
        value = value + other if sign == "+" else value - other
    return value


def _product(tokens: list[str]) -> int:
    value = _factor(tokens)
    while tokens[:1] in (["*"], ["/"], ["%"]):
        sign = tokens.pop(0)
        other = _factor(tokens)
        if value < 0 or other < 0:
            raise ValueError  # the shell rounds these towards 0
        value = value * other if sign == "*" else value // other if sign == "/" else value % other
    return value


def _factor(tokens: list[str]) -> int:
    token = tokens.pop(0)
    if token != "(":
        if len(token) > 1 and token[0] == "0":
            raise ValueError  # octal
        return int(token)
    value = _sum(tokens)
    if tokens.pop(0) != ")":
        raise ValueError
    return value
