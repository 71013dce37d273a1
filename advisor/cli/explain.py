"""``advisor explain``: what the hook would do with a job script, and why. Nothing is submitted."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from advisor.cli.job_request import identity, payload_of
from advisor.cli.output import print_json
from advisor.errors import InputError, StoreError
from advisor.paths import socket_path, store_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    parser.add_argument("script", help="the job script, as for sbatch")
    parser.add_argument("--user", help="decide as for this user (default: you)")
    parser.add_argument("--scheduler", default="slurm", choices=["slurm"])
    parser.add_argument("--socket", help="ask this daemon (default: read the store if one can)")
    parser.add_argument("--diff", action="store_true", help="show the script as it would be")
    parser.usage = "advisor explain SCRIPT [options] [-- SBATCH OPTIONS]"
    parser.set_defaults(takes_tail=True)


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
    payload: dict[str, object] = {
        "v": 1,
        "op": "explain",
        "scheduler": args.scheduler,
        **payload_of(path, args.tail, args.user),
    }
    store = store_path(args.db)
    if args.socket is None and os.access(store, os.R_OK):
        return _from_store(store, payload, *identity(args.user))
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
    store: Path, payload: Mapping[str, object], uid: int, user: str
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


def _print(record: Mapping[str, object], path: Path, *, show_diff: bool) -> None:
    from advisor.cli.decision_text import print_decision, print_rewrite_diff

    print_decision(record)
    rewrite = record["rewrite"]
    if isinstance(rewrite, Mapping) and (show_diff or rewrite):
        print()
        print_rewrite_diff(path, rewrite)
