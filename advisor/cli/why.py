"""``advisor why JOBID``: what was decided for a job, and how it came out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from advisor import paths
from advisor.cli.output import print_json, print_table
from advisor.core.units import format_energy, format_freq
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.loop.why import Answer, Compared
    from advisor.store.reader import Reader
    from advisor.store.records import Outcome

_VERDICTS = {
    "as-promised": "as promised",
    "better": "better than promised",
    "worse": "worse than promised",
    "unknown": "cannot be told",
    "left-alone": "nothing was promised: the job ran as you wrote it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor why`` takes."""
    parser.description = (
        "Say what was decided for a job and why, what was promised, and what came out. Reads the "
        "store where one can be read, else the job's own stamp in the scheduler's accounting."
    )
    parser.add_argument("job", metavar="JOBID", help="like 4711, or 4711_3 for a task of an array")
    parser.add_argument("--scheduler", help="whose job (default: slurm if it is)")


def run(args: argparse.Namespace) -> int:
    """Find out and print."""
    from advisor.loop.why import why
    from advisor.schedulers.registry import create

    scheduler = create(args.scheduler or "slurm")
    with ExitStack() as stack:
        reader = _reader(args)
        if reader is not None:
            stack.enter_context(reader)
        answer = why(args.job, reader, scheduler)
    if args.json:
        print_json("why", answer.to_dict())
    else:
        _print(answer)
    return 0


def _reader(args: argparse.Namespace) -> Reader | None:
    """Open the store if there is one to read; one that was named must be readable."""
    from advisor.store.reader import Reader

    path = paths.store_path(args.db)
    if args.db is None and not os.access(path, os.R_OK):
        return None
    try:
        return Reader(path)
    except AdvisorError as error:
        if args.db is not None:
            raise
        print(f"advisor: {error}; asking the scheduler instead", file=sys.stderr)
        return None


def _print(answer: Answer) -> None:
    _print_job(answer)
    for note in answer.notes:
        print(f"note         {note}")
    if answer.tasks:
        print()
        rows = [[o.job_id, o.state, _VERDICTS.get(o.verdict, o.verdict)] for o in answer.tasks]
        print_table(["task", "state", "came out"], rows)
    record = answer.decision
    if record is None:
        print(
            "decision     none is known: the job did not pass the advisor's hook, or its stamp "
            "was lost"
        )
        return
    _print_decision(answer, record)
    _print_comparison(answer)
    print("\nwhy")
    for text in _explanation(record):
        print(f"  - {text}")
    if _changed(record):
        print("\nnext time: ADVISOR=off sbatch ... leaves one job alone, a line #ADVISOR off a "
              "script, advisor off all of yours")  # fmt: skip


def _print_job(answer: Answer) -> None:
    o = answer.outcome
    print(f"job          {answer.job_id}  {answer.state}".rstrip())
    if o is not None:
        where = f"{o.nodes} node{'s' if o.nodes != 1 else ''} ({o.node_list})"
        partition = o.record.get("partition")
        print(f"ran          {where}{f' of partition {partition}' if partition else ''}, "
              f"user {o.user}{f', account {o.account}' if o.account else ''}")  # fmt: skip
        if not answer.collected and o.decision_id:
            print("             not collected yet: this is the accounting as it is now")
    elif answer.state:
        print("             it has not ended: nothing to compare yet")


def _print_decision(answer: Answer, record: Mapping[str, Any]) -> None:
    from advisor.cli.decision_text import configuration_text, effects_text

    print(f"decision     {record.get('decision')}  {_trust(answer)}")
    print(f"application  {record.get('application') or '(not recognised)'}   "
          f"workload {record.get('workload') or '-'}")  # fmt: skip
    print(f"policy       version {record.get('policy_version')}, mode {record.get('mode')}, "
          f"goal {record.get('goal')}")  # fmt: skip
    baseline, chosen = record.get("baseline"), record.get("chosen")
    predicted = record.get("predicted")
    if baseline:
        print(f"asked for    {configuration_text(baseline)}")
    if chosen:
        took = "took         " if _changed(record) else "would take   "
        print(f"{took}{configuration_text(chosen)}")
        if predicted:
            print(f"promised     {effects_text(predicted)}")
    rewrite = record.get("rewrite")
    if rewrite:
        print("rewritten    " + "  ".join(f"--{k}={v}" for k, v in rewrite.items()))
    elif not _changed(record):
        print("rewritten    nothing")


def _trust(answer: Answer) -> str:
    if answer.trust == "unverified":
        return f"(not trusted: {answer.trust_why})"
    return "(by its stamp)" if answer.trust == "stamped" else ""


def _changed(record: Mapping[str, Any]) -> bool:
    from advisor.loop.match import changed

    return changed(record)


def _print_comparison(answer: Answer) -> None:
    o = answer.outcome
    if o is None:
        return
    compared = answer.compared()
    print()
    if compared:
        rows = [["", "promised", "interval", "measured", ""]]
        rows += [_row(name, c) for name, c in compared.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            cells = [c.ljust(w) for c, w in zip(row, widths, strict=False)]
            print("  ".join([*cells, row[4]]).rstrip())
    else:
        energy = format_energy(o.energy_j) if o.energy_j else _no_energy(o)
        time = _duration_like(o.time_s)(o.time_s) if o.time_s is not None else "-"
        print(f"measured     time {time}, energy {energy}")
    requested, observed = o.freq_requested_khz, o.freq_observed_khz
    if requested or observed:
        seen = f"{observed / 1e6:.2f} GHz observed" if observed else "observed: not known"
        cap = f"at most {format_freq(requested)}" if requested else "no cap"
        print(f"\nfrequency    {cap} requested, {seen}")
    if o.decision_id:
        notes = "; ".join(str(n) for n in o.record.get("notes") or ())
        print(f"came out     {_VERDICTS.get(o.verdict, o.verdict)}{f' ({notes})' if notes else ''}")


def _no_energy(o: Outcome) -> str:
    why = (o.record.get("ran") or {}).get("energy_note")
    return f"not known{f' ({why})' if why else ''}"


def _row(name: str, c: Compared) -> list[str]:
    if name == "time":
        form = _duration_like(c.promised.value)
    else:
        form = format_energy
    interval = f"{form(c.promised.lo)} to {form(c.promised.hi)}"
    measured = form(c.measured) if c.measured is not None else "-"
    return [name, form(c.promised.value), interval, measured, c.words]


def _duration_like(seconds: float) -> Callable[[float], str]:
    """Return how to print times near one: three digits, all in the same unit."""
    unit, scale = ("s", 1.0) if seconds < 120 else ("min", 60.0)
    if seconds >= 7200:
        unit, scale = "h", 3600.0
    return lambda value: f"{value / scale:.3g} {unit}"


def _explanation(record: Mapping[str, Any]) -> list[str]:
    from advisor.cli.decision_text import explanation

    return explanation(record)
