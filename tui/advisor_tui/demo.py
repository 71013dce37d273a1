"""Example data to look at: the example site as a store, and a session in it.

What is decided, promised and judged is the work of the real daemon's and the real loop's code.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from advisor.core.configuration import Configuration
from advisor.core.inventory import Inventory
from advisor.core.node_type_estimate import NodeTypeEstimate
from advisor.core.observation import Observation
from advisor.core.thread_use import filled
from advisor.derive.worker import deriving
from advisor.loop.match import MatchedJob
from advisor.loop.outcomes import JobSite, make_outcome
from advisor.schedulers.base import JobRecord, StepRecord
from advisor.schedulers.here import installed_name
from advisor.schedulers.translators import translator
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot, site_of
from advisor.store.rankings import save_ranking
from advisor.store.records import TrainingRequest, TrainingRun
from advisor.store.schema import make_from_text
from advisor.store.writer import Writer
from advisor_tui.demo_site import (
    BUSY,
    BUSY_SCRIPT,
    COMPILED,
    MACHINES,
    POLICY,
    PROGRAMS,
    RANKED,
    Program,
    grid,
    law,
    options,
    script_of,
)
from advisor_tui.session import Session


def build(store: Path, user: str) -> None:
    """Make the example store."""
    models(store)
    history(store, user)


def models(store: Path) -> None:
    """Fill a store with the example site, its policy and its programs."""
    now = datetime.now(UTC)
    with deriving(store) as writer:
        writer.save_node_types([m.node_type for m in MACHINES.values()], source="example")
        writer.apply_config(
            "policy", path="policy.yaml", text=POLICY, compiled=COMPILED, by="the example"
        )
        with writer.batch():
            for p in PROGRAMS:
                _program(writer, p, now)
        _ranking(writer)


def history(store: Path, user: str) -> None:
    """Add the jobs that were decided about, and how they came out."""
    with Writer(store) as writer, writer.batch():
        _jobs(writer, user, datetime.now(UTC))


def _program(writer: Writer, p: Program, now: datetime) -> None:
    for name in p.machines:
        program_options, sweep_runs = options(p, MACHINES[name])
        if p.state == "training":
            _sweep(writer, p, sweep_runs, now)
            continue
        writer.add_observations(p.name, p.workload, sweep_runs)
        model = writer.save_model(
            p.name,
            p.workload,
            name,
            scope="all",
            owner="",
            name="bspline",
            energy_quality=p.quality,
            n_train=len(sweep_runs),
            options=program_options,
            stats={"error": 0.05, "threads_unset": [list(shape) for shape in filled(sweep_runs)]},
        )
        if p.state == "suspended":
            writer.set_model_state(
                model.id, "suspended", "2 of the last 3 jobs came out worse than promised"
            )
    if not p.machines:
        writer.add_observations(
            p.name,
            p.workload,
            [
                Observation(
                    Configuration("skylake", 1, 1, 40, 2_400_000),
                    61.0,
                    None,
                    None,
                    "missing",
                    "",
                    "run",
                    "ann",
                    scope="own",
                )
            ],
        )


def _ranking(writer: Writer) -> None:
    """Rank one node type by microbenchmarks that follow the law with an error of 6 %."""
    p = next(p for p in PROGRAMS if p.name == RANKED[0])
    base_machine, ranked_machine = (MACHINES[name] for name in (p.machines[0], RANKED[1]))
    (base_s, base_j), (time_s, energy_j) = (
        law(p, m, m.node_type.cores, m.node_type.freq_khz[-1])
        for m in (base_machine, ranked_machine)
    )
    estimate = NodeTypeEstimate(
        RANKED[1],
        1.06 * time_s,
        1.06 * time_s / base_s,
        9.0,
        108.0,
        125.0,
        1.06 * energy_j / base_j,
        11.0,
        "profiles",
    )
    save_ranking(
        writer,
        p.name,
        p.workload,
        p.machines[0],
        [estimate],
        method="thesis",
        contributor="ben",
        scope="all",
    )


def _sweep(writer: Writer, p: Program, runs: list[Observation], now: datetime) -> None:
    """Note a colleague's sweep that has made seven of its twelve runs."""
    writer.add_observations(p.name, p.workload, runs[:1])
    planned = [o.configuration for o in runs][:11]
    request = TrainingRequest(
        "example-sweep",
        p.name,
        p.workload,
        p.machines[0],
        "ben",
        installed_name(),
        "running",
        "",
        {"runs": {"design": [c.to_dict() for c in planned], "confirm": [planned[0].to_dict()]}},
        (now - timedelta(minutes=12)).isoformat(timespec="seconds"),
        "",
    )
    writer.save_training_request(request)
    for seq, c in enumerate(planned):
        writer.save_training_run(
            TrainingRun(
                request.id,
                seq,
                "design" if seq else "baseline",
                c,
                "done" if seq < 7 else "planned",
            )
        )


def _jobs(writer: Writer, user: str, now: datetime) -> None:
    """Decide and run some jobs of each program: the real decision, the law's time and energy."""
    snapshot = site_of(writer)
    snapshot.take(writer.models())
    draw = random.Random(7)
    number = 48210
    todo = [(p, k) for p in PROGRAMS for k in range(p.jobs)]
    draw.shuffle(todo)
    for job_index, (p, k) in enumerate(todo):
        when = now - timedelta(hours=9 * (len(todo) - job_index) / 2.0, minutes=draw.randrange(50))
        who = user if draw.random() < 0.6 else draw.choice(("ben", "chen", "dora"))
        number += draw.randrange(1, 40)
        job = DemoJob(p, who, str(number), when, k % 4 == 3)
        _decide_and_run(writer, snapshot, job, draw)


class DemoJob(NamedTuple):
    """A job of the example site: of whom, when it was submitted, and whether it is held out."""

    program: Program
    user: str
    id: str
    submitted_at: datetime
    holdout: bool


def _decide_and_run(
    writer: Writer, snapshot: Snapshot, demo_job: DemoJob, draw: random.Random
) -> None:
    p, user, job_id, when, holdout = demo_job
    machine = MACHINES[p.machines[0] if p.machines else "skylake"]
    kind = machine.node_type
    suspended = p.state == "suspended"
    if suspended:  # these ran before their model was suspended
        snapshot = replace(
            snapshot, models={i: replace(m, state="fitted") for i, m in snapshot.models.items()}
        )
        snapshot.index()
    script = script_of(p)
    language = translator(installed_name())
    request = language.parse_request(
        {
            "type": language.SUBMIT,
            "options": language.read_directives(script),
            "script": script,
            "script_path": f"/home/{user}/{p.name}.sh",
        },
        user=user,
        uid=1000,
        choices={},
    )
    decision = decide(request, snapshot, chance=lambda: 0.0 if holdout else 1.0)
    stamp = when.isoformat(timespec="seconds")
    decision = replace(
        decision, created_at=stamp, id=f"{draw.getrandbits(64):016x}", hook="cli_filter"
    )
    configuration = grid(machine)[-1]
    if decision.changed and decision.chosen is not None:
        configuration = decision.chosen.configuration
    time_s, energy_j = law(
        p, MACHINES[configuration.node_type], configuration.threads_per_node, configuration.freq_khz
    )
    worse = 1.13 if suspended and decision.changed else 1.0
    time_s *= worse * math.exp(draw.gauss(0, 0.006))
    energy_j *= worse * math.exp(draw.gauss(0, 0.008))
    writer.save_decision(decision, job_id=job_id)
    if when > datetime.now(UTC) - timedelta(hours=6):
        return  # it still runs
    step = StepRecord(
        "0",
        p.name,
        "COMPLETED",
        round(time_s),
        1,
        1,
        round(energy_j),
        None if configuration.freq_khz == kind.default_freq_khz else configuration.freq_khz,
        None,
        configuration.threads_per_node,
    )
    node = MACHINES[configuration.node_type].node_type.nodes[draw.randrange(8)]
    job = JobRecord(
        job_id,
        p.name,
        user,
        "physics",
        "COMPLETED",
        stamp,
        round(time_s) + 2,
        1,
        node,
        round(energy_j),
        step.freq_requested_khz,
        None,
        ended_at=(when + timedelta(seconds=time_s)).isoformat(timespec="seconds"),
        partition="batch",
        cpus=MACHINES[configuration.node_type].node_type.cores,
        steps=(step,),
    )
    match = MatchedJob(decision, "verified")
    inventory = Inventory.of(m.node_type for m in MACHINES.values())
    site = JobSite(decision.scheduler, inventory, snapshot.policy, writer)
    writer.save_outcome(make_outcome(job, match, site))


def _copied(settings: Path | None, place: Path) -> Path:
    """Copy a person's settings: the keys are theirs, and the file is not written into."""
    place.parent.mkdir(parents=True)
    if settings is not None:
        with suppress(OSError):
            place.write_bytes(settings.read_bytes())
    return place


@contextmanager
def demonstration() -> Iterator[Session]:
    """Yield a session with the example site, in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="advisor-tui-demo-"))
    try:
        session = Session.here()
        session.store = folder / "advisor.db"
        session.socket = folder / "no-daemon"
        session.choices = folder / "config" / "advisor" / "choices.json"
        session.settings = _copied(session.settings, session.choices.with_name("tui.json"))
        session.sweeps = folder / "state" / "advisor" / "sweeps"
        session.folder = folder / "work"
        session.foreign = False
        session.arguments = ("--db", str(session.store), "--scheduler", "local")
        session.folder.mkdir()
        busy = session.folder / "busy"
        busy.write_text(BUSY)
        busy.chmod(0o755)
        (session.folder / "busy.sh").write_text(BUSY_SCRIPT)
        for p in PROGRAMS[:4]:
            path = session.folder / f"{p.name}.sh"
            path.write_text(script_of(p))
        os.environ.update(
            ADVISOR_DB=str(session.store),
            ADVISOR_SOCKET=str(session.socket),
            XDG_STATE_HOME=str(folder / "state"),
            XDG_CONFIG_HOME=str(folder / "config"),
        )
        make_from_text(session.store)
        models(session.store)
        session.demo = partial(history, session.store, session.user)
        yield session
    finally:
        shutil.rmtree(folder, ignore_errors=True)
