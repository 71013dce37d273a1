"""``advisor lab characterise``: find an application's phases and their memory streams."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from advisor.cli.arguments import add_subject
from advisor.cli.streams import complain

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.instruments.characterise_runs import TimedRun, TracedCommand, TracedRun
    from advisor.ranking.streams import Characterisation

METHODS = ("auto", "cc", "valgrind", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.usage = (
        "advisor lab characterise [options] -- COMMAND [ARG ...]\n"
        "       advisor lab characterise --input FILE [options]"
    )
    parser.epilog = (
        "COMMAND runs twice: as it is, for its times, and traced, for its memory streams. For the "
        "second run build it with advisor cc, or install valgrind. The result is stored for "
        "advisor lab rank; without write access to the store it is sent to the daemon."
    )
    add_subject(parser, "this machine's node type")
    parser.add_argument("--threads", type=int, metavar="N", help="threads to use (default: all)")
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="timed runs; the median one counts (default: 1)",
    )
    parser.add_argument(
        "--trace",
        choices=METHODS,
        default="auto",
        help="how to find memory streams (default: auto)",
    )
    parser.add_argument(
        "--min-weight",
        default="5%",
        metavar="PCT",
        help="leave out phases shorter than this share (default: 5%%)",
    )
    parser.add_argument(
        "--limit", metavar="TIME", help="stop the traced run after this time, like 10m"
    )
    parser.add_argument("--output", metavar="FILE", help="write the phases as YAML")
    parser.add_argument(
        "--input", metavar="FILE", help="store the phases of such a file; run nothing"
    )
    parser.set_defaults(takes_tail=True)


def run(args: argparse.Namespace) -> int:
    """Characterise the command; its own exit code is ours if it fails, 128 + N for a signal."""
    from pathlib import Path

    from advisor.errors import UsageError

    if args.input and args.tail:
        raise UsageError("give --input or, after --, a command, not both")
    if args.input:
        return _store_file(args, Path(args.input))
    if not args.tail:
        raise UsageError("nothing to run", hint="advisor lab characterise [options] -- COMMAND")
    if args.repeat < 1 or (args.threads is not None and args.threads < 1):
        raise UsageError("--repeat and --threads must be at least 1")
    with _ended_by_signals():
        return _characterise(args)


def _characterise(args: argparse.Namespace) -> int:
    from pathlib import Path

    from advisor.cli import characterise_output as output
    from advisor.cli.output import ErrorAnswer, print_json
    from advisor.core.recognise import clean_name
    from advisor.core.units import parse_duration_s, parse_fraction
    from advisor.errors import UsageError
    from advisor.instruments.characterise import DEFAULT_L1, cache_bytes, characterisation, join
    from advisor.instruments.characterise_runs import (
        TracedCommand,
        busy_note,
        input_file,
        timed_run,
    )
    from advisor.meters.process import exit_text
    from advisor.ranking.files import write_phases
    from advisor.schedulers.this_machine import local_node_type
    from advisor.store.seen import store_seen
    from advisor.training.site_context import load_known
    from advisor.training.training_job import TrainingSubject, understand

    try:
        min_weight = parse_fraction(args.min_weight)
        limit_s = parse_duration_s(args.limit) if args.limit else None
    except ValueError as error:
        raise UsageError(str(error)) from error
    site_context = load_known(store_seen(args.db))
    training_subject = TrainingSubject(
        command=tuple(args.tail),
        application=args.application or "",
        workload=args.workload or "",
        node_type=args.node_type or "",
        fallback=clean_name(Path(args.tail[0]).name) or "command",
    )
    subject = understand(
        training_subject, scheduler="local", site=site_context.site, this_machine=local_node_type()
    )
    stdin, start = input_file()
    command = TracedCommand(tuple(args.tail), args.threads or 0, stdin, start, args.json)
    note = busy_note(command.cpus)
    runs = [timed_run(command)]
    while len(runs) < args.repeat and runs[-1].exit_code == 0:
        runs.append(timed_run(command))
    runs.sort(key=lambda r: (r.exit_code == 0, r.time_s))  # one that failed counts
    timed = runs[0] if runs[0].exit_code else runs[(len(runs) - 1) // 2]
    if timed.exit_code:
        code = timed.exit_code if timed.exit_code > 0 else 128 - timed.exit_code
        problem = f"{args.tail[0]}: {exit_text(timed.exit_code)}; nothing is stored"
        if args.json:
            print_json("error", ErrorAnswer(problem, "", code))
        complain(problem)
        return code
    if not args.json:
        print(output.timed_line(timed, note), flush=True)
    traced, why = _trace(command, timed, args.trace, limit_s)
    l1_bytes = cache_bytes(1) or DEFAULT_L1
    phases = join(timed, traced, min_weight=min_weight, l1_bytes=l1_bytes)
    result = characterisation(
        phases, timed, traced, subject.application, subject.workload, subject.node_type.name
    )
    if args.output:
        write_phases(Path(args.output), result)
    good, stored = True, f"not stored: {why}"
    if traced is not None:
        good, stored = _store(args, result)
        if not good and args.output:
            good, stored = True, f"{stored}; the phases are in {args.output}"
        elif not good:
            stored += f"; {_keep_in_own_folder(result)}"
    if args.json:
        answer = output.CharacteriseAnswer(
            characterisation=result,
            trace=output.trace_of(traced, why),
            l1_bytes=l1_bytes,
            remainder_s=max(0.0, timed.time_s - sum(p.time_s for p in phases)),
            phases=output.shown_phases(result, timed, phases),
            stored=stored,
            note=note,
        )
        print_json("characterise", answer)
    else:
        print(output.traced_line(timed, traced, why))
        output.print_phases(timed, phases, result.io)
        print(f"\n{result.application} / {result.workload} on {result.node_type}: {stored}")
    return 0 if good else 1


def _trace(
    command: TracedCommand, timed: TimedRun, method: str, limit_s: float | None
) -> tuple[TracedRun | None, str]:
    """Run traced by the chosen method; return why not where there is no run."""
    from advisor.errors import InputError
    from advisor.instruments import valgrind
    from advisor.instruments.characterise_runs import twin_of, twin_run, valgrind_run

    programs = {p.exe for p in timed.processes if p.phases} or {p.exe for p in timed.processes}
    twins = [twin_of(exe) for exe in programs if twin_of(exe).is_file()]
    old = [t for t in twins if t.stat().st_mtime < t.with_suffix("").stat().st_mtime]
    if method == "none":
        return None, "no trace (--trace none)"
    if method == "cc" and not twins:
        raise InputError(
            f"there is no traced twin of {command.argv[0]}", hint="build it with advisor cc"
        )
    if twins and method in ("auto", "cc"):
        if old:
            raise InputError(
                f"{old[0]} is older than its program", hint="build both with advisor cc"
            )
        return twin_run(command, limit_s=limit_s), ""
    if method == "valgrind" or valgrind.installed():
        without_regions = not any(p.phases for p in timed.processes)
        return valgrind_run(command, outside=without_regions, limit_s=limit_s), ""
    return None, f"to find streams, build {command.argv[0]} with advisor cc or install valgrind"


def _store(args: argparse.Namespace, app: Characterisation) -> tuple[bool, str]:
    """Store a characterisation, or send it to the daemon; return whether, and where or why not."""
    from advisor import paths
    from advisor.core.policy import JobFacts
    from advisor.database import is_writable
    from advisor.errors import AdvisorError, StoreError
    from advisor.schedulers.this_machine import local_node_type
    from advisor.training.result_store import results_here
    from advisor.training.site_context import load_known
    from advisor.training.training_job import current_user

    path, user = paths.store_path(args.db), current_user()
    try:
        if args.db and path.exists() and not is_writable(path):
            raise StoreError(f"{path} may not be written by {user}")
        policy, _ = load_known(path).policy.for_job(
            JobFacts.measured(
                user=user,
                account="",
                application=app.application,
                workload=app.workload,
                node_type=app.node_type,
            )
        )
        results = results_here(args.db, user=user, trust=policy.training.trust)
        try:
            machine = local_node_type()
            if app.node_type == machine.name:
                results.know(machine)
            return True, results.characterise(app)
        finally:
            results.close()
    except AdvisorError as error:
        return False, f"not stored: {error}"


def _keep_in_own_folder(app: Characterisation) -> str:
    """Keep what could not be stored among the user's own files; say where, or how to do that."""
    from advisor import paths
    from advisor.errors import InputError
    from advisor.ranking.files import write_phases

    name = "".join(c if c.isalnum() else "-" for c in f"{app.application}-{app.workload}")
    file = paths.state_dir() / "phases" / f"{name[:100]}.yaml"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_phases(file, app)
    except (OSError, InputError):
        return "--output FILE would have kept the phases, for advisor lab characterise --input FILE"
    return f"the phases are kept: advisor lab characterise --input {file}"


def _store_file(args: argparse.Namespace, file: Path) -> int:
    """Store a phase file, under other names if they are given."""
    from dataclasses import replace

    from advisor.cli.characterise_output import StoredPhases
    from advisor.cli.output import print_json
    from advisor.errors import UsageError
    from advisor.ranking.files import read_phases

    app = read_phases(file)
    app = replace(
        app,
        application=args.application or app.application,
        workload=args.workload or app.workload,
        node_type=args.node_type or app.node_type,
    )
    if not app.node_type:
        raise UsageError(f"{file} does not say where it was measured", hint="give --node-type")
    good, stored = _store(args, app)
    if args.json:
        print_json("characterise", StoredPhases(app, stored))
    else:
        print(f"{app.application} / {app.workload} on {app.node_type}: {stored}")
    return 0 if good else 1


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """While it lasts, SIGTERM and SIGHUP end the command too and leave nothing behind."""
    import signal
    import threading

    former_handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            former_handlers[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)
