"""``advisor train``: measure an application with a low-cost sweep, fit and confirm its model."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from advisor.cli.arguments import add_rate_arguments, add_subject, rate_rule
from advisor.core.units import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advisor.cli.train_experiment import AdoptedSweep
    from advisor.core.policy import Policy
    from advisor.training.outcome import SweepOutcome
    from advisor.training.planning import SweepWish
    from advisor.training.result_store import DaemonResults, LeftResults, LocalResults
    from advisor.training.site_context import SiteContext
    from advisor.training.state import SweepState


_PLAIN = (
    "application",
    "workload",
    "scheduler",
    "nodes",
    "samples",
    "design",
    "repeat_baseline",
    "model",
    "meter",
    "complete",
)
"""Arguments that a wish takes as they are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.usage = (
        "advisor train SCRIPT [options] [-- ARG ...]\n"
        "       advisor train EXPERIMENT.ini [options]  (HPCProbe's experiment file)\n"
        "       advisor train APP [options] -- COMMAND [ARG ...]\n"
        "       advisor train --resume [ID] | --stop ID"
    )
    add = parser.add_argument
    add(
        "subject",
        nargs="?",
        metavar="SCRIPT|APP",
        help="the job script, an experiment file, or the name of the application that COMMAND is",
    )
    add_subject(parser, "where to train (default: where the job would run)")
    add(
        "--scheduler",
        metavar="SCHEDULER",
        help="slurm, pbs or local (default: the one this machine has)",
    )
    add("--samples", type=int, metavar="N", help="number of runs (default: the policy's)")
    add(
        "--design",
        choices=("adaptive", "uniform", "random", "lhs", "sequential"),
        help="how runs are chosen; adaptive and sequential choose each run after the ones before "
        "(default: adaptive; uniform with --sizes, with an experiment file, and for fewer than "
        "5 runs or configurations)",
    )
    add(
        "--budget",
        metavar="RUNS|HOURS",
        help="the most the sweep may take, those that confirm included: 8 runs, or 0.5h "
        "node-hours (default: the policy's)",
    )
    add("--nodes", metavar="N", help=argparse.SUPPRESS)
    add("--threads", metavar="N,N", help="threads per node to try, like 8,16,28")
    add("--freqs", metavar="FREQ,FREQ", help="frequency caps to try, like 1.9GHz,2.2GHz")
    add(
        "--sizes",
        metavar="NAME=N,N,N",
        help="measure the job at three or more sizes, like n=1e6,2e6,4e6: all runs at the largest, "
        "three at each other",
    )
    add(
        "--repeat-baseline",
        type=int,
        default=0,
        metavar="N",
        help="repeat the run of the job as written N times (default: 0)",
    )
    add("--estimate", metavar="TIME", help="the time of one run as written, like 10m")
    add(
        "--limit", metavar="TIME", help="stop a run after this time (default: the job's time limit)"
    )
    add("--model", default="auto", metavar="NAME", help="the model to fit (default: auto)")
    add(
        "--meter",
        default="auto",
        metavar="NAME",
        help="local only: auto, none or a meter's name (default: auto)",
    )
    add(
        "--options",
        "--sbatch",
        "--qsub",
        metavar="OPTIONS",
        default="",
        help="more options for the job, as for sbatch or qsub, like '-A climate'",
    )
    add(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="folder for the sweep's files; the nodes must see it",
    )
    add_rate_arguments(parser)
    add(
        "--complete",
        action="store_true",
        help="make every run to its end (default: most end once their time is known)",
    )
    add("--yes", "-y", action="store_true", help="do not ask")
    add("--dry-run", action="store_true", help="show plan and cost, run nothing")
    add(
        "--resume", nargs="?", const="", metavar="ID", help="continue a sweep (default: the latest)"
    )
    add("--detach", action="store_true", help="run in the background, even after you log out")
    # The daemon's own sweeps: its site and policy count, and the results are for it, whatever store
    # the user has.
    add("--for-daemon", action="store_true", help=argparse.SUPPRESS)
    add("--stop", metavar="ID", help="stop a sweep; its finished runs are kept")
    parser.set_defaults(takes_tail=True)


def run(args: argparse.Namespace) -> int:
    """Plan, show the cost, ask, run, fit, confirm, and say what came out."""
    from advisor import paths
    from advisor.cli.train_experiment import adopted
    from advisor.cli.train_sizes import sized_sweeps
    from advisor.errors import UsageError
    from advisor.service.scopes import take_usual_priority
    from advisor.store.seen import store_seen
    from advisor.training.site_context import load_known

    if args.for_daemon:
        take_usual_priority()
    root = (args.work_dir or paths.state_dir() / "sweeps").absolute()
    if args.stop:
        return _stop(args, root)
    store_path = store_seen(args.db, of_daemon=args.for_daemon)
    site_context = load_known(store_path)
    if args.resume is not None:
        return _finish(args, _resume(args, root), site_context, root)
    sweeps = sized_sweeps(args, root, site_context) if args.sizes else adopted(args, root)
    experiment = sweeps[0].experiment
    if experiment is not None and experiment.reget:
        return _read_again(args, sweeps)
    if len(sweeps) > 1 and args.detach and not args.sizes:
        raise UsageError(
            f"--detach takes one sweep, this file has {len(sweeps)}",
            hint="run it without --detach inside nohup or tmux",
        )
    return _finish(args, _begin(args, sweeps, site_context, root, store_path), site_context, root)


def _finish(
    args: argparse.Namespace, begun: Sequence[SweepState], site_context: SiteContext, root: Path
) -> int:
    """Run sweeps one after the other, or leave the one to another process; print what came out."""
    from advisor.cli import train_output as output
    from advisor.cli.output import print_json
    from advisor.training.progress import spent_in_series

    if args.detach and begun:
        return _detach(args, begun[0], root)
    answers = []
    spent = spent_in_series(root, begun)
    for state in begun:
        outcome = _execute(args, state, site_context, spent)
        if outcome is None:
            return 130
        answers.append(output.outcome_answer(state, outcome))
        if state.settings.size is not None:
            spent += outcome.spent.node_hours  # of the series' one budget
    if args.json and answers:
        print_json("train", answers[0] if len(answers) == 1 else output.SweepsAnswer(answers))
    return 0


def _read_again(args: argparse.Namespace, sweeps: Sequence[AdoptedSweep]) -> int:
    """Read the outputs of earlier sweeps again and say where the summaries are."""
    from advisor.cli.output import print_json
    from advisor.cli.train_experiment import read_again
    from advisor.cli.train_output import ReadAgainAnswer, SweepReadAgain

    readings = [read_again(sweep) for sweep in sweeps]
    if args.json:
        print_json("train", ReadAgainAnswer([SweepReadAgain(**r) for r in readings]))
        return 0
    for reading in readings:
        print(
            f"sweep {reading['id']}: {format_count(reading['runs'], 'run')} read again; summary: "
            f"{reading['summary']}"
        )
        for problem in reading["problems"]:
            print(f"  {problem}")
    return 0


def _stop(args: argparse.Namespace, root: Path) -> int:
    from advisor.cli.output import print_json
    from advisor.cli.train_output import StoppingAnswer
    from advisor.training.progress import stop

    stop(root / args.stop)
    if args.json:
        print_json("train", StoppingAnswer(args.stop))
    else:
        print(f"sweep {args.stop} is stopping; resume it with: advisor train --resume {args.stop}")
    return 0


def _detach(args: argparse.Namespace, state: SweepState, root: Path) -> int:
    """Let another process run the sweep, and say how to look after it."""
    from advisor.cli.output import print_json
    from advisor.cli.train_output import DetachedAnswer
    from advisor.training.progress import LOG, in_background

    pid = in_background(state.id, root, ["--db", args.db] if args.db else [])
    log = state.folder / LOG
    if args.json:
        print_json("train", DetachedAnswer(state.id, str(state.folder), pid))
    else:
        print(f"sweep {state.id} runs in the background and prints to {log}")
        print(f"watch it with: advisor tui; stop it with: advisor train --stop {state.id}")
    return 0


def _stream(args: argparse.Namespace) -> TextIO:
    """Where people's lines go: stdout, unless that must hold one JSON object only."""
    return sys.stderr if args.json else sys.stdout


def _begin(
    args: argparse.Namespace,
    sweeps: Sequence[AdoptedSweep],
    site_context: SiteContext,
    root: Path,
    store_path: Path,
) -> list[SweepState]:
    """Plan what is asked for, one sweep or several, and ask for consent; none for a dry run."""
    from advisor.cli import train_output as output
    from advisor.cli.output import print_json
    from advisor.training import state as states
    from advisor.training.planning import check_series, plan_sweep
    from advisor.views.training import plan_lines, series_lines

    out = _stream(args)
    continued_sweeps: list[SweepState] = []
    plans = []
    for sweep in sweeps:
        earlier = sweep.earlier
        if earlier is not None:
            if earlier.state in ("confirmed", "fitted"):
                print(f"sweep {earlier.id} is finished already: left out", file=out)
            else:
                print(f"sweep {earlier.id} is continued", file=out)
                continued_sweeps.append(earlier)
            continue
        plan = plan_sweep(_wish(sweep), site_context, root, store_path)
        for warning in plan.warnings:
            print(f"advisor: {warning}", file=sys.stderr)
        if not (args.json and args.dry_run):
            for line in plan_lines(plan, listing=args.dry_run):
                print(line, file=out)
        plan.check_budget()
        plans.append(plan)
    if args.sizes:
        check_series(plans)
        print(*series_lines(plans), sep="\n", file=out)
    if args.dry_run:
        if args.json and plans:
            answers = [output.plan_answer(plan) for plan in plans]
            print_json("train", answers[0] if len(answers) == 1 else output.SweepsAnswer(answers))
        return []
    if not args.yes:
        _ask(out)
    for plan in plans:
        results = _results(args, plan.state, plan.policy)  # fails now, not after the sweep
        plan.state.store = results.store
        results.close()
    for plan in plans:
        states.begin(plan.state)
    return [*continued_sweeps, *(plan.state for plan in plans)]


def _wish(sweep: AdoptedSweep) -> SweepWish:
    """Return what the command line asks for. Raises UsageError for a value that makes no sense."""
    from advisor.core.units import parse_freq_khz
    from advisor.training.planning import Budget, SweepWish

    args = sweep.args
    return SweepWish(
        **{name: getattr(args, name) for name in _PLAIN},
        subject=args.subject or "",
        command=tuple(args.tail),
        budget=Budget.read(args.budget),
        node_type=args.node_type or "",
        threads=_list("--threads", args.threads, int),
        freqs_khz=_list("--freqs", args.freqs, parse_freq_khz),
        estimate_s=_seconds("--estimate", args.estimate),
        limit_s=_seconds("--limit", args.limit),
        options=_words(args.options),
        experiment=sweep.experiment,
        size=sweep.size,
        rate=rate_rule(args),
    )


def _resume(args: argparse.Namespace, root: Path) -> list[SweepState]:
    """Return the sweep to go on with, with what is left of its series."""
    from advisor.errors import RefusedError
    from advisor.training import state as states

    if args.resume and not (root / args.resume / "sweep.json").is_file():
        raise RefusedError(f"there is no sweep {args.resume} under {root}")
    state = (
        states.load(root / args.resume)
        if args.resume
        else states.latest(root, args.application or args.subject or "")
    )
    if state is None:
        raise RefusedError(f"there is no unfinished sweep under {root}")
    if state.state in ("confirmed", "fitted"):
        raise RefusedError(f"sweep {state.id} is finished ({state.detail or state.state})")
    return states.series_of(root, state)


def _ask(out: TextIO) -> None:
    """Have the cost agreed to. Raises RefusedError for a no, or when nobody can be asked."""
    from advisor.errors import RefusedError

    if not sys.stdin.isatty():
        raise RefusedError("nothing runs without your consent", hint="add --yes")
    print("Run it? [y/N] ", end="", file=out, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing ran")


def _results(
    args: argparse.Namespace, state: SweepState, policy: Policy
) -> LocalResults | DaemonResults | LeftResults:
    """Return where the sweep's results go. Raises RefusedError when they have nowhere to go."""
    from advisor import paths
    from advisor.training.result_store import results_here

    user, trust = state.settings.user, policy.training.trust
    usual = (paths.state_dir() / "sweeps").absolute()  # a sweep in the background names it, too
    folder = args.work_dir.absolute() if args.work_dir else usual
    folder = None if folder == usual else folder
    return results_here(args.db, user=user, trust=trust, folder=folder, of_daemon=args.for_daemon)


def _execute(
    args: argparse.Namespace, state: SweepState, site_context: SiteContext, spent: float
) -> SweepOutcome | None:
    """Run the sweep, or the rest of it, and show what came out; return it.

    ``spent`` are node-hours that its budget has less. None where the user stopped it.
    """
    from advisor.cli import train_output as output
    from advisor.schedulers.choose import create
    from advisor.training import state as states
    from advisor.training.planning import within_budget
    from advisor.training.progress import Recorder
    from advisor.training.sweep import Sweep
    from advisor.views.training import title

    policy = site_context.policy_for(state.subject, account=state.settings.account)
    policy = within_budget(policy, state.settings.budget_node_hours)
    remaining_node_hours = policy.training.budget_node_hours - spent
    policy = replace(
        policy, training=replace(policy.training, budget_node_hours=remaining_node_hours)
    )
    scheduler = create(state.settings.scheduler)
    results = _results(args, state, policy)
    state.store = results.store or state.store
    out = _stream(args)
    try:
        with states.locked(state), output.ProgressLines(out) as progress:
            progress.say(f"sweep {state.id} of {title(state)}; results go to {results.description}")
            results.know(state.subject.node_type)
            if results.by_hand and scheduler.this_machine() is not None:  # no job says so
                progress.say(results.by_hand)
            if why := _library(state):
                progress.say(f"all runs are complete: {why}")
            elif why := _earlier(state):
                progress.say(f"the job as written runs to its end: {why}")
            sweep = Sweep(
                state, scheduler, results, policy, site_context.site, Recorder(state, progress.show)
            )
            outcome = sweep.run()
            no_law = results.no_law(state.subject.application, state.subject.workload)
    except KeyboardInterrupt:
        print(
            f"advisor: stopped; resume it with: advisor train --resume {state.id}", file=sys.stderr
        )
        return None
    finally:
        results.close()
    if not args.json:
        output.show_outcome(state, outcome, policy, out, no_law)
        if state.settings.after:
            print(f"HPCProbe's summary: {state.folder / 'summary.yml'}", file=out)
    return outcome


def _library(state: SweepState) -> str:
    """Make the library that runs are watched with, in the sweep's folder; return why not."""
    from advisor.drafts import write_whole
    from advisor.errors import AdvisorError
    from advisor.instruments.characterise_runs import timing_library

    place = state.preload
    if not state.settings.within or place.is_file():
        return ""
    try:
        place.parent.mkdir(exist_ok=True)
        write_whole(place, timing_library().read_bytes())
    except AdvisorError as error:
        return error.message
    except OSError as error:
        return f"{place.parent} cannot be written: {error.strerror}"
    return ""


def _earlier(state: SweepState) -> str:
    """Put the complete run that a sweep borrows into its folder; return why not."""
    from advisor.errors import InputError
    from advisor.phases.complete import EARLIER
    from advisor.training import state as states
    from advisor.training.earlier_run import lend

    earlier = state.settings.earlier
    if not earlier or (state.preload.parent / EARLIER).is_dir():
        return ""
    try:
        lend(states.load(state.folder.parent / earlier), state)
    except InputError as error:
        return error.message
    return ""


# -- values -----------------------------------------------------------------------------------


def _list(option: str, text: str | None, parse: Callable[[str], int]) -> tuple[int, ...]:
    from advisor.errors import UsageError

    try:
        return tuple(sorted({parse(word) for word in (text or "").split(",") if word.strip()}))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _seconds(option: str, text: str | None) -> float | None:
    from advisor.core.units import parse_duration_s
    from advisor.errors import UsageError

    if text is None:
        return None
    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{option} must be more than 0")
    return seconds


def _words(text: str) -> tuple[str, ...]:
    import shlex

    from advisor.errors import UsageError

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--options: {error}") from error
