"""``advisor service``: units of systemd for daemon and collection, with this host's paths."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.cli.output import print_json
from advisor.core.codec import JsonForm
from advisor.service.units import FOLDER, LOOKED_INTO

_ENABLED = ("advisor.socket", "advisor.service", "advisor-collect.timer")
_SILENT = "systemd does not answer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor service`` takes."""
    parser.description = (
        "Write systemd's units for the daemon, its socket and the collection, with the absolute "
        "paths of this installation, one file of settings for both services, and the hardening "
        "that the scheduler permits. Or compare the installed files with these."
    )
    parser.add_argument(
        "action", choices=["install", "status"], help="write the units, or compare them"
    )
    parser.add_argument(
        "--dir",
        metavar="DIR",
        type=Path,
        help=f"write the units there and do not ask systemd (default: {FOLDER}, and enable them)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="SCHEDULER",
        help="slurm or pbs (default: the one this machine has)",
    )


@dataclass(frozen=True, slots=True)
class ServiceAnswer(JsonForm):
    """The units that were written, or how they are."""

    dir: str
    units: list[str]
    active: Mapping[str, str]


def run(args: argparse.Namespace) -> int:
    """Install or show."""
    folder = args.dir or FOLDER
    if args.action == "install":
        return _install(args, folder)
    return _status(args, [args.dir] if args.dir else LOOKED_INTO)


def _install(args: argparse.Namespace, folder: Path) -> int:
    from advisor.drafts import write_whole
    from advisor.errors import AdvisorError
    from advisor.service.units import program, units

    texts = units(program(), sets_uid=_needs_setuid(args.scheduler))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text, 0o644, exactly=True, sync=True)
    except OSError as error:
        raise AdvisorError(
            f"{folder}: the units cannot be written: {error.strerror}",
            hint="be root, or name another folder with --dir",
        ) from None
    if args.dir is None:
        try:
            _systemctl("daemon-reload")
            _systemctl("enable", "--now", *_ENABLED)
        except AdvisorError as error:
            raise AdvisorError(
                f"the units are in {folder}, but not enabled: {error.message}",
                hint=f"systemctl daemon-reload && systemctl enable --now {' '.join(_ENABLED)}; "
                "without systemd run advisor serve, and advisor collect by cron",
            ) from None
    if args.json:
        print_json("service", ServiceAnswer(str(folder), sorted(texts), {}))
    else:
        for name in sorted(texts):
            print(folder / name)
    return 0


def _status(args: argparse.Namespace, folders: Sequence[Path]) -> int:
    from advisor.service.units import program, units

    unit_texts = units(program(), sets_uid=_needs_setuid(args.scheduler))
    states: dict[Path, str] = {}
    for name, text in unit_texts.items():
        path = next((f / name for f in folders if (f / name).exists()), folders[0] / name)
        try:
            is_current = path.read_text(encoding="utf-8") == text
        except OSError:
            states[path] = "missing"
            continue
        state = "as this version writes it" if is_current else "of another version, or edited"
        states[path] = f"{_systemctl('is-active', name)}, {state}" if args.dir is None else state
    if args.json:
        active = {path.name: state for path, state in states.items()}
        print_json("service", ServiceAnswer(str(folders[0]), sorted(unit_texts), active))
    else:
        for path, state in sorted(states.items()):
            print(f"{path}: {state}")
    if any(not state.endswith("as this version writes it") for state in states.values()):
        place = f" --dir {args.dir}" if args.dir else ""
        print(f"advisor service install{place} writes them as this version does", file=sys.stderr)
    return 1 if "missing" in states.values() else 0


def _needs_setuid(scheduler: str | None) -> bool:
    """Tell whether the scheduler's commands are setuid programs: PBS's ``pbs_iff`` is."""
    from advisor.schedulers.choose import create, default

    return (create(scheduler) if scheduler else default()).SETUID_COMMANDS


def _systemctl(*words: str) -> str:
    """Ask systemd; return its answer. Raises AdvisorError where a change fails."""
    import subprocess

    from advisor.errors import AdvisorError

    try:
        completed = subprocess.run(
            ["systemctl", *words], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        if words[0] == "is-active":
            return _SILENT
        raise AdvisorError(f"systemctl cannot be asked: {error}") from None
    if completed.returncode and words[0] != "is-active":
        raise AdvisorError(f"systemctl {words[0]}: {completed.stderr.strip()}")
    return completed.stdout.strip() or _SILENT
