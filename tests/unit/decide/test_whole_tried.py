"""Scripts whose parts nobody can tell try caps as wholes: nodes cap all that they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from advisor.core.availability import (
    Availability,
    JobLimits,
    NodeKind,
    PartitionState,
    Queue,
    Room,
)
from advisor.core.decision import Decision
from advisor.derive.worker import derive
from advisor.loop.collect import collect
from advisor.schedulers.base import JobRecord, Scheduler, StepRecord
from advisor.schedulers.pbs import translator as pbs
from advisor.schedulers.slurm import translator as slurm
from advisor.schedulers.slurm.accounting import _with_steps
from advisor.service.decide import decide
from advisor.store.cap_trials import take_cap_trial
from advisor.store.reader import Reader
from advisor.store.writer import Writer
from tests.again import same_again
from tests.unit.collect.jobs import Accounting
from tests.unit.decide.site import codes, policy, snapshot
from tests.unit.decide.test_node_cap import CAPPING
from tests.unit.decide.test_whole_job import NOW, record

MPIRUNS = "#!/bin/bash\nmpirun ./prepare -s {seed}\nfor i in 1 2; do mpirun ./flow; done\n"
UNREADABLE = "#!/bin/bash\nsnakemake --cores all\n"
FREE_KHZ = 2_200_000
POWER_W = 200.0
TOOK_S = 200.0


def ask_slurm(store: Writer, script: str, arguments: str = "", **settings: str) -> Decision:
    site = snapshot(store)
    site.availability = Availability(
        "slurm",
        {},
        {"batch": PartitionState()},
        limits=JobLimits(enforced=False),
        settings=CAPPING | settings,
    )
    words = f"-N1 -n4 --exclusive -t 600 -p batch {arguments}".split()
    payload = {"type": "sbatch", "options": slurm.read_arguments(words), "script": script}
    request = slurm.parse_request(payload, user="ada", uid=1000, choices={})
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    return decision


def ask_pbs(store: Writer, script: str, **options: str) -> Decision:
    site = snapshot(store)
    kinds = frozenset({NodeKind(frozenset({"broadwell"}), 28, ("force_exclhost",))})
    site.availability = Availability(
        "pbs",
        {("bdw", "batch"): Room(4, 4, ((float("inf"), 4),), kinds)},
        {"batch": PartitionState()},
        {"": Queue("", destinations=("batch",)), "batch": Queue("batch")},
        JobLimits(enforced=False),
    )
    asked = {"select": "1:ncpus=28:mpiprocs=28", "walltime": "10:00:00", "queue": "batch"}
    payload = {"options": asked | options, "script": script, "hook": "queuejob"}
    request = pbs.parse_request(payload, user="ada", uid=1000, choices={})
    decision = decide(request, site, chance=lambda: 1.0)
    same_again(decision, site, lambda: 1.0)
    return decision


def slurm_job(number: int, decision: Decision, khz: int, took_s: float) -> JobRecord:
    """What Slurm's accounting says of a job without srun: its batch step has the node's energy."""
    energy_j = POWER_W * took_s * khz / FREE_KHZ
    job = replace(record(number, decision, ()), elapsed_s=took_s, energy_j=None, cpus=28)
    job = replace(job, node_cap_khz=decision.node_cap_khz)
    return _with_steps(job, [StepRecord("batch", "batch", "COMPLETED", took_s, 1, 1, energy_j)])


def pbs_job(number: int, decision: Decision, khz: int, took_s: float) -> JobRecord:
    """What PBS's accounting says: one step, which is the job, with as many threads as cores."""
    energy_j = POWER_W * took_s * khz / FREE_KHZ
    cap = khz if decision.rewrite else None
    step = StepRecord("0", "", "COMPLETED", took_s, 1, 28, energy_j, cap, cap, 28, 28)
    job = record(number, decision, (step,))
    return replace(job, elapsed_s=took_s, freq_requested_khz=cap, freq_observed_khz=cap)


Ask = Callable[..., Decision]
Job = Callable[[int, Decision, int, float], JobRecord]
SCHEDULERS = pytest.mark.parametrize(
    ("ask", "job"), [(ask_slurm, slurm_job), (ask_pbs, pbs_job)], ids=["slurm", "pbs"]
)


def ran(store: Writer, decision: Decision, job: JobRecord) -> None:
    submitted = NOW - timedelta(hours=11 - int(job.job_id))
    store.save_decision(replace(decision, created_at=submitted.isoformat()))
    of_one = cast("Scheduler", Accounting([job]))
    result = collect(store, of_one, NOW - timedelta(days=2))
    assert not result.failed and len(result.outcomes) == 1
    assert derive(store)


def recurring(
    store: Writer, ask: Ask, job: Job, script: str, trials: int = 5, slower: float = 0.0
) -> list[Decision]:
    """Let a script run three times as written, then try caps until it is told none."""
    policy(store, cold_start={"cap_trials": trials})
    for number in range(3):
        decision = ask(store, script.format(seed=number))
        assert not decision.changed
        ran(store, decision, job(number, decision, FREE_KHZ, TOOK_S + number))
    tried: list[Decision] = []
    while "cap-trial" in codes(decision := ask(store, script.format(seed=9))):
        assert take_cap_trial(store.path, decision)
        assert decision.chosen is not None and len(tried) < trials
        khz = decision.chosen.configuration.freq_khz
        took_s = TOOK_S * (1 + slower * (FREE_KHZ / khz - 1))
        ran(store, decision, job(3 + len(tried), decision, khz, took_s))
        tried.append(decision)
    return [*tried, decision]


@SCHEDULERS
@pytest.mark.parametrize("script", [MPIRUNS, UNREADABLE])
def test_a_script_of_mpirun_gets_the_cap_that_its_own_jobs_found(
    store: Writer, ask: Ask, job: Job, script: str
) -> None:
    *tried, advised = recurring(store, ask, job, script)
    assert len(tried) >= 2
    caps = [d.chosen.configuration.freq_khz for d in tried if d.chosen]
    assert caps == sorted(caps, reverse=True) and caps[0] == 2_100_000
    assert advised.changed and {"whole-job", "chosen", "confirmed"} <= codes(advised)
    assert not advised.environment and advised.model_id is None
    assert advised.chosen is not None and advised.chosen.configuration.freq_khz in caps
    cap = advised.chosen.configuration.freq_khz
    if ask is ask_slurm:  # a cap of its own options would reach no program
        assert advised.node_cap_khz == cap
    else:
        assert dict(advised.rewrite) == {"cpu_freq_mhz": str(cap // 1000)}
    last = job(9, advised, cap, TOOK_S)
    ran(store, advised, last)
    with Reader(store.path) as reader:
        outcome = next(o for o in reader.outcomes() if o.job_id == "9")
    assert outcome.verdict == "as-promised" and not outcome.record["mismatch"]


@SCHEDULERS
def test_a_script_that_waits_for_the_clock_is_left_after_what_the_bound_allows(
    store: Writer, ask: Ask, job: Job
) -> None:
    *tried, left = recurring(store, ask, job, MPIRUNS, slower=1.0)
    assert len(tried) == 1 and not left.changed


@SCHEDULERS
def test_a_job_that_took_longer_than_any_clock_explains_stops_the_trials(
    store: Writer, ask: Ask, job: Job
) -> None:
    *tried, left = recurring(store, ask, job, MPIRUNS, slower=4.0)
    assert len(tried) == 1 and not left.changed
    assert "cap-trials-stopped" in codes(left)


@SCHEDULERS
def test_without_the_policys_word_none_tries(store: Writer, ask: Ask, job: Job) -> None:
    (left,) = recurring(store, ask, job, MPIRUNS, trials=0)
    assert not left.changed and "whole-job" not in codes(left)


def known(store: Writer, script: str = MPIRUNS) -> None:
    policy(store, cold_start={"cap_trials": 5})
    for number in range(3):
        decision = ask_slurm(store, script.format(seed=number))
        ran(store, decision, slurm_job(number, decision, FREE_KHZ, TOOK_S))


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ("", {"Prolog": ""}),  # nodes that cap nothing
        ("--cpu-freq=1200000-2000000", {}),  # its user's own cap
        ("--oversubscribe", {}),
        ("--time-min=10", {}),
        ("--unheard-of=1", {}),
        ("--nodes=1-4", {}),
    ],
)
def test_what_keeps_a_whole_job_as_it_is(
    store: Writer, arguments: str, settings: dict[str, str]
) -> None:
    known(store)
    assert ask_slurm(store, MPIRUNS.format(seed=9)).changed
    assert not ask_slurm(store, MPIRUNS.format(seed=9), arguments, **settings).changed


@pytest.mark.parametrize("option", ["--overcommit", "--threads-per-core=1", "--cpus-per-gpu=2"])
def test_what_leaves_tasks_or_cores_open_keeps_no_cap_off_a_whole_job(
    store: Writer, option: str
) -> None:
    known(store)
    decision = ask_slurm(store, MPIRUNS.format(seed=9), option)
    assert decision.changed and decision.node_cap_khz and "option-binds" not in codes(decision)


@pytest.mark.parametrize(
    "line",
    ["cpupower frequency-set -u 2GHz", "likwid-setFrequencies -f 2.0", "echo $SLURM_CPU_FREQ_REQ"],
)
def test_a_script_that_sets_its_clock_or_reads_its_cap_keeps_it(store: Writer, line: str) -> None:
    script = f"{MPIRUNS}{line}\n"
    known(store, script)
    assert not ask_slurm(store, script.format(seed=9)).changed


def test_a_job_that_submits_others_may_be_capped_itself(store: Writer) -> None:
    script = "#!/bin/bash\nmpirun ./flow {seed}\nsbatch next.sh\n"
    known(store, script)
    assert ask_slurm(store, script.format(seed=9)).node_cap_khz


def test_several_nodes_are_metered_by_the_extern_step(store: Writer) -> None:
    def job(nodes: int, *steps: StepRecord) -> JobRecord:
        return _with_steps(JobRecord("1", "j", "ada", "", "COMPLETED", nodes=nodes), list(steps))

    batch = StepRecord("batch", "batch", "COMPLETED", 60.0, 1, 1, 6000.0)
    extern = StepRecord("extern", "extern", "COMPLETED", 60.0, 2, 2, 12000.0)
    assert job(1, batch).whole_energy_j == 6000.0
    assert job(2, batch).whole_energy_j is None
    assert job(2, batch, extern).whole_energy_j == 12000.0


def test_jobs_that_were_not_metered_try_nothing(store: Writer) -> None:
    policy(store, cold_start={"cap_trials": 5})
    for number in range(3):
        decision = ask_slurm(store, MPIRUNS.format(seed=number))
        job: Any = slurm_job(number, decision, FREE_KHZ, TOOK_S)
        ran(store, decision, replace(job, whole_energy_j=None))
    assert not ask_slurm(store, MPIRUNS.format(seed=9)).changed
