"""``advisor train``: measure an application with a low-cost sweep, fit and confirm its model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.core.policy import Policy
    from advisor.schedulers.base import Scheduler
    from advisor.training.plan import Cost
    from advisor.training.result_store import DaemonResults, LocalResults
    from advisor.training.site_context import SiteContext
    from advisor.training.state import SweepState
    from advisor.training.training_job import TrainingJob

_SCRIPT_ENDINGS = (".sh", ".slurm", ".sbatch", ".pbs", ".job", ".bash")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.usage = (
        "advisor train SCRIPT [options] [-- ARG ...]\n"
        "       advisor train EXPERIMENT.ini [options]  (HPCProbe's experiment file)\n"
        "       advisor train APPLICATION [options] -- COMMAND [ARG ...]\n"
        "       advisor train --resume [ID] | --stop ID"
    )
    add = parser.add_argument
    add(
        "subject", nargs="?", metavar="SCRIPT|APPLICATION",
        help="the job script, an experiment file, or the name of the application that COMMAND is",
    )  # fmt: skip
    add(
        "--application",
        metavar="APPLICATION",
        help="the application's name (default: recognised)",
    )
    add("--workload", metavar="WORKLOAD", help="the name of its input or problem class")
    add(
        "--scheduler",
        metavar="SCHEDULER",
        help="slurm, pbs or local (default: the one this machine has)",
    )
    add(
        "--node-type", metavar="NODE_TYPE",
        help="where to train (default: where the job would run)",
    )  # fmt: skip
    add("--samples", type=int, metavar="N", help="number of runs (default: the policy's)")
    add(
        "--design", choices=("uniform", "random", "lhs", "sequential"), default="uniform",
        help="how runs are chosen; sequential chooses each run after the ones before (default: "
        "uniform)",
    )  # fmt: skip
    add("--nodes", metavar="N", help=argparse.SUPPRESS)
    add("--threads", metavar="N,N", help="cores per node to try, like 8,16,28")
    add("--freqs", metavar="FREQ,FREQ", help="frequency caps to try, like 1.9GHz,2.2GHz")
    add(
        "--repeat-baseline",
        type=int,
        default=0,
        metavar="N",
        help="repeat the run of the job as it is N times (default: 0)",
    )
    add("--estimate", metavar="TIME", help="the time of one run as it is, like 10m")
    add(
        "--limit", metavar="TIME", help="stop a run after this time (default: the job's time limit)"
    )
    add("--model", default="auto", metavar="NAME", help="the model to fit (default: auto)")
    add(
        "--meter", default="auto", metavar="NAME",
        help="local only: auto, none or a meter's name (default: auto)",
    )  # fmt: skip
    add(
        "--options", "--sbatch", "--qsub", metavar="OPTIONS", default="",
        help="more options for the job, as for sbatch or qsub, like '-A climate'",
    )  # fmt: skip
    add(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="folder for the sweep's files; the nodes must see it",
    )
    add("--yes", "-y", action="store_true", help="do not ask")
    add("--dry-run", action="store_true", help="show plan and cost, run nothing")
    add(
        "--resume", nargs="?", const="", metavar="ID", help="continue a sweep (default: the latest)"
    )
    add("--detach", action="store_true", help="run in the background, even after you log out")
    add("--stop", metavar="ID", help="stop a sweep; its finished runs are kept")
    parser.set_defaults(takes_tail=True)


def run(args: argparse.Namespace) -> int:
    """Plan, show the cost, ask, run, fit, confirm, and say what came out."""
    from advisor import paths
    from advisor.training.site_context import load_known

    root = (args.work_dir or paths.state_dir() / "sweeps").absolute()
    if args.stop:
        return _stop(args, root)
    known = load_known(paths.store_path(args.db))
    state = _resume(args, root) if args.resume is not None else _begin(args, known, root)
    if state is None:
        return 0
    return _detach(args, state, root) if args.detach else _execute(args, state, known)


def _stop(args: argparse.Namespace, root: Path) -> int:
    from advisor.cli.output import print_json
    from advisor.training.progress import stop

    stop(root / args.stop)
    if args.json:
        print_json("train", {"id": args.stop, "stopping": True})
    else:
        print(f"sweep {args.stop} is being stopped; go on with: advisor train --resume {args.stop}")
    return 0


def _detach(args: argparse.Namespace, state: SweepState, root: Path) -> int:
    """Let another process run the sweep, and say how to look after it."""
    from advisor.cli.output import print_json
    from advisor.training.progress import LOG, in_background

    pid = in_background(state.id, root, ["--db", args.db] if args.db else [])
    log = state.folder / LOG
    if args.json:
        print_json("train", {"id": state.id, "folder": str(state.folder), "pid": pid})
    else:
        print(f"sweep {state.id} runs in the background and prints to {log}")
        print(f"watch it with: advisor tui; stop it with: advisor train --stop {state.id}")
    return 0


def _stream(args: argparse.Namespace) -> TextIO:
    """Where people's lines go: stdout, unless that must hold one JSON object only."""
    return sys.stderr if args.json else sys.stdout


def _begin(args: argparse.Namespace, known: SiteContext, root: Path) -> SweepState | None:
    """Plan a sweep and have it agreed to; None for a dry run."""
    from advisor.cli import train_output as output
    from advisor.cli.output import print_json
    from advisor.cli.train_experiment import adopt, frequencies
    from advisor.errors import RefusedError, SchedulerError, UsageError
    from advisor.models.design import DESIGNS
    from advisor.models.sequential import SEQUENTIAL, first_runs
    from advisor.schedulers.choose import create, default
    from advisor.training import state as states
    from advisor.training.plan import axes, planned
    from advisor.training.training_job import current_user

    scheduler = create(args.scheduler) if args.scheduler else default()
    if reason := scheduler.available():
        raise SchedulerError(f"{scheduler.NAME} cannot be used: {reason}")
    experiment = adopt(args, root)
    subject = _subject(args, known, scheduler)
    if args.nodes and args.nodes != str(subject.baseline.nodes):
        raise UsageError(
            f"--nodes {args.nodes}: a job's nodes are its user's, and no sweep varies them",
            hint=f"the job asks for {subject.baseline.nodes}; train a script for each number",
        )
    policy = known.policy_for(subject)
    if policy.training.mode == "off":
        raise RefusedError("the policy allows no training here: training.mode is off")
    samples = policy.training.samples if args.samples is None else args.samples
    if samples < 1 or args.repeat_baseline < 0:
        raise UsageError("--samples must be at least 1, --repeat-baseline at least 0")
    grid = axes(
        subject,
        threads=_numbers("--threads", args.threads),
        freqs_khz=_freqs(args.freqs) or frequencies(experiment, subject.node_type),
        freq_kept=scheduler.frequency_kept(subject.node_type, subject.launcher),
    )
    grows = args.design == SEQUENTIAL
    choose = first_runs if grows else DESIGNS[args.design]
    design = choose(grid.space, samples, must_include=subject.baseline)
    settings = states.SweepSettings(
        scheduler=scheduler.NAME,
        user=current_user(),
        account=subject.request.account,
        run_limit_s=_seconds("--limit", args.limit) or subject.request.time_limit_s,
        estimate_s=_seconds("--estimate", args.estimate),
        meter=args.meter,
        model=args.model,
        design=args.design,
        most_runs=min(samples, len(grid.space)) if grows else 0,
        confirm=policy.training.confirm,
        working_folder=str(Path.cwd()),
        extra_options=_words(args.options),
    )
    state = states.new(
        root,
        subject,
        grid.space,
        settings,
        planned(
            design,
            subject.baseline,
            repeats=experiment.repeats if experiment else 1,
            repeat_baseline=args.repeat_baseline,
        ),
    )
    expected = _expected_cost(args, state)
    energy = scheduler.energy_source(state.job("design"))
    if args.json and args.dry_run:
        print_json("train", output.plan_json(state, expected, grid.notes, energy))
    else:
        output.show_plan(
            state, expected, grid.notes, energy, policy, _stream(args), listing=args.dry_run
        )
    _check_budget(expected, policy)
    if args.dry_run:
        return None
    if not args.yes:
        _ask(_stream(args))
    _sink(args, state, policy).close()  # learns now, not after the sweep, that nobody takes it
    states.begin(state)
    return state


def _subject(args: argparse.Namespace, known: SiteContext, scheduler: Scheduler) -> TrainingJob:
    """Tell a script from an application's name, and understand what is to be run."""
    from advisor.errors import InputError, UsageError
    from advisor.training.training_job import named, understand

    if not args.subject:
        raise UsageError("nothing to train", hint="advisor train SCRIPT")
    path = Path(args.subject)
    script = path if path.is_file() else None
    application = named(args.application) if args.application else ""
    if script is None:
        if "/" in args.subject or path.suffix in _SCRIPT_ENDINGS:
            raise InputError(f"there is no script {args.subject}")
        if not args.tail:
            raise UsageError(
                f"there is no script {args.subject}, so how is it run?",
                hint=f"advisor train {args.subject} -- COMMAND, or give a job script",
            )
        application = application or named(args.subject)
    return understand(
        scheduler=scheduler.NAME,
        site=known.site,
        script=script,
        arguments=args.tail if script is not None else (),
        command=() if script is not None else args.tail,
        application=application,
        workload=named(args.workload) if args.workload else "",
        node_type=args.node_type or "",
        this_machine=scheduler.this_machine(),
        extra_options=_words(args.options),
        gives_whole_nodes=scheduler.gives_whole_nodes,
    )


def _resume(args: argparse.Namespace, root: Path) -> SweepState:
    """Return the sweep to go on with."""
    from advisor.errors import RefusedError
    from advisor.training import state as states

    wanted = args.resume
    if wanted:
        if not (root / wanted / "sweep.json").is_file():
            raise RefusedError(f"there is no sweep {wanted} under {root}")
        state = states.load(root / wanted)
    else:
        found = states.latest(root, args.application or args.subject or "")
        if found is None:
            raise RefusedError(f"there is no unfinished sweep under {root}")
        state = found
    if state.state in ("confirmed", "fitted"):
        raise RefusedError(f"sweep {state.id} is finished ({state.detail or state.state})")
    return state


def _expected_cost(args: argparse.Namespace, state: SweepState) -> Cost:
    """Reckon the cost from the estimate given, earlier runs, or the time limit."""
    from advisor import paths
    from advisor.meters.estimate import estimate_j
    from advisor.training.plan import cost, expected_runs
    from advisor.training.site_context import earlier_runs

    settings, base = state.settings, state.subject.baseline
    runs = expected_runs(
        state.space,
        state.stages["design"].runs,
        most=settings.most_runs,
        confirm=settings.confirm,
    )
    time_s, energy_j, basis = settings.estimate_s, None, "your --estimate"
    if time_s is None:
        earlier = earlier_runs(paths.store_path(args.db), state.subject)
        if earlier is not None:
            time_s, energy_j = earlier.time_s, earlier.energy_j
            basis = f"{earlier.runs} earlier run{'s' if earlier.runs > 1 else ''}"
        else:
            basis = "the job's time limit" if settings.run_limit_s else "known after the first run"
    if time_s is not None and energy_j is None:
        energy_j = estimate_j(
            state.subject.node_type,
            nodes=base.nodes,
            busy_cores=base.threads_per_node,
            freq_khz=base.freq_khz,
            time_s=time_s,
        )
        basis += ", energy estimated" if energy_j is not None else ""
    return cost(
        runs,
        base,
        baseline_s=time_s,
        limit_s=settings.run_limit_s,
        basis=basis,
        baseline_j=energy_j,
    )


def _check_budget(expected: Cost, policy: Policy) -> None:
    from advisor.errors import RefusedError

    budget = policy.training.budget_node_hours
    if expected.node_hours is not None and expected.node_hours > budget:
        raise RefusedError(
            f"up to {expected.node_hours:.3g} node-hours ({expected.basis}) exceed the policy's "
            f"training.budget_node_hours of {budget:g}",
            hint="raise that key, state a run's time with --estimate, or take fewer --samples",
        )


def _ask(out: TextIO) -> None:
    """Have the cost agreed to. Raises RefusedError for a no, or when nobody can be asked."""
    from advisor.errors import RefusedError

    if not sys.stdin.isatty():
        raise RefusedError("nothing is run without consent", hint="add --yes")
    print("Run it? [y/N] ", end="", file=out, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was run")


def _sink(
    args: argparse.Namespace, state: SweepState, policy: Policy
) -> LocalResults | DaemonResults:
    """Return where the sweep's results go. Raises RefusedError when nobody takes them."""
    import os

    from advisor import paths
    from advisor.training.result_store import open_sink

    return open_sink(
        paths.store_path(args.db),
        paths.socket_path(),
        explicit=bool(args.db or os.environ.get("ADVISOR_DB")),
        user=state.settings.user,
        trust=policy.training.trust,
    )


def _execute(args: argparse.Namespace, state: SweepState, known: SiteContext) -> int:
    """Run the sweep, or the rest of it, and show what came out."""
    from advisor.cli import train_output as output
    from advisor.cli.output import print_json
    from advisor.schedulers.choose import create
    from advisor.training import state as states
    from advisor.training.progress import Recorder
    from advisor.training.sweep import Sweep

    policy = known.policy_for(state.subject, account=state.settings.account)
    scheduler = create(state.settings.scheduler)
    sink = _sink(args, state, policy)
    out = _stream(args)
    try:
        with states.locked(state), output.ProgressLines(out) as progress:
            progress.say(
                f"sweep {state.id} of {output.title(state)}; results go to {sink.description}"
            )
            sink.know(state.subject.node_type)
            sweep = Sweep(
                state, scheduler, sink, policy, known.site, Recorder(state, progress.show)
            )
            outcome = sweep.run()
    except KeyboardInterrupt:
        print(f"advisor: stopped; go on with: advisor train --resume {state.id}", file=sys.stderr)
        return 130
    finally:
        sink.close()
    if args.json:
        print_json("train", output.outcome_json(state, outcome))
    else:
        output.show_outcome(state, outcome, policy, out)
    return 0


# -- values -----------------------------------------------------------------------------------


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    return _list(option, text, int)


def _freqs(text: str | None) -> tuple[int, ...]:
    from advisor.core.units import parse_freq_khz

    return _list("--freqs", text, parse_freq_khz)


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
