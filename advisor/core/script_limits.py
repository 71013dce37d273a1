"""What in a script may end one of its programs after a time, besides the limit of its job.

Only what the script itself says is read: a program of its own that ends others is not looked into.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from advisor.core.launchers import is_light, split_options
from advisor.core.script import commands, read
from advisor.core.shell import Shell
from advisor.core.signs import Signs

_COMMENTS = re.compile(r"^[ \t]*+#[^\n]*+|[ \t]#[^\n\"']*+$", re.MULTILINE)
_DURATION = re.compile(r"(\d+(?:\.\d*)?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TIMERS = Signs(
    re.compile(
        r"(?<![\w$-])(?:g?timeout|timelimit)(?=\s|$)|[(,]\s?timeout=|\b(?:SIG)?ALRM\b"
        r"|\balarm[ (]|\bsetitimer\b|\b(?:MPIEXEC|I_MPI_JOB)_TIMEOUT\b|_TIMELIMIT\b"
    ),
    ("timeout", "timelimit", "ALRM", "alarm", "setitimer", "_TIMEOUT", "_TIMELIMIT"),
)
_ULIMIT, _PRLIMIT = re.compile(r"\bulimit$"), Signs(re.compile(r"\bprlimit\b"), ("prlimit",))
_CPU_TIME = re.compile(r"-\w*t")
_PAUSES = Signs(
    re.compile(
        r"\b(?:u?sleep|inotifywait)\b|\b(?:read[ \t]+(?:[^\s;|&]+[ \t]+){0,8}?-\w*t"
        r"|wait[ \t]+(?:[^\s;|&]+[ \t]+){0,8}?-\w*n)"
    ),
    ("sleep", "inotifywait", "read", "wait"),
)
_ENDS_OTHERS = re.compile(r"\b(?:p?kill|killall|skill|scancel)\b(?!\s+-0)")
_STEP = re.compile(r"\bsrun(?=\s)")
_QUOTES = str.maketrans("\"'`()", "     ")
_TIME_OPTION = re.compile(r"\s(?:-t|--time)(?![\w-])")
_TIME = ("-t", "--time")
_MOST_WORDS = 64
"""Of srun's options that are looked at: no hostile line takes long."""


def ends_after_s(wrappers: Sequence[str]) -> float | None:
    """Return when ``timeout`` ends the program behind it, in seconds: infinity without, None if
    unknown."""
    words, least = iter(wrappers), math.inf
    for word in words:
        if word.rsplit("/", 1)[-1] == "timeout":
            length = next(words, "")
            while length.startswith("-"):
                if length in ("-k", "-s", "--kill-after", "--signal"):
                    next(words, "")
                length = next(words, "")
            match = _DURATION.fullmatch(length)
            if not match:
                return None
            # 0 ends nothing
            least = min(least, float(match[1]) * _SECONDS[match[2]] or math.inf)
    return least


def limits_processor_time(text: str) -> bool:
    """Tell whether a text limits the processor time of what follows: ``ulimit -t 60``."""
    if "limit" not in text:
        return False
    words, options = text.split(), False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if options and _CPU_TIME.fullmatch(word) and following[:1] not in ("u", ""):
            return True
        options = _ULIMIT.search(word) is not None or (options and word.startswith("-"))
    return _PRLIMIT.search(text) is not None


def has_watchdog(shell: Shell) -> bool:
    """Tell whether a script may end what it runs in the foreground: ``(sleep 60; kill $$) &``."""
    if not _ENDS_OTHERS.search(shell.text):
        return False
    background_names = {c.words[0] for c in shell.commands if c.background}
    inside = not background_names.isdisjoint(shell.functions)
    ends = (c for c in shell.commands if _ENDS_OTHERS.fullmatch(c.words[0]))
    return "ALRM" in shell.text or any(c.background or (inside and c.function) for c in ends)


def ends_programs(script: str, arguments: Sequence[str] = ()) -> str:
    """Return what in a script may end a program after a time, "" for nothing."""
    text = _COMMENTS.sub("", script)
    if timer := _TIMERS.search(text):
        return timer[0].strip("(, ")
    if limits_processor_time(text):
        return "ulimit -t"
    if pause := _PAUSES.search(text):
        if ends := _ENDS_OTHERS.search(text):
            return f"{ends[0]} beside {pause[0].split()[0]}"
        if _ends_in_a_pause(read(script, tuple(arguments)).shell):
            return f"its end after {pause[0].split()[0]}"
    return ""


def _ends_in_a_pause(shell: Shell) -> bool:
    """Tell whether a script pauses last, and then its end takes what it left in the background."""
    if not any(c.background and not is_light(c.words) for c in shell.commands):
        return False
    for command in reversed(shell.commands):
        line = " ".join(command.words)
        if command.background or command.function or command.substituted:
            continue
        if _PAUSES.search(line):
            return True
        if command.words[0] == "wait" or not is_light(command.words):
            return False
    return False


def limits_steps(script: str, arguments: Sequence[str] = ()) -> str:
    """Return what may give a step of srun a time limit of its own, "" for nothing."""
    if "srun" not in script:
        return ""
    steps = [c for c in commands(script, tuple(arguments)) if c.launcher == "srun"]
    unclear = any(step.unclear for step in steps)
    text = _COMMENTS.sub("", script).replace("\\\n", " ")
    options = [option for step in steps for option in step.launcher_options]
    for line in _STEP.split(text)[1:]:  # those in quotes, too
        words = line.partition("\n")[0].translate(_QUOTES).split(None, _MOST_WORDS)[:_MOST_WORDS]
        unclear = unclear or words[:1] in (["$@"], ["$*"])
        options += split_options("srun", words)[0]
    limited = any(option.partition("=")[0] in _TIME for option in options)
    return "srun --time" if limited or (unclear and _TIME_OPTION.search(text)) else ""
