"""``advisor policy``: check, apply, compare, show and roll back; ``advisor site`` does the same."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from advisor.cli.arguments import add_action, add_actions
from advisor.cli.output import print_json, print_table
from advisor.core.codec import JsonForm, wire
from advisor.errors import InputError, RefusedError, UnknownNameError
from advisor.paths import config_dir, whole_store

if TYPE_CHECKING:
    from advisor.policy.problems import Problem
    from advisor.policy.render import SettingChange
    from advisor.store.records import ConfigVersion
    from advisor.store.writer import Writer

Kind = Literal["policy", "site"]
WhenApplied = Callable[["Writer", Mapping[str, object], Mapping[str, object]], list[str]]
"""Called in the transaction that puts a version into effect, with its settings and the former
ones; returns notes to print."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A file as read and checked; ``compiled`` is None when it has a mistake."""

    name: str
    text: str
    compiled: dict[str, object] | None
    problems: list[Problem] = field(default_factory=list)


class PolicyAnswer(JsonForm):
    """The policy file: checked, applied, compared, rolled back or shown."""


@dataclass(frozen=True, slots=True)
class FileVerdict(JsonForm):
    """What is wrong with a file, and the keys of every error where it has a mistake."""

    ok: bool
    problems: Sequence[Problem]
    error: Annotated[str, "Where the file has mistakes: how many."] = field(
        default="", metadata=wire(omit=True)
    )
    hint: str = field(default="", metadata=wire(omit=True))
    exit_code: Literal[1] | None = field(default=None, metadata=wire(omit=True))

    @classmethod
    def of(cls, checked: Checked) -> FileVerdict:
        """Return that of a file that was read."""
        if checked.compiled is not None:
            return cls(True, checked.problems)
        error = f"{checked.name}: {_count(checked.problems)}"
        return cls(False, checked.problems, error, "problems names them", 1)


@dataclass(frozen=True, slots=True)
class CheckedFile(JsonForm):
    """A file that was checked."""

    action: Literal["check"] = field(default="check", init=False)
    file: str
    verdict: FileVerdict = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class UntriedFile(JsonForm):
    """A file with mistakes, which is not tried; policy-simulate.json is what others give."""

    action: Literal["simulate"] = field(default="simulate", init=False)
    file: str
    verdict: FileVerdict = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class AppliedFile(JsonForm):
    """A file that was applied, or has mistakes."""

    action: Literal["apply"] = field(default="apply", init=False)
    file: str
    version: int
    applied: bool
    changes: Sequence[SettingChange] | None = field(
        default=None, metadata=wire(omit=True), kw_only=True
    )
    notes: Sequence[str] | None = field(default=None, metadata=wire(omit=True), kw_only=True)
    verdict: FileVerdict = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class ComparedFile(JsonForm):
    """A file beside the one in effect."""

    action: Literal["diff"] = field(default="diff", init=False)
    file: str
    version: int
    same: bool
    diff: str
    changes: Sequence[SettingChange] | None
    verdict: FileVerdict = field(metadata=wire(inline=True))


@dataclass(frozen=True, slots=True)
class RolledBack(JsonForm):
    """An earlier version that is in effect again."""

    action: Literal["rollback"] = field(default="rollback", init=False)
    version: int
    former: int = field(metadata=wire("from"))
    applied: bool
    changes: Sequence[SettingChange]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ShownVersion(JsonForm):
    """The settings of a version; 0 is the built-in default."""

    action: Literal["show"] = field(default="show", init=False)
    version: int = 0
    active: bool = True
    path: str = ""
    applied_by: str = ""
    applied_at: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShownHistory(JsonForm):
    """All versions."""

    action: Literal["show"] = field(default="show", init=False)
    versions: Sequence[ConfigVersion]


COMMON_ANSWERS = (CheckedFile, AppliedFile, ComparedFile, RolledBack, ShownVersion, ShownHistory)
"""Those of ``advisor site``, too."""
ANSWERS = (*COMMON_ANSWERS, UntriedFile)


def add_arguments(parser: argparse.ArgumentParser, kind: Kind = "policy") -> Any:
    """Add the common actions; return the object that further ones are added to."""
    actions = add_actions(parser)
    default = f"the file (default: {kind}.yaml in the configuration folder; - is standard input)"
    for name, summary in (
        ("check", "list everything that is wrong with a file"),
        ("apply", "check a file and put it into effect"),
        ("diff", "compare a file with the one in effect"),
    ):
        action = add_action(actions, name, summary)
        action.add_argument("file", nargs="?", metavar="FILE", help=default)
    if kind == "policy":
        from advisor.cli.policy_simulate import add_simulate

        add_simulate(actions)
    action = add_action(actions, "rollback", "put an earlier version into effect again")
    action.add_argument("--to", type=int, metavar="N", help="the version (default: the one before)")
    action = add_action(
        actions, "show", "print the settings in effect as a file, defaults included"
    )
    action.add_argument("--version", type=int, metavar="N", help="print this version instead")
    action.add_argument("--history", action="store_true", help="list the versions")
    return actions


def run(
    args: argparse.Namespace, kind: Kind = "policy", when_applied: WhenApplied | None = None
) -> int:
    """Run one common action and return its exit code."""
    if args.action == "check":
        return _check(args, kind)
    if args.action == "apply":
        return _apply(args, kind, when_applied)
    if args.action == "diff":
        return _diff(args, kind)
    if args.action == "simulate":
        from advisor.cli.policy_simulate import simulate_action

        checked = read(args, kind)
        if args.json and checked.compiled is None:
            print_json(kind, UntriedFile(checked.name, FileVerdict.of(checked)))
            return 1
        _print_problems(checked.problems, sys.stderr)
        return simulate_action(args, checked.name, checked.compiled)
    if args.action == "rollback":
        return _rollback(args, kind, when_applied)
    return _show(args, kind)


def read(args: argparse.Namespace, kind: Kind) -> Checked:
    """Read and check the file an action was given. Raises InputError when it cannot be read."""
    from advisor.policy.document import MAX_BYTES, decode
    from advisor.policy.load import check_text, read_file

    if args.file == "-":
        name = "<stdin>"
        text, problems = decode(sys.stdin.buffer.read(MAX_BYTES + 1), name)
    else:
        path = Path(args.file) if args.file else config_dir(args.config_dir) / f"{kind}.yaml"
        name = str(path)
        text, problems = read_file(path, kind)
    if problems:
        return Checked(name, text, None, problems)
    return Checked(name, text, *check_text(text, name, kind))


def who() -> str:
    """Return who is at the keyboard, for the history."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    sudo = os.environ.get("SUDO_USER", "")
    return f"{sudo} (as {user})" if sudo and sudo != user else user


def applied(args: argparse.Namespace, kind: Kind, version: int | None = None) -> Any:
    """Return the applied version, None when there is none; InputError for one not known."""
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen

    path = store_seen(args.db)
    config = None
    if path.exists():
        with Reader(path) as reader:
            config = reader.config(kind, version)
    if config is None and version is not None:
        hint = f"advisor {kind} show --history lists them"
        raise UnknownNameError(f"there is no {kind} version {version}", hint=hint)
    return config


def _history(args: argparse.Namespace, kind: Kind) -> list[ConfigVersion]:
    from advisor.store.reader import Reader
    from advisor.store.seen import store_seen

    path = store_seen(args.db)
    if not path.exists():
        return []
    with Reader(path) as reader:
        return reader.config_history(kind)


def _print_problems(problems: Sequence[Problem], stream: Any) -> None:
    for problem in problems:
        print(problem, file=stream)


def _count(problems: Sequence[Problem]) -> str:
    errors = sum(not p.warning for p in problems)
    warnings = len(problems) - errors
    parts = [f"{errors} mistake{'s' * (errors != 1)}"] if errors else []
    parts += [f"{warnings} warning{'s' * (warnings != 1)}"] if warnings else []
    return " and ".join(parts)


def _check(args: argparse.Namespace, kind: Kind) -> int:
    checked = read(args, kind)
    ok = checked.compiled is not None
    if args.json:
        print_json(kind, CheckedFile(checked.name, FileVerdict.of(checked)))
        return 0 if ok else 1
    _print_problems(checked.problems, sys.stdout)
    if not checked.problems:
        print(f"{checked.name}: no mistakes")
    else:
        print(f"{checked.name}: {_count(checked.problems)}")
    return 0 if ok else 1


def _apply(args: argparse.Namespace, kind: Kind, when_applied: WhenApplied | None) -> int:
    from advisor.policy.render import changes

    checked = read(args, kind)
    current = applied(args, kind)
    if not args.json:
        _print_problems(checked.problems, sys.stderr)
    if checked.compiled is None:
        effective_version = (
            f"{kind} version {current.version}" if current else "the built-in default"
        )
        if args.json:
            version = current.version if current else 0
            verdict = FileVerdict.of(checked)
            print_json(kind, AppliedFile(checked.name, version, applied=False, verdict=verdict))
        else:
            print(
                f"advisor: {checked.name}: {_count(checked.problems)}; not applied, "
                f"{effective_version} stays in effect",
                file=sys.stderr,
            )
        return 1
    former = current.compiled if current else {}
    is_applied = current is not None and current.text == checked.text
    is_applied = is_applied and current.compiled == checked.compiled
    changed = changes(kind, former, checked.compiled)
    version, notes = (
        (current.version, []) if is_applied else _store(args, kind, checked, when_applied)
    )
    if args.json:
        answer = AppliedFile(
            checked.name,
            version,
            not is_applied,
            FileVerdict.of(checked),
            changes=changed,
            notes=notes,
        )
        print_json(kind, answer)
        return 0
    if is_applied:
        print(f"already applied: {kind} version {version}")
        return 0
    effect = f"{len(changed)} setting{'s' * (len(changed) != 1)} changed"
    print(f"{kind} version {version} applied from {checked.name}: {effect}")
    _print_changes(changed)
    _print_notes(notes)
    return 0


def _store(
    args: argparse.Namespace, kind: Kind, checked: Checked, when_applied: WhenApplied | None
) -> tuple[int, list[str]]:
    """Put a checked file into effect; return its version and notes to print."""
    from advisor.derive.worker import deriving

    path = checked.name if checked.name == "<stdin>" else str(Path(checked.name).resolve())
    compiled = checked.compiled or {}
    with deriving(whole_store(args.db)) as writer, writer.batch():
        former_config = writer.config(kind)
        version = writer.apply_config(
            kind, path=path, text=checked.text, compiled=compiled, by=who()
        )
        former = former_config.compiled if former_config else {}
        return version, when_applied(writer, compiled, former) if when_applied else []


def _print_changes(changed: Sequence[SettingChange]) -> None:
    for change in changed:
        print(f"  {change.key}: {change.old or '(not set)'} -> {change.new or '(not set)'}")


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}")


def _diff(args: argparse.Namespace, kind: Kind) -> int:
    from advisor.policy.render import changes, text_diff

    checked = read(args, kind)
    whole_store(args.db)  # the daemon shows users what holds, not the file with its comments
    current = applied(args, kind)
    name = f"{kind} version {current.version}" if current else "nothing applied"
    lines = text_diff(current.text if current else "", checked.text, name, checked.name)
    changed = None
    if checked.compiled is not None:
        changed = changes(kind, current.compiled if current else {}, checked.compiled)
    if args.json:
        answer = ComparedFile(
            checked.name,
            current.version if current else 0,
            not lines,
            lines,
            changed,
            FileVerdict.of(checked),
        )
        print_json(kind, answer)
        return 0 if changed is not None else 1
    if lines:
        print(lines)
        print()
    else:
        print(f"{checked.name} is the file in effect: {name}")
    if changed is None:
        _print_problems(checked.problems, sys.stderr)
        print(
            f"advisor: {checked.name}: {_count(checked.problems)}; it cannot be applied",
            file=sys.stderr,
        )
        return 1
    _print_problems(checked.problems, sys.stderr)
    if lines:
        print("Settings that would change:" if changed else "No setting would change.")
        _print_changes(changed)
    return 0


def _rollback(args: argparse.Namespace, kind: Kind, when_applied: WhenApplied | None) -> int:
    from advisor.derive.worker import deriving
    from advisor.policy.load import check_text
    from advisor.policy.render import changes

    current = applied(args, kind)
    if current is None:
        raise RefusedError(f"no {kind} was ever applied", hint=f"advisor {kind} apply FILE")
    earlier = [v for v in _history(args, kind) if v.version < current.version]
    if args.to is None and not earlier:
        hint = f"advisor {kind} show --history lists the versions"
        raise RefusedError(f"{kind} version {current.version} is the first", hint=hint)
    target = applied(args, kind, args.to if args.to is not None else earlier[-1].version)
    is_current = target.version == current.version
    notes: list[str] = []
    if not is_current:
        compiled, problems = check_text(target.text, f"{kind} version {target.version}", kind)
        if compiled is None:
            if not args.json:
                _print_problems(problems, sys.stderr)
            raise InputError(
                f"{kind} version {target.version} is not valid for this release of the advisor",
                hint="write it to a file, correct it and apply that",
            )
        with deriving(whole_store(args.db)) as writer, writer.batch():
            writer.activate_config(kind, target.version, who())
            notes = when_applied(writer, target.compiled, current.compiled) if when_applied else []
    changed = changes(kind, current.compiled, target.compiled)
    if args.json:
        answer = RolledBack(target.version, current.version, not is_current, changed, notes)
        print_json(kind, answer)
        return 0
    if is_current:
        print(f"{kind} version {current.version} is already in effect")
        return 0
    print(
        f"{kind} version {target.version} is in effect again instead of version {current.version}"
    )
    _print_changes(changed)
    _print_notes(notes)
    path = config_dir(args.config_dir) / f"{kind}.yaml"
    if path.is_file() and path.read_bytes() != target.text.encode():
        print(f"note: {path} differs; compare: advisor {kind} diff")
    return 0


def _show(args: argparse.Namespace, kind: Kind) -> int:
    from advisor.policy.render import effective, to_yaml

    if args.history:
        return _show_history(args, kind)
    current = applied(args, kind, args.version)
    compiled = current.compiled if current else {}
    if args.json:
        settings = effective(kind, compiled)
        answer = ShownVersion(settings=settings)
        if current is not None:
            origin = current.path, current.applied_by, current.applied_at
            answer = ShownVersion(current.version, current.active, *origin, settings)
        print_json(kind, answer)
        return 0
    if current is None:
        print(f"# the built-in default: no {kind} file was applied")
    else:
        print(f"# {kind} version {current.version}{'' if current.active else ' (not active)'}")
        print(f"# applied {current.applied_at} by {current.applied_by} from {current.path}")
    print(to_yaml(kind, compiled), end="")
    return 0


def _show_history(args: argparse.Namespace, kind: Kind) -> int:
    versions = _history(args, kind)
    if args.json:
        print_json(kind, ShownHistory(versions))
        return 0
    if not versions:
        print(f"no {kind} file was ever applied: the built-in default is in effect")
        return 0
    print_table(
        ("version", "active", "applied", "by", "from"),
        [
            (v.version, "*" if v.active else "", v.applied_at, v.applied_by, v.path)
            for v in versions
        ],
    )
    return 0
