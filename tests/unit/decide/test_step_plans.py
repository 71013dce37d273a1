"""What the plan of a job holds whose script leaves open what its steps are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.core.decision import Decision
from advisor.core.job_history import JobHistory, JobPart, PastJob
from advisor.core.option import Option
from advisor.core.stamp import make_stamp
from advisor.core.step_plan import ANY, PlannedStep, read_plan
from advisor.derive.worker import derive
from advisor.loop.collect import collect
from advisor.schedulers.base import JobRecord, Scheduler, StepRecord
from advisor.service.answered import Answered
from advisor.service.decide import decide
from advisor.service.snapshot import Snapshot
from advisor.store.reader import Reader
from advisor.store.records import Outcome
from advisor.store.writer import Writer
from advisor.views.decision import cause_of, decision_lines, why_not
from advisor.views.explain import decide_alone
from tests.unit.collect.jobs import Accounting
from tests.unit.decide.site import FREQS, ask, codes, model, policy, response, snapshot
from tests.unset import as_measured

SEVERAL = "#!/bin/bash\nsrun ./prepare\nsrun ./stencil\n"
LOOP = "#!/bin/bash\nfor n in 4 8; do\n  srun -n 2 ./stencil -n $n\ndone\n"
HYBRID = "#!/bin/bash\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./stencil\n"
FREE_KHZ = 2_200_000
VALUES = ("time_s", "time_lo_s", "time_hi_s", "energy_j", "energy_lo_j", "energy_hi_j")
NOW = datetime.now(UTC).replace(microsecond=0)


def asked(
    store: Writer, script: str = SEVERAL, arguments: str = "-N1 --exclusive", **more: Any
) -> Decision:
    return ask(store, arguments, script, **{"hook": "cli_filter", "plan": 1, **more})


def steps_of(decision: Decision) -> Sequence[PlannedStep]:
    assert not decision.changed
    assert ("step-plan" in codes(decision)) == (decision.plan is not None)
    return decision.plan.steps if decision.plan else ()


def with_history(
    site: Snapshot,
    decision: Decision,
    time_s: float,
    *,
    nodes: int = 1,
    program: str = "stencil",
    part_s: float = 1.0,
) -> Snapshot:
    part = JobPart(program, 1, 28, 1, part_s, 216.0 * part_s)
    job = PastJob("bdw", nodes, time_s, 0.01, 1, 28, (part,))
    site.histories[decision.identity] = ("", json.dumps(JobHistory((job,) * 3).to_dict()))
    site.choices.clear()
    return site


def again(decision: Decision, site: Snapshot) -> Decision:
    assert decision.request is not None
    return decide(decision.request, site, chance=lambda: 1.0)


def two_ranks(store: Writer, **key: Any) -> None:
    model(
        store, "bdw", [response("bdw", 1, 2, t, f) for t in range(4, 29, 4) for f in FREQS], **key
    )


def test_a_step_gets_what_a_job_of_its_program_alone_would(store: Writer) -> None:
    steps = steps_of(asked(store))
    assert {(s.program, s.arguments) for s in steps} == {("stencil", "")}
    (step,) = [s for s in steps if s.ranks == 1 and s.threads == 28]
    assert (step.threads_new, step.cap_khz, step.unset) == (20, 0, True)
    assert step.time_pct is not None and step.time_pct[0] <= 0
    assert step.energy_pct is not None and step.energy_pct[0] < -15


def test_its_line_promises_nothing_and_says_how_to_refuse(store: Writer) -> None:
    decision = asked(store)
    assert decision.message == ("advisor: steps: stencil 20 of 28 threads; refuse with ADVISOR=off")
    assert any("20 of 28 threads" in line for line in decision_lines(decision))
    policy(store, message="never")
    assert not asked(store).message


def test_the_answer_has_the_plan_with_a_sum_for_each_job(store: Writer) -> None:
    decision = asked(store)
    answered = Answered(decision, {}, 1000, False)
    for identity in (decision.id, "00112233445566ff", "fedcba9876543210"):
        line = answered.line(identity, "2026-11-27T06:00:00+00:00")
        assert line.index(b'"stamp":') < line.index(b'"plan":')
        answer = json.loads(line)
        plan = read_plan(answer["plan"])
        assert plan is not None and decision.plan is not None
        assert (plan.decision, plan.uid, plan.nodes, plan.cpus) == (identity, 1000, 1, 28)
        assert plan.entries == tuple(s.entry for s in decision.plan.steps)
        assert identity in answer["stamp"]
    assert "plan" not in json.loads(Answered(ask(store), {}, 1000, False).line("a" * 16, ""))


def test_the_record_keeps_it(store: Writer) -> None:
    decision = asked(store)
    store.save_decision(decision)
    with Reader(store.path) as reader:
        stored = reader.decision(decision.id)
    assert stored is not None and stored.plan == decision.plan
    assert stored.reading is not None and decision.reading is not None
    assert stored.reading.steps == decision.reading.steps


def test_explain_alone_finds_the_same(store: Writer) -> None:
    decision = asked(store)
    assert decision.request is not None
    with Reader(store.path) as reader:
        alone = decide_alone(replace(decision.request, hook="explain"), reader)
    assert alone.plan == decision.plan


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (LOOP, "loop-of-steps"),
        (SEVERAL, "several-steps"),
        ("#!/bin/bash\nrun() { srun ./stencil; }\nrun\n", "script-not-understood"),
        ("#!/bin/bash\nsrun ./stencil &\nwait\n", "background-steps"),
        ("#!/bin/bash\nread N < ranks\nsrun -n $N ./stencil\n", "no-baseline"),
        ("#!/bin/bash\n$RUN ./x\nsrun ./stencil\n", "script-not-understood"),
        ("#!/bin/bash\nsrun python stencil.py\nsrun ./stencil\n", "several-steps"),
        (HYBRID, "user-set"),
    ],
)
def test_scripts_that_leave_their_steps_open(store: Writer, script: str, code: str) -> None:
    policy(store, axes={"frequency": "keep"})
    decision = asked(store, script, "-N1 --exclusive --cpus-per-task=28")
    assert code in codes(decision)
    if script == LOOP:
        assert not steps_of(decision)  # its model has one rank only
        two_ranks(store)
        decision = asked(store, script, "-N1 --exclusive --cpus-per-task=28")
    steps = steps_of(decision)
    assert {s.program for s in steps} == {"stencil"}
    assert all(s.threads_new and not s.cap_khz for s in steps)


@pytest.mark.parametrize(
    ("script", "arguments", "more"),
    [
        ("#!/bin/bash\nsrun ./stencil\n", "-N1 --exclusive", {}),  # advised as a whole
        (SEVERAL, "-N1", {}),  # shares its nodes
        (SEVERAL, "-N1 --exclusive -p mixed", {}),  # of two node types
        (SEVERAL, "-N1 --exclusive --cpu-freq=1800000", {}),
        (SEVERAL, "-N1 --exclusive", {"env": {"SLURM_CPU_FREQ_REQ": "1800000"}}),
        (SEVERAL, "-N1 --exclusive", {"env": {"ADVISOR": "off"}}),
        (SEVERAL, "-N1 --exclusive", {"env": {"ADVISOR_APPLICATION": "stencil"}}),
        (SEVERAL, "-N1 --exclusive", {"choices": {"off": True}}),
        (SEVERAL, "-N1 --exclusive", {"het": True}),
        (SEVERAL, "-N1 --exclusive --cpus-per-gpu=2", {}),
        (SEVERAL.replace("srun", "mpirun"), "-N1 --exclusive", {}),
        (SEVERAL.replace("./stencil", "./other"), "-N1 --exclusive", {}),
        (SEVERAL.replace("./stencil", "numactl -i all ./stencil"), "-N1 --exclusive", {}),
        (SEVERAL + "sbatch next.sh\n", "-N1 --exclusive", {}),
    ],
)
def test_jobs_without_a_plan(
    store: Writer, script: str, arguments: str, more: dict[str, Any]
) -> None:
    assert asked(store, script, arguments, **more).plan is None


@pytest.mark.parametrize("mode", ["observe", "advise", "off"])
def test_only_a_policy_that_applies_gives_one(store: Writer, mode: str) -> None:
    policy(store, mode=mode)
    assert asked(store).plan is None


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        (SEVERAL + "timeout 60 srun ./stencil\n", "-N1 --exclusive"),
        (SEVERAL + "(sleep 60; kill $$) &\n", "-N1 --exclusive"),
        ("ulimit -t 60\n".join(SEVERAL.splitlines(keepends=True)), "-N1 --exclusive"),
        (HYBRID.replace("srun", "timeout 10h srun"), "-N1 --exclusive --cpus-per-task=28 -t 60"),
    ],
)
def test_no_step_is_made_slower_that_the_script_may_end(
    store: Writer, script: str, arguments: str
) -> None:
    free = script.replace("timeout 60 ", "").replace("timeout 10h ", "")
    free = free.replace("(sleep 60; kill $$) &\n", "").replace("ulimit -t 60\n", "")

    def times(script: str) -> list[float]:
        decision = asked(store, script, arguments)
        again_ = again(decision, with_history(snapshot(store), decision, 100.0))
        plan = again_.plan or decision.plan
        assert ("program-ended" in codes(again_)) == (script != free)
        return [s.time_pct[0] for s in (plan.steps if plan else ()) if s.time_pct]

    assert max(times(free)) > 0
    assert max(times(script), default=0) <= 0


def test_a_number_of_the_users_that_fills_the_nodes_may_be_worth_more_than_a_cap(
    store: Writer,
) -> None:
    arguments = "-N1 --exclusive --cpus-per-task=28"
    capped = asked(store, HYBRID, arguments, plan=0)
    assert capped.changed and capped.plan is None
    decision = asked(store, HYBRID, arguments)
    (step,) = steps_of(decision)
    assert (step.ranks, step.threads) == (1, 28) and step.threads_new and step.cap_khz
    assert step.energy_pct is not None and capped.chosen is not None
    assert step.energy_pct[0] < 100 * capped.chosen.energy.change - 1
    assert step.time_pct is not None and step.time_pct[0] <= 5
    assert "chosen" not in codes(decision) and decision.chosen is None
    assert asked(store, HYBRID, "-N1 --exclusive --cpus-per-task=24").changed  # its own
    policy(store, axes={"threads": "keep"})
    assert asked(store, HYBRID, arguments).changed


def test_only_a_hook_that_sets_plans_gets_one(store: Writer) -> None:
    for hook in ("job_submit", "cli_filter", "run", ""):
        assert ask(store, script=SEVERAL, hook=hook).plan is None
    assert ask(store, script=SEVERAL, hook="explain").plan is not None


def test_the_holdout_is_drawn_and_recorded(store: Writer) -> None:
    policy(store, holdout=0.2)
    held = asked(store, chance=lambda: 0.1)
    assert held.plan is None and held.holdout and "holdout" in codes(held)
    assert asked(store, chance=lambda: 0.3).plan is not None
    nothing = asked(store, SEVERAL.replace("stencil", "other"), chance=lambda: 0.1)
    assert not nothing.holdout


def test_the_axes_hold(store: Writer) -> None:
    policy(store, axes={"threads": "keep"})
    assert asked(store).plan is None  # a cap would be slower
    steps = limited(store, 1000.0)
    assert steps and all(s.cap_khz and not s.threads_new for s in steps)
    policy(store, axes={"frequency": "keep"})
    steps = limited(store, 1000.0)
    assert steps and all(s.threads_new and not s.cap_khz for s in steps)


def test_the_better_of_a_cap_of_the_whole_job_and_of_its_steps(store: Writer) -> None:
    decision = asked(store)
    site = with_history(snapshot(store), decision, 100.0 / 0.9, part_s=100.0)
    planned = again(decision, site)
    assert {"whole-job", "step-plan"} <= codes(planned) and not planned.rewrite
    (step,) = steps_of(planned)
    assert step.threads_new and step.energy_pct is not None
    policy(store, axes={"threads": "keep"})
    site = with_history(snapshot(store), decision, 100.0 / 0.9, part_s=100.0)
    capped = again(decision, site)
    assert capped.changed and "whole-job" in codes(capped) and capped.plan is None
    assert capped.chosen is not None  # nine tenths of what its steps' threads spare are more
    assert 0.9 * step.energy_pct[0] < 100 * capped.chosen.energy.change


def test_a_choice_of_the_users_holds_for_the_programs_steps(store: Writer) -> None:
    off = {"workloads": {"stencil/*": {"off": True}}}
    assert asked(store, choices=off).plan is None
    pinned = {"workloads": {"stencil/default": {"pin": {"threads_per_node": 8}}}}
    assert asked(store, choices=pinned).plan is None
    strict = {"workloads": {"stencil/default": {"mode": "observe"}}}
    assert asked(store, choices=strict).plan is None


def test_a_number_of_threads_that_does_not_fill_the_nodes_is_the_users(store: Writer) -> None:
    two_ranks(store, workload="b")
    decision = asked(store, "#!/bin/bash\nsrun ./prepare\nsrun ./stencil b\n")
    decision = again(decision, with_history(snapshot(store), decision, 10.0, program="prepare"))
    for step in steps_of(decision):
        if step.ranks * step.threads != 28:
            assert not step.threads_new and not step.unset and step.cap_khz


def test_where_the_variable_is_unset_a_run_must_have_counted(store: Writer) -> None:
    options = [response("bdw", 1, 1, t, f) for t in range(4, 29, 4) for f in FREQS]
    model(store, "bdw", options, stats={})
    policy(store, axes={"frequency": "keep"})
    steps = steps_of(asked(store))
    assert steps and not any(s.unset for s in steps)
    model(store, "bdw", options)
    assert all(s.unset for s in steps_of(asked(store)) if s.ranks * s.threads == 28)


@pytest.mark.parametrize(("cores", "holds"), [("", True), (" -n1 -c28", False)])
def test_of_a_job_that_states_its_cores_a_run_must_have_known_them(
    store: Writer, cores: str, holds: bool
) -> None:
    options = [response("bdw", 1, 1, t, f) for t in range(4, 29, 4) for f in FREQS]
    counted = as_measured(options)
    model(store, "bdw", options, stats={**counted, "threads_of_cores": []})
    policy(store, axes={"frequency": "keep"})

    def holds_unset() -> bool:
        steps = steps_of(asked(store, arguments=f"-N1 --exclusive{cores}"))
        whole = [s for s in steps if s.ranks * s.threads == 28]
        assert whole and all(s.threads_new == 20 for s in whole)
        return any(s.unset for s in whole)

    assert holds_unset() is holds
    model(store, "bdw", options, stats=counted)
    assert holds_unset()


def test_a_model_that_knows_its_program_speaks_for_that_build(store: Writer) -> None:
    options = [response("bdw", 1, 1, t, f) for t in range(4, 29, 4) for f in FREQS]
    facts = [
        {"path": f"/opt/{n}/stencil", "size": 1, "mtime": 1, "build": n * 8}
        for n in ("a", "b", "c")
    ]
    model(store, "bdw", options, stats={**as_measured(options), "program": facts})
    steps = [s for s in steps_of(asked(store)) if s.threads == 28]
    assert [s.build for s in steps] == ["c" * 8, "b" * 8]
    assert all(s.entry.build for s in steps)


def test_known_workloads_come_before_the_one_for_any_arguments(store: Writer) -> None:
    only = [response("bdw", 1, 1, 28, FREE_KHZ)]
    model(store, "bdw", only, workload="quick")
    script = "#!/bin/bash\nsrun ./prepare\nsrun ./stencil $CASE\n"
    steps = limited(store, 1000.0, script=script)
    known = [s for s in steps if s.arguments == "quick"]
    of_any = [s for s in steps if s.arguments == ANY]
    assert known and all(s.unset and not s.changes for s in known)
    assert {(s.ranks, s.threads) for s in known} == {(s.ranks, s.threads) for s in of_any}
    assert max(map(steps.index, known)) < min(map(steps.index, of_any))
    policy(store, unknown_workload="skip")
    assert {s.arguments for s in limited(store, 1000.0, script=script)} == {""}


def test_arguments_that_are_not_known_may_set_threads(store: Writer) -> None:
    script = "#!/bin/bash\nsrun ./prepare\nsrun ./stencil $CASE\n"
    options = [response("bdw", 1, 1, t, f) for t in range(4, 29, 4) for f in FREQS]
    for workload in ("-nt 28", "case b"):
        model(store, "bdw", options, workload=workload)
    steps = limited(store, 1000.0, script=script)
    assert not any(s.threads_new for s in steps if s.arguments in (ANY, "-nt 28"))
    assert any(s.threads_new for s in steps if s.arguments == "case b")
    stated = "#!/bin/bash\nsrun ./prepare\nsrun ./stencil -nt 28\n"
    assert not any(s.threads_new for s in limited(store, 1000.0, script=stated))


def test_the_model_of_default_is_not_for_sizes(store: Writer) -> None:
    two_ranks(store, workload="-n 4")
    steps = steps_of(asked(store, LOOP))
    assert {s.arguments for s in steps} == {"-n 4"}


def test_what_earlier_jobs_started_is_planned(store: Writer) -> None:
    script = "#!/bin/bash\nsrun ./prepare\n. ./settings\nsrun $RUN\n"
    decision = asked(store, script)
    assert decision.plan is None
    policy(store, axes={"frequency": "keep"})
    known = again(decision, with_history(snapshot(store), decision, 100.0))
    assert {s.program for s in steps_of(known)} == {"stencil"}


def limited(
    store: Writer, past_s: float, *, script: str = SEVERAL, **more: Any
) -> Sequence[PlannedStep]:
    """Return the steps of a job of ten hours whose earlier ones took so long."""
    decision = asked(store, script)
    site = with_history(snapshot(store), decision, past_s, program="prepare", **more)
    return steps_of(again(decision, site))


def test_slower_steps_need_a_history_that_fits(store: Writer) -> None:
    def slower(steps: Sequence[PlannedStep]) -> bool:
        return any(s.time_pct is not None and s.time_pct[0] > 0 for s in steps)

    assert slower(limited(store, 3600.0))
    assert steps_of(asked(store)) and not slower(steps_of(asked(store)))
    assert not slower(limited(store, 36000.0 / 1.001))  # no room in its limit
    assert not slower(limited(store, 3600.0, nodes=2))  # of other jobs
    steps = limited(store, 36000.0 / 1.05)
    assert all(s.time_pct is None or s.time_pct[2] <= 5.0 for s in steps)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.floats(0.9, 1.2), st.floats(0.5, 1.1)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([None, 100.0, 3600.0, 35000.0, 80000.0]),
    st.sampled_from([0.0, 0.05, 0.3]),
)
def test_no_step_is_slower_than_its_policy_and_its_limit_allow(
    store: Writer,
    drawn: list[tuple[int, float, float]],
    past_s: float | None,
    max_slowdown: float,
) -> None:
    options: dict[object, Option] = {}
    for ranks in (1, 2, 4):
        written = response("bdw", 1, ranks, 28, FREE_KHZ)
        options[written.configuration] = written
        for number, (of_ranks, time, energy) in enumerate(drawn):
            if of_ranks == ranks:
                threads, khz = 28 - 4 * (number % 3), FREQS[-1 - number % 4]
                c = replace(written.configuration, threads_per_node=threads, freq_khz=khz)
                options.setdefault(
                    c,
                    replace(
                        written,
                        configuration=c,
                        **{
                            n: getattr(written, n) * (time if "time" in n else energy)
                            for n in VALUES
                        },
                    ),
                )
    model(store, "bdw", list(options.values()))
    policy(store, max_slowdown=max_slowdown)
    decision = asked(store)
    if past_s is not None:
        site = with_history(snapshot(store), decision, past_s, program="prepare")
        decision = again(decision, site)
    if decision.plan is None:
        return
    text = decision.plan.text(decision.id)
    assert read_plan(text) is not None
    room = 36000.0 / past_s if past_s else 1.0
    for step in decision.plan.steps:
        assert step.time_pct is not None and step.threads_new < step.threads
        slower = step.time_pct[0] / 100
        assert slower <= max_slowdown + 1e-4
        assert slower <= max(0.0, room - 1) + 1e-4
        assert not step.cap_khz or FREQS[0] <= step.cap_khz < FREE_KHZ
        assert not step.threads_new or step.ranks * step.threads == 28


def ended(store: Writer, decision: Decision, number: int, cap_khz: int | None = None) -> Outcome:
    """Store a decision as the daemon does, and collect its job."""
    at = NOW - timedelta(hours=11 - number)
    decision = replace(decision, created_at=at.isoformat())
    store.save_decision(decision)

    def step(index: int, name: str, took_s: float) -> StepRecord:
        watts = 216.0 * took_s
        return StepRecord(
            str(index), name, "COMPLETED", took_s, 1, 1, watts, cap_khz, None, cpus=28
        )

    job = JobRecord(
        str(number),
        "job.sh",
        decision.user,
        decision.account,
        "COMPLETED",
        submitted_at=at.isoformat(),
        elapsed_s=106.0,
        nodes=1,
        node_list="bdw1",
        energy_j=216.0 * 105,
        admin_comment=make_stamp(decision),
        ended_at=(at + timedelta(minutes=2)).isoformat(),
        partition="batch",
        cpus=28,
        resolution_s=0.01,
        whole_nodes=True,
        steps=(step(0, "prepare", 5.0), step(1, "stencil", 100.0)),
    )
    accounting = cast("Scheduler", Accounting([job]))
    assert not collect(store, accounting, NOW - timedelta(days=2)).failed
    with Reader(store.path) as reader:
        outcome = reader.outcome(str(number))
    assert outcome is not None
    return outcome


def test_its_outcome_is_held_against_no_promise_and_teaches_no_model(store: Writer) -> None:
    planned = asked(store)
    assert planned.plan is not None
    outcome = ended(store, planned, 1)
    assert outcome.verdict == "unknown"
    assert "steps were planned" in outcome.record["notes"][0]
    assert [s["program"] for s in outcome.record["steps"]] == ["prepare", "stencil"]
    assert outcome.record["planned_time"] <= 1
    assert not store.rows("SELECT 1 FROM observations WHERE source = 'job'")


def test_its_history_tells_its_time_and_no_cap_of_a_whole_job(store: Writer) -> None:
    for number in range(3):
        ended(store, asked(store), number)
    assert derive(store)
    decision = asked(store)
    history = snapshot(store).history(decision.identity)
    assert history is not None and not history.jobs
    assert len(history.planned) == 3 and history.planned[0].time_s >= 106.0
    steps = steps_of(decision)  # no whole job's cap, and steps may now be slower
    assert any(s.cap_khz for s in steps)


def test_an_interactive_job_may_start_what_its_user_measured(store: Writer) -> None:
    options = [response("bdw", 1, 1, t, f) for t in range(4, 29, 4) for f in FREQS]
    own: dict[str, Any] = {"scope": "own", "owner": "ada"}
    model(store, "bdw", options, "lattice", "case 1", **own)
    more: dict[str, Any] = {"type": "salloc", "argv": [], "hook": "cli_filter", "plan": 1}
    decision = ask(store, script=None, **more)
    assert "interactive" in codes(decision)
    assert {(s.program, s.arguments) for s in steps_of(decision)} == {("lattice", "case 1")}
    assert ask(store, script=None, user="bob", **more).plan is None
    unread = "#!/bin/bash\n. ./settings\nsrun $RUN\n"
    assert {s.program for s in steps_of(asked(store, unread))} == {"lattice"}
    assert {s.program for s in steps_of(asked(store))} == {"stencil"}


def test_nothing_is_told_of_what_others_measured(store: Writer) -> None:
    options = [response("bdw", 1, 1, t, f) for t in range(4, 29, 4) for f in FREQS]
    model(store, "bdw", options, workload="secret case", scope="own", owner="bob")
    script = "#!/bin/bash\nsrun ./prepare\nsrun ./stencil $CASE\n"
    steps = limited(store, 1000.0, script=script)
    assert {s.arguments for s in steps} == {"", ANY}
    model(store, "bdw", options, workload="my case", scope="own", owner="ada")
    assert {s.arguments for s in limited(store, 1000.0, script=script)} == {"", ANY, "my case"}


def test_lists_of_jobs_say_that_its_steps_are_looked_up(store: Writer) -> None:
    decision = asked(store)
    assert "looked up as it starts; known are stencil" in cause_of(decision.reasons)
    assert why_not(decision.reasons).endswith("more than one program: prepare, stencil")
