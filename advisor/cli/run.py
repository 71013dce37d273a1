"""``advisor run``: run a command and measure it, or a job script as the advisor would have it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from advisor.cli.arguments import add_rate_arguments, add_subject, rate_rule

if TYPE_CHECKING:
    from advisor.cli.run_answers import ShownRun
    from advisor.core.configuration import Configuration
    from advisor.core.rate import RateRule
    from advisor.core.signature import Signature
    from advisor.meters.base import Meter
    from advisor.meters.process import MeasuredProcess
    from advisor.training.result_store import DaemonResults, LeftResults, LocalResults
    from advisor.training.site_context import SiteContext
    from advisor.training.training_job import TrainingJob


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.usage = "advisor run [options] -- COMMAND [ARG ...]\n       advisor run SCRIPT [options]"
    parser.add_argument(
        "script", nargs="?", metavar="SCRIPT", help="a job script, run here as advised"
    )
    add_subject(parser, "this machine's node type")
    parser.add_argument("--threads", type=int, metavar="N", help="threads to use (default: all)")
    parser.add_argument(
        "--freq", metavar="FREQ", help="frequency cap, like 1.9GHz, where it can be set"
    )
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="number of runs (default: 1)"
    )
    parser.add_argument(
        "--meter",
        default="auto",
        metavar="NAME",
        help="the energy meter: auto, none or a meter's name (default: auto)",
    )
    parser.add_argument("--record", action="store_true", help="store the runs")
    parser.add_argument(
        "--counters",
        action="store_true",
        help="also count cycles, instructions, arithmetic and memory traffic: the run's signature",
    )
    add_rate_arguments(parser)
    parser.set_defaults(takes_tail=True)


def run(args: argparse.Namespace) -> int:
    """Measure the command (a non-zero exit is exit code 1, nothing recorded) or run a script."""
    from contextlib import nullcontext
    from dataclasses import replace
    from pathlib import Path

    from advisor.cli.output import print_json
    from advisor.cli.run_answers import CountedRun, FailedRun, RunAnswer
    from advisor.cli.run_counters import lines, signature_of
    from advisor.core.configuration import Configuration
    from advisor.core.recognise import clean_name
    from advisor.errors import UsageError
    from advisor.meters.choose import best_meter
    from advisor.meters.counters import Counters
    from advisor.meters.process import exit_text, usable_cpus
    from advisor.paths import store_path
    from advisor.schedulers.this_machine import local_node_type
    from advisor.store.seen import store_seen
    from advisor.training.site_context import load_known
    from advisor.training.training_job import TrainingSubject, understand

    if args.script:
        from advisor.cli.run_job import run_job

        if args.tail:
            raise UsageError("give a script or, after --, a command, not both")
        return run_job(args)
    if not args.tail:
        raise UsageError("nothing to run", hint="advisor run [options] -- COMMAND")
    if args.repeat < 1 or (args.threads is not None and args.threads < 1):
        raise UsageError("--repeat and --threads must be at least 1")
    site_context = load_known(store_seen(args.db))
    machine = local_node_type()
    training_subject = TrainingSubject(
        command=tuple(args.tail),
        application=args.application or "",
        workload=args.workload or "",
        node_type=args.node_type or "",
        fallback=clean_name(Path(args.tail[0]).name) or "command",
    )
    subject = understand(
        training_subject, scheduler="local", site=site_context.site, this_machine=machine
    )
    threads = args.threads or min(subject.baseline.threads_per_node, len(usable_cpus()))
    cap = _cap(args.freq)
    freq_khz = cap or subject.baseline.freq_khz
    configuration = Configuration(subject.node_type.name, 1, 1, threads, freq_khz)
    choice = best_meter(subject.node_type, name=args.meter)
    rule = rate_rule(args) or subject.rate
    if args.record and store_path(args.db).exists():
        _results(
            args, subject, site_context
        ).close()  # whether they will be taken, before anything runs
    runs: list[MeasuredProcess] = []
    rates: list[float] = []
    counted: list[tuple[Signature, list[str]]] = []
    for number in range(1, args.repeat + 1):
        with Counters() if args.counters else nullcontext() as counters:
            measured, rate, why = _measured_run(args, configuration, cap, choice.meter, rule)
            if counters is not None and measured.exit_code == 0:
                counted.append(signature_of(measured, counters.read(), configuration))
        if measured.exit_code != 0 or why:
            which = f" (run {number} of {args.repeat})" if args.repeat > 1 else ""
            problem = f"{args.tail[0]}: {why or exit_text(measured.exit_code)}{which}"
            if args.json:
                print_json("run", FailedRun(False, measured.exit_code, problem))
            print(f"advisor: {problem}; nothing is recorded", file=sys.stderr)
            return 1
        runs.append(measured)
        rates += [rate] if rate is not None else []
    subject = replace(subject, rate=rule)
    recorded = (
        _record(args, subject, site_context, configuration, runs, rates) if args.record else []
    )
    refusal = (
        _store_signatures(args, subject, site_context, [s for s, _ in counted])
        if args.record and counted
        else ""
    )
    if args.json:
        answer = RunAnswer(
            ok=True,
            exit_code=0,
            application=subject.application,
            workload=subject.workload,
            configuration=configuration,
            meter=choice.sentence,
            runs=[_shown_run(measured) for measured in runs],
            observations=recorded,
            rates=rates if rule else None,
            rate_unit=rule.unit if rule else None,
            signatures=tuple(
                CountedRun(signature.measures(), signature.cpus, notes)
                for signature, notes in counted
            ),
        )
        print_json("run", answer)
        return 0
    for number, measured in enumerate(runs):
        print(
            _line(measured) + (f"  rate {rates[number]:.6g} {rule.unit}".rstrip() if rule else "")
        )
        print("".join(_parts(measured)), end="")
        print("".join(f"note: {doubt}\n" for doubt in measured.doubts()), end="")
    for counted_run in counted:
        print("\n".join(lines(*counted_run)))
    print(choice.sentence)
    if refusal:
        print(f"advisor: the signature is not stored: {refusal}", file=sys.stderr)
    if args.record:
        print(
            f"recorded {len(runs)} of {subject.application} / {subject.workload} "
            f"on {subject.node_type.name}"
        )
    return 0


def _cap(text: str | None) -> int:
    """Return the cap to set in kHz, 0 for none. Raises an error when it cannot be set."""
    from advisor.core.units import parse_freq_khz
    from advisor.errors import InputError, UnknownNameError, UsageError
    from advisor.schedulers.cpufreq import Cpufreq

    if not text:
        return 0
    try:
        freq_khz = parse_freq_khz(text)
    except ValueError as error:
        raise UsageError(f"--freq: {error}") from error
    cpufreq = Cpufreq()
    if reason := cpufreq.controllable():
        raise InputError(f"--freq cannot be set: {reason}")
    if freq_khz not in cpufreq.steps():
        steps = " ".join(map(str, cpufreq.steps()))
        raise UnknownNameError(f"--freq {freq_khz} kHz is not a step of this machine", hint=steps)
    return freq_khz


def _measured_run(
    args: argparse.Namespace,
    configuration: Configuration,
    cap: int,
    meter: Meter | None,
    rule: RateRule | None,
) -> tuple[MeasuredProcess, float | None, str]:
    """Run the command once; return also its rate, and why it has none although it should."""
    import os
    import tempfile
    from contextlib import nullcontext
    from pathlib import Path

    from advisor.cli.run_rate import RateTap
    from advisor.meters.process import ALL_TO_STDERR, MeasuredCommand, measure
    from advisor.schedulers.cpufreq import Cpufreq

    threads = configuration.threads_per_node
    with (
        tempfile.TemporaryDirectory(prefix="advisor-run-") as folder,
        Cpufreq().capped(cap, Path(folder) / "cpufreq.json"),
        RateTap(rule, quiet=args.json) if rule else nullcontext() as tap,
    ):
        own_streams = ALL_TO_STDERR if args.json else (None, None)
        command = MeasuredCommand(
            tuple(args.tail),
            threads,
            configuration.freq_khz,
            environment={**os.environ, "OMP_NUM_THREADS": str(threads)},
            streams=tap.streams if tap else own_streams,
        )
        measured = measure(command, meter)
    if tap is None or measured.exit_code != 0:
        return measured, None, ""
    return measured, *tap.result()


def _record(
    args: argparse.Namespace,
    subject: TrainingJob,
    site_context: SiteContext,
    configuration: Configuration,
    runs: Sequence[MeasuredProcess],
    rates: Sequence[float | None],
) -> list[int]:
    """Store the runs where results may go; return their ids (0: the daemon does not tell)."""
    from advisor.core.observation import GPU_ENERGY, Observation
    from advisor.core.policy import scope_of
    from advisor.training.training_job import current_user

    user, trust = current_user(), site_context.policy_for(subject).training.trust
    results = _results(args, subject, site_context)
    about: dict[str, object] = {"program": dict(subject.program)} if subject.program else {}
    if subject.rate is not None and subject.rate.unit:
        about["rate_unit"] = subject.rate.unit
    try:
        results.know(subject.node_type)
        if results.by_hand:
            print(f"advisor: {results.by_hand}", file=sys.stderr)
        return results.observe(
            subject.application,
            subject.workload,
            [
                Observation(
                    configuration,
                    measured.time_s,
                    measured.energy_j,
                    rate,
                    energy_quality=measured.energy_quality,
                    meter=measured.meter,
                    source="run",
                    contributor=user,
                    scope=scope_of(trust, ""),
                    extra=about if (j := measured.gpu_j) is None else {**about, GPU_ENERGY: j},
                )
                for measured, rate in zip(runs, rates or [None for _ in runs], strict=True)
            ],
            fit=False,
        )
    finally:
        results.close()


def _results(
    args: argparse.Namespace, subject: TrainingJob, site_context: SiteContext
) -> LocalResults | DaemonResults | LeftResults:
    """Return where the runs can go. Raises RefusedError where nobody takes them."""
    from advisor.training.result_store import results_here
    from advisor.training.training_job import current_user

    trust = site_context.policy_for(subject).training.trust
    return results_here(args.db, user=current_user(), trust=trust)


def _store_signatures(
    args: argparse.Namespace,
    subject: TrainingJob,
    site_context: SiteContext,
    signatures: Sequence[Signature],
) -> str:
    """Store the signatures; return why not, "" where they are stored."""
    from advisor import paths
    from advisor.cli.run_counters import store
    from advisor.core.policy import scope_of

    scope = scope_of(site_context.policy_for(subject).training.trust, "")
    path = paths.whole_store(args.db)
    return store(path, subject.application, subject.workload, signatures, scope)


def _shown_run(measured: MeasuredProcess) -> ShownRun:
    from advisor.cli.run_answers import ShownRun

    return ShownRun(
        measured.time_s,
        measured.energy_j,
        measured.energy_quality,
        measured.meter,
        measured.detail,
        dict(measured.parts),
        tuple(measured.doubts()),
    )


def _parts(measured: MeasuredProcess) -> list[str]:
    """Return a line for each part of the node where there are several, or accelerators."""
    from advisor.core.units import format_energy

    if len(measured.parts) < 2 and measured.gpu_j is None:
        return []
    return [f"  {name}: {format_energy(part_j)}\n" for name, part_j in measured.parts]


def _line(measured: MeasuredProcess) -> str:
    from advisor.core.units import format_duration, format_energy

    time = format_duration(measured.time_s)
    if measured.energy_j is None:
        return f"{time}  energy not known: {measured.detail}"
    energy = format_energy(measured.energy_j)
    return f"{time}  {energy}  ({measured.energy_quality}, {measured.meter})"
