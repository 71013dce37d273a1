"""``advisor explain``: what the hook would do with a job script, and why. Nothing is submitted."""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from advisor.cli.output import print_json
from advisor.cli.tail import take_tail
from advisor.errors import InputError, StoreError
from advisor.paths import choices_path, socket_path, store_path

MAX_SCRIPT = 256 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    parser.add_argument("script", help="the job script, as for sbatch")
    parser.add_argument("--user", help="decide as for this user (default: you)")
    parser.add_argument("--scheduler", default="slurm", choices=["slurm"])
    parser.add_argument("--socket", help="ask this daemon (default: read the store if one can)")
    parser.add_argument("--diff", action="store_true", help="show the script as it would be")
    parser.usage = "advisor explain SCRIPT [options] [-- SBATCH OPTIONS]"
    take_tail(parser, "options")


def run(args: argparse.Namespace) -> int:
    """Decide and print."""
    path = Path(args.script)
    record = _decide(args, path)
    if args.json:
        print_json("explain", record)
    else:
        _print(record, path, show_diff=args.diff)
    return 0


def _decide(args: argparse.Namespace, path: Path) -> dict[str, object]:
    from advisor.schedulers.slurm_options import read_arguments, read_directives

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="name a readable job script") from None
    script = raw[:MAX_SCRIPT].decode("utf-8", "replace")
    options = read_directives(script) | _sbatch_environment() | read_arguments(args.options)
    options.setdefault("job-name", path.name)
    uid, user = _identity(args.user)
    payload: dict[str, object] = {
        "v": 1,
        "op": "explain",
        "scheduler": args.scheduler,
        "type": "sbatch",
        "options": options,
        "script": script,
        "script_path": str(path),
        "truncated": len(raw) > MAX_SCRIPT,
        "argv": [str(path)],
        "env": _own_environment(),
        "choices": _choices(args.user),
    }
    payload["uid"] = uid
    store = store_path(args.db)
    if args.socket is None and os.access(store, os.R_OK):
        return _from_store(store, payload, user, uid)
    from advisor.service.protocol import call

    socket = socket_path(args.socket)
    if args.socket is None and not socket.exists():
        raise StoreError(
            f"{store}: cannot be read, and no daemon answers at {socket}",
            hint="name a store with --db or a daemon with --socket",
        )
    answer = call(socket, payload)
    answer.pop("v", None)
    return answer


def _from_store(
    store: Path, payload: Mapping[str, object], user: str, uid: int
) -> dict[str, object]:
    from advisor.core.settings import parse_choices
    from advisor.schedulers.slurm_options import parse_request
    from advisor.service.decide import decide
    from advisor.service.snapshot import Source

    choices, _ = parse_choices(str(payload["choices"]))
    try:
        request = parse_request(payload, user=user, uid=uid, choices=choices)
    except ValueError as error:
        raise InputError(f"{payload['script_path']}: {error}") from None
    source = Source(store)
    try:
        source.refresh()
        return decide(request, source.snapshot, chance=lambda: 1.0).to_dict()
    finally:
        source.close()


def _identity(user: str | None) -> tuple[int, str]:
    if user is None:
        uid = os.getuid()
        try:
            return uid, pwd.getpwuid(uid).pw_name
        except KeyError:
            return uid, str(uid)
    try:
        return pwd.getpwnam(user).pw_uid, user
    except KeyError:
        raise InputError(f"--user {user}: no such user") from None


def _own_environment() -> dict[str, str]:
    wanted = {k: v for k, v in os.environ.items() if k.startswith("ADVISOR")}
    for name in ("ADVISOR_DB", "ADVISOR_CONFIG_DIR", "ADVISOR_SOCKET", "ADVISOR_STAMP"):
        wanted.pop(name, None)
    if "OMP_NUM_THREADS" in os.environ:
        wanted["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
    return wanted


def _sbatch_environment() -> dict[str, str]:
    names = {"timelimit": "time"}
    found = {k[7:].lower(): v for k, v in os.environ.items() if k.startswith("SBATCH_")}
    return {names.get(k, k.replace("_", "-")): v for k, v in found.items()}


def _choices(user: str | None) -> str:
    path = choices_path()
    if user is not None and user != _identity(None)[1]:
        path = Path(pwd.getpwnam(user).pw_dir) / ".config" / "advisor" / "choices.json"
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _print(record: Mapping[str, object], path: Path, *, show_diff: bool) -> None:
    from advisor.cli.decision_text import print_decision, print_rewrite_diff

    print_decision(record)
    rewrite = record["rewrite"]
    if isinstance(rewrite, Mapping) and (show_diff or rewrite):
        print()
        print_rewrite_diff(path, rewrite)
