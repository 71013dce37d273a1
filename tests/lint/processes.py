"""Who starts what: interpreters, schedulers' commands, and files that are renamed into place."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from tests.lint.project import Project, Violation

# -- interpreters ----------------------------------------------------------------------------------

HELPER = "advisor/interpreter.py"
NAMED_ONLY = {"advisor/errors.py", "advisor/loop/health.py", "advisor/service/units.py"}
"""These show or look for the interpreter and start none."""
SHOWS_ITS_OWN = {"examples/demo.py", "examples/demo_slurm.py"}
"""Started by ``make`` in the checkout, as whoever owns that."""
RUNNING = {"sys.executable", "sys._base_executable"}
"""What names the interpreter that runs."""
TYPED = re.compile(r"\bpython[\d.]*\s+-[mc]\b")
NO_COMMAND = re.compile(
    r"``python -m|python -m venv|usage: python -m|Generated from|python -m release"
)
"""Prose, and the heads of what developers run in the checkout."""
INTERPRETER = re.compile(r"(?:.*/)?python[\d.]*")
INSTALLED_TEXTS = (".lua", ".service", ".socket", ".timer", ".md", ".spec", ".env", ".sh")


def one_helper_starts_interpreters(project: Project) -> Iterator[Violation]:
    """No other module names the running interpreter, or has one in a command's words.

    Nobody is told to start the advisor as a module either: ``python -m advisor`` takes the advisor
    from the folder where it is typed.
    """
    folders = ("advisor", "tui", "lab", "hooks", "release", "db", "docs", "examples")
    for source in project.files(*folders):
        if source.name != HELPER and source.name not in SHOWS_ITS_OWN:
            for node in source.nodes:
                if _names_an_interpreter(node, source.name in NAMED_ONLY):
                    line = getattr(node, "lineno", 0)
                    yield source.violation(line, "own_python() of advisor.interpreter does it")
    for source in project.files("hooks", "config", "docs", "release", endings=INSTALLED_TEXTS):
        what = "{}: name the program advisor, which runs isolated"
        if source.path.name != "security.md":
            yield from source.matches(r"-m advisor\b", what)
        yield from source.matches(r"python[\d.]*\s+-c\b", what)


def _names_an_interpreter(node: ast.AST, may_name: bool) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}" in RUNNING
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            module = getattr(node, "module", "") or ""
            names = {f"{module}.{alias.name}".lstrip(".") for alias in aliases}
            packages = {n.split(".")[0] for n in names}
            return bool(
                names & RUNNING
                or ("advisor.interpreter.this_python" in names and not may_name)
                or packages & {"multiprocessing", "venv", "ensurepip"}
                or "concurrent.futures.ProcessPoolExecutor" in names
            )
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            words = [e.value if isinstance(e, ast.Constant) else None for e in elements]
            first = next((w for w in words if isinstance(w, str)), "")
            starts = INTERPRETER.fullmatch(first) is not None and {"-m", "-c"} & set(words)
            return bool(starts) or ("-m", "advisor") in itertools.pairwise(words)
        case ast.Constant(value=str(text)):
            lines = text.splitlines()
            return any(TYPED.search(line) and not NO_COMMAND.search(line) for line in lines)
    return False


# -- schedulers' commands --------------------------------------------------------------------------

ROOMS = "advisor/schedulers/"
QUESTIONS = frozenset(
    {
        "sacct",
        "sacctmgr",
        "scancel",
        "scontrol",
        "sdiag",
        "sinfo",
        "sprio",
        "squeue",
        "sreport",
        "sshare",
        "sstat",
        "pbsnodes",
        "qdel",
        "qmgr",
        "qselect",
        "qstat",
        "tracejob",
    }
)
STARTERS = {
    "command.py",  # the one way
    "slurm/hook_files.py",
    "slurm/hook_state.py",  # compilers, and Lua
    "local/watched.py",
    "thread_counter.py",  # our own processes beside a run
}
"""Modules of the schedulers' rooms that start programs, and what else than a scheduler's."""
ASKING = {"command.py", "slurm/control.py", "pbs/control.py"}


def one_way_to_ask_schedulers(project: Project) -> Iterator[Violation]:
    """Every question to a scheduler's commands goes through ``control.ask`` of its room."""
    modules = {source.name.removeprefix(ROOMS): source for source in project.files(ROOMS)}
    for name in sorted((STARTERS | ASKING) - modules.keys()):
        yield Violation(ROOMS + name, 1, f"is no longer there: take it from the list in {__file__}")
    for name, source in modules.items():
        starts = any(
            isinstance(n, ast.Import) and n.names[0].name == "subprocess" for n in source.nodes
        )
        for is_so, may, what in (
            (starts, STARTERS, "starts programs"),
            ("run_command" in source.text, ASKING, "calls run_command"),
        ):
            if is_so and name not in may:
                yield source.violation(1, f"{what}: control.ask() of its room does it")
            elif name in may and not is_so:
                yield source.violation(1, f"no longer {what}: take it from the list in {__file__}")
    for source in project.files("advisor", "tui", "lab"):
        if source.path.parent.parent.name == "schedulers":
            continue
        for node in source.nodes:
            match node:
                case ast.List(elts=[ast.Constant(value=word), *_]) if word in QUESTIONS:
                    yield source.violation(
                        node.lineno, f"{word} is asked by control.ask() of its scheduler's room"
                    )


# -- files -----------------------------------------------------------------------------------------

RENAMES_ITSELF = {
    "advisor/drafts.py",
    "advisor/loop/spool.py",  # a refused delivery is moved aside under its own, random name
    "advisor/loop/left_reader.py",  # the same, in the user's folder
    "advisor/core/delivery.py",  # a delivery's draft is named after its random name
    "advisor/service/listening.py",  # a socket, which systemd or this daemon alone makes
    "advisor/instruments/native.py",  # compiled in a folder of its own
}


def drafts_for_what_is_renamed(project: Project) -> Iterator[Violation]:
    """A name made from the file's own may be another file, a link, or another process's."""
    for source in project.files("advisor", "tui", "lab"):
        if source.name in RENAMES_ITSELF or "advisor.drafts import" in source.text:
            continue
        for node in source.nodes:
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="replace" | "rename") as function,
                    args=[first, *rest],
                    keywords=[],
                ) if not isinstance(first, ast.Starred) and (
                    not rest or ast.unparse(function).startswith("os.")
                ):
                    yield source.violation(
                        node.lineno, "what is renamed into place is a draft() of advisor.drafts"
                    )
