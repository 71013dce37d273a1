"""``advisor serve``: the daemon that answers the hooks."""

from __future__ import annotations

import argparse
import asyncio
import logging
import logging.handlers
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.cli.arguments import span_argument
from advisor.errors import AdvisorError, MovedStoreError, OlderStoreError, StoreError, UsageError
from advisor.interpreter import own_environment, own_python
from advisor.paths import beside, config_dir, socket_path, store_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own arguments."""
    parser.add_argument(
        "--socket", metavar="FILE", help="the UNIX socket to listen on (or ADVISOR_SOCKET)"
    )
    parser.add_argument(
        "--trust-user",
        action="append",
        default=[],
        metavar="USER",
        help="believe this user (the scheduler's), like root, when it names a job's owner; can be "
        "repeated",
    )
    parser.add_argument(
        "--admin-user",
        action="append",
        default=[],
        metavar="USER",
        help="show this user everybody's jobs, like root; can be repeated",
    )
    parser.add_argument(
        "--admin-group",
        action="append",
        default=[],
        metavar="GROUP",
        help="show the members of this group everybody's jobs; can be repeated",
    )
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="answer from a published copy: store no decisions, accept no runs",
    )
    parser.add_argument(
        "--refresh",
        type=span_argument,
        default="1s",
        metavar="TIME",
        help="the time between two looks at the store (default: 1s)",
    )
    parser.add_argument(
        "--watch",
        type=span_argument,
        default="15s",
        metavar="TIME",
        help="the time between two readings of the scheduler's nodes and limits (default: 15s). 0: "
        "never; then no job goes to another node type unless the policy says "
        "node_type_change: allow",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="log nothing below this level (default: info)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until stopped."""
    from advisor.service.handlers import Handlers
    from advisor.service.limits import take_descriptors
    from advisor.service.peer import Users, admins, trusted_uids
    from advisor.service.server import Server
    from advisor.service.snapshot import StoreSource
    from advisor.service.spool import Spool
    from advisor.service.watch import LONGEST_S, Watch
    from advisor.store.journal import Journal

    if args.refresh <= 0:
        raise UsageError("--refresh must be above 0 seconds")
    if not 0 <= args.watch <= LONGEST_S:
        raise UsageError(f"--watch takes 0 to {LONGEST_S:g} seconds")
    users = Users(trusted_uids(args.trust_user), *admins(args.admin_user, args.admin_group))
    take_descriptors()
    store = store_path(args.db, own=True).absolute()
    socket = socket_path(args.socket).absolute()
    config = config_dir(args.config_dir).absolute() if args.config_dir else None
    writable = not args.read_only and not _published(store)
    if writable:
        _prepare(store)
    source = StoreSource(store)
    handlers = Handlers(
        source,
        users,
        Journal(store) if writable else None,
        Spool(_spool_folder(store), store, socket, config) if writable else None,
        Watch(source, args.watch) if args.watch else None,
    )
    server = Server(socket, handlers, args.refresh)
    os.chdir("/")  # what looks for a name in the folder it is in finds nothing of a user's there
    with _logging(args.log_level):
        asyncio.run(server.run())
    return 0


LOG_LINES = 10_000
"""Lines that wait for a reader of the log that hangs; what comes beyond them is dropped."""
LOG_ENDS_S = 0.4
"""Seconds in which the last lines are written. A reader that hangs holds nothing up for longer."""


class _Waiting(logging.handlers.QueueHandler):
    """Hands lines over to the thread that writes them."""

    queue: queue.Queue[logging.LogRecord | None]

    def enqueue(self, record: logging.LogRecord) -> None:
        """Hand one over, unless too many wait already."""
        if self.queue.qsize() < LOG_LINES:
            self.queue.put_nowait(record)


@contextmanager
def _logging(level: str) -> Iterator[None]:
    """Log to stderr from a thread of its own: a reader of the log that hangs delays no answer."""
    stream = logging.StreamHandler(sys.stderr)
    form = "%(asctime)s level=%(levelname)s %(message)s"
    stream.setFormatter(logging.Formatter(form, datefmt="%Y-%m-%dT%H:%M:%S%z"))
    lines: queue.Queue[logging.LogRecord | None] = queue.Queue()
    from advisor.service.quiet import Quiet

    root = logging.getLogger()
    handler = _Waiting(lines)
    handler.addFilter(Quiet())
    root.setLevel(level.upper())
    root.addHandler(handler)

    def write() -> None:
        while (record := lines.get()) is not None:
            stream.handle(record)

    writer = threading.Thread(target=write, name="log", daemon=True)
    writer.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        lines.put(None)
        writer.join(LOG_ENDS_S)
        if writer.is_alive():  # it holds the lock of stderr, which an orderly end would wait for
            os._exit(0 if sys.exc_info()[0] is None else 1)


def _published(store: Path) -> bool:
    """Tell whether there is a published copy, which is only read whatever was asked for."""
    from advisor.store.connection import is_copy

    try:
        copy = is_copy(store)
    except StoreError:
        return False  # none yet, or a broken one, which the log names later
    if copy:
        logging.getLogger("advisor.serve").warning(
            "event=only-reads store=%s reason=published-copy hint='use serve --read-only; where "
            "the store is lost: advisor store restore COPY --db STORE'",
            store,
        )
    return copy


def _prepare(store: Path) -> None:
    """Make an empty store when there is none; have an older one brought up to date.

    That may take long, so a process of its own does it: meanwhile the daemon answers, and jobs run
    as they are written. A broken store is left for the log to name.
    """
    log = logging.getLogger("advisor.serve")
    try:
        if not store.exists():
            from advisor.store.writer import Writer

            Writer(store).close()
        else:
            from advisor.store.reader import Reader

            Reader(store).close()
    except MovedStoreError:  # the first look follows it
        pass
    except OlderStoreError:
        child = subprocess.Popen(
            own_python("advisor.store.upgrade", str(store)),
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=own_environment(),
        )
        log.warning("event=store-older upgraded_by=%d", child.pid)
    except AdvisorError as error:
        log.error("event=no-store error=%r", str(error))


def _spool_folder(store: Path) -> Path:
    return beside(store) / "spool"
