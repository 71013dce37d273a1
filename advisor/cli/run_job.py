"""``advisor run SCRIPT``: a job script on this machine, as the advisor would have it run."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import sys
import tempfile
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from advisor.cli.arguments import rate_rule
from advisor.cli.run_rate import RateTap
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.core.configuration import Configuration
    from advisor.core.decision import Decision
    from advisor.core.inventory import NodeType
    from advisor.meters.process import MeasuredProcess
    from advisor.service.snapshot import Snapshot


class _LocalJob(NamedTuple):
    """A job of this machine: when it began, what was decided for it, and what it runs on."""

    id: str
    began_at: str
    decision: Decision
    configuration: Configuration


def run_job(args: argparse.Namespace) -> int:
    """Decide, run, measure, record decision and outcome; return the script's exit code as 0 or 1.

    Without a store, or with a broken one, the script runs as written: a job is never lost.
    """
    from advisor.cli.output import print_json
    from advisor.cli.run_answers import ScriptRun
    from advisor.core.units import format_duration, format_energy
    from advisor.meters.choose import best_meter
    from advisor.meters.process import exit_text

    rule = rate_rule(args)
    script = Path(args.script)
    snapshot = _snapshot(args.db)
    node_type = _this_machine(snapshot)
    decision = _decide(script, snapshot, node_type)
    if decision.message:
        print(decision.message, file=sys.stderr)
    configuration = _configuration(decision, node_type)
    choice = best_meter(node_type, name=args.meter)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    job = _LocalJob(f"local-{secrets.token_hex(4)}", began, decision, configuration)
    options = decision.request.options if decision.request else {}
    working = Path.cwd() / options.get("chdir", "")
    with RateTap(rule, quiet=args.json) if rule else nullcontext() as tap:
        measured = _measure(script.absolute(), working, job, choice.meter, args.json, tap)
    rate, rate_problem = tap.result() if tap else (None, "")
    recorded = _record_run(args.db, job, measured, snapshot)
    if args.json:
        answer = ScriptRun(
            ok=measured.exit_code == 0,
            job=job.id if recorded else None,
            exit_code=measured.exit_code,
            configuration=configuration,
            rewrite=decision.rewrite,
            environment=decision.environment,
            reasons=[r.code for r in decision.reasons],
            time_s=measured.time_s,
            energy_j=measured.energy_j,
            energy_quality=measured.energy_quality,
            meter=choice.sentence,
            rate={"rate": rate, "rate_unit": rule.unit} if rule else {},
        )
        print_json("run", answer)
    else:
        energy = (
            f", {format_energy(measured.energy_j)} {measured.energy_quality}"
            if measured.energy_j is not None
            else ""
        )
        n = configuration.threads_per_node
        rate_words = f", rate {rate:.6g} {rule.unit}".rstrip() if rule and rate is not None else ""
        print(
            f"{n} thread{'s' if n > 1 else ''}: {format_duration(measured.time_s)}"
            f"{energy}{rate_words}"
        )
        print(choice.sentence)
        if recorded:
            print(f"how it came out: advisor why {job.id}")
    if measured.exit_code:
        print(f"advisor: {script}: {exit_text(measured.exit_code)}", file=sys.stderr)
    elif rate_problem:
        print(f"advisor: {script}: {rate_problem}", file=sys.stderr)
    return 1 if measured.exit_code or rate_problem else 0


def _snapshot(db: str | None) -> Snapshot:
    from advisor.service.snapshot import Snapshot, StoreSource
    from advisor.store.seen import store_seen

    source = StoreSource(store_seen(db, "options"))
    try:
        source.refresh()
    except AdvisorError as error:
        print(f"advisor: {error}; the script runs as written", file=sys.stderr)
        return Snapshot()
    finally:
        source.close()
    return source.snapshot


def _this_machine(snapshot: Snapshot) -> NodeType:
    from advisor.schedulers.this_machine import local_node_type

    machine = local_node_type()
    return snapshot.inventory.node_types.get(machine.name, machine)


def _decide(script: Path, snapshot: Snapshot, node_type: NodeType) -> Decision:
    from advisor.core.inventory import Inventory
    from advisor.schedulers.cpufreq import Cpufreq
    from advisor.schedulers.submission import read_job
    from advisor.service.decide import decide

    request = read_job(script, scheduler="local", hook="run")
    machine_snapshot = replace(snapshot, inventory=Inventory.of([node_type]))
    machine_snapshot.index()
    # Whatever the script says of exclusive use, a machine without a scheduler is its user's own,
    # and nothing ends a job that states no limit.
    limit_s = request.time_limit_s or 0
    request = replace(request, partition="", constraint="", exclusive=True, time_limit_s=limit_s)
    if why := Cpufreq().controllable():  # no cap is promised that could not be set
        binds = {**request.binds, "frequency": f"the machine itself ({why})"}
        request = replace(request, binds=binds)
    # no accounting says how a trial came out
    return decide(request, machine_snapshot, trials=False)


def _configuration(decision: Decision, node_type: NodeType) -> Configuration:
    from advisor.core.configuration import Configuration

    if decision.changed and decision.chosen is not None:
        return decision.chosen.configuration
    if decision.baseline is not None:
        return decision.baseline
    return Configuration(node_type.name, 1, 1, node_type.cores, 0)


def _measure(
    script: Path, working: Path, job: _LocalJob, meter: Any, quiet: bool, tap: RateTap | None
) -> MeasuredProcess:
    from advisor.meters.process import ALL_TO_STDERR, MeasuredCommand, measure
    from advisor.schedulers.choose import create
    from advisor.schedulers.command import interpreter
    from advisor.schedulers.cpufreq import Cpufreq

    configuration, variables = job.configuration, job.decision.environment
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="advisor-run-")))
        scheduler, cpufreq = create("local"), Cpufreq()
        if cpufreq.controllable() is None:
            stack.enter_context(cpufreq.capped(configuration.freq_khz, folder / "cpufreq.json"))
        own_streams = ALL_TO_STDERR if quiet else (None, None)
        command = MeasuredCommand(
            (*interpreter(script), str(script)),
            configuration.threads_per_node,
            configuration.freq_khz,
            environment={**scheduler.environment_here(configuration, folder, ()), **variables},
            folder=working,
            streams=tap.streams if tap else own_streams,
        )
        return measure(command, meter)


def _record_run(
    db: str | None, local_job: _LocalJob, measured: MeasuredProcess, snapshot: Snapshot
) -> bool:
    """Record decision and outcome; say why not, if not."""
    from advisor.loop.execution import ran
    from advisor.loop.match import MatchedJob
    from advisor.loop.outcomes import JobSite, make_outcome
    from advisor.loop.rebuilt import let_count
    from advisor.paths import whole_store
    from advisor.schedulers.base import JobRecord, StepRecord
    from advisor.store.writer import Writer

    state = "COMPLETED" if measured.exit_code == 0 else "FAILED"
    job_id, began, decision, c = local_job
    total = os.cpu_count() or c.threads_per_node
    step = StepRecord(
        "0",
        decision.application,
        state,
        measured.time_s,
        c.nodes,
        c.ranks_per_node,
        measured.energy_j,
        c.freq_khz or None,
        None,
        c.threads_per_node,
    )
    job = JobRecord(
        job_id,
        decision.application,
        decision.user,
        "",
        state,
        submitted_at=began,
        elapsed_s=measured.time_s,
        nodes=1,
        node_list=socket.gethostname().split(".")[0],
        energy_j=measured.energy_j,
        freq_requested_khz=c.freq_khz or None,
        ended_at=datetime.now(UTC).isoformat(),
        cpus=total,
        steps=(step,),
        resolution_s=0.0,
    )
    try:
        with Writer(whole_store(db)) as store:
            store.save_decision(decision, job_id=job_id)
            match = MatchedJob(decision, "verified")
            site = JobSite("local", snapshot.inventory, snapshot.policy, store)
            outcome = make_outcome(job, match, site)
            outcome = replace(outcome, energy_quality=measured.energy_quality)
            store.save_outcome(outcome)
            let_count(store, job, match, outcome, ran(job, snapshot.inventory))
    except AdvisorError as error:
        print(f"advisor: {error}; the outcome is not recorded", file=sys.stderr)
        return False
    return True
